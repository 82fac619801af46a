"""Hold the weights and caps of the objective."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectiveConfig:
    """The weights and caps of the objective; the defaults are this library's demonstration preset."""

    #: Half-width of the interval around 1 to which policy ratios are clipped.
    clip: float = 0.2
    #: Weight of the anti-diamond loss, and of the contrastive loss of the method that has one.
    alpha: float = 0.1
    #: By how much the legal log-mass should exceed the illegal one, in nats.
    margin: float = 2.0
    #: Stiffness of the penalties and size of the dual steps.
    mu: float = 10.0
    #: Cap on the expected commutation loss, in nats.
    commutation_cap: float = 0.01
    #: Cap on the mean decline of source-orbit mass, as probability.
    retention_cap: float = 0.05
    #: Cap on the action KL, in nats per choice.
    action_kl_cap: float = 0.20

    def __post_init__(self) -> None:
        if not 0 < self.clip < 1:
            raise ValueError(f"clip must lie between 0 and 1, got {self.clip}")
        if self.mu <= 0:
            raise ValueError(f"mu must be positive, got {self.mu}")
        if self.alpha < 0:
            raise ValueError(f"alpha must not be negative, got {self.alpha}")
