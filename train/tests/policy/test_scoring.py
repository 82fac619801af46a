import copy
import math
from itertools import product

import pytest
import torch

from small_models import INTERFACES, hybrid_model, make_model, make_prompts
from vcrt.errors import BackboneError, MalformedInputError
from vcrt.orders import all_orders
from vcrt_train.policy.backbone import load_backbone
from vcrt_train.policy.backends import tree_mask
from vcrt_train.policy.causal_model import Prompt
from vcrt_train.policy.prefix_tree import order_tree
from vcrt_train.policy.scoring import choices, greedy_orders, score_orders
from vcrt_train.policy.self_check import self_check


def embedded_prompts():
    """Sentences of the embedded vocabulary with four pointers, of three lengths."""
    tokenizer = load_backbone("embedded").tokenizer
    texts = [
        "<s> <pointers> p0 p3 p5 p7 <relations> p0 r1 p3 ; <order>",
        "<s> <pointers> p5 p7 p0 p3 <relations> p0 r0 p3 ; p7 r4 p5 ; p3 r0 p5 ; <order>",
        "<s> <pointers> p0 p3 p5 p7 <relations> <order>",
    ]
    pointers = tuple(tokenizer.convert_tokens_to_ids(["p0", "p3", "p5", "p7"]))
    return [Prompt(token_ids=tuple(tokenizer.encode(text)), pointer_ids=pointers) for text in texts]


def next_log_probs(model, token_ids):
    """One sequence, one ordinary forward pass, no mask: the plainest oracle."""
    return model(input_ids=torch.tensor([token_ids])).logits[0, -1].log_softmax(-1)


def loss_of(scores):
    """A function of several columns, so that gradients of all choices matter."""
    weights = torch.linspace(-1.0, 1.0, scores.order_log_probs.shape[-1]).to(scores.order_log_probs)
    loss = (scores.order_log_probs * weights).mean()
    loss = loss + scores.order_log_probs[:, ::2].logsumexp(-1).mean()
    if scores.malformed_log_prob is not None:
        loss = loss + 0.1 * scores.malformed_log_prob.mean()
    return loss


def gradient(model, prompts, interface, backend):
    model.zero_grad(set_to_none=True)
    loss_of(score_orders(model, prompts, interface=interface, backend=backend)).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


@pytest.mark.parametrize("interface", INTERFACES)
def test_tree_equals_naive_on_the_embedded_backbone(interface):
    model, prompts = load_backbone("embedded").model, embedded_prompts()
    tree = score_orders(model, prompts, interface=interface)
    naive = score_orders(model, prompts, interface=interface, backend="naive")
    torch.testing.assert_close(tree.order_log_probs, naive.order_log_probs, atol=1e-5, rtol=0)
    torch.testing.assert_close(tree.choice_log_probs, naive.choice_log_probs, atol=1e-5, rtol=1e-5)
    if interface == "tokens":
        torch.testing.assert_close(
            tree.malformed_log_prob, naive.malformed_log_prob, atol=1e-5, rtol=0
        )
    by_tree, by_naive = (gradient(model, prompts, interface, b) for b in ("tree", "naive"))
    assert by_naive.norm() > 1e-3
    assert (by_tree - by_naive).norm() / by_naive.norm() < 1e-5


@pytest.mark.parametrize("interface", INTERFACES)
@pytest.mark.parametrize("num_operations", [1, 2, 3, 4, 5])
def test_tree_equals_naive_in_float64(interface, num_operations):
    model, prompts = make_model(), make_prompts(num_operations)
    tree = score_orders(model, prompts, interface=interface)
    naive = score_orders(model, prompts, interface=interface, backend="naive")
    assert tree.order_log_probs.dtype == torch.float64
    torch.testing.assert_close(tree.order_log_probs, naive.order_log_probs, atol=1e-10, rtol=0)
    if num_operations > 1:
        by_tree, by_naive = (gradient(model, prompts, interface, b) for b in ("tree", "naive"))
        assert (by_tree - by_naive).norm() / by_naive.norm() < 1e-10


def test_token_scores_equal_a_plain_walk_over_every_order():
    model, prompts = make_model(), make_prompts(3)
    scores = score_orders(model, prompts, interface="tokens")
    for prompt, row in zip(prompts, scores.order_log_probs, strict=True):
        for order, log_prob in zip(all_orders(3), row, strict=True):
            ids, expected = list(prompt.token_ids), 0.0
            for slot in order:
                expected += next_log_probs(model, ids)[prompt.pointer_ids[slot]]
                ids.append(prompt.pointer_ids[slot])
            torch.testing.assert_close(log_prob, expected, atol=1e-10, rtol=0)


