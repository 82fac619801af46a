"""A process that elaborates trees of texts: each text in the state that its parent left, so prefixes are run once.

Started by :mod:`vcrt.environments.lean.inprocess` with nothing but the standard library. It reads one JSON value a line
and answers each with one line. The first line is ``{"prelude": text}``, answered by what Lean said to it. Every
further one is a list of trees ``[text, guarded, [tree, ...]]``; the answer to a tree is ``[said, [answer, ...]]``, where
``said`` lists line, severity and text of Lean's messages. Below a text with an error in its first ``guarded`` lines
nothing is run, and its list of answers is empty.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import IO, Any

from vcrt.environments.lean.elaborator import Elaborator, State

Tree = tuple[str, int, list["Tree"]]


def serve(folder: Path, requests: IO[str], answers: IO[str]) -> None:
    """Answer requests until there are no more."""
    elaborator = Elaborator(folder)
    state, said = elaborator.run(
        elaborator.empty_state(), json.loads(requests.readline())["prelude"]
    )
    _send(answers, said)
    for request in requests:
        _send(answers, [_run(elaborator, state, tree) for tree in json.loads(request)])


def _run(elaborator: Elaborator, state: State, tree: Tree) -> list[Any]:
    text, guarded, children = tree
    state, said = elaborator.run(state, text)
    if any(severity == "error" and line <= guarded for line, severity, _ in said):
        return [said, []]
    return [said, [_run(elaborator, state, child) for child in children]]


def _send(answers: IO[str], value: object) -> None:
    answers.write(json.dumps(value) + "\n")
    answers.flush()


def main() -> None:
    """Serve standard input and output; whatever Lean itself prints goes to standard error."""
    own = os.dup(1)
    os.dup2(2, 1)
    with open(own, "w", encoding="utf-8") as answers, open(0, encoding="utf-8") as requests:
        serve(Path(sys.argv[1]), requests, answers)
        answers.flush()
        # Lean's own threads and static values are not made to be taken down one by one.
        os._exit(0)


if __name__ == "__main__":
    main()
