"""What an update's log says of the policy that drew its samples, and of the policy of its last epoch."""

from __future__ import annotations

import pytest
import torch

from configs import resolved as config
from training_fixtures import ENCODE, answering_model, supervised_records, tiny_model, weights
from vcrt.orders import all_orders
from vcrt_train.training.items import encode_items
from vcrt_train.training.methods import method
from vcrt_train.training.orbit_masses import orbit_log_masses
from vcrt_train.training.update import new_state, update

#: So large that one step moves the masses by more than any rounding.
RATE = 1e-2


def naive_mass(model, item, interface):
    """The probability of an item's certified orders, each scored by itself, one choice after another."""
    found = 0.0
    for order, legal in zip(
        all_orders(item.prompt.num_operations), item.listed.members.tolist(), strict=True
    ):
        if not legal:
            continue
        tokens, left, probability = list(item.prompt.token_ids), list(order), 1.0
        for slot in order:
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1]
            ids = [item.prompt.pointer_ids[other] for other in left]
            whole = range(len(logits)) if interface == "tokens" else ids
            token = item.prompt.pointer_ids[slot]
            probability *= float((logits[token] - logits[list(whole)].logsumexp(0)).exp())
            tokens.append(token)
            left.remove(slot)
        found += probability
    return found


def updated(name, epochs):
    """The metrics of one update, its items, and the model before and after."""
    chosen = method(name)
    make = answering_model if chosen.interface == "tokens" else tiny_model
    before, model = make(), make()
    items = encode_items(supervised_records(2), chosen, seed=0, encode=ENCODE)
    # So many that some answer in free tokens succeeds.
    settings = config(learning_rate=RATE, epochs_per_update=epochs, samples_per_prompt=64)
    state = new_state(model, settings, seed=0)
    frozen = orbit_log_masses(model, items, interface=chosen.interface)
    return update(state, items, frozen, method=chosen, config=settings), items, before, model


@pytest.mark.parametrize("name", ["vcrt", "canonical-grpo", "outcome-grpo"])
def test_the_logged_masses_are_of_the_policy_that_sampled(name):
    interface = method(name).interface
    metrics, items, before, _ = updated(name, epochs=2)
    expected = sum(naive_mass(before, item, interface) for item in items) / 2
    assert metrics.orbit_mass == pytest.approx(expected, abs=1e-5)
    assert metrics.orbit_mass + metrics.illegal_mass + metrics.malformed_mass == pytest.approx(1)
    # The last of two epochs sees the model after one step, which is where an update of one epoch ends.
    single, _, _, stepped = updated(name, epochs=1)
    after = sum(naive_mass(stepped, item, interface) for item in items) / 2
    assert metrics.orbit_mass_last_epoch == pytest.approx(after, abs=1e-5)
    assert abs(after - expected) > 3e-4
    assert single.orbit_mass_last_epoch == single.orbit_mass == metrics.orbit_mass
    assert single.mean_reward == metrics.mean_reward


def test_the_reward_is_of_the_samples_whatever_the_steps_do():
    """Samples are drawn once, before the first step."""
    rewards = {updated("vcrt", epochs)[0].mean_reward for epochs in (1, 2, 4)}
    assert len(rewards) == 1
    first, second = (weights(updated("vcrt", epochs)[3]) for epochs in (1, 2))
    assert any(not torch.equal(first[key], second[key]) for key in first)
