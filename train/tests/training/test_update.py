"""The method table, encoding, and one online update against Algorithm 1 written out by hand."""

import math
import statistics
from dataclasses import replace

import numpy as np
import pytest
import torch

from configs import resolved as config
from listed_training import train
from training_fixtures import (
    ENCODE,
    answering_model,
    same_tensors,
    supervised_record,
    supervised_records,
    tiny_model,
    weights,
)
from vcrt.errors import MalformedInputError, RunError, UnknownNameError
from vcrt.orders import all_orders
from vcrt_train.config import ObjectiveConfig
from vcrt_train.objective.terms import constrained
from vcrt_train.objective.total import next_duals, objective
from vcrt_train.policy.prefix_tree import order_tree
from vcrt_train.policy.scoring import score_orders
from vcrt_train.training.batch_trees import draw_trees, freeze, sample_events
from vcrt_train.training.items import encode_items
from vcrt_train.training.methods import METHODS, PAPER_METHODS, method
from vcrt_train.training.orbit_masses import orbit_log_masses
from vcrt_train.training.update import (
    new_state,
    update,
)

OBJECTIVE, CONFIG = ObjectiveConfig(), config()


# The table.

#: What the paper's methods are compared with, to tell what an order is worth.
REFERENCES = {
    "exact-reward": (("reward_loss",), "trajectory", "none"),
    "exact-log-reward": (("log_reward_loss",), "trajectory", "none"),
    "exact-log-odds": (("log_odds_loss",), "trajectory", "none"),
    "both-classes": (("policy_loss",), "both_classes", "none"),
    "margin-alone": (("anti_diamond_loss",), "trajectory", "none"),
    "orbit-commutation": (("policy_loss", "commutation"), "orbit", "none"),
    "orbit-retention": (("policy_loss", "retention"), "orbit", "none"),
    "orbit-action-kl": (("policy_loss", "action_kl"), "orbit", "none"),
    "scaled-grpo": (("policy_loss",), "trajectory", "group"),
    "step-groups": (("policy_loss",), "steps", "none"),
    "uniform-orbit": (("policy_loss", "uniformity"), "orbit", "none"),
}


def test_the_table_is_the_papers():
    view = {"outcome-grpo": ("tokens", "shuffled")}
    assert {n: (m.interface, m.serialisation) for n, m in METHODS.items()} == {
        n: view.get(n, ("pointers", "sorted")) for n in METHODS
    }
    rows = {
        name: (
            "policy_loss" in m.terms,
            m.ratio,
            m.margin if "anti_diamond_loss" in m.terms else None,
            {*constrained()} <= {*m.terms},
            *(name in m.terms for name in ("contrastive_loss", "augmentation_loss")),
        )
        for name, m in METHODS.items()
        if name not in REFERENCES
    }
    assert rows == {
        "outcome-grpo": (True, "trajectory", None, False, False, False),
        "canonical-grpo": (True, "trajectory", None, False, False, False),
        "vcrt": (True, "orbit", "native", True, False, False),
        "no-orbit": (True, "trajectory", "native", True, False, False),
        "shuffled-orbit": (True, "shuffled_orbit", "native", True, False, False),
        "no-anti": (True, "orbit", None, True, False, False),
        "shuffled-all": (True, "shuffled_orbit", "shuffled", True, False, False),
        "margin-only": (False, "orbit", "native", True, False, False),
        "no-constraints": (True, "orbit", "native", False, False, False),
        "orbit-grpo": (True, "orbit", None, False, False, False),
        "contrastive": (True, "trajectory", None, False, True, False),
        "augmentation": (False, "trajectory", None, False, False, True),
    }
    assert all({*constrained()} & {*METHODS[n].terms} in (set(), {*constrained()}) for n in rows)
    references = {
        n: (m.terms, m.ratio, m.scale_rewards) for n, m in METHODS.items() if n not in rows
    }
    assert references == REFERENCES
    assert all(
        m.needs_certified_failures == (n in ("both-classes", "exact-log-odds"))
        for n, m in METHODS.items()
    )
    assert tuple(METHODS)[:6] == PAPER_METHODS
    assert all(name == row.name for name, row in METHODS.items())


