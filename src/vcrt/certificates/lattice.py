"""Merge the replayed sequences of an episode into a lattice of contexts, and derive what follows from it.

A *context* is the set of operations that have run, with the canonical hash of the state that they led to. Sequences
that agree in both are merged, which is sound if equal hashes imply equal futures. If two sequences of one context have
the same continuation with different answers, :attr:`Lattice.unequal` gives them. Where operations are named that only
read, contexts that differ in these alone are merged, too. Pure; sets of operations are bit masks. Not covered: how the
sequences were chosen and replayed (see :mod:`vcrt.replay.lattice_replay`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import combinations
from typing import TypeAlias

from vcrt.certificates.certificates import Certificate, PathEvidence, Verdict
from vcrt.certificates.replay_tree import Reached, ReplayTree, replay_of
from vcrt.environments.contract import Replay
from vcrt.orders import Order
from vcrt.partial_orders import PartialOrder

#: Two accepted sequences of equal hash, and an operation that is answered differently after them.
UnequalFutures: TypeAlias = tuple[Order, Order, int]
#: What a pair shows in one context: a verdict, and the operation that stands first (see :attr:`Certificate.before`).
Shown: TypeAlias = tuple[Verdict, int]


@dataclass(frozen=True, slots=True)
class Context:
    """A context; ``sequence`` is the first sequence that leads to it, by length and then lexicographically.

    ``done`` has the operations of the sequence, but for those that only read.
    """

    sequence: Order
    done: int
    state_hash: str


@dataclass(frozen=True)
class Lattice:
    """The contexts of an episode, the initial one first, and the replayed transitions between them.

    ``transitions[context, operation]`` is the number of the next context, or the verifier's refusal; ``outputs``
    has the outputs of accepted operations that gave one. ``reads`` are the operations that only read: these were said
    to, and left the state as it was wherever they were accepted. Their transitions lead to the context itself.
    """

    num_operations: int
    contexts: tuple[Context, ...]
    transitions: Mapping[tuple[int, int], int | str]
    unequal: UnequalFutures | None
    outputs: Mapping[tuple[int, int], str]
    reads: int = 0

    @classmethod
    def of(cls, tree: ReplayTree, reads: int = 0) -> Lattice:
        """Build the lattice of these replays; ``reads`` are operations that are said to read only."""
        reads = still_reading(tree.answers, reads) if reads else 0
        numbers: dict[tuple[int, str], int] = {}
        contexts: list[Context] = []
        context_of: dict[Order, int] = {}
        transitions: dict[tuple[int, int], int | str] = {}
        outputs: dict[tuple[int, int], str] = {}
        unequal: UnequalFutures | None = None
        # Transitions must lead to later contexts.
        sequences = sorted(tree.answers, key=partial(_place, reads)) if reads else tree.answers
        for sequence in sequences:
            reached = tree.answers[sequence]
            answer: int | str
            if reached.state_hash is not None:
                done = _set_of(sequence) & ~reads
                answer = numbers.setdefault((done, reached.state_hash), len(contexts))
                if answer == len(contexts):
                    contexts.append(Context(sequence, done, reached.state_hash))
                context_of[sequence] = answer
            else:
                answer = reached.rejection or ""
            if sequence:
                before, operation = context_of[sequence[:-1]], sequence[-1]
                first = (before, operation) not in transitions
                known = transitions.setdefault((before, operation), answer)
                if first and reached.state_hash is not None and reached.output is not None:
                    outputs[before, operation] = reached.output
                # Of a refusal, only that it is one counts: a message may tell how the state came about.
                alike = (
                    isinstance(known, str)
                    if isinstance(answer, str)
                    else known == answer and outputs.get((before, operation)) == reached.output
                )
                if not alike and unequal is None:
                    unequal = (contexts[before].sequence, sequence[:-1], operation)
        made = cls(tree.num_operations, tuple(contexts), transitions, unequal, outputs, reads)
        return made if unequal is not None else replace(made, unequal=made._across_sets())

    def _across_sets(self) -> UnequalFutures | None:
        """Find unequal futures of equal states that were reached by different sets of operations.

        The same operation is compared only if it ends both sequences or neither, because checks at the end, such
        as that of a finished proof, belong to the last state.
        """
        first: dict[tuple[str, int, bool], tuple[object, int]] = {}
        for (number, operation), answer in sorted(self.transitions.items(), key=lambda i: i[0]):
            context = self.contexts[number]
            ends = not self.reads and len(context.sequence) + 1 == self.num_operations
            reached = (
                None
                if isinstance(answer, str)
                else (self.contexts[answer].state_hash, self.outputs.get((number, operation)))
            )
            known, twin = first.setdefault((context.state_hash, operation, ends), (reached, number))
            if known != reached:
                return self.contexts[twin].sequence, context.sequence, operation
        return None

    @property
    def initial_hash(self) -> str:
        """The hash of the initial state."""
        return self.contexts[0].state_hash

    @property
    def everything(self) -> int:
        """The set of all operations."""
        return (1 << self.num_operations) - 1

    @cached_property
    def complete(self) -> bool:
        """Whether every remaining operation was replayed in every context."""
        remaining = sum(self.num_operations - len(c.sequence) for c in self.contexts)
        return len(self.transitions) == remaining

    @cached_property
    def terminal(self) -> int | None:
        """The context in which the reference order ends; None if it is refused or was not replayed."""
        return self.follow(tuple(range(self.num_operations)))

    def follow(self, sequence: Order) -> int | None:
        """Return the context that a sequence leads to; None if it is refused or not known."""
        number = 0
        for operation in sequence:
            answer = self.transitions.get((number, operation))
            if not isinstance(answer, int):
                return None
            number = answer
        return number

    def replay(self, tree: ReplayTree, order: Order) -> Replay:
        """Assemble the replay of an order from the transitions, all of which must be known."""
        passed, number = [tree.answers[()]], 0
        for operation in order:
            passed.append(tree.answers[*self.contexts[number].sequence, operation])
            answer = self.transitions[number, operation]
            if isinstance(answer, str):
                break
            number = answer
        return replay_of(order, passed)

    @cached_property
    def idle(self) -> tuple[Order, int] | None:
        """Find a context and an operation that has no output and leaves the state as it is; None if there is none."""
        for (number, operation), answer in self.transitions.items():
            if not isinstance(answer, str) and (number, operation) not in self.outputs:
                context = self.contexts[number]
                if self.contexts[answer].state_hash == context.state_hash:
                    return context.sequence, operation
        return None

    def shown(self, context: int, pair: tuple[int, int]) -> Shown | None:
        """Return a pair's verdict in a context, as in :class:`Certificate`; None unless both orders were replayed."""
        one, other = pair
        forward, reverse = self._ends(context, one, other), self._ends(context, other, one)
        if forward is None or reverse is None:
            return None
        if isinstance(forward, str):
            return ("vacuous", one) if isinstance(reverse, str) else ("precedes", other)
        if isinstance(reverse, str):
            return "precedes", one
        if forward != reverse:
            return "conflicts", one
        same = self._seen(context, one, other) == self._seen(context, other, one)[::-1]
        return ("diamond" if same else "observes"), one

    def _seen(self, context: int, first: int, second: int) -> tuple[str | None, str | None]:
        """Return the outputs of two operations that are accepted in this order."""
        between = self.transitions[context, first]
        assert isinstance(between, int)
        return self.outputs.get((context, first)), self.outputs.get((between, second))

    def _ends(self, context: int, first: int, second: int) -> int | str | None:
        answer = self.transitions.get((context, first))
        return self.transitions.get((answer, second)) if isinstance(answer, int) else answer

    def certificate(self, context: int, pair: tuple[int, int]) -> Certificate:
        """Make the certificate of a pair in a context in which both orders were replayed."""
        one, other = pair
        return Certificate(
            context=tuple(k for k in self.contexts[context].sequence if k not in pair),
            context_hash=self.contexts[context].state_hash,
            forward=self._path(context, one, other),
            reverse=self._path(context, other, one),
        )

    def _path(self, context: int, first: int, second: int) -> PathEvidence:
        passed: list[Reached] = []
        for operation in (first, second):
            answer = self.transitions[context, operation]
            if isinstance(answer, str):
                passed.append(Reached(None, answer))
                break
            output = self.outputs.get((context, operation))
            context = answer
            passed.append(Reached(self.contexts[context].state_hash, None, output=output))
        return PathEvidence.of((first, second), passed)

    @cached_property
    def by_pair(self) -> Mapping[tuple[int, int], Mapping[int, Shown]]:
        """For each pair, its verdict in each context (by number) in which both orders were replayed."""
        found: dict[tuple[int, int], dict[int, Shown]] = {
            pair: {} for pair in combinations(range(self.num_operations), 2)
        }
        for number, context in enumerate(self.contexts):
            known = [
                i
                for i in range(self.num_operations)
                if not context.done >> i & 1 and (number, i) in self.transitions
            ]
            for pair in combinations(known, 2):
                shown = self.shown(number, pair)
                if shown is not None:
                    found[pair][number] = shown
        return found

    def certificates(self) -> tuple[Certificate, ...]:
        """Make, for each pair, one certificate of each verdict, in the first context that shows it."""
        found = []
        for pair, contexts in self.by_pair.items():
            first: dict[Shown, int] = {}
            for number, shown in contexts.items():
                first.setdefault(shown, number)
            found += [self.certificate(number, pair) for number in first.values()]
        return tuple(found)

    def moves(self, context: int, order: PartialOrder) -> list[int]:
        """Return the operations that ``order`` allows next in a context; with others between, if these only read."""
        return order.moves(self.contexts[context].done, self.reads)

    def legal_contexts(self, order: PartialOrder) -> frozenset[int]:
        """Return, by number, the contexts that are reached by sequences which keep every pair of ``order``."""
        reached, before = {0}, order.predecessors
        # Contexts stand by the size of ``done``, so one pass suffices.
        for number, operation, done, answer in self._accepted:
            if number in reached and not before[operation] & ~(done | self.reads):
                reached.add(answer)
        return frozenset(reached)

    @cached_property
    def _accepted(self) -> list[tuple[int, int, int, int]]:
        """The accepted transitions, sorted: context, operation, the operations that have run, and the next context."""
        return [
            (number, operation, self.contexts[number].done, answer)
            for (number, operation), answer in sorted(self.transitions.items(), key=lambda i: i[0])
            if isinstance(answer, int)
        ]

    @cached_property
    def reference_outputs(self) -> Mapping[int, str]:
        """The output of each operation in the reference order, as far as that is accepted."""
        found: dict[int, str] = {}
        for operation in range(self.num_operations):
            number = self.follow(tuple(range(operation)))
            if number is not None and (number, operation) in self.outputs:
                found[operation] = self.outputs[number, operation]
        return found

    def as_in_reference(self, context: int, operation: int) -> bool:
        """Tell whether an operation's output in a context equals its output in the reference order."""
        return self.outputs.get((context, operation)) == self.reference_outputs.get(operation)

    def num_legal(self) -> int:
        """How many orders lead from the initial context to the reference order's end, each output as there."""
        return self._ways_to_end[0]

    def broken_pair(self, order: PartialOrder) -> tuple[Order, int] | None:
        """Find a context and an operation that continues to the reference's end although ``order`` forbids it there.

        Only contexts on the way of a legal order count: an order that gave another output before is not legal.
        """
        ways = self._ways_to_end
        reached = {0}
        # Contexts stand by length, so one pass suffices.
        for number, operation, done, answer in self._accepted:
            if number not in reached or not self.as_in_reference(number, operation):
                continue
            reached.add(answer)
            if order.predecessors[operation] & ~done and ways[answer]:
                return self.contexts[number].sequence, operation
        return None

    @cached_property
    def _ways_to_end(self) -> list[int]:
        """For each context, how many continuations lead to the reference order's end with its outputs."""
        ways = [0] * len(self.contexts)
        if self.terminal is not None:
            ways[self.terminal] = 1
        # From the last context to the first: every transition leads to a later one.
        for (number, operation), answer in sorted(
            self.transitions.items(), key=lambda item: item[0], reverse=True
        ):
            if isinstance(answer, int) and self.as_in_reference(number, operation):
                ways[number] += ways[answer]
        return ways


def _set_of(sequence: Order) -> int:
    return sum(1 << operation for operation in sequence)


def _place(reads: int, sequence: Order) -> tuple[int, int, Order]:
    return (_set_of(sequence) & ~reads).bit_count(), len(sequence), sequence


def still_reading(answers: Mapping[Order, Reached], operations: int) -> int:
    """Return those of some operations that left the state as it was wherever they were accepted."""
    for sequence, reached in answers.items():
        if (
            sequence
            and operations >> sequence[-1] & 1
            and reached.state_hash not in (None, answers[sequence[:-1]].state_hash)
        ):
            operations &= ~(1 << sequence[-1])
    return operations
