"""The objective on drawn prefixes equals the objective on all orders, term by term, where both can be computed."""

from types import SimpleNamespace

import pytest
import torch

from listed_objective import ListedBatch, listed_objective
from objective_oracle import RandomPolicy
from vcrt.orders import all_orders
from vcrt.partial_orders import PartialOrder
from vcrt_train.config import ObjectiveConfig
from vcrt_train.objective.batch import FrozenBatch, LegalPrefixes, Reading
from vcrt_train.objective.losses import action_kl, leave_one_out_advantage
from vcrt_train.objective.orbit_mass import log_choice
from vcrt_train.objective.total import objective, read
from vcrt_train.policy.prefix_tree import prefix_tree
from vcrt_train.training.legal_trees import legal_moves, legal_rows, paths_in

#: The action KL is sampled in one of them and cannot be equal: its cap is never reached.
CONFIG = ObjectiveConfig(
    alpha=0.3, margin=1.5, commutation_cap=0.0, retention_cap=0.0, action_kl_cap=100.0
)
DUALS = {"commutation": 0.2, "retention": 0.1, "action_kl": 0.0}
N = 4
ORDERS = [PartialOrder.of(N, [(0, 1)]), PartialOrder.of(N, [(2, 0), (2, 3)])]
SAMPLES = torch.tensor([[0, 5, 17, 8], [23, 3, 3, 12]])
#: Prefixes that end in a certified swap, by prompt.
SWAPS = [((2, 3), (3, 2)), ((0, 2), (2, 0))], [((1, 2), (2, 1))]


def members(order):
    return [order.allows(each) for each in all_orders(N)]


def both(new, old, *, orbit_ratio, shuffled=False):
    """The two objectives of one batch: on all orders, and on a tree with all legal prefixes and the samples."""
    legal = torch.tensor([members(order) for order in ORDERS])
    credit_orders = [PartialOrder.of(N, [(3, 1)])] * 2 if shuffled else ORDERS
    credit = torch.tensor([members(order) for order in credit_orders]) if orbit_ratio else None
    rewards = legal.gather(1, SAMPLES).double()
    advantages = leave_one_out_advantage(rewards)
    frozen = torch.tensor([-0.3, -1.2]).double()
    tree = old.tree
    histories = torch.tensor(
        [
            [prompt, tree.row_of[one], tree.row_of[other]]
            for prompt, some in enumerate(SWAPS)
            for one, other in some
        ]
    )
    margin = legal if not shuffled else credit
    full = listed_objective(
        new.events(new.leaf_logits),
        new.choice_log_probs(new.leaf_logits),
        ListedBatch(
            samples=SAMPLES,
            rewards=rewards,
            advantages=advantages,
            behaviour=old.events(old.logits),
            frozen_log_mass=frozen,
            legal=legal,
            credit=credit,
            margin_set=margin,
            histories=histories,
            used=old.used,
            num_choices=N - 1,
        ),
        config=CONFIG,
        duals=DUALS,
    )
    # Every prefix, but each prompt's tree with rows of its own: another order of the same prefixes is no difference.
    trees = [prefix_tree(N, [each[:2] for each in all_orders(N)])] * 2
    rows = torch.tensor([tree.row_of[prefix] for prefix in trees[0].prefixes])
    choices, behaviour = (
        policy.choice_log_probs(logits)[:, rows]
        for policy, logits in ((new, new.leaf_logits), (old, old.logits))
    )
    used = torch.stack([torch.tensor(each.used) for each in trees])
    view = LegalPrefixes(legal=legal_moves(trees, ORDERS), rows=legal_rows(trees, ORDERS))
    other = view
    if shuffled:
        other = LegalPrefixes(
            legal=legal_moves(trees, credit_orders), rows=legal_rows(trees, credit_orders)
        )
    samples = paths_in(trees, [[all_orders(N)[k] for k in some] for some in SAMPLES.tolist()])
    placed = torch.tensor(
        [
            [prompt, trees[0].row_of[one], trees[0].row_of[other]]
            for prompt, some in enumerate(SWAPS)
            for one, other in some
        ]
    )
    mass = other.masses(behaviour, used).log_inside if orbit_ratio else None
    sampled = objective(
        choices,
        None,
        FrozenBatch(
            orders=samples,
            samples=torch.arange(SAMPLES.shape[1]).expand(SAMPLES.shape),
            rewards=rewards,
            advantages=advantages,
            behaviour_choices=behaviour,
            behaviour=log_choice(behaviour, samples).sum(-1),
            frozen_log_mass=frozen,
            orbit=view,
            credit=other if orbit_ratio else None,
            behaviour_log_mass=mass,
            margin=other if shuffled else view,
            histories=placed,
            used=used,
            num_choices=torch.full((2, 1), N - 1),
        ),
        config=CONFIG,
        terms=("policy_loss", *DUALS, "anti_diamond_loss"),
        duals=DUALS,
    )
    return full, sampled