@pytest.mark.parametrize(
    "wrong",
    [
        {"margin": "shuffled"},
        {"terms": ("retention",)},
        {"terms": ("policy_los",)},
        {"ratio": "steps", "interface": "tokens"},
        {"ratio": "steps", "scale_rewards": "group"},
        {"ratio": "orbits"},
        {"margin": "certified"},
        {"scale_rewards": "batch"},
        {"interface": "words"},
        {"serialisation": "random"},
    ],
)
def test_a_row_that_contradicts_itself_is_refused(wrong):
    with pytest.raises(ValueError, match="vcrt"):
        replace(method("vcrt"), **wrong)


def test_unknown_method_is_named_with_a_suggestion():
    with pytest.raises(UnknownNameError, match="did you mean 'vcrt'"):
        method("vctr")


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("canonical-grpo", {"ratio": "trajectory", "terms": ("policy_loss",)}),
        ("no-orbit", {"ratio": "trajectory"}),
        ("no-anti", {"terms": method("vcrt").without("anti_diamond_loss")}),
        ("margin-only", {"terms": method("vcrt").without("policy_loss")}),
        ("shuffled-all", {"ratio": "shuffled_orbit", "margin": "shuffled"}),
    ],
)
def test_methods_differ_from_vcrt_by_what_the_table_says(name, changes):
    by_name, _ = train(name, 4)
    by_fields, _ = train(None, 4, chosen=replace(method("vcrt"), **changes))
    vcrt, _ = train("vcrt", 4)
    assert same_tensors(weights(by_name.model), weights(by_fields.model))
    assert not same_tensors(weights(by_name.model), weights(vcrt.model))


def test_methods_with_one_interface_start_from_the_same_samples():
    first = {name: train(name, 1)[1][0] for name in METHODS if name != "outcome-grpo"}
    assert len({m.mean_reward for m in first.values()}) == 1
    assert len({m.zero_advantage_share for m in first.values()}) == 1


def test_singleton_orbits_make_the_orbit_ratio_the_trajectory_ratio():
    records = [
        replace(record, legal=tuple(column == 3 for column in range(24)))
        for record in supervised_records(6)
    ]
    settings = {"records": records, "samples_per_prompt": 64}
    orbit, metrics = train("vcrt", 3, **settings)
    trajectory, _ = train("no-orbit", 3, **settings)
    assert any(m.mean_reward > 0 for m in metrics)
    for name, tensor in weights(orbit.model).items():
        torch.testing.assert_close(tensor, weights(trajectory.model)[name], rtol=0, atol=1e-5)


# Supervision and encoding.


@pytest.mark.parametrize(
    "wrong",
    [
        {"legal": (True,) * 23},
        {"legal": (False,) * 24},
        {"histories": (((0, 1), (0, 1)),)},
        {"histories": (((0, 1), (2, 1)),)},
        {"histories": (((0, 0), (0, 0)),)},
        {"histories": (((0, 4), (4, 0)),)},
        {"histories": (((0,), (0,)),)},
        {"histories": (((2, 0, 1), (2, 1, 0)),)},
    ],
    ids=str,
)
def test_supervision_that_does_not_fit_its_record_is_refused(wrong):
    with pytest.raises(MalformedInputError, match="synthetic-0"):
        replace(supervised_record(0), **wrong)


def test_encoding_depends_on_seed_and_record_alone():
    records = supervised_records(8)
    for chosen in METHODS.values():
        items = encode_items(records, chosen, seed=5, encode=ENCODE)
        (alone,) = encode_items(records[3:4], chosen, seed=5, encode=ENCODE)
        assert alone.prompt == items[3].prompt
        assert (alone.credit is None) == (items[3].credit is None)
        if alone.credit is not None:
            assert torch.equal(alone.credit.members, items[3].credit.members)
    first, second = (
        encode_items(records, method("outcome-grpo"), seed=seed, encode=ENCODE) for seed in (5, 6)
    )
    assert [i.prompt for i in first] != [i.prompt for i in second]


