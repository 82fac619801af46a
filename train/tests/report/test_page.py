"""The report on disk: numbers in it are the numbers of the contents, and nothing from outside is alive in it."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
import rich.console
import vl_convert

from report_support import (
    EVIL,
    FOLDS,
    Page,
    passes,
    sentence,
    synthetic_contents,
)
from vcrt_train.report import charts
from vcrt_train.report.analysis import analyse
from vcrt_train.report.contents import ReportContents
from vcrt_train.report.page import all_figures, render_page, write_report
from vcrt_train.report.provenance import data_sentences
from vcrt_train.report.summary import summary
from vcrt_train.report.table import to_rich
from vcrt_train.report.tables import report_tables
from vcrt_train.report.task import task_text
from vcrt_train.report.wording import interval_text, points
from vcrt_train.training.methods import METHODS


@pytest.fixture(scope="module")
def contents() -> ReportContents:
    return synthetic_contents()


@pytest.fixture(scope="module")
def report(contents: ReportContents, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_report(analyse(contents), tmp_path_factory.mktemp("report") / "new")


@pytest.fixture(scope="module")
def html(report: dict[str, Path]) -> str:
    return report["report.html"].read_text(encoding="utf-8")


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


def test_the_headline_says_what_it_was_measured_on(html: str) -> None:
    _, _, after = html.partition('id="headline"')
    headline, _, _ = after.partition("</section>")
    assert re.search(r"Measured: [^<]*; \d+ episodes; \d+ runs", headline.replace(",", ""))
    assert "Other backbones, records and lengths of training were not." in headline


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
    # The table of clocks is not the same each time, so it stands by itself.
    del tables["clocks"]
    text = report["tables.txt"].read_text(encoding="utf-8")
    assert all(cell in text for cells in tables.values() for row in cells for cell in row)


def test_equal_contents_give_equal_bytes(report: dict[str, Path], tmp_path: Path) -> None:
    again = write_report(analyse(synthetic_contents()), tmp_path)
    assert set(again) == set(report)
    for name, path in again.items():
        assert path.read_bytes() == report[name].read_bytes(), name
    found = (p.relative_to(tmp_path) for p in tmp_path.rglob("*") if p.is_file())
    assert sorted(map(str, found)) == sorted(again)
    assert [*again][-1] == "report.html"


def test_the_library_draws_equal_bytes_of_equal_figures(
    contents: ReportContents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere in these tests it is asked once for each figure (conftest.py)."""
    monkeypatch.setattr(charts, "vl_convert", vl_convert)
    figure, *_ = all_figures(analyse(contents)).values()
    drawn = charts.to_files([figure])
    assert drawn == charts.to_files([figure])
    assert charts.to_svg(figure.panels[0]) == charts.to_svg(figure.panels[0])


def test_a_failed_write_leaves_the_old_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = synthetic_contents(rates={"vcrt": (0.9,)}, folds=("lean",), num_updates=1)
    path = write_report(analyse(contents), tmp_path, paper_figures=False)["report.html"]
    before = path.read_bytes()

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        write_report(analyse(replace(contents, title="Another")), tmp_path, paper_figures=False)
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
    paths = write_report(analyse(contents), tmp_path, paper_figures=False)
    html = paths["report.html"].read_text(encoding="utf-8")
    page = Page(html)
    assert "<script" not in html.lower()
    assert "".join(page.text).count(EVIL) > 15
    assert not [tag for tag, _, _ in page.attributes if tag == "script"]
    for name in ("report.html", "tables.txt", "main.csv"):
        assert b"\x1b" not in paths[name].read_bytes(), name
    console = rich.console.Console(file=io.StringIO(), width=300)
    for table in report_tables(analyse(contents)):
        console.print(to_rich(table))
    assert isinstance(console.file, io.StringIO)
    drawn = console.file.getvalue()
    assert "[red]\\x1b[31m" in drawn
    assert EVIL in drawn


def test_figures_are_accessible_svg(html: str) -> None:
    drawings = re.findall(r'<svg [^>]*role="img".*?</svg>', html, flags=re.DOTALL)
    # One difference, macro and three pass rates, retention, six quantities and the margin on three folds.
    assert len(drawings) == 1 + 4 + 3 + 7 * 3
    for drawing in drawings:
        root = ElementTree.fromstring(drawing)
        kinds = [element.tag.rpartition("}")[2] for element in root]
        assert kinds[:2] == ["title", "desc"]
        assert all(root[i].text for i in (0, 1))
        assert "currentColor" in drawing
        assert "viewBox" in root.attrib


