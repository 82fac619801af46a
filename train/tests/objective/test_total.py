"""The complete objective against plain-Python recomputation, term by term and as a sum."""

import math

import pytest
import torch

from listed_objective import CONSTRAINT_NAMES, ListedBatch, as_frozen, listed_objective
from objective_oracle import GRID, RandomPolicy, event_probabilities, next_choice, random_members
from vcrt_train.config import ObjectiveConfig
from vcrt_train.objective.losses import contrastive_loss, leave_one_out_advantage
from vcrt_train.objective.terms import TERMS, constrained
from vcrt_train.objective.total import next_duals, objective, read
from vcrt_train.training.methods import METHODS

CONFIG = ObjectiveConfig(
    clip=0.15,
    alpha=0.3,
    margin=1.5,
    mu=7.0,
    commutation_cap=0.02,
    retention_cap=0.01,
    action_kl_cap=0.005,
)
DUALS = {"commutation": 0.4, "retention": 0.9, "action_kl": 0.1}
NUM_SAMPLES = 5


def _case(n, interface, *, use_credit, seed=0, margin="native"):
    """A policy, its current logits, and a frozen batch from slightly different ones."""
    policy = RandomPolicy(n, interface, seed=seed + n)
    old = policy.logits
    new = old + 0.2 * RandomPolicy(n, interface, seed=seed + 90 + n).logits
    num_orders = math.factorial(n)
    behaviour = policy.events(old)
    legal = random_members(2, num_orders, seed=seed + n)
    other = random_members(2, num_orders, seed=seed + n + 40)
    generator = torch.Generator().manual_seed(seed)
    samples = torch.randint(behaviour.shape[1], (2, NUM_SAMPLES), generator=generator)
    samples[0, 0], samples[0, -1] = 0, behaviour.shape[1] - 1
    malformed = legal.new_zeros(2, behaviour.shape[1] - num_orders)
    rewards = torch.cat([legal, malformed], dim=1).gather(1, samples).double()
    rows = policy.tree.row_of
    histories = [[0, rows[0, 1], rows[1, 0]], [1, rows[0, 2], rows[2, 0]]] if n > 2 else []
    batch = ListedBatch(
        samples=samples,
        rewards=rewards,
        advantages=leave_one_out_advantage(rewards),
        behaviour=behaviour,
        frozen_log_mass=torch.tensor([0.6, 0.3], dtype=torch.float64).log(),
        legal=legal,
        credit=legal if use_credit else None,
        margin_set={"native": legal, "shuffled": other, None: None}[margin],
        histories=torch.tensor(histories, dtype=torch.long).reshape(-1, 3),
        used=policy.used,
        num_choices=n,
    )
    return policy, new, batch


ALL = ("policy_loss", "commutation", "retention", "action_kl", "anti_diamond_loss")


def _terms(policy, logits, batch, *, duals=DUALS, terms=ALL):
    malformed = None if policy.interface == "pointers" else policy.events(logits)[:, -1]
    return objective(
        policy.choice_log_probs(logits),
        malformed,
        as_frozen(batch, policy.tree, policy.choice_log_probs(policy.logits)),
        config=CONFIG,
        terms=terms,
        duals=duals,
    )


def _without(*names):
    return tuple(name for name in ALL if name not in names)


