"""The estimator of orbit masses against enumeration: exact trees, bias, gradients, and what it says of its error."""

import math

import pytest
import torch

from tabular_policy import members, random_order, random_table
from vcrt.partial_orders import PartialOrder
from vcrt_train.objective.orbit_mass import (
    Paths,
    estimate_masses,
    exact_masses,
    orbit_log_mass,
    path_terms,
)
from vcrt_train.policy.order_sampling import Draw, sample_orders
from vcrt_train.policy.prefix_tree import prefix_tree
from vcrt_train.training.legal_trees import legal_leaves, legal_moves, legal_rows, moves_after

REPETITIONS = 1000
SCHEMES = ("independent", "systematic")


def log_masses(table, order):
    """``log Z+`` and ``log Z-`` by enumeration."""
    inside = members(order)
    both = orbit_log_mass(table.log_probs().expand(2, -1), torch.stack([inside, ~inside]))
    return both[0], both[1]


def drawn_paths(table, order, num_paths, scheme, *, seed=0, repetitions=REPETITIONS):
    """Independent repetitions of ``num_paths`` paths, one in each row."""
    (drawn,) = sample_orders(
        table.next_choices,
        [Draw(count=num_paths, scheme=scheme, within=[order] * repetitions)],
        num_prompts=repetitions,
        num_operations=order.num_operations,
        generator=torch.Generator().manual_seed(seed),
    )
    found = [[table.tree.path(path) for path in some] for some in drawn]
    return Paths(
        rows=torch.tensor([[rows for rows, _ in some] for some in found]),
        slots=torch.tensor([[slots for _, slots in some] for some in found]),
    )


def terms_of(table, order, paths):
    """Only the rows that paths visit are looked at, so that many repetitions fit."""
    used = torch.tensor(table.tree.used)
    legal = moves_after(order, torch.tensor(table.tree.used))
    size = len(paths.rows)
    each = range(0, size, 100)
    parts = [
        path_terms(
            table.choices.expand(min(100, size - k), -1, -1),
            legal.expand(min(100, size - k), -1, -1),
            used.expand(min(100, size - k), -1, -1),
            Paths(rows=paths.rows[k : k + 100], slots=paths.slots[k : k + 100]),
        )
        for k in each
    ]
    return type(parts[0])(
        **{
            name: torch.cat([getattr(part, name) for part in parts])
            for name in ("log_q", "log_inside", "log_outside")
        }
    )


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_tree_of_all_legal_prefixes_gives_the_masses_and_their_gradients(n, seed):
    table, order = random_table(n, seed), random_order(n, seed)
    table.logits.requires_grad_()
    tree = prefix_tree(n, legal_leaves(order))
    rows = torch.tensor([table.tree.row_of[prefix] for prefix in tree.prefixes])
    masses = exact_masses(
        table.choices[rows][None],
        legal_moves([tree], [order]),
        torch.tensor(tree.used)[None],
        legal_rows([tree], [order]),
    )
    for found, expected in zip(
        (masses.log_inside[0], masses.log_outside[0]), log_masses(table, order), strict=True
    ):
        assert found.item() == pytest.approx(expected.item(), abs=1e-12)
        if math.isfinite(expected.item()):
            one, other = (
                torch.autograd.grad(value, table.logits, retain_graph=True)[0]
                for value in (found, expected)
            )
            assert torch.allclose(one, other, atol=1e-12)


def test_masses_far_below_rounding_are_not_lost():
    """A policy that keeps the orders almost surely: Z- is 1e-22, and Z+ is 1 to the last bit."""
    table, order = random_table(5, 3), PartialOrder.of(5, [(0, 1), (0, 2), (3, 4)])
    legal = moves_after(order, torch.tensor(table.tree.used))
    certain = type(table)(table.tree, table.logits + 50.0 * legal)
    expected = log_masses(certain, order)[1]
    assert expected < -45
    terms = terms_of(certain, order, drawn_paths(certain, order, 64, "systematic", repetitions=2))
    masses = estimate_masses(terms, terms.log_q)
    # Nearly all illegal mass is one step from the drawn paths, so few of them know it well.
    assert masses.log_outside.tolist() == pytest.approx([expected.item()] * 2, abs=0.5)
    assert masses.log_inside.abs().max() < 1e-15


