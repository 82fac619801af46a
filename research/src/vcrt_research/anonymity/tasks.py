"""Define what is guessed from policy records: matched classes, folds, and the questions about legal orders.

``environment`` and ``schema`` could be told by the relations alone, which the policy is meant to see: environments
differ in how many steps conflict. So records are matched: in each *stratum*, a graph of typed relations up to renaming,
every class keeps equally many records, and AUC is taken within the stratum. For the order of rows, which has no
relations in it, the stratum is the file.

``legal order`` asks whether one given order of a record is legal. Half of the records are asked about an order drawn
from their legal ones, the others about one drawn from the rest. Which orders are legal follows from the relations, so
the question is put without them: what else is in a record must say nothing about it. It would if, for example, slots
were numbered in the order in which the steps were written. Each record is asked about an order of its own because a
leak that makes some fixed order legal in every record would leave nothing to tell apart.

Two controls must be far above chance, or a probe at chance means nothing: the same question *with* the relations, and
``relation types``, which the stratum fixes.

Each source gives at most one record to a task, so that no source stands on both sides of a fold and the records are
independent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from vcrt.orders import Order, all_orders
from vcrt_research.anonymity.auc import Design
from vcrt_research.anonymity.material import ProbedRecord
from vcrt_research.anonymity.result import Target
from vcrt_train.randomness import generator

#: What must be at chance.
TARGETS: tuple[Target, ...] = ("environment", "schema", "legal order")
#: What must not be.
CONTROLS: tuple[Target, ...] = ("relation types", "legal order, given relations")
NUM_FOLDS = 5
#: Two records of each class in each fold, or there is no error of an AUC.
MIN_RECORDS = 2 * NUM_FOLDS


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """Records in random order, what is guessed of each, and the order that each is asked about, if any.

    ``design.labels`` number ``classes``.
    """

    target: Target
    records: tuple[ProbedRecord, ...]
    questions: tuple[Order | None, ...]
    classes: tuple[str, ...]
    design: Design

    @property
    def shows_relations(self) -> bool:
        """Whether whoever guesses sees the relations."""
        return self.target != "legal order"


@dataclass(frozen=True, slots=True)
class _Candidate:
    record: ProbedRecord
    label: str
    stratum: Hashable
    question: Order | None = None


def make_task(
    target: Target, records: Sequence[ProbedRecord], seed: int, *, by_file: bool = False
) -> Task | None:
    """The task of a target; None if no stratum has ``MIN_RECORDS`` records of each of two classes.

    With ``by_file``, classes are matched within files instead of relation graphs.
    """
    rng = generator(seed, "anonymity", target)
    shuffled = [records[i] for i in rng.permutation(len(records))]
    one_each = list({record.source: record for record in shuffled}.values())
    if target == "relation types":
        candidates = [_Candidate(r, ", ".join(r.relation_types), None) for r in one_each]
    elif target in ("environment", "schema"):
        candidates = [
            _Candidate(
                record,
                record.environment
                if target == "environment"
                else f"{record.environment}/{record.schema}",
                record.file if by_file else (record.relation_types, record.relation_graph),
            )
            for record in one_each
        ]
    else:
        decidable = [record for record in one_each if len(set(record.legal)) == 2]
        labels = np.array(["illegal", "legal"])[rng.permutation(len(decidable)) % 2]
        candidates = [
            _Candidate(record, str(label), None, _question(record, str(label), rng))
            for record, label in zip(decidable, labels, strict=True)
        ]
    return _matched(target, candidates)


def _question(record: ProbedRecord, label: str, rng: np.random.Generator) -> Order:
    orders = all_orders(record.record.num_operations)
    eligible = [
        order
        for order, legal in zip(orders, record.legal, strict=True)
        if legal == (label == "legal")
    ]
    return eligible[int(rng.integers(len(eligible)))]


def _matched(target: Target, candidates: Sequence[_Candidate]) -> Task | None:
    """Equally many records of each class in each stratum, dealt to the folds in turn."""
    counts = Counter((one.stratum, one.label) for one in candidates)
    enough: dict[Hashable, list[int]] = {}
    for (stratum, _), count in counts.items():
        if count >= MIN_RECORDS:
            enough.setdefault(stratum, []).append(count)
    quota = {stratum: min(found) for stratum, found in enough.items() if len(found) >= 2}
    kept: list[_Candidate] = []
    folds: list[int] = []
    taken: Counter[tuple[Hashable, str]] = Counter()
    for one in candidates:
        group = (one.stratum, one.label)
        if counts[group] >= MIN_RECORDS and taken[group] < quota.get(one.stratum, 0):
            kept.append(one)
            folds.append(taken[group] % NUM_FOLDS)
            taken[group] += 1
    if not kept:
        return None
    classes = sorted({one.label for one in kept})
    strata = sorted({one.stratum for one in kept}, key=repr)
    return Task(
        target=target,
        records=tuple(one.record for one in kept),
        questions=tuple(one.question for one in kept),
        classes=tuple(classes),
        design=Design(
            labels=np.array([classes.index(one.label) for one in kept]),
            strata=np.array([strata.index(one.stratum) for one in kept]),
            folds=np.array(folds),
        ),
    )
