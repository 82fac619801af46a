"""Judge windows of steps of a user's own Lean proofs by the Lean of their project.

A complete order must give a theorem that Lean's kernel accepts and that rests on Lean's own three axioms at most. The
state of a proof is its goals as the driver writes them. A goal is its hypotheses, by the names that a step can use, its
local instances in their order, its target and its tag; terms have neither notations nor names of bound variables. The
order of goals counts unless every remaining step names its goal (``case``). The order of hypotheses counts unless no
remaining tactic depends on it. Open universe levels, and another kernel's opinion, are not covered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from vcrt.environments.contract import (
    BatchEnvironment,
    Episode,
    Guards,
    Operation,
    Rejected,
    Replay,
    ReplayRequest,
    Schema,
    Versions,
)
from vcrt.environments.shared_prefixes import replay_by_episode
from vcrt.errors import MalformedInputError, UnavailableError, UnknownNameError, VerifierFailure
from vcrt.hashing import Json, json_digest, sha256_hex
from vcrt.processes.programs import protections_by
from vcrt_lean.project import (
    DRIVER,
    OLDEST,
    Answers,
    DriverSession,
    Goal,
    Limits,
    Project,
    Step,
    Theorem,
)

#: The self-test's proofs: facts in any order but one, a hole, and goals by name.
PROOFS = Path(__file__).with_name("driver_selftest.lean")
#: The axioms that every proof in Lean may rest on.
AXIOMS = frozenset(("propext", "Classical.choice", "Quot.sound"))


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: The last part of the name of a tactic's syntax, without trailing underscores, for tactics whose outcome does not
#: depend on the order of hypotheses. Mathlib's have not been tried.
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
#: Parts of a tactic that search the hypotheses in turn.
_ORDERED = ("simpStar", "locationWildcard", "«term‹_›»")
_LAST = re.compile(r"(?:^|\.)(«[^»]*»|[^.«»]*)$")


class LeanProjectEnvironment(BatchEnvironment):
    """Windows of the proofs in a project's files; each process replays them by one driver."""

    name: ClassVar[str] = "lean-project"
    schemas: ClassVar[tuple[Schema, ...]] = ()
    preferred_batch: ClassVar[int] = 240
    #: The driver has smaller limits of its own, whose errors name the file.
    call_timeout_s: ClassVar[float] = 3600.0

    def __init__(self, project: Project) -> None:
        self.project = project
        self._session = DriverSession(project, Limits())
        self._is_tried = False
        self._opened: dict[Path, tuple[str, tuple[Theorem, ...]]] = {}

    def close(self) -> None:
        """End the driver."""
        self._session.close()

    def versions(self) -> Versions:
        """Return the versions of the judging Lean."""
        return Versions(
            environment=self.name,
            adapter="1",
            canonicalizer="1",
            verifier=self.project.label,
            libraries=dict(self.project.digests),
        )

    def theorems(self, file: Path) -> tuple[Theorem, ...]:
        """Return the theorems of a file that have tactic proofs.

        Raise :class:`MalformedInputError` for one that does not compile, :class:`VerifierFailure`, and
        :class:`vcrt.errors.UnavailableError` if the driver does not judge as expected.
        """
        digest = sha256_hex(file.read_bytes())
        if not self._is_tried:
            check(self._session, self.project)
            self._is_tried = True
        if file not in self._opened or self._opened[file][0] != digest:
            self._session.close()
            self._opened[file] = digest, self._session.open(file)
        return self._opened[file][1]

    def sample(self, schema: str, seed: int) -> Episode:
        """Raise :class:`UnknownNameError`: nothing can be sampled."""
        raise UnknownNameError.of(f"{self.name} schema", schema, ())

    def replay(self, requests: Sequence[ReplayRequest]) -> list[Replay]:
        """Return Lean's answers; run prefixes of one episode once.

        Raise :class:`MalformedInputError` for an episode that is not of this project as it is now, and
        :class:`VerifierFailure` if Lean gives no verdict.
        """
        return replay_by_episode(requests, self._replayed)

    def guards(self) -> Guards:
        """Return the protections from the driver here."""
        report = protections_by(self._session.bounds())
        return Guards(in_force=report.in_force, absent=report.absent)

    def describe(self, operation: Operation) -> str:
        """Return the step as the file has it."""
        return str(operation.payload)

    def _replayed(self, episode: Episode, sequences: Sequence[tuple[int, ...]]) -> list[Replay]:
        initial: Any = episode.initial
        file = self.project.folder / str(initial["file"])
        number, first = int(initial["number"]), int(initial["first"])
        theorems = self.theorems(file)
        if self._opened[file][0] != initial["sha256"] or number >= len(theorems):
            raise MalformedInputError(
                "a file that is no longer what an episode was lifted from",
                where=episode.episode_id,
                found=str(file),
                expected=f"SHA-256 {initial['sha256']}",
                remedy="lift it again",
            )
        answers = self._session.replay(
            file, number, first=first, count=episode.num_operations, sequences=sequences
        )
        form = StateForm.of(theorems[number].steps[first:], file.read_bytes())
        return [replay_of(sequence, answers, form, episode) for sequence in sequences]


def replay_of(
    sequence: tuple[int, ...], answers: Answers, form: StateForm, episode: Episode
) -> Replay:
    """Return the replay of one sequence by the driver's answers; raise :class:`VerifierFailure` if one is missing."""
    hashes = list[str]()
    for length in range(len(sequence) + 1):
        node = answers.nodes.get(sequence[:length])
        if node is None:
            raise _unanswered(sequence[:length], episode)
        if isinstance(node, str):
            return Replay(sequence, tuple(hashes), Rejected(node))
        hashes.append(form.digest(node))
    if len(sequence) < episode.num_operations:
        return Replay(sequence, tuple(hashes))
    end = answers.ends.get(sequence)
    if end is None:
        raise _unanswered(sequence, episode)
    return Replay(sequence, tuple(hashes), _refused_end(end))


def _refused_end(end: tuple[str, ...] | str) -> Rejected | None:
    if isinstance(end, str):
        return Rejected(f"at the end: {end}")
    assumed = sorted(set(end) - AXIOMS)
    if assumed:
        return Rejected(f"a theorem that rests on what is not proved: {', '.join(assumed)}")
    return None


def _unanswered(sequence: tuple[int, ...], episode: Episode) -> VerifierFailure:
    return VerifierFailure(
        "the driver gave no answer to a sequence of steps",
        where=episode.episode_id,
        found=str(list(sequence)),
        expected="an answer to each",
    )


class StateForm:
    """The form of a proof's state, which depends on the remaining steps."""

    def __init__(self, *, goals_named: bool, hypotheses_named: bool) -> None:
        self.goals_named = goals_named
        self.hypotheses_named = hypotheses_named

    @classmethod
    def of(cls, steps: Sequence[Step], source: bytes) -> StateForm:
        """Return the form for these steps of a file."""
        texts = [source[step.start : step.stop].decode(errors="replace") for step in steps]
        return cls(
            goals_named=all(text.split()[:1] == ["case"] for text in texts),
            hypotheses_named=all(map(_is_orderless, steps, texts)),
        )

    def digest(self, goals: Sequence[Goal]) -> str:
        """Return the hash of a state."""
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


def check(session: DriverSession, project: Project) -> None:
    """Raise :class:`UnavailableError` if the driver does not judge as expected."""
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
    """Yield the failed expectations."""
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
