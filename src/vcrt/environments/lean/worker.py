"""Run the steps of programs in Lean, each prefix once, in a process of its own, and say what Lean said to it.

Started by :mod:`vcrt.environments.lean.inprocess`; uses nothing but the standard library. It reads one JSON value a
line and answers each with one line. The first is a prelude and a text of options; the answer is what Lean said. What
Lean said is a list of line, severity and text.

A further request about a program holds its texts and a ``tree`` of its steps: a list of ``[step, ended, tree]``, where
a step is a number and ``ended`` says whether a sequence ends with it. The answer is ``{"said": said, "tree": answers}``
with what Lean said to the start and a list of ``[said, end, answers]``; below a refused step nothing is run. Beside it
stands ``"program"``, a mark that only requests about the same program have in common: what one of them has reached is
kept for the next, and for that alone. With ``"recheck"`` the kernel alone must accept again what Lean accepts.

``"declarations"`` are ``{"start": text, "steps": [text, ...]}``, where each text is ``{"text", "guarded", "name",
"declared"}``: an error in its first ``guarded`` lines refuses it. If there is a ``name``, the guarded lines after the
first only ask about the constant that the first declares; where that is the very constant that the same text declared
before, what Lean said then is the answer. ``declared`` are the names to check again. Their ``end`` is always null.

A ``"proof"`` has the ``name`` of its theorem, its ``start``, its ``steps`` and its ``closing`` (which may be empty) as
texts, and the ``questions`` that follow it. A step is a line for the tactic and one that traces the goals; its ``end``
is what Lean said to the start and to the rest of the proof. The answer is null if Lean's parser does not take the lines
one by one.

``{"texts": [[text, name], ...]}`` are answered by what Lean said to each, and ``{"same": items}`` asks whether a user's
texts say what their spellings say: null, or place and reason of the first that does not (see
:mod:`vcrt.environments.lean.sameness`).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import IO, Any

from vcrt.environments.lean.confinement import (
    bounds_from,
    confine,
    refuse_calls,
    refuse_threads,
)
from vcrt.environments.lean.elaborator import Elaborator, Said, State
from vcrt.environments.lean.notations import Notations
from vcrt.environments.lean.proofs import HOOK_SYNTAX, Proofs
from vcrt.environments.lean.recheck import Rechecker, Unsound
from vcrt.environments.lean.replaying import Declarations, Proof, Replaying, failed
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
        self._last: tuple[str, Replaying] | None = None

    def answer(self, rechecker: Rechecker, request: dict[str, Any]) -> object:
        """The answer to a request."""
        elaborator = self._proofs.elaborator
        if "texts" in request:
            each = request["texts"]
            return [_text(elaborator, self._state, rechecker, *text) for text in each]
        if self._last is None or self._last[0] != request["program"]:
            # The old states are given back before the new ones are made.
            self._last = None
            program: Replaying
            if "proof" in request:
                program = Proof(self._proofs, self._state, request["proof"])
            else:
                program = Declarations(elaborator, self._state, request["declarations"])
            self._last = request["program"], program
        return self._last[1].answer(request["tree"], rechecker)


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
