"""Run the steps of programs in Lean, each prefix once, in a process of its own, and say what Lean said to it.

Started by :mod:`vcrt_lean.inprocess`; uses nothing but the standard library. It reads one JSON value a
line and answers each with one line. The first is a prelude and a text of options; the answer is what Lean said. What
Lean said is a list of line, severity and text.

A further request about a program holds its texts and ``"sequences"`` of the numbers of its steps. The answer is
``{"said": said, "steps": [[prefix, said], ...], "ends": [[sequence, said, said], ...]}`` with what Lean said to the
start, to the last step of each prefix, and to the start and the rest of each whole proof; behind a refused step nothing
is run. What was reached is kept for the next request with the same texts, and for that alone. With ``"recheck"`` the
kernel alone must accept again what Lean accepts.

``"declarations"`` are ``{"start": text, "steps": [text, ...]}``, where each text is ``{"text", "guarded", "name",
"declared"}``: an error in its first ``guarded`` lines refuses it. If there is a ``name``, the guarded lines after the
first only ask about the constant that the first declares; where that is the very constant that the same text declared
before, what Lean said then is the answer. ``declared`` are the names to check again. They have no ends.

A ``"proof"`` has the ``name`` of its theorem, its ``start``, its ``steps`` and its ``closing`` (which may be empty) as
texts, and the ``questions`` that follow it. A step is a line for the tactic and one that traces the goals. The answer
is null if Lean's parser does not take the lines one by one.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import IO, Any

from vcrt.environments.confinement import (
    bounds_from,
    confine,
    refuse_calls,
    refuse_threads,
)
from vcrt_lean.elaborator import Elaborator
from vcrt_lean.proofs import HOOK_SYNTAX, Proofs
from vcrt_lean.recheck import Rechecker, Unsound
from vcrt_lean.replaying import Declarations, Proof, Replaying
from vcrt_lean.values import Library, Parts


def serve(elaborator: Elaborator, requests: IO[str], answers: IO[str]) -> None:
    """Answer requests until there are no more."""
    proofs = Proofs(elaborator)
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
                # The old states are given back before the new ones are made.
                program, texts = None, request
                program = (
                    Proof(proofs, state, request["proof"])
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
