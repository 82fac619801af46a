"""An update on drawn prefixes: it begins where the policy is, repeats, and climbs like the exact one."""

import math
from collections import Counter

import numpy as np
import pytest
import torch

from sampled_training import EXACT, SAMPLED, poset_record, records, train
from tabular_policy import members
from training_fixtures import ENCODE, same_tensors, tiny_model, weights
from vcrt.errors import ConfigError, RunError, TooLargeError
from vcrt.partial_orders import PartialOrder, num_legal_prefixes, num_linear_extensions
from vcrt.records.supervision import PosetRecord
from vcrt_train.config import EstimatorConfig
from vcrt_train.policy.scoring import score_orders
from vcrt_train.training.batch_trees import draw_trees
from vcrt_train.training.items import encode_items
from vcrt_train.training.legal_trees import swaps_along, uniform_orders
from vcrt_train.training.methods import method
from vcrt_train.training.orbit_masses import orbit_log_masses

METHODS = (
    "canonical-grpo",
    "vcrt",
    "no-orbit",
    "shuffled-orbit",
    "no-anti",
    "shuffled-all",
    "margin-only",
    "augmentation",
    "exact-log-odds",
    "both-classes",
    "step-groups",
    "uniform-orbit",
)


@pytest.mark.parametrize("estimate", [EXACT, SAMPLED], ids=["exact", "sampled"])
@pytest.mark.parametrize("name", METHODS)
def test_the_first_epoch_begins_at_the_behaviour_policy(name, estimate):
    _, (metrics,) = train(name, 1, estimate=estimate)
    assert metrics.start_log_ratio == 0
    assert metrics.orbit_mass + metrics.illegal_mass == pytest.approx(1, abs=1e-5)
    assert metrics.malformed_mass == 0
    assert np.isfinite(metrics.gradient_norm)
    assert metrics.gradient_norm > 0 or name == "canonical-grpo"


@pytest.mark.parametrize("estimate", [EXACT, SAMPLED], ids=["exact", "sampled"])
def test_equal_arguments_give_equal_bits_also_in_parts(estimate):
    one, metrics = train("vcrt", 3, estimate=estimate)
    other, again = train("vcrt", 3, estimate=estimate)
    assert metrics == again
    assert same_tensors(weights(one.model), weights(other.model))
    _, parts = train("vcrt", 3, estimate=estimate, prompts_at_a_time=1)
    for whole, part in zip(metrics, parts, strict=True):
        assert part.loss == pytest.approx(whole.loss, abs=1e-4)
        assert part.mean_reward == whole.mean_reward


def test_exact_masses_are_those_of_all_orders():
    model, some = tiny_model(), records(num_operations=5)
    items = encode_items(some, method("vcrt"), seed=0, encode=ENCODE)
    found = orbit_log_masses(model, items, interface="pointers", config=EXACT, seed=0)
    with torch.no_grad():
        scores = score_orders(model, [item.prompt for item in items], interface="pointers")
    for number, item in enumerate(items):
        inside = members(item.orbit)
        expected = scores.order_log_probs[number][inside].logsumexp(0)
        assert found[number].item() == pytest.approx(expected.item(), abs=1e-4)
    estimated = orbit_log_masses(model, items, interface="pointers", config=SAMPLED, seed=0)
    assert torch.allclose(estimated, found, atol=0.3)


def test_what_fits_is_exact_whatever_is_beside_it():
    model = tiny_model()
    some = [*records(3, num_operations=5, share=0.1), *records(3, num_operations=5, share=0.9)]
    items = encode_items(some, method("vcrt"), seed=0, encode=ENCODE)
    whole = orbit_log_masses(model, items, interface="pointers", config=EXACT, seed=0)
    sizes = [num_legal_prefixes(item.orbit, 3, 10**6) for item in items]
    bound = sorted(sizes)[2]
    some_fit = EstimatorConfig(max_legal_prefixes=bound, num_paths=16)
    fits = [size <= bound for size in sizes]
    assert len(set(fits)) == 2
    found = orbit_log_masses(model, items, interface="pointers", config=some_fit, seed=0)
    for number, exact in enumerate(fits):
        close = found[number].item() == pytest.approx(whole[number].item(), abs=1e-5)
        assert close == exact


@pytest.mark.parametrize("estimate", [EXACT, SAMPLED], ids=["exact", "sampled"])
def test_the_orbits_mass_grows(estimate):
    """Twenty-five updates on four records of six operations with the margin: the mass of legal orders doubles."""
    _, metrics = train("vcrt", 25, estimate=estimate, some=records(share=0.35))
    first, last = (
        np.mean([each.orbit_mass for each in some]) for some in (metrics[:4], metrics[-4:])
    )
    assert last > 2 * first


def test_an_estimate_depends_on_its_own_record_alone():
    """Neither on what is beside it nor on how many are scored at once, but for the last bits."""
    model, some = tiny_model(), records(6, num_operations=6, share=0.3)
    items = encode_items(some, method("vcrt"), seed=0, encode=ENCODE)
    whole = orbit_log_masses(model, items, interface="pointers", config=SAMPLED, seed=0)
    for batch_size in (1, 4):
        parts = orbit_log_masses(
            model, items, interface="pointers", config=SAMPLED, seed=0, batch_size=batch_size
        )
        assert torch.allclose(parts, whole, atol=1e-5)
    backwards = orbit_log_masses(model, items[::-1], interface="pointers", config=SAMPLED, seed=0)
    assert torch.allclose(backwards.flip(0), whole, atol=1e-5)
    again = orbit_log_masses(model, items, interface="pointers", config=SAMPLED, seed=1)
    assert not torch.allclose(again, whole, atol=1e-3)


