"""The start-up check refuses every way in which scores or gradients could be silently wrong."""

import inspect
import sys
from contextlib import contextmanager, nullcontext
from functools import partial
from types import ModuleType

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    DynamicCache,
    GPTNeoConfig,
    MptConfig,
    RobertaConfig,
)
from transformers.integrations.hub_kernels import use_kernel_func_from_hub_with_fallback
from transformers.models.qwen3_5 import modeling_qwen3_5

from tiny_models import BACKENDS, DENSE, HYBRID, VOCABULARY, tiny_model, tiny_prompts
from vcrt.errors import BackboneError, MalformedInputError
from vcrt.memory import is_out_of_memory
from vcrt_train.policy import backends, causal_model, functional_cache, scoring
from vcrt_train.policy.backends import choose_backend
from vcrt_train.policy.causal_model import unwrapped
from vcrt_train.policy.functional_cache import ForkedCache, RecordedCache
from vcrt_train.policy.kernels.switch import implementations
from vcrt_train.policy.scoring import score_orders
from vcrt_train.policy.self_check import prefix_check, self_check, text_check

INTERFACES = ("pointers", "tokens")


def refused(model, match="does not agree", *, interface="pointers", backend="auto", **options):
    prompts = tiny_prompts(4, (7, 12))
    with pytest.raises(BackboneError, match=match) as error:
        self_check(model, prompts, interface=interface, backend=backend, **options)
    assert error.value.remedy
    return error.value


# The tree.


def boolean_mask(*args, mask=backends.tree_mask):
    return mask(*args) == 0


def causal_mask(lengths, trees, dtype, device, mask=backends.tree_mask):
    size = mask(lengths, trees, dtype, device).shape[-1]
    seen = torch.ones(size, size).tril().bool()
    lowest = torch.finfo(dtype).min
    return torch.zeros(len(lengths), 1, size, size).masked_fill(~seen, lowest).to(dtype)


def mask_of_one_length(lengths, trees, dtype, device, mask=backends.tree_mask):
    return mask([max(lengths)] * len(lengths), trees, dtype, device)


def mask_without_ancestors(lengths, trees, dtype, device, mask=backends.tree_mask):
    wrong = mask(lengths, trees, dtype, device).clone()
    nodes = slice(max(lengths), None)
    alone = torch.eye(max(tree.num_rows for tree in trees) - 1, dtype=torch.bool)
    wrong[:, :, nodes, nodes] = (
        torch.zeros(()).masked_fill(~alone, torch.finfo(dtype).min).to(dtype)
    )
    return wrong


@pytest.mark.parametrize("interface", INTERFACES)
@pytest.mark.parametrize(
    ("mask", "attention"),
    [
        (boolean_mask, "eager"),
        (causal_mask, "sdpa"),
        (mask_of_one_length, "sdpa"),
        (mask_without_ancestors, "sdpa"),
    ],
)
@pytest.mark.parametrize("num_operations", [4, 7])
def test_a_wrong_mask_is_refused(mask, attention, interface, num_operations, monkeypatch):
    model, prompts = tiny_model("llama"), tiny_prompts(num_operations)
    model.set_attn_implementation(attention)
    assert self_check(model, prompts, interface=interface).backend == "tree"
    monkeypatch.setattr(backends, "tree_mask", mask)
    with pytest.raises(BackboneError, match="does not agree"):
        self_check(model, prompts, interface=interface)


def test_positions_that_count_the_nodes_are_refused(monkeypatch):
    model = tiny_model("qwen3")

    def counted(length, longest, tree, num_rows, device):
        return torch.arange(longest + num_rows - 1, device=device)

    monkeypatch.setattr(backends, "_kept_positions", counted)
    refused(model, interface="tokens")


def leaking(model, amount):
    """A model whose first layer hands something from token to token, which its configuration does not say."""

    def leak(module, args, output):
        return output + amount * output.cumsum(1) / torch.arange(1, output.shape[1] + 1)[
            :, None
        ].to(output)

    model.model.layers[0].register_forward_hook(leak)
    return model


