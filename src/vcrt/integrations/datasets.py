"""A frozen dataset as a ``datasets`` dataset, and back.

One row for each record, with the columns that :class:`vcrt.integrations.trl.OrbitGRPOTrainer` takes:

``prompt``     the record as text, or as one message of a user (``chat=True``); it names no environment
``orbit``      the certified orbit, as answers; ``illegal``: all other orders
``legal``      the orbit as orders of slots; ``pointers``: the pointer of each slot
``relations``, ``distractors``, ``histories``  the rest of the record and of its supervision
``record_id``, ``episode_id``, ``environment``, ``schema``, ``source``  where it comes from, never shown to a policy

The dataset's description holds the root hash. Not covered: evidence; it stays in the frozen dataset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vcrt.errors import MalformedInputError, UnavailableError
from vcrt.integrations.selection import chosen_environments
from vcrt.integrations.text import Rendering, answers, prompt_text
from vcrt.orders import all_orders
from vcrt.records.dataset import Dataset, Item, load_items
from vcrt.records.policy_view import record_from_json
from vcrt.records.supervision import SupervisedRecord

try:
    import datasets as hub
except ImportError as error:
    raise UnavailableError(
        "the package datasets is not installed",
        found=str(error),
        remedy="pip install 'vcrt[trl]' or pip install datasets",
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
    """The records of a frozen dataset as a ``datasets.Dataset``, in the dataset's order.

    ``environments`` chooses (all by default) and ``held_out`` leaves one out: no file of an environment that is not
    exported is read. Raises what :func:`vcrt.integrations.selection.chosen_environments` raises.
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
    """The items that :func:`to_dataset` exported, equal to those of :func:`vcrt.records.dataset.load_items`.

    Raises :class:`MalformedInputError` for rows of another form.
    """
    return [_item(row) for row in dataset]


def _row(item: Item, rendering: Rendering, chat: bool) -> dict[str, Any]:
    supervised, record = item.listed, item.supervised.record
    text = prompt_text(record, rendering)
    orbit, illegal = answers(supervised)
    orders = zip(all_orders(record.num_operations), supervised.legal, strict=True)
    return {
        "prompt": [{"role": "user", "content": text}] if chat else text,
        "orbit": orbit,
        "illegal": illegal,
        "legal": [list(order) for order, is_legal in orders if is_legal],
        "pointers": list(record.pointers),
        "relations": [_edge(r.first, r.second, r.kind) for r in record.relations],
        "distractors": [_edge(d.first, d.second, d.kind) for d in record.distractors],
        "histories": [[list(ab), list(ba)] for ab, ba in supervised.histories],
        "record_id": record.record_id,
        "episode_id": item.episode_id,
        "environment": item.environment,
        "schema": item.schema,
        "source": item.source,
    }


def _edge(first: int, second: int, kind: str) -> dict[str, Any]:
    return {"first": first, "second": second, "kind": kind}


def _item(row: Mapping[str, Any]) -> Item:
    try:
        edges = {
            name: [[e["first"], e["second"], e["kind"]] for e in row[name]]
            for name in ("relations", "distractors")
        }
        record = record_from_json(
            {"record_id": row["record_id"], "pointers": row["pointers"], **edges}
        )
        legal = {tuple(order) for order in row["legal"]}
        orders = all_orders(record.num_operations)
        if not legal <= set(orders):
            raise MalformedInputError("not orders of the record's slots", found=str(row["legal"]))
        return Item(
            supervised=SupervisedRecord(
                record=record,
                legal=tuple(order in legal for order in orders),
                histories=tuple((tuple(ab), tuple(ba)) for ab, ba in row["histories"]),
            ),
            environment=row["environment"],
            episode_id=row["episode_id"],
            schema=row["schema"],
            source=row["source"],
        )
    except (KeyError, TypeError) as error:
        raise MalformedInputError(
            "not a row of an exported dataset",
            found=f"{type(error).__name__}: {error}",
            expected="the columns that vcrt.integrations.datasets.to_dataset writes",
        ) from error


def _features(chat: bool) -> Any:
    text, numbers = hub.Value("string"), hub.List(hub.Value("int64"))
    return hub.Features(
        {
            "prompt": hub.List({"role": text, "content": text}) if chat else text,
            "orbit": hub.List(text),
            "illegal": hub.List(text),
            "legal": hub.List(numbers),
            "pointers": numbers,
            "relations": hub.List(ENDPOINTS),
            "distractors": hub.List(ENDPOINTS),
            "histories": hub.List(hub.List(numbers)),
            **dict.fromkeys(("record_id", "episode_id", "environment", "schema", "source"), text),
        }
    )