def test_the_report_says_what_a_pass_is(html: str, contents: ReportContents) -> None:
    expected = (
        "An item is an episode of 4 steps from an environment that was not trained on. The policy is given only "
        "anonymous pointers and the certified relations, no text, and writes one order greedily. It passes if the "
        "verifier accepts that order and ends in the certified state; 12 of 24 orders do, so a random order passes "
        "with 50%."
    )
    assert html.index('class="headline"') < html.index(expected) < html.index('id="results"')
    assert "A random order passes with 50%." in report_tables(analyse(contents))[0].note
    longer = replace(contents, dataset={**contents.dataset, "num_operations": 5, "orbit_size": 20})
    assert "20 of 120 orders do, so a random order passes with 16.67%." in task_text(longer)
    assert "5-step episode" in report_tables(analyse(longer))[0].note


def test_what_is_not_counted_of_long_episodes_is_not_made_up(contents: ReportContents) -> None:
    counts = json.loads(json.dumps(contents.dataset["counts"]))
    for schemas in counts.values():
        for some in schemas.values():
            some["legal_orders"] = None
    changed = {"num_operations": 24, "orbit_size": None, "counts": counts}
    long = replace(contents, dataset={**contents.dataset, **changed})
    assert "a random order passes with a share that was not counted." in task_text(long)
    table = next(table for table in report_tables(analyse(long)) if table.name == "construction")
    place = table.columns.index("Legal orders")
    assert {row[place] for row in table.rows} == {"not counted"}
    assert "Dotted" not in all_figures(analyse(long))["pass-rates"].caption
    assert "Dotted" in all_figures(analyse(contents))["pass-rates"].caption


def test_the_subtitle_says_the_size(html: str, tmp_path: Path) -> None:
    assert "random partial orders; 600 episodes; 54 runs of 30 updates</p>" in html
    one = synthetic_contents(rates={"vcrt": (0.9,)}, folds=("lean",), num_runs=1, num_updates=1)
    one = replace(one, runs=(replace(one.runs[0], curve=()),))
    page = write_report(analyse(one), tmp_path, paper_figures=False)["report.html"].read_text(
        encoding="utf-8"
    )
    assert "; 600 episodes; 1 run</p>" in page


def test_one_minus_sign_everywhere(contents: ReportContents, tmp_path: Path) -> None:
    """The drawing library writes its own minus on axes: a loss puts some there."""
    worse = replace(
        contents,
        runs=tuple(
            replace(r, curve=(), held_out_passes=passes(20 if r.method == "vcrt" else 160))
            for r in contents.runs
        ),
    )
    page = write_report(analyse(worse), tmp_path, paper_figures=False)["report.html"].read_text(
        encoding="utf-8"
    )
    assert re.search(r"<text[^>]*>-\d+</text>", page)
    assert "\N{MINUS SIGN}" not in page


CHROMIUM = shutil.which("chromium")


MEASURE = """<pre id="measured"></pre><script>
const box = document.querySelector("#table-mechanism"), cell = box.querySelector("tbody th");
const edge = () => cell.getBoundingClientRect().left - box.getBoundingClientRect().left;
box.scrollLeft = 200;
document.querySelector("#measured").textContent = JSON.stringify({
  page: document.documentElement.scrollWidth, hidden: box.scrollWidth - box.clientWidth, scrolled: box.scrollLeft,
  edge: edge(), share: cell.offsetWidth / box.clientWidth,
  layers: getComputedStyle(box).backgroundAttachment});
</script></body>"""


@pytest.mark.browser
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
        ({"canonical-grpo": (0.5,)}, "No headline difference: it is that of VCRT"),
        (
            {"no-anti": (0.5,), "no-orbit": (0.5,), "canonical-grpo": (0.5,)},
            "No headline difference: it is that of VCRT",
        ),
        ({"vcrt": (0.5,), "no-anti": (0.4,)}, "No baseline was run on every fold"),
        ({"vcrt": (0.5, 0.6), "canonical-grpo": (0.4,)}, "No baseline was run on every fold"),
        ({"vcrt": (0.5, 0.6), "canonical-grpo": (0.4,)}, "no macro is given"),
    ],
)
def test_partial_plans_are_reported_as_such(rates, fragment: str, tmp_path: Path) -> None:
    contents = synthetic_contents(rates=rates, folds=FOLDS[: len(next(iter(rates.values())))])
    sentence(summary(analyse(contents)), fragment)
    html = write_report(analyse(contents), tmp_path, paper_figures=False)["report.html"].read_text(
        encoding="utf-8"
    )
    Page(html)


