"""A small report of made-up runs, and a reader of its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np

from vcrt.records.manifest import CheckCounts, FileEntry, Manifest, SchemaCounts
from vcrt_train.randomness import generator
from vcrt_train.report.contents import FoldScore, ReportContents, RunReport
from vcrt_train.report.curve_figures import LOG_MARGIN, known_quantities

FOLDS = ("lean", "proofwriter", "clrs")


#: Pass rates of the synthetic methods on the three folds.
RATES = {
    "outcome-grpo": (0.57, 0.55, 0.61),
    "canonical-grpo": (0.66, 0.56, 0.71),
    "vcrt": (0.98, 0.58, 0.74),
    "no-orbit": (0.98, 0.58, 0.76),
    "shuffled-orbit": (0.70, 0.66, 0.69),
    "no-anti": (0.75, 0.50, 0.70),
}


EVIL = '<script>alert("x")</script>'


def synthetic_curve(rate: float, seed: int, num_updates: int) -> tuple[Mapping[str, float], ...]:
    noise = generator(seed, "curve", str(rate))
    rows = []
    for update in range(1, num_updates + 1):
        mass = 0.5 + (rate - 0.5) * (1 - np.exp(-update / (num_updates / 4)))
        row = {
            "update": float(update),
            "mean_reward": float(np.clip(mass + noise.normal(0, 0.1), 0, 1)),
            "orbit_mass": float(mass),
            "illegal_mass": float(1 - mass),
            "loss": float(2 * (1 - mass) + noise.normal(0, 0.05)),
            "commutation": float(0.02 * (1 - mass)),
            "action_kl": float(abs(noise.normal(0, 0.01))),
        }
        rows.append(row)
    return tuple(rows)


def synthetic_dataset(schema: str = "cite", exclusion: str = "duplicate") -> dict[str, object]:
    """A manifest in the real form, checked by the real model."""
    counts = {
        fold: {
            name: SchemaCounts(
                candidates=110,
                episodes=100,
                orders=2400,
                legal_orders=1200,
                relations={"commutes": 500, "precedes": 100},
                exclusions={exclusion: 7, "outside_schema": 3},
            )
            for name in (schema, "second")
        }
        for fold in FOLDS
    }
    versions = {
        fold: {
            "environment": fold,
            "adapter": "1",
            "canonicalizer": "1",
            "verifier": f"{fold} 4.35.0",
            "libraries": {"numpy": "2.4.6", "native": "ab" * 32},
        }
        for fold in FOLDS
    }
    manifest = Manifest(
        format="vcrt-dataset/2",
        seed=0,
        num_operations=4,
        orbit_size=12,
        series=[{"environment": "lean", "schema": "cite", "sampled": 100}],
        counts=counts,
        conformance={
            "lean": {
                "command line": CheckCounts(
                    episodes=20,
                    disagreeing_episodes=0,
                    checked=480,
                    agreed=480,
                    disagreement_rate=0.0,
                )
            },
            "proofwriter": {
                "clingo": CheckCounts(
                    episodes=400,
                    disagreeing_episodes=1,
                    checked=9600,
                    agreed=9599,
                    disagreement_rate=1 / 9600,
                )
            },
        },
        versions=versions,
        content={"policy/records.jsonl.gz": "00" * 32},
        root_hash="cd" * 32,
        files={"policy/records.jsonl.gz": FileEntry(size=1, sha256="00" * 32)},
    )
    return manifest.model_dump()


def synthetic_contents(
    *,
    rates: Mapping[str, tuple[float, ...]] = RATES,
    folds: tuple[str, ...] = FOLDS,
    num_runs: int = 3,
    num_items: int = 200,
    num_updates: int = 30,
    schema: str = "cite",
    num_resamples: int = 1000,
) -> ReportContents:
    """A small report of made-up runs."""
    draws = generator(0, "synthetic")
    frozen = {
        fold: FoldScore(
            held_out_passes=draws.random(num_items) < 0.5,
            retention_passes=draws.random(num_items // 2) < 0.6,
        )
        for fold in folds
    }
    runs = []
    for method, by_fold in rates.items():
        for fold, rate in zip(folds, by_fold, strict=False):
            for seed in range(num_runs):
                level = float(np.clip(rate + draws.normal(0, 0.02), 0, 1)) if rate < 1 else 1.0
                runs.append(
                    RunReport(
                        method=method,
                        held_out=fold,
                        seed=seed,
                        held_out_passes=draws.random(num_items) < level,
                        retention_passes=frozen[fold].retention_passes
                        | (draws.random(num_items // 2) < 0.2),
                        curve=synthetic_curve(rate, seed, num_updates),
                    )
                )
    return ReportContents(
        title="Leave-one-environment-out transfer",
        backbone="Embedded backbone, 1.2M parameters, pretrained on random partial orders",
        dataset=synthetic_dataset(schema),
        agreement={"replays": 14400, "agreed": 14400},
        plan={
            "seed": 0,
            "methods": list(rates),
            "folds": list(folds),
            "training": {"num_updates": num_updates, "learning_rate": 5e-6},
        },
        plan_hash="ef" * 32,
        opening={"opened_at": "2026-01-01T00:00:00Z", "reopened": False, "reason": None},
        frozen=frozen,
        runs=tuple(runs),
        not_measured=("A second backbone.", "Wall-clock time on more than one GPU."),
        tried=("learning rate 1e-4 and 3e-4",),
        num_resamples=num_resamples,
    )


def paper_scale(num_updates: int = 400) -> ReportContents:
    """Six methods, three folds, three runs, every quantity that a run logs, checkpoints, and a plan with caps."""
    contents = synthetic_contents(num_updates=num_updates, num_items=100, num_resamples=200)
    objective = {
        "margin": 2.0,
        "commutation_cap": 0.01,
        "retention_cap": 0.05,
        "action_kl_cap": 0.2,
    }
    # What is logged of records whose orders are all scored.
    drawn = {"orbit_log_mass_error", "effective_path_share"}
    logged = {"update", *known_quantities()} - {LOG_MARGIN} - drawn
    runs = []
    for index, run in enumerate(contents.runs):
        noise = generator(index, "quantities")
        values = {name: np.abs(noise.normal(0, 0.05, num_updates)) for name in sorted(logged)}
        rows = tuple(
            {**{name: float(values[name][k]) for name in values}, **row}
            for k, row in enumerate(run.curve)
        )
        scored = FoldScore(held_out_passes=passes(55, 100), retention_passes=passes(30, 50))
        runs.append(replace(run, curve=rows, checkpoints={100: scored}, cpu_seconds=100.0))
    plan = {**contents.plan, "config": {"objective": objective}}
    return replace(contents, runs=tuple(runs), plan=plan)


class Page(HTMLParser):
    """Collects tables and attributes, and fails on tags that do not nest."""

    VOID = frozenset({"meta", "br", "hr", "img", "link", "input"})

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.stack: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.ids: list[str] = []
        self.text: list[str] = []
        self._table = ""
        self.feed(text)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.attributes += [(tag, name, value) for name, value in values.items()]
        if "id" in values:
            self.ids.append(values["id"])
        if values.get("class") == "table":
            self._table = values["id"].removeprefix("table-")
            self.tables[self._table] = []
        if tag == "tr":
            self.tables[self._table].append([])
        if tag in ("th", "td"):
            self.tables[self._table][-1].append("")
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if self.stack and self.stack[-1] in ("th", "td"):
            self.tables[self._table][-1][-1] += data


def sentence(lines: list[str], fragment: str) -> str:
    found = [line for line in lines if fragment in line]
    assert len(found) == 1, (fragment, lines)
    return found[0]


def passes(num_passes: int, num_items: int = 200) -> np.ndarray:
    return np.arange(num_items) < num_passes


def with_retention(contents: ReportContents, sizes: Mapping[str, int], lost: int) -> ReportContents:
    """Every retention item passes before training; each run loses ``lost`` of them."""
    frozen = {
        fold: replace(score, retention_passes=np.ones(sizes[fold], bool))
        for fold, score in contents.frozen.items()
    }
    runs = tuple(
        replace(run, retention_passes=~passes(lost, sizes[run.held_out])) for run in contents.runs
    )
    return replace(contents, frozen=frozen, runs=runs)


def with_passes(
    contents: ReportContents, counts: Mapping[tuple[str, str], Sequence[int]]
) -> ReportContents:
    """By method and fold, the number of held-out items that each seed passes: the first ones."""
    runs = tuple(
        replace(
            run,
            held_out_passes=passes(
                counts[run.method, run.held_out][run.seed], run.held_out_passes.size
            ),
        )
        if (run.method, run.held_out) in counts
        else run
        for run in contents.runs
    )
    return replace(contents, runs=runs)


def six_methods(**counts: tuple[int, int, int]) -> ReportContents:
    """Every run of a method passes as many items; methods that are not named pass 300 of 400."""
    names = ("outcome-grpo", "canonical-grpo", "vcrt", "no-orbit", "shuffled-orbit", "no-anti")
    made = synthetic_contents(
        rates=dict.fromkeys(names, (0.5,) * 3), num_items=400, num_updates=1, num_resamples=300
    )
    rows = {name: counts.get(name.replace("-", "_"), (300,) * 3) for name in names}
    return with_passes(
        made,
        {(n, f): [c] * 3 for n, row in rows.items() for f, c in zip(FOLDS, row, strict=True)},
    )


def invented() -> ReportContents:
    """Two runs of four methods on 40 items, of which the first ones pass: a whole report to be read by eye."""
    folds = ("lean", "proofwriter", "clrs")
    counts = {
        "outcome-grpo": ((20, 22), (19, 21), (24, 20)),
        "canonical-grpo": ((30, 28), (24, 25), (30, 29)),
        "vcrt": ((40, 39), (20, 21), (31, 30)),
        "no-orbit": ((40, 40), (20, 21), (31, 29)),
    }
    frozen = {
        fold: FoldScore(held_out_passes=passes(18, 40), retention_passes=passes(40, 60))
        for fold in folds
    }
    runs = tuple(
        RunReport(
            method=method,
            held_out=fold,
            seed=seed,
            held_out_passes=passes(by_fold[k][seed], 40),
            retention_passes=passes(40 + seed - (k == 1), 60),
            curve=({"update": 1.0, "loss": 1.0}, {"update": 100.0, "loss": 0.5}),
            checkpoints={
                50: FoldScore(
                    held_out_passes=passes(by_fold[k][seed] - 5, 40),
                    retention_passes=passes(38, 60),
                )
            },
            cpu_seconds=90.0,
        )
        for method, by_fold in counts.items()
        for k, fold in enumerate(folds)
        for seed in (0, 1)
    )
    return replace(
        synthetic_contents(rates={"vcrt": (0.5,)}, folds=("lean",), num_runs=1),
        backbone="Tiny & 100%_invented",
        frozen=frozen,
        runs=runs,
        num_resamples=500,
    )
