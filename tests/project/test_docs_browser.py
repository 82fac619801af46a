"""The built documentation in Chromium, opened from disk: it asks for nothing from a network and fits a phone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import pytest

from browser_support import CHROMIUM, DESKTOP, PHONE, keep_screenshot

SITE = Path(__file__).parents[2] / "build" / "docs"
SHOWN = ("index", "idea", "mathematics", "your-environment", "notebooks/whole_run", "api/vcrt")


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="make test-browser installs it")
    if CHROMIUM is None:
        pytest.skip("no Chromium: apt-get install chromium")
    if not (SITE / "index.html").is_file():
        pytest.skip("make docs builds the pages that this test opens")
    with sync_api.sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])


@pytest.mark.browser
@pytest.mark.parametrize(("size", "dark"), [(DESKTOP, False), (PHONE, True)])
def test_every_page_opens_from_disk(browser, size, dark):
    window = browser.new_page(
        viewport={"width": size[0], "height": size[1]}, color_scheme="dark" if dark else "light"
    )
    said = []
    window.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    window.on("pageerror", lambda error: said.append(f"error: {error}"))
    window.on("requestfailed", lambda request: said.append(f"not found: {request.url}"))
    window.on(
        "request",
        lambda request: request.url.startswith(("file:", "data:")) or said.append(request.url),
    )
    pages = sorted(SITE.rglob("*.html"))
    assert len(pages) > 25
    for page in pages:
        window.goto(page.as_uri())
        assert said == [], page
        assert window.locator("article").count() == 1, page
        assert window.evaluate("document.documentElement.scrollWidth") <= size[0], page
        name = page.relative_to(SITE).with_suffix("").as_posix()
        if name in SHOWN:
            keep_screenshot(window, f"docs-{name.replace('/', '-')}-{'dark' if dark else 'light'}")
    window.close()


@pytest.mark.browser
def test_drawn_figures_follow_the_theme_that_the_reader_chose(browser):
    window = browser.new_page(color_scheme="light")
    window.goto((SITE / "idea.html").as_uri())
    words = window.locator(".drawn svg text").first
    colours = {}
    for theme in ("light", "dark"):
        window.evaluate("theme => document.body.dataset.theme = theme", theme)
        colours[theme] = words.evaluate("node => getComputedStyle(node).fill")
    assert colours["light"] != colours["dark"]
    assert window.locator(".drawn svg[role=img] title").count() == 4
    window.close()


@pytest.mark.browser
def test_the_search_finds_without_a_server(browser):
    window = browser.new_page()
    window.goto((SITE / "search.html").as_uri() + "?q=orbit_log_mass")
    window.wait_for_selector("ul.search li a", timeout=15_000)
    assert window.locator("ul.search li a").count() >= 1
    window.close()


@pytest.mark.browser
def test_the_picture_of_the_explorer_is_as_photographed(monkeypatch, tmp_path):
    """Fonts differ between machines, so pixels may too: the parts lie where they lay and have their colours."""
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("playwright.sync_api", reason="make test-browser installs it")
    if CHROMIUM is None:
        pytest.skip("no Chromium: apt-get install chromium")
    figures = SITE.parents[1] / "docs" / "figures"
    monkeypatch.syspath_prepend(str(figures))
    # Another event loop of Playwright may not run in this thread.
    with ThreadPoolExecutor(max_workers=1) as pool:
        pool.submit(import_module("explorer").photograph, tmp_path / "new.png").result()

    def small(path):
        with image.open(path) as picture:
            assert picture.size == (1200, 860)
            return picture.convert("RGB").resize((60, 43)).tobytes()

    kept, new = small(figures / "explorer.png"), small(tmp_path / "new.png")
    blank = bytes([255]) * len(kept)
    distance = sum(abs(a - b) for a, b in zip(kept, new, strict=True))
    assert distance < 0.3 * sum(abs(a - b) for a, b in zip(kept, blank, strict=True))