def test_records_that_differ_in_name_alone_are_rendered_independently():
    record = supervised_record(0)
    twins = [
        replace(record, record=replace(record.record, record_id=f"twin-{index}"))
        for index in range(6)
    ]
    items = encode_items(twins, method("outcome-grpo"), seed=0, encode=ENCODE)
    assert len({item.prompt.token_ids for item in items}) == len(twins)


def test_swaps_become_rows_of_the_methods_own_tree():
    record = supervised_record(1)
    assert record.histories
    for name, depth in (("vcrt", 2), ("outcome-grpo", 3)):
        chosen, model = method(name), tiny_model()
        items = encode_items([record], chosen, seed=0, encode=ENCODE)
        batch = frozen_batch(model, items, torch.zeros(1), chosen, torch.Generator())
        prefixes = order_tree(4, depth).prefixes
        found = [(prefixes[ab], prefixes[ba]) for _, ab, ba in batch.histories.tolist()]
        assert found == list(record.histories)


def test_shuffled_orbits_have_the_orbits_size_but_not_its_members():
    records = supervised_records(40)
    items = encode_items(records, method("shuffled-orbit"), seed=0, encode=ENCODE)
    pairs = [(item.credit.members, item.orbit.members) for item in items]
    assert all(credit.sum() == legal.sum() == 12 for credit, legal in pairs)
    overlap = sum(int((credit & legal).sum()) for credit, legal in pairs) / (12 * len(items))
    assert overlap == pytest.approx(0.5, abs=0.06)
    assert len({tuple(credit.tolist()) for credit, _ in pairs}) == len(items)


def test_items_of_another_method_are_refused():
    items = encode_items(supervised_records(2), method("canonical-grpo"), seed=0, encode=ENCODE)
    state = new_state(tiny_model(), config(learning_rate=1e-3), seed=0)
    with pytest.raises(ValueError, match="not encoded for the method 'vcrt'"):
        update(
            state,
            items,
            torch.zeros(2),
            method=method("vcrt"),
            config=CONFIG,
        )


@pytest.mark.parametrize("interface", ["pointers", "tokens"])
def test_orbit_log_masses_sum_the_naive_probabilities(interface):
    model = tiny_model()
    name = "vcrt" if interface == "pointers" else "outcome-grpo"
    items = encode_items(supervised_records(5), method(name), seed=0, encode=ENCODE)
    found = orbit_log_masses(model, items, interface=interface, batch_size=2)
    for item, log_mass in zip(items, found.tolist(), strict=True):
        scores = score_orders(model, [item.prompt], interface=interface, backend="naive")
        inside = scores.order_log_probs[0][item.orbit.members].exp().sum().item()
        assert math.exp(log_mass) == pytest.approx(inside, rel=1e-5)


# Sampling.


def test_samples_follow_the_scored_distribution():
    probabilities = torch.tensor([[0.5, 0.0, 0.3, 0.2], [0.0, 0.01, 0.0, 0.99]])
    draws = sample_events(probabilities.log(), 100_000, torch.Generator().manual_seed(1))
    for row, drawn in zip(probabilities, draws, strict=True):
        counts = torch.bincount(drawn, minlength=4)
        assert (counts[row == 0] == 0).all()
        expected = row[row > 0].double() * 100_000
        chi_square = ((counts[row > 0] - expected) ** 2 / expected).sum()
        assert chi_square < 14  # 99.9% quantile with 2 degrees of freedom