def test_pointer_scores_renormalise_over_the_remaining_pointers():
    model, prompts = make_model(), make_prompts(3)
    scores = score_orders(model, prompts, interface="pointers")
    for prompt, row in zip(prompts, scores.order_log_probs, strict=True):
        for order, log_prob in zip(all_orders(3), row, strict=True):
            ids, remaining, expected = list(prompt.token_ids), set(range(3)), 0.0
            for slot in order:
                log_probs = next_log_probs(model, ids)
                among = log_probs[[prompt.pointer_ids[s] for s in remaining]].logsumexp(0)
                expected += log_probs[prompt.pointer_ids[slot]] - among
                ids.append(prompt.pointer_ids[slot])
                remaining.remove(slot)
            torch.testing.assert_close(log_prob, expected, atol=1e-10, rtol=0)


@pytest.mark.parametrize("num_operations", [2, 3, 4, 5])
def test_pointer_probabilities_sum_to_one_and_used_slots_are_impossible(num_operations):
    scores = score_orders(make_model(), make_prompts(num_operations), interface="pointers")
    assert scores.malformed_log_prob is None
    total = scores.order_log_probs.exp().sum(-1)
    torch.testing.assert_close(total, torch.ones_like(total), atol=1e-12, rtol=0)
    used = torch.tensor(order_tree(num_operations, num_operations - 2).used)
    assert torch.equal(torch.isinf(scores.choice_log_probs), used.expand(3, -1, -1))


def test_malformed_probability_equals_the_sum_over_all_sequences_that_are_no_orders():
    vocab_size, n = 6, 3
    model = make_model(vocab_size)
    prompts = make_prompts(n, lengths=(5, 3), vocab_size=vocab_size)
    scores = score_orders(model, prompts, interface="tokens")
    for prompt, malformed in zip(prompts, scores.malformed_log_prob, strict=True):
        answers = list(product(range(vocab_size), repeat=n))
        sequences = torch.tensor([[*prompt.token_ids, *answer] for answer in answers])
        log_probs = model(input_ids=sequences).logits[:, -n - 1 : -1].log_softmax(-1)
        totals = log_probs.gather(-1, sequences[:, -n:, None]).sum((1, 2))
        is_order = torch.tensor([sorted(a) == sorted(prompt.pointer_ids) for a in answers])
        assert is_order.sum() == math.factorial(n)
        torch.testing.assert_close(malformed, totals[~is_order].logsumexp(0), atol=1e-10, rtol=0)


def test_malformed_gradient_equals_that_of_one_minus_the_orders():
    model, prompts = make_model(), make_prompts(3)

    def gradient_of(value):
        model.zero_grad(set_to_none=True)
        value.sum().backward()
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    exact = gradient_of(score_orders(model, prompts, interface="tokens").malformed_log_prob)
    orders = score_orders(model, prompts, interface="tokens").order_log_probs
    by_difference = gradient_of(torch.log1p(-orders.exp().sum(-1)))
    torch.testing.assert_close(exact, by_difference, atol=1e-9, rtol=1e-7)


def test_a_malformed_mass_far_below_epsilon_is_exact_with_finite_gradient():
    logits = torch.tensor([[[0.0, 0.0, -60.0], [0.0, 0.0, -60.0], [0.0, 0.0, -60.0]]])
    logits.requires_grad_()
    used = torch.tensor([[False, False], [True, False], [False, True]])
    answer = choices(logits, torch.tensor([[0, 1]]), used, "tokens")
    # At the root only the third token is outside: exp(-60) / 2, which 1 - (1/2 + 1/2) would lose.
    assert answer.malformed_log_probs[0, 0].item() == pytest.approx(-60.0 - math.log(2.0), abs=1e-4)
    answer.malformed_log_probs.sum().backward()
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("interface", INTERFACES)
def test_gradients_are_finite_in_float32(interface):
    model = make_model(dtype=torch.float32, sharpness=8.0)
    assert torch.isfinite(gradient(model, make_prompts(4), interface, "tree")).all()


