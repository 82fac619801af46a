"""Make tasks of an environment's own episodes, whose steps a model writes as text, a line for each.

A task has the start of an episode, the text of each of its steps, and what a legal order of them comes to: the state in
which they are to end, and the outputs of those that have one. A completion
is read line by line; a line that is no step's text is free text, where there may be any. Any environment of a
registered name serves, in both forms. Not covered: steps that the task does not list, and where episodes come from.
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
    """Makes the environment of this name, with the texts of a task's steps as what a model writes.

    >>> WrittenEpisodes("clrs")().name
    'clrs'
    """

    environment: str
    #: Whether lines may be no steps; without it they make an answer unreadable, so that a model learns to end.
    free_text: bool = True

    def __call__(self) -> WrittenSteps:
        """The environment."""
        kind = type(load_environment(self.environment))
        given = {"free_text": self.free_text}
        made: WrittenSteps = type(f"Written{kind.__name__}", (_EpisodeLines, kind), given)()
        return made


class _EpisodeLines(WrittenSteps):
    """Reads lines that are texts of a task's steps."""

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
        # Tasks that were made before outputs counted ask for a state alone.
        asked = read_task(task).get("outputs")
        return asked is None or dict(asked) == outputs


def read_lines(
    given: Mapping[str, Any],
    known: Mapping[str, tuple[Json, str]],
    completion: str,
    *,
    free_text: bool,
) -> WrittenTrace:
    """The lines of a completion that are ``known`` texts, each with its payload and signature, as steps of a task.

    Raises :class:`UnreadableCompletion` if there are none, and for any other line unless there may be ``free_text``.
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
    """A task, as it is or as JSON text: a dataset gives nested ones the keys of each other."""
    return json.loads(task) if isinstance(task, str) else task


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenTask:
    """A task of an episode: its prompt, what the environment needs, and the reference trace."""

    prompt: str
    task: dict[str, Json]
    completion: str


def written_task(environment: Environment, episode: Episode, draw: Draws) -> WrittenTask:
    """The task of an episode, its steps listed in an order that ``draw`` gives.

    Raises :class:`MalformedInputError` for an episode whose own order is refused, and for two steps with one text.
    """
    texts = [" ".join(environment.describe(one).split()) for one in episode.operations]
    order = tuple(range(episode.num_operations))
    (replay,) = environment.replay([ReplayRequest(episode, order)])
    distinct = len(set(texts)) == len(texts)
    if replay.outcome is None or not distinct:
        raise MalformedInputError(
            "an episode that makes no task",
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
    """The tasks of episodes of one environment, in their order."""
    environment = load_environment(name)
    return [written_task(environment, episode, draw) for episode in episodes]
