"""Read verdicts and canonical states from Lean's answers, part by part; all routes to Lean read with this.

A step is refused when Lean reports an error on its lines, or when what it declares depends on an axiom. States are made
of what Lean printed, with the names of the replay undone. Whatever stands after a refused step is not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from vcrt.environments.contract import Rejected, Replay
from vcrt.hashing import Json, json_digest
from vcrt_lean.messages import Answers, Message, Unreadable
from vcrt_lean.program import Declarations
from vcrt_lean.rendering import Rendered

_Sequence = tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Reached:
    """A canonical state: its content and its digest."""

    content: dict[str, Json]
    digest: str


@dataclass(kw_only=True, slots=True)
class Transcript:
    """What Lean said to sequences of the steps of one program.

    ``steps`` holds what it said to the last step of each prefix (of the empty one: to the start), and ``ends`` what it
    said to the start and to the end of proofs, as Lean reports open goals where a proof begins.
    """

    rendered: Rendered
    steps: dict[_Sequence, list[Message]] = field(default_factory=dict)
    ends: dict[_Sequence, tuple[list[Message], list[Message]]] = field(default_factory=dict)
    _outcomes: dict[_Sequence, _Reached | Rejected] = field(default_factory=dict)

    def verdict(self, sequence: _Sequence) -> Replay | Unreadable:
        """The verdict on a sequence, or why there is none; raises ``KeyError`` for one that was not run."""
        try:
            return self._replay(sequence)
        except Unreadable as problem:
            return problem

    def _replay(self, sequence: _Sequence) -> Replay:
        hashes: list[str] = []
        for count in range(len(sequence) + 1):
            state = self._outcome(sequence[:count])
            if isinstance(state, Rejected):
                return Replay(sequence, tuple(hashes), state)
            hashes.append(state.digest)
        # A proof must be ended; that of some of its steps is only where it stands in a text of its own.
        whole = self.rendered.is_complete(sequence)
        if isinstance(self.rendered.program, Declarations) or not (whole or sequence in self.ends):
            return Replay(sequence, tuple(hashes))
        ended = self._end(sequence, whole=whole)
        if isinstance(ended, Rejected):
            return Replay(sequence, tuple(hashes), ended)
        return Replay(sequence, (*hashes[:-1], ended.digest))

    def _outcome(self, prefix: _Sequence) -> _Reached | Rejected:
        """The state after a prefix of which all but the last step has been accepted, or Lean's refusal of that."""
        if prefix not in self._outcomes:
            part = self.rendered.steps[prefix[-1]] if prefix else self.rendered.start
            answers = Answers(self.rendered, part, self.steps[prefix])
            self._outcomes[prefix] = (
                self._step(prefix[:-1], answers) if prefix else self._start(answers)
            )
        return self._outcomes[prefix]

    def _accepted(self, prefix: _Sequence) -> _Reached:
        state = self._outcome(prefix)
        assert isinstance(state, _Reached), "what follows a refused step is not judged"
        return state

    def _start(self, answers: Answers) -> _Reached:
        if isinstance(self.rendered.program, Declarations):
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

    def _step(self, before: _Sequence, answers: Answers) -> _Reached | Rejected:
        if not isinstance(self.rendered.program, Declarations):
            error = answers.first_error("step", "trace")
            # After a refused step Lean may print goals too, in recovery; those mean nothing.
            return _open_goals(answers.trace()) if error is None else Rejected(error)
        error = answers.first_error("step", "axioms") or _axiom(answers)
        if error is not None:
            return Rejected(error)
        shown = self._accepted(before).content["declared"]
        assert isinstance(shown, dict)
        return _declared({**shown, **answers.printed("show")}, answers.printed("synth"))

    def _end(self, sequence: _Sequence, *, whole: bool) -> _Reached | Rejected:
        """The state after the whole of a proof, or Lean's refusal of the whole; of a prefix it is the last state."""
        state = self._accepted(sequence)
        said_to_start, said_to_end = self.ends[sequence]
        refusal = Answers(self.rendered, self.rendered.start, said_to_start).first_error("setup")
        end = Answers(self.rendered, self.rendered.parts(sequence)[-1], said_to_end)
        if not whole:
            if refusal is not None:
                raise Unreadable(refusal, malformed=True)
            if not end.reached_cut():
                raise Unreadable("Lean did not report the mark where the proof is cut off")
            return state
        refusal = refusal or end.first_error("closing", "show", "axioms") or _axiom(end)
        if refusal is not None:
            return Rejected(refusal)
        return _reached({**state.content, "theorem": end.printed("show")})


def read_alone(
    rendered: Rendered, sequence: _Sequence, said: Sequence[list[Message]]
) -> Replay | Unreadable:
    """The verdict on a sequence that was run by itself, from what Lean said to each of its parts."""
    start, *steps, end = said
    prefixes = {sequence[:count]: messages for count, messages in enumerate([start, *steps])}
    transcript = Transcript(rendered=rendered, steps=prefixes, ends={sequence: (start, end)})
    return transcript.verdict(sequence)


def _reached(content: dict[str, Json]) -> _Reached:
    return _Reached(content=content, digest=json_digest(content))


def _declared(shown: dict[str, str], instances: dict[str, str]) -> _Reached:
    return _reached({"declared": shown, "instances": instances})


def _axiom(answers: Answers) -> str | None:
    """Lean's words about the first declaration that depends on an axiom, or None."""
    for name, text in answers.printed("axioms").items():
        if text != f"'{name}' does not depend on any axioms":
            return text
    return None


def _open_goals(printed: str | None) -> _Reached:
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
