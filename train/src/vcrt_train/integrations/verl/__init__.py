"""Run Orbit-GRPO in verl: a policy loss in its registry, and the expansion of a batch into the rows of orbits.

verl's loss sees rows and no groups, so a success is expanded into one row for each member of its orbit, with the
weight ``pi_old(y) / Z_old(O)`` (:mod:`vcrt_train.integrations.orbit_rows`). Gradients are exact at the first step of an
update; after it, each row is clipped by itself instead of the orbit. The loss and the expansion need an installed verl;
they use only ``verl.protocol``, ``verl.utils.model`` and ``verl.trainer.ppo.core_algos``.

Source: the paper's Section "Orbit-GRPO"; verl's ``register_policy_loss`` and its plug-ins, as of version 0.9.1.
"""

from vcrt_train.integrations.verl.loss import NAME, orbit_grpo
from vcrt_train.integrations.verl.orbit_batch import expand, sampled_members

__all__ = ["NAME", "expand", "orbit_grpo", "sampled_members"]
