"""What the tests of the CLRS environment share: replays, traces, and one small episode of each schema."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from vcrt.certificates.episodes import (
    PAPER_PRESET,
    CertifiedEpisode,
    Exclusion,
    Preset,
    certify_episode,
)
from vcrt.environments.contract import Accepted, CrossCheck, Episode, Replay, ReplayRequest
from vcrt.replay.replay import replay_exhaustively
from vcrt_clrs.environment import ALGORITHMS, ClrsEnvironment
from vcrt_clrs.trace import Instance, Trace, genuine_trace

SCHEMAS = ("bellman_ford", "matrix_chain_order", "mst_kruskal", "heapsort", "bubble_sort")
ORDERS = tuple(itertools.permutations(range(4)))
ENVIRONMENT = ClrsEnvironment()

each_schema = pytest.mark.parametrize("schema", SCHEMAS)


def sampled(schema: str, seeds: Sequence[int]) -> list[Episode]:
    return [ENVIRONMENT.sample(schema, seed) for seed in seeds]


def replays(episode: Episode, orders: Any = ORDERS) -> list[Replay]:
    return ENVIRONMENT.replay([ReplayRequest(episode, tuple(order)) for order in orders])


def certified(
    episode: Episode, preset: Preset = PAPER_PRESET, checks: Sequence[CrossCheck] = ()
) -> CertifiedEpisode | Exclusion:
    (evidence,) = replay_exhaustively(ENVIRONMENT, [episode])
    return certify_episode(evidence, ENVIRONMENT.versions(), preset, checks)


def anti_diamonds(found: CertifiedEpisode | Exclusion) -> list[tuple[int, int, str]]:
    assert isinstance(found, CertifiedEpisode), found
    return [(r.first, r.second, r.kind) for r in found.relations if r.kind != "commutes"]


def trace_of(source: str) -> Trace:
    return genuine_trace(Instance.parse(source))


def drawn(schema: str, length: int, seed: int) -> Trace:
    probabilities = ALGORITHMS[schema].edge_probabilities
    p = f"/p={probabilities[0]}" if probabilities else ""
    return trace_of(f"clrs.{schema}/length={length}{p}/seed={seed}")


def state_after(episode: Episode, order: Sequence[int]) -> Any:
    state = ENVIRONMENT.initial_state(episode)
    for index in order:
        transition = ENVIRONMENT.step(state, episode.operations[index])
        assert isinstance(transition, Accepted)
        state = transition.state
    return state


def by_name(checks: tuple[CrossCheck, ...]) -> dict[str, CrossCheck]:
    return {check.checker: check for check in checks}


def with_initial(episode: Episode, change: Callable[[Any], None]) -> Episode:
    initial = copy.deepcopy(episode.initial)
    change(initial)
    return dataclasses.replace(episode, initial=initial)


def with_bit(bits: int, index: int, value: bool) -> int:
    return bits | 1 << index if value else bits & ~(1 << index)


def matrix(state: Any) -> np.ndarray:
    return np.array(state.graph.weights)


def path_graph() -> dict[str, Any]:
    """Weights 0 -1- 1 -2- 2, seen from node 0."""
    return {
        "adjacency": [[0, 1, 0], [1, 0, 2], [0, 2, 0]],
        "d": [0, 0, 0],
        "pi": [0, 1, 2],
        "msk": [1, 0, 0],
    }


def triangle() -> dict[str, Any]:
    return {
        "adjacency": [[0, 1, 3], [1, 0, 2], [3, 2, 0]],
        "pi": [0, 1, 2],
        "in_mst": [],
        "considered": [],
    }


def short_chain() -> dict[str, Any]:
    """Three matrices, 2x3, 3x4 and 4x5, by cell (1,2), (1,3), (2,3); the first product is known."""
    return {"p": [2, 3, 4, 5], "m": [24, 0, 0], "s": [1, 0, 0]}


def small_heap() -> dict[str, Any]:
    """Keys 0.1 to 0.6 in rising order; the leaves have been heapified."""
    keys = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    return {"keys": keys, "order": [0, 1, 2, 3, 4, 5], "heap_size": 6, "heapified": [3, 4, 5]}


def small_array() -> dict[str, Any]:
    return {"keys": [0.2, 0.3, 0.1], "order": [0, 1, 2]}


#: An initial state and the payload of a step that it accepts.
SMALL: dict[str, tuple[Callable[[], dict[str, Any]], Any]] = {
    "bellman_ford": (path_graph, {"edge": [0, 1]}),
    "matrix_chain_order": (short_chain, {"cell": [1, 3]}),
    "mst_kruskal": (triangle, {"edge": [0, 1]}),
    "heapsort": (small_heap, {"heapify": [2, 6]}),
    "bubble_sort": (small_array, {"exchange": 2}),
}


def read(schema: str, initial: Any) -> Any:
    return ALGORITHMS[schema].read_state(initial)


def run(state: Any, payload: Any) -> Any:
    return state.take(state.read(payload))