@pytest.mark.parametrize("interface", INTERFACES)
def test_a_layer_that_reads_no_mask_is_refused(interface):
    refused(leaking(tiny_model("granite"), 0.1), interface=interface)


def test_an_error_that_half_precision_hides_shows_when_its_weights_are_widened():
    model = leaking(tiny_model("granite", dtype=torch.bfloat16), 0.002)
    error = refused(model, "nats")
    assert "1 + their size" not in str(error)
    assert model.dtype == torch.bfloat16


def careless(lengths, trees, dtype, device, mask=backends.tree_mask):
    return (causal_mask if dtype == torch.bfloat16 else mask)(lengths, trees, dtype, device)


def test_a_half_precision_model_that_is_only_wrong_in_its_own_format_is_refused(monkeypatch):
    monkeypatch.setattr(backends, "tree_mask", careless)
    refused(tiny_model("granite", dtype=torch.bfloat16), "1 \\+ their size")
    assert (
        self_check(tiny_model("granite"), tiny_prompts(4), interface="pointers").backend == "tree"
    )


def sharpened(name, sharpness, *, seed=0, dtype=torch.bfloat16):
    """A model whose logits are so many times as sharp, as training makes them; exact in bfloat16 for powers of 2."""
    model = tiny_model(name, seed=seed, dtype=dtype)
    with torch.no_grad():
        model.lm_head.weight.mul_(sharpness)
    return model