def brute_force_greedy(model, prompt, interface):
    ids, order = list(prompt.token_ids), []
    for _ in prompt.pointer_ids:
        log_probs = next_log_probs(model, ids)
        if interface == "pointers":
            left = [s for s in range(prompt.num_operations) if s not in order]
            slot = max(left, key=lambda s: log_probs[prompt.pointer_ids[s]].item())
        else:
            best = log_probs.argmax().item()
            if best not in prompt.pointer_ids or prompt.pointer_ids.index(best) in order:
                return None
            slot = prompt.pointer_ids.index(best)
        order.append(slot)
        ids.append(prompt.pointer_ids[slot])
    return tuple(order)


@pytest.mark.parametrize("backend", ["tree", "naive"])
@pytest.mark.parametrize(
    ("interface", "num_operations", "vocab_size"), [("pointers", 4, 9), ("tokens", 2, 3)]
)
def test_greedy_orders_equal_token_by_token_decoding(
    interface, num_operations, vocab_size, backend
):
    model = make_model(vocab_size=vocab_size, seed=7)
    lengths = tuple(range(3, 11)) * 3
    prompts = make_prompts(num_operations, lengths=lengths, vocab_size=vocab_size)
    expected = [brute_force_greedy(model, prompt, interface) for prompt in prompts]
    found = greedy_orders(model, prompts, interface=interface, backend=backend, batch_size=5)
    assert found == expected
    assert len(set(expected)) > 2
    assert (None in expected) == (interface == "tokens")


@pytest.mark.parametrize("interface", INTERFACES)
def test_greedy_orders_of_the_embedded_backbone(interface):
    model, prompts = load_backbone("embedded").model, embedded_prompts()
    expected = [brute_force_greedy(model, prompt, interface) for prompt in prompts]
    assert greedy_orders(model, prompts, interface=interface) == expected
    assert None not in expected


@pytest.mark.parametrize("interface", INTERFACES)
def test_neighbours_in_a_batch_change_nothing(interface):
    model, prompts = make_model(), make_prompts(4, lengths=(3, 12, 7))
    together = score_orders(model, prompts, interface=interface)
    for i, prompt in enumerate(prompts):
        alone = score_orders(model, [prompt], interface=interface)
        torch.testing.assert_close(
            together.order_log_probs[i], alone.order_log_probs[0], atol=1e-10, rtol=0
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_mask_is_additive_in_the_models_dtype_with_positions(dtype):
    model, prompts = make_model(dtype=dtype), make_prompts(3, lengths=(2, 4))
    seen = {}

    def spy(module, args, kwargs):
        seen.update(kwargs)

    handle = model.register_forward_pre_hook(spy, with_kwargs=True)
    scores = score_orders(model, prompts, interface="pointers")
    handle.remove()
    assert seen["attention_mask"].dtype == dtype
    assert seen["attention_mask"].shape == (2, 1, 4 + 3, 4 + 3)
    assert seen["position_ids"].tolist() == [[0, 0, 0, 1, 2, 2, 2], [0, 1, 2, 3, 4, 4, 4]]
    assert scores.order_log_probs.dtype == (
        torch.float64 if dtype == torch.float64 else torch.float32
    )


def test_mask_of_a_padded_prompt():
    mask = tree_mask([1, 2], [order_tree(2, 1)] * 2, torch.float32, torch.device("cpu"))[:, 0] == 0
    padded = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0], [0, 1, 0, 1]]
    whole = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 0, 1]]
    assert mask.int().tolist() == [padded, whole]


def test_what_is_kept_between_calls_is_told_apart_by_length_dtype_and_tree():
    single, double = make_model(dtype=torch.float32), make_model()
    batches = [make_prompts(n, lengths=lengths) for n in (3, 4) for lengths in ((5, 5), (8, 5))]
    first, again = (
        [
            score_orders(model, prompts, interface=interface).order_log_probs
            for prompts in batches
            for model in (single, double)
            for interface in INTERFACES
        ]
        for _ in range(2)
    )
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
    for prompts in batches:
        naive = score_orders(double, prompts, interface="pointers", backend="naive")
        tree = score_orders(double, prompts, interface="pointers")
        torch.testing.assert_close(tree.order_log_probs, naive.order_log_probs, atol=1e-10, rtol=0)


def test_prompts_of_one_length_share_one_mask():
    mask = tree_mask([3, 3, 3], [order_tree(3, 1)] * 3, torch.float32, torch.device("cpu"))
    assert mask.shape == (3, 1, 6, 6)
    assert mask.stride(0) == 0
    padded = tree_mask([3, 2], [order_tree(3, 1)] * 2, torch.float32, torch.device("cpu"))
    assert torch.equal(padded[0], mask[0])
    assert not torch.equal(padded[1], mask[0])


