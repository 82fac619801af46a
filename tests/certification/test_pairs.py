"""What a report says of every pair of steps, on replays by a rule that is known."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence

from vcrt.certificates.pairs import report_orders
from vcrt.certificates.replay_tree import EpisodeReplays
from vcrt.environments.contract import Episode, Operation, Provenance, Rejected, Replay
from vcrt.hashing import sha256_hex


def replays_by(
    num_operations: int, refuses: Callable[[frozenset[int], int], bool]
) -> EpisodeReplays:
    """Replays in which a step is refused after the steps of which ``refuses`` says so; states are the steps taken."""
    episode = Episode(
        environment="toy",
        schema="toy",
        initial=None,
        operations=tuple(Operation(signature=f"s{i}", payload=i) for i in range(num_operations)),
        provenance=Provenance(source="toy", generator="toy", seed=0),
    )

    def state(taken: frozenset[int]) -> str:
        return sha256_hex(repr(sorted(taken)).encode())

    def replay(order: tuple[int, ...]) -> Replay:
        taken = frozenset[int]()
        hashes = [state(taken)]
        for step in order:
            if refuses(taken, step):
                return Replay(order, tuple(hashes), Rejected(f"s{step} is refused"))
            taken |= {step}
            hashes.append(state(taken))
        return Replay(order, tuple(hashes))

    orders = itertools.permutations(range(num_operations))
    return EpisodeReplays.of_every_order(episode, tuple(replay(order) for order in orders))


def evidence(num_operations: int, needs: Sequence[tuple[int, int]]) -> EpisodeReplays:
    """Replays in which ``b`` is refused before ``a`` for each pair."""

    def refuses(taken: frozenset[int], step: int) -> bool:
        return any(b == step and a not in taken for a, b in needs)

    return replays_by(num_operations, refuses)


def test_eight_steps_take_seconds():
    replays = evidence(8, [(0, 3), (3, 6), (1, 7)])
    assert len(replays.replays) == math.factorial(8)
    start = time.perf_counter()
    report = report_orders(replays)
    assert time.perf_counter() - start < 20
    found = {(p.first, p.second): p.relation for p in report.pairs}
    assert len(found) == 28
    assert [pair for pair, kind in found.items() if kind == "precedes"] == [
        (0, 3),
        (1, 7),
        (3, 6),
    ]
    assert found[0, 6] == "uncertified"
    assert list(found.values()).count("commutes") == 24
    # One chain of three, one of two and three free steps.
    assert report.num_legal == math.factorial(8) // (6 * 2)


def test_the_order_of_steps_that_never_stand_side_by_side_is_said():
    report = report_orders(evidence(3, [(0, 1), (1, 2)]))
    pair = report.pairs[1]
    assert (pair.first, pair.second, pair.relation) == (0, 2, "uncertified")
    assert (pair.before, pair.always_first) == (None, 0)


def test_a_relation_may_depend_on_the_context():
    """Without s0, s2 needs s1; behind s0 it needs nothing."""
    report = report_orders(replays_by(3, lambda taken, step: step == 2 and not taken & {0, 1}))
    found = {(pair.first, pair.second): pair for pair in report.pairs}
    assert found[1, 2].relation == "depends on context"
    assert found[1, 2].before is None
    assert found[1, 2].reason.startswith("after nothing: precedes (s1 first), s2 is refused; ")
    assert "after s0: commutes" in found[1, 2].reason
    assert found[0, 1].relation == "commutes"


def test_nothing_is_accepted():
    report = report_orders(evidence(3, [(0, 1), (1, 0), (0, 2), (1, 2), (2, 0)]))
    assert report.num_legal == 0
    assert {p.relation for p in report.pairs} == {"uncertified"}
    assert report.reference_refusal is not None


def test_no_accepted_step_leads_to_a_pair():
    (*_, last) = report_orders(evidence(2, [(0, 1), (1, 0)])).pairs
    assert last.reason.startswith("neither order is accepted anywhere: s")


def test_steps_that_change_nothing_are_named():
    replays = evidence(2, [])
    idle = tuple(
        Replay(r.sequence, (r.state_hashes[0], r.state_hashes[0], r.state_hashes[2]))
        for r in replays.replays
    )
    assert report_orders(EpisodeReplays.of_every_order(replays.episode, idle)).idle == (0, 1)
