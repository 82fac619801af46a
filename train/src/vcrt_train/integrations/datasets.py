"""Turn a frozen dataset into a ``datasets`` dataset, and back.

Each record is one row, with the columns for :class:`vcrt_train.integrations.trl.OrbitGRPOTrainer`:

``prompt``     the record as text, or as one message of a user (``chat=True``); it names no environment
``orbit``      the certified orbit, as answers; ``illegal``: all other orders
``legal``      the orbit as orders of slots; ``pointers``: the pointer of each slot, drawn from ``pool``
``relations``, ``distractors``, ``histories``  the rest of the record and of its supervision
``task``, ``steps``  the start of the steps and the text of each slot, if records show steps; else empty
``partial_order``  if there are too many orders to list: the pairs of the certified partial order, in slots; then the
                   columns of listed orders are None, and otherwise this one
``unreplayed`` if the evidence is a sample: the data for a native verdict on an order, as JSON; else None
``record_id``, ``episode_id``, ``environment``, ``schema``, ``source``  the origin, which no policy is shown

The dataset's description holds the root hash. Not covered: evidence, which stays in the frozen dataset.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from vcrt.documents import strict_json
from vcrt.environments.contract import Outcome, Versions
from vcrt.errors import MalformedInputError, UnavailableError
from vcrt.hashing import canonical_json
from vcrt.orders import all_orders
from vcrt.partial_orders import PartialOrder
from vcrt.records.audit import episode_of_json
from vcrt.records.dataset import Dataset, Item, Unreplayed, load_items
from vcrt.records.policy_view import PolicyRecord, pointer_pool, record_from_json
from vcrt.records.supervision import PosetRecord, SupervisedRecord
from vcrt.replay.evidence import episode_to_json
from vcrt_train.integrations.text import Rendering, answers, chosen_environments, prompt_text

try:
    import datasets as hub
except ImportError as error:
    raise UnavailableError(
        "the package datasets is not installed",
        found=str(error),
        remedy="pip install datasets",
    ) from error

ENDPOINTS = {"first": hub.Value("int64"), "second": hub.Value("int64"), "kind": hub.Value("string")}


def to_dataset(
    dataset: Dataset,
    *,
    environments: Sequence[str] | None = None,
    held_out: str | None = None,
    rendering: Rendering = Rendering(),  # noqa: B008 - frozen
    chat: bool = False,
) -> Any:
    """Return the records of a frozen dataset as a ``datasets.Dataset``, in the dataset's order.

    ``environments`` chooses environments (all by default) and ``held_out`` leaves one out; only files of exported
    environments are read. Raises as :func:`vcrt_train.integrations.text.chosen_environments`.
    """
    rows = [
        _row(item, rendering, chat)
        for name in chosen_environments(dataset, environments, held_out)
        for item in load_items(dataset, name)
    ]
    features = _features(chat)
    about = f"vcrt dataset {dataset.manifest.root_hash}"
    return hub.Dataset.from_list(
        rows, features=features, info=hub.DatasetInfo(description=about, features=features)
    )


def from_dataset(dataset: Any) -> list[Item]:
    """Return the items that :func:`to_dataset` exported, equal to those of :func:`vcrt.records.dataset.load_items`.

    Raises :class:`MalformedInputError` for rows of another form.
    """
    return [_item(row) for row in dataset]


def _row(item: Item, rendering: Rendering, chat: bool) -> dict[str, Any]:
    record = item.supervised.record
    text = prompt_text(record, rendering)
    return {
        "prompt": [{"role": "user", "content": text}] if chat else text,
        **_supervision(item.supervised),
        "pointers": list(record.pointers),
        "pool": record.pool,
        "relations": [asdict(relation) for relation in record.relations],
        "distractors": [asdict(distractor) for distractor in record.distractors],
        "task": record.task,
        "steps": list(record.steps),
        "unreplayed": None if item.unreplayed is None else _unreplayed_text(item.unreplayed),
        "record_id": record.record_id,
        "episode_id": item.episode_id,
        "environment": item.environment,
        "schema": item.schema,
        "source": item.source,
    }


def _supervision(supervised: SupervisedRecord | PosetRecord) -> dict[str, Any]:
    """Return the columns of listed orders, or that of a partial order; the others are None."""
    if isinstance(supervised, PosetRecord):
        pairs = [list(pair) for pair in supervised.order.pairs]
        return {**dict.fromkeys(("orbit", "illegal", "legal", "histories")), "partial_order": pairs}
    orbit, illegal = answers(supervised)
    orders = zip(all_orders(supervised.num_operations), supervised.legal, strict=True)
    return {
        "orbit": orbit,
        "illegal": illegal,
        "legal": [list(order) for order, is_legal in orders if is_legal],
        "histories": [[list(ab), list(ba)] for ab, ba in supervised.histories],
        "partial_order": None,
    }


def _unreplayed_text(unreplayed: Unreplayed) -> str:
    value: dict[str, Any] = {
        "episode": episode_to_json(unreplayed.episode),
        "slot_of_operation": list(unreplayed.slot_of_operation),
        "terminal_hash": unreplayed.outcome.terminal_hash,
        "outputs": [list(pair) for pair in sorted(unreplayed.outcome.output_of.items())],
        "versions": unreplayed.versions.to_json(),
    }
    return canonical_json(value).decode()


def _item(row: Mapping[str, Any]) -> Item:
    try:
        unreplayed = row["unreplayed"]
        return Item(
            supervised=_supervised(_record(row), row),
            environment=row["environment"],
            episode_id=row["episode_id"],
            schema=row["schema"],
            source=row["source"],
            unreplayed=None if unreplayed is None else _unreplayed(unreplayed, row["episode_id"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, MalformedInputError):
            raise
        raise MalformedInputError(
            "not a row of an exported dataset",
            found=f"{type(error).__name__}: {error}",
            expected="the columns that vcrt_train.integrations.datasets.to_dataset writes",
        ) from error


def _record(row: Mapping[str, Any]) -> PolicyRecord:
    """Return the record, through the reader of its JSON form, which leaves out usual values."""
    value: dict[str, Any] = {"record_id": row["record_id"], "pointers": row["pointers"]}
    for name in ("relations", "distractors"):
        value[name] = [[e["first"], e["second"], e["kind"]] for e in row[name]]
    if not value["distractors"]:
        del value["distractors"]
    if row["pool"] != pointer_pool(len(row["pointers"])):
        value["pool"] = row["pool"]
    if row["steps"]:
        value |= {"task": row["task"], "steps": list(row["steps"])}
    return record_from_json(value)


def _supervised(record: PolicyRecord, row: Mapping[str, Any]) -> SupervisedRecord | PosetRecord:
    if row["partial_order"] is not None:
        pairs = [(first, second) for first, second in row["partial_order"]]
        return PosetRecord(record=record, order=PartialOrder.of(record.num_operations, pairs))
    legal = {tuple(order) for order in row["legal"]}
    orders = all_orders(record.num_operations)
    if not legal <= set(orders):
        raise MalformedInputError("not orders of the record's slots", found=str(row["legal"]))
    return SupervisedRecord(
        record=record,
        legal=tuple(order in legal for order in orders),
        histories=tuple((tuple(ab), tuple(ba)) for ab, ba in row["histories"]),
    )


def _unreplayed(text: str, episode_id: str) -> Unreplayed:
    value = strict_json(text.encode())
    if "outputs" not in value:
        raise MalformedInputError(
            "a row lacks the outputs of the reference order, so no order can be judged by it",
            where=f"episode {episode_id}, column unreplayed",
            found="no member 'outputs'; an older version wrote none",
            expected="the outputs by operation beside 'terminal_hash'",
            remedy="export the frozen dataset again with vcrt_train.integrations.datasets.to_dataset",
        )
    outputs = dict(value["outputs"])
    return Unreplayed(
        episode=episode_of_json(json.dumps(value["episode"]), f"episode {episode_id}"),
        slot_of_operation=tuple(value["slot_of_operation"]),
        outcome=Outcome(value["terminal_hash"], outputs),
        versions=Versions(**value["versions"]),
    )


def _features(chat: bool) -> Any:
    text, numbers = hub.Value("string"), hub.List(hub.Value("int64"))
    return hub.Features(
        {
            "prompt": hub.List({"role": text, "content": text}) if chat else text,
            "orbit": hub.List(text),
            "illegal": hub.List(text),
            "legal": hub.List(numbers),
            "pointers": numbers,
            "pool": hub.Value("int64"),
            "relations": hub.List(ENDPOINTS),
            "distractors": hub.List(ENDPOINTS),
            "task": text,
            "steps": hub.List(text),
            "histories": hub.List(hub.List(numbers)),
            "partial_order": hub.List(numbers),
            "unreplayed": text,
            **dict.fromkeys(("record_id", "episode_id", "environment", "schema", "source"), text),
        }
    )