def _brute(policy, new, batch):
    """Every term, by loops over prompts, samples, orders and prefixes."""
    num_orders = batch.legal.shape[1]
    policy_loss = anti = retention = kl = mass = illegal = silent = 0.0
    for b in range(2):
        before = [math.exp(x) for x in batch.behaviour[b].tolist()]
        after = event_probabilities(policy, new, b)
        inside = [c for c in range(num_orders) if batch.legal[b, c]]
        outside = [c for c in range(num_orders) if not batch.legal[b, c]]
        z_new, z_old = (sum(p[c] for c in inside) for p in (after, before))
        z_illegal = sum(after[c] for c in outside)
        rewards = [1.0 if s in inside else 0.0 for s in batch.samples[b].tolist()]
        silent += (len(set(rewards)) == 1) / 2
        for i, event in enumerate(batch.samples[b].tolist()):
            advantage = rewards[i] - (sum(rewards) - rewards[i]) / (NUM_SAMPLES - 1)
            by_orbit = event in inside and batch.credit is not None
            rho = z_new / z_old if by_orbit else after[event] / before[event]
            bounded = min(max(rho, 1 - CONFIG.clip), 1 + CONFIG.clip)
            policy_loss -= min(rho * advantage, bounded * advantage) / (2 * NUM_SAMPLES)
        anti += 0.5 * max(0.0, CONFIG.margin - math.log(z_new / z_illegal)) ** 2 / 2
        retention += (math.exp(batch.frozen_log_mass[b].item()) - z_new) / 2
        kl += sum(p * math.log(p / q) for p, q in zip(before, after, strict=True)) / policy.n / 2
        mass += z_new / 2
        illegal += z_illegal / 2
    js = []
    for b, ab, ba in batch.histories.tolist():
        prefixes = policy.tree.prefixes[ab], policy.tree.prefixes[ba]
        rest = [s for s in range(policy.n) if s not in prefixes[0]]
        p, q = ([next_choice(policy, new, b, prefix)[s] for s in rest] for prefix in prefixes)
        p, q = ([x / sum(v) for x in v] for v in (p, q))
        js.append(
            sum(
                0.5 * x * math.log(2 * x / (x + y)) + 0.5 * y * math.log(2 * y / (x + y))
                for x, y in zip(p, q, strict=True)
            )
        )
    values = {
        "commutation": sum(js) / len(js) if js else 0.0,
        "retention": retention,
        "action_kl": kl,
    }
    caps = (CONFIG.commutation_cap, CONFIG.retention_cap, CONFIG.action_kl_cap)
    penalties = {
        name: (max(0.0, DUALS[name] + CONFIG.mu * (values[name] - cap)) ** 2 - DUALS[name] ** 2)
        / (2 * CONFIG.mu)
        for name, cap in zip(CONSTRAINT_NAMES, caps, strict=True)
    }
    return policy_loss, anti, values, penalties, mass, illegal, silent


@pytest.mark.parametrize(("n", "interface"), GRID)
@pytest.mark.parametrize("use_credit", [True, False])
def test_every_term_and_their_sum(n, interface, use_credit):
    policy, new, batch = _case(n, interface, use_credit=use_credit)
    found = _terms(policy, new, batch)
    policy_loss, anti, values, penalties, mass, illegal, silent = _brute(policy, new, batch)
    assert found.values["policy_loss"].item() == pytest.approx(policy_loss, abs=1e-10)
    assert found.values["anti_diamond_loss"].item() == pytest.approx(anti, abs=1e-10)
    for name in CONSTRAINT_NAMES:
        assert found.values[name].item() == pytest.approx(values[name], abs=1e-10)
        assert found.penalties[name].item() == pytest.approx(penalties[name], abs=1e-10)
    total = policy_loss + CONFIG.alpha * anti + sum(penalties.values())
    assert found.loss.item() == pytest.approx(total, abs=1e-10)
    logged = read(found.metrics())
    assert logged["orbit_mass"] == pytest.approx(mass)
    assert logged["illegal_mass"] == pytest.approx(illegal)
    assert logged["malformed_mass"] == pytest.approx(1 - mass - illegal, abs=1e-12)
    assert logged["zero_advantage_share"] == silent


#: What the two forms of the objective log by one name.
LOGGED = (
    "policy_loss",
    "anti_diamond_loss",
    "contrastive_loss",
    "augmentation_loss",
    "mean_reward",
    "orbit_mass",
    "illegal_mass",
    "malformed_mass",
    "clip_fraction",
    "zero_advantage_share",
)


#: The methods that are made of what the objective was made of then.
EARLIER = [
    name
    for name, row in METHODS.items()
    if {*row.terms} <= {*ALL, "contrastive_loss", "augmentation_loss"}
    and {*row.terms} & {*CONSTRAINT_NAMES} in (set(), {*CONSTRAINT_NAMES})
    and row.ratio in ("trajectory", "orbit", "shuffled_orbit")
    and row.scale_rewards == "none"
]


