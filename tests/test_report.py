"""The report: numbers in it are the numbers of the contents, and nothing from outside is alive in it."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import fields, replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import rich.console

from vcrt.protocol.anonymity.result import AnonymityReport, ProbeResult
from vcrt.protocol.statistics import Interval, hierarchical_bootstrap, paired_bootstrap
from vcrt.randomness import generator
from vcrt.records.manifest import CheckCounts, FileEntry, Manifest, SchemaCounts
from vcrt.report import paper
from vcrt.report.analysis import FROZEN, Estimate, analyse
from vcrt.report.contents import FoldScore, ReportContents, RunReport
from vcrt.report.curves import CURVE_TITLES, curve_points, quantities
from vcrt.report.figures import curve_figures, pass_rate_figure
from vcrt.report.judgement import determined_sign
from vcrt.report.page import write_report
from vcrt.report.panels import COLORS
from vcrt.report.provenance import provenance_tables
from vcrt.report.tables import Table, report_tables, summary, to_csv, to_html, to_rich, to_text
from vcrt.report.task import task_text

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
        content={"policy/records.parquet": "00" * 32},
        root_hash="cd" * 32,
        files={"policy/records.parquet": FileEntry(size=1, sha256="00" * 32)},
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


@pytest.fixture(scope="module")
def contents() -> ReportContents:
    return synthetic_contents()


@pytest.fixture(scope="module")
def report(contents: ReportContents, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_report(contents, tmp_path_factory.mktemp("report") / "new")


@pytest.fixture(scope="module")
def html(report: dict[str, Path]) -> str:
    return report["report.html"].read_text(encoding="utf-8")


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


def test_page_is_well_formed_with_unique_ids(html: str) -> None:
    page = Page(html)
    assert html.startswith("<!doctype html>")
    assert len(page.ids) == len(set(page.ids))
    targets = {v[1:] for tag, name, v in page.attributes if (tag, name) == ("a", "href")}
    assert targets
    assert targets <= set(page.ids)
    labelled = [v for _, name, v in page.attributes if name == "aria-labelledby"]
    assert labelled
    assert {part for value in labelled for part in value.split()} <= set(page.ids)


def test_page_asks_nothing_of_the_network(html: str) -> None:
    page = Page(html)
    outside = {
        (tag, name)
        for tag, name, value in page.attributes
        if re.search(r"https?:|//", value) and not name.startswith("xmlns")
    }
    assert outside == set()
    assert not {"script", "link", "iframe", "img", "object"} & {t for t, _, _ in page.attributes}
    assert "<script" not in html
    assert "url(" not in html
    assert "@import" not in html


def test_page_is_small_and_follows_light_and_dark(html: str) -> None:
    assert len(html.encode()) < 2_000_000
    assert "prefers-color-scheme: dark" in html
    assert "@media print" in html
    assert 'name="viewport"' in html
    for value in ("white", "#fff", "black", "#000"):
        assert f'fill="{value}"' not in html


def test_every_cell_of_the_page_is_in_the_csv(html: str, report: dict[str, Path]) -> None:
    tables = Page(html).tables
    stems = {name.removesuffix(".csv") for name in report if name.endswith(".csv")}
    assert set(tables) == stems
    for stem, cells in tables.items():
        with report[f"{stem}.csv"].open(encoding="utf-8", newline="") as stream:
            assert list(csv.reader(stream)) == cells, stem
    text = report["tables.txt"].read_text(encoding="utf-8")
    assert all(cell in text for cells in tables.values() for row in cells for cell in row)


def test_equal_contents_give_equal_bytes(report: dict[str, Path], tmp_path: Path) -> None:
    again = write_report(synthetic_contents(), tmp_path)
    assert set(again) == set(report)
    for name, path in again.items():
        assert path.read_bytes() == report[name].read_bytes(), name
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(again)


def test_a_failed_write_leaves_the_old_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = synthetic_contents(rates={"vcrt": (0.9,)}, folds=("lean",), num_updates=1)
    path = write_report(contents, tmp_path)["report.html"]
    before = path.read_bytes()

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        write_report(replace(contents, title="Another"), tmp_path)
    assert path.read_bytes() == before
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_text_from_outside_is_inert(tmp_path: Path) -> None:
    contents = replace(
        synthetic_contents(
            rates={"vcrt": (0.9,), EVIL: (0.5,), "[red]\x1b[31m": (0.5,)},
            folds=(EVIL,),
            schema=EVIL,
            num_runs=1,
        ),
        title=EVIL,
        backbone=EVIL,
        opening={"reopened": True, "reason": EVIL},
        plan={EVIL: EVIL},
        not_measured=(EVIL,),
        tried=(EVIL,),
    )
    paths = write_report(contents, tmp_path)
    html = paths["report.html"].read_text(encoding="utf-8")
    page = Page(html)
    assert "<script" not in html.lower()
    assert "".join(page.text).count(EVIL) > 15
    assert not [tag for tag, _, _ in page.attributes if tag == "script"]
    for name in ("report.html", "tables.txt", "main.csv"):
        assert b"\x1b" not in paths[name].read_bytes(), name
    console = rich.console.Console(file=io.StringIO(), width=300)
    for table in report_tables(contents):
        console.print(to_rich(table))
    assert isinstance(console.file, io.StringIO)
    drawn = console.file.getvalue()
    assert "[red]\\x1b[31m" in drawn
    assert EVIL in drawn


def test_figures_are_accessible_svg(html: str) -> None:
    drawings = re.findall(r'<svg [^>]*role="img".*?</svg>', html, flags=re.DOTALL)
    # One difference, three pass rates, six quantities on three folds.
    assert len(drawings) == 1 + 3 + 6 * 3
    for drawing in drawings:
        root = ElementTree.fromstring(drawing)
        kinds = [element.tag.rpartition("}")[2] for element in root]
        assert kinds[:2] == ["title", "desc"]
        assert all(root[i].text for i in (0, 1))
        assert "currentColor" in drawing
        assert "viewBox" in root.attrib


def test_colors_can_be_seen_on_both_grounds() -> None:
    def luminance(color: str) -> float:
        channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for color in COLORS:
        for ground in ("#ffffff", "#14181b"):
            high, low = sorted((luminance(color), luminance(ground)), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= 3, (color, ground)


def test_curves_average_bins_and_runs() -> None:
    contents = synthetic_contents(rates={"vcrt": (0.9,)}, folds=("lean",), num_updates=130)
    points = curve_points(contents, "mean_reward")
    assert len(points) == 44  # 130 updates in bins of 3
    values = np.array([[row["mean_reward"] for row in run.curve] for run in contents.runs])
    first = values[:, :3].mean(axis=1)
    assert points[0].update == 2.0
    assert points[0].mean == pytest.approx(first.mean())
    assert (points[0].low, points[0].high) == pytest.approx((first.min(), first.max()))
    assert points[-1].update == 130.0
    assert points[-1].mean == pytest.approx(values[:, 129].mean())


def test_values_that_are_not_finite_are_left_out() -> None:
    contents = synthetic_contents(rates={"vcrt": (0.9,)}, folds=("lean",), num_runs=1)
    row = {"update": 1.0, "loss": float("nan"), "orbit_mass": float("inf"), "unknown": 1.0}
    contents = replace(contents, runs=(replace(contents.runs[0], curve=(row,)),))
    assert curve_points(contents, "loss") == ()
    assert quantities(contents) == ("orbit_mass", "loss")
    assert len(curve_figures(contents)) == 2


def test_every_logged_metric_has_a_title() -> None:
    from vcrt.training.update import UpdateMetrics

    logged = {field.name for field in fields(UpdateMetrics)} - {"update"}
    assert logged == set(CURVE_TITLES)


def test_main_table_shows_means_beside_the_paper(contents: ReportContents) -> None:
    table = report_tables(contents)[0]
    rows = {row[0]: row for row in table.rows}
    assert list(rows) == [FROZEN, *map(paper.display_name, RATES)]
    passes = [
        np.mean([r.held_out_passes for r in contents.runs_of("vcrt", fold).values()])
        for fold in FOLDS
    ]
    assert rows["VCRT"][1:4] == pytest.approx([100 * p for p in passes], abs=0.005)
    assert rows["VCRT"][4] == pytest.approx(100 * np.mean(passes), abs=0.005)
    assert rows["VCRT"][6:] == (100.00, 57.95, 74.84, 77.60)
    assert rows["No-Orbit"][6:] == ("n/a",) * 4
    assert "not comparable" in table.note


def test_headline_is_the_paired_difference_from_the_stronger_baseline(
    contents: ReportContents,
) -> None:
    headline = analyse(contents).headline
    assert headline is not None
    assert (headline.method, headline.minus) == ("vcrt", "canonical-grpo")
    differences = {
        fold: np.array(
            [
                contents.runs_of("vcrt", fold)[s].held_out_passes * 1.0
                - contents.runs_of("canonical-grpo", fold)[s].held_out_passes
                for s in range(3)
            ]
        )
        for fold in FOLDS
    }
    macro = headline.macro
    assert macro is not None
    for ours, bootstrap in (
        (macro.items, paired_bootstrap),
        (macro.runs_and_items, hierarchical_bootstrap),
    ):
        other = bootstrap(differences, generator(99, "other"), 20_000)
        width = other.high - other.low
        assert ours.estimate == pytest.approx(other.estimate)
        assert ours.low == pytest.approx(other.low, abs=0.1 * width)
        assert ours.high == pytest.approx(other.high, abs=0.1 * width)
    worse = replace(
        contents,
        runs=tuple(
            replace(r, held_out_passes=np.zeros_like(r.held_out_passes))
            if r.method == "canonical-grpo"
            else r
            for r in contents.runs
        ),
    )
    assert analyse(worse).strongest_baseline == "outcome-grpo"


def test_difference_table_counts_negative_comparisons(contents: ReportContents) -> None:
    table = next(t for t in report_tables(contents) if t.name == "difference")
    headline = analyse(contents).headline
    assert headline is not None
    negative = sum(
        np.mean(contents.runs_of("vcrt", f)[s].held_out_passes)
        < np.mean(contents.runs_of("canonical-grpo", f)[s].held_out_passes)
        for f in FOLDS
        for s in range(3)
    )
    assert table.note.startswith(f"{negative} of 9 fold-by-run")
    assert [row[0] for row in table.rows] == ["Lean", "ProofWriter", "CLRS", "Macro"]
    assert table.rows[-1][-1] == "+13.06 [+12.58, +13.54]"
    assert all(re.fullmatch(r"\[.+, .+\]", str(cell)) for row in table.rows for cell in row[2:4])


def test_pairs_are_made_by_seed_not_by_place() -> None:
    contents = synthetic_contents(folds=("lean",))
    turned = replace(
        contents,
        runs=tuple(
            sorted(contents.runs, key=lambda r: (r.method, -r.seed if r.method == "vcrt" else 0))
        ),
    )
    before = analyse(contents).comparisons["canonical-grpo"]
    after = analyse(turned).comparisons["canonical-grpo"]
    assert before.num_negative == after.num_negative
    assert before.folds["lean"].value == pytest.approx(after.folds["lean"].value)
    some = replace(
        contents, runs=tuple(r for r in contents.runs if (r.method, r.seed) != ("vcrt", 0))
    )
    assert analyse(some).comparisons["canonical-grpo"].num_comparisons == 2


def test_construction_and_cross_checks_add_up(contents: ReportContents) -> None:
    tables = {table.name: table for table in provenance_tables(contents)}
    assert tables["construction"].rows[-1] == ("All", "", 660, 600, 14400, 7200, 3000, 600, 0)
    assert "24 orders an episode, 12 of them legal" in tables["construction"].note
    assert tables["folds"].rows[0][:4] == ("Lean", "ProofWriter + CLRS", 400, 9600)
    checks = {row[1]: row[2:] for row in tables["cross-checks"].rows}
    assert checks["clingo"][:3] == (9600, 9599, "0.0104")
    assert checks["command line"] == (480, 480, "0.0000", "[0.0000, 0.7656]")
    assert checks["replayed again in fresh processes"][:2] == (14400, 14400)
    exclusions = [row for row in tables["exclusions"].rows if row[0] == "Lean"]
    assert exclusions[0] == ("Lean", "cite", "duplicate", 7, "6.36%")
    assert ("training.learning_rate", "5e-06") in tables["plan"].rows
    assert ("Lean", "libraries.numpy", "2.4.6") in tables["versions"].rows


def sentence(lines: list[str], fragment: str) -> str:
    found = [line for line in lines if fragment in line]
    assert len(found) == 1, (fragment, lines)
    return found[0]


def test_summary_of_a_clear_gain(contents: ReportContents) -> None:
    lines = summary(contents)
    assert "both intervals lie above zero" in sentence(lines, "paired difference")
    assert "The sign of the macro difference is the paper's" in sentence(lines, "sign of")
    assert "is held" in sentence(lines, "guardrail")
    assert "0 of 14,400 replays" in sentence(lines, "replayed again")
    for line in lines:
        if "points" in line and "guardrail" not in line:
            assert "[" in line, line


def test_summary_of_no_difference() -> None:
    flat = {"canonical-grpo": (0.6, 0.6, 0.6), "vcrt": (0.6, 0.6, 0.6)}
    lines = summary(synthetic_contents(rates=flat))
    assert "both intervals include zero" in sentence(lines, "paired difference")


def test_summary_of_a_loss_and_a_broken_guardrail() -> None:
    contents = synthetic_contents(
        rates={"canonical-grpo": (0.8, 0.8, 0.8), "vcrt": (0.5, 0.5, 0.5)}
    )
    forgetful = replace(
        contents.runs[-1], retention_passes=np.zeros_like(contents.runs[-1].retention_passes)
    )
    contents = replace(contents, runs=(*contents.runs[:-1], forgetful))
    lines = summary(contents)
    assert "both intervals lie below zero" in sentence(lines, "paired difference")
    assert "is not the paper's" in sentence(lines, "sign of")
    assert "it is not the paper's on Lean, ProofWriter and CLRS." in sentence(lines, "sign of")
    assert "is broken" in sentence(lines, "guardrail")
    retention = next(t for t in report_tables(contents) if t.name == "retention")
    assert [row[-1] for row in retention.rows] == ["held"] * 5 + ["broken"]


def test_summary_when_runs_disagree() -> None:
    contents = synthetic_contents(
        rates={"canonical-grpo": (0.5,), "vcrt": (0.5,)}, folds=("lean",), num_items=400
    )
    level = {0: 0.95, 1: 0.95, 2: 0.05}
    runs = tuple(
        replace(run, held_out_passes=np.arange(400) < 400 * level[run.seed])
        if run.method == "vcrt"
        else run
        for run in contents.runs
    )
    line = sentence(summary(replace(contents, runs=runs)), "paired difference")
    assert "over items lies above zero" in line
    assert "not established beyond these runs" in line


def test_summary_at_the_ceiling() -> None:
    perfect = {"canonical-grpo": (1.0, 1.0, 1.0), "vcrt": (1.0, 1.0, 1.0)}
    lines = summary(synthetic_contents(rates=perfect))
    assert "at the ceiling on every fold" in sentence(lines, "ceiling")
    assert sentence(lines, "paired difference").endswith(": every item scored the same.")
    assert "0.00 on Lean [0.00, 0.00] as every item scored the same" in sentence(lines, "By fold")
    assert "macro difference is not determined here" in sentence(lines, "sign of")
    assert "is not the paper's" not in sentence(lines, "sign of")


def test_a_difference_that_cancels_out_is_not_called_the_same() -> None:
    contents = synthetic_contents(
        rates={"canonical-grpo": (0.5,), "vcrt": (0.5,)}, folds=("lean",), num_runs=2
    )
    # In each run all items differ, and the two runs by opposite signs: items alone show nothing.
    runs = tuple(
        replace(r, held_out_passes=np.full(200, (r.method == "vcrt") == (r.seed == 0)))
        for r in contents.runs
    )
    line = sentence(summary(replace(contents, runs=runs)), "paired difference")
    assert "0.00 points (95% interval over items [0.00, 0.00]" in line
    assert "the same" not in line


def passes(num_passes: int, num_items: int = 200) -> np.ndarray:
    return np.arange(num_items) < num_passes


def test_signs_are_compared_with_the_paper_only_where_there_is_one() -> None:
    """Lean gains in every run, ProofWriter loses in every run, and CLRS gains on average but loses in one."""
    contents = synthetic_contents(rates={"canonical-grpo": (0.5,) * 3, "vcrt": (0.5,) * 3})
    ours = {"lean": (150, 155, 160), "proofwriter": (50, 55, 60), "clrs": (60, 150, 190)}
    runs = tuple(
        replace(
            run,
            held_out_passes=passes(ours[run.held_out][run.seed] if run.method == "vcrt" else 100),
        )
        for run in contents.runs
    )
    contents = replace(contents, runs=runs)
    line = sentence(summary(contents), "sign of")
    assert "by fold it is the paper's on Lean, is not the paper's on ProofWriter" in line
    assert "and is not determined here on CLRS." in line
    # With one run its interval over items decides: the gain on CLRS is then a sign.
    one = replace(contents, runs=tuple(run for run in runs if run.seed == 2))
    assert "by fold it is the paper's on Lean and CLRS" in sentence(summary(one), "sign of")


def test_the_interval_over_runs_decides_a_sign_where_there_are_runs() -> None:
    def interval(low: float) -> Interval:
        return Interval(estimate=0.1, low=low, high=0.2, level=0.95, num_resamples=1)

    clear, unclear = interval(0.05), interval(-0.05)
    narrow, wide = ((clear, unclear), (unclear, clear))
    for (items, both), signs in ((narrow, (1, 0)), (wide, (0, 1))):
        estimate = Estimate(items=items, runs_and_items=both)
        assert (determined_sign(estimate, 1), determined_sign(estimate, 3)) == signs


@pytest.mark.parametrize(
    ("folds", "same"),
    [(FOLDS, True), (FOLDS[::-1], True), (FOLDS[:2], False), ((*FOLDS[:2], "sat"), False)],
)
def test_the_published_macro_stands_only_beside_its_own_folds(
    folds: tuple[str, ...], same: bool
) -> None:
    contents = synthetic_contents(
        rates=dict.fromkeys(("canonical-grpo", "vcrt", "no-anti"), (0.5,) * 3), folds=folds
    )
    contents = replace(
        contents,
        runs=tuple(
            replace(r, held_out_passes=passes(150 if r.method == "vcrt" else 50))
            for r in contents.runs
        ),
    )
    tables = {table.name: table for table in report_tables(contents)}
    main = {row[0]: row for row in tables["main"].rows}
    mechanism = {row[0]: row for row in tables["mechanism"].rows}
    published = (main["VCRT"][-1], tables["difference"].rows[-1][-1], mechanism["No-Anti"][-1])
    expected = (77.60, "+13.06 [+12.58, +13.54]", "+12.09") if same else ("n/a",) * 3
    assert published == expected
    for name in ("main", "difference", "mechanism"):
        note = "The published macro is over Lean, ProofWriter and CLRS."
        assert (note in tables[name].note) is not same, name
    line = sentence(summary(contents), "sign of")
    assert ("+13.06" in line) is same
    assert ("the sign of the macro difference is not compared" in line) is not same
    # A fold's own value does not depend on which other folds there are.
    assert tables["difference"].rows[folds.index("lean")][-1] == "+33.49"
    assert "it is the paper's on" in line


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


@pytest.mark.parametrize(
    ("num_items", "lost", "expected"),
    [
        (49, 0, "not resolvable (49 items)"),
        (8, 8, "not resolvable (8 items)"),
        (1, 1, "not resolvable (1 item)"),
        (50, 1, "held"),
        (50, 2, "broken"),
    ],
)
def test_the_guardrail_needs_items_enough(num_items: int, lost: int, expected: str) -> None:
    base = synthetic_contents(rates={"vcrt": (0.5,)}, folds=("lean",))
    contents = with_retention(base, {"lean": num_items}, lost)
    retention = next(t for t in report_tables(contents) if t.name == "retention")
    assert [row[-1] for row in retention.rows] == [expected]
    line = sentence(summary(contents), "guardrail")
    assert f"is {expected}" in line
    assert f"changes by {-100 * lost / num_items + 0.0:+.2f}".replace("+0.00", "0.00") in line
    for other in {"held:", "broken"} - {f"{expected}:", expected}:
        assert f"is {other}" not in line


def test_the_guardrail_is_judged_on_the_folds_that_can_show_it() -> None:
    base = synthetic_contents(rates={"vcrt": (0.5, 0.5)}, folds=("lean", "clrs"))
    lines = summary(with_retention(base, {"lean": 100, "clrs": 8}, 2))
    held, coarse = [line for line in lines if "guardrail" in line]
    assert "with Lean held out is held: the lowest run changes by -2.00 points" in held
    assert "with CLRS held out is not resolvable (8 items)," in coarse
    assert "the lowest run changes by -25.00 points" in coarse


def test_the_report_says_what_a_pass_is(html: str, contents: ReportContents) -> None:
    expected = (
        "An item is an episode of 4 steps from an environment that was not trained on. The policy is given only "
        "anonymous pointers and the certified relations, no text, and writes one order greedily. It passes if the "
        "verifier accepts that order and ends in the certified state; 12 of 24 orders do, so a random order passes "
        "with 50%."
    )
    assert html.index('class="headline"') < html.index(expected) < html.index('id="results"')
    assert "A random order passes with 50%." in report_tables(contents)[0].note
    longer = replace(contents, dataset={**contents.dataset, "num_operations": 5, "orbit_size": 20})
    assert "20 of 120 orders do, so a random order passes with 16.67%." in task_text(longer)
    assert "5-step episode" in report_tables(longer)[0].note


def test_the_pass_rate_figure_draws_chance(contents: ReportContents) -> None:
    """The dotted line of 5 of 24 stands at that share of the axis; that of the frozen backbone is dashed."""
    rare = replace(contents, dataset={**contents.dataset, "orbit_size": 5}, runs=contents.runs[:1])
    figure = pass_rate_figure(rare, analyse(rare))
    assert "Dotted: a random order (20.83%)." in figure.caption
    root = ElementTree.fromstring(figure.panels[0])
    places = {}
    for line in root.iter("{http://www.w3.org/2000/svg}line"):
        if "stroke-dasharray" in line.attrib:
            x = float(re.findall(r"[-\d.]+", line.attrib["transform"])[0])
            places[line.attrib["stroke-dasharray"].replace(" ", ",")] = x
    frozen = float(np.mean(rare.frozen["lean"].held_out_passes))
    assert set(places) == {"6,3", "1,3"}
    assert places["1,3"] / places["6,3"] == pytest.approx(5 / 24 / frozen, rel=0.01)


def test_notes_count_runs_and_items(contents: ReportContents) -> None:
    assert "Mean over 3 runs and 200 items a fold;" in report_tables(contents)[0].note
    small = synthetic_contents(rates={"vcrt": (0.5, 0.5)}, folds=("lean", "clrs"), num_runs=1)
    assert "Mean over 1 run and 200 items a fold;" in report_tables(small)[0].note
    small = replace(
        small,
        frozen={
            **small.frozen,
            "clrs": replace(small.frozen["clrs"], held_out_passes=passes(3, 40)),
        },
        runs=(small.runs[0], replace(small.runs[1], held_out_passes=passes(3, 40))),
    )
    note = report_tables(small)[0].note
    assert "Mean over 1 run and 200 items on Lean and 40 items on CLRS;" in note


def test_the_subtitle_says_the_size(html: str, tmp_path: Path) -> None:
    assert "random partial orders; 600 episodes; 54 runs of 30 updates</p>" in html
    one = synthetic_contents(rates={"vcrt": (0.9,)}, folds=("lean",), num_runs=1, num_updates=1)
    one = replace(one, runs=(replace(one.runs[0], curve=()),))
    page = write_report(one, tmp_path)["report.html"].read_text(encoding="utf-8")
    assert "; 600 episodes; 1 run</p>" in page


def test_the_root_hash_stands_once_unless_the_plan_names_another(contents: ReportContents) -> None:
    def hashes(root_hash: str) -> list[tuple[object, ...]]:
        planned = replace(contents, plan={"root_hash": root_hash, "seed": 0})
        table = next(t for t in provenance_tables(planned) if t.name == "plan")
        return [row for row in table.rows if "root" in str(row[0])]

    assert hashes("cd" * 32) == [("dataset root hash", "cd" * 32)]
    assert hashes("ab" * 32)[1:] == [("root_hash", "ab" * 32)]


def test_one_minus_sign_everywhere(contents: ReportContents, tmp_path: Path) -> None:
    """The drawing library writes its own minus on axes: a loss puts some there."""
    worse = replace(
        contents,
        runs=tuple(
            replace(r, held_out_passes=passes(20 if r.method == "vcrt" else 160))
            for r in contents.runs
        ),
    )
    page = write_report(worse, tmp_path)["report.html"].read_text(encoding="utf-8")
    assert re.search(r"<text[^>]*>-\d+</text>", page)
    assert "\N{MINUS SIGN}" not in page


CHROMIUM = shutil.which("chromium")
MEASURE = """<pre id="measured"></pre><script>
const box = document.querySelector("#table-main"), cell = box.querySelector("tbody th");
const edge = () => cell.getBoundingClientRect().left - box.getBoundingClientRect().left;
box.scrollLeft = 200;
document.querySelector("#measured").textContent = JSON.stringify({
  page: document.documentElement.scrollWidth, hidden: box.scrollWidth - box.clientWidth, scrolled: box.scrollLeft,
  edge: edge(), share: cell.offsetWidth / box.clientWidth,
  layers: getComputedStyle(box).backgroundAttachment});
