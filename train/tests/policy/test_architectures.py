"""Tree and fork against scoring each order by itself, on tiny models of every class, in every mode of training."""

from itertools import product

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import MistralConfig, MistralForCausalLM

from configs import resolved as config
from tiny_models import (
    BACKENDS,
    CONFIGS,
    HYBRID,
    VOCABULARY,
    gradient_of,
    loss_of,
    relative_error,
    tiny_model,
    tiny_prompts,
)
from training_fixtures import ENCODE, supervised_records
from vcrt.errors import BackboneError
from vcrt_train.policy import backends
from vcrt_train.policy.causal_model import evaluation_mode
from vcrt_train.policy.scoring import greedy_orders, score_orders
from vcrt_train.policy.self_check import self_check
from vcrt_train.training.items import encode_items
from vcrt_train.training.methods import method
from vcrt_train.training.orbit_masses import orbit_log_masses
from vcrt_train.training.update import new_state, update

INTERFACES = ("pointers", "tokens")
#: Two equal ones, with one between that is shorter than a convolution.
LENGTHS = (7, 2, 7)


def assert_equal_scores(found, expected, atol=1e-5):
    torch.testing.assert_close(
        found.order_log_probs, expected.order_log_probs, atol=atol, rtol=atol
    )
    torch.testing.assert_close(
        found.choice_log_probs, expected.choice_log_probs, atol=atol, rtol=atol
    )
    if expected.malformed_log_prob is not None:
        torch.testing.assert_close(
            found.malformed_log_prob, expected.malformed_log_prob, atol=atol, rtol=atol
        )


@pytest.mark.parametrize("interface", INTERFACES)
@pytest.mark.parametrize("name", CONFIGS)
def test_log_probabilities_and_gradients_equal_the_naive_ones(name, interface):
    model, prompts = tiny_model(name), tiny_prompts(4, LENGTHS)
    naive = score_orders(model, prompts, interface=interface, backend="naive")
    expected = gradient_of(model, loss_of(naive))
    assert expected.norm() > 1e-2
    for backend in {BACKENDS[name], "fork"}:
        scores = score_orders(model, prompts, interface=interface, backend=backend)
        assert_equal_scores(scores, naive)
        assert relative_error(gradient_of(model, loss_of(scores)), expected) < 1e-5


@pytest.mark.parametrize("name", CONFIGS)
def test_the_backend_is_chosen_by_the_layers(name, monkeypatch):
    called = []
    for backend, logits in dict(backends.LOGITS).items():
        monkeypatch.setitem(
            backends.LOGITS,
            backend,
            lambda *args, b=backend, f=logits: called.append(b) or f(*args),
        )
    score_orders(tiny_model(name), tiny_prompts(2), interface="pointers", backend="auto")
    assert called == [BACKENDS[name]]


@pytest.mark.parametrize("interface", INTERFACES)
@pytest.mark.parametrize("num_operations", [1, 2, 3])
@pytest.mark.parametrize("name", HYBRID)
def test_forks_of_every_depth_equal_the_naive_scores(name, num_operations, interface):
    model, prompts = tiny_model(name), tiny_prompts(num_operations, (5, 1))
    naive = score_orders(model, prompts, interface=interface, backend="naive")
    fork = score_orders(model, prompts, interface=interface, backend="fork")
    assert_equal_scores(fork, naive)
    if num_operations > 1:
        found, expected = (gradient_of(model, loss_of(scores)) for scores in (fork, naive))
        assert relative_error(found, expected) < 1e-5


