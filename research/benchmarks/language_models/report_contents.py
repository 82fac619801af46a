"""Keep what a report is made from as JSON, and make one report of experiments that differ in seeds and folds alone.

Scores are strings of ``0`` and ``1``, one character an item. What a search and a probe have found is left out: a search
lies beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from vcrt_train.protocol.scores import Spread, passes_array
from vcrt_train.report.contents import FoldScore, ReportContents, RunReport

CONTENTS = "contents.json.gz"
LEFT_OUT = ("search", "also_test", "explorer")
#: The share of items that rounding on another processor may decide otherwise, of a model that hardly prefers an order.
ROUNDED = 0.05
#: What differs between the plans of seeds and folds of one comparison.
APART = ("seeds", "held_out", "episode_order_hashes", "chosen", "search", "how_chosen", "aliases")


def to_json(value: Any) -> Any:
    """Contents, or a part of them, in JSON's types."""
    if isinstance(value, np.ndarray):
        return "".join("01"[int(one)] for one in value)
    if isinstance(value, Spread):
        return value.model_dump(mode="json")
    if isinstance(value, FoldScore | ReportContents):
        return {
            one.name: to_json(getattr(value, one.name))
            for one in fields(value)
            if one.name not in LEFT_OUT
        }
    if isinstance(value, Mapping):
        return {str(key): to_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(one) for one in value]
    return value


def _score(value: Any) -> FoldScore:
    spread = value.pop("spread", None)
    passes = {name: passes_array(text) for name, text in value.items()}
    return FoldScore(**passes, spread=spread and Spread.model_validate(spread))


def _run(value: Any) -> RunReport:
    passes = {
        name: passes_array(value.pop(name)) for name in ("held_out_passes", "retention_passes")
    }
    frozen, earlier = value.pop("frozen"), value.pop("checkpoints")
    spread = value.pop("spread", None)
    return RunReport(
        **passes,
        **{**value, "curve": tuple(value["curve"])},
        spread=spread and Spread.model_validate(spread),
        frozen=frozen and _score(frozen),
        checkpoints={int(update): _score(one) for update, one in earlier.items()},
    )


def from_json(value: dict[str, Any]) -> ReportContents:
    """The contents that :func:`to_json` wrote."""
    tuples = ("not_measured", "tried", "warnings", "remarks")
    sources = ("sources", "retention_sources")
    return ReportContents(
        **value
        | {name: tuple(value[name]) for name in tuples}
        | {name: {fold: tuple(one) for fold, one in value[name].items()} for name in sources}
        | {"frozen": {fold: _score(one) for fold, one in value["frozen"].items()}}
        | {"runs": tuple(_run(one) for one in value["runs"])}
    )


def shared(contents: ReportContents) -> dict[str, Any]:
    """What of a plan all seeds and folds of a comparison have in common."""
    return {name: one for name, one in contents.plan.items() if name not in APART}


def merged(parts: Sequence[ReportContents]) -> ReportContents:
    """One report of experiments that differ in seeds and folds alone; an error says in what else they differ."""
    first = parts[0]
    for part in parts[1:]:
        mine, other = shared(first), shared(part)
        differ = [name for name in mine if mine[name] != other.get(name)]
        if differ:
            raise SystemExit(f"plans of one comparison differ in {', '.join(differ)}")
    frozen, rounded = _frozen(parts)

    def union(name: str) -> dict[str, Any]:
        return {fold: one for part in parts for fold, one in getattr(part, name).items()}

    methods = list(first.plan["methods"])
    runs = sorted(
        (run for part in parts for run in part.runs),
        key=lambda run: (run.held_out, run.seed, methods.index(run.method)),
    )
    texts = {
        name: dict.fromkeys(line for part in parts for line in getattr(part, name))
        for name in ("tried", "warnings", "remarks")
    }
    texts["remarks"] |= dict.fromkeys(rounded)
    return replace(
        first,
        runs=tuple(runs),
        frozen=frozen,
        plan={
            **first.plan,
            "seeds": sorted({run.seed for run in runs}),
            "held_out": sorted({run.held_out for run in runs}),
        },
        **{name: union(name) for name in ("sources", "retention_sources")},
        **{name: tuple(lines) for name, lines in texts.items()},
    )


def _frozen(parts: Sequence[ReportContents]) -> tuple[dict[str, FoldScore], list[str]]:
    """The frozen backbone's scores by fold, those of the first part that has it, and how others differ from them."""
    found = dict[str, FoldScore]()
    notes = list[str]()
    for part in parts:
        for fold, score in part.frozen.items():
            own = found.setdefault(fold, score)
            pairs = [
                (getattr(own, name), getattr(score, name))
                for name in ("held_out_passes", "retention_passes")
            ]
            apart, items = sum(int((a != b).sum()) for a, b in pairs), sum(len(a) for a, _ in pairs)
            if apart > ROUNDED * items:
                raise SystemExit(
                    f"the frozen backbone passes other items of {fold}: {apart} of {items}"
                )
            if apart:
                notes.append(
                    f"On another processor the frozen backbone passes {apart} of {items} items of {fold} otherwise: "
                    "rounding. Its row is of the first."
                )
    return found, notes