#: Of two random models and prompts, CI tries the second.
SEEDS = [0, pytest.param(1, marks=pytest.mark.slow)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("sharpness", [1, 16])
@pytest.mark.parametrize("name", BACKENDS)
def test_sound_models_in_half_precision_pass_however_sharp_they_are(name, sharpness, seed):
    model = sharpened(name, sharpness, seed=seed)
    for interface in INTERFACES:
        prompts = tiny_prompts(4, (7, 12), seed=seed + 5)
        found = self_check(model, prompts, interface=interface, gradients=False)
        assert found.own_format_difference < 3 * found.own_format_error


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("sharpness", [0.25, 1, 16])
@pytest.mark.parametrize("name", DENSE)
def test_both_faults_are_seen_in_half_precision_however_sharp_a_model_is(
    name, sharpness, seed, monkeypatch
):
    refused(leaking(sharpened(name, sharpness, seed=seed), 0.02), "nats")
    refused(leaking(sharpened(name, sharpness, seed=seed, dtype=torch.float32), 0.02), "nats")
    monkeypatch.setattr(backends, "tree_mask", careless)
    for interface in INTERFACES:
        model = sharpened(name, sharpness, seed=seed)
        refused(model, "in bfloat16 differ by .* 1 \\+ their size", interface=interface)


def test_half_precision_that_overflows_excuses_nothing():
    model = tiny_model("llama", dtype=torch.float16)
    model.lm_head.register_forward_hook(
        lambda module, args, logits: logits * 1e6 if logits.dtype == torch.float16 else logits
    )
    refused(model, "float16 differ by nan", interface="tokens", backend="naive")


# The fork.


def no_recurrent_state(self, layer_idx, state_idx=0):
    return None


def no_convolution(self, conv_states, layer_idx, state_idx=0, **kwargs):
    return conv_states


def rows_of_other_prompts(self, state):
    return None if state is None else state.repeat(self._rows, *[1] * (state.dim() - 1))


def forgotten_keys(self, key_states, value_states, layer_idx, update=ForkedCache.update):
    keys, values = update(self, key_states, value_states, layer_idx)
    return torch.cat([keys[..., 1:2, :], keys[..., 1:, :]], -2), values


@pytest.mark.parametrize("interface", INTERFACES)
@pytest.mark.parametrize("name", HYBRID)
@pytest.mark.parametrize(
    ("attribute", "wrong"),
    [
        ("get_recurrent_state", no_recurrent_state),
        ("update_conv_state", no_convolution),
        ("_forked", rows_of_other_prompts),
        ("update", forgotten_keys),
    ],
)
def test_a_wrong_cache_is_refused(attribute, wrong, name, interface, monkeypatch):
    model = tiny_model(name)
    monkeypatch.setattr(ForkedCache, attribute, wrong)
    refused(model, interface=interface)


@pytest.mark.parametrize("name", HYBRID)
def test_a_cache_that_forgets_how_long_the_prompt_is_is_refused(name, monkeypatch):
    model = tiny_model(name)
    # The mask is as it should be, the positions start again.
    monkeypatch.setattr(ForkedCache, "get_seq_length", lambda self, layer_idx=0: 0)
    monkeypatch.setattr(
        ForkedCache,
        "get_query_offset",
        lambda self, layer_idx=0: next(
            layer.keys.shape[-2]
            for layer in self.layers
            if getattr(layer, "keys", None) is not None
        ),
    )
    refused(model)


@pytest.mark.parametrize("name", HYBRID)
def test_states_without_gradient_are_refused_by_their_gradient_alone(name, monkeypatch):
    load = functional_cache._load

    def detached(layer, states):
        states.recurrent = {index: state.detach() for index, state in states.recurrent.items()}
        load(layer, states)

    monkeypatch.setattr(functional_cache, "_load", detached)
    model = tiny_model(name)
    refused(model, "gradients differ")
    blind = self_check(model, tiny_prompts(4), interface="pointers", gradients=False)
    assert blind.gradient_difference is None
    assert blind.difference < 1e-5


def test_the_librarys_own_cache_is_refused_because_it_breaks_the_backward_pass(monkeypatch):
    class Stock(DynamicCache):
        def __init__(self, config):
            super().__init__(config=config)

        def close(self):
            pass

    def forked(recorded, rows):
        for layer in recorded.layers:
            batch = (
                layer.keys if getattr(layer, "keys", None) is not None else layer.conv_states[0]
            ).shape[0]
            layer.reorder_cache(torch.arange(batch).repeat_interleave(rows))
        return recorded

    monkeypatch.setattr(backends, "RecordedCache", Stock)
    monkeypatch.setattr(backends, "ForkedCache", forked)
    error = refused(tiny_model("qwen3_5"), "cannot run this model")
    assert "modified by an inplace operation" in str(error)


@pytest.mark.parametrize("name", HYBRID)
def test_checkpoints_that_lose_the_cache_or_its_gradient_are_refused(name, monkeypatch):
    model = tiny_model(name)
    model.gradient_checkpointing_enable()
    model.train()
    assert self_check(model, tiny_prompts(4), interface="pointers").gradient_difference < 1e-5
    # The library's own way, which takes the cache away from a checkpointed layer.
    with monkeypatch.context() as patch:
        patch.setattr(scoring, "evaluation_mode", lambda model: nullcontext())
        refused(model)
    # A reentrant checkpoint, which cuts the gradient of what leaves a layer through the cache.
    original = causal_model.checkpoint

    def reentrant(function, *args, **kwargs):
        return original(function, *args, use_reentrant=True)

    monkeypatch.setattr(causal_model, "checkpoint", reentrant)
    refused(model, "gradients differ|cannot run")


# Neither.


@contextmanager
def dropout_left_on(model):
    yield


def test_dropout_is_refused_if_it_were_left_on(monkeypatch):
    model = tiny_model("llama", attention_dropout=0.5).train()
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.5
    assert self_check(model, tiny_prompts(4), interface="pointers").difference < 1e-5
    monkeypatch.setattr(scoring, "evaluation_mode", dropout_left_on)
    with torch.random.fork_rng(devices=[]):
        refused(model)


def test_a_model_that_cannot_take_the_trees_inputs_is_named():
    model = tiny_model("llama")
    model.forward = partial(lambda **kwargs: kwargs["no_such_input"])
    error = refused(model, "backend cannot run this model")
    assert "no_such_input" in str(error)


def test_memory_that_runs_out_is_no_fault_of_the_model():
    model = tiny_model("llama")
    model.forward = lambda **kwargs: torch.empty(1 << 60, dtype=torch.uint8)
    with pytest.raises(RuntimeError) as raised:
        self_check(model, tiny_prompts(4), interface="pointers")
    assert is_out_of_memory(raised.value)


def gpt_neo(window):
    """A model whose local windows are buffers of its own, which no cache shows."""
    config = GPTNeoConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_layers=2,
        num_heads=2,
        attention_types=[[["global", "local"], 1]],
        window_size=window,
        max_position_embeddings=256,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(config).eval()


@pytest.mark.parametrize("window", [4, 64])
def test_windows_that_only_the_model_knows_are_not_scored_by_the_tree(window):
    model = gpt_neo(window)
    assert self_check(model, tiny_prompts(4), interface="pointers").backend != "tree"
    with pytest.raises(BackboneError, match="local attention") as error:
        score_orders(model, tiny_prompts(4), interface="pointers", backend="tree")
    assert "--scoring auto" in error.value.remedy


@pytest.mark.parametrize("interface", INTERFACES)
@pytest.mark.parametrize("name", ["llama", "qwen3_5", "granitemoehybrid"])
def test_some_orders_of_a_long_record_are_checked_by_themselves(name, interface, monkeypatch):
    model = tiny_model(name)
    (prompt,) = tiny_prompts(6, (9,))
    prefixes = [tuple(range(5)), (5, 3, 1, 0, 2)]
    assert prefix_check(model, prompt, prefixes, interface=interface) < 1e-4
    if name == "llama":
        monkeypatch.setattr(backends, "tree_mask", mask_without_ancestors)
        with pytest.raises(BackboneError, match="does not agree") as error:
            prefix_check(model, prompt, prefixes, interface=interface)
        assert "--scoring naive" in error.value.remedy


def test_the_naive_backend_is_asked_for_numbers():
    model = tiny_model("llama")
    assert self_check(model, tiny_prompts(4), interface="tokens", backend="naive").difference == 0
    with torch.no_grad():
        model.lm_head.weight.fill_(torch.nan)
    for backend in ("naive", "tree"):
        with pytest.raises(BackboneError, match="gives no numbers") as error:
            self_check(model, tiny_prompts(4), interface="tokens", backend=backend)
        assert "naive" not in error.value.remedy


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", DENSE)
def test_texts_of_models_that_a_tree_fits_are_scored_alike(name, dtype):
    assert text_check(tiny_model(name, sharpness=4.0).to(dtype)) < 0.1


SMALL = {"hidden_size": 32, "vocab_size": VOCABULARY}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        # Biases by the distance in the tensor, positions counted from the padding, masks of another form.
        (MptConfig(d_model=32, n_heads=4, n_layers=2, vocab_size=VOCABULARY), "nats a token"),
        (
            RobertaConfig(**SMALL, num_hidden_layers=2, num_attention_heads=4, is_decoder=True),
            "nats a token",
        ),
        (BloomConfig(**SMALL, n_layer=2, n_head=4), "cannot run"),
    ],
    ids=["mpt", "roberta", "bloom"],
)
def test_texts_of_models_that_a_tree_does_not_fit_are_refused(config, words):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    assert choose_backend(model, "auto", longest=20) == "tree"
    with pytest.raises(BackboneError, match=words):
        text_check(model)


