"""Run the steps of one program in Lean, each prefix once, and keep what was reached for the program's next request.

A prefix of declarations leads to a state of Lean's own. A proof is one theorem with a hook where its steps stand: its
steps are tactics, each run from the snapshot that its prefix left, and a snapshot of one elaboration is put in place in
another as :meth:`vcrt_lean.proofs.Proofs.finish` does. Requests and answers are those of
:mod:`vcrt_lean.worker`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from vcrt_lean.elaborator import Command, Elaborator, ElaboratorError, Said, State
from vcrt_lean.proofs import HOOK, Proofs, Snapshot, Stage, tactics
from vcrt_lean.recheck import Rechecker
from vcrt_lean.values import Value

Order: TypeAlias = tuple[int, ...]


class _Reached(NamedTuple):
    """What Lean said to a step, and where it led if it was not refused."""

    said: list[Said]
    place: Any


class Replaying(ABC):
    """A program whose steps can be run; of each prefix it keeps what was reached."""

    def __init__(self) -> None:
        self._reached: dict[Order, _Reached] = {}

    def answer(self, sequences: list[list[int]], rechecker: Rechecker) -> dict[str, Any] | None:
        """The answer to a request: None if the steps cannot be run one by one."""
        orders = dict.fromkeys(map(tuple, sequences))
        prefixes = dict.fromkeys(order[:k] for order in orders for k in range(1, len(order) + 1))
        start = self._explored(prefixes)
        if start is None:
            return None
        steps, ends = [], []
        for prefix in prefixes:
            if prefix not in self._reached:
                continue
            said, place = self._reached[prefix]
            steps.append((prefix, said))
            if place is not None:
                end = self._end(prefix, place, rechecker, asked=prefix in orders)
                ends += [] if end is None else [(prefix, *end)]
        return {"said": start, "steps": steps, "ends": ends}

    def _grow(self, prefixes: Iterable[Order], run: Callable[[Any, int], _Reached]) -> None:
        """Run what is not known yet of ``prefixes``; ``run`` takes the place from which a step starts."""
        for prefix in prefixes:
            before = self._reached.get(prefix[:-1])
            if prefix not in self._reached and before is not None and before.place is not None:
                self._reached[prefix] = run(before.place, prefix[-1])

    @abstractmethod
    def _explored(self, prefixes: Iterable[Order]) -> list[Said] | None:
        """Run ``prefixes``, of which shorter ones stand first: what Lean said to the start."""

    @abstractmethod
    def _end(
        self, order: Order, place: Any, rechecker: Rechecker, *, asked: bool
    ) -> tuple[list[Said], list[Said]] | None:
        """Check again what was accepted, and end a proof that is ``asked`` for: what Lean says then."""


class Declarations(Replaying):
    """Declarations after the state ``start``, which fixes their syntax; ``texts`` are those of the request.

    What Lean prints of a constant is asked for again only where the same text has declared another constant than
    before: Lean prints equal constants alike.
    """

    _START = -1

    def __init__(self, elaborator: Elaborator, start: State, texts: dict[str, Any]) -> None:
        super().__init__()
        self._elaborator = elaborator
        self._start = start
        self._texts = {self._START: texts["start"], **dict(enumerate(texts["steps"]))}
        self._parsed: dict[int, list[Command]] = {}
        self._known: dict[int, tuple[Value, list[Said]]] = {}

    def _explored(self, prefixes: Iterable[Order]) -> list[Said]:
        if () not in self._reached:
            self._reached[()] = self._run(self._start, self._START)
        self._grow(prefixes, self._run)
        return self._reached[()].said

    def _end(self, order: Order, place: Any, rechecker: Rechecker, *, asked: bool) -> None:
        for name in self._texts[order[-1]]["declared"]:
            rechecker.check(place, name, self._reached[order].said)

    def _run(self, state: State, step: int) -> _Reached:
        text, guarded = self._texts[step]["text"], self._texts[step]["guarded"]
        if step not in self._parsed:
            self._parsed[step] = self._elaborator.parse(self._start, text)
        first, *rest = self._parsed[step]
        state, said = self._elaborator.run_command(state, first)
        if self._texts[step]["name"] and not said and len(rest) == text.count("\n"):
            said = self._questions(state, step, rest[: guarded - 1])
            rest = rest[guarded - 1 :]
        for command in rest:
            state, more = self._elaborator.run_command(state, command)
            said += more
        refused = any(severity == "error" and line <= guarded for line, severity, _ in said)
        return _Reached(said, None if refused else state)

    def _questions(self, state: State, step: int, questions: list[Command]) -> list[Said]:
        """What Lean says about the constant that was just declared."""
        name = self._texts[step]["name"]
        elaborator = self._elaborator
        constant = elaborator.find(elaborator.environment(state), elaborator.library.name(name))
        if constant is None:
            raise ElaboratorError(f"{name} was declared without a word, and is not there")
        known = self._known.get(step)
        if known is not None and self._elaborator.same_declaration(known[0], constant):
            return list(known[1])
        said: list[Said] = []
        for question in questions:
            said += self._elaborator.run_command(state, question)[1]
        self._known[step] = constant, said
        return list(said)


class Proof(Replaying):
    """One proof after ``state``; ``texts`` are those of the request.

    Its steps are run only if Lean's parser takes its lines one by one.
    """

    def __init__(self, proofs: Proofs, state: State, texts: dict[str, Any]) -> None:
        super().__init__()
        self._proofs = proofs
        self._state = state
        self._name = texts["name"]
        start, steps, closing = texts["start"], texts["steps"], texts["closing"]
        begun = f"{start}  {HOOK}\n"
        parse = proofs.elaborator.parse
        hooked, whole = parse(state, begun), parse(state, "".join([begun, *steps, closing]))
        self._questions = parse(state, texts["questions"])
        listed = tactics(whole[0])
        self._readable = (
            (len(hooked), len(whole)) == (2, 2)
            and not any(command.said for command in (*hooked, *whole))
            and len(listed) == sum(text.count("\n") for text in (start, *steps, closing))
        )
        # Lean is to tell lines as they are in the whole text, of which the hooked one is the beginning.
        self._theorem = replace(hooked[0], source=whole[0].source)
        self._num_start_lines = start.count("\n")
        self._num_end_lines = closing.count("\n")
        after_hook = listed[self._num_start_lines :]
        self._steps = [after_hook[2 * k : 2 * k + 2] for k in range(len(steps))]
        self._closing = after_hook[-1] if closing and self._readable else None

    def _explored(self, prefixes: Iterable[Order]) -> list[Said] | None:
        if not self._readable:
            return None

        def visit(stage: Stage) -> None:
            self._reached.setdefault((), _Reached([], stage.snapshot()))
            self._grow(prefixes, lambda snapshot, step: self._run(stage, snapshot, step))

        # Where Lean does not come to the hook, it says why.
        return self._proofs.explore(self._state, self._theorem, visit)

    def _run(self, stage: Stage, snapshot: Snapshot, step: int) -> _Reached:
        stage.restore(snapshot)
        tactic, trace = self._steps[step]
        line = self._num_start_lines + 2 + 2 * step
        said = stage.run(tactic, line)
        if not failed(said):
            said += stage.run_trace(trace, line + 1)
        return _Reached(_moved(said, 1 - line), None if failed(said) else stage.snapshot())

    def _end(
        self, order: Order, place: Any, rechecker: Rechecker, *, asked: bool
    ) -> tuple[list[Said], list[Said]] | None:
        """What Lean says to the start and to the rest of the proof, if that is behind all of its steps."""
        if not asked or len(set(order)) < len(self._steps):
            return None
        # The goals at the start were printed before.
        state, said = self._proofs.finish(self._state, self._theorem, place, self._closing)
        first = self._num_start_lines + 2 + 2 * len(self._steps)
        start = [each for each in said if each[0] < first]
        end = _moved([each for each in said if each[0] >= first], 1 - first)
        for question in self._questions:
            state, more = self._proofs.elaborator.run_command(state, question)
            end += _moved(more, self._num_end_lines)
        if not failed(said):
            rechecker.check(state, self._name, end)
        return start, end


def failed(said: list[Said]) -> bool:
    """Whether an error is among the messages."""
    return any(severity == "error" for _, severity, _ in said)


def _moved(said: list[Said], lines: int) -> list[Said]:
    return [(line + lines, severity, text) for line, severity, text in said]
