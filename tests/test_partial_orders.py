"""Partial orders against enumeration, and counts that are known."""

from itertools import combinations, permutations
from math import factorial

import pytest

from tabular_policy import random_order
from vcrt.errors import MalformedInputError, TooLargeError
from vcrt.orders import linear_extensions, transitive_closure
from vcrt.partial_orders import (
    PartialOrder,
    legal_prefixes,
    num_contexts_of_pairs,
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
    down_sets = {frozenset(extension[:k]) for extension in extensions for k in range(n + 1)}
    assert num_contexts_of_pairs(order) == {
        pair: sum(down_set.isdisjoint(pair) for down_set in down_sets)
        for pair in combinations(range(n), 2)
    }
    assert [o for o in permutations(range(n)) if order.allows(o)] == extensions
    prefixes = sorted({o[:k] for o in extensions for k in range(n + 1)}, key=lambda p: (len(p), p))
    for depth in (0, n - 1, n):
        expected = [prefix for prefix in prefixes if len(prefix) <= depth]
        assert legal_prefixes(order, depth) == expected
        assert num_legal_prefixes(order, depth, len(expected)) == len(expected)
        assert num_legal_prefixes(order, depth, len(expected) - 1) is None or depth == 0
    for prefix in prefixes:
        done = sum(1 << slot for slot in prefix)
        following = {o[len(prefix)] for o in extensions if o[: len(prefix)] == prefix != o}
        assert order.moves(done) == sorted(following)


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
    # A ladder of two chains with rungs: the Catalan numbers. Every even number before every odd one.
    ladder = [(k, k + 2) for k in range(18)] + [(k, k + 1) for k in range(0, 20, 2)]
    assert num_linear_extensions(PartialOrder.of(20, ladder)) == 16796
    layers = [(a, b) for a in range(0, 20, 2) for b in range(1, 20, 2)]
    assert num_linear_extensions(PartialOrder.of(20, layers)) == factorial(10) ** 2
    assert set(num_contexts_of_pairs(PartialOrder.of(20, [])).values()) == {2**18}


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
