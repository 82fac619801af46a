"""Draw episodes of calls of a server: some calls after each other, each of which the server accepts where it stands."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from vcrt.environments.contract import Episode, Provenance, Schema
from vcrt.environments.mcp import McpEnvironment
from vcrt.environments.tool_calls import Call, CallRefused, episode_of_calls, operations_of
from vcrt.errors import VerifierFailure
from vcrt.hashing import Json
from vcrt.randomness import Generator, generator

#: How many calls are tried for an episode.
TRIES = 60


def schemas(**summaries: str) -> tuple[Schema, ...]:
    """Schemas of these names, which promise nothing but that they can be certified."""
    return tuple(
        Schema(name=name, summary=summary, relation="either", preset="any")
        for name, summary in summaries.items()
    )


class SampledServer(McpEnvironment):
    """A server whose episodes are drawn: subclasses say which beginnings and calls there are."""

    #: The tools that each schema draws from.
    drawn: ClassVar[Mapping[str, tuple[str, ...]]]
    #: Calls in an episode, by schema, where they are not four.
    num_calls: ClassVar[Mapping[str, int]] = {}

    @abstractmethod
    def beginning(self, draw: Generator) -> Json:
        """What an episode begins with."""

    @abstractmethod
    def arguments(self, name: str, draw: Generator) -> dict[str, Json]:
        """Arguments for a call of that tool, which the server may refuse."""

    def sample(self, schema: str, seed: int) -> Episode:
        """A beginning, and calls that the server accepts one after the other; which commute is for it to say."""
        tools = self.drawn[self.schema(schema).name]
        draw = generator(seed, self.name, schema)
        initial = self.beginning(draw)
        state, calls = self.reset(initial), list[Call]()
        for _ in range(TRIES):
            name = tools[int(draw.integers(len(tools)))]
            call = Call(name, self.arguments(name, draw))
            before = self.snapshot(state)
            try:
                self.call(state, call.name, call.arguments)
                calls.append(call)
            except CallRefused:
                state = self.restore(before)
            if len(calls) == self.num_calls.get(schema, 4):
                break
        else:
            raise VerifierFailure(
                "too few of the calls that were drawn are accepted",
                where=f"{self.name}/{schema}/{seed}",
                found=f"{len(calls)} of {TRIES}",
            )
        provenance = Provenance(
            source=f"{schema}/{seed}", generator="vcrt-mcp-servers 0.1", seed=seed
        )
        return episode_of_calls(self.name, schema, initial, operations_of(calls), provenance)


def one_of(draw: Generator, values: Any) -> Any:
    """One of some values, each as likely."""
    return values[int(draw.integers(len(values)))]
