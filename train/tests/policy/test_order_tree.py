from itertools import product
from math import factorial

import numpy as np
import pytest

from vcrt.orders import all_orders
from vcrt_train.policy.prefix_tree import order_tree

SHAPES = [(n, depth) for n in (2, 3, 4, 5) for depth in (n - 2, n - 1)]


def brute_force_prefixes(num_operations: int, depth: int) -> list[tuple[int, ...]]:
    """By filtering all tuples: nothing shared with the code under test."""
    return [
        prefix
        for length in range(depth + 1)
        for prefix in product(range(num_operations), repeat=length)
        if len(set(prefix)) == length
    ]


@pytest.mark.parametrize(("num_operations", "depth"), SHAPES)
def test_rows_are_all_prefixes_by_length_then_lexicographically(num_operations, depth):
    tree = order_tree(num_operations, depth)
    assert list(tree.prefixes) == brute_force_prefixes(num_operations, depth)
    assert tree.prefixes[0] == ()
    assert tree.num_rows == sum(
        factorial(num_operations) // factorial(num_operations - k) for k in range(depth + 1)
    )
    assert all(tree.row_of[prefix] == row for row, prefix in enumerate(tree.prefixes))


@pytest.mark.parametrize(("num_operations", "depth"), SHAPES)
def test_row_arrays_describe_the_prefixes(num_operations, depth):
    tree = order_tree(num_operations, depth)
    for row, prefix in enumerate(tree.prefixes):
        assert tree.depths[row] == len(prefix)
        assert tree.last_slot[row] == (prefix[-1] if prefix else -1)
        assert tree.parent[row] == (tree.prefixes.index(prefix[:-1]) if prefix else -1)
        assert set(np.flatnonzero(tree.used[row])) == set(prefix)


@pytest.mark.parametrize(("num_operations", "depth"), SHAPES)
def test_a_node_sees_its_ancestors_and_itself_only(num_operations, depth):
    tree = order_tree(num_operations, depth)
    nodes = tree.prefixes[1:]
    expected = [[node[: len(other)] == other for other in nodes] for node in nodes]
    assert tree.ancestors.shape == (len(nodes), len(nodes))
    assert tree.ancestors.tolist() == expected


@pytest.mark.parametrize(("num_operations", "depth"), SHAPES)
def test_an_order_is_the_sequence_of_its_choices(num_operations, depth):
    tree = order_tree(num_operations, depth)
    orders = all_orders(num_operations)
    assert tree.order_rows.shape == tree.order_slots.shape == (len(orders), depth + 1)
    for column, order in enumerate(orders):
        for step in range(depth + 1):
            assert tree.prefixes[tree.order_rows[column, step]] == order[:step]
            assert tree.order_slots[column, step] == order[step]


def test_known_sizes_for_four_operations():
    assert order_tree(4, 2).num_rows == 1 + 4 + 12
    assert order_tree(4, 3).num_rows == 1 + 4 + 12 + 24


def test_one_operation_is_a_root_with_one_choice():
    tree = order_tree(1, 0)
    assert tree.prefixes == ((),)
    assert tree.ancestors.shape == (0, 0)
    assert tree.order_slots.tolist() == [[0]]


@pytest.mark.parametrize(("num_operations", "depth"), [(4, 1), (4, 4), (2, -1), (1, 1), (0, 0)])
def test_a_tree_that_would_not_score_whole_orders_is_refused(num_operations, depth):
    with pytest.raises(ValueError, match="operation"):
        order_tree(num_operations, depth)


def test_the_cached_tree_cannot_be_altered():
    tree = order_tree(4, 2)
    assert order_tree(4, 2) is tree
    for array in (tree.used, tree.ancestors, tree.order_rows, tree.last_slot):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    with pytest.raises(TypeError):
        tree.row_of[()] = 1
