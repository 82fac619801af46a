"""Import what is used of verl, or raise a named error where it is not installed."""

from vcrt.errors import UnavailableError

try:
    from verl.protocol import DataProto
    from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla, register_policy_loss
    from verl.utils.model import compute_position_id_with_mask
except ImportError as error:
    raise UnavailableError(
        "verl is not installed, or what it imports is not",
        found=str(error),
        expected="verl 0.9.1",
        remedy="install verl as its own documentation says",
    ) from error

__all__ = [
    "DataProto",
    "compute_policy_loss_vanilla",
    "compute_position_id_with_mask",
    "register_policy_loss",
]
