"""One proof as a tree: the tactics of its steps are branches from the hook, each from the moment that its prefix left.

Moments are kept for the proof's next request, so that longer sequences go on from where shorter ones ended; a moment of
one elaboration is put in place in another as :meth:`vcrt.environments.lean.proofs.Proofs.finish` does.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from vcrt.environments.lean.elaborator import Said, State
from vcrt.environments.lean.proofs import HOOK, Moment, Proofs, Stage, tactics
from vcrt.environments.lean.recheck import Rechecker


@dataclass(slots=True)
class _Reached:
    """What Lean said to a step, the moment after it if it was not refused, and what is known of the steps behind it."""

    said: list[Said]
    moment: Moment | None
    longer: dict[int, _Reached] = field(default_factory=dict)


class Proof:
    """One proof; ``texts`` are those of the request (see :mod:`vcrt.environments.lean.worker`).

    It is ``readable`` if Lean's parser takes its lines one by one.
    """

    def __init__(self, proofs: Proofs, state: State, texts: dict[str, Any]) -> None:
        self._proofs = proofs
        self._state = state
        self._name = texts["name"]
        start, steps, closing = texts["start"], texts["steps"], texts["closing"]
        begun = f"{start}  {HOOK}\n"
        parse = proofs.elaborator.parse
        hooked, whole = parse(state, begun), parse(state, "".join([begun, *steps, closing]))
        self._questions = parse(state, texts["questions"])
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
        self._closing = after_hook[-1] if closing and self.readable else None
        self._root: _Reached | None = None

    def answer(self, trees: list[Any], rechecker: Rechecker) -> dict[str, Any]:
        """The answer to a request."""
        root = self._root
        if root is None or not _all_known(root, trees):
            root = self._explored(trees)
        return {"said": root.said, "tree": self._answers(root, trees, rechecker)}

    def _explored(self, trees: list[Any]) -> _Reached:
        def visit(stage: Stage) -> None:
            if self._root is None:
                self._root = _Reached([], stage.moment())
            self._explore(stage, self._root, trees)

        said = self._proofs.explore(self._state, self._theorem, visit)
        if self._root is None:
            # Lean has not come to the hook, and says why.
            return _Reached(said, None)
        self._root.said = said
        return self._root

    def _explore(self, stage: Stage, here: _Reached, trees: list[Any]) -> None:
        for step, _, longer in trees:
            if step not in here.longer:
                assert here.moment is not None
                stage.restore(here.moment)
                here.longer[step] = self._run(stage, step)
            if here.longer[step].moment is not None:
                self._explore(stage, here.longer[step], longer)

    def _run(self, stage: Stage, step: int) -> _Reached:
        tactic, trace = self._steps[step]
        line = self._num_start_lines + 2 + 2 * step
        said = stage.run(tactic, line)
        if not failed(said):
            said += stage.run_trace(trace, line + 1)
        return _Reached(_moved(said, 1 - line), None if failed(said) else stage.moment())

    def _answers(self, here: _Reached, trees: list[Any], rechecker: Rechecker) -> list[Any]:
        answers: list[Any] = []
        if here.moment is None:
            return answers
        for step, ended, longer in trees:
            reached = here.longer[step]
            end = (
                self._end(reached.moment, rechecker)
                if ended and reached.moment is not None
                else None
            )
            answers.append([reached.said, end, self._answers(reached, longer, rechecker)])
        return answers

    def _end(self, moment: Moment, rechecker: Rechecker) -> list[list[Said]]:
        """What Lean says to the start and to the rest of a proof whose steps have led to ``moment``."""
        # The goals at the start were printed before.
        state, said = self._proofs.finish(self._state, self._theorem, moment, self._closing)
        broken = failed(said)
        first = self._num_start_lines + 2 + 2 * len(self._steps)
        start = [each for each in said if each[0] < first]
        end = _moved([each for each in said if each[0] >= first], 1 - first)
        for question in self._questions:
            state, more = self._proofs.elaborator.run_command(state, question)
            end += _moved(more, self._num_end_lines)
        if not broken:
            rechecker.check(state, self._name, end)
        return [start, end]


def failed(said: list[Said]) -> bool:
    """Whether an error is among the messages."""
    return any(severity == "error" for _, severity, _ in said)


def _all_known(here: _Reached, trees: list[Any]) -> bool:
    return here.moment is None or all(
        step in here.longer and _all_known(here.longer[step], longer) for step, _, longer in trees
    )


def _moved(said: list[Said], lines: int) -> list[Said]:
    return [(line + lines, severity, text) for line, severity, text in said]
