"""Gather what the probe reads: each policy record as it is in its file, beside what only the audit view knows.

Not covered: whether the dataset agrees with its own replays (see :mod:`vcrt.datasets.agreement`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from vcrt.hashing import canonical_json
from vcrt.orders import Order, all_orders
from vcrt.records.dataset import POLICY_COLUMNS, Dataset, load_items
from vcrt.records.manifest import policy_name
from vcrt.records.policy_view import PointerRelation, PolicyRecord, record_of_json
from vcrt.records.rows import read_rows


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbedRecord:
    """A row of a policy file, its record, and the labels that must not be guessable from them.

    ``text`` is the row's record as it is written, ``record`` what it says, both without texts of steps; ``row`` is its
    place among the ``num_rows`` of ``file``. ``legal`` has one flag for each column of :func:`vcrt.orders.all_orders`.
    """

    file: str
    row: int
    num_rows: int
    record_id: str
    text: str
    record: PolicyRecord
    environment: str
    schema: str
    source: str
    legal: tuple[bool, ...]

    @property
    def relation_types(self) -> tuple[str, ...]:
        """The multiset of relation types, sorted."""
        return tuple(sorted(relation.kind for relation in self.record.relations))

    @property
    def relation_graph(self) -> tuple[tuple[int, int, str], ...]:
        """The relations up to a renaming of slots: equal for two records exactly if a renaming makes them equal."""
        return min(
            tuple(sorted(_renamed(relation, names) for relation in self.record.relations))
            for names in all_orders(self.record.num_operations)
        )


def _renamed(relation: PointerRelation, names: Order) -> tuple[int, int, str]:
    first, second = names[relation.first], names[relation.second]
    if relation.kind == "commutes":
        first, second = sorted((first, second))
    return first, second, relation.kind


def read_probed_records(dataset: Dataset) -> list[ProbedRecord]:
    """Every record of a dataset, with the labels that its evidence gives."""
    probed = []
    for environment in dataset.environments:
        items = {i.supervised.record.record_id: i for i in load_items(dataset, environment)}
        name = policy_name(environment)
        rows = read_rows(dataset.path / name, POLICY_COLUMNS)
        for place, row in enumerate(rows):
            item = items[row["record_id"]]
            record, text = record_of_json(row["record"], environment), row["record"]
            if record.steps:
                # What steps are in words tells all; whether anything else does is the question.
                record = replace(record, task="", steps=())
                text = canonical_json(record.to_json()).decode()
            probed.append(
                ProbedRecord(
                    file=name,
                    row=place,
                    num_rows=len(rows),
                    record_id=row["record_id"],
                    text=text,
                    record=record,
                    environment=environment,
                    schema=item.schema,
                    source=item.source,
                    legal=item.listed.legal,
                )
            )
    return probed
