"""Declarations by Lean's kernel: each is elaborated once, and from then on only added, where that decides the same.

Elaborating a theorem or definition is a function of its text and of the constants that the text speaks of, once nothing
else in the environment can change its meaning (no classes, no instances, no syntax). So where all of those are
there, and the elaborated form holds every one of them, a state in which the kernel accepts that form is one in which
elaboration would have given it. That is what ``mentions`` and :meth:`KernelDeclarations._record` check. Whatever the
kernel refuses is elaborated, once for each lack, for Lean's own words; if those are not a refusal, or if a text cannot
be handled so, there is no answer, and the program must be elaborated throughout. The declarations of one program are
unchangeable, so what Lean prints of one is asked for once.
"""

from __future__ import annotations

from collections.abc import Mapping

from vcrt.environments.lean.declarations import Answer, Declarations, Node
from vcrt.environments.lean.elaborator import Said, State
from vcrt.environments.lean.recheck import Rechecker
from vcrt.environments.lean.values import Value


class _Undecided(Exception):
    """The kernel alone does not decide this."""


class KernelDeclarations:
    """Runs a tree of theorems and definitions; ``mentions`` are the declared names that each text speaks of."""

    def __init__(
        self, declarations: Declarations, mentions: Mapping[str, list[str]], rechecker: Rechecker
    ) -> None:
        self._declarations = declarations
        self._rechecker = rechecker
        self._elaborator = declarations.elaborator
        self._mentions = {name: frozenset(names) for name, names in mentions.items()}
        self._nodes: dict[str, Node] = {}
        self._added: dict[str, tuple[Value, list[Said]]] = {}
        self._refusals: dict[tuple[str, frozenset[str], bool], list[Said]] = {}

    def answer(self, root: Node) -> Answer | None:
        """What :class:`Declarations` would answer, or None if that is not certain."""
        try:
            state, said = self._declarations.run(self._declarations.start, root)
            if said:
                return None
            self._collect(root)
            self._record(state)
            return said, self._branches(root, self._elaborator.environment(state), ())
        except _Undecided:
            return None

    def _collect(self, node: Node) -> None:
        for each in node.longer:
            self._nodes[each.name] = each
            self._collect(each)

    def _record(self, state: State) -> None:
        """Elaborate each text once, in whatever order they are accepted."""
        left = dict(self._nodes)
        while left:
            before = len(left)
            for name, node in list(left.items()):
                if not self._mentions[name] <= self._added.keys():
                    continue
                after, said = self._declarations.run(state, node)
                declaration = self._elaborator.declaration(after, name)
                if node.refused(said) or declaration is None:
                    raise _Undecided
                if (
                    self._elaborator.mentions(declaration) & self._nodes.keys()
                    != self._mentions[name]
                ):
                    raise _Undecided
                node.recheck(self._rechecker, after, said)
                self._added[name] = declaration, said
                state = after
                del left[name]
            if len(left) == before:
                raise _Undecided

    def _branches(self, node: Node, environment: Value, prefix: tuple[str, ...]) -> list[Answer]:
        answers: list[Answer] = []
        for each in node.longer:
            declaration, said = self._added[each.name]
            after = self._elaborator.added(environment, declaration)
            if after is None:
                answers.append((self._refusal(each, prefix), []))
            else:
                answers.append((said, self._branches(each, after, (*prefix, each.name))))
        return answers

    def _refusal(self, node: Node, prefix: tuple[str, ...]) -> list[Said]:
        """Lean's refusal of a text after ``prefix``, which only depends on what the text speaks of."""
        there = self._mentions[node.name] & frozenset(prefix)
        repeated = node.name in prefix
        key = node.name, there, repeated
        if key not in self._refusals:
            state = self._declarations.start
            for name in prefix:
                state, _ = self._declarations.run(state, self._nodes[name])
            _, said = self._declarations.run(state, node)
            if not node.refused(said) or (there == self._mentions[node.name] and not repeated):
                raise _Undecided
            self._refusals[key] = said
        return self._refusals[key]
