"""Legal orders by rank, and legal moves, against enumeration."""

from math import factorial

import pytest
import torch

from tabular_policy import random_order
from vcrt.orders import linear_extensions
from vcrt.partial_orders import PartialOrder, members, num_linear_extensions
from vcrt_train.training.legal_trees import LinearExtensions, moves_after

CASES = [(n, seed) for n in (1, 2, 3, 5, 6) for seed in range(6)]


@pytest.mark.parametrize(("n", "seed"), CASES)
def test_ranks_and_moves_agree_with_enumeration(n, seed):
    order = random_order(n, seed)
    extensions = linear_extensions(n, order.pairs)
    by_rank = LinearExtensions(order)
    assert sorted(by_rank[rank] for rank in range(len(by_rank))) == extensions
    sets = sorted({sum(1 << slot for slot in o[:k]) for o in extensions for k in range(n + 1)})
    used = torch.tensor([[slot in set(members(done)) for slot in range(n)] for done in sets])
    for done, row in zip(sets, moves_after(order, used), strict=True):
        assert order.moves(done) == row.nonzero().flatten().tolist()


@pytest.mark.parametrize("seed", range(4))
def test_two_ways_to_count_agree(seed):
    order = random_order(13, seed)
    assert len(LinearExtensions(order)) == num_linear_extensions(order)


def test_orders_too_many_to_list_have_ranks_all_the_same():
    last = LinearExtensions(PartialOrder.of(16, [(3, 9)]))
    assert len(last) == factorial(16) // 2
    ends = {last[rank] for rank in (0, 1, len(last) // 2, len(last) - 1)}
    assert len(ends) == 4
    assert all(order.index(3) < order.index(9) for order in ends)


@pytest.mark.parametrize("rank", [-1, 3])
def test_a_rank_that_is_none_is_refused(rank):
    with pytest.raises(IndexError):
        LinearExtensions(PartialOrder.of(3, [(0, 1)]))[rank]