@pytest.mark.parametrize(("n", "interface"), GRID)
@pytest.mark.parametrize("name", sorted(EARLIER))
def test_every_method_has_the_loss_and_gradient_that_listed_orders_gave(n, interface, name):
    """Against the objective as it was before it was read from prefix trees."""
    chosen = METHODS[name]
    uses_margin = "anti_diamond_loss" in chosen.terms
    uses_constraints = "retention" in chosen.terms
    for seed in range(3):
        policy, new, batch = _case(
            n,
            interface,
            use_credit=chosen.has_credit,
            seed=seed,
            margin=chosen.margin if uses_margin else None,
        )
        leaves = [new.clone().requires_grad_() for _ in range(2)]
        expected = listed_objective(
            policy.events(leaves[0]),
            policy.choice_log_probs(leaves[0]),
            batch,
            config=CONFIG,
            duals=DUALS if uses_constraints else None,
            policy_term="policy_loss" in chosen.terms,
            contrast="contrastive_loss" in chosen.terms,
            augment="augmentation_loss" in chosen.terms,
        )
        found = _terms(policy, leaves[1], batch, terms=chosen.terms)
        assert found.loss.item() == pytest.approx(expected.loss.item(), abs=1e-10)
        gradients = [
            torch.autograd.grad(each.loss, leaf)[0]
            for each, leaf in zip((expected, found), leaves, strict=True)
        ]
        torch.testing.assert_close(*gradients, rtol=0, atol=1e-10)
        logged = read(found.metrics())
        for each in LOGGED:
            assert logged[each] == pytest.approx(getattr(expected, each).item(), abs=1e-10)
        for each in CONSTRAINT_NAMES:
            assert logged[each] == pytest.approx(expected.values[each].item(), abs=1e-10)
            penalty = expected.penalties[each].item()
            assert logged[f"penalty_{each}"] == pytest.approx(penalty, abs=1e-10)


def test_duals_move_for_the_constraints_of_the_method_alone():
    policy, new, batch = _case(4, "pointers", use_credit=True)
    found = _terms(policy, new, batch)
    moved = next_duals(found.values, DUALS, CONFIG, ("policy_loss", "retention"))
    assert moved["retention"] == pytest.approx(
        max(0.0, DUALS["retention"] + CONFIG.mu * (found.values["retention"] - 0.01).item())
    )
    assert {**moved, "retention": 0} == {**DUALS, "retention": 0}
    assert constrained() == list(CONSTRAINT_NAMES)


@pytest.mark.parametrize("interface", ["pointers", "tokens"])
def test_gradient_agrees_with_finite_differences(interface):
    policy, new, batch = _case(4, interface, use_credit=True, seed=3)
    leaf = new.clone().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda logits: _terms(policy, logits, batch).loss, leaf, fast_mode=True
    )


def test_terms_that_a_method_leaves_out_are_reported_but_not_summed():
    policy, new, batch = _case(4, "pointers", use_credit=False)
    full = _terms(policy, new, batch)
    bare = _terms(policy, new, batch, terms=("policy_loss",))
    assert torch.equal(bare.loss, bare.values["policy_loss"])
    assert bare.values["anti_diamond_loss"] > 0
    assert bare.values == full.values
    assert bare.values.keys() == TERMS.keys()
    assert all(value == 0 for value in bare.penalties.values())
    silent = _terms(policy, new, batch, terms=_without("policy_loss"))
    difference = (full.loss - full.values["policy_loss"]).item()
    assert silent.loss.item() == pytest.approx(difference, abs=1e-12)
    assert silent.values["policy_loss"] == full.values["policy_loss"]


