"""Tell whether a call may be made again after its result was lost, so that all is as if it had been made once.

Each call is made twice in a row, in the state in which the log has it and in further states in which orders that the
schedule allows come to it. A refusal counts as an output, and the state after it is compared, too. The cases in the
log's own states, and the worst of each call, are repeated in another process from fresh states. Not covered: other
calls between the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from time import monotonic
from typing import Any, Literal, TypeAlias

from vcrt.calls.annotations import AfterRefusals, PairVerdict, is_error
from vcrt.calls.differences import Differing, difference_of_outputs, difference_of_states
from vcrt.calls.log_lifting import LeftOut
from vcrt.calls.settling import settle
from vcrt.certificates.certificates import UncertifiedError
from vcrt.certificates.lattice import Lattice
from vcrt.certificates.long_episodes import sound_lattice
from vcrt.certificates.probes import Prober, require_not_told_apart
from vcrt.certificates.replay_tree import EpisodeReplays
from vcrt.environments.contract import Episode, Operation, Replay, ReplayRequest
from vcrt.environments.shared_prefixes import as_values
from vcrt.environments.tool_calls import CallEnvironment, is_redacted
from vcrt.errors import VcrtError
from vcrt.orders import Order
from vcrt.replay.replay import replay_all
from vcrt.replay.shards import evidence_of

#: What a call shows that is made again; the later, the worse. ``not known``: it was refused and changed nothing.
Answer: TypeAlias = Literal["not known", "safe", "other output", "other state"]
_WORSE = ("not known", "safe", "other output", "other state")
#: In how many states a call is made again at most.
MAX_STATES = 16
#: How many refused calls are made again before the time is looked at.
_BLOCK = 16
#: Seconds for finding the states of a trace; the log's own are found in any case.
_WITHIN = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Retried:
    """A call of a log that was made twice in a row after a ``context``.

    ``states`` are the hashes before, after once and after twice. ``num_states`` counts the states in which the call was
    made again; none showed worse. ``difference`` says where once (``forward``) and twice (``reverse``) end apart.
    """

    call: int
    context: Order
    answer: Answer
    states: tuple[str, ...]
    outputs: tuple[str | None, ...]
    num_states: int = 1
    difference: tuple[Differing, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Retries:
    """What the calls of a trace, or of a part of a long one, show when they are made again, in the log's order.

    If nothing can be said, ``problem`` says why. ``names`` and ``ids`` are those of the calls. ``contradicted`` lists
    tools with a declared hint (``readOnlyHint`` or ``idempotentHint``), and the call that, made again, changes the
    state again. ``ignored`` names what the states' bytes leave out. ``asked`` further calls were answered alike after
    once and twice.
    """

    name: str
    names: tuple[str, ...] = ()
    ids: tuple[str | None, ...] = ()
    calls: tuple[Retried, ...] = ()
    contradicted: tuple[tuple[str, str, int], ...] = ()
    asked: int = 0
    ignored: tuple[str, ...] = ()
    problem: str | None = None
    left_out: tuple[LeftOut, ...] = ()


def retry_calls(environment: CallEnvironment[Any], episode: Episode) -> list[Retried]:
    """Make each call of an episode again, wherever the schedule's contexts come to it; return all cases.

    Raises :class:`UncertifiedError` if replays contradict each other, and the environment's errors.
    """
    (evidence,) = evidence_of(environment, [episode], settle=partial(settle, within=_WITHIN))
    _require_one_answer(environment, evidence.replays)
    require_not_told_apart(evidence.cross_checks)
    lattice = sound_lattice(evidence.replays.tree, allow_idle=True)
    calls = range(episode.num_operations)
    cases = [(call, context) for call in calls for context in _contexts_of(lattice, call)]
    return _made_twice(environment, episode, cases, fresh=False)


def retry_again(
    environment: CallEnvironment[Any], episode: Episode, found: Sequence[Retried]
) -> tuple[tuple[Retried, ...], int]:
    """Repeat the log's own cases and the worst ones from fresh states; return the worst case of each call.

    Return, too, how many further calls were answered alike after once and twice. Raises :class:`UncertifiedError`: a
    case differs, or one of these calls is answered otherwise.
    """
    worst: dict[int, Retried] = {}
    for one in sorted(found, key=lambda one: -_WORSE.index(one.answer)):
        worst.setdefault(one.call, one)
    own = [one for one in found if one.context == tuple(range(one.call))]
    chosen = [*own, *(one for one in worst.values() if one not in own)]
    cases = [(one.call, one.context) for one in chosen]
    again = _made_twice(environment, episode, cases, fresh=True)
    for one, other in zip(chosen, again, strict=True):
        if one != other:
            detail = (
                f"call {one.call} made twice after {list(one.context)}: not what it gave before"
            )
            raise UncertifiedError("nondeterministic", detail)
    retried = tuple(
        replace(
            one,
            num_states=sum(each.call == call for each in found),
            difference=_difference(environment, episode, one),
        )
        for call, one in sorted(worst.items())
    )
    return retried, _asked(environment, episode, found)


def after_refusals(
    environment: CallEnvironment[Any], replays: EpisodeReplays, within: float = inf
) -> AfterRefusals:
    """Return what refused calls of an episode's replays left, and what pairs show with those that changed the state.

    Each refused call is made twice in a row, once for each state that refuses it, with its refusal as an output. Two
    calls of which one changed the state so run in both orders. Nothing is begun after so many seconds.
    """
    until = monotonic() + within
    episode, lattice = replays.episode, Lattice.of(replays.tree)
    longer, number = _with_repeats(episode), episode.num_operations

    def replayed(sequences: Sequence[Order]) -> Iterator[Replay | None]:
        """Give the replays in turn; None for one that breaks a tool."""
        for start in range(0, len(sequences), _BLOCK):
            if monotonic() >= until:
                return
            block = [ReplayRequest(longer, each) for each in sequences[start : start + _BLOCK]]
            yield from _replays_or_none(environment, block)

    refused: dict[tuple[str, int], Order] = {}
    for (context, call), answer in lattice.transitions.items():
        if isinstance(answer, str):
            before = lattice.contexts[context]
            refused.setdefault((before.state_hash, call), before.sequence)
    twice = [_twice(episode, call, sequence) for (_, call), sequence in refused.items()]
    found: dict[tuple[str, int], tuple[str, str | None]] = {}
    num_found = 0
    for (_, call), replay in zip(refused, replayed(twice), strict=False):
        num_found += 1
        if replay is not None and replay.accepted:
            state, once, again = replay.state_hashes[-3:]
            outputs = replay.outputs[-2:] or (None, None)
            found[state, call] = once, outputs[0]
            found.setdefault((once, call), (again, outputs[1]))

    places = _pairs_that_change(lattice, found)
    pairs: dict[tuple[str, int, int], PairVerdict | None] = dict.fromkeys(places)
    orders: list[Order] = []
    for (_, one, other), sequence in places.items():
        a, b = one + number, other + number
        orders += [(*sequence, a, b), (*sequence, b, a)]
    ends = list(replayed(orders))
    for key, forward, reverse in zip(pairs, ends[::2], ends[1::2], strict=False):
        if forward is not None and reverse is not None and forward.accepted and reverse.accepted:
            same = forward.output_of == reverse.output_of
            alike = forward.terminal_hash == reverse.terminal_hash
            pairs[key] = ("diamond" if same else "observes") if alike else "conflicts"
    complete = num_found == len(refused) and len(ends) == len(orders)
    return AfterRefusals(calls=found, pairs=pairs, complete=complete)


def _pairs_that_change(
    lattice: Lattice, found: Mapping[tuple[str, int], tuple[str, str | None]]
) -> dict[tuple[str, int, int], Order]:
    """Return where both orders of a pair are refused, and a refused call changed the state, or may have."""

    def changes(context: int | str, call: int) -> bool:
        if isinstance(context, str) or not isinstance(
            lattice.transitions.get((context, call)), str
        ):
            return False
        state = lattice.contexts[context].state_hash
        return found.get((state, call), ("", None))[0] != state

    places: dict[tuple[str, int, int], Order] = {}
    for pair, contexts in lattice.by_pair.items():
        for number, (shown, _) in contexts.items():
            context = lattice.contexts[number]
            behind = [lattice.transitions[number, one] for one in pair]
            steps = [*((number, one) for one in pair), *zip(behind, pair[::-1], strict=True)]
            if shown == "vacuous" and any(changes(*step) for step in steps):
                places.setdefault((context.state_hash, *pair), context.sequence)
    return places


def _replays_or_none(
    environment: CallEnvironment[Any], requests: Sequence[ReplayRequest]
) -> list[Replay | None]:
    """Replay; if a tool breaks, which is no verdict, each request by itself, with None for those that break."""
    try:
        return [*replay_all(environment, requests, sharing=True)]
    except VcrtError:
        if len(requests) == 1:
            return [None]
        return [one for each in requests for one in _replays_or_none(environment, [each])]


def contradicted_hints(
    environment: CallEnvironment[Any], episode: Episode, calls: Sequence[Retried]
) -> tuple[tuple[str, str, int], ...]:
    """Return the declared hints that calls contradict: a tool that only reads is idempotent, too."""
    tools = {tool.name: tool for tool in environment.tools()}
    found: dict[tuple[str, str], int] = {}
    for one in calls:
        payload: Any = episode.operations[one.call].payload
        tool = tools.get(payload["name"])
        if tool is not None and one.answer == "other state":
            said = (("readOnlyHint", tool.read_only), ("idempotentHint", tool.idempotent))
            for hint in (hint for hint, declared in said if declared):
                found.setdefault((tool.name, hint), one.call)
    return tuple((name, hint, call) for (name, hint), call in found.items())


def _require_one_answer(environment: CallEnvironment[Any], replays: EpisodeReplays) -> None:
    """Raise :class:`UncertifiedError` if the log's own order gives something else when it is replayed again."""
    own = tuple(range(replays.episode.num_operations))
    (again,) = replay_all(environment, [ReplayRequest(replays.episode, own)], backwards=True)
    if again != replays.tree.replay(own):
        raise UncertifiedError("nondeterministic", "two replays of the log's own order differ")