def test_without_vcrt_the_only_method_beside_the_baselines_has_the_headline() -> None:
    rates = {"canonical-grpo": (0.2,) * 3, "exact-log-odds": (0.9,) * 3, "outcome-grpo": (0.1,) * 3}
    analysis = analyse(synthetic_contents(rates=rates))
    assert analysis.method == "exact-log-odds"
    sentence(summary(analysis), "exact-log-odds passes more items than Canonical-GRPO")
    assert charts.method_styles(list(rates))["exact-log-odds"] == 0


def test_a_second_opening_marks_the_report(contents: ReportContents, tmp_path: Path) -> None:
    again = replace(
        contents, opening={"reopened": True, "reason": "a broken disk"}, runs=contents.runs[:9]
    )
    html = write_report(analyse(again), tmp_path, paper_figures=False)["report.html"].read_text(
        encoding="utf-8"
    )
    assert 'class="alert"' in html
    assert "opened more than once: a broken disk." in html


def test_the_data_in_words(contents: ReportContents, html: str) -> None:
    first, second = data_sentences(contents)
    assert first == (
        "Of 660 candidates, 600 were frozen; 60 were excluded (9.09%): 42 duplicate and 18 outside_schema."
    )
    assert second == (
        "Second checkers disagreed in 1 of 10,080 comparisons (0.0099%); 0 of 14,400 replays in fresh processes "
        "disagreed."
    )
    assert f"<p>{first}</p>" in html
    counts = {
        fold: {name: {**schema, "exclusions": {}} for name, schema in by_schema.items()}
        for fold, by_schema in contents.dataset["counts"].items()
    }
    dataset = {**contents.dataset, "counts": counts, "conformance": {}}
    first, second = data_sentences(replace(contents, dataset=dataset))
    assert first.endswith("; none was excluded.")
    assert (
        second == "No second checker was asked; 0 of 14,400 replays in fresh processes disagreed."
    )


def test_the_headline_stands_once_and_first(contents: ReportContents, html: str) -> None:
    """The number with both intervals, before any other figure; what it says is not said again below."""
    headline = analyse(contents).headline
    assert headline is not None
    assert headline.macro is not None
    value = points(headline.macro.value)
    both = interval_text(headline.macro.runs_and_items)
    assert (
        html.index(f'class="value">{value}<') < html.index(f"<dd>{both}</dd>") < html.index("<svg")
    )
    assert html.count('id="figure-difference"') == 1
    full = {"vcrt": (1.0, 1.0, 1.0), "canonical-grpo": (1.0, 1.0, 1.0)}
    ceiling = synthetic_contents(rates=full, num_updates=1)
    analysis = analyse(ceiling)
    text = render_page(analysis, report_tables(analysis), all_figures(analysis))
    assert text.count("All methods are at the ceiling") == 1
    # Where nothing may be concluded, that is what stands in large letters, and the number is small.
    assert 'class="value words">No conclusion<' in text
    assert "all methods are at the ceiling" in text
    assert 'class="value">' not in text
    assert "<dd>0.00</dd>" in text


def test_pass_rates_and_what_the_methods_are_come_before_anything_that_needs_them(
    contents: ReportContents, html: str
) -> None:
    """The page says the two rates before their difference, and each method in the words of the method table."""
    body = html.partition("<main")[2]
    headline = analyse(contents).headline
    assert headline is not None
    rates = {result.method: result.macro for result in analyse(contents).results}
    places = [
        body.index(f"{100 * rates[name].value:.2f}%") for name in (headline.method, headline.minus)
    ]
    assert max(places) < body.index('class="value"')
    note = report_tables(analyse(contents))[0].note
    for name in contents.methods:
        what = METHODS[name].summary.replace("vcrt", "VCRT")
        assert what in body.partition('id="findings"')[0].replace("&#39;", "'")
        assert what in note
