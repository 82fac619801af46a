"""What is certified on clusters of every kind."""

from __future__ import annotations

from vcrt.replay.config import sampled

CONFIG = sampled({"clrs": ("bellman_ford",), "proofwriter": ("naf_sweep",)}, 25, seed=5)
