"""Which states of a Lean proof are the same: when the order of goals and of hypotheses counts."""

from __future__ import annotations

import pytest

from vcrt_lean.project import Goal, Step
from vcrt_lean.project_environment import StateForm

HAVE = "Lean.Parser.Tactic.tacticHave_"


def form(*steps):
    """The form for steps that are given by text, kinds of tactics and other kinds."""
    source, made = b"", []
    for text, tactics, kinds in steps:
        start = len(source)
        source += text.encode() + b"\n"
        made.append(
            Step(
                start=start,
                stop=len(source) - 1,
                line=len(made) + 1,
                column=0,
                end_line=len(made) + 1,
                end_column=len(text),
                tactics=tuple(tactics),
                kinds=tuple(kinds),
            )
        )
    return StateForm.of(made, source)


def goal(*names, tag="", instances=()):
    hypotheses = tuple((name, f"Sort {name[0]}") for name in names)
    return Goal(tag=tag, hypotheses=hypotheses, instances=instances, target="Sort 0")


@pytest.mark.parametrize(
    ("step", "is_indifferent"),
    [
        (("have h : p := hp", [HAVE], ["null"]), True),
        (("have h : p := hp", ["Lean.Parser.Tactic.tacticHave__"], []), True),
        (("simp [h]", ["Lean.Parser.Tactic.simp"], []), True),
        (("simp [*]", ["Lean.Parser.Tactic.simp"], ["Lean.Parser.Tactic.simpStar"]), False),
        (
            ("rw [h] at *", ["Lean.Parser.Tactic.rwSeq"], ["Lean.Parser.Tactic.locationWildcard"]),
            False,
        ),
        (("exact f ‹p›", ["Lean.Parser.Tactic.exact"], ["«term‹_›»"]), False),
        (("rename_i h", ["Lean.Parser.Tactic.renameI"], []), False),
        (("mine", ["Mine.«tacticMine_..»"], []), False),
        (("case inl h => exact h", ["Lean.Parser.Tactic.case"], []), False),
        (("case inl => exact h", ["Lean.Parser.Tactic.case"], []), True),
        (("a <;> b", ["Lean.Parser.Tactic.«tactic_<;>_»"], []), True),
    ],
)
def test_the_order_of_hypotheses_counts_where_a_tactic_may_look_at_it(step, is_indifferent):
    found = form(step)
    same = found.digest([goal("h", "k")]) == found.digest([goal("k", "h")])
    assert same is is_indifferent
    assert found.digest([goal("h")]) != found.digest([goal("k")])


def test_one_step_that_may_look_at_it_is_enough():
    steps = [
        ("have h : p := hp", [HAVE], []),
        ("assumption", ["Lean.Parser.Tactic.assumption"], []),
    ]
    assert not form(*steps).hypotheses_named


def test_the_order_of_local_instances_always_counts():
    found = form(("have h : p := hp", [HAVE], []))
    one, other = ("a", "b"), ("b", "a")
    assert found.digest([goal("a", "b", instances=one)]) != found.digest(
        [goal("a", "b", instances=other)]
    )


def test_the_order_of_goals_counts_unless_every_step_names_its_goal():
    named = ("case a => exact h", ["Lean.Parser.Tactic.case"], [])
    bullet = ("· exact h", ["Lean.cdot"], [])
    a, b = goal("h", tag="a"), goal("h", tag="b")
    assert form(named, named).digest([a, b]) == form(named, named).digest([b, a])
    assert form(named, bullet).digest([a, b]) != form(named, bullet).digest([b, a])
    assert form(named).digest([a]) != form(named).digest([b])
