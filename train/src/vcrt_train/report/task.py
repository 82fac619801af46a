"""Describe an item's task, when an answer passes, how often a random order passes, and each method.

The descriptions use ``num_operations``, ``orbit_size`` and (if they vary) the counts of the dataset, and its
``record_form``. Not covered: how an order is replayed and judged.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from vcrt.limits import MAX_ENUMERATED
from vcrt.printable import counted, listed
from vcrt.records.dataset import Dataset, read_policy_records
from vcrt.records.manifest import legal_share
from vcrt.records.record_form import RecordForm
from vcrt.words.evidence_words import inner_values
from vcrt_train.report.contents import ReportContents
from vcrt_train.report.wording import label, same_name
from vcrt_train.training.methods import METHODS

_WORD = re.compile(r"[^\W\d_]{2,}")
#: How many of an environment's own words a sentence names.
_NAMED = 6


def chance(contents: ReportContents, fold: str | None = None) -> float | None:
    """Return the share of an episode's orders that pass, which is the pass rate of a random order.

    If it varies, it is the mean over the items of ``fold``; by default, the mean over folds of these means. It is None
    above ``vcrt.limits.MAX_COUNTED`` operations, because legal orders are not counted then.
    """
    if not _varies(contents):
        return float(contents.dataset["orbit_size"]) / _num_orders(contents)
    folds = contents.folds if fold is None else (fold,)
    shares = [_share(contents.dataset["counts"][name]) for name in folds]
    known = [share for share in shares if share is not None]
    return fmean(known) if len(known) == len(shares) else None


def chance_text(contents: ReportContents) -> str:
    """Write the chance as a percentage without needless decimals; say so if it is a mean, or not known."""
    known = chance(contents)
    average = " on average" if _varies(contents) else ""
    return "a share that was not counted" if known is None else f"{100 * known:.4g}%{average}"


def task_text(contents: ReportContents) -> str:
    """Say what an item is, what the policy is given, when an answer passes, and how often a random order does."""
    return (
        f"An item is an episode of {steps_text(contents.dataset)} steps from an environment that was not trained on. "
        f"The policy is given {_given(contents)}, and writes one order greedily. It passes if the verifier accepts "
        f"that order and ends in the certified state; {_legal_text(contents)} a random order passes with "
        f"{chance_text(contents)}."
    )


def task_note(contents: ReportContents) -> str:
    """Say the same as :func:`task_text`, short enough for a table's note."""
    number = steps_text(contents.dataset)
    article = "an" if number.split()[0] in ("8", "11", "18") else "a"
    what = f"an episode of {number} steps"
    if number.isdecimal():
        what = f"{article} {number}-step episode"
    given = f"The policy is given {_given(contents)}. " if _form(contents).is_text else ""
    return (
        f"An item is {what} of the held-out environment; it passes if the "
        f"verifier accepts the order and ends in the certified state. {given}A random order passes with "
        f"{chance_text(contents)}."
    )


def steps_text(dataset: Mapping[str, Any]) -> str:
    """Write how many steps a dataset's episodes have: ``4``, or ``3 to 9``; ``dataset`` is the manifest."""
    if dataset["num_operations"] is not None:
        return str(dataset["num_operations"])
    schemas = inner_values(dataset["counts"])
    lengths = [int(number) for schema in schemas for number in schema["lengths"]]
    low, high = min(lengths), max(lengths)
    return str(low) if low == high else f"{low} to {high}"


def _form(contents: ReportContents) -> RecordForm:
    return RecordForm.model_validate(contents.dataset.get("record_form", {}))


def _given(contents: ReportContents) -> str:
    """Say what a record shows."""
    shown = {
        "relations": "only anonymous pointers and the certified relations{}, no text",
        "steps": "the task and the native steps as text, in random order under anonymous pointers{}, and no relations",
        "footprints": "anonymous pointers{} with what each step declares to read and to write, and no relations",
    }
    form = _form(contents)
    return shown[form.view].format(f" ({form.text})" if form.text else "")


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
    """Return the mean share over items, which may have different numbers of orders."""
    counts = schemas.values()
    if not all("lengths" in some for some in counts):
        return legal_share((some["legal_orders"], some["orders"]) for some in counts)
    found = [(int(n), length) for some in counts for n, length in some["lengths"].items()]
    if any(length["legal_orders"] is None for _, length in found):
        return None
    shares = sum(length["legal_orders"] / math.factorial(n) for n, length in found)
    return float(shares / sum(length["episodes"] for _, length in found))


def _num_orders(contents: ReportContents) -> int:
    return math.factorial(int(contents.dataset["num_operations"]))


def explained(methods: Sequence[str]) -> dict[str, str]:
    """Describe each method, by its displayed name, in the given order."""
    return {
        label(method): " ".join(label(w) if w in METHODS else w for w in row.summary.split(" "))
        for method in methods
        for row in METHODS.values()
        if same_name(row.name, method)
    }


def methods_note(methods: Sequence[str]) -> str:
    """Write the same as one sentence for a table's note; empty if no method is known."""
    words = "; ".join(f"{name} is {what}" for name, what in explained(methods).items())
    return f"{words}." if words else ""


def native_words(dataset: Dataset) -> tuple[str, ...]:
    """Write a sentence on the words of each environment's records; none if records have no texts."""
    if not dataset.manifest.record_form.is_text:
        return ()
    texts = {
        name: [
            "\n".join((record.task, *record.steps)).lower()
            for record in read_policy_records(dataset, name).values()
        ]
        for name in dataset.environments
    }
    return tuple(_sentence(name, texts) for name in texts)


def _sentence(name: str, texts: Mapping[str, Sequence[str]]) -> str:
    words = {other: [frozenset(_WORD.findall(text)) for text in of] for other, of in texts.items()}
    own = words[name]
    elsewhere = {
        word for other, some in words.items() if other != name for one in some for word in one
    }
    found = Counter(word for one in own for word in one if word not in elsewhere)
    telling = sum(any(word in found for word in one) for one in own)
    # Sorted, because sets of texts have another order in each process.
    most = sorted(found.items(), key=lambda item: (-item[1], item[0]))[:_NAMED]
    shares = [f"{word} ({100 * number / len(own):.0f}%)" for word, number in most]
    named = sum(name.lower() in text for text in texts[name])
    text = f"Of {counted(len(own), 'record')} of {name}, {named} name it and {telling} hold a word of it alone"
    return f"{text}: {listed(shares)}." if shares else f"{text}."
