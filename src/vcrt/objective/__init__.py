"""Define the training objective: one module for each term of the paper, pure functions on tensors, and their sum.

=========================================  ==========================================================
equation or sentence of the paper          function
=========================================  ==========================================================
orbit mass and its gradient                :func:`vcrt.objective.orbit_mass.orbit_log_mass`
leave-one-out advantage ``A_i``            :func:`vcrt.objective.advantage.leave_one_out_advantage`
orbit ratio ``rho_i``                      :func:`vcrt.objective.ratio.orbit_log_ratio`
reduction to the trajectory ratio          :func:`vcrt.objective.ratio.trajectory_log_ratio`
policy loss ``L_orbit``                    :func:`vcrt.objective.clipped_loss.clipped_loss`
margin ``Delta``                           :func:`vcrt.objective.anti_diamond_margin.log_mass_margin`
separation loss ``L_anti``                 :func:`vcrt.objective.anti_diamond_margin.anti_diamond_loss`
commutation loss ``L_comm``                :func:`vcrt.objective.commutation.commutation_loss`
cap on source-orbit mass decline           :func:`vcrt.objective.retention.retention_loss`
cap on action KL                           :func:`vcrt.objective.action_kl.action_kl`
penalties ``Phi``                          :func:`vcrt.objective.augmented_lagrangian.penalties`
complete objective                         :func:`vcrt.objective.total.objective`
=========================================  ==========================================================
"""
