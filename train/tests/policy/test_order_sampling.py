"""Orders drawn step by step: distributions, shared uniform numbers, masks, and equal draws from equal generators."""

from collections import Counter

import pytest
import torch

from tabular_policy import members, random_order, random_table
from vcrt.orders import all_orders
from vcrt_train.policy.order_sampling import Draw, sample_orders
from vcrt_train.training.legal_trees import moves_after


def drawn(table, draws, *, seed=0, num_prompts=1):
    return sample_orders(
        table.next_choices,
        draws,
        num_prompts=num_prompts,
        num_operations=table.tree.num_operations,
        generator=torch.Generator().manual_seed(seed),
    )


def test_free_orders_follow_the_policy_and_masked_ones_the_masked_policy():
    table, order = random_table(4, 0), random_order(4, 1, share=0.4)
    count = 20_000
    free, masked = drawn(
        table,
        [
            Draw(count=count, scheme="independent"),
            Draw(count=count, scheme="independent", within=[order]),
        ],
    )
    probs = table.log_probs().exp()
    seen = Counter(free[0])
    for column, each in enumerate(all_orders(4)):
        error = (probs[column] * (1 - probs[column]) / count) ** 0.5
        assert abs(seen[each] / count - probs[column]) < 5 * error
    inside = members(order)
    assert {
        each for each, is_member in zip(all_orders(4), inside, strict=True) if is_member
    } == set(masked[0])
    assert all(order.allows(each) for each in masked[0])


def test_systematic_orders_are_spread_as_evenly_as_can_be():
    table = random_table(5, 2)
    (found,) = drawn(table, [Draw(count=40, scheme="systematic")])
    firsts = Counter(order[0] for order in found[0])
    for slot, expected in enumerate(40 * table.choices[0].exp()):
        assert int(expected) <= firsts[slot] <= int(expected) + 1
    # Within a prefix too.
    for first, count in firsts.items():
        probs = table.choices[table.tree.row_of[first,]].exp()
        seconds = Counter(order[1] for order in found[0] if order[0] == first)
        for slot in range(5):
            assert int(count * probs[slot]) <= seconds[slot] <= int(count * probs[slot]) + 1


def test_the_mean_over_systematic_orders_is_the_policys():
    table = random_table(4, 3)
    repetitions = 2000
    (found,) = drawn(table, [Draw(count=4, scheme="systematic")], num_prompts=repetitions)
    # One prompt's table for all: repetitions are independent.
    share = sum(order[-1] == 0 for some in found for order in some) / (4 * repetitions)
    last = torch.tensor([order[-1] == 0 for order in all_orders(4)])
    expected = table.log_probs().exp()[last].sum().item()
    assert share == pytest.approx(expected, abs=4 * (expected / (4 * repetitions)) ** 0.5)


def test_equal_generators_give_equal_orders():
    table, order = random_table(5, 4), random_order(5, 4)
    draws = [
        Draw(count=6, scheme="independent"),
        Draw(count=6, scheme="systematic", within=[order] * 3),
    ]
    assert drawn(table, draws, num_prompts=3) == drawn(table, draws, num_prompts=3)
    assert drawn(table, draws, num_prompts=3) != drawn(table, draws, seed=1, num_prompts=3)


def test_a_policy_that_gives_legal_moves_nothing_is_drawn_from_all_the_same():
    table, order = random_table(4, 5), random_order(4, 6, share=0.8)
    legal = moves_after(order, torch.tensor(table.tree.used))
    against = type(table)(table.tree, table.logits - 800.0 * legal)
    (found,) = drawn(against, [Draw(count=5, scheme="independent", within=[order])])
    assert all(order.allows(each) for each in found[0])
    assert all(sorted(each) == [0, 1, 2, 3] for each in found[0])
