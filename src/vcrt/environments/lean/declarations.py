"""Trees of declarations: each text runs in the state that its parent left, so a prefix is run once.

The states of one program are kept for its next request, so that longer sequences go on from where shorter ones ended.
What Lean prints of a constant is asked for again only where the same text has declared another constant than before:
Lean prints equal constants alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from vcrt.environments.lean.elaborator import (
    Command,
    Elaborator,
    ElaboratorError,
    Said,
    State,
)
from vcrt.environments.lean.recheck import Rechecker
from vcrt.environments.lean.values import Value


@dataclass(frozen=True, slots=True)
class Node:
    """A text and those that follow it (see :mod:`vcrt.environments.lean.worker`)."""

    text: str
    guarded: int
    name: str
    declared: list[str]
    longer: list[Node]

    @classmethod
    def read(cls, tree: list[object]) -> Node:
        """The node of a request."""
        text, guarded, name, declared, longer = tree
        assert isinstance(text, str)
        assert isinstance(guarded, int)
        assert isinstance(name, str)
        assert isinstance(declared, list)
        assert isinstance(longer, list)
        return cls(text, guarded, name, declared, [cls.read(each) for each in longer])

    def refused(self, said: list[Said]) -> bool:
        """Whether Lean refuses what the guarded lines say."""
        return any(severity == "error" and line <= self.guarded for line, severity, _ in said)

    def recheck(self, rechecker: Rechecker, state: State, said: list[Said]) -> None:
        """Have the kernel check again what was declared; raises :class:`vcrt.environments.lean.recheck.Unsound`."""
        for name in self.declared:
            rechecker.check(state, name, said)


@dataclass(slots=True)
class _Reached:
    """The state after a text, what Lean said to it, and what is known of the texts that followed it."""

    state: State
    said: list[Said]
    longer: dict[str, _Reached] = field(default_factory=dict)


#: What Lean said to a node, and the answers to those that follow it.
Answer = tuple[list[Said], list["Answer"]]


class Declarations:
    """Runs nodes of one program after ``start``, which fixes their syntax."""

    def __init__(self, elaborator: Elaborator, start: State) -> None:
        self.elaborator = elaborator
        self.start = start
        self._before = _Reached(start, [])
        self._parsed: dict[str, list[Command]] = {}
        self._known: dict[str, tuple[Value, list[Said]]] = {}

    def answer(self, root: Node, rechecker: Rechecker) -> Answer:
        """The answer to a node and to all that follows it, unless Lean refuses it."""
        return self._answer(self._before, root, rechecker)

    def _answer(self, before: _Reached, node: Node, rechecker: Rechecker) -> Answer:
        reached = before.longer.get(node.text)
        if reached is None:
            reached = before.longer[node.text] = _Reached(*self.run(before.state, node))
        if node.refused(reached.said):
            return reached.said, []
        node.recheck(rechecker, reached.state, reached.said)
        return reached.said, [self._answer(reached, each, rechecker) for each in node.longer]

    def run(self, state: State, node: Node) -> tuple[State, list[Said]]:
        """The state after a node by itself, and what Lean said."""
        if node.text not in self._parsed:
            self._parsed[node.text] = self.elaborator.parse(self.start, node.text)
        first, *rest = self._parsed[node.text]
        state, said = self.elaborator.run_command(state, first)
        if node.name and not said and len(rest) == node.text.count("\n"):
            said = self._questions(state, node, rest[: node.guarded - 1])
            rest = rest[node.guarded - 1 :]
        for command in rest:
            state, more = self.elaborator.run_command(state, command)
            said += more
        return state, said

    def _questions(self, state: State, node: Node, questions: list[Command]) -> list[Said]:
        """What Lean says about the constant that was just declared."""
        constant = self.elaborator.constant(state, node.name)
        if constant is None:
            raise ElaboratorError(f"{node.name} was declared without a word, and is not there")
        known = self._known.get(node.text)
        if known is not None and self.elaborator.same_declaration(known[0], constant):
            return list(known[1])
        said: list[Said] = []
        for question in questions:
            said += self.elaborator.run_command(state, question)[1]
        self._known[node.text] = constant, said
        return list(said)
