"""Draw each chart once: most reports of these tests have the same ones, and drawing takes most of a report's time."""

from __future__ import annotations

import json
from functools import cache
from types import SimpleNamespace

import pytest
import vl_convert

from vcrt_train.report import charts


@cache
def _svg(text, options):
    return vl_convert.vegalite_to_svg(json.loads(text), **dict(options))


@pytest.fixture(scope="session")
def drawn_once():
    return SimpleNamespace(
        vegalite_to_svg=lambda spec, **options: _svg(
            json.dumps(spec), tuple(sorted(options.items()))
        ),
        svg_to_pdf=cache(vl_convert.svg_to_pdf),
        svg_to_png=cache(vl_convert.svg_to_png),
    )


@pytest.fixture(scope="module", autouse=True)
def charts_drawn_once(drawn_once):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(charts, "vl_convert", drawn_once)
        yield
