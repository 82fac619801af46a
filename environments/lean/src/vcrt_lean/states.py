"""Say which states of a Lean proof are the same, by the goals as the driver writes them and the steps still to come.

A goal is its hypotheses, by the names that a step can use, its local instances in their order, its target and its tag;
terms without notations and names of bound variables. The order of goals counts unless every step still to come names
its goal (``case``). The order of hypotheses counts unless every tactic still to come is one that does not look at it.
Not covered: levels of universes that are still open.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from vcrt.hashing import Json, json_digest
from vcrt_lean.driving import Goal, Step


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: What every proof in Lean may rest on.
AXIOMS = frozenset(("propext", "Classical.choice", "Quot.sound"))
#: The last part of the name of a tactic's syntax, without underscores at its end: tactics whose outcome does not depend
#: on the order in which hypotheses stand. Those of Mathlib have not been tried.
_ORDERLESS = _words(
    """
    tacticHave tacticHaveI tacticLet tacticLetI tacticShow tacticSuffices tacticRefine_lift tacticExists_,
    exact apply applyRfl refine refine' intro intros obtain rcases cases induction case cdot paren
    rwSeq rewriteSeq tacticRwa simp simpa dsimp unfold change show delta calc calcTactic calcSteps first
    omega decide tacticRfl eqRefl tacticTrivial tacticContradiction contradiction tacticExfalso constructor left
    right exists symm ext funext tacticFunext injection injections subst specialize split nofun tacticNofun skip done
    tacticDone «tactic_<;>_» tacticUnit tacticAbsurd exacts congr ac_rfl
    linarith nlinarith ring ring1 ringNF normNum positivity fieldSimp pushNeg byContra useSyntax
    """
)
#: Parts of a tactic that look at hypotheses in turn.
_ORDERED = ("simpStar", "locationWildcard", "«term‹_›»")
_LAST = re.compile(r"(?:^|\.)(«[^»]*»|[^.«»]*)$")


class StateForm:
    """How the goals of a proof become its state, by the steps that are still to come."""

    def __init__(self, *, goals_named: bool, hypotheses_named: bool) -> None:
        self.goals_named = goals_named
        self.hypotheses_named = hypotheses_named

    @classmethod
    def of(cls, steps: Sequence[Step], source: bytes) -> StateForm:
        """The form for these steps of a file."""
        texts = [source[step.start : step.stop].decode(errors="replace") for step in steps]
        return cls(
            goals_named=all(text.split()[:1] == ["case"] for text in texts),
            hypotheses_named=all(map(_is_orderless, steps, texts)),
        )

    def digest(self, goals: Sequence[Goal]) -> str:
        """The hash of a state."""
        forms = [self._goal(goal) for goal in goals]
        return json_digest(sorted(forms, key=repr) if self.goals_named else forms)

    def _goal(self, goal: Goal) -> Json:
        hypotheses: list[Json] = [
            list(one)
            for one in (sorted(goal.hypotheses) if self.hypotheses_named else goal.hypotheses)
        ]
        return [goal.tag, hypotheses, list(goal.instances), goal.target]


def _is_orderless(step: Step, text: str) -> bool:
    last = {_last_part(kind) for kind in step.kinds}
    names_by_order = text.startswith("case ") and len(text.split("=>")[0].split()) > 2
    return (
        not names_by_order
        and last.isdisjoint(_ORDERED)
        and all(_last_part(kind).rstrip("_") in _ORDERLESS for kind in step.tactics)
    )


def _last_part(kind: str) -> str:
    match = _LAST.search(kind)
    return kind if match is None else match[1]