def test_a_sample_inverts_the_cumulative_distribution():
    log_probs = torch.randn(3, 25, generator=torch.Generator().manual_seed(2)).log_softmax(-1)
    found = sample_events(log_probs, 50, torch.Generator().manual_seed(9))
    uniform = torch.rand(3, 50, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    for b in range(3):
        probabilities = log_probs[b].double().exp()
        for g in range(50):
            reached, event = 0.0, -1
            while reached <= uniform[b, g] * probabilities.sum():
                event += 1
                reached += probabilities[event].item()
            assert found[b, g] == event


# One update.


def rows_of(item, tree):
    """The rows after both sides of each certified swap."""
    return [[tree.row_of[ab], tree.row_of[ba]] for ab, ba in item.orbit.swaps]


START_DUALS = {"commutation": 0.2, "retention": 0.7, "action_kl": 3.0}


def _by_hand(name, items, frozen, *, seed, rate):
    """Algorithm 1 on scalars, with every order scored by itself; the model, the last loss, values, next duals."""
    chosen, model = method(name), answering_model()
    tokens = chosen.interface == "tokens"
    tree = order_tree(4, 3 if tokens else 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)

    def score():
        scores = score_orders(
            model,
            [item.prompt for item in items],
            interface=chosen.interface,
            backend="naive",
        )
        events = [list(row) for row in scores.order_log_probs]
        if tokens:
            for row, malformed in zip(events, scores.malformed_log_prob, strict=True):
                row.append(malformed)
        return scores.choice_log_probs, events

    with torch.no_grad():
        old_choices, old = score()
        matrix = torch.tensor(old)
    samples = sample_events(
        matrix, 8, new_state(model, config(learning_rate=rate), seed=seed).generator
    )
    caps = {"commutation": 0.01, "retention": 0.05, "action_kl": 0.20}
    for _ in range(2):
        choices, new = score()
        loss = torch.zeros(())
        retention, kl, js = [], [], []
        scores, right = ([[] for _ in items] for _ in range(2))
        for b, item in enumerate(items):
            inside = [c for c in range(24) if item.orbit.members[c]]
            credit = [] if item.credit is None else [c for c in range(24) if item.credit.members[c]]
            failing = [c for c in range(len(new[b])) if c not in inside]
            rewards = [1.0 if s in inside else 0.0 for s in samples[b].tolist()]
            drawn = [all_orders(4)[event] for event in samples[b].tolist()] if not tokens else []
            for i, event in enumerate(samples[b].tolist()):
                advantage = rewards[i] - (sum(rewards) - rewards[i]) / 7
                if chosen.scale_rewards == "group":
                    advantage /= statistics.stdev(rewards) + 1e-4
                if chosen.ratio == "steps":
                    for t in range(3):
                        at = [
                            rewards[j]
                            for j in range(8)
                            if j != i and met(item, drawn[i], drawn[j], t)
                        ]
                        own = advantage + (rewards[i] - sum(at) / len(at) if at else 0)
                        place = b, tree.row_of[drawn[i][:t]], drawn[i][t]
                        rho = (choices[place] - old_choices[place]).exp()
                        bounded = min(max(rho.item(), 0.8), 1.2)
                        clipped = torch.tensor(bounded) if rho.item() != bounded else rho
                        loss = loss - torch.minimum(rho * own, clipped * own) / 48
                    continue
                if not rewards[i] and chosen.ratio == "both_classes":
                    rho = sum(new[b][c].exp() for c in failing) / sum(
                        old[b][c].exp() for c in failing
                    )
                elif rewards[i] and credit:
                    rho = sum(new[b][c].exp() for c in credit) / sum(
                        old[b][c].exp() for c in credit
                    )
                else:
                    rho = (new[b][event] - old[b][event]).exp()
                bounded = min(max(rho.item(), 0.8), 1.2)
                clipped = torch.tensor(bounded) if rho.item() != bounded else rho
                if "policy_loss" in chosen.terms:
                    loss = loss - torch.minimum(rho * advantage, clipped * advantage) / 16
                scores[b].append((new[b][event] / tree.num_choices).exp())
                right[b].append(rewards[i])
            z = sum(new[b][c].exp() for c in inside)
            if "anti_diamond_loss" in chosen.terms:
                legal = credit if chosen.margin == "shuffled" else inside
                mass = sum(new[b][c].exp() for c in legal)
                rest = sum(new[b][c].exp() for c in range(24) if c not in legal)
                delta = mass.log() - rest.log()
                loss = loss + 0.1 * 0.5 * torch.relu(2.0 - delta) ** 2 / 2
            if "augmentation_loss" in chosen.terms:
                loss = loss - sum(new[b][c] for c in inside) / len(inside) / len(items)
            rest = sum(new[b][c].exp() for c in failing)
            if "reward_loss" in chosen.terms:
                loss = loss - z / len(items)
            if "log_reward_loss" in chosen.terms:
                loss = loss - z.log() / len(items)
            if "log_odds_loss" in chosen.terms:
                loss = loss - (z / rest).log() / len(items)
            if "uniformity" in chosen.terms:
                shares = [new[b][c].exp() / z for c in inside]
                loss = loss + 0.1 * sum(s * (s * len(inside)).log() for s in shares) / len(items)
            retention.append(frozen[b].exp() - z)
            kl.append(
                sum(o.exp() * (o - x) for o, x in zip(old[b], new[b], strict=True))
                / tree.num_choices
            )
            for ab, ba in rows_of(item, tree):
                rest = [s for s in range(4) if s not in tree.prefixes[ab]]
                p, q = (choices[b, row, rest].softmax(-1) for row in (ab, ba))
                middle = (p + q) / 2
                js.append(((p * (p / middle).log()) + q * (q / middle).log()).sum() / 2)
        values = {
            "commutation": sum(js) / len(js),
            "retention": sum(retention) / 2,
            "action_kl": sum(kl) / 2,
        }
        if "contrastive_loss" in chosen.terms:
            pools = [(scores[b], right[b], 2 * len(items)) for b in range(len(items))]
            for pool, flags, weight in [
                *pools,
                ([*scores[0], *scores[1]], [*right[0], *right[1]], 2),
            ]:
                if 0 < sum(flags) < len(flags):
                    share = sum(s for s, f in zip(pool, flags, strict=True) if f) / sum(pool)
                    loss = loss - 0.1 * share.log() / weight
        pulls = {k: START_DUALS[k] + 10 * (values[k] - caps[k]) for k in values}
        for k in pulls.keys() & {*chosen.terms}:
            loss = loss + (torch.relu(pulls[k]) ** 2 - START_DUALS[k] ** 2) / 20
        optimizer.zero_grad()
        loss.backward()
        norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
        for parameter in model.parameters():
            parameter.grad *= min(1.0, 1.0 / norm.item())
        optimizer.step()
    moved = {k: max(0.0, pulls[k].item()) for k in pulls.keys() & {*chosen.terms}}
    return model, loss.item(), values, START_DUALS | moved


def met(item, one, other, t):
    """Whether two orders are at one state before their choice t, of three."""
    ends = {one[:t], other[:t]}
    return len(ends) == 1 or tuple(sorted(ends)) in {
        tuple(sorted(swap)) for swap in item.orbit.swaps
    }


@pytest.mark.parametrize("name", sorted(METHODS))
def test_one_update_is_algorithm_one(name):
    items = encode_items(supervised_records(2), method(name), seed=3, encode=ENCODE)
    # Far above what the policy can reach, so that the retention penalty and its multiplier act.
    frozen = torch.tensor([0.95, 0.9]).log()
    expected, loss, values, duals = _by_hand(name, items, frozen, seed=3, rate=1e-3)
    model = answering_model()
    before = weights(model)
    state = new_state(model, config(learning_rate=1e-3), seed=3)
    state.duals = dict(START_DUALS)
    metrics = update(
        state,
        items,
        frozen,
        method=method(name),
        config=CONFIG,
    )
    moved = 0.0
    for key, tensor in weights(model).items():
        # Adam divides by the gradient's size, so entries with a gradient near 0 may differ by a part of one step.
        difference = (tensor - expected.state_dict()[key]).abs()
        assert difference.mean() < 2e-6
        moved = max(moved, (tensor - before[key]).abs().mean().item())
    assert moved > 1e-3
    assert 0 < metrics.mean_reward < 1
    assert metrics.loss == pytest.approx(loss, abs=1e-5)
    for key, value in values.items():
        assert getattr(metrics, key) == pytest.approx(value.item(), rel=1e-3, abs=1e-7)
        assert value != 0
    assert state.duals == pytest.approx(duals, abs=1e-5)
    assert all(getattr(metrics, f"dual_{key}") == dual for key, dual in state.duals.items())
    assert state.update_index == metrics.update == 1


@pytest.mark.parametrize("name", sorted(METHODS))
def test_ratios_are_exactly_one_in_the_first_epoch(name):
    items = encode_items(supervised_records(2), method(name), seed=0, encode=ENCODE)
    state = new_state(answering_model(dropout=0.5), CONFIG, seed=0)
    for _ in range(4):
        # Even if somebody has switched dropout on in between.
        state.model.train()
        metrics = update(
            state,
            items,
            torch.full((2,), -0.5),
            method=method(name),
            config=CONFIG,
        )
        assert metrics.start_log_ratio == 0.0
    assert metrics.action_kl > 0


def frozen_batch(model, items, frozen, chosen, draws):
    """What an update fixes, from a forward pass of its own without gradient."""
    trees = draw_trees(
        model,
        items,
        method=chosen,
        num_samples=8,
        config=CONFIG.estimator,
        backend="auto",
        generator=draws,
    )
    with torch.no_grad():
        choices, *malformed = trees.score(model, items, range(len(items)), backend="auto")
    malformed = malformed[0] if malformed else None
    return freeze(
        trees, items, choices, malformed, frozen, method=chosen, num_samples=8, generator=draws
    )


def _with_the_behaviour_scored_by_itself(name, items, frozen, *, seed, updates):
    """Algorithm 1 with a forward of its own for the behaviour policy, and nothing kept between calls."""
    chosen, model = method(name), answering_model()
    state = new_state(model, config(learning_rate=1e-3), seed=seed)
    prompts = [item.prompt for item in items]
    for _ in range(updates):
        batch = frozen_batch(model, items, frozen, chosen, state.generator)
        for _ in range(2):
            scores = score_orders(model, prompts, interface=chosen.interface)
            found = objective(
                scores.choice_log_probs,
                scores.malformed_log_prob,
                batch,
                config=OBJECTIVE,
                terms=chosen.terms,
                duals=state.duals,
            )
            state.optimizer.zero_grad()
            found.loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            state.optimizer.step()
        state.duals = next_duals(found.values, state.duals, OBJECTIVE, chosen.terms)
    return state


@pytest.mark.parametrize("name", sorted(METHODS))
def test_scoring_the_behaviour_policy_by_itself_would_give_the_same_bits(name):
    items = encode_items(supervised_records(2), method(name), seed=3, encode=ENCODE)
    frozen = torch.tensor([0.95, 0.9]).log()
    expected = _with_the_behaviour_scored_by_itself(name, items, frozen, seed=3, updates=3)
    state = new_state(answering_model(), config(learning_rate=1e-3), seed=3)
    for _ in range(3):
        update(
            state,
            items,
            frozen,
            method=method(name),
            config=CONFIG,
        )
    assert same_tensors(weights(state.model), weights(expected.model))
    assert state.duals == expected.duals


@pytest.mark.parametrize("name", ["vcrt", "outcome-grpo"])
@pytest.mark.parametrize("num_epochs", [1, 2, 3])
def test_an_update_needs_one_forward_for_each_epoch(name, num_epochs):
    model, forwards = tiny_model(), []
    items = encode_items(supervised_records(2), method(name), seed=0, encode=ENCODE)
    state = new_state(model, config(learning_rate=1e-3), seed=0)
    with model.register_forward_hook(lambda *_: forwards.append(torch.is_grad_enabled())):
        metrics = update(
            state,
            items,
            torch.full((2,), -0.5),
            method=method(name),
            config=config(epochs_per_update=num_epochs),
        )
    assert forwards == [True] * num_epochs
    assert metrics.start_log_ratio == 0


def test_metrics_are_consistent_and_json():
    _, metrics = train("outcome-grpo", 3, model=answering_model())
    for index, m in enumerate(metrics):
        assert m.update == index + 1
        assert m.orbit_mass + m.illegal_mass + m.malformed_mass == pytest.approx(1, abs=1e-5)
        assert m.malformed_mass > 0.1
        assert all(isinstance(value, int | float) for value in m.to_json().values())
    _, metrics = train("vcrt", 3)
    assert all(m.malformed_mass == 0 for m in metrics)


def test_equal_seeds_give_equal_bits_and_other_seeds_do_not():
    first, again, other = (train("vcrt", 5, seed=seed)[0] for seed in (1, 1, 2))
    assert same_tensors(weights(first.model), weights(again.model))
    assert first.duals == again.duals
    assert not same_tensors(weights(first.model), weights(other.model))


def test_training_draws_nothing_from_global_generators():
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    train("vcrt", 1)
    assert torch.equal(torch.get_rng_state(), torch_before)
    assert (np.random.get_state()[1] == numpy_before).all()  # noqa: NPY002


def test_sixty_updates_of_vcrt_raise_the_orbit_mass():
    _, metrics = train("vcrt", 60, records=supervised_records(2), rate=1e-3)
    assert metrics[0].orbit_mass < 0.6
    assert metrics[-1].orbit_mass > 0.9
    assert metrics[-1].anti_diamond_loss < metrics[0].anti_diamond_loss / 4


def test_duals_rise_while_a_constraint_is_broken_and_stay_zero_without_constraints():
    impossible = torch.zeros(2)  # a frozen orbit mass of 1: the decline is about one half
    for name in ("vcrt", "canonical-grpo"):
        items = encode_items(supervised_records(2), method(name), seed=0, encode=ENCODE)
        asked = config(learning_rate=1e-5)
        state = new_state(tiny_model(), asked, seed=0)
        duals = []
        for _ in range(3):
            m = update(
                state,
                items,
                impossible,
                method=method(name),
                config=asked,
            )
            duals.append(m.dual_retention)
        if name == "vcrt":
            assert duals == sorted(duals)
            assert duals[0] == pytest.approx(10 * (m.retention - 0.05), rel=0.05)
        else:
            assert duals == [0, 0, 0]


def test_duals_may_move_in_each_epoch_as_in_the_papers_listing():
    impossible = torch.zeros(2)
    items = encode_items(supervised_records(2), method("vcrt"), seed=0, encode=ENCODE)
    moved = {}
    for when in ("update", "epoch"):
        asked = config(learning_rate=1e-9, epochs_per_update=3, dual_steps=when)
        state = new_state(tiny_model(), asked, seed=0)
        update(
            state,
            items,
            impossible,
            method=method("vcrt"),
            config=asked,
        )
        moved[when] = state.duals["retention"]
    # The policy hardly moves, so that each epoch adds the same.
    assert moved["epoch"] == pytest.approx(3 * moved["update"], rel=1e-3)


def test_numbers_that_are_not_finite_stop_training_before_the_step():
    chosen = method("vcrt")
    model = tiny_model()
    items = encode_items(supervised_records(2), chosen, seed=0, encode=ENCODE)
    state = new_state(model, config(learning_rate=1e-3), seed=0)
    before = weights(model)
    with pytest.raises(RunError, match="update 1"):
        update(
            state,
            items,
            torch.full((2,), torch.nan),
            method=chosen,
            config=CONFIG,
        )
    assert same_tensors(weights(model), before)


@pytest.mark.parametrize(
    "wrong", [{"samples_per_prompt": 1}, {"epochs_per_update": 0}, {"dual_steps": "never"}], ids=str
)
def test_senseless_settings_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        config(**wrong)