def test_scores_in_inference_mode_leave_nothing_behind_that_gradients_cannot_use():
    # A vocabulary, lengths and a dtype that no other test has, so that what is kept is made here.
    model = make_model(vocab_size=11, dtype=torch.float32)
    prompts = make_prompts(4, lengths=(13, 17), vocab_size=11)
    with torch.inference_mode():
        first = score_orders(model, prompts, interface="tokens").order_log_probs.clone()
    assert gradient(model, prompts, "tokens", "tree").norm() > 0
    assert torch.equal(score_orders(model, prompts, interface="tokens").order_log_probs, first)


@pytest.mark.parametrize("interface", INTERFACES)
def test_eager_and_sdpa_attention_agree(interface):
    model, prompts = make_model(), make_prompts(4)
    eager = make_model(attn_implementation="eager")
    assert eager.config._attn_implementation == "eager"
    torch.testing.assert_close(
        score_orders(eager, prompts, interface=interface).order_log_probs,
        score_orders(model, prompts, interface=interface).order_log_probs,
        # Eager attention takes its softmax in float32.
        atol=1e-5,
        rtol=0,
    )


def test_a_batch_of_mixed_or_no_prompts_is_refused():
    model = make_model()
    mixed = [*make_prompts(3), *make_prompts(4)]
    with pytest.raises(MalformedInputError, match=r"\[3, 4\]"):
        score_orders(model, mixed, interface="pointers")
    with pytest.raises(MalformedInputError, match="no prompts"):
        score_orders(model, [], interface="pointers")
    assert greedy_orders(model, [], interface="pointers") == []


def test_prompts_without_tokens_or_with_a_shared_pointer_are_refused():
    with pytest.raises(MalformedInputError, match="0 tokens"):
        Prompt(token_ids=(), pointer_ids=(1,))
    with pytest.raises(MalformedInputError, match="0 pointers"):
        Prompt(token_ids=(1,), pointer_ids=())
    with pytest.raises(MalformedInputError, match="same pointer"):
        Prompt(token_ids=(1,), pointer_ids=(2, 3, 2))


def test_hybrid_layers_are_refused_by_the_tree_and_served_by_naive():
    model, prompts = hybrid_model(), make_prompts(3)
    with pytest.raises(BackboneError, match="linear_attention") as error:
        score_orders(model, prompts, interface="pointers", backend="tree")
    assert "--scoring auto" in (error.value.remedy or "")
    assert "which is fork for this model" in (error.value.remedy or "")
    with torch.no_grad():
        scores = score_orders(model, prompts, interface="pointers", backend="naive")
    total = scores.order_log_probs.exp().sum(-1)
    torch.testing.assert_close(total, torch.ones_like(total))


def test_sliding_attention_is_refused():
    model = make_model(
        use_sliding_window=True,
        sliding_window=4,
        layer_types=["full_attention", "sliding_attention"],
    )
    with pytest.raises(BackboneError, match="sliding_attention"):
        score_orders(model, make_prompts(3), interface="tokens", backend="tree")


def test_attention_that_takes_no_additive_mask_is_refused():
    model = make_model()
    model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(BackboneError, match="flash_attention_2"):
        score_orders(model, make_prompts(3), interface="tokens", backend="tree")


class MaskIgnoring(torch.nn.Module):
    """What a layer that does not read the mask amounts to."""

    def __init__(self, model):
        super().__init__()
        self.inner, self.config = model, model.config
        self.dtype, self.device = model.dtype, model.device

    def forward(self, *, attention_mask=None, **kwargs):
        return self.inner(**kwargs)


@pytest.mark.parametrize("interface", INTERFACES)
def test_self_check_passes_good_models_and_stops_one_that_ignores_the_mask(interface):
    model, prompts = make_model(dtype=torch.float32), make_prompts(4)
    assert self_check(model, prompts, interface=interface).difference < 1e-4
    with pytest.raises(BackboneError, match="nats"):
        self_check(MaskIgnoring(model), prompts, interface=interface)


def test_self_check_stops_a_model_that_answers_with_nan():
    model = copy.deepcopy(make_model())
    with torch.no_grad():
        model.lm_head.weight.fill_(torch.nan)
    with pytest.raises(BackboneError, match="nan"):
        self_check(model, make_prompts(3), interface="pointers")
