"""Define the training objective: one module for each term of the paper, pure functions on tensors, and their sum.

=========================================  ==========================================================
equation or sentence of the paper          function
=========================================  ==========================================================
orbit mass and its gradient                :func:`vcrt_train.objective.orbit_mass.orbit_log_mass`
leave-one-out advantage ``A_i``            :func:`vcrt_train.objective.advantage.leave_one_out_advantage`
orbit ratio ``rho_i``                      :func:`vcrt_train.objective.ratio.orbit_log_ratio`
reduction to the trajectory ratio          :func:`vcrt_train.objective.ratio.trajectory_log_ratio`
policy loss ``L_orbit``                    :func:`vcrt_train.objective.clipped_loss.clipped_loss`
margin ``Delta``                           :func:`vcrt_train.objective.anti_diamond_margin.log_mass_margin`
separation loss ``L_anti``                 :func:`vcrt_train.objective.anti_diamond_margin.anti_diamond_loss`
commutation loss ``L_comm``                :func:`vcrt_train.objective.commutation.commutation_loss`
cap on source-orbit mass decline           :func:`vcrt_train.objective.retention.retention_loss`
cap on action KL                           :func:`vcrt_train.objective.action_kl.action_kl`
penalties ``Phi``                          :func:`vcrt_train.objective.augmented_lagrangian.penalties`
complete objective                         :func:`vcrt_train.objective.total.objective`
=========================================  ==========================================================
"""
