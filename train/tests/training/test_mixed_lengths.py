"""Records of several lengths in one update: every number is the one that each record has by itself."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from sampled_training import EXACT, SAMPLED, poset_record, train
from tabular_policy import members
from training_fixtures import ENCODE, same_tensors, tiny_model, weights
from vcrt.orders import all_orders
from vcrt.partial_orders import PartialOrder
from vcrt.records.supervision import PosetRecord
from vcrt_train.config import ObjectiveConfig
from vcrt_train.objective.terms import constrained
from vcrt_train.objective.total import objective, read
from vcrt_train.policy.scoring import greedy_orders, score_orders, score_prefixes
from vcrt_train.training.batch_trees import draw_trees, freeze
from vcrt_train.training.items import encode_items
from vcrt_train.training.legal_trees import tree_of
from vcrt_train.training.methods import METHODS, method
from vcrt_train.training.orbit_masses import orbit_log_masses

LENGTHS = (5, 2, 3, 6, 4, 1)
NAMES = (
    "vcrt",
    "shuffled-orbit",
    "shuffled-all",
    "contrastive",
    "augmentation",
    "canonical-grpo",
    "exact-log-odds",
    "both-classes",
    "step-groups",
    "uniform-orbit",
)


def mixed(*, share=0.4):
    return [poset_record(number, num_operations=n, share=share) for number, n in enumerate(LENGTHS)]


def encoded(name, some):
    return encode_items(some, method(name), seed=0, encode=ENCODE)


def free(n):
    return PosetRecord(
        record=poset_record(n, num_operations=n).record, order=PartialOrder.of(n, [])
    )


def chain(n):
    pairs = [(k, k + 1) for k in range(n - 1)]
    return dataclasses.replace(free(n), order=PartialOrder.of(n, pairs))


def test_masses_are_those_of_all_orders_of_each():
    model, items = tiny_model(), encoded("vcrt", mixed())
    found = orbit_log_masses(model, items, interface="pointers", config=EXACT, seed=0)
    estimated = orbit_log_masses(model, items, interface="pointers", config=SAMPLED, seed=0)
    alone = torch.cat(
        [orbit_log_masses(model, [i], interface="pointers", config=SAMPLED, seed=0) for i in items]
    )
    assert torch.allclose(estimated, alone, atol=1e-5)
    for item, mass in zip(items, found, strict=True):
        with torch.no_grad():
            scores = score_orders(model, [item.prompt], interface="pointers")
        exact = scores.order_log_probs[0][members(item.orbit)].logsumexp(0)
        assert mass.item() == pytest.approx(exact.item(), abs=1e-5)


def test_greedy_orders_are_those_of_each_in_the_order_of_the_prompts():
    model, items = tiny_model(), encoded("vcrt", [*mixed(), *mixed(share=0.1)])
    prompts = [item.prompt for item in items]
    alone = [greedy_orders(model, [one], interface="pointers")[0] for one in prompts]
    for batch_size in (1, 3, 64):
        found = greedy_orders(model, prompts, interface="pointers", batch_size=batch_size)
        assert found == alone
    assert [len(order) for order in alone] == [*LENGTHS, *LENGTHS]


def one_of(drawn, number, item):
    """What was drawn for one prompt, in a tree of its own."""
    depth = item.prompt.num_operations - 2
    prefixes = [p for p in drawn.trees[number].prefixes if len(p) <= depth]
    part = slice(number, number + 1)
    return dataclasses.replace(
        drawn,
        trees=(tree_of(depth + 2, prefixes, depth + 2),),
        samples=drawn.samples[part],
        orbit_paths=drawn.orbit_paths and drawn.orbit_paths[part],
        credit_paths=drawn.credit_paths and drawn.credit_paths[part],
        uniform_paths=drawn.uniform_paths and drawn.uniform_paths[part],
        swaps=drawn.swaps[part],
    )


@pytest.mark.parametrize("estimate", [EXACT, SAMPLED], ids=["exact", "sampled"])
@pytest.mark.parametrize("name", NAMES)
def test_each_term_is_the_mean_of_what_the_records_have_alone(name, estimate):
    """The same draws, scored together and apart, by a policy that has moved since it drew them."""
    chosen, old, new = method(name), tiny_model(seed=1), tiny_model(seed=2)
    items = encoded(name, [*mixed(), free(3), chain(4)])
    frozen = torch.linspace(-3, -0.5, len(items))
    drawn = draw_trees(
        old,
        items,
        method=chosen,
        num_samples=8,
        config=estimate,
        backend="auto",
        generator=torch.Generator().manual_seed(5),
    )

    def terms(some, of, masses):
        prompts = [item.prompt for item in some]
        before, after = (
            score_prefixes(model, prompts, of.trees, interface="pointers").choice_log_probs
            for model in (old, new)
        )
        batch = freeze(
            of,
            some,
            before.detach(),
            None,
            masses,
            method=chosen,
            num_samples=8,
            generator=torch.Generator(),
        )
        terms = chosen.without(*constrained())
        return objective(after, None, batch, config=ObjectiveConfig(), terms=terms, duals={})

    whole = terms(items, drawn, frozen)
    apart = [
        terms([item], one_of(drawn, number, item), frozen[number : number + 1])
        for number, item in enumerate(items)
    ]
    for field in (
        "policy_loss",
        "anti_diamond_loss",
        "orbit_mass",
        "illegal_mass",
        "augmentation_loss",
        "mean_reward",
        "reward_loss",
        "log_reward_loss",
        "log_odds_loss",
        "uniformity",
        "clip_fraction",
        "orbit_log_mass_error",
        "effective_path_share",
    ):
        mean = np.mean([read(one.metrics())[field] for one in apart])
        assert read(whole.metrics())[field] == pytest.approx(mean, abs=2e-5), field
    for value in ("retention", "action_kl"):
        mean = np.mean([one.values[value].item() for one in apart])
        assert whole.values[value].item() == pytest.approx(mean, abs=2e-5), value
    swaps = np.array([len(some) for some in drawn.swaps])
    assert {LENGTHS[k] < 4 for k in range(len(LENGTHS)) if not swaps[k]} <= {True}
    commutation = [one.values["commutation"].item() for one in apart]
    mean = np.average(commutation, weights=swaps)
    assert whole.values["commutation"].item() == pytest.approx(mean, abs=2e-5)
    # No order of a free record is illegal, and its ratio is 1 whatever the policy.
    free_record = read(apart[-2].metrics())
    assert free_record["anti_diamond_loss"] == 0
    assert free_record["illegal_mass"] == 0
    assert free_record["mean_reward"] == 1
    # And the gradient is that of the mean too, where no term sees all records at once.
    if "contrastive_loss" not in chosen.terms:
        gradients = []
        for loss in (whole.loss, sum(one.loss for one in apart) / len(apart)):
            new.zero_grad()
            loss.backward(retain_graph=True)
            gradients.append([p.grad.clone() for p in new.parameters() if p.grad is not None])
        for one, other in zip(*gradients, strict=True):
            assert torch.allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("estimate", [EXACT, SAMPLED], ids=["exact", "sampled"])
@pytest.mark.parametrize("name", ["vcrt", "shuffled-orbit"])
def test_updates_begin_at_the_behaviour_policy_and_repeat_also_in_parts(name, estimate):
    some = [*mixed(), free(4), chain(5)]
    one, metrics = train(name, 3, estimate=estimate, some=some)
    other, again = train(name, 3, estimate=estimate, some=some)
    assert metrics == again
    assert same_tensors(weights(one.model), weights(other.model))
    assert metrics[0].start_log_ratio == 0
    assert metrics[0].orbit_mass + metrics[0].illegal_mass == pytest.approx(1, abs=1e-5)
    _, parts = train(name, 3, estimate=estimate, some=some, prompts_at_a_time=1)
    for whole, part in zip(metrics, parts, strict=True):
        assert part.loss == pytest.approx(whole.loss, abs=1e-4)
        assert part.mean_reward == whole.mean_reward


@pytest.mark.parametrize("estimate", [EXACT, SAMPLED], ids=["exact", "sampled"])
def test_records_without_anti_diamonds_teach_only_by_the_caps(estimate):
    """Every answer is right: no advantage, no margin, no loss of mass, and so no gradient at first."""
    state, (metrics,) = train("vcrt", 1, estimate=estimate, some=[free(2), free(3)])
    assert metrics.mean_reward == 1
    assert metrics.zero_advantage_share == 1
    assert metrics.anti_diamond_loss == metrics.policy_loss == metrics.illegal_mass == 0
    # A sum of probabilities in float32, whose last bit depends on the processor.
    assert metrics.orbit_mass == pytest.approx(1, abs=1e-6)
    assert metrics.retention == 0
    assert metrics.gradient_norm == 0
    assert same_tensors(weights(state.model), weights(tiny_model()))


def test_a_short_record_listed_says_what_its_partial_order_does():
    for number in range(12):
        for n in (2, 3, 4):
            record = poset_record(number, num_operations=n, share=0.5)
            listed = record.listed()
            orders = zip(all_orders(n), listed.legal, strict=True)
            assert {o for o, legal in orders if legal} == {
                o for o in all_orders(n) if record.order.allows(o)
            }
            for one, other in listed.histories:
                assert record.order.allows(one)
                assert record.order.allows(other)


@pytest.mark.parametrize("estimate", [EXACT, SAMPLED], ids=["exact", "sampled"])
@pytest.mark.parametrize("name", sorted({*METHODS} - {"outcome-grpo"}))
def test_records_of_one_step_alone_teach_nothing_and_always_pass(name, estimate):
    before = weights(tiny_model())
    state, metrics = train(
        name, 2, estimate=estimate, some=[poset_record(k, num_operations=1) for k in range(3)]
    )
    assert [each.orbit_mass for each in metrics] == [1, 1]
    assert [each.mean_reward for each in metrics] == [1, 1]
    assert all(np.isfinite([*each.values.values()]).all() for each in metrics)
    assert same_tensors(weights(state.model), before)
