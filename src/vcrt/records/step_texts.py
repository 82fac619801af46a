"""Write what a policy is shown of an episode's steps in place of their relations: the steps, or what each declares.

The view ``steps`` has the environment's own words, and so tells a reader which environment it is. In the view
``footprints`` each resource is a number drawn afresh for each episode, and every environment says the same things:
``reads x1 x4, writes x7``. Resources that only one step touches, or that none writes, connect nothing and are left out.
Neither view says anything about the order. Not covered: where these texts stand in a record
(:mod:`vcrt.records.policy_view`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from vcrt.environments.contract import Environment, Episode, Footprint
from vcrt.errors import MalformedInputError
from vcrt.randomness import generator
from vcrt.records.record_form import View


@dataclass(frozen=True, slots=True)
class StepTexts:
    """The text of each operation of an episode, in their order, and what they start from; both empty for relations."""

    task: str = ""
    steps: tuple[str, ...] = ()


NO_TEXTS = StepTexts()


def step_texts(
    environment: Environment, episodes: Sequence[Episode], view: View, seed: int
) -> list[StepTexts]:
    """What the policy is shown of the steps of each episode, beside their pointers.

    Raises :class:`MalformedInputError` for a step without a footprint where footprints are to be shown.
    """
    if view == "relations":
        return [NO_TEXTS for _ in episodes]
    return [_texts(environment, episode, view, seed) for episode in episodes]


def _texts(environment: Environment, episode: Episode, view: View, seed: int) -> StepTexts:
    if view == "footprints":
        return StepTexts("", footprint_texts(environment, episode, seed))
    steps = tuple(environment.describe(operation).strip() for operation in episode.operations)
    return StepTexts(environment.task(episode).strip(), steps)


def footprint_texts(environment: Environment, episode: Episode, seed: int) -> tuple[str, ...]:
    """What each operation reads and writes, by anonymous numbers of resources."""
    found = []
    for operation in episode.operations:
        footprint = environment.footprint(episode, operation)
        if footprint is None:
            raise MalformedInputError(
                "a step that declares nothing of what it reads and writes",
                where=f"{episode.episode_id}, {operation.signature!r:.80}",
                expected="Footprint(reads, writes), from the environment's footprint",
                remedy="certify with `--view steps`, or leave the environment out",
            )
        found.append(footprint)
    return _anonymous(found, episode, seed)


def _anonymous(footprints: Sequence[Footprint], episode: Episode, seed: int) -> tuple[str, ...]:
    touched = Counter(name for one in footprints for name in {*one.reads, *one.writes})
    written = {name for one in footprints for name in one.writes}
    shared = sorted(name for name, times in touched.items() if times > 1 and name in written)
    draw = generator(seed, "resources", episode.content_hash())
    numbers = dict(zip(shared, draw.permutation(len(shared)).tolist(), strict=True))

    def told(verb: str, names: Sequence[str]) -> str:
        own = sorted(numbers[name] for name in set(names) & numbers.keys())
        return f"{verb} {' '.join(f'x{number}' for number in own)}" if own else ""

    texts = []
    for one in footprints:
        parts = [part for part in (told("reads", one.reads), told("writes", one.writes)) if part]
        texts.append(", ".join(parts) or "shares nothing")
    return tuple(texts)
