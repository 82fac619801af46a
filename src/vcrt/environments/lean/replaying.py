"""Run the steps of one program in Lean, each prefix once, and keep what was reached for the program's next request.

A prefix of declarations leads to a state of Lean's own. A proof is one theorem with a hook where its steps stand: its
steps are tactics, each run from the moment that its prefix left, and a moment of one elaboration is put in place in
another as :meth:`vcrt.environments.lean.proofs.Proofs.finish` does. Requests and answers are those of
:mod:`vcrt.environments.lean.worker`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from vcrt.environments.lean.elaborator import Command, Elaborator, ElaboratorError, Said, State
from vcrt.environments.lean.proofs import HOOK, Moment, Proofs, Stage, tactics
from vcrt.environments.lean.recheck import Rechecker
from vcrt.environments.lean.values import Value

#: The steps to run: each with its number, whether a sequence ends with it, and the steps behind it.
Tree: TypeAlias = list[tuple[int, bool, "Tree"]]


@dataclass(slots=True)
class _Reached:
    """What Lean said to a step, where it led if it was not refused, and what is known of the steps behind it."""

    said: list[Said]
    place: Any
    longer: dict[int, _Reached] = field(default_factory=dict)

    def knows(self, tree: Tree) -> bool:
        """Whether every step of ``tree`` has been run that can be."""
        return self.place is None or all(
            step in self.longer and self.longer[step].knows(longer) for step, _, longer in tree
        )

    def grow(self, tree: Tree, run: Callable[[Any, int], _Reached]) -> None:
        """Run what is not known yet of ``tree``; ``run`` takes the place from which a step starts."""
        if self.place is None:
            return
        for step, _, longer in tree:
            if step not in self.longer:
                self.longer[step] = run(self.place, step)
            self.longer[step].grow(longer, run)


class Replaying(ABC):
    """A program whose steps can be run."""

    def answer(self, tree: Tree, rechecker: Rechecker) -> dict[str, Any] | None:
        """The answer to a request: None if the steps cannot be run one by one."""
        root = self._explored(tree)
        if root is None:
            return None
        return {"said": root.said, "tree": self._answers(root, tree, rechecker)}

    def _answers(self, here: _Reached, tree: Tree, rechecker: Rechecker) -> list[Any]:
        if here.place is None:
            return []
        answers = []
        for step, ended, longer in tree:
            reached, end = here.longer[step], None
            if reached.place is not None:
                end = self._end(step, reached, rechecker, ended=ended)
            answers.append([reached.said, end, self._answers(reached, longer, rechecker)])
        return answers

    @abstractmethod
    def _explored(self, tree: Tree) -> _Reached | None:
        """The root, from which all of ``tree`` has been run."""

    @abstractmethod
    def _end(
        self, step: int, reached: _Reached, rechecker: Rechecker, *, ended: bool
    ) -> list[list[Said]] | None:
        """Check again what was accepted, and end a sequence if it is to be ended: what Lean says then."""


class Declarations(Replaying):
    """Declarations after the state ``start``, which fixes their syntax; ``texts`` are those of the request.

    What Lean prints of a constant is asked for again only where the same text has declared another constant than
    before: Lean prints equal constants alike.
    """

    _START = -1

    def __init__(self, elaborator: Elaborator, start: State, texts: dict[str, Any]) -> None:
        self._elaborator = elaborator
        self._start = start
        self._texts = {self._START: texts["start"], **dict(enumerate(texts["steps"]))}
        self._parsed: dict[int, list[Command]] = {}
        self._known: dict[int, tuple[Value, list[Said]]] = {}
        self._root: _Reached | None = None

    def _explored(self, tree: Tree) -> _Reached:
        if self._root is None:
            self._root = self._run(self._start, self._START)
        self._root.grow(tree, self._run)
        return self._root

    def _end(self, step: int, reached: _Reached, rechecker: Rechecker, *, ended: bool) -> None:
        for name in self._texts[step]["declared"]:
            rechecker.check(reached.place, name, reached.said)

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
        constant = self._elaborator.constant(state, name)
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
        self._root: _Reached | None = None

    def _explored(self, tree: Tree) -> _Reached | None:
        if not self._readable:
            return None
        if self._root is not None and self._root.knows(tree):
            return self._root

        def visit(stage: Stage) -> None:
            if self._root is None:
                self._root = _Reached([], stage.moment())
            self._root.grow(tree, lambda moment, step: self._run(stage, moment, step))

        said = self._proofs.explore(self._state, self._theorem, visit)
        if self._root is None:
            # Lean has not come to the hook, and says why.
            return _Reached(said, None)
        self._root.said = said
        return self._root

    def _run(self, stage: Stage, moment: Moment, step: int) -> _Reached:
        stage.restore(moment)
        tactic, trace = self._steps[step]
        line = self._num_start_lines + 2 + 2 * step
        said = stage.run(tactic, line)
        if not failed(said):
            said += stage.run_trace(trace, line + 1)
        return _Reached(_moved(said, 1 - line), None if failed(said) else stage.moment())

    def _end(
        self, step: int, reached: _Reached, rechecker: Rechecker, *, ended: bool
    ) -> list[list[Said]] | None:
        """What Lean says to the start and to the rest of the proof."""
        if not ended:
            return None
        # The goals at the start were printed before.
        state, said = self._proofs.finish(self._state, self._theorem, reached.place, self._closing)
        first = self._num_start_lines + 2 + 2 * len(self._steps)
        start = [each for each in said if each[0] < first]
        end = _moved([each for each in said if each[0] >= first], 1 - first)
        for question in self._questions:
            state, more = self._proofs.elaborator.run_command(state, question)
            end += _moved(more, self._num_end_lines)
        if not failed(said):
            rechecker.check(state, self._name, end)
        return [start, end]


def failed(said: list[Said]) -> bool:
    """Whether an error is among the messages."""
    return any(severity == "error" for _, severity, _ in said)


def _moved(said: list[Said], lines: int) -> list[Said]:
    return [(line + lines, severity, text) for line, severity, text in said]
