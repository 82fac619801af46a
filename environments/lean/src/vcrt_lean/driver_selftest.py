"""Try a driver on proofs whose answers are known, before it judges anything.

Not covered: what a project's own tactics do.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from vcrt.errors import MalformedInputError, UnavailableError, VerifierFailure
from vcrt_lean.driving import Answers, DriverSession, Theorem
from vcrt_lean.project import DRIVER, OLDEST, Project
from vcrt_lean.states import AXIOMS, StateForm

#: The proofs: facts in any order but one, a hole, and goals by name.
PROOFS = Path(__file__).with_name("driver_selftest.lean")


def check(session: DriverSession, project: Project) -> None:
    """Raise :class:`UnavailableError` if the driver judges otherwise than it should."""
    try:
        wrong = list(_wrong(session))
    except (MalformedInputError, VerifierFailure) as error:
        wrong = [error.found or error.what]
    if wrong:
        raise UnavailableError(
            f"{project.label} does not judge as it should when it runs vcrt's driver",
            where=" ".join(project.command),
            found="; ".join(wrong)[:1000],
            expected=f"Lean {'.'.join(map(str, OLDEST))} or later with the interfaces that {DRIVER.name} uses",
            remedy="report it, with this message; another version of Lean may do",
        )


def _wrong(session: DriverSession) -> Iterable[str]:
    """What is not as it should be."""
    theorems, source = session.open(PROOFS), PROOFS.read_bytes()
    found = [(theorem.name, len(theorem.steps)) for theorem in theorems]
    if found != [("facts", 4), ("hole", 3), ("goals", 3)]:
        yield f"theorems {found}"
        return
    facts, hole, goals = theorems
    first = facts.steps[0]
    if source[first.start : first.stop] != b"have h1 : p := hp" or first.line != 2:
        yield f"a first step at {first}"
    orders = [(0, 1, 2, 3), (1, 0, 2, 3), (2,), (0, 2)]
    answers = session.replay(PROOFS, 0, first=0, count=4, sequences=orders)
    states = _states(answers, facts, source)
    for what, is_right in (
        ("h1 and h2 commute", (0, 1) in states and states[0, 1] == states.get((1, 0))),
        ("h1 changes the state", states.get((0,)) != states.get(())),
        ("h1 and h2 are two states", states.get((0,)) != states.get((1,))),
        ("h3 needs h1", "h1" in str(answers.nodes.get((2,)))),
        ("h3 needs h2", "h2" in str(answers.nodes.get((0, 2)))),
        ("facts is proved", _is_proved(answers, orders[0])),
        ("facts is proved in another order", _is_proved(answers, orders[1])),
    ):
        if not is_right:
            yield f"not so: {what}"
    answers = session.replay(PROOFS, 1, first=0, count=2, sequences=[(0, 1)])
    if hole.name != "hole" or "sorryAx" not in answers.ends.get((0, 1), ()):
        yield f"a hole that ends as {answers.ends}"
    answers = session.replay(PROOFS, 2, first=1, count=2, sequences=[(0, 1), (1, 0)])
    if not (_is_proved(answers, (0, 1)) and _is_proved(answers, (1, 0))):
        yield f"{goals.name} that end as {answers.ends}"


def _states(answers: Answers, theorem: Theorem, source: bytes) -> dict[tuple[int, ...], str]:
    form = StateForm.of(theorem.steps, source)
    return {
        path: form.digest(node) for path, node in answers.nodes.items() if not isinstance(node, str)
    }


def _is_proved(answers: Answers, order: tuple[int, ...]) -> bool:
    end = answers.ends.get(order)
    return end is not None and not isinstance(end, str) and AXIOMS.issuperset(end)