def test_no_pairs_and_a_chain():
    table = random_table(5, 0)
    table.logits.requires_grad_()
    free, chain = PartialOrder.of(5, []), PartialOrder.of(5, [(k, k + 1) for k in range(4)])
    terms = terms_of(table, free, drawn_paths(table, free, 4, "independent", repetitions=3))
    masses = estimate_masses(terms, terms.log_q.detach())
    assert masses.log_inside.tolist() == [0.0] * 3
    assert masses.log_outside.tolist() == [-math.inf] * 3
    (gradient,) = torch.autograd.grad(masses.log_inside.sum(), table.logits, retain_graph=True)
    assert not gradient.isnan().any()
    assert gradient.abs().max() < 1e-15
    terms = terms_of(table, chain, drawn_paths(table, chain, 2, "independent", repetitions=1))
    masses = estimate_masses(terms, terms.log_q.detach())
    assert masses.log_inside.item() == pytest.approx(log_masses(table, chain)[0].item())
    assert masses.standard_error.item() == pytest.approx(0, abs=1e-7)
    with pytest.raises(ValueError, match="at least 2 paths"):
        estimate_masses(
            type(terms)(
                **{
                    name: getattr(terms, name)[:, :1]
                    for name in ("log_q", "log_inside", "log_outside")
                }
            ),
            terms.log_q[:, :1],
        )


BIAS_CASES = [
    (4, 0, 1.0),
    (5, 1, 1.5),
    (6, 2, 1.0),
    pytest.param(7, 3, 1.0, marks=pytest.mark.slow),
    pytest.param(7, 4, 2.0, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("n", "seed", "scale"), BIAS_CASES)
def test_the_mass_is_unbiased(n, seed, scale, scheme):
    """Over 1,000 repetitions of 8 paths, the mean is within 3 standard errors, and so is its gradient."""
    table, order = random_table(n, seed, scale), random_order(n, seed)
    table.logits.requires_grad_()
    exact = log_masses(table, order)[0].exp()
    (exact_gradient,) = torch.autograd.grad(exact, table.logits)
    terms = terms_of(table, order, drawn_paths(table, order, 8, scheme, seed=1))
    masses = estimate_masses(terms, terms.log_q.detach())
    found = masses.log_inside.exp()
    assert (found + masses.log_outside.exp() - 1).abs().max() < 1e-12
    standard_error = found.detach().std() / REPETITIONS**0.5
    assert abs(found.detach().mean() - exact.detach()) < 3 * standard_error
    if scheme == "independent":
        # What it says of its own error is right; for systematic paths it says too much.
        spread = found.detach().std()
        said = (masses.standard_error * found.detach()).square().mean().sqrt()
        assert said == pytest.approx(spread.item(), rel=0.1)
        # Along the exact gradient; baselines of systematic paths are not independent of them.
        along = exact_gradient / exact_gradient.norm()
        (gradient,) = torch.autograd.grad(found.sum() / REPETITIONS, table.logits)
        each = directional(table, order, along, seed)
        assert abs((gradient * along).sum() - exact_gradient.norm()) < 3 * each / REPETITIONS**0.5


def directional(table, order, along, seed):
    """The standard deviation of one repetition's derivative of ``Z`` along a direction."""
    found = []
    paths = drawn_paths(table, order, 8, "independent", seed=seed + 1, repetitions=100)
    for k in range(100):
        terms = terms_of(
            table, order, Paths(rows=paths.rows[k : k + 1], slots=paths.slots[k : k + 1])
        )
        mass = estimate_masses(terms, terms.log_q.detach()).log_inside.exp()
        (gradient,) = torch.autograd.grad(mass.sum(), table.logits)
        found.append((gradient * along).sum().item())
    return torch.tensor(found).std()


def test_systematic_paths_take_variance_out():
    table, order = random_table(6, 5, 1.5), random_order(6, 5)
    spreads = {}
    for name in SCHEMES:
        terms = terms_of(table, order, drawn_paths(table, order, 16, name, repetitions=300))
        spreads[name] = estimate_masses(terms, terms.log_q).log_inside.exp().std()
    assert spreads["systematic"] < 0.85 * spreads["independent"]


def test_after_a_step_the_same_paths_tell_the_new_mass():
    """Paths of the old policy, weighted, against the new one: the change is estimated far better than the mass."""
    table, order = random_table(5, 7), random_order(5, 7)
    step = random_table(5, 8, 0.1)
    new = type(table)(table.tree, table.logits + step.logits)
    paths = drawn_paths(table, order, 16, "independent")
    old_terms, new_terms = terms_of(table, order, paths), terms_of(new, order, paths)
    before = estimate_masses(old_terms, old_terms.log_q)
    after = estimate_masses(new_terms, old_terms.log_q)
    exact = (log_masses(new, order)[0] - log_masses(table, order)[0]).item()
    change = after.log_inside - before.log_inside
    assert change.mean().item() == pytest.approx(
        exact, abs=3 * change.std().item() / REPETITIONS**0.5 + 0.01 * abs(exact)
    )
    assert change.std() < 0.5 * after.log_inside.std()
    assert ((after.log_inside.exp() + after.log_outside.exp()) - 1).abs().max() < 1e-12
    assert (after.effective_paths <= 16 + 1e-9).all()
    assert (after.effective_paths >= 1).all()
