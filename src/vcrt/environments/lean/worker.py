"""A process that runs the steps of programs in Lean, each prefix once, and says what Lean said to it.

Started by :mod:`vcrt.environments.lean.inprocess`; uses nothing but the standard library. It reads one JSON value a
line and answers each with one line. The first is a prelude and a text of options; the answer is what Lean said. Each
further one is ``{"declarations": tree}``, ``{"proof": {...}}``, or ``{"texts": [text, ...]}``, answered by what Lean
said to each. What Lean said is a list of line, severity and text.

A tree of declarations is ``[text, guarded, name, [tree, ...]]``, and its answer ``[said, [answer, ...]]``. Below a text
with an error in its first ``guarded`` lines nothing is run. If there is a ``name``, the guarded lines after the first
only ask about the constant that the first declares; where that is the very constant that the same text declared
before, what Lean said then is the answer. With ``"kernel": {name: [name, ...]}`` beside it, the names that each text
speaks of, the kernel decides where it can; the answer is null if it cannot (see
:mod:`vcrt.environments.lean.kernel`).

A proof has its ``start``, its ``steps`` and its ``closing`` (which may be empty) as texts, the ``questions`` that
follow it, and a ``tree``: a list of ``[step, ended, [...]]``. A step is a line for the tactic and one that traces the
goals. The answer is ``{"said": said, "tree": answers}``, where each answer is ``[said, end, [...]]`` and ``end``, where
it was asked for, what Lean said to the start and to the rest; or it is null, if Lean's parser does not take the lines
one by one.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from vcrt.environments.lean.confinement import (
    bounds_from,
    confine,
    refuse_calls,
    refuse_threads,
)
from vcrt.environments.lean.declarations import Answer, Declarations, Node
from vcrt.environments.lean.elaborator import Elaborator, Said, State
from vcrt.environments.lean.kernel import KernelDeclarations
from vcrt.environments.lean.proofs import HOOK, HOOK_SYNTAX, Moment, Proofs, Stage, tactics
from vcrt.environments.lean.recheck import Rechecker, Unsound
from vcrt.environments.lean.values import Library, Parts


def serve(elaborator: Elaborator, requests: IO[str], answers: IO[str]) -> None:
    """Answer requests until there are no more."""
    proofs = Proofs(elaborator)
    prelude, options = json.loads(requests.readline())
    state, said = elaborator.run(elaborator.empty_state(), prelude + HOOK_SYNTAX + options)
    _send(answers, said)
    plain: set[Parts] = set()
    for line in requests:
        request = json.loads(line)
        rechecker = Rechecker(elaborator, state, plain, asked=request["recheck"])
        answer, unsound = None, None
        try:
            answer = _answer(proofs, state, rechecker, request)
        except Unsound as problem:
            unsound = str(problem)
        counts = [rechecker.num_declarations, rechecker.num_kernel_checks]
        _send(answers, {"answer": answer, "unsound": unsound, "rechecked": counts})


def _answer(proofs: Proofs, state: State, rechecker: Rechecker, request: dict[str, Any]) -> object:
    elaborator = proofs.elaborator
    if "proof" in request:
        proof = _Proof(proofs, state, rechecker, request["proof"])
        return proof.answer() if proof.readable else None
    if "texts" in request:
        return [_text(elaborator, state, rechecker, *each) for each in request["texts"]]
    return _declarations(Declarations(elaborator, state, rechecker), request)


def _text(
    elaborator: Elaborator, state: State, rechecker: Rechecker, text: str, name: str
) -> list[Said]:
    after, said = elaborator.run(state, text)
    if name and not _failed(said):
        rechecker.check(after, name, said)
    return said


def _declarations(declarations: Declarations, request: dict[str, Any]) -> Answer | None:
    root = Node.read(request["declarations"])
    if "kernel" in request:
        return KernelDeclarations(declarations, request["kernel"]).answer(root)
    return declarations.answer(declarations.start, root)


class _Proof:
    """One proof: the tactics of its steps as branches from the hook."""

    def __init__(
        self, proofs: Proofs, state: State, rechecker: Rechecker, request: dict[str, Any]
    ) -> None:
        self._proofs = proofs
        self._state = state
        self._rechecker = rechecker
        self._name = request["name"]
        self._tree = request["tree"]
        start, steps, closing = request["start"], request["steps"], request["closing"]
        begun = f"{start}  {HOOK}\n"
        parse = proofs.elaborator.parse
        hooked, whole = parse(state, begun), parse(state, "".join([begun, *steps, closing]))
        self._questions = parse(state, request["questions"])
        listed = tactics(whole[0])
        self.readable = (
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
        self._closing = after_hook[-1] if closing else None
        self._ends: list[tuple[list[Any], Moment]] = []

    def answer(self) -> dict[str, Any]:
        """The answer to the request."""
        answers: list[Any] = []

        def visit(stage: Stage) -> None:
            answers.extend(self._branches(stage, self._tree))

        said = self._proofs.explore(self._state, self._theorem, visit)
        for answer, moment in self._ends:
            answer[1] = self._end(moment)
        return {"said": said, "tree": answers}

    def _branches(self, stage: Stage, trees: list[Any]) -> list[Any]:
        here = stage.moment()
        answers = []
        for step, ended, longer in trees:
            stage.restore(here)
            answers.append(self._branch(stage, step, ended, longer))
        return answers

    def _branch(self, stage: Stage, step: int, ended: bool, longer: list[Any]) -> list[Any]:
        tactic, trace = self._steps[step]
        line = self._num_start_lines + 2 + 2 * step
        said = stage.run(tactic, line)
        if not _failed(said):
            said += stage.run_trace(trace, line + 1)
        answer: list[Any] = [_moved(said, 1 - line), None, []]
        if not _failed(said):
            if ended:
                self._ends.append((answer, stage.moment()))
            answer[2] = self._branches(stage, longer)
        return answer

    def _end(self, moment: Moment) -> list[list[Said]]:
        """What Lean says to the start and to the rest of a proof whose steps have led to ``moment``."""
        # The goals at the start were printed before.
        state, said = self._proofs.finish(self._state, self._theorem, moment, self._closing)
        failed = _failed(said)
        first = self._num_start_lines + 2 + 2 * len(self._steps)
        start = [each for each in said if each[0] < first]
        end = _moved([each for each in said if each[0] >= first], 1 - first)
        for question in self._questions:
            state, more = self._proofs.elaborator.run_command(state, question)
            end += _moved(more, self._num_end_lines)
        if not failed:
            self._rechecker.check(state, self._name, end)
        return [start, end]


def _failed(said: list[Said]) -> bool:
    return any(severity == "error" for _, severity, _ in said)


def _moved(said: list[Said], lines: int) -> list[Said]:
    return [(line + lines, severity, text) for line, severity, text in said]


def _send(answers: IO[str], value: object) -> None:
    answers.write(json.dumps(value) + "\n")
    answers.flush()


def main() -> None:
    """Serve standard input and output, confined; whatever Lean itself prints goes to standard error."""
    report = confine(bounds_from(sys.argv[1]))
    own = os.dup(1)
    os.dup2(2, 1)
    with open(own, "w", encoding="utf-8") as answers, open(0, encoding="utf-8") as requests:
        elaborator = Elaborator(Library(Path(sys.argv[2])))
        # Lean has started its threads; not a word of a request has been read.
        refuse_threads(report)
        refuse_calls(report, "worker")
        serve(elaborator, requests, answers)
        answers.flush()
        # Lean's threads and static values are not made to be taken down one by one.
        os._exit(0)
