"""Slots that are texts of several tokens: a tree of their tokens scores what each text by itself does."""

from __future__ import annotations

import pytest
import torch

from small_models import hybrid_model, make_model
from vcrt.errors import MalformedInputError
from vcrt.orders import all_orders
from vcrt.policy.prefix_tree import prefix_tree, text_tree
from vcrt.policy.prompts import Prompt, with_texts
from vcrt.policy.scoring import score_prefixes, score_texts

END = 8
TEXTS = [(1, 2, END), (3, END), (1, 5, 6, END)]


def by_itself(model, prompt, order):
    """The log-probability of the texts of an order, from one pass over them."""
    tokens = [token for slot in order for token in prompt.texts[slot]]
    ids = torch.tensor([[*prompt.token_ids, *tokens]])
    log_probs = model(input_ids=ids).logits[0].log_softmax(-1)
    places = range(len(prompt.token_ids) - 1, ids.shape[1] - 1)
    return sum(log_probs[place, token] for place, token in zip(places, tokens, strict=True))


def along(scores, tree, order):
    rows = [tree.row_of[order[:step]] for step in range(len(order))]
    return sum(scores[row, slot] for row, slot in zip(rows, order, strict=True))


@pytest.mark.parametrize("backend", ["tree", "fork", "naive"])
def test_every_order_equals_its_texts_by_themselves(backend):
    model = make_model()
    prompts = [with_texts((4, 7, 4), TEXTS), with_texts((6,) * 8, TEXTS[:2])]
    trees = [
        prefix_tree(prompt.num_operations, all_orders(prompt.num_operations)) for prompt in prompts
    ]
    scores = score_texts(model, prompts, trees, backend=backend)
    for found, prompt, tree in zip(scores, prompts, trees, strict=True):
        for order in all_orders(prompt.num_operations):
            expected = by_itself(model, prompt, order)
            torch.testing.assert_close(along(found, tree, order), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("backend", ["tree", "fork"])
def test_gradients_equal_the_naive_ones(backend):
    model = make_model()
    prompt = with_texts((4, 7, 4), TEXTS)
    tree = prefix_tree(3, [(0, 1, 2), (0, 2, 1), (2,)])

    def gradient(backend):
        scores = score_texts(model, [prompt], [tree], backend=backend)
        total = scores[scores.isfinite()].square().sum()
        return torch.autograd.grad(total, list(model.parameters()))

    for one, other in zip(gradient(backend), gradient("naive"), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


def test_layers_with_a_state_score_texts_too():
    model = hybrid_model().double()
    prompt = with_texts((4, 7, 4), TEXTS)
    tree = prefix_tree(3, all_orders(3))
    with torch.no_grad():
        fork, naive = (
            score_texts(model, [prompt], [tree], backend=backend) for backend in ("fork", "naive")
        )
    finite = naive.isfinite()
    torch.testing.assert_close(fork[finite], naive[finite], rtol=0, atol=1e-8)


def test_texts_of_one_token_are_the_tokens_interface():
    model = make_model()
    tree = prefix_tree(3, all_orders(3))
    texts = score_texts(model, [with_texts((4, 7), [(1,), (2,), (3,)])], [tree])
    pointers = Prompt(token_ids=(4, 7), pointer_ids=(1, 2, 3))
    scores = score_prefixes(model, [pointers], [tree], interface="tokens")
    scored = texts.isfinite()
    assert int(scored.sum()) == tree.num_rows - 1
    torch.testing.assert_close(texts[scored], scores.choice_log_probs[scored], rtol=0, atol=1e-12)


def test_shared_prefixes_are_nodes_once():
    tree = prefix_tree(3, all_orders(3))
    nodes = text_tree(tree, TEXTS)
    assert nodes.num_rows - 1 == sum(len(TEXTS[order[-1]]) for order in tree.prefixes if order)
    assert nodes.depth == sum(map(len, TEXTS))
    # A node sees its own way to the root, and nothing else.
    for row in range(1, nodes.num_rows):
        assert set((nodes.ancestors[row - 1].nonzero()[0] + 1).tolist()) == set(nodes.way(row))


@pytest.mark.parametrize("texts", [[(1, 2), (1, 2, 3)], [(1,), (1,)], [(), (1,)], []])
def test_texts_that_do_not_say_which_was_chosen_are_refused(texts):
    with pytest.raises(MalformedInputError):
        with_texts((1, 2), texts)


def test_prompts_without_texts_are_refused():
    tree = prefix_tree(2, all_orders(2))
    with pytest.raises(MalformedInputError):
        score_texts(make_model(), [Prompt(token_ids=(4,), pointer_ids=(1, 2))], [tree])
