"""What an item asks of a policy, when it passes, and how often a random order would.

Read from ``num_operations``, ``orbit_size`` and, where they vary, the counts of the dataset, and from its
``record_form``. Not covered: how an order is replayed and judged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

from vcrt.limits import MAX_ENUMERATED
from vcrt.records.manifest import legal_share
from vcrt.records.record_form import RecordForm
from vcrt.report import paper
from vcrt.report.contents import ReportContents


def is_papers_task(contents: ReportContents) -> bool:
    """Whether an item asks what the paper's items do: four steps, 12 legal orders, all relations stated plainly."""
    asked = (contents.dataset["num_operations"], contents.dataset["orbit_size"])
    return asked == (4, paper.LEGAL_ORDERS_PER_EPISODE) and not _form_text(contents)


def chance(contents: ReportContents) -> float | None:
    """The share of an episode's orders that pass, which is the pass rate of a random order.

    Where it varies, it is the mean over the items of each held-out environment, and then over the environments. None
    for more than ``vcrt.limits.MAX_COUNTED`` operations, whose legal orders are not counted.
    """
    if _varies(contents):
        shares = [_share(contents.dataset["counts"][fold]) for fold in contents.folds]
        known = [share for share in shares if share is not None]
        return fmean(known) if len(known) == len(shares) else None
    return float(contents.dataset["orbit_size"]) / _num_orders(contents)


def chance_of(contents: ReportContents, fold: str) -> float | None:
    """The same for the items of one held-out environment."""
    if not _varies(contents):
        return chance(contents)
    return _share(contents.dataset["counts"][fold])


def chance_text(contents: ReportContents) -> str:
    """The chance as a percentage without needless decimals; says so if it is a mean, or not known."""
    known = chance(contents)
    if known is None:
        return "a share that was not counted"
    average = " on average" if _varies(contents) else ""
    return f"{100 * known:.4g}%{average}"


def task_text(contents: ReportContents) -> str:
    """What an item is, what the policy is given, when it passes, and what chance gives."""
    return (
        f"An item is an episode of {steps_text(contents.dataset)} steps from an environment that was not "
        "trained on. The policy is given only anonymous pointers and the certified relations"
        f"{_form_text(contents)}, no text, and writes one order greedily. It passes if the verifier accepts that order "
        f"and ends in the certified state; {_legal_text(contents)} a random order passes with {chance_text(contents)}."
    )


def task_note(contents: ReportContents) -> str:
    """As :func:`task_text`, short enough for a table's note."""
    number = steps_text(contents.dataset)
    article = "an" if number.split()[0] in ("8", "11", "18") else "a"
    what = (
        f"{article} {number}-step episode"
        if number.isdecimal()
        else f"an episode of {number} steps"
    )
    return (
        f"An item is {what} of the held-out environment; it passes if the "
        "verifier accepts the order and ends in the certified state. A random order passes with "
        f"{chance_text(contents)}."
    )


def steps_text(dataset: Mapping[str, Any]) -> str:
    """How many steps a dataset's episodes have: ``4``, or ``3 to 9``; ``dataset`` is its manifest."""
    lengths = _lengths(dataset)
    return str(lengths[0]) if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]}"


def _lengths(dataset: Mapping[str, Any]) -> list[int]:
    if dataset["num_operations"] is not None:
        return [int(dataset["num_operations"])]
    schemas = [some for by_schema in dataset["counts"].values() for some in by_schema.values()]
    return sorted({int(number) for schema in schemas for number in schema["lengths"]})


def _form_text(contents: ReportContents) -> str:
    form = RecordForm.model_validate(contents.dataset.get("record_form", {})).text
    return f" ({form})" if form else ""


def _legal_text(contents: ReportContents) -> str:
    if contents.dataset["num_operations"] is None:
        return "how many of its orders do depends on the item's steps and relations;"
    num_orders = _num_orders(contents)
    if not _varies(contents):
        return f"{contents.dataset['orbit_size']} of {num_orders} orders do, so"
    if contents.dataset["num_operations"] > MAX_ENUMERATED:
        return f"how many of {num_orders:,} orders do depends on the item's relations;"
    # Two directed relations or more leave at most a third.
    return f"2 to {num_orders // 3} of {num_orders}, by the item, orders do, so"


def _varies(contents: ReportContents) -> bool:
    return contents.dataset["orbit_size"] is None


def _share(schemas: Mapping[str, Mapping[str, Any]]) -> float | None:
    counts = schemas.values()
    if all("lengths" in c for c in counts):
        return _share_of_lengths(counts)
    return legal_share((c["legal_orders"], c["orders"]) for c in counts)


def _share_of_lengths(counts: Iterable[Mapping[str, Any]]) -> float | None:
    """The mean share over items that have different numbers of orders."""
    found = [(int(n), some) for c in counts for n, some in c["lengths"].items()]
    if any(some["legal_orders"] is None for _, some in found):
        return None
    shares = sum(some["legal_orders"] / math.factorial(n) for n, some in found)
    return float(shares / sum(some["episodes"] for _, some in found))


def _num_orders(contents: ReportContents) -> int:
    return math.factorial(int(contents.dataset["num_operations"]))