</script></body>"""


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_a_wide_table_on_a_phone_keeps_its_first_column(html: str, tmp_path: Path) -> None:
    """At 390 px the page itself is not wider; a table scrolls under its first column, with a shade at its edges."""
    assert CHROMIUM is not None
    inner = tmp_path / "inner.html"
    inner.write_text(html.replace("</body>", MEASURE), encoding="utf-8")
    frame = "<body><iframe src='inner.html' style='width:390px;height:800px;border:0'></iframe>"
    script = (
        "<pre id='out'></pre><script>onload = () => { document.querySelector('#out').textContent ="
        " frames[0].document.querySelector('#measured').textContent; }</script></body>"
    )
    outer = tmp_path / "outer.html"
    outer.write_text(frame + script, encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
    done = subprocess.run(
        [CHROMIUM, *flags, f"--user-data-dir={tmp_path / 'user'}", "--dump-dom", outer.as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found = re.search(r'<pre id="out">(.+?)</pre>', done.stdout)
    assert found is not None
    measured = json.loads(found.group(1))
    assert measured["page"] <= 390
    assert measured["hidden"] >= 200
    assert measured["scrolled"] == 200
    assert measured["edge"] == 0
    assert measured["share"] < 0.5
    assert measured["layers"] == "local, local, scroll, scroll"


def test_headings_say_what_they_hold(html: str) -> None:
    assert '<a href="#opening">When it was evaluated</a>' in html
    assert "<h3>How settings were chosen</h3>" in html
    assert "Opening</" not in html


@pytest.mark.parametrize(
    ("rates", "fragment"),
    [
        ({"canonical-grpo": (0.5,)}, "VCRT is not among the runs"),
        ({"vcrt": (0.5,), "no-anti": (0.4,)}, "No baseline was run on every fold"),
        ({"vcrt": (0.5, 0.6), "canonical-grpo": (0.4,)}, "No baseline was run on every fold"),
        ({"vcrt": (0.5, 0.6), "canonical-grpo": (0.4,)}, "no macro is given"),
    ],
)
def test_partial_plans_are_reported_as_such(rates, fragment: str, tmp_path: Path) -> None:
    contents = synthetic_contents(rates=rates, folds=FOLDS[: len(next(iter(rates.values())))])
    sentence(summary(contents), fragment)
    html = write_report(contents, tmp_path)["report.html"].read_text(encoding="utf-8")
    Page(html)


def test_a_second_opening_marks_the_report(contents: ReportContents, tmp_path: Path) -> None:
    again = replace(
        contents, opening={"reopened": True, "reason": "a broken disk"}, runs=contents.runs[:9]
    )
    html = write_report(again, tmp_path)["report.html"].read_text(encoding="utf-8")
    assert 'class="alert"' in html
    assert "opened more than once: a broken disk." in html


def test_contents_that_do_not_match_are_refused(contents: ReportContents) -> None:
    with pytest.raises(ValueError, match="at least one evaluated run"):
        replace(contents, runs=())
    with pytest.raises(ValueError, match="two runs have one name"):
        replace(contents, runs=(contents.runs[0], contents.runs[0]))
    with pytest.raises(ValueError, match=r"vcrt/lean/0"):
        replace(
            contents,
            runs=(replace(contents.runs_of("vcrt", "lean")[0], held_out_passes=np.ones(3, bool)),),
        )
    with pytest.raises(ValueError, match="frozen backbone was not scored"):
        replace(contents, frozen={})


def test_cells_are_equal_in_all_renderings() -> None:
    table = Table(
        name="t",
        title="A title",
        columns=("Name", "Value", "Other"),
        rows=(('a,"b"', -0.5, "x\ny"), ("<i>", 12, "=1+1")),
        note="A note & more",
    )
    rows = list(csv.reader(io.StringIO(to_csv(table))))
    assert rows[1:] == [['a,"b"', "-0.50", "x\\ny"], ["<i>", "12", "=1+1"]]
    page = Page(str(to_html(table)))
    assert page.tables["t"] == rows
    text = to_text(table)
    assert "A note & more" in text
    assert all(cell in text for row in rows for cell in row)
    with pytest.raises(ValueError, match="columns"):
        replace(table, rows=(("too", "few"),))


def test_published_numbers_agree_with_each_other() -> None:
    for row in paper.MAIN_TABLE:
        assert row.macro == pytest.approx(np.mean(list(row.folds.values())), abs=0.011), row.method
    for difference in (paper.HEADLINE, *paper.MECHANISM_TABLE):
        assert difference.macro == pytest.approx(
            np.mean(list(difference.folds.values())), abs=0.011
        ), difference.minus
    ours, baseline = (paper.published_scores(m) for m in ("vcrt", "canonical_grpo"))
    assert ours is not None
    assert baseline is not None
    for fold, value in paper.HEADLINE.folds.items():
        assert value == pytest.approx(ours.folds[fold] - baseline.folds[fold], abs=0.011)
    assert paper.display_name("no_orbit") == "No-Orbit"
    assert paper.display_name("my method") == "my method"


def test_what_a_probe_could_guess_is_on_the_page(
    contents: ReportContents, html: str, tmp_path: Path
) -> None:
    leak = ProbeResult(
        target="environment",
        view="file row",
        num_records=600,
        num_classes=3,
        auc=0.812,
        low=0.741,
        high=0.883,
        p_value=0.002,
        at_chance=False,
    )
    anonymity = AnonymityReport(
        root_hash="cd" * 32,
        backbone_digest="ab" * 32,
        seed=0,
        level=0.95,
        results=(leak,),
        controls=(),
        unmeasured=(),
        findings=(EVIL,),
    )
    write_report(replace(contents, anonymity=anonymity), tmp_path)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    head, row = page.tables["anonymity"]
    assert dict(zip(head, row, strict=True)) == {
        "Guessed": "environment",
        "From": "file row",
        "Records": "600",
        "Classes": "3",
        "AUC": "0.812",
        "Interval": "[0.741, 0.883]",
        "p": "0.002",
        "Verdict": "leak",
    }
    words = "".join(page.text)
    assert "of 1 probe, these guess: environment from file row (AUC 0.812)" in words
    assert EVIL in words
    assert "<script" not in text
    assert "leak" in (tmp_path / "anonymity.csv").read_text(encoding="utf-8")
    assert "anonymity" not in Page(html).tables
