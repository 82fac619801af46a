"""Run the steps of programs in Lean, each prefix once, in a process of its own, and report Lean's messages.

:mod:`vcrt_lean.inprocess` starts it; it uses nothing but the standard library. A prefix of declarations leads to a
state of Lean's own. A proof is one theorem with a hook at the place of its steps: its steps are tactics, each run from
the snapshot after its prefix.

It reads one JSON value a line and answers each with one line. The first is a prelude and a text of options; the answer
is Lean's messages, as a list of line, severity and text.

A further request about a program holds its texts and ``"sequences"`` of the numbers of its steps. The answer is
``{"said": said, "steps": [[prefix, said], ...], "ends": [[sequence, said, said], ...]}`` with Lean's messages about the
start, about the last step of each prefix, and about the start and the rest of each whole proof; nothing runs after a
refused step. Results are kept for the next request with the same texts, and for that alone. With ``"recheck"`` the
kernel alone must accept again what Lean accepts.

``"declarations"`` are ``{"start": text, "steps": [text, ...]}``, where each text is ``{"text", "guarded", "name",
"declared"}``: an error in its first ``guarded`` lines refuses it. If there is a ``name``, the guarded lines after the
first only query the constant that the first declares; if that constant is the same as when the same text declared it
before, the answer is Lean's former one. ``declared`` are the names to check again. Declarations have no ends.

A ``"proof"`` has the ``name`` of its theorem, its ``start``, its ``steps`` and its ``closing`` (which may be empty) as
texts, and the ``questions`` that follow it. A step is a line for the tactic and one that traces the goals. The answer
is null if Lean's parser does not take the lines one by one.
"""

from __future__ import annotations

import json
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias

from vcrt.processes.confinement import (
    bounds_from,
    confine,
    refuse_calls,
    refuse_threads,
)
from vcrt_lean.elaborator import (
    HOOK,
    HOOK_SYNTAX,
    Command,
    Elaborator,
    ElaboratorError,
    Said,
    Snapshot,
    Stage,
    State,
    tactics,
)
from vcrt_lean.recheck import Rechecker, Unsound
from vcrt_lean.values import Library, Parts, Value

Order: TypeAlias = tuple[int, ...]


class _Reached(NamedTuple):
    """Lean's messages about a step, and the place that it leads to unless it was refused."""

    said: list[Said]
    place: Any


class Replaying(ABC):
    """A program whose steps can be run; it keeps the result of each prefix."""

    def __init__(self) -> None:
        self._reached: dict[Order, _Reached] = {}

    def answer(self, sequences: list[list[int]], rechecker: Rechecker) -> dict[str, Any] | None:
        """Return the answer to a request; None if the steps cannot be run one by one."""
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
        """Run the unknown ones of ``prefixes``; ``run`` takes the place from which a step starts."""
        for prefix in prefixes:
            before = self._reached.get(prefix[:-1])
            if prefix not in self._reached and before is not None and before.place is not None:
                self._reached[prefix] = run(before.place, prefix[-1])

    @abstractmethod
    def _explored(self, prefixes: Iterable[Order]) -> list[Said] | None:
        """Run ``prefixes``, shorter ones first; return Lean's messages about the start."""

    @abstractmethod
    def _end(
        self, order: Order, place: Any, rechecker: Rechecker, *, asked: bool
    ) -> tuple[list[Said], list[Said]] | None:
        """Check again what was accepted, and end a proof if ``asked``; return Lean's messages then."""


class Declarations(Replaying):
    """Declarations after the state ``start``, which fixes their syntax; ``texts`` are those of the request.

    Lean prints a constant again only if the same text declares another constant than before: Lean prints equal
    constants alike.
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
        """Return Lean's messages about the constant that was just declared."""
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

    Its steps run only if Lean's parser takes its lines one by one.
    """

    def __init__(self, elaborator: Elaborator, state: State, texts: dict[str, Any]) -> None:
        super().__init__()
        self._elaborator = elaborator
        self._state = state
        self._name = texts["name"]
        start, steps, closing = texts["start"], texts["steps"], texts["closing"]
        begun = f"{start}  {HOOK}\n"
        parse = elaborator.parse
        hooked, whole = parse(state, begun), parse(state, "".join([begun, *steps, closing]))
        self._questions = parse(state, texts["questions"])
        listed = tactics(whole[0])
        self._readable = (
            (len(hooked), len(whole)) == (2, 2)
            and not any(command.said for command in (*hooked, *whole))
            and len(listed) == sum(text.count("\n") for text in (start, *steps, closing))
        )
        # Lines must count in the whole text, whose beginning is the hooked one.
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

        # If Lean does not reach the hook, it says why.
        return self._elaborator.explore(self._state, self._theorem, visit)

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
        """Return Lean's messages about the start and the rest of a proof with all of its steps."""
        if not asked or len(set(order)) < len(self._steps):
            return None
        # The goals at the start were printed before.
        state, said = self._elaborator.finish(self._state, self._theorem, place, self._closing)
        first = self._num_start_lines + 2 + 2 * len(self._steps)
        start = [each for each in said if each[0] < first]
        end = _moved([each for each in said if each[0] >= first], 1 - first)
        for question in self._questions:
            state, more = self._elaborator.run_command(state, question)
            end += _moved(more, self._num_end_lines)
        if not failed(said):
            rechecker.check(state, self._name, end)
        return start, end


def failed(said: list[Said]) -> bool:
    """Return whether an error is among the messages."""
    return any(severity == "error" for _, severity, _ in said)


def _moved(said: list[Said], lines: int) -> list[Said]:
    return [(line + lines, severity, text) for line, severity, text in said]


def serve(elaborator: Elaborator, requests: IO[str], answers: IO[str]) -> None:
    """Answer requests until there are no more."""
    prelude, options = json.loads(requests.readline())
    state, said = elaborator.run(elaborator.empty_state(), prelude + HOOK_SYNTAX + options)
    _send(answers, said)
    plain: set[Parts] = set()
    texts: dict[str, Any] = {}
    program: Replaying | None = None
    for line in requests:
        request = json.loads(line)
        rechecker = Rechecker(elaborator, state, plain, asked=request.get("recheck", False))
        sequences = request.pop("sequences", None)
        answer: object = None
        unsound = None
        try:
            if program is None or texts != request:
                # Release the old states before making new ones.
                program, texts = None, request
                program = (
                    Proof(elaborator, state, request["proof"])
                    if "proof" in request
                    else Declarations(elaborator, state, request["declarations"])
                )
            answer = program.answer(sequences, rechecker)
        except Unsound as problem:
            unsound = str(problem)
        counts = [rechecker.num_declarations, rechecker.num_kernel_checks]
        _send(answers, {"answer": answer, "unsound": unsound, "rechecked": counts})


def _send(answers: IO[str], value: object) -> None:
    answers.write(json.dumps(value) + "\n")
    answers.flush()


def main() -> None:
    """Serve standard input and output, confined; Lean's own output goes to standard error."""
    report = confine(bounds_from(sys.argv[1]))
    own = os.dup(1)
    os.dup2(2, 1)
    with open(own, "w", encoding="utf-8") as answers, open(0, encoding="utf-8") as requests:
        elaborator = Elaborator(Library(Path(sys.argv[2])))
        # Lean has started its threads; no request has been read yet.
        refuse_threads(report)
        refuse_calls(report, "worker")
        serve(elaborator, requests, answers)
        answers.flush()
        # Lean's threads and static values cannot be ended one by one.
        os._exit(0)
