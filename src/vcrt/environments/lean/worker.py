"""A process that runs the steps of programs in Lean, each prefix once, and says what Lean said to it.

Started by :mod:`vcrt.environments.lean.inprocess`; uses nothing but the standard library. It reads one JSON value a
line and answers each with one line. The first is a prelude and a text of options; the answer is what Lean said. Each
further one is ``{"declarations": tree}``, ``{"proof": {...}}``, or ``{"texts": [text, ...]}``, answered by what Lean
said to each. What Lean said is a list of line, severity and text. Beside it stands ``"program"``, a mark that only
requests about the same program have in common: what one of them has reached is kept for the next, and for that alone.

A tree of declarations is ``[text, guarded, name, [tree, ...]]``, and its answer ``[said, [answer, ...]]``. Below a text
with an error in its first ``guarded`` lines nothing is run. If there is a ``name``, the guarded lines after the first
only ask about the constant that the first declares; where that is the very constant that the same text declared
before, what Lean said then is the answer.

A proof has its ``start``, its ``steps`` and its ``closing`` (which may be empty) as texts, the ``questions`` that
follow it, and a ``tree``: a list of ``[step, ended, [...]]``. A step is a line for the tactic and one that traces the
goals. The answer is ``{"said": said, "tree": answers}``, where each answer is ``[said, end, [...]]`` and ``end``, where
it was asked for, what Lean said to the start and to the rest; or it is null, if Lean's parser does not take the lines
one by one.

``{"same": items}`` asks whether a user's texts say what their spellings say, and is answered by null or by place and
reason of the first that does not (see :mod:`vcrt.environments.lean.sameness`).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from vcrt.environments.lean.branches import Proof, failed
from vcrt.environments.lean.confinement import (
    bounds_from,
    confine,
    refuse_calls,
    refuse_threads,
)
from vcrt.environments.lean.declarations import Declarations, Node
from vcrt.environments.lean.elaborator import Elaborator, Said, State
from vcrt.environments.lean.notations import Notations
from vcrt.environments.lean.proofs import HOOK_SYNTAX, Proofs
from vcrt.environments.lean.recheck import Rechecker, Unsound
from vcrt.environments.lean.sameness import difference
from vcrt.environments.lean.values import Library, Parts


def serve(elaborator: Elaborator, requests: IO[str], answers: IO[str]) -> None:
    """Answer requests until there are no more."""
    proofs = Proofs(elaborator)
    notations = Notations(elaborator)
    prelude, options = json.loads(requests.readline())
    state, said = elaborator.run(elaborator.empty_state(), prelude + HOOK_SYNTAX + options)
    _send(answers, said)
    plain: set[Parts] = set()
    kept = _Kept(proofs, state)
    for line in requests:
        request = json.loads(line)
        if "same" in request:
            found = difference(elaborator, notations, state, request["same"])
            _send(answers, {"answer": found, "unsound": None, "rechecked": [0, 0]})
            continue
        rechecker = Rechecker(elaborator, state, plain, asked=request["recheck"])
        answer, unsound = None, None
        try:
            answer = kept.answer(rechecker, request)
        except Unsound as problem:
            unsound = str(problem)
        counts = [rechecker.num_declarations, rechecker.num_kernel_checks]
        _send(answers, {"answer": answer, "unsound": unsound, "rechecked": counts})


class _Kept:
    """Answers requests, and keeps what was reached in the last program: the next request is mostly about the same."""

    def __init__(self, proofs: Proofs, state: State) -> None:
        self._proofs = proofs
        self._state = state
        self._last: tuple[str, Declarations | Proof] | None = None

    def answer(self, rechecker: Rechecker, request: dict[str, Any]) -> object:
        """The answer to a request."""
        elaborator = self._proofs.elaborator
        if "proof" in request:
            tree, texts = request["proof"].pop("tree"), request["proof"]
            proof = self._of(request, lambda: Proof(self._proofs, self._state, texts))
            assert isinstance(proof, Proof)
            return proof.answer(tree, rechecker) if proof.readable else None
        if "texts" in request:
            each = request["texts"]
            return [_text(elaborator, self._state, rechecker, *text) for text in each]
        root = Node.read(request["declarations"])
        declarations = self._of(request, lambda: Declarations(elaborator, self._state))
        assert isinstance(declarations, Declarations)
        return declarations.answer(root, rechecker)

    def _of(
        self, request: dict[str, Any], begin: Callable[[], Declarations | Proof]
    ) -> Declarations | Proof:
        """What is kept of a request's program, or a new beginning."""
        mark = request["program"]
        if self._last is None or self._last[0] != mark:
            # The old states are given back before the new ones are made.
            self._last = None
            self._last = mark, begin()
        return self._last[1]


def _text(
    elaborator: Elaborator, state: State, rechecker: Rechecker, text: str, name: str
) -> list[Said]:
    after, said = elaborator.run(state, text)
    if name and not failed(said):
        rechecker.check(after, name, said)
    return said


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
