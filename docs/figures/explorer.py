"""Photograph the explorer for README: ``python docs/figures/explorer.py`` writes ``explorer.png`` beside this file.

Four calls of a BFCL conversation are certified, ``vcrt explore`` makes its page, and Chromium draws it (Playwright, and
Chromium as `make test-browser` installs it). A palette of 128 colours keeps the picture small.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

import vcrt
import vcrt_train

PICTURE = Path(__file__).with_name("explorer.png")
SCHEMA = "bfcl/posts"
WIDTH, HEIGHT = 1200, 860
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def photograph(picture: Path) -> None:
    """Write the picture of the page with the four calls, with every order and its verdict."""
    with tempfile.TemporaryDirectory() as kept:
        folder = Path(kept)
        page = folder / "explorer.html"
        vcrt_train.explore(vcrt.certify(folder / "data", schemas=[SCHEMA], episodes=4), page)
        with sync_playwright() as playwright:
            found = next(filter(None, map(shutil.which, BROWSERS)), None)
            browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
            tab = browser.new_page(
                viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light"
            )
            tab.goto(page.as_uri())
            tab.screenshot(path=folder / "drawn.png", animations="disabled")
            browser.close()
        with Image.open(folder / "drawn.png") as drawn:
            drawn.convert("RGB").quantize(128).save(picture, optimize=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=PICTURE)
    photograph(parser.parse_args().output)
