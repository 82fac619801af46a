"""Name methods and environments as the paper spells them, and name the methods that every report compares.

Names are the same if they differ in nothing but case, hyphens, underscores and spaces.
"""

from __future__ import annotations

#: The method under study.
METHOD = "VCRT"
#: The matched baseline without the interface of the method under study, and the one with it.
OUTCOME, CANONICAL = BASELINES = ("Outcome-GRPO", "Canonical-GRPO")
_SPELLINGS = (
    *("Lean", "ProofWriter", "CLRS"),
    *(METHOD, *BASELINES, "No-Anti", "No-Orbit", "Shuffled-Orbit"),
)


def same_name(first: str, second: str) -> bool:
    """Whether two names are equal but for case, hyphens, underscores and spaces."""
    return _letters(first) == _letters(second)


def display_name(name: str) -> str:
    """The paper's spelling of a method or environment, or the name itself if the paper does not have it."""
    return next((spelling for spelling in _SPELLINGS if same_name(spelling, name)), name)


def _letters(name: str) -> str:
    return "".join(character for character in name.casefold() if character.isalnum())