def test_a_wrapped_model_is_asked_for_its_own_configuration():
    class DeepSpeedEngine(torch.nn.Module):
        """DeepSpeed's has a ``config`` of its own."""

        def __init__(self, module):
            super().__init__()
            self.module, self.config = module, {"train_batch_size": 8}

        def forward(self, *args, **kwargs):
            return self.module(*args, **kwargs)

    model = tiny_model("llama")
    wrapped = torch.nn.DataParallel(DeepSpeedEngine(model))
    assert unwrapped(wrapped) is model
    assert choose_backend(DeepSpeedEngine(model), "auto", longest=9) == "tree"
    assert text_check(DeepSpeedEngine(model)) < 1e-5


def test_no_prompts_are_refused():
    with pytest.raises(MalformedInputError, match="no prompts"):
        self_check(tiny_model("llama"), [], interface="pointers")


def test_a_recorded_cache_reads_as_empty_and_stays_as_it_was_when_closed():
    model, prompt = tiny_model("qwen3_5"), torch.tensor([[1, 2, 3, 4, 5]])
    recorded = RecordedCache(model.config)
    with torch.no_grad():
        model(input_ids=prompt, past_key_values=recorded, use_cache=True)
        assert recorded.get_seq_length() == 0
        recorded.close()
        before = [state.recurrent.get(0) for state in recorded.states]
        model(input_ids=prompt.flip(1), past_key_values=recorded, use_cache=True)
    assert all(
        a is b for a, b in zip(before, [s.recurrent.get(0) for s in recorded.states], strict=True)
    )
    assert sum(state is not None for state in before) == 2


