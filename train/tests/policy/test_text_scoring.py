"""Texts behind a prompt: one pass over the tree of their tokens scores what each text by itself does."""

from __future__ import annotations

import pytest
import torch

from small_models import hybrid_model, make_model
from vcrt.errors import MalformedInputError
from vcrt.orders import all_orders
from vcrt_train.policy.causal_model import Prompt
from vcrt_train.policy.prefix_tree import token_tree
from vcrt_train.policy.scoring import score_orders
from vcrt_train.policy.text_scoring import score_texts

END = 8
STEPS = [(1, 2, END), (3, END), (1, 5, 6, END)]
PROMPTS = [(4, 7, 4), (6,) * 8]
#: Every order of the steps of one prompt; for the other, texts of which one begins another, and one twice.
TEXTS = [
    [sum((STEPS[step] for step in order), ()) for order in all_orders(3)],
    [(2,), (2, 3), (2, 3), (5, 5, 5)],
]


def by_itself(model, prompt, text, temperature=1.0):
    """The log-probabilities of one text's tokens, from one pass over it alone."""
    ids = torch.tensor([[*prompt, *text]])
    log_probs = (model(input_ids=ids).logits[0] / temperature).log_softmax(-1)
    places = torch.arange(len(prompt) - 1, ids.shape[1] - 1)
    return log_probs[places, torch.tensor(text)], log_probs[places]


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("backend", ["tree", "fork", "naive"])
def test_every_text_equals_itself_scored_alone(backend, temperature):
    model = make_model()
    found = score_texts(
        model, PROMPTS, TEXTS, backend=backend, temperature=temperature, entropies=True
    )
    assert [len(some) for some in found] == [6, 4]
    for prompt, texts, scores in zip(PROMPTS, TEXTS, found, strict=True):
        for text, score in zip(texts, scores, strict=True):
            expected, spread = by_itself(model, prompt, text, temperature)
            torch.testing.assert_close(score.log_probs, expected, rtol=0, atol=1e-10)
            entropy = -(spread.exp() * spread).sum(-1)
            torch.testing.assert_close(score.entropies, entropy, rtol=0, atol=1e-10)


@pytest.mark.parametrize("backend", ["tree", "fork"])
def test_gradients_equal_those_of_texts_scored_alone(backend):
    model = make_model()

    def gradient(log_probs):
        return torch.autograd.grad(log_probs.square().sum(), list(model.parameters()))

    found = score_texts(model, PROMPTS, TEXTS, backend=backend)
    ours = gradient(torch.cat([score.log_probs for some in found for score in some]))
    alone = [
        by_itself(model, p, t)[0] for p, some in zip(PROMPTS, TEXTS, strict=True) for t in some
    ]
    for one, other in zip(ours, gradient(torch.cat(alone)), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


def test_layers_with_a_state_score_texts_too():
    model = hybrid_model().double()
    with torch.no_grad():
        fork, naive = (
            score_texts(model, PROMPTS[:1], TEXTS[:1], backend=backend)
            for backend in ("fork", "naive")
        )
    for one, other in zip(fork[0], naive[0], strict=True):
        torch.testing.assert_close(one.log_probs, other.log_probs, rtol=0, atol=1e-8)


def test_texts_of_pointers_are_the_tokens_interface():
    model = make_model()
    orders = all_orders(3)
    (found,) = score_texts(model, [(4, 7)], [[tuple(slot + 1 for slot in o) for o in orders]])
    prompt = Prompt(token_ids=(4, 7), pointer_ids=(1, 2, 3))
    expected = score_orders(model, [prompt], interface="tokens").order_log_probs[0]
    sums = torch.stack([score.log_probs.sum() for score in found])
    torch.testing.assert_close(sums, expected, rtol=0, atol=1e-12)


def test_what_texts_share_is_a_node_once_and_ends_are_none():
    tree = token_tree(TEXTS[0])
    prefixes = {text[:length] for text in TEXTS[0] for length in range(len(text))}
    assert tree.num_rows == len(prefixes)
    for text, rows in zip(TEXTS[0], tree.rows, strict=True):
        assert len(rows) == len(text)
        way = tree.way(int(rows[-1]))
        assert tuple(tree.token_ids[row - 1] for row in way) == text[:-1]
    for row in range(1, tree.num_rows):
        assert set((tree.ancestors[row - 1].nonzero()[0] + 1).tolist()) == set(tree.way(row))


def test_logits_wider_than_a_part_are_normalised_part_by_part(monkeypatch):
    model = make_model()
    whole = score_texts(model, PROMPTS, TEXTS)
    monkeypatch.setattr("vcrt_train.policy.text_scoring._ROWS_AT_ONCE", 2)
    parts = score_texts(model, PROMPTS, TEXTS)
    for some, others in zip(whole, parts, strict=True):
        for one, other in zip(some, others, strict=True):
            torch.testing.assert_close(one.log_probs, other.log_probs, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("prompts", "texts"), [([], []), ([()], [[(1,)]]), ([(1,)], [[()]])])
def test_nothing_to_score_is_refused(prompts, texts):
    with pytest.raises(MalformedInputError, match="empty prompt or text"):
        score_texts(make_model(), prompts, texts)
