"""Check states that seem equal: make further calls after both orders of a pair that commutes, and compare the answers.

That two states are equal is only the environment's claim. A probe is a call (:meth:`StepEnvironment.probes`: by default
the episode's own operations) that runs on a copy of each of the two states. If the answers or the next states differ,
the states were not equal and the episode certifies nothing. The probes are kept as second opinions on the episode, one
for each pair that commutes somewhere. Not covered: states that no probe tells apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, takewhile

from vcrt.certificates.certificates import UncertifiedError
from vcrt.certificates.lattice import Lattice
from vcrt.certificates.replay_tree import EpisodeReplays, Reached, ReplayTree
from vcrt.environments.contract import (
    CrossCheck,
    Environment,
    Episode,
    Operation,
    Rejected,
    StepEnvironment,
)
from vcrt.environments.shared_prefixes import as_values
from vcrt.environments.states.outside_states import named_part
from vcrt.environments.tool_calls import unseen_by
from vcrt.errors import EnvironmentFailure, VerifierFailure
from vcrt.orders import Order

#: How the checker of a second opinion is called that is probes; the two operations follow, and what told them apart.
PROBES = "probes"


def is_probes(check: CrossCheck) -> bool:
    """Tell whether a second opinion comes from probes."""
    return check.checker.partition(" ")[0] == PROBES


def probed_pair(check: CrossCheck) -> tuple[int, int]:
    """Return the two operations whose orders were probed."""
    first, second = check.checker.partition(": ")[0].removeprefix(f"{PROBES} ").split(",")
    return int(first), int(second)


def found_by(check: CrossCheck) -> str:
    """Say in words which probe distinguished the two orders; "" if none did."""
    return check.checker.partition(": ")[2]


def probe(
    environment: Environment,
    replays: EpisodeReplays,
    *,
    is_late: Callable[[], bool] = lambda: False,
) -> tuple[CrossCheck, ...]:
    """Probe each pair of operations that commutes somewhere once, after the longest such context.

    At most ``max_probes`` calls are made after each of the two orders, over all pairs together: equally many for each
    pair, at least one; none begins once ``is_late``. Raises the environment's errors; but an error of its own code in a
    probe is that probe's answer.
    """
    if not isinstance(environment, StepEnvironment) or not environment.max_probes:
        return ()
    episode, contexts = replays.episode, deepest_diamonds(replays.tree, replays.reads)
    probes = environment.probes(episode)
    if not contexts or not probes:
        return ()
    share = max(1, environment.max_probes // len(contexts))
    prober = Prober(as_values(environment), environment, episode)
    checks = []
    for number, ((first, second), context) in enumerate(sorted(contexts.items())):
        if number * share >= environment.max_probes or is_late():
            break
        # Those that many pairs have no room for take turns.
        start = number * share % len(probes)
        turn = list(chain(probes[start:], probes[:start]))[:share]
        checks.append(prober.check(context, first, second, turn, is_late))
    return tuple(checks)


def deepest_diamonds(tree: ReplayTree, reads: int = 0) -> dict[tuple[int, int], Order]:
    """Return, for each pair that commutes somewhere, the first of the longest sequences after which it does.

    ``reads`` are operations that leave the state as it is: after these, not all was replayed in both orders.
    """
    answers = tree.answers
    found: dict[tuple[int, int], Order] = {}
    if reads:
        lattice = Lattice.of(tree, reads)
        for pair, shown in lattice.by_pair.items():
            after = [lattice.contexts[n].sequence for n, (v, _) in shown.items() if v == "diamond"]
            if after:
                found[pair] = tuple(k for k in max(after, key=len) if k not in pair)
        return found
    for sequence, reached in answers.items():
        if len(sequence) < 2 or sequence[-2] > sequence[-1] or reached.state_hash is None:
            continue
        *context, first, second = sequence
        middle, other = (*context, second), (*context, second, first)
        if other not in answers or answers[other].state_hash != reached.state_hash:
            continue
        if answers[other].output != answers[sequence[:-1]].output:
            continue
        if answers[middle].output != reached.output:
            continue
        known = found.get((first, second))
        if known is None or len(known) < len(context):
            found[first, second] = tuple(context)
    return found


@dataclass(slots=True)
class Prober:
    """A runner of probes on states of one episode; the state of each sequence is made once."""

    values: StepEnvironment[object]
    environment: StepEnvironment[object]
    episode: Episode
    states: dict[Order, object] = field(default_factory=dict)

    def check(
        self,
        context: Order,
        first: int,
        second: int,
        probes: Sequence[Operation],
        is_late: Callable[[], bool],
    ) -> CrossCheck:
        """Probe the two orders of a pair after a context; begin none once ``is_late``."""
        orders = ((*context, first, second), (*context, second, first))
        asked, agreed, told = self.compare(orders, takewhile(lambda _: not is_late(), probes))
        return CrossCheck(f"{PROBES} {first},{second}{told}", asked, agreed)

    def compare(
        self, orders: tuple[Order, Order], probes: Iterable[Operation]
    ) -> tuple[int, int, str]:
        """Make the probes after both sequences: how many tell something, how many agree, and which does not."""
        states = [self._state(order) for order in orders]
        asked, agreed, told = 0, 0, ""
        for operation in probes:
            one, other = (self._answer(state, operation) for state in states)
            # What breaks off after both has told nothing.
            asked += not (isinstance(one, str) and one == other)
            agreed += isinstance(one, Reached) and one == other
            if one != other and not told:
                said = self.environment.describe(operation)
                pairs = zip((one, other), orders, strict=True)
                told = f": {said} is " + ", and ".join(f"{a} after {list(o)}" for a, o in pairs)
        return asked, agreed, told

    def _state(self, sequence: Order) -> object:
        if sequence not in self.states:
            if not sequence:
                made = self.values.initial_state(self.episode)
            else:
                operation = self.episode.operations[sequence[-1]]
                answer = self.values.step(self._state(sequence[:-1]), operation)
                if isinstance(answer, Rejected):
                    raise self._changed(sequence, answer)
                made = answer.state
            self.states[sequence] = made
        return self.states[sequence]

    def _changed(self, sequence: Order, answer: Rejected) -> VerifierFailure:
        """Return the error of a sequence that was accepted in the replays and is refused now."""
        named = named_part(self.environment, self.environment.initial_state(self.episode))
        return VerifierFailure(
            "a sequence that was accepted before is refused when it is run again",
            where=f"environment {self.environment.name!r}, {self.episode.episode_id}, after "
            f"{list(sequence[:-1])}: step {sequence[-1]}",
            found="; ".join(filter(None, (answer.reason, named))),
            expected="one answer to each sequence, whatever was run before",
            remedy=unseen_by(self.environment)
            or "let `reset` make all of the state anew, with nothing in it that a module or class keeps; fix "
            "clocks and chance there",
        )

    def _answer(self, state: object, operation: Operation) -> Reached | str:
        try:
            answer = self.values.step(state, operation)
        except EnvironmentFailure as error:
            # A call that the log never made there may break the tool's own code.
            return f"broken off ({str(error.found).partition(':')[0]})"
        if isinstance(answer, Rejected):
            return Reached(None, answer.reason)
        digest = self.values._hash(answer.state)
        return Reached(digest, None, output=answer.output)


def probed_pairs(checks: Sequence[CrossCheck]) -> dict[tuple[int, int], int]:
    """Return the pairs that were probed, each with the number of probes."""
    return {probed_pair(check): check.checked for check in checks if is_probes(check)}


def in_brief(checks: Sequence[CrossCheck]) -> tuple[CrossCheck, ...]:
    """Summarise second opinions: all probes count as one.

    >>> in_brief([CrossCheck("probes 0,1", 3, 3), CrossCheck("probes 0,2", 2, 1)])
    (CrossCheck(checker='probes', checked=5, agreed=4),)
    """
    probes = [check for check in checks if is_probes(check)]
    number, agreed = sum(c.checked for c in probes), sum(c.agreed for c in probes)
    others = tuple(check for check in checks if not is_probes(check))
    return (*others, CrossCheck(PROBES, number, agreed)) if probes else others


def are_told_apart(checks: Sequence[CrossCheck]) -> bool:
    """Tell whether a probe distinguished two states of one hash."""
    return any(is_probes(check) and check.agreed != check.checked for check in checks)


def require_not_told_apart(checks: Sequence[CrossCheck]) -> None:
    """Raise :class:`UncertifiedError` if a probe distinguished two states of one hash."""
    for check in checks:
        if are_told_apart([check]):
            raise UncertifiedError("unequal_futures", found_by(check))