def policies(seed):
    old = RandomPolicy(N, seed=seed)
    new = RandomPolicy(N, seed=seed)
    new.leaf_logits = (old.logits + 0.1 * RandomPolicy(N, seed=seed + 1).logits).requires_grad_()
    return new, old


@pytest.mark.parametrize("orbit_ratio", [True, False])
@pytest.mark.parametrize("shuffled", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_every_term_but_the_sampled_kl_is_the_same(seed, orbit_ratio, shuffled):
    if shuffled and not orbit_ratio:
        pytest.skip("a shuffled margin needs the shuffled orbit's set")
    new, old = policies(seed)
    full, sampled = both(new, old, orbit_ratio=orbit_ratio, shuffled=shuffled)
    logged = read(sampled.metrics())
    for name in (
        "policy_loss",
        "contrastive_loss",
        "augmentation_loss",
        "orbit_mass",
        "illegal_mass",
        "clip_fraction",
        "zero_advantage_share",
        "mean_reward",
        "anti_diamond_loss",
    ):
        assert logged[name] == pytest.approx(getattr(full, name).item(), abs=1e-10), name
    for name in ("commutation", "retention"):
        assert logged[name] == pytest.approx(full.values[name].item(), abs=1e-10), name
    assert sampled.max_log_ratio.item() == pytest.approx(full.max_log_ratio.item(), abs=1e-10)
    assert sampled.loss.item() == pytest.approx(full.loss.item(), abs=1e-10)
    one, other = (
        torch.autograd.grad(terms.loss, new.leaf_logits, retain_graph=True)[0]
        for terms in (full, sampled)
    )
    assert torch.allclose(one, other, atol=1e-10)
    assert one.abs().max() > 0.01
    assert logged["orbit_log_mass_error"] == 0


def test_the_sampled_action_kl_has_the_exact_one_as_its_mean():
    new, old = policies(7)
    exact = action_kl(old.events(old.logits), new.events(new.leaf_logits), N - 1)
    found = torch.zeros(())
    trees = [prefix_tree(N, [each[:2] for each in all_orders(N)])] * 2
    rows = torch.tensor([old.tree.row_of[prefix] for prefix in trees[0].prefixes])
    choices, behaviour = (
        policy.choice_log_probs(logits)[:, rows]
        for policy, logits in ((new, new.leaf_logits), (old, old.logits))
    )

    used = torch.stack([torch.tensor(each.used) for each in trees])
    for prompt in range(2):
        for column, order in enumerate(all_orders(N)):
            batch = SimpleNamespace(
                orders=paths_in(trees[:1], [[order]]),
                behaviour_choices=behaviour[prompt : prompt + 1],
                used=used[:1],
                num_choices=torch.full((1, 1), N - 1),
            )
            of_order = Reading(
                choices=choices[prompt : prompt + 1], malformed=None, batch=batch, config=CONFIG
            ).sampled_action_kl()
            found = found + old.events(old.logits)[prompt, column].exp() * of_order / 2
    assert found.item() == pytest.approx(exact.item(), abs=1e-12)
