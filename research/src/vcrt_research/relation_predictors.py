"""Predict which steps depend on one another: from shared words, declared footprints, answers, a policy's orders.

None of them sees a relation. What a policy knows is read from its own probabilities: of two steps that it puts one
before the other in half of its orders, it says that they commute. Not covered: scoring
(:mod:`vcrt_research.relation_scores`).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from vcrt.environments.contract import Environment, Episode, Footprint
from vcrt.orders import all_orders
from vcrt_research.relation_scores import LabelledPair, Prediction

_WORD = re.compile(r"\w+")


def described(environment: Environment, episodes: Sequence[Episode]) -> list[tuple[str, ...]]:
    """The text of each operation of each episode."""
    return [tuple(map(environment.describe, episode.operations)) for episode in episodes]


def tasks(environment: Environment, episodes: Sequence[Episode]) -> list[str]:
    """What the operations of each episode start from."""
    return list(map(environment.task, episodes))


def declared(
    environment: Environment, episodes: Sequence[Episode]
) -> list[tuple[Footprint | None, ...]]:
    """What each operation of each episode declares to read and to write."""
    return [
        tuple(environment.footprint(episode, operation) for operation in episode.operations)
        for episode in episodes
    ]


def by_shared_words(
    pairs: Sequence[LabelledPair], texts: Mapping[str, Sequence[str]]
) -> list[Prediction]:
    """The more telling words two steps share, the likelier they depend; the direction is left open.

    A word tells as much as it is rare among all steps (its inverse document frequency); scores are scaled into 0 to 1.
    """
    words = {
        name: [frozenset(_WORD.findall(text)) for text in some] for name, some in texts.items()
    }
    steps = [step for some in words.values() for step in some]
    frequency = Counter(word for step in steps for word in step)
    raw = [
        # Exact, as sets of texts have another order in each process.
        math.fsum(
            math.log(len(steps) / frequency[word])
            for word in words[pair.episode_id][pair.first] & words[pair.episode_id][pair.second]
        )
        for pair in pairs
    ]
    highest = max(raw, default=0.0) or 1.0
    return [Prediction(score / highest) for score in raw]


def by_footprints(
    pairs: Sequence[LabelledPair], footprints: Mapping[str, Sequence[Footprint]]
) -> list[Prediction]:
    """Steps depend exactly if one writes what the other touches; who writes what the other reads goes first."""
    found = []
    for pair in pairs:
        one, other = (footprints[pair.episode_id][number] for number in (pair.first, pair.second))
        gives = not set(one.writes).isdisjoint(other.reads)
        takes = not set(other.writes).isdisjoint(one.reads)
        both = not set(one.writes).isdisjoint(other.writes)
        forward = 0.5 if gives == takes else float(gives)
        found.append(Prediction(float(gives or takes or both), forward))
    return found


def question(task: str, first: str, second: str) -> str:
    """Whether one step must stand before another, in words."""
    given = f"Task: {task}\n" if task else ""
    return (
        f"{given}Step 1: {first}\nStep 2: {second}\n"
        "Must step 1 be done before step 2? Answer yes or no.\n"
    )


def by_answers(
    pairs: Sequence[LabelledPair], shares: Mapping[tuple[str, int, int], float]
) -> list[Prediction]:
    """An edge is as likely as the likelier yes to :func:`question`; ``shares`` of yes are by first and second."""
    found = []
    for pair in pairs:
        one = shares[pair.episode_id, pair.first, pair.second]
        other = shares[pair.episode_id, pair.second, pair.first]
        found.append(Prediction(max(one, other), one / ((one + other) or 1.0)))
    return found


def by_policy(
    pairs: Sequence[LabelledPair], probabilities: Mapping[str, Sequence[float]]
) -> list[Prediction]:
    """Read from the probability of every order: with which one of a pair stands before the other.

    Of a pair in either order equally often, 0 is said; of one in a single order, 1. ``probabilities`` are by column of
    :func:`vcrt.orders.all_orders`, over operations; what is no order takes no part.
    """
    found = []
    for pair in pairs:
        own = probabilities[pair.episode_id]
        number = next(n for n in range(2, 9) if math.factorial(n) == len(own))
        before = sum(
            probability
            for order, probability in zip(all_orders(number), own, strict=True)
            if order.index(pair.first) < order.index(pair.second)
        )
        forward = before / (sum(own) or 1.0)
        found.append(Prediction(abs(2 * forward - 1), forward))
    return found
