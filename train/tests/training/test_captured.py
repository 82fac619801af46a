"""Scoring in a few shapes, and updates that replay what was captured once, on graphs that are only pretended."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch

import sampled_training
from configs import resolved as config
from language_models import locked_model
from listed_training import train
from pretended_graphs import PretendedGraph
from training_fixtures import ENCODE, same_tensors, supervised_records, tiny_model, weights
from vcrt.errors import BackboneError
from vcrt_train.policy import captured
from vcrt_train.policy.adapters import shared_dropouts, thinned, with_adapters
from vcrt_train.policy.backbone import load_backbone
from vcrt_train.policy.prefix_tree import prefix_tree
from vcrt_train.policy.scoring import score_orders, score_prefixes
from vcrt_train.randomness import generator
from vcrt_train.training.items import encode_items
from vcrt_train.training.methods import method
from vcrt_train.training.orbit_masses import orbit_log_masses
from vcrt_train.training.update import new_state, update


@pytest.fixture
def graphs(monkeypatch):
    """Every graph that was made: of each shape one of the forward and one of the backward pass."""
    made = []

    def new_graph():
        made.append(PretendedGraph())
        return made[-1]

    monkeypatch.setattr(captured, "graphs_of", lambda device: new_graph)
    return made


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return locked_model(tmp_path_factory.mktemp("captured") / "llama", "llama")


def without_graphs(monkeypatch):
    monkeypatch.setattr(captured, "graphs_of", lambda device: None)


def optimiser_state(state):
    return {
        f"{number} {name}": value
        for number, values in state.optimizer.state_dict()["state"].items()
        for name, value in values.items()
    }


def require_same(one, other):
    """Two trainings gave the same bits."""
    (state, metrics), (other_state, other_metrics) = one, other
    assert [each.to_json() for each in metrics] == [each.to_json() for each in other_metrics]
    assert same_tensors(weights(state.model), weights(other_state.model))
    assert same_tensors(optimiser_state(state), optimiser_state(other_state))
    assert state.duals == other_state.duals


# Padding.


def prompts_of(lengths):
    """Prompts of random tokens."""
    draw = torch.Generator().manual_seed(0)
    prompt = ENCODE(supervised_records(1)[0].record, "sorted", generator(0, "prompts"))
    return [
        replace(prompt, token_ids=tuple(torch.randint(0, 12, (length,), generator=draw).tolist()))
        for length in lengths
    ]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["embedded", "llama"])
@torch.no_grad()
def test_padding_to_128_tokens_changes_no_bit_of_a_probability(name, attention, llama):
    model = load_backbone(llama if name == "llama" else "embedded").model
    model.set_attn_implementation(attention)
    # Behind longer ones, products add in another order.
    prompts = prompts_of([5, 30, 31, 47, 64, 100])
    together = score_orders(model, prompts, interface="pointers", backend="captured")
    for number, prompt in enumerate(prompts):
        alone = score_orders(model, [prompt], interface="pointers", backend="captured")
        assert torch.equal(alone.order_log_probs[0], together.order_log_probs[number])
    tree = score_orders(model, prompts, interface="pointers", backend="tree")
    gap = (tree.order_log_probs - together.order_log_probs).abs().max()
    assert gap < 1e-5


@torch.no_grad()
def test_beyond_it_changes_rounding_alone():
    model = load_backbone("embedded").model
    for length in (120, 190):
        one, *others = prompts_of([length, 210, 330])
        alone = score_orders(model, [one], interface="pointers", backend="captured")
        for other in others:
            both = score_orders(model, [one, other], interface="pointers", backend="captured")
            gap = (both.order_log_probs[0] - alone.order_log_probs[0]).abs().max()
            assert gap < 1e-4


@torch.no_grad()
def test_it_changes_none_behind_drawn_trees_either():
    model = load_backbone("embedded-long").model
    prompts = prompts_of([20, 33, 41])
    leaves = [[(0, 1), (1, 2)], [(3, 2)], [(0, 1), (0, 2), (1, 0), (2, 0), (3, 1), (2, 3), (1, 3)]]
    trees = [prefix_tree(4, some) for some in leaves]
    ways = {
        backend: score_prefixes(model, prompts, trees, interface="pointers", backend=backend)
        for backend in ("captured", "naive")
    }
    for number, tree in enumerate(trees):
        alone = score_prefixes(
            model, prompts[number : number + 1], [tree], interface="pointers", backend="captured"
        ).choice_log_probs[0, : tree.num_rows]
        assert torch.equal(alone, ways["captured"].choice_log_probs[number, : tree.num_rows])
        expected = ways["naive"].choice_log_probs[number, : tree.num_rows]
        assert torch.allclose(alone, expected, atol=1e-5)


def test_there_are_few_shapes(monkeypatch):
    shapes = set()
    monkeypatch.setattr(
        "vcrt_train.policy.backends.through_graphs",
        lambda model, function, inputs: shapes.add(inputs[0].shape) or function(*inputs),
    )
    model = tiny_model()
    for length in range(1, 101):
        score_orders(model, prompts_of([length]), interface="pointers", backend="captured")
    # With 16 nodes behind them.
    assert shapes == {(1, size) for size in range(32, 129, 16)}


# Updates.


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("vcrt", {}),
        ("canonical-grpo", {"epochs_per_update": 3}),
        ("exact-log-odds", {"prompts_at_a_time": 1}),
        ("vcrt", {"prompts_at_a_time": 1, "max_gradient_norm": 0.1}),
    ],
)
def test_captured_updates_equal_eager_ones(name, settings, graphs, monkeypatch):
    found = train(name, 5, scoring="captured", **settings)
    assert len(graphs) == 2
    assert all(graph.num_replays > 5 for graph in graphs)
    without_graphs(monkeypatch)
    with pytest.warns(UserWarning, match="only CUDA has graphs"):
        eager = train(name, 5, scoring="captured", **settings)
    require_same(found, eager)
    tree = train(name, 5, **settings)[1][-1].to_json()
    assert found[1][-1].to_json() == pytest.approx(tree, rel=1e-2, abs=1e-3)


def test_so_do_those_of_drawn_orders(graphs, monkeypatch):
    options = {"estimate": sampled_training.SAMPLED, "some": sampled_training.records(2)}
    found = sampled_training.train("vcrt", 12, scoring="captured", **options)
    assert graphs
    without_graphs(monkeypatch)
    with pytest.warns(UserWarning, match="only CUDA has graphs"):
        eager = sampled_training.train("vcrt", 12, scoring="captured", **options)
    require_same(found, eager)


@pytest.mark.parametrize("rank", [0, 4])
def test_so_do_those_of_a_language_model_with_adapters_and_their_dropout(
    rank, llama, graphs, monkeypatch
):
    def trained():
        backbone = load_backbone(llama)
        model = backbone.model
        if rank:
            model = with_adapters(model, rank=rank, scale=2.0, seed=1, dropout=0.25)
        # So that logits are of few words.
        monkeypatch.setattr("vcrt_train.policy.causal_model.WIDE_VOCABULARY", 100)
        chosen = method("vcrt")
        items = encode_items(supervised_records(2), chosen, seed=0, encode=backbone.encode)
        frozen = orbit_log_masses(model, items, interface="pointers")
        asked = config(learning_rate=1e-3, scoring="captured")
        state = new_state(model, asked, seed=0)
        updates = [update(state, items, frozen, method=chosen, config=asked) for _ in range(5)]
        return state, updates

    found = trained()
    assert len(graphs) == 2
    without_graphs(monkeypatch)
    with pytest.warns(UserWarning, match="only CUDA has graphs"):
        eager = trained()
    require_same(found, eager)
    norms = [each.gradient_norm for each in found[1]]
    assert len(set(norms)) == len(norms)


def test_a_gradient_made_without_a_graph_is_kept(graphs):
    model = tiny_model()
    used, prompts = captured.Graphs(model), prompts_of([20])

    def backward(graph):
        scores = score_orders(
            model, prompts, interface="pointers", backend="captured" if graph else "tree"
        )
        scores.order_log_probs[0, 3].backward()

    with used.used():
        for _ in range(2):
            backward(graph=True)
        assert len(graphs) == 2
        model.zero_grad()
        backward(graph=True)
        one = {name: p.grad.clone() for name, p in model.named_parameters()}
        for pattern in ([False, True], [True, False], [True, True], [False, True, True, False]):
            model.zero_grad()
            for graph in pattern:
                backward(graph=graph)
            for name, parameter in model.named_parameters():
                assert torch.allclose(parameter.grad, len(pattern) * one[name], atol=1e-5), pattern


# What is not captured.


def run_twice(used, function, *inputs):
    with used.used():
        for _ in range(3):
            found = captured.through_graphs(used._model, function, inputs)
    return found


def test_what_depends_on_values_is_computed_without_a_graph_and_said_once(graphs):
    model = tiny_model()
    used, weight = captured.Graphs(model), model.model.norm.weight

    def reads(x):
        weight = model.model.norm.weight
        return x * weight if x.sum() > 0 else x - weight

    with pytest.warns(UserWarning, match="not permitted when stream is capturing"):
        found = run_twice(used, reads, -torch.ones(32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run_twice(used, reads, torch.ones(1, 32))
    assert torch.equal(found, -1 - weight)


def test_what_a_graph_would_not_repeat_is_found_out(graphs):
    model = tiny_model()
    used, calls = captured.Graphs(model), []

    def counts(x):
        calls.append(x)
        return x * model.model.norm.weight * len(calls)

    with pytest.warns(UserWarning, match="gives other values"):
        run_twice(used, counts, torch.ones(32))


def test_too_little_memory_is_no_error(graphs, monkeypatch):
    model = tiny_model()
    used, weight = captured.Graphs(model), model.model.norm.weight

    def full(self, *_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    monkeypatch.setattr(PretendedGraph, "capturing", full)
    with pytest.warns(UserWarning, match="OutOfMemoryError: CUDA out of memory") as said:
        found = run_twice(used, lambda x: x * model.model.norm.weight, torch.ones(32))
    assert torch.equal(found, weight)
    assert len(said) == 1


def test_shapes_beyond_the_budget_and_checkpoints_are_said(graphs, monkeypatch):
    monkeypatch.setattr(captured, "MOST_SHAPES", 2)
    model = tiny_model()
    used, weight = captured.Graphs(model), model.model.norm.weight

    def times(x):
        return x * model.model.norm.weight

    run_twice(used, times, torch.ones(1, 32))
    run_twice(used, times, torch.ones(2, 32))
    with pytest.warns(UserWarning, match="more than 2 shapes"):
        found = run_twice(used, times, torch.ones(3, 32))
    assert torch.equal(found, weight.expand(3, 32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run_twice(used, times, torch.ones(4, 32))
    assert len(graphs) == 4
    model.gradient_checkpointing_enable()
    with pytest.warns(UserWarning, match="gradient checkpointing"):
        run_twice(captured.Graphs(model), lambda x: x * model.model.norm.weight, torch.ones(32))


def test_nothing_is_captured_that_comes_once_or_has_no_gradient(graphs):
    model = tiny_model()
    used, prompts = captured.Graphs(model), prompts_of([20])

    def score():
        return score_orders(model, prompts, interface="pointers", backend="captured")

    # Outside of it, and without gradient, there are no graphs.
    for _ in range(3):
        score()
        with used.used(), torch.no_grad():
            score()
    with used.used():
        score()
    assert not graphs
    with used.used():
        score()
    assert len(graphs) == 2
    with used.used(), torch.no_grad():
        replays = graphs[0].num_replays
        score()
    assert graphs[0].num_replays == replays + 1


def test_a_pass_back_through_what_was_overwritten_is_refused(graphs):
    model = tiny_model()
    used, prompts = captured.Graphs(model), prompts_of([20])

    def score():
        return score_orders(model, prompts, interface="pointers", backend="captured")

    with used.used():
        score()
        first, second = score(), score()
        assert torch.equal(first.order_log_probs, second.order_log_probs)
        second.order_log_probs[0, 0].backward()
        with pytest.raises(RuntimeError, match="between a forward pass and its backward pass"):
            first.order_log_probs[0, 0].backward()


def test_parameters_that_have_moved_are_captured_again(graphs):
    model = tiny_model()
    used, prompts = captured.Graphs(model), prompts_of([20])

    def score():
        with used.used():
            return score_orders(
                model, prompts, interface="pointers", backend="captured"
            ).order_log_probs.detach()

    score(), score()
    assert len(graphs) == 2
    norm = model.model.norm.weight
    with torch.no_grad():
        norm.data = norm * 2
    moved = score()
    assert len(graphs) == 4
    expected = score_orders(model, prompts, interface="pointers", backend="tree").order_log_probs
    assert torch.allclose(moved, expected, atol=1e-5)


def test_a_parameter_that_is_trained_or_frozen_later_has_its_gradient_or_none(graphs):
    model = tiny_model()
    used, prompts, norm = captured.Graphs(model), prompts_of([20]), model.model.norm.weight

    def gradient():
        model.zero_grad()
        with used.used():
            for _ in range(2):
                model.zero_grad()
                score_orders(
                    model, prompts, interface="pointers", backend="captured"
                ).order_log_probs[0, 0].backward()
        return norm.grad

    norm.requires_grad_(False)
    assert gradient() is None
    norm.requires_grad_(True)
    assert gradient().abs().sum() > 0
    norm.requires_grad_(False)
    assert gradient() is None
    assert len(graphs) == 6


def test_a_gradient_of_before_survives_a_capture_that_fails_at_its_end(graphs, monkeypatch):
    model = tiny_model()
    used, (short, long) = captured.Graphs(model), prompts_of([20, 60])

    def backward(prompt):
        scores = score_orders(model, [prompt], interface="pointers", backend="captured")
        scores.order_log_probs[0, 3].backward()

    backward(short), backward(long)
    expected = {name: p.grad.clone() for name, p in model.named_parameters()}
    with used.used():
        backward(short), backward(short), backward(long)
        model.zero_grad()
        backward(short)

        def full(*_):
            raise torch.OutOfMemoryError("CUDA out of memory")

        monkeypatch.setattr(captured, "_are_close", full)
        with pytest.warns(UserWarning, match="OutOfMemoryError"):
            backward(long)
    for name, parameter in model.named_parameters():
        assert torch.allclose(parameter.grad, expected[name], atol=1e-5)


def test_other_parameters_of_a_model_are_captured_again(graphs):
    model = tiny_model()
    used, prompts = captured.Graphs(model), prompts_of([20])

    def backward():
        scores = score_orders(model, prompts, interface="pointers", backend="captured")
        scores.order_log_probs[0, 3].backward()

    with used.used():
        backward(), backward()
    model.load_state_dict(tiny_model(seed=1).state_dict(), assign=True)
    model.lm_head.weight = model.model.embed_tokens.weight
    with used.used():
        backward()
    other = tiny_model(seed=1)
    score_orders(other, prompts, interface="pointers", backend="tree").order_log_probs[
        0, 3
    ].backward()
    for (name, one), (_, right) in zip(
        model.named_parameters(), other.named_parameters(), strict=True
    ):
        assert torch.allclose(one.grad, right.grad, atol=1e-5), name


def test_nothing_is_captured_under_autocast_or_of_a_divided_model(graphs):
    model, prompts = tiny_model(), prompts_of([20])
    used = captured.Graphs(model)

    def score(some):
        with some.used():
            for _ in range(2):
                score_orders(model, prompts, interface="pointers", backend="captured")

    with torch.autocast("cpu"), pytest.warns(UserWarning, match="autocast is on"):
        score(used)
    assert not graphs
    score(used)
    assert len(graphs) == 2
    replays = graphs[0].num_replays
    with torch.autocast("cpu"):
        score(used)
    assert graphs[0].num_replays == replays
    model.model.norm.weight.device_mesh = "as a parameter of FSDP2 has it"
    with pytest.warns(UserWarning, match="divided among processes"):
        score(captured.Graphs(model))


def test_a_step_between_the_passes_is_refused(graphs):
    model = tiny_model()
    used, prompts = captured.Graphs(model), prompts_of([20])
    with used.used():
        for _ in range(2):
            scores = score_orders(model, prompts, interface="pointers", backend="captured")
    with torch.no_grad():
        model.model.norm.weight.mul_(2)
    with pytest.raises(RuntimeError, match="a parameter changed between"):
        scores.order_log_probs[0, 0].backward()


def test_a_shape_has_no_more_tokens_than_a_model_has_places():
    model = tiny_model()
    model.config.max_position_embeddings = 38
    sizes = []
    model.register_forward_pre_hook(
        lambda _, args, given: sizes.append(given["input_ids"].shape[1]), with_kwargs=True
    )
    for length in (16, 18, 24):
        score_orders(model, prompts_of([length]), interface="pointers", backend="captured")
    # With 16 nodes behind them; the last is refused by a model that counts its places.
    assert sizes == [32, 38, 40]


def test_masks_of_dropout_can_be_made_first_where_nothing_is_trained(llama):
    model = with_adapters(load_backbone(llama).model, rank=2, scale=1.0, seed=0, dropout=0.5)
    dropouts = shared_dropouts(model)
    for mode in (True, False, True):
        with torch.inference_mode(mode), thinned(dropouts, 0, torch.device("cpu")):
            assert all(one.mask is not None for one in dropouts)


def test_it_is_for_models_whose_layers_all_see_everything(tmp_path_factory):
    hybrid = load_backbone(locked_model(tmp_path_factory.mktemp("hybrid"), "qwen3_5")).model
    with pytest.raises(BackboneError, match="full attention"):
        score_orders(hybrid, prompts_of([20]), interface="pointers", backend="captured")


def test_answers_in_tokens_are_scored_as_trees():
    model, prompts = tiny_model(), prompts_of([20, 21])
    one, other = (
        score_orders(model, prompts, interface="tokens", backend=backend)
        for backend in ("captured", "tree")
    )
    assert torch.equal(one.order_log_probs, other.order_log_probs)


def test_nothing_is_said_where_graphs_are(graphs):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train("vcrt", 3, scoring="captured")
