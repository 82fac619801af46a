"""Which options each kind of material takes, and their ranges, checked before anything is lifted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from vcrt.certification.episodes import PAPER_PRESET
from vcrt.errors import VcrtError

Source: TypeAlias = Literal["proofwriter", "lean", "clrs"]

_FREEZING = ("--output", "--jobs", "--backend")
TAKEN: dict[Source, tuple[str, ...]] = {
    "proofwriter": ("--limit", *_FREEZING),
    "lean": ("--json",),
    "clrs": ("--runs", "--length", "--steps", "--seed", *_FREEZING),
}


def require_taken(source: Source, options: Mapping[str, object]) -> None:
    """Refuse, by name, the given options that this kind of material does not take; None and False are not given.

    Workers are for certification alone, and only windows of four steps are certified.
    """
    taken = TAKEN[source]
    command = f"vcrt lift {source}"
    steps = options.get("--steps")
    if source == "clrs" and steps not in (None, PAPER_PRESET.num_operations):
        taken = tuple(name for name in taken if name not in ("--jobs", "--backend"))
        command += f" --steps {steps}"
    given = [name for name, value in options.items() if value is not None and value is not False]
    foreign = [name for name in given if name not in taken]
    if foreign:
        raise VcrtError(
            f"`{command}` does not take {', '.join(foreign)}",
            expected=f"no option but {', '.join(taken)}",
            remedy=f"leave out {', '.join(foreign)}",
        )


def require_within(option: str, value: int, low: int, high: int | None = None) -> None:
    """Refuse an option's number outside its range."""
    if value < low or (high is not None and value > high):
        raise VcrtError(
            "a number out of range",
            found=f"{option} {value}",
            expected=f"at least {low}" if high is None else f"from {low} to {high}",
        )
