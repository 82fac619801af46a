"""The report's page in Chromium: no network, light and dark, desktop, phone and paper, by keyboard and read aloud."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from browser_support import DESKTOP, PHONE, keep_screenshot, opened
from report_support import paper_scale
from vcrt_train.report.analysis import analyse
from vcrt_train.report.page import write_report

pytestmark = pytest.mark.browser

#: A sheet of A4 without its margins, in CSS pixels.
SHEET = (703, 1017)
OPEN_ALL = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"


@pytest.fixture(scope="module")
def small_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every kind of table and figure, each with few rows: axe looks at every cell."""
    contents = paper_scale(num_updates=20)
    kept = ("vcrt", "canonical-grpo", "no-anti")
    runs = tuple(run for run in contents.runs if run.method in kept and run.held_out != "clrs")
    folder = tmp_path_factory.mktemp("small")
    return write_report(analyse(replace(contents, runs=runs)), folder, paper_figures=False)[
        "report.html"
    ]


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    return write_report(analyse(paper_scale()), folder, paper_figures=False)["report.html"]


def test_the_page_is_small_at_the_papers_scale(page_file: Path) -> None:
    text = page_file.read_text(encoding="utf-8")
    assert "54 runs of 400 updates" in text
    assert 500_000 < len(text.encode()) < 5_000_000
    assert "<script" not in text


@pytest.mark.parametrize(
    ("size", "dark"), [(DESKTOP, False), (PHONE, True)], ids=["light desktop", "dark phone"]
)
def test_nothing_is_in_the_way_of_anyone(small_file: Path, size, dark: bool) -> None:
    """No rule of axe is broken with everything open, and the page itself does not scroll sideways."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    with opened(small_file, size=size, dark=dark) as page:
        keep_screenshot(page, f"report-{size[0]}-{'dark' if dark else 'light'}")
        page.evaluate(OPEN_ALL)
        found = axe.run(page)
        assert found.violations_count == 0, found.generate_report()
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == ("rgb(20, 24, 27)" if dark else "rgb(255, 255, 255)")
        line = page.locator("svg [stroke='var(--m0)']").first.evaluate(
            "(e) => getComputedStyle(e).stroke"
        )
        assert line == ("rgb(111, 176, 245)" if dark else "rgb(31, 102, 184)")


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_headline_is_what_the_eye_sees_first(page_file: Path, size) -> None:
    with opened(page_file, size=size) as page:
        largest = page.evaluate(
            """[...document.querySelectorAll("main *, header *")].map((one) => parseFloat(
            getComputedStyle(one).fontSize)).reduce((a, b) => Math.max(a, b))"""
        )
        value = page.locator(".headline .value")
        assert value.evaluate("(e) => parseFloat(getComputedStyle(e).fontSize)") == largest
        for part in (".headline .value", ".headline dl:not(.methods)"):
            box = page.locator(part).bounding_box()
            assert box["y"] + box["height"] < size[1], part


def test_a_phone_shows_text_of_figures_as_large_as_it_was_drawn(page_file: Path) -> None:
    with opened(page_file, size=PHONE) as page:
        shown = page.evaluate(
            """[...document.querySelectorAll("main figure svg")].filter((one) => one.checkVisibility())
            .map((one) => one.getBoundingClientRect().width / one.viewBox.baseVal.width)"""
        )
        assert len(shown) > 30
        assert min(shown) > 0.85


def test_wide_tables_scroll_by_themselves(page_file: Path) -> None:
    with opened(page_file, size=PHONE) as page:
        box = page.locator("#table-main")
        assert box.evaluate("(e) => e.scrollWidth - e.clientWidth") > 100
        box.focus()
        page.keyboard.press("End")
        page.keyboard.press("ArrowRight")
        page.wait_for_function("document.querySelector('#table-main').scrollLeft > 0")


def test_the_keyboard_reaches_everything(page_file: Path) -> None:
    describe = """() => { const one = document.activeElement, box = one.getBoundingClientRect();
        return [one.tagName, one.getAttribute("href") || one.id || one.textContent,
                getComputedStyle(one).outlineStyle, box.left >= 0 && box.bottom > 0 && box.top < innerHeight]; }"""
    with opened(page_file) as page:
        page.keyboard.press("Tab")
        tag, target, outline, visible = page.evaluate(describe)
        assert (tag, target, outline, visible) == ("A", "#main", "solid", True)
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        page.goto(page.url.partition("#")[0] + "#")
        page.evaluate("document.activeElement.blur()")
        page.evaluate(OPEN_ALL)
        expected = page.locator("a[href], summary, [tabindex='0']").count()
        reached = []
        for _ in range(expected + 1):
            page.keyboard.press("Tab")
            tag, target, outline, visible = page.evaluate(describe)
            if tag == "BODY":
                break
            assert (outline, visible) == ("solid", True), (tag, target)
            reached.append((tag, target))
        assert len(reached) == len(set(reached)) == expected
        # Every link of the contents leads to a heading.
        for tag, target in reached:
            if tag == "A" and target != "#main":
                assert page.locator(f"{target} h2").count() == 1, target


def test_paper_gets_every_table_whole(page_file: Path) -> None:
    with opened(page_file, size=SHEET, dark=True) as page:
        page.emulate_media(media="print")
        cut = page.evaluate(
            """[...document.querySelectorAll("th, td, svg[role=img], p, li")].filter((one) => {
            const box = one.getBoundingClientRect();
            return one.closest("nav, .on-screen, .skip") === null &&
                (!one.checkVisibility() || box.right > innerWidth + 1 || one.scrollWidth > one.clientWidth + 1);
            }).map((one) => `${one.closest("[id]").id}: ${one.textContent.slice(0, 60)}`)"""
        )
        assert cut == []
        assert (
            page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        )
        closed = page.locator("details:not([open]) table").count()
        assert closed >= 5
        pages = page.pdf(prefer_css_page_size=True).count(b"/Type /Page\n")
        assert 8 <= pages <= 40