def _contexts_of(lattice: Lattice, call: int) -> list[Order]:
    """Give sequences after which a call was accepted, one for each state: the log's own first, others evenly spread."""
    own = lattice.follow(tuple(range(call)))
    if own is None:
        raise UncertifiedError("nondeterministic", f"the log's own order is refused before {call}")
    by_state = {lattice.contexts[own].state_hash: tuple(range(call))}
    for (number, operation), answer in lattice.transitions.items():
        if operation == call and isinstance(answer, int):
            context = lattice.contexts[number]
            by_state.setdefault(context.state_hash, context.sequence)
    first, *others = by_state.values()
    return [first, *others[:: -(-len(others) // (MAX_STATES - 1)) or 1]]


def _made_twice(
    environment: CallEnvironment[Any],
    episode: Episode,
    cases: Sequence[tuple[int, Order]],
    *,
    fresh: bool,
) -> list[Retried]:
    longer = _with_repeats(episode)
    requests = [ReplayRequest(longer, _twice(episode, *case)) for case in cases]
    replays = replay_all(environment, requests, sharing=not fresh, backwards=fresh)
    # Of a hidden output it is not known whether it is a refusal.
    hides = is_redacted(episode) or type(environment).redact is not CallEnvironment.redact
    found = []
    for (call, context), replay in zip(cases, replays, strict=True):
        if not replay.accepted:
            detail = f"{call} after {list(context)} is refused when it is run again"
            raise UncertifiedError("nondeterministic", detail)
        states, outputs = replay.state_hashes[-3:], replay.outputs[-2:] or (None, None)
        payload: Any = episode.operations[call].payload
        refused = is_error(outputs[0] or "") or (payload.get("fails") and hides)
        answer: Answer = "safe"
        if states[1] != states[2]:
            answer = "other state"
        elif outputs[0] != outputs[1]:
            answer = "other output"
        elif refused and states[0] == states[1]:
            answer = "not known"
        found.append(
            Retried(call=call, context=context, answer=answer, states=states, outputs=outputs)
        )
    return found


def _with_repeats(episode: Episode) -> Episode:
    """Return the episode with each call twice more, where its refusal is an output; the second draws ids of its own."""
    payloads: list[Any] = [operation.payload for operation in episode.operations]
    made, again = (
        [Operation(signature=p["name"], payload={**p, "fails": True, **turn}) for p in payloads]
        for turn in ({}, {"turn": "again"})
    )
    return replace(episode, operations=(*episode.operations, *made, *again))


def _twice(episode: Episode, call: int, context: Order) -> Order:
    """Return the sequence of :func:`_with_repeats` that makes a call twice after a context."""
    number = episode.num_operations
    return (*context, call + number, call + 2 * number)


def _asked(environment: CallEnvironment[Any], episode: Episode, found: Sequence[Retried]) -> int:
    """Make further calls after once and twice, where the states are equal; return how many were answered alike."""
    equal = {one.call: one for one in reversed(found) if one.states[1] == one.states[2]}
    probes = environment.probes(episode) if environment.max_probes and equal else ()
    share = max(1, environment.max_probes // max(1, len(equal)))
    prober, total = Prober(as_values(environment), environment, _with_repeats(episode)), 0
    for call, one in sorted(equal.items())[: environment.max_probes]:
        twice = _twice(episode, call, one.context)
        asked, agreed, told = prober.compare((twice[:-1], twice), probes[:share])
        if asked != agreed:
            raise UncertifiedError("unequal_futures", told.removeprefix(": "))
        total += agreed
    return total


def _difference(
    environment: CallEnvironment[Any], episode: Episode, one: Retried
) -> tuple[Differing, ...]:
    twice, found = _twice(episode, one.call, one.context), list[Differing]()
    if one.states[1] != one.states[2]:
        found += difference_of_states(environment, _with_repeats(episode), twice[:-1], twice)
    if one.outputs[0] != one.outputs[1]:
        found += difference_of_outputs(one.outputs[0], one.outputs[1], one.call)
    return tuple(found)