def test_a_swap_and_its_reverse_are_one():
    order = PartialOrder.of(5, [(0, 4)])
    forth = swaps_along(order, (0, 1, 2, 3, 4))
    back = swaps_along(order, (1, 0, 2, 3, 4))
    assert set(forth[:1]) == set(back[:1])
    assert len({*forth, *back}) < len(forth) + len(back)
    assert all(swap.one < swap.other for swap in (*forth, *back))


def test_a_shuffled_orbit_is_never_the_certified_one():
    some = records(200, num_operations=5, share=0.05)
    items = encode_items(some, method("shuffled-orbit"), seed=0, encode=ENCODE)
    related = [item for item in items if item.orbit.pairs]
    assert len(related) > 50
    assert all(item.credit != item.orbit for item in related)


def test_a_shuffled_orbit_is_as_large_as_the_certified_one():
    some = records(8, share=0.3)
    items = encode_items(some, method("shuffled-orbit"), seed=0, encode=ENCODE)
    assert [num_linear_extensions(item.credit) for item in items] == [
        num_linear_extensions(item.orbit) for item in items
    ]
    assert any(item.credit != item.orbit for item in items)


@pytest.mark.parametrize("scheme", ["independent", "systematic"])
def test_augmentation_draws_certified_orders_alike(scheme):
    """Systematic ones are each as often as any other, if they are a multiple of the orders; independent ones nearly."""
    items = encode_items(records(2), method("augmentation"), seed=0, encode=ENCODE)
    num = [num_linear_extensions(item.orbit) for item in items]
    num_paths = math.lcm(*num) * (1 if scheme == "systematic" else 20)
    estimate = EstimatorConfig(max_legal_prefixes=0, num_paths=num_paths, scheme=scheme)
    drawn = draw_trees(
        tiny_model(),
        items,
        method=method("augmentation"),
        num_samples=8,
        config=estimate,
        backend="auto",
        generator=torch.Generator().manual_seed(1),
    )
    for item, count, orders in zip(items, num, drawn.uniform_paths, strict=True):
        often = Counter(orders)
        expected = estimate.num_paths / count
        assert len(often) == count > 1
        assert all(item.is_legal(order) for order in often)
        spread = 0 if scheme == "systematic" else 5 * expected**0.5
        assert all(abs(times - expected) <= spread for times in often.values())


@pytest.mark.parametrize("estimate", [EXACT, SAMPLED], ids=["exact", "sampled"])
def test_augmentation_spreads_the_policy_over_the_certified_orders(estimate):
    """What is trained by drawn orders is measured by all of them: towards the logarithm of their number."""
    some = records(share=0.35)
    state, _ = train("augmentation", 25, estimate=estimate, some=some, rate=5e-3)
    items = encode_items(some, method("augmentation"), seed=0, encode=ENCODE)
    with torch.no_grad():
        prompts = [item.prompt for item in items]
        before, after = (
            score_orders(model, prompts, interface="pointers").order_log_probs
            for model in (tiny_model(), state.model)
        )
    for number, item in enumerate(items):
        inside = members(item.orbit)
        least = math.log(inside.sum())
        first, last = (-scores[number][inside].mean().item() for scores in (before, after))
        assert least < last < least + (first - least) / 2


def test_augmentation_of_orders_that_cannot_be_counted_is_refused():
    with pytest.raises(TooLargeError, match="leave the method augmentation out"):
        uniform_orders(PartialOrder.of(21, []), 4, "systematic", torch.Generator())


def test_answers_in_tokens_are_refused():
    with pytest.raises(RunError, match="answers through pointers"):
        train("outcome-grpo", 1)


@pytest.mark.parametrize("wrong", [{"num_paths": 1}, {"num_swaps": -1}, {"max_legal_prefixes": -1}])
def test_settings_that_cannot_be_are_refused(wrong):
    with pytest.raises(ConfigError, match=f"estimator.{next(iter(wrong))} is not possible"):
        EstimatorConfig(**wrong)


def test_orders_without_pairs_and_with_one_legal_order():
    free, chain = PartialOrder.of(6, []), PartialOrder.of(6, [(k, k + 1) for k in range(5)])
    base = poset_record(0)
    some = [PosetRecord(record=base.record, order=order) for order in (free, chain)]
    for estimate in (EXACT, SAMPLED):
        _, (metrics,) = train("vcrt", 1, estimate=estimate, some=some)
        assert np.isfinite(metrics.loss)
        assert np.isfinite(metrics.gradient_norm)


def test_the_log_says_how_far_the_mass_can_be_trusted():
    _, (exact,) = train("vcrt", 1)
    assert (exact.orbit_log_mass_error, exact.effective_path_share) == (0, 0)
    _, (sampled,) = train("vcrt", 1, estimate=SAMPLED)
    assert 0 < sampled.orbit_log_mass_error < 1
    assert 1 / 16 < sampled.effective_path_share <= 1
    assert {"orbit_log_mass_error", "effective_path_share"} <= set(sampled.to_json())