@pytest.mark.parametrize("name", CONFIGS)
def test_the_mass_of_all_answers_is_that_of_a_walk_over_the_vocabulary(name):
    model, (prompt,) = tiny_model(name), tiny_prompts(2, (6,))
    scores = score_orders(model, [prompt], interface="tokens", backend="auto")
    answers = list(product(range(VOCABULARY), repeat=2))
    sequences = torch.tensor([[*prompt.token_ids, *answer] for answer in answers])
    with torch.no_grad():
        log_probs = model(input_ids=sequences, use_cache=False).logits[:, -3:-1].log_softmax(-1)
    totals = log_probs.gather(-1, sequences[:, -2:, None]).sum((1, 2))
    is_order = torch.tensor([sorted(a) == sorted(prompt.pointer_ids) for a in answers])
    expected = totals[~is_order].logsumexp(0)
    torch.testing.assert_close(scores.malformed_log_prob[0], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", CONFIGS)
def test_all_answers_together_have_probability_one(name, dtype):
    model = tiny_model(name, dtype=dtype)
    scores = score_orders(model, tiny_prompts(4, LENGTHS), interface="tokens", backend="auto")
    events = torch.cat([scores.order_log_probs, scores.malformed_log_prob[:, None]], dim=1)
    assert events.dtype == torch.float32
    torch.testing.assert_close(events.logsumexp(-1), torch.zeros(len(LENGTHS)), atol=2e-6, rtol=0)


@pytest.mark.parametrize("name", HYBRID)
def test_neighbours_in_a_batch_change_nothing(name):
    model, prompts = tiny_model(name), tiny_prompts(4, LENGTHS)
    together = score_orders(model, prompts, interface="pointers", backend="fork")
    for i, prompt in enumerate(prompts):
        alone = score_orders(model, [prompt], interface="pointers", backend="fork")
        torch.testing.assert_close(
            together.order_log_probs[i], alone.order_log_probs[0], atol=1e-5, rtol=0
        )


@pytest.mark.parametrize(
    ("interface", "num_operations", "vocabulary"), [("pointers", 3, VOCABULARY), ("tokens", 2, 3)]
)
def test_greedy_orders_of_a_fork_are_the_naive_ones(interface, num_operations, vocabulary):
    model = tiny_model("granitemoehybrid", seed=2, vocab_size=vocabulary)
    prompts = tiny_prompts(num_operations, LENGTHS * 4, vocabulary=vocabulary)
    fork, naive = (
        greedy_orders(model, prompts, interface=interface, backend=backend, batch_size=7)
        for backend in ("fork", "naive")
    )
    assert fork == naive
    assert len(set(fork)) > 2
    assert (None in fork) == (interface == "tokens")


# Windows.


def sliding_model(window):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = MistralConfig(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=128,
            sliding_window=window,
            initializer_range=0.3,
        )
        return MistralForCausalLM(config).eval()


@pytest.mark.parametrize("interface", INTERFACES)
def test_a_window_as_long_as_the_sequences_is_full_attention_and_a_shorter_one_is_forked(interface):
    prompts = tiny_prompts(4, (12, 5))
    longest = 12 + (2 if interface == "pointers" else 3)
    for window, backend in ((longest, "tree"), (longest - 1, "fork"), (4, "fork"), (2, "fork")):
        model = sliding_model(window)
        assert backends.choose_backend(model, "auto", longest=longest) == backend
        naive = score_orders(model, prompts, interface=interface, backend="naive")
        scores = score_orders(model, prompts, interface=interface, backend="auto")
        assert_equal_scores(scores, naive)
        found, expected = (gradient_of(model, loss_of(s)) for s in (scores, naive))
        assert relative_error(found, expected) < 1e-5
    with pytest.raises(BackboneError, match=rf"a window of 2 for {longest} tokens"):
        score_orders(model, prompts, interface=interface, backend="tree")


def test_the_tree_would_be_wrong_where_it_is_refused_for_a_window(monkeypatch):
    model, prompts = sliding_model(4), tiny_prompts(4, (12, 5))
    monkeypatch.setattr(backends, "_tree_obstacle", lambda model, longest: None)
    with pytest.raises(BackboneError, match="does not agree"):
        self_check(model, prompts, interface="pointers", backend="tree")


def test_states_that_cannot_be_forked_are_scored_naively(monkeypatch):
    model, prompts = tiny_model("qwen3_5"), tiny_prompts(3)
    known = {kind for kind in backends.FORKABLE_LAYERS if "Linear" not in kind.__name__}
    monkeypatch.setattr(backends, "FORKABLE_LAYERS", known)
    assert backends.choose_backend(model, "auto", longest=20) == "naive"
    with pytest.raises(BackboneError, match="linear_attention"):
        score_orders(model, prompts, interface="pointers", backend="fork")


# Checkpointing, dropout, adapters.


def with_dropout_adapters(model):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        config = LoraConfig(
            r=4, lora_alpha=8, lora_dropout=0.05, target_modules="all-linear", bias="none"
        )
        adapted = get_peft_model(model, config)
        with torch.no_grad():
            for key, parameter in adapted.named_parameters():
                if "lora_B" in key:
                    parameter.normal_(0.0, 0.2)
    return adapted


def modes(model):
    return [module.training for module in model.modules()]


@pytest.mark.parametrize("interface", INTERFACES)
@pytest.mark.parametrize("name", CONFIGS)
def test_checkpointing_recomputes_the_layers_and_changes_no_bit(name, interface):
    model, prompts = tiny_model(name), tiny_prompts(4, (7, 12))
    runs = []
    first_mlp = next(m for key, m in model.named_modules() if key.endswith("mlp"))
    # Before, not after: a recomputation stops as soon as it has what it needs.
    first_mlp.register_forward_pre_hook(lambda *args: runs.append(first_mlp.training))

    def score():
        runs.clear()
        scores = score_orders(model, prompts, interface=interface, backend="auto")
        forward = len(runs)
        return scores.order_log_probs, gradient_of(model, loss_of(scores)), forward, len(runs)

    plain, plain_gradient, forward, in_all = score()
    assert forward == in_all > 0
    model.gradient_checkpointing_enable()
    # In training mode the library would checkpoint too, without the cache.
    for training in (False, True):
        model.train(training)
        log_probs, gradient, forward_again, in_all = score()
        assert (forward_again, in_all) == (forward, 2 * forward)
        assert not any(runs)
        assert torch.equal(log_probs, plain)
        assert torch.equal(gradient, plain_gradient)
    assert all(modes(model))
    assert all("forward" not in module.__dict__ for module in model.modules())


@pytest.mark.parametrize("name", ["granite", *HYBRID])
def test_dropout_is_off_in_scores_and_in_recomputed_gradients(name):
    model = with_dropout_adapters(tiny_model(name, attention_dropout=0.5))
    prompts = tiny_prompts(4, (7, 12))
    plain = score_orders(model.eval(), prompts, interface="tokens", backend="auto")
    expected = gradient_of(model, loss_of(plain))
    model.gradient_checkpointing_enable()
    model.train()
    mixed = next(m for m in model.modules() if isinstance(m, torch.nn.Dropout))
    mixed.eval()
    before = modes(model)
    scores = score_orders(model, prompts, interface="tokens", backend="auto")
    assert modes(model) == before
    assert torch.equal(scores.order_log_probs, plain.order_log_probs)
    assert torch.equal(gradient_of(model, loss_of(scores)), expected)
    assert modes(model) == before
    # The same adapters with dropout on would be another policy.
    with torch.random.fork_rng(devices=[]):
        noisy = model(input_ids=torch.tensor([prompts[0].token_ids])).logits
    assert not torch.allclose(
        noisy, model.eval()(input_ids=torch.tensor([prompts[0].token_ids])).logits
    )


def test_modes_and_layers_are_restored_after_an_error():
    model = tiny_model("llama").train()
    model.gradient_checkpointing_enable()
    with pytest.raises(ZeroDivisionError), evaluation_mode(model):
        _ = 1 // sum(modes(model))
    assert all(modes(model))
    assert all("forward" not in module.__dict__ for module in model.modules())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", CONFIGS)
def test_the_ratio_of_the_first_epoch_is_exactly_one(name, dtype):
    chosen = method("outcome-grpo")
    model = with_dropout_adapters(tiny_model(name, dtype=dtype, attention_dropout=0.5))
    model.gradient_checkpointing_enable()
    items = encode_items(supervised_records(2), chosen, seed=0, encode=ENCODE)
    frozen = orbit_log_masses(model, items, interface=chosen.interface, backend="auto")
    state = new_state(model, config(), seed=0)
    # As a training loop of another library would leave it.
    model.train()
    prompts = [item.prompt for item in items]
    twice = [
        score_orders(model, prompts, interface=chosen.interface, backend="auto") for _ in range(2)
    ]
    assert torch.equal(twice[0].order_log_probs, twice[1].order_log_probs)
    metrics = update(state, items, frozen, method=chosen, config=config())
    assert metrics.start_log_ratio == 0.0
    assert metrics.orbit_mass + metrics.illegal_mass + metrics.malformed_mass == pytest.approx(1)


# Number formats.


@pytest.mark.parametrize("interface", INTERFACES)
@pytest.mark.parametrize("name", CONFIGS)
def test_half_precision_agrees_within_its_rounding_and_exactly_when_widened(name, interface):
    model, prompts = tiny_model(name, dtype=torch.bfloat16), tiny_prompts(4, (7, 12))
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    found = self_check(model, prompts, interface=interface)
    assert found.backend == BACKENDS[name]
    assert found.difference < 2e-5
    assert found.own_format_difference < 0.03
    after = model.state_dict()
    assert all(after[key].dtype == before[key].dtype for key in before)
    assert all(torch.equal(after[key], before[key]) for key in before)


def test_pointers_need_only_their_columns_of_a_large_vocabulary():
    prompts = tiny_prompts(4, (7, 12))
    for dtype, backend in ((torch.float32, "tree"), (torch.bfloat16, "tree")):
        model = tiny_model("granite", vocab_size=5000, dtype=dtype)
        shapes = []
        model.lm_head.register_forward_hook(lambda *args, s=shapes: s.append(args[2]))
        scores = score_orders(model, prompts, interface="pointers", backend=backend)
        used = len({pointer for prompt in prompts for pointer in prompt.pointer_ids})
        assert [tuple(logits.shape) for logits in shapes] == [(2, 17, used)]
        assert shapes[0].dtype == torch.float32
        naive = score_orders(model, prompts, interface="pointers", backend="naive")
        if dtype == torch.float32:
            assert_equal_scores(scores, naive)
            found, expected = (gradient_of(model, loss_of(s)) for s in (scores, naive))
            assert relative_error(found, expected) < 1e-5
            assert greedy_orders(model, prompts, interface="pointers") == greedy_orders(
                model, prompts, interface="pointers", backend="naive"
            )
        assert "forward" not in model.lm_head.__dict__
    assert shapes[-1].shape[-1] == 5000
