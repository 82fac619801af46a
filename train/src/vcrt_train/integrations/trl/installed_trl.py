"""Import what is used of TRL, or raise a named error where it is not installed."""

from vcrt.errors import UnavailableError

try:
    from trl import GRPOConfig, GRPOTrainer
    from trl.models.utils import disable_gradient_checkpointing
except ImportError as error:
    raise UnavailableError(
        "TRL is not installed", found=str(error), remedy="pip install 'vcrt-train[trl]'"
    ) from error

__all__ = ["GRPOConfig", "GRPOTrainer", "disable_gradient_checkpointing"]
