"""An update on drawn prefixes: it begins where the policy is, repeats, and climbs like the exact one."""

import numpy as np
import pytest
import torch

from tabular_policy import random_order
from training_fixtures import ENCODE, same_tensors, tiny_model, update_pairs, weights
from vcrt.errors import RunError
from vcrt.partial_orders import PartialOrder, num_legal_prefixes, num_linear_extensions
from vcrt.policy.scoring import score_orders
from vcrt.records.policy_view import PointerRelation, PolicyRecord
from vcrt.records.supervision import PosetRecord
from vcrt.training.batch_trees import EstimateConfig
from vcrt.training.items import encode_items
from vcrt.training.legal_trees import swaps_along
from vcrt.training.methods import method
from vcrt.training.orbit_masses import orbit_log_masses
from vcrt.training.update import UpdateConfig, new_state

EXACT = EstimateConfig(max_legal_prefixes=100_000)
SAMPLED = EstimateConfig(max_legal_prefixes=0, num_paths=16)
METHODS = (
    "canonical-grpo",
    "vcrt",
    "no-orbit",
    "shuffled-orbit",
    "no-anti",
    "shuffled-all",
    "margin-only",
)


def poset_record(number, num_operations=6, share=0.2):
    """A record with the directed relations of a random partial order, and that order."""
    order = random_order(num_operations, number, share)
    draw = np.random.default_rng(number)
    pointers = tuple(sorted(int(p) for p in draw.permutation(8)[:num_operations]))
    relations = tuple(
        sorted(
            PointerRelation(a, b, str(draw.choice(["precedes", "conflicts"])))
            for a, b in order.pairs
        )
    )
    record = PolicyRecord(record_id=f"record {number}", pointers=pointers, relations=relations)
    return PosetRecord(record=record, order=order)


def records(count=4, **how):
    return [poset_record(number, **how) for number in range(count)]


def train(name, updates, *, estimate=EXACT, seed=0, rate=1e-3, some=None, **settings):
    chosen, model = method(name), tiny_model()
    items = encode_items(some or records(), chosen, seed=0, encode=ENCODE)
    frozen = orbit_log_masses(model, items, interface="pointers", config=estimate, seed=0)
    state = new_state(model, seed=seed, learning_rate=rate)
    config = UpdateConfig(estimate=estimate, **settings)
    return state, update_pairs(state, items, frozen, updates, method=chosen, config=config)


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
    from tabular_policy import members

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
    some_fit = EstimateConfig(max_legal_prefixes=bound, num_paths=16)
    fits = [size <= bound for size in sizes]
    assert len(set(fits)) == 2
    found = orbit_log_masses(model, items, interface="pointers", config=some_fit, seed=0)
    for number, exact in enumerate(fits):
        close = found[number].item() == pytest.approx(whole[number].item(), abs=1e-5)
        assert close == exact


@pytest.mark.parametrize("estimate", [EXACT, SAMPLED], ids=["exact", "sampled"])
def test_the_orbits_mass_grows(estimate):
    """Forty updates on four records of six operations with the margin: the mass of legal orders more than doubles."""
    _, metrics = train("vcrt", 40, estimate=estimate, some=records(share=0.35))
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


def test_answers_in_tokens_are_refused():
    with pytest.raises(RunError, match="answers through pointers"):
        train("outcome-grpo", 1)


@pytest.mark.parametrize("wrong", [{"num_paths": 1}, {"num_swaps": -1}, {"max_legal_prefixes": -1}])
def test_settings_that_cannot_be_are_refused(wrong):
    with pytest.raises(ValueError, match="must"):
        EstimateConfig(**wrong)


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
