"""Windows of genuine runs: all of them, from the true state, with provenance that keeps a run together."""

from __future__ import annotations

from collections import Counter

import pytest

from clrs_support import (
    ENVIRONMENT,
    SCHEMAS,
    anti_diamonds,
    certified,
    drawn,
    each_schema,
    state_after,
    trace_of,
)
from vcrt.certificates.episodes import CertifiedEpisode
from vcrt.environments.contract import Accepted
from vcrt.errors import UnknownNameError
from vcrt_clrs.environment import ALGORITHMS
from vcrt_clrs.lift import lift_windows

LENGTHS = {
    "bellman_ford": 16,
    "matrix_chain_order": 8,
    "mst_kruskal": 10,
    "heapsort": 14,
    "bubble_sort": 10,
}


@each_schema
def test_windows_are_all_of_the_run_and_nothing_else(schema: str) -> None:
    for num_operations in (4, 8):
        windows = lift_windows(schema, [3], LENGTHS[schema], num_operations)
        steps = ALGORITHMS[schema].steps(trace_of(windows[0].provenance.source))
        assert len(windows) == len(steps) - num_operations + 1 > 1
        for offset, window in enumerate(windows):
            assert ENVIRONMENT.initial_state(window) == steps[offset].before
            assert list(window.operations) == [
                ALGORITHMS[schema].operation(taken.step)
                for taken in steps[offset : offset + num_operations]
            ]
            assert window.provenance.generator == f"clrs.{schema}.window/1:offset={offset}"


@each_schema
def test_windows_of_a_run_share_its_source_and_have_their_own_identity(schema: str) -> None:
    four = lift_windows(schema, range(3), LENGTHS[schema])
    five = lift_windows(schema, range(3), LENGTHS[schema], 5)
    longer = lift_windows(schema, range(3), LENGTHS[schema] + 1)
    assert len({w.provenance.source for w in (*four, *five)}) == 3
    everything = [*four, *five, *longer]
    assert len({w.episode_id for w in everything}) == len(everything)
    assert len({w.content_hash() for w in everything}) == len(everything)
    assert all(w.provenance.seed < 2**53 for w in everything)
    assert lift_windows(schema, range(3), LENGTHS[schema]) == four


@each_schema
def test_second_opinions_on_windows_agree(schema: str) -> None:
    for window in lift_windows(schema, range(2), LENGTHS[schema]):
        trace, rows, outputs = ENVIRONMENT.cross_check(window)
        assert trace.agreed == trace.checked == 6
        assert rows.agreed == rows.checked > 1
        assert outputs.agreed == outputs.checked


@pytest.mark.parametrize("schema", ["mst_kruskal", "heapsort", "bubble_sort"])
def test_windows_of_sequential_runs_lead_from_state_to_state(schema: str) -> None:
    windows = lift_windows(schema, [1], LENGTHS[schema])
    for window, later in zip(windows, windows[4:], strict=False):
        assert state_after(window, range(4)) == ENVIRONMENT.initial_state(later)


def test_windows_of_rounds_run_in_place() -> None:
    """A step that read an older state may be refused: that is counted, not hidden."""
    refused = Counter()
    for schema in ("bellman_ford", "matrix_chain_order"):
        for window in lift_windows(schema, range(6), LENGTHS[schema]):
            *_, outputs = ENVIRONMENT.cross_check(window)
            state = ENVIRONMENT.initial_state(window)
            for operation in window.operations:
                transition = ENVIRONMENT.step(state, operation)
                if not isinstance(transition, Accepted):
                    break
                state = transition.state
            accepted = isinstance(transition, Accepted)
            assert (outputs.checked > 0) == accepted
            refused[schema, accepted] += 1
    assert refused["bellman_ford", False] + refused["matrix_chain_order", False] > 0
    assert refused["bellman_ford", True] > 20
    assert refused["matrix_chain_order", True] > 100


@pytest.mark.slow
def test_certification_finds_the_windows_that_it_wants() -> None:
    kinds = Counter()
    for schema in SCHEMAS:
        for window in lift_windows(schema, range(4), LENGTHS[schema]):
            found = certified(window, checks=ENVIRONMENT.cross_check(window))
            if isinstance(found, CertifiedEpisode):
                ((_, _, kind),) = anti_diamonds(found)
                kinds[schema, kind] += 1
            else:
                assert found.kind in (
                    "outside_schema",
                    "context_dependent",
                    "ambiguous_correspondence",
                )
    assert kinds == {
        ("bellman_ford", "precedes"): 12,
        ("bellman_ford", "conflicts"): 6,
        ("matrix_chain_order", "conflicts"): 27,
        ("mst_kruskal", "conflicts"): 10,
        ("heapsort", "conflicts"): 1,
        ("bubble_sort", "precedes"): 1,
        ("bubble_sort", "conflicts"): 7,
    }


def test_the_extractions_of_heapsort_are_windows_too() -> None:
    windows = lift_windows("heapsort", [0], 8)
    names = [o.signature for o in windows[-1].operations]
    assert names == ["extract 2", "max-heapify 0 of 2", "extract 1", "max-heapify 0 of 1"]
    found = certified(windows[-1])
    assert not isinstance(found, CertifiedEpisode)


def test_graphs_have_the_middle_one_of_the_edge_probabilities() -> None:
    (source,) = {w.provenance.source for w in lift_windows("mst_kruskal", [2], 8)}
    assert source == "clrs.mst_kruskal/length=8/p=0.65/seed=2"


def test_an_unknown_algorithm_is_named() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'heapsort'"):
        lift_windows("heap_sort", [0], 8)


@each_schema
def test_a_run_that_is_too_short_has_no_windows(schema: str) -> None:
    assert lift_windows(schema, [0], 2, 8) == []
    assert drawn(schema, 2, 0).num_rows >= 1
