"""Make tasks from an environment's own episodes, whose steps a model writes as text, one a line.

A task has the start of an episode, the text of each step, and the result of a legal order: the final state, and the
outputs of the steps that have one. A completion is read line by line; a line that is no step's text is free text, where
that is allowed. This works for any registered environment, in both forms. The steps of a completion are always steps
that the task lists.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vcrt.environments.contract import Environment, Episode, ReplayRequest, StepEnvironment
from vcrt.environments.registry import load_environment
from vcrt.environments.written import UnreadableCompletion, WrittenStep, WrittenSteps, WrittenTrace
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json, sha256_hex
from vcrt.randomness import Draws, permuted

_ASK = "Write every step once, one a line, in an order in which all of them work and end as they should."


@dataclass(frozen=True, slots=True)
class WrittenEpisodes:
    """A factory of the environment of this name, in which a model writes the texts of a task's steps.

    >>> WrittenEpisodes("clrs")().name
    'clrs'
    """

    environment: str
    #: Whether other lines may occur; if not, they make an answer unreadable, so that a model learns to stop.
    free_text: bool = True

    def __call__(self) -> WrittenSteps:
        """Make the environment."""
        kind = type(load_environment(self.environment))
        given = {"free_text": self.free_text}
        made: WrittenSteps = type(f"Written{kind.__name__}", (_EpisodeLines, kind), given)()
        return made


class _EpisodeLines(WrittenSteps):
    """A reader of lines that are texts of a task's steps."""

    free_text = True

    def parse(self, task: Json, completion: str) -> WrittenTrace:
        given = read_task(task)
        known = {text: (payload, signature) for text, payload, signature in given["steps"]}
        trace = read_lines(given, known, completion, free_text=self.free_text)
        if len({step.signature for step in trace.steps}) < len(trace.steps):
            raise UnreadableCompletion("a step is written twice")
        return trace

    def solved(self, task: Json, state: Any) -> bool:
        given = read_task(task)
        end = sha256_hex(self.canonical(state)) if isinstance(self, StepEnvironment) else state
        return bool(given["goal"] == end)

    def _gave(self, task: Json, outputs: Mapping[str, str]) -> bool:
        # Tasks made before outputs counted ask for a state alone.
        asked = read_task(task).get("outputs")
        return asked is None or dict(asked) == outputs


def read_lines(
    given: Mapping[str, Any],
    known: Mapping[str, tuple[Json, str]],
    completion: str,
    *,
    free_text: bool,
) -> WrittenTrace:
    """Return the steps of a task: the lines of a completion that are ``known`` texts, with payload and signature.

    Raise :class:`UnreadableCompletion` if there are none, and for any other line unless ``free_text`` is allowed.
    """
    steps, place = list[WrittenStep](), 0
    for line in completion.split("\n"):
        text = line.strip()
        if text in known:
            start = place + line.index(text)
            steps.append(WrittenStep(start, start + len(text), *known[text]))
        elif text and not free_text:
            raise UnreadableCompletion("a line is no step of the task")
        place += len(line) + 1
    if not steps:
        raise UnreadableCompletion("no line is a step of the task")
    return WrittenTrace(
        initial=given["initial"],
        steps=tuple(steps),
        schema=given["schema"],
        source=given["source"],
    )


def read_task(task: Json) -> Any:
    """Return a task given as a value or as JSON text: a dataset would merge the keys of nested values."""
    return json.loads(task) if isinstance(task, str) else task


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenTask:
    """A task of an episode: its prompt, the data that the environment needs, and the reference trace."""

    prompt: str
    task: dict[str, Json]
    completion: str


def written_task(environment: Environment, episode: Episode, draw: Draws) -> WrittenTask:
    """Return the task of an episode; ``draw`` gives the order in which its steps are listed.

    Raise :class:`MalformedInputError` if the episode's own order is refused, or two steps have the same text.
    """
    texts = [" ".join(environment.describe(one).split()) for one in episode.operations]
    order = tuple(range(episode.num_operations))
    (replay,) = environment.replay([ReplayRequest(episode, order)])
    distinct = len(set(texts)) == len(texts)
    if replay.outcome is None or not distinct:
        raise MalformedInputError(
            "no task can be made from an episode",
            where=episode.episode_id,
            found="two steps with one text" if not distinct else "its order is refused",
        )
    listed = [texts[place] for place in permuted(draw, len(texts))]
    start = environment.task(episode)
    outputs: Json = [
        [episode.operations[k].signature, each] for k, each in sorted(replay.output_of.items())
    ]
    return WrittenTask(
        prompt="\n".join(
            [*([f"Task: {start}"] if start else []), "Steps:", *listed, _ASK, "Answer:\n"]
        ),
        task={
            "initial": episode.initial,
            "schema": episode.schema,
            "source": episode.provenance.source,
            "steps": [
                [text, operation.payload, operation.signature]
                for text, operation in zip(texts, episode.operations, strict=True)
            ],
            "goal": replay.outcome.terminal_hash,
            **({"outputs": outputs} if outputs else {}),
        },
        completion="\n".join(texts),
    )


def written_tasks(name: str, episodes: Sequence[Episode], draw: Draws) -> list[WrittenTask]:
    """Return the tasks of episodes of one environment, in their order."""
    environment = load_environment(name)
    return [written_task(environment, episode, draw) for episode in episodes]
