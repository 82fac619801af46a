"""Scores of a tree of each prompt's own, by every backend, and greedy decoding step by step."""

import pytest
import torch

from small_models import INTERFACES, hybrid_model, make_model, make_prompts
from vcrt.errors import MalformedInputError
from vcrt_train.policy.prefix_tree import order_tree, prefix_tree
from vcrt_train.policy.scoring import greedy_orders, score_orders, score_prefixes

PREFIXES = (
    [(0, 1, 2), (3, 1), (3, 4, 0)],
    [(4,)],
    [(2, 3, 1), (2, 3, 4), (2, 0), (1, 0, 3)],
)


def trees():
    return [prefix_tree(5, some) for some in PREFIXES]


@pytest.mark.parametrize("interface", INTERFACES)
@pytest.mark.parametrize("backend", ["tree", "fork", "naive"])
def test_scores_are_those_of_the_tree_of_all_orders(interface, backend):
    model, prompts = make_model(), make_prompts(5)
    whole = order_tree(5, 4)
    every = score_orders(model, prompts, interface=interface, backend="naive").choice_log_probs
    depth = 3 if interface == "pointers" else 4
    rows_of = order_tree(5, depth).row_of
    scores = score_prefixes(model, prompts, trees(), interface=interface, backend=backend)
    for number, tree in enumerate(trees()):
        rows = [rows_of[prefix] for prefix in tree.prefixes]
        found = scores.choice_log_probs[number, : tree.num_rows]
        assert torch.allclose(found, every[number, rows], atol=1e-9)
        assert (scores.used[number, : tree.num_rows].numpy() == tree.used).all()
    assert whole.num_rows > scores.used.shape[1]
    assert not scores.choice_log_probs.isnan().any()


@pytest.mark.parametrize("backend", ["fork", "naive"])
def test_recurrent_layers_too(backend):
    model, prompts = hybrid_model(), make_prompts(5)
    expected = score_prefixes(model, prompts, trees(), interface="pointers", backend="naive")
    found = score_prefixes(model, prompts, trees(), interface="pointers", backend=backend)
    for number, tree in enumerate(trees()):
        one, other = (each.choice_log_probs[number, : tree.num_rows] for each in (found, expected))
        assert torch.allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("interface", INTERFACES)
@pytest.mark.parametrize("seed", range(3))
def test_greedy_by_steps_is_greedy_on_the_whole_tree(interface, seed):
    model, prompts = make_model(seed=seed), make_prompts(5, seed=seed + 9)
    scores = score_orders(model, prompts, interface=interface)
    tree = order_tree(5, 3 if interface == "pointers" else 4)
    found = greedy_orders(model, prompts, interface=interface)
    for number, order in enumerate(found):
        if order is None:
            assert interface == "tokens"
            continue
        for step, slot in enumerate(order[: tree.num_choices]):
            row = scores.choice_log_probs[number, tree.row_of[order[:step]]]
            left = [s for s in range(5) if s not in order[:step]]
            assert slot == max(left, key=lambda s: row[s].item())


def test_trees_of_another_number_of_operations_are_refused():
    prompts = [*make_prompts(5)[:2], make_prompts(4)[0]]
    with pytest.raises(MalformedInputError, match="operation counts"):
        score_prefixes(make_model(), prompts, trees(), interface="pointers")


def test_prompts_of_different_numbers_of_operations_are_refused_in_tokens():
    prompts = [make_prompts(5)[0], make_prompts(4)[0]]
    some = [prefix_tree(5, [(0, 1)]), prefix_tree(4, [(2,)])]
    with pytest.raises(MalformedInputError, match="operation counts"):
        score_prefixes(make_model(), prompts, some, interface="tokens")
