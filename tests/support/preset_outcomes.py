"""Certify an episode of the graphs, of which every order is replayed."""

from __future__ import annotations

from graph_environment import Graphs
from vcrt.certificates.episodes import (
    SEVERAL_PRESET,
    certify_episode,
)
from vcrt.replay.replay import replay_exhaustively


def outcome(made, preset=SEVERAL_PRESET):
    environment = Graphs()
    (evidence,) = replay_exhaustively(environment, [made])
    return certify_episode(evidence, environment.versions(), preset)
