"""Trees of declarations: each text runs in the state that its parent left, so a prefix is run once.

What Lean prints of a constant is asked for again only where the same text has declared another constant than before:
Lean prints equal constants alike.
"""

from __future__ import annotations

from dataclasses import dataclass

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


#: What Lean said to a node, and the answers to those that follow it.
Answer = tuple[list[Said], list["Answer"]]


class Declarations:
    """Runs nodes after ``start``, which fixes their syntax."""

    def __init__(self, elaborator: Elaborator, start: State, rechecker: Rechecker) -> None:
        self.elaborator = elaborator
        self.start = start
        self._rechecker = rechecker
        self._parsed: dict[str, list[Command]] = {}
        self._known: dict[str, tuple[Value, list[Said]]] = {}

    def answer(self, state: State, node: Node) -> Answer:
        """The answer to a node and to all that follows it, unless Lean refuses it."""
        state, said = self.run(state, node)
        if node.refused(said):
            return said, []
        self.recheck(state, node, said)
        return said, [self.answer(state, each) for each in node.longer]

    def recheck(self, state: State, node: Node, said: list[Said]) -> None:
        """Have the kernel check again what a node declared; raises :class:`vcrt.environments.lean.recheck.Unsound`."""
        for name in node.declared:
            self._rechecker.check(state, name, said)

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
