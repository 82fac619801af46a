"""Tell where a cached answer may be served in place of a call: three keys, and what each one saves.

An answer may be served if state and call are the same. ``history``: all calls so far are the same, in their order.
``class``: the calls so far can be put into the same order by swaps of neighbours that were replayed in both orders and
commute there. ``state``: the states' bytes are the same. Each later key serves at least what the one before it serves,
if equal bytes mean equal futures. Not covered: what an answer costs, and states that a call leaves outside.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from vcrt.calls.reuse import Made
from vcrt.environments.contract import Accepted, Episode, Operation
from vcrt.environments.shared_prefixes import as_values
from vcrt.environments.tool_calls import CallEnvironment
from vcrt.hashing import json_digest, json_text


@dataclass(slots=True)
class Caller:
    """Makes calls in states of one environment; a state is known by its hash, and each call is made there once."""

    environment: CallEnvironment[Any]
    _states: dict[str, object] = field(default_factory=dict)
    _made: dict[tuple[str, str], Made] = field(default_factory=dict)
    _calls: dict[str, Operation] = field(default_factory=dict)

    def run(self, episode: Episode) -> list[Made]:
        """Make the calls of an episode in their order from a fresh state, whatever was made before."""
        values, made = as_values(self.environment), list[Made]()
        state = values.initial_state(episode)
        for operation in episode.operations:
            payload: Any = operation.payload
            call = json_text({"name": payload["name"], "arguments": payload["arguments"]})
            self._calls.setdefault(call, replace(operation, payload={**payload, "fails": True}))
            at = made[-1].after if made else values._hash(state)
            self._states.setdefault(at, state)
            state, one = self._make(state, at, call)
            self._made.setdefault((at, call), one)
            made.append(one)
        return made

    def made(self, at: str, call: str) -> Made:
        """Make a call in the state of a hash; a refusal is an output."""
        if (at, call) not in self._made:
            state, self._made[at, call] = self._make(self._states[at], at, call)
            self._states.setdefault(self._made[at, call].after, state)
        return self._made[at, call]

    def _make(self, state: object, at: str, call: str) -> tuple[object, Made]:
        values = as_values(self.environment)
        answer = values.step(state, self._calls[call])
        assert isinstance(answer, Accepted)
        return answer.state, Made(call, at, values._hash(answer.state), answer.output)

    def commute(self, at: str, one: str, other: str) -> bool:
        """Tell whether two calls commute in a state: one end state, and both outputs equal."""
        first, second = self.made(at, one), self.made(at, other)
        behind, ahead = self.made(first.after, other), self.made(second.after, one)
        return (behind.after, first.output, behind.output) == (
            ahead.after,
            ahead.output,
            second.output,
        )

    def normal(self, start: str, calls: Sequence[str]) -> tuple[str, ...]:
        """Return the calls in one order for all that swaps lead to: the least call that may come first, and so on."""
        found, rest, at = list[str](), list(calls), start
        while rest:
            first = min(
                (n for n in range(len(rest)) if self._may_be_first(at, rest, n)),
                key=rest.__getitem__,
            )
            found.append(rest.pop(first))
            at = self.made(at, found[-1]).after
        return tuple(found)

    def _may_be_first(self, at: str, calls: Sequence[str], number: int) -> bool:
        states = [at]
        for call in calls[:number]:
            states.append(self.made(states[-1], call).after)
        return all(
            self.commute(states[k], calls[k], calls[number]) for k in reversed(range(number))
        )


#: A function from the calls made so far, and the state's hash at the start, to a key of where the next one is made.
Key: TypeAlias = Callable[[str, Sequence[Made]], Hashable]


def by_history(start: str, made: Sequence[Made]) -> Hashable:
    """Return the key of an identical history."""
    return start, json_digest([one.call for one in made])


def by_state(start: str, made: Sequence[Made]) -> Hashable:
    """Return the key of the state."""
    return made[-1].after if made else start


def by_class(caller: Caller, *, without_reads: bool = False) -> Key:
    """Return the key of a history's class; without calls that were seen to leave the state as it is, if wanted."""

    def key(start: str, made: Sequence[Made]) -> Hashable:
        kept = [one.call for one in made if not without_reads or one.before != one.after]
        return start, caller.normal(start, kept)

    return key


@dataclass(frozen=True, kw_only=True, slots=True)
class Saved:
    """What a cache saves over runs that come one after another.

    ``served`` of ``calls`` answers come from the cache, ``reads`` of them of calls that leave the state as it is.
    ``run`` calls are really made if the cache keeps no states: what was served and changes the state is made before the
    next call that is not served. ``wrong`` served answers differ from the real ones in output or next state.
    """

    calls: int
    served: int
    reads: int
    run: int
    wrong: int


def saved(runs: Sequence[Sequence[Made]], key: Key) -> Saved:
    """Serve the calls of runs from a cache under a key, and compare each served answer with the real one."""
    known: dict[Hashable, Made] = {}
    served, reads, run, wrong = 0, 0, 0, 0
    for made in runs:
        waiting = 0
        for number, one in enumerate(made):
            place = key(made[0].before, made[:number]), one.call
            if place in known:
                answer = known[place]
                served += 1
                reads += one.before == one.after
                waiting += one.before != one.after
                wrong += (answer.after, answer.output) != (one.after, one.output)
            else:
                known[place] = one
                run += waiting + 1
                waiting = 0
    return Saved(calls=sum(map(len, runs)), served=served, reads=reads, run=run, wrong=wrong)