def test_the_margin_may_be_about_another_set_than_the_orbit():
    policy, new, native = _case(4, "pointers", use_credit=True)
    _, _, shuffled = _case(4, "pointers", use_credit=True, margin="shuffled")
    expected = 0.0
    for b in range(2):
        after = event_probabilities(policy, new, b)
        inside = sum(p for c, p in enumerate(after) if shuffled.margin_set[b, c])
        delta = math.log(inside / (1 - inside))
        expected += CONFIG.alpha * 0.5 * max(0.0, CONFIG.margin - delta) ** 2 / 2
    found = _terms(policy, new, shuffled)
    bare = _terms(policy, new, native, terms=_without("anti_diamond_loss"))
    assert (found.loss - bare.loss).item() == pytest.approx(expected, abs=1e-12)
    # The log is about the certified orbit all the same.
    assert found.values["anti_diamond_loss"] == bare.values["anti_diamond_loss"]


@pytest.mark.parametrize("interface", ["pointers", "tokens"])
def test_the_contrast_is_the_share_of_correct_samples(interface):
    policy, new, batch = _case(4, interface, use_credit=False, seed=3)
    with_contrast = (*ALL, "contrastive_loss")
    found, bare = (_terms(policy, new, batch, terms=terms) for terms in (with_contrast, ALL))
    across = [0.0, 0.0]
    within = 0.0
    for b in range(2):
        after = event_probabilities(policy, new, b)
        masses = [after[s] ** (1 / batch.num_choices) for s in batch.samples[b].tolist()]
        right = sum(m for m, r in zip(masses, batch.rewards[b].tolist(), strict=True) if r > 0)
        across = [across[0] + right, across[1] + sum(masses)]
        if 0 < right < sum(masses):
            within -= math.log(right / sum(masses)) / 2
    expected = 0.5 * (within - math.log(across[0] / across[1]))
    assert expected > 0
    assert found.values["contrastive_loss"].item() == pytest.approx(expected, abs=1e-12)
    assert (found.loss - bare.loss).item() == pytest.approx(CONFIG.alpha * expected, abs=1e-12)
    leaf = new.clone().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda logits: _terms(policy, logits, batch, terms=with_contrast).loss, leaf, fast_mode=True
    )


@pytest.mark.parametrize("successes", [[[True] * 3, [True] * 3], [[False] * 3, [False] * 3]])
def test_there_is_nothing_to_contrast_when_all_samples_fare_alike(successes):
    scores = torch.tensor([[-1.0, -2.0, -4.0], [-3.0, -1.5, -9.0]], requires_grad=True)
    loss = contrastive_loss(scores, torch.tensor(successes))
    loss.backward()
    assert loss == 0
    assert torch.equal(scores.grad, torch.zeros(2, 3))


def test_one_prompt_may_be_silent_while_the_pool_is_not():
    scores = torch.zeros(2, 2, requires_grad=True)
    loss = contrastive_loss(scores, torch.tensor([[True, True], [True, False]]))
    assert loss.item() == pytest.approx(0.5 * (math.log(4 / 3) + math.log(2) / 2))
    loss.backward()
    assert torch.isfinite(scores.grad).all()


def test_only_the_loss_carries_a_gradient():
    policy, new, batch = _case(3, "tokens", use_credit=True)
    terms = _terms(policy, new.clone().requires_grad_(), batch)
    assert terms.loss.requires_grad
    others = [terms.max_log_ratio, *terms.values.values(), *terms.penalties.values()]
    assert not any(tensor.requires_grad for tensor in others)


def test_before_the_first_step_ratios_are_one_and_the_policy_loss_is_minus_the_mean_advantage():
    policy, _, batch = _case(4, "tokens", use_credit=True)
    terms = _terms(policy, policy.logits, batch)
    assert terms.max_log_ratio == 0
    assert read(terms.metrics())["clip_fraction"] == 0
    assert terms.values["action_kl"] == 0
    assert terms.values["policy_loss"].item() == pytest.approx(-batch.advantages.mean().item())


@pytest.mark.parametrize(
    "wrong", [{"clip": -0.1}, {"clip": 1.0}, {"mu": 0.0}, {"alpha": -0.1}], ids=str
)
def test_senseless_settings_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ObjectiveConfig(**wrong)


def test_default_caps_are_the_papers():
    caps = {name: TERMS[name].cap_in(ObjectiveConfig()) for name in constrained()}
    assert caps == {"commutation": 0.01, "retention": 0.05, "action_kl": 0.20}
