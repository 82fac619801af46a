"""Partial orders against enumeration, and counts that are known."""

from itertools import permutations
from math import factorial

import numpy as np
import pytest

from tabular_policy import random_order
from vcrt.errors import MalformedInputError, TooLargeError
from vcrt.orders import linear_extensions, transitive_closure
from vcrt.partial_orders import (
    LinearExtensions,
    PartialOrder,
    legal_prefixes,
    num_legal_prefixes,
    num_linear_extensions,
)

CASES = [(n, seed) for n in (1, 2, 3, 5, 6) for seed in range(6)]


@pytest.mark.parametrize(("n", "seed"), CASES)
def test_everything_agrees_with_enumeration(n, seed):
    order = random_order(n, seed)
    extensions = linear_extensions(n, order.pairs)
    assert set(order.pairs) == transitive_closure(order.pairs)
    assert num_linear_extensions(order) == len(extensions)
    by_rank = LinearExtensions(order)
    assert sorted(by_rank[rank] for rank in range(len(by_rank))) == extensions
    assert [o for o in permutations(range(n)) if order.allows(o)] == extensions
    prefixes = sorted({o[:k] for o in extensions for k in range(n + 1)}, key=lambda p: (len(p), p))
    for depth in (0, n - 1, n):
        expected = [prefix for prefix in prefixes if len(prefix) <= depth]
        assert legal_prefixes(order, depth) == expected
        assert num_legal_prefixes(order, depth, len(expected)) == len(expected)
        assert num_legal_prefixes(order, depth, len(expected) - 1) is None or depth == 0
    used = np.array([[slot in prefix for slot in range(n)] for prefix in prefixes])
    legal = order.legal_moves(used)
    for prefix, row in zip(prefixes, legal, strict=True):
        done = sum(1 << slot for slot in prefix)
        moves = sorted(
            {o[len(prefix)] for o in extensions if o[: len(prefix)] == prefix} - {None}
            if len(prefix) < n
            else set()
        )
        assert order.moves(done) == moves == list(row.nonzero()[0])


def test_counts_that_are_known():
    assert num_linear_extensions(PartialOrder.of(20, [])) == factorial(20)
    assert num_linear_extensions(PartialOrder.of(16, [(3, 9)])) == factorial(16) // 2
    # Two chains of eight: a binomial coefficient. Four pairs: 8! / 2^4.
    chains = [(k, k + 1) for k in range(15) if k != 7]
    assert num_linear_extensions(PartialOrder.of(16, chains)) == 12870
    assert num_linear_extensions(PartialOrder.of(8, [(0, 1), (2, 3), (4, 5), (6, 7)])) == 2520
    # Zigzags: the Euler numbers 1, 1, 2, 5, 16, 61, 272, 1385.
    zigzag = [(k, k + 1) if k % 2 == 0 else (k + 1, k) for k in range(7)]
    assert num_linear_extensions(PartialOrder.of(8, zigzag)) == 1385


def test_orders_too_many_to_list_have_ranks_all_the_same():
    last = LinearExtensions(PartialOrder.of(16, [(3, 9)]))
    assert len(last) == factorial(16) // 2
    ends = {last[rank] for rank in (0, 1, len(last) // 2, len(last) - 1)}
    assert len(ends) == 4
    assert all(order.index(3) < order.index(9) for order in ends)


def test_a_bound_is_found_quickly_for_many_operations():
    assert num_legal_prefixes(PartialOrder.of(64, []), 62, 10_000) is None
    chain = PartialOrder.of(64, [(k, k + 1) for k in range(63)])
    assert num_legal_prefixes(chain, 62, 10_000) == 63
    assert chain.allows(range(64))
    assert not chain.allows([0, 2])


def test_what_cannot_be_is_said():
    with pytest.raises(
        MalformedInputError, match=r"0 before 2 before 1 before 0|1 before 0 before 2 before 1"
    ):
        PartialOrder.of(4, [(1, 0), (0, 2), (2, 1), (2, 3)])
    with pytest.raises(MalformedInputError, match="operations 0 to 2"):
        PartialOrder.of(3, [(0, 3)])
    with pytest.raises(TooLargeError, match="1 to 64"):
        PartialOrder.of(65, [])
    with pytest.raises(TooLargeError, match="estimate the share"):
        num_linear_extensions(PartialOrder.of(21, []))
    with pytest.raises(TooLargeError, match="estimate the share"):
        LinearExtensions(PartialOrder.of(21, []))
    for rank in (-1, 3):
        with pytest.raises(IndexError):
            LinearExtensions(PartialOrder.of(3, [(0, 1)]))[rank]