def test_products_that_a_process_allows_to_round_are_not_rounded_while_it_compares():
    """In TF32, or in bfloat16 on a processor, a sound model differs by more than the tolerance."""
    model, seen = tiny_model("llama"), []
    model.register_forward_pre_hook(lambda *_: seen.append(torch.get_float32_matmul_precision()))
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        found = self_check(model, tiny_prompts(4), interface="pointers")
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert set(seen) == {"highest"}
    assert found.difference < 1e-4


def with_package(monkeypatch, kernel):
    """transformers' own wrapper of the delta rule, as it is where a package ``fla`` offers this kernel."""
    rule = inspect.unwrap(modeling_qwen3_5.torch_chunk_gated_delta_rule)
    # The wrapper passes what the kernel names.
    kernel.__signature__ = inspect.signature(rule)
    package = ModuleType("fla")
    package.chunk_gated_delta_rule = kernel
    monkeypatch.setitem(sys.modules, "fla", package)
    wrapped = use_kernel_func_from_hub_with_fallback("chunk_gated_delta_rule", "fla")(rule)
    monkeypatch.setattr(modeling_qwen3_5, "torch_chunk_gated_delta_rule", wrapped)
    return rule


def test_a_kernel_that_refuses_float32_is_checked_in_the_models_own_format(monkeypatch):
    asked = []

    def kernel(query, key, value, g, beta, **others):
        assert query.dtype != torch.float32, "does not support float32"
        asked.append(query.dtype)
        return rule(query, key, value, g=g, beta=beta, **others)

    rule = with_package(monkeypatch, kernel)
    model = tiny_model("qwen3_5").to(torch.bfloat16)
    for backend in ("auto", "naive"):
        found = self_check(model, tiny_prompts(4), interface="pointers", backend=backend)
        assert found.difference < 1e-4
        assert found.own_format_difference is not None
    assert set(asked) == {torch.bfloat16}
    # Afterwards the model computes as before.
    before = len(asked)
    model(input_ids=torch.tensor([[1, 2, 3]]))
    assert len(asked) > before


def test_a_kernel_of_another_package_that_is_wrong_is_refused(monkeypatch):
    def kernel(query, key, value, g, beta, **others):
        found, state = rule(query, key, value, g=g, beta=beta, **others)
        return 3 * found.flip(1), state

    rule = with_package(monkeypatch, kernel)
    # transformers passes it on as what it is: a kernel of that package.
    kernel.__module__ = "fla.ops"
    model = tiny_model("qwen3_5", sharpness=4.0).to(torch.bfloat16)
    error = refused(model, "log-probabilities in bfloat16|gradients in the model's format")
    assert error.remedy == "uninstall fla: PyTorch then computes instead"


def test_the_log_says_who_computes_linear_attention(monkeypatch):
    model = tiny_model("qwen3_5")
    own = implementations(model)
    assert {"causal_conv1d_fn", "chunk_gated_delta_rule"} <= own.keys()
    assert set(own.values()) == {"PyTorch"}
    assert implementations(tiny_model("llama")) == {}

    def kernel(*given, **others):
        return rule(*given, **others)

    kernel.__module__ = "fla.ops"
    rule = with_package(monkeypatch, kernel)
    assert implementations(model) == {**own, "chunk_gated_delta_rule": "fla"}


def test_what_a_device_says_of_itself_is_not_called_an_error_of_the_model(monkeypatch):
    model = tiny_model("llama")

    def broken(*_, **__):
        raise torch.AcceleratorError("no kernel image is available for execution on the device")

    monkeypatch.setattr(model, "forward", broken)
    with pytest.raises(torch.AcceleratorError, match="no kernel image"):
        self_check(model, tiny_prompts(4), interface="pointers")
