"""A real Chromium, for the tests of the pages; it has no network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
#: Width and height of the windows that pages are looked at in.
DESKTOP, PHONE = (1280, 900), (390, 844)


@contextmanager
def opened(
    path: Path, *, size: tuple[int, int] = DESKTOP, dark: bool = False, **options
) -> Iterator:
    """A page from the disk in a window of its own, and that it logged no error and asked the network for nothing."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="make test-browser installs it")
    said: list[str] = []
    with sync_api.sync_playwright() as playwright:
        own = Path(playwright.chromium.executable_path)
        if CHROMIUM is None and not own.exists() and "VCRT_BROWSER" not in os.environ:
            pytest.skip("no Chromium: apt-get install chromium")
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if dark else "light",
            **options,
        )
        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(f"error: {error}"))
        page.on("request", lambda request: said.append(f"asked for {request.url}"))
        page.goto(path.resolve().as_uri())
        yield page
        browser.close()
    assert said == [f"asked for {path.resolve().as_uri()}"]


def keep_screenshot(page, name: str) -> None:
    """Keep a picture of the whole page in the folder VCRT_SCREENSHOTS, if it is set, to be looked at."""
    if folder := os.environ.get("VCRT_SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)
