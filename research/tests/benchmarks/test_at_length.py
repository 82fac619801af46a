"""The experiment at length: its settings fit together, its measures are right, and its page says what was measured."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from math import exp, log
from pathlib import Path

import pytest
import torch

from vcrt.orders import linear_extensions
from vcrt.partial_orders import PartialOrder
from vcrt.records.policy_view import PointerRelation, PolicyRecord
from vcrt.records.supervision import PosetRecord
from vcrt_train.config import EstimatorConfig
from vcrt_train.policy.backbone import load_backbone
from vcrt_train.policy.prefix_tree import prefix_tree
from vcrt_train.policy.scoring import score_prefixes
from vcrt_train.training.items import encode_items
from vcrt_train.training.methods import METHODS, method
from vcrt_train.training.orbit_masses import orbit_spread

BENCHMARKS = Path(__file__).parents[2] / "benchmarks" / "length"
sys.path.insert(0, str(BENCHMARKS))

import at_length  # noqa: E402
import at_length_page  # noqa: E402


def test_parts_name_suites_and_methods_that_there_are():
    for part in at_length.PARTS.values():
        assert {part.suite, *part.also_test} <= set(at_length.SUITES)
        assert set(part.methods) <= set(METHODS)
        assert set(part.planned or ()) <= set(part.methods)
    forms = [form for _, _, form in at_length.SUITES.values()]
    # Records of all lengths look alike: that is what makes lengths comparable.
    assert {form.commutations for form in forms} == {"omitted"}
    pools = {
        form.pool_of(int(name.removeprefix("posets")))
        for name, (_, _, form) in at_length.SUITES.items()
    }
    assert pools == {32}


def an_item(pairs, num_operations=5):
    record = PolicyRecord(
        record_id="r",
        pointers=tuple(range(3, 3 + 2 * num_operations, 2)),
        relations=tuple(PointerRelation(a, b, "precedes") for a, b in sorted(pairs)),
    )
    supervised = PosetRecord(record=record, order=PartialOrder.of(num_operations, pairs))
    encode = load_backbone("embedded-long").encode
    return encode_items([supervised], method("vcrt"), seed=0, encode=encode)[0]


@torch.no_grad()
def exactly(model, item, pairs):
    """Mass and share of the largest entropy, from the probability of every legal order."""
    n = item.orbit.num_operations
    orders = linear_extensions(n, pairs)
    tree = prefix_tree(n, [order[: n - 2] for order in orders])
    scores = score_prefixes(model, [item.prompt], [tree], interface="pointers")
    found = []
    for order in orders:
        rows, slots = tree.path(order)
        found.append(float(scores.choice_log_probs[0, rows, slots].double().sum()))
    mass = sum(map(exp, found))
    entropy = -sum(exp(one) / mass * (one - log(mass)) for one in found)
    return mass, entropy / log(len(orders))


def test_mass_and_entropy_are_those_of_all_legal_orders(monkeypatch):
    monkeypatch.setattr("vcrt_train.training.orbit_masses.NUM_PATHS", 2000)
    model = load_backbone("embedded-long").model
    for pairs in ([(0, 1)], [(0, 1), (1, 2), (3, 4)]):
        item = an_item(pairs)
        expected = exactly(model, item, pairs)
        for most, rel in ((0, 0.05), (1000, 1e-5)):
            config = EstimatorConfig(max_legal_prefixes=most)
            found = orbit_spread(model, [item], interface="pointers", config=config)
            assert found.log_mass.exp().item() == pytest.approx(expected[0], rel=rel)
            assert found.shares.item() == pytest.approx(expected[1], rel=rel)
            assert found.evenness == found.shares.item()


def an_estimate(value, low, high, over_runs=True):
    return {
        "value": value,
        "runs_and_items": [low, high],
        "over_runs": over_runs,
        "bootstrap_over_items": [low, high],
    }


def an_old_estimate(value, low, high):
    return {"value": value, "bootstrap_over_runs_and_items": [low, high]}


def a_result():
    """A result with one difference that is shown and one that is not."""

    def cells(differences, methods):
        row = {"macro": an_estimate(0.5, 0.4, 0.6), "folds": {}}
        return {
            "steps": 4,
            "random_order": 0.1,
            "frozen": row,
            "methods": dict.fromkeys(methods, row),
            "differences": {
                name: {"macro": an_estimate(*ends), "folds": {}}
                for name, ends in differences.items()
            },
        }

    def part(suite, test_sets, planned=None, measures=None):
        return {
            "settings": {"suite": suite, "planned": planned, "runs": 5},
            "opening": {"opened_at": "2000-01-01"},
            "runs": {
                f"{method}/{fold}/{seed}": {
                    "passes": bits,
                    "mass": [0.5, 0.4],
                    "entropy": [0.4 + gain * (seed + 9) / 100, 0.4 + gain * (seed + 9) / 100],
                }
                for method, bits, gain in zip(planned or (), ("11", "00"), (1, 0), strict=False)
                for fold in ("clrs", "lean")
                for seed in range(5)
            },
            "plan_hash": "a" * 64,
            "test_sets": test_sets,
            "measures": measures,
            "training_cpu_seconds": 60,
            "commits": ["c" * 40],
        }

    told = {
        "vcrt minus canonical-grpo": (0.2, 0.1, 0.3),
        "vcrt minus no-orbit": (0.02, -0.01, 0.05),
    }
    planned = ("orbit-grpo", "canonical-grpo")
    measured = {"mass": an_estimate(0.01, -0.02, 0.04), "entropy": an_estimate(0.1, 0.05, 0.2)}
    return {
        "machine": {"cores": 2, "processor": "x86_64"},
        "versions": {"torch": "2"},
        "suites": {"posets4": {"root_hash": "b" * 64}},
        "seconds": 600,
        "parts": {
            "train-4": part("posets4", {"posets4": cells(told, ["vcrt", "canonical-grpo"])}),
            "orbit": part(
                "posets6",
                {"posets6": cells({" minus ".join(planned): (0.0, -0.1, 0.1)}, planned)},
                planned,
                {**dict.fromkeys((*planned, "frozen"), measured), "difference": measured},
            ),
        },
    }


def test_the_page_says_what_intervals_show_and_what_not():
    result = a_result()
    said = at_length_page.findings(result)
    shown, not_shown = said.split("Not shown:")
    assert "Shown: `vcrt` minus `canonical-grpo` +20.0 [+10.0, +30.0] points" in shown
    assert "`vcrt` minus `no-orbit` +2.0 [-1.0, +5.0]" in not_shown
    # A bootstrap that was kept instead of single items is printed, and decides nothing.
    cells = result["parts"]["train-4"]["test_sets"]["posets4"]["differences"]
    cells["vcrt minus canonical-grpo"]["macro"] = an_old_estimate(0.2, 0.1, 0.3)
    cells["vcrt minus no-orbit"]["macro"] = an_old_estimate(0.02, -0.01, 0.05)
    old = at_length_page.findings(result)
    assert "Shown" not in old
    assert "shown" not in old
    assert "bootstrap beside zero: `vcrt` minus `canonical-grpo` +20.0 [+10.0, +30.0]" in old
    assert "bootstrap with zero in it: `vcrt` minus `no-orbit` +2.0 [-1.0, +5.0]" in old
    assert at_length_page.differences(result).count("| not decided |") == 2
    # Nor does a single run.
    cells["vcrt minus no-orbit"]["macro"] = an_estimate(0.2, 0.1, 0.3, over_runs=False)
    assert "Not shown: `vcrt` minus `no-orbit` +20.0" in at_length_page.findings(result)
    for made in (at_length_page.rates, at_length_page.differences, at_length_page.measures):
        table = made(result).splitlines()
        assert len(table) > 2
        assert all(one.count("|") == other.count("|") for one, other in pairwise(table)), table


def test_the_planned_comparison_is_told_each_time_and_over_all_runs(tmp_path, monkeypatch):
    result = a_result()
    monkeypatch.setattr(at_length_page, "RESULT", tmp_path / "at_length.json")
    (alone,) = at_length_page.orbit(result).splitlines()[2:]
    passes, mass, entropy = alone.split(" | ")[3:]
    # Two items of each fold, all alike: twice what the exact bound on four leaves open, as one may be at -1.
    assert passes == "+100.0 [-20.5, +100.0]"
    assert mass == "+0.0 [-60.2, +60.2]"
    # Runs alone differ: 9 to 13 points, standard deviation 1.58, and t with 4 degrees of freedom is 2.776.
    assert entropy == "**+11.0 [+9.0, +13.0]** |"
    later = a_result()
    later["parts"]["orbit"]["opening"]["opened_at"] = "2001-01-01"
    (tmp_path / "at_length_orbit_more.json").write_text(json.dumps(later))
    *_, first, second, both = at_length_page.orbit(result).splitlines()
    assert first.startswith("| 1 | 5 |")
    assert second.startswith("| 2 | 5 |")
    # Every item in every run and fold.
    assert both.startswith("| all | 10 |  | +100.0 [-20.5, +100.0] |")


def test_filling_the_page_again_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(at_length_page, "RESULT", tmp_path / "at_length.json")
    page = at_length_page.PAGE.read_text(encoding="utf-8")
    once = at_length_page.filled(page, a_result())
    assert at_length_page.filled(once, a_result()) == once
    assert "+20.0 [+10.0, +30.0]" in once


@pytest.mark.skipif(not at_length_page.RESULT.exists(), reason="not measured yet")
def test_the_page_is_the_measured_one():
    result = json.loads(at_length_page.RESULT.read_text(encoding="utf-8"))
    page = at_length_page.PAGE.read_text(encoding="utf-8")
    assert at_length_page.filled(page, result) == page
