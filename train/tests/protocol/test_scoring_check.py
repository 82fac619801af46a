"""Which prompts are checked: some of the first, and the longest unless one of those is as long."""

from __future__ import annotations

import pytest

from small_models import make_model
from vcrt.records.policy_view import PointerRelation, PolicyRecord
from vcrt_train.policy.causal_model import Prompt
from vcrt_train.protocol import evaluation
from vcrt_train.training.methods import method


def record(number, num_relations):
    pairs = [(a, b) for a in range(4) for b in range(a + 1, 4)][:num_relations]
    relations = tuple(PointerRelation(a, b, "commutes") for a, b in pairs)
    return PolicyRecord(record_id=str(number), pointers=(0, 1, 2, 3), relations=relations)


def encode(some, serialisation, generator):
    """Prompts whose length grows with the number of relations."""
    return Prompt(token_ids=(5,) * (2 + len(some.relations)), pointer_ids=(1, 2, 3, 4))


@pytest.mark.parametrize(
    ("sizes", "checked"),
    [
        ([3, 3, 3, 3, 3, 3], [[5, 5]]),
        ([1, 6, 2, 2, 5, 6], [[3, 8]]),
        ([1, 2, 2, 2, 5, 6], [[3, 4], [8]]),
    ],
)
def test_the_longest_is_checked_once(monkeypatch, sizes, checked):
    found = []
    monkeypatch.setattr(
        evaluation,
        "self_check",
        lambda model, prompts, **options: found.append([len(p.token_ids) for p in prompts]),
    )
    records = [record(number, size) for number, size in enumerate(sizes)]
    evaluation.check_scoring(make_model(), encode, records, method("vcrt"), backend="auto", seed=0)
    assert found == checked
