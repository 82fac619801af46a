"""Say of which calls a cached answer could have been served, by two keys. Pure.

The answer of an earlier call may be served if the call is the same and the state is: its canonical bytes, as the
environment gives them. A cache of prefixes asks for more, the identical history of calls from the same start. All
calls were really made, so each answer that either key would serve is compared with the real one. A call that draws an
id is always made, and what follows it is served from its own trace alone: another trace draws other ids. Not covered:
what the state's bytes leave out, and answers that age outside of it.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from vcrt.calls.log_lifting import LeftOut
from vcrt.environments.contract import Episode, Replay
from vcrt.hashing import json_digest

#: A call of a log: the name of its trace, and its place there.
Place: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Made:
    """A call that was made: a digest of its tool and arguments, the states' hashes around it, and its output.

    ``draws``: it draws an id, which is another one each time.
    """

    call: str
    before: str
    after: str
    output: str | None
    draws: bool = False

    @property
    def key(self) -> str:
        """The key of a cache: SHA-256 of the state's hash and the call."""
        return json_digest([self.before, self.call])


@dataclass(frozen=True, kw_only=True, slots=True)
class Reused:
    """A call of a log: what it ``made``, and the earlier calls whose answer a cache could have served, None if none.

    ``by_state`` has the same key, ``by_history`` the same history of calls from the same start.
    """

    made: Made
    by_state: Place | None
    by_history: Place | None

    @property
    def changes(self) -> bool:
        """Whether the call changed the state: then its answer may be known, but it must be made."""
        return self.made.before != self.made.after


@dataclass(frozen=True, kw_only=True, slots=True)
class Reuse:
    """What of a trace could have been served, in the log's order; if nothing can be said, ``problem`` says why.

    ``ignored`` names what the states' bytes leave out.
    """

    name: str
    names: tuple[str, ...] = ()
    ids: tuple[str | None, ...] = ()
    calls: tuple[Reused, ...] = ()
    ignored: tuple[str, ...] = ()
    problem: str | None = None
    left_out: tuple[LeftOut, ...] = ()

    @property
    def served(self) -> tuple[int, ...]:
        """The calls that a cache by state could have answered without making them."""
        return tuple(k for k, one in enumerate(self.calls) if one.by_state and not one.changes)

    @property
    def by_history(self) -> tuple[int, ...]:
        """Those of them that an identical history of calls would have served, too."""
        return tuple(k for k in self.served if self.calls[k].by_history)


def calls_made(episode: Episode, replay: Replay, drawing: Collection[str] = ()) -> tuple[Made, ...]:
    """Return the calls of a replay of all of an episode's calls; the tools ``drawing`` draw ids."""
    outputs = replay.outputs or (None,) * len(replay.sequence)
    calls = []
    for place, step in enumerate(replay.sequence):
        payload: Any = episode.operations[step].payload
        digest = json_digest({"name": payload["name"], "arguments": payload["arguments"]})
        before, after = replay.state_hashes[place : place + 2]
        draws = payload["name"] in drawing
        calls.append(Made(digest, before, after, outputs[place], draws))
    return tuple(calls)


@dataclass(slots=True)
class Cache:
    """All answers so far, under both keys."""

    _known: dict[Hashable, Place] = field(default_factory=dict)

    def serve(self, name: str, made: Sequence[Made]) -> tuple[Reused, ...]:
        """Say what the cache could serve of the calls of a trace, and remember them."""
        found, own, shared = list[Reused](), object(), True
        for number, one in enumerate(made):
            history = (made[0].before, *(each.call for each in made[: number + 1]))
            here, places = (name, number), list[Place | None]()
            shared = shared and not one.draws
            for key in (one.key, history) if not one.draws else ():
                first = self._known.setdefault((key, own), here)
                if shared:
                    first = self._known.setdefault((key, None), here)
                places.append(None if first is here else first)
            by_state, by_history = places or (None, None)
            found.append(Reused(made=one, by_state=by_state, by_history=by_history))
        return tuple(found)


def unequal_answers(runs: Iterable[tuple[str, Sequence[Made]]]) -> tuple[Place, Place] | None:
    """Return two calls of one key with different answers or states after them: their states were not equal.

    Calls that draw an id are passed over.
    """
    known: dict[str, tuple[Place, Made]] = {}
    for name, calls in runs:
        for number, one in enumerate(calls):
            if one.draws:
                continue
            place, first = known.setdefault(one.key, ((name, number), one))
            if first != one:
                return place, (name, number)
    return None
