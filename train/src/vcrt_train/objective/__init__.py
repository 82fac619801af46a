"""Define the training objective: the equations of the paper as pure functions on tensors, and their sum.

=========================================  ==========================================================
equation or sentence of the paper          function
=========================================  ==========================================================
orbit mass and its gradient                :func:`vcrt_train.objective.orbit_mass.orbit_log_mass`
leave-one-out advantage ``A_i``            :func:`vcrt_train.objective.losses.leave_one_out_advantage`
orbit ratio ``rho_i``                      :func:`vcrt_train.objective.losses.orbit_log_ratio`
reduction to the trajectory ratio          :func:`vcrt_train.objective.losses.trajectory_log_ratio`
policy loss ``L_orbit``                    :func:`vcrt_train.objective.losses.clipped_loss`
margin ``Delta``                           :func:`vcrt_train.objective.losses.log_mass_margin`
separation loss ``L_anti``                 :func:`vcrt_train.objective.losses.anti_diamond_loss`
commutation loss ``L_comm``                :func:`vcrt_train.objective.losses.commutation_loss`
cap on source-orbit mass decline           :func:`vcrt_train.objective.losses.retention_loss`
cap on action KL                           :func:`vcrt_train.objective.losses.action_kl`
penalties ``Phi``                          :func:`vcrt_train.objective.losses.penalties`
complete objective                         :func:`vcrt_train.objective.total.objective`
=========================================  ==========================================================
"""
