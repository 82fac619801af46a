"""Settings that make an update need less memory and leave its result the same but for rounding.

They are no part of a plan: a run that ran out of memory goes on with others from its last checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from vcrt.errors import BackboneError, RunError
from vcrt.hashing import Json
from vcrt.policy.scoring import CausalModel
from vcrt.training.run import RunConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Frugality:
    """How an update saves memory, for more computation. For ``vcrt.train(..., frugality=...)``.

    >>> Frugality(prompts_at_a_time=1, gradient_checkpointing=True).record
    {'prompts_at_a_time': 1, 'gradient_checkpointing': True}
    """

    prompts_at_a_time: int | None = None
    """At most this many prompts are scored at a time by a process; all of its share without it."""
    gradient_checkpointing: bool = False
    """Layers keep their inputs alone, and compute their activations again for the backward pass."""

    def __post_init__(self) -> None:
        if self.prompts_at_a_time is not None and self.prompts_at_a_time < 1:
            raise RunError(
                "prompts_at_a_time is not possible",
                found=str(self.prompts_at_a_time),
                expected="1 or more",
            )

    def config(self, config: RunConfig) -> RunConfig:
        """The settings of a run with these."""
        if self.prompts_at_a_time is None:
            return config
        return replace(
            config, update=replace(config.update, prompts_at_a_time=self.prompts_at_a_time)
        )

    def apply(self, model: CausalModel) -> None:
        """Switch checkpointing on; raises :class:`BackboneError` for a model whose class has none."""
        if not self.gradient_checkpointing:
            return
        try:
            # transformers renames it; the older versions that are supported have the older name only.
            enable = getattr(model, "activation_checkpointing_enable", None)
            (enable or model.gradient_checkpointing_enable)({"use_reentrant": False})
        except ValueError as error:
            raise BackboneError(
                "the model has no gradient checkpointing",
                where=type(model).__name__,
                found=str(error),
                remedy="leave --gradient-checkpointing out",
            ) from error

    @property
    def record(self) -> dict[str, Json]:
        """What differs from the defaults, for a ledger."""
        values: dict[str, Json] = {
            "prompts_at_a_time": self.prompts_at_a_time,
            "gradient_checkpointing": self.gradient_checkpointing,
        }
        return {name: value for name, value in values.items() if value}


LAVISH = Frugality()
