"""A term of the objective is one function and one row, and so is a method: logs and reports follow."""

from dataclasses import replace

import pytest

from listed_training import train
from report_support import synthetic_contents
from vcrt_train.config import ObjectiveConfig
from vcrt_train.objective.terms import TERMS, Term, settings_of
from vcrt_train.report.curve_figures import curve_figures
from vcrt_train.training.methods import METHODS, method


@pytest.fixture
def flat(monkeypatch):
    """A toy: the orders of a prompt should be alike, by their mean log-probability; weighted by alpha."""

    def evenness(reading):
        return -reading.orders.mean()

    term = Term(name="evenness", value=evenness, weight="alpha", title="Evenness", note="A toy.")
    monkeypatch.setitem(TERMS, term.name, term)
    row = replace(method("canonical-grpo"), name="flat", terms=("policy_loss", "evenness"))
    rows = {**METHODS, row.name: row}
    monkeypatch.setattr("vcrt_train.training.methods.METHODS", rows)
    return row


def test_a_term_of_ten_lines_trains_and_is_logged(flat):
    _, before = train("canonical-grpo", 20)
    _, metrics = train("flat", 20)
    assert all(m.evenness > 0 for m in metrics)
    total = metrics[0].policy_loss + ObjectiveConfig().alpha * metrics[0].evenness
    assert metrics[0].loss == pytest.approx(total, abs=1e-6)
    assert metrics[-1].evenness < before[-1].evenness
    # It is logged for methods that do not train on it as well.
    assert before[0].evenness > 0


def test_a_search_and_a_report_know_it(flat):
    assert flat.settings == ("optimiser.learning_rate", "objective.alpha")
    assert settings_of(flat.terms) == {"clip", "alpha"}
    contents = synthetic_contents(rates={"vcrt": (0.5,)}, folds=("lean",))
    curve = tuple({"update": float(n), "evenness": 1.0 / n} for n in range(1, 4))
    contents = replace(contents, runs=tuple(replace(run, curve=curve) for run in contents.runs))
    (figure,) = curve_figures(contents)
    assert figure.name == "curve-evenness"
    assert [panel.title for panel in figure.panels]
    assert "A toy." in figure.caption


def test_a_term_with_a_cap_is_a_constraint_with_a_multiplier(monkeypatch):
    def spread(reading):
        return reading.orders.var(-1).mean()

    term = Term(name="spread", value=spread, cap=1e-6, title="spread", note="A toy.")
    monkeypatch.setitem(TERMS, term.name, term)
    terms = ("policy_loss", "spread")
    chosen = replace(method("canonical-grpo"), name="narrow", terms=terms)
    state, metrics = train(None, 5, chosen=chosen)
    assert state.duals["spread"] == metrics[-1].dual_spread > 0
    assert metrics[0].penalty_spread > 0 == metrics[0].penalty_retention
