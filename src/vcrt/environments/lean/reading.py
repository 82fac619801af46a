"""Read verdicts and canonical states from Lean's answers, part by part; all routes to Lean read with this.

A step is refused when Lean reports an error on its lines, or when what it declares depends on an axiom. States are made
of what Lean printed, with the names of the replay undone. Whatever stands after a refused step is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from vcrt.environments.contract import Rejected, Replay
from vcrt.environments.lean.messages import Answers, Language, Message, Unreadable
from vcrt.environments.lean.program import Declarations, Program
from vcrt.environments.lean.rendering import Part, asks_for_state, is_complete
from vcrt.hashing import Json, json_digest

_Sequence = tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Reached:
    """A canonical state: its content and its digest."""

    content: dict[str, Json]
    digest: str


def read_text(
    program: Program,
    sequence: _Sequence,
    language: Language,
    parts: Sequence[Part],
    messages: Sequence[Message],
    known: dict[_Sequence, Reached],
) -> Replay:
    """The verdict on a sequence that was run by itself, from all that Lean said to the lines of ``parts``.

    The parts are the start, each step and the end. Where one is silent, the state after it is taken from ``known``;
    states that were asked for are added to it. Raises :class:`Unreadable`.
    """

    def answers() -> Iterator[Answers]:
        first = 1
        for part in parts:
            own = [m for m in messages if first <= m.line < first + len(part)]
            yield Answers(language, part, [replace(m, line=m.line - first + 1) for m in own])
            first += len(part)

    def noted(count: int, reached: Reached) -> Reached:
        prefix, part = sequence[:count], parts[count]
        # An empty part has nothing to ask for.
        if asks_for_state(part) or not part:
            known.setdefault(prefix, reached)
        elif prefix not in known:
            raise Unreadable("the state was asked for in another replay, which has no verdict")
        return known[prefix]

    of_part = answers()
    start = next(of_part)
    state = noted(0, read_start(program, start))
    hashes = [state.digest]
    for count in range(1, len(sequence) + 1):
        after = read_step(program, state, next(of_part))
        if isinstance(after, Rejected):
            return Replay(sequence, tuple(hashes), after)
        state = noted(count, after)
        hashes.append(state.digest)
    complete = is_complete(program, sequence)
    ended = read_end(program, state, start, next(of_part), complete=complete)
    if isinstance(ended, Rejected):
        return Replay(sequence, tuple(hashes), ended)
    return Replay(sequence, (*hashes[:-1], ended.digest))


def read_start(program: Program, answers: Answers) -> Reached:
    """The initial state."""
    if isinstance(program, Declarations):
        error = answers.first_error("setup", "show")
        if error is not None:
            raise Unreadable(error, malformed=True)
        return _declared(answers.printed("show"), answers.printed("synth"))
    error = answers.first_error("opening")
    goals = answers.trace()
    if error is None and goals is None:
        error = answers.first_error("setup", "trace")
    if error is not None:
        raise Unreadable(error, malformed=True)
    return _open_goals(goals)


def read_step(program: Program, state: Reached, answers: Answers) -> Reached | Rejected:
    """The state after a step that was run in ``state``, or Lean's refusal of it."""
    if isinstance(program, Declarations):
        error = answers.first_error("step", "axioms") or _axiom(answers)
    else:
        error = answers.first_error("step", "trace")
    if error is not None:
        return Rejected(error)
    if isinstance(program, Declarations):
        shown = state.content["declared"]
        assert isinstance(shown, dict)
        return _declared({**shown, **answers.printed("show")}, answers.printed("synth"))
    # After a refused step Lean may print goals too, in recovery; those mean nothing.
    return _open_goals(answers.trace())


def read_end(
    program: Program, state: Reached, start: Answers, end: Answers, *, complete: bool
) -> Reached | Rejected:
    """The state after the whole of a sequence, or Lean's refusal of the whole; of a prefix it is the last state.

    ``start`` holds the answers to the start of this very sequence: Lean reports open goals where a proof begins.
    """
    if isinstance(program, Declarations):
        return state
    refusal = start.first_error("setup")
    if not complete:
        if refusal is not None:
            raise Unreadable(refusal, malformed=True)
        if not end.reached_cut():
            raise Unreadable("Lean did not report the mark where the proof is cut off")
        return state
    refusal = refusal or end.first_error("closing", "show", "axioms") or _axiom(end)
    if refusal is not None:
        return Rejected(refusal)
    return _reached({**state.content, "theorem": end.printed("show")})


def _reached(content: dict[str, Json]) -> Reached:
    return Reached(content=content, digest=json_digest(content))


def _declared(shown: dict[str, str], instances: dict[str, str]) -> Reached:
    return _reached({"declared": shown, "instances": instances})


def _axiom(answers: Answers) -> str | None:
    """Lean's words about the first declaration that depends on an axiom, or None."""
    for name, text in answers.printed("axioms").items():
        if text != f"'{name}' does not depend on any axioms":
            return text
    return None


def _open_goals(printed: str | None) -> Reached:
    if printed is None:
        raise Unreadable("the goals were not printed whole")
    goals = [_goal(text) for text in printed.split("\n\n") if text]
    return _reached({"goals": sorted(goals)})


def _goal(text: str) -> list[str]:
    """The tag of a goal, its target and its hypotheses, one a name, sorted."""
    entries: list[str] = []
    for line in text.split("\n"):
        if line.startswith(" ") and entries:
            entries[-1] += line
        else:
            entries.append(line)
    tag = entries.pop(0) if entries[0].startswith("case ") else ""
    *hypotheses, target = (" ".join(entry.split()) for entry in entries)
    if not target.startswith("⊢ ") or not all(" : " in entry for entry in hypotheses):
        raise Unreadable(f"a goal that cannot be read: {text}")
    parts = (entry.split(" : ", 1) for entry in hypotheses)
    return [
        tag,
        target,
        *sorted(f"{name} : {kind}" for names, kind in parts for name in names.split()),
    ]
