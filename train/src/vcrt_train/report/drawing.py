"""Draw figures with Vega-Lite: each panel as SVG for the page, and a figure as PDF and PNG for one column of a paper.

On the page, ink is ``currentColor`` and other colours are variables of its style sheet, so that a figure follows it
from light to dark. In a paper, panels stand below each other on white, with the legend on top; text is 7 points high in
Liberation Sans, which vl-convert brings and embeds. Equal figures give equal bytes with the same vl-convert; its PDF
lists fonts and opacities in no fixed order: a figure has one font, and its opacities are put in order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from html import escape

import vl_convert

from vcrt.printable import printable
from vcrt_train.report.charts import (
    GROUND,
    INK,
    LEFT,
    LETTER,
    LIGHT,
    MARKER,
    Figure,
    Json,
    Panel,
    RowChart,
    as_drawn,
    as_is,
    as_marker,
    layer,
)
from vcrt_train.report.wording import label

#: In points: 240 are 3.33 inches, a column of most two-column styles.
WIDTH = 240.0
#: A figure is not higher than this, so that a caption fits below it.
_HIGHEST = 560.0
#: As wide as a phone shows a panel, so that text is never smaller than it is drawn: 11 units, which are 7 points.
_PAGE, _POINT = 340.0, 7 / 11
_FONT = ' font-family="Liberation Sans"'
#: What a drawing says of itself that its title and description say better, and what draws nothing.
_CLUTTER = re.compile(r' (?:role|aria-\w+|class|pointer-events)="[^"]*"|<path[^>]* d=""[^>]*/>')
_OPACITIES = re.compile(rb"(?<=/ExtGState <<\n)(?: +/gs\d+ \d+ 0 R\n)+")
#: What the variables of the page are in a paper.
_PAPER = {
    **{f"var(--m{number})": color for number, color in enumerate(LIGHT)},
    **{INK: "#1c2329", "var(--line)": "#d5dbe0", "var(--ground)": "#ffffff"},
}
_WORDS = {"color": INK, "fontSize": 11}
_CONFIG = {
    **{"font": "Liberation Sans", "aria": False, "view": {"stroke": None}, "text": _WORDS},
    "title": {**_WORDS, "fontSize": 12, "anchor": "start", "frame": "bounds", "offset": 6},
    "axis": {
        **{"labelColor": INK, "titleColor": INK, "domainColor": INK, "tickColor": INK},
        **{"labelFontSize": 11, "titleFontSize": 11, "titleFontWeight": "normal"},
        **{"gridColor": "var(--line)", "tickCount": 5, "tickSize": 4, "titlePadding": 4},
        **{"labelPadding": 3, "labelFlush": False, "labelBound": False},
        # Vega has a minus sign of its own.
        "labelExpr": "replace(datum.label, '\N{MINUS SIGN}', '-')",
    },
}


def to_svg(panel: Panel) -> str:
    """The panel as ``<svg role="img">`` with a title and a description, whose identifiers begin with its name."""
    name = panel.name
    return _inline(
        _panel(panel, _PAGE, 150),
        f'role="img" aria-labelledby="{name}-title {name}-description"',
        _PAGE,
        f'<title id="{name}-title">{escape(printable(panel.title))}</title>'
        f'<desc id="{name}-description">{escape(printable(panel.description))}</desc>',
    )


def swatch(number: int) -> str:
    """A method's line and marker, for a legend in words."""
    return _inline(_legend({"": number}, 0, left=0), 'class="swatch" aria-hidden="true"', 36)


def to_files(figures: Iterable[Figure]) -> dict[str, bytes]:
    """``NAME.pdf`` and ``NAME.png`` of each figure."""
    files = {}
    for figure in figures:
        drawn = column(figure)
        files[f"{figure.name}.pdf"] = in_order(bytes(vl_convert.svg_to_pdf(drawn)))
        files[f"{figure.name}.png"] = bytes(vl_convert.svg_to_png(drawn, ppi=300))
    return files


def in_order(pdf: bytes) -> bytes:
    """The same document with its list of opacities sorted; as long as it was, so every offset in it still holds."""
    return _OPACITIES.sub(lambda found: b"".join(sorted(found[0].splitlines(keepends=True))), pdf)


def column(figure: Figure) -> str:
    """The figure as one SVG of the width of a column, in points."""
    rows = all(isinstance(panel.chart, RowChart) for panel in figure.panels)
    width, highest = WIDTH / _POINT, _HIGHEST / _POINT
    high = min(110.0, max(32.0, highest / len(figure.panels) - 85))
    parts = [_panel(panel, width, high) for panel in figure.panels]
    # Rows name their methods themselves.
    if figure.legend and not rows:
        names = {label(method): number for method, number in figure.legend.items()}
        parts.insert(0, _legend(names, width))
    drawn = {"vconcat": parts, "spacing": 12, "background": GROUND}
    svg = _svg(drawn, 'version="1.1"', width, scale=_POINT).replace(' font-weight="bold"', "")
    for variable, color in _PAPER.items():
        svg = svg.replace(variable, color)
    return svg


def _svg(drawn: Json, attributes: str, width: float, *, scale: float = 1.0) -> str:
    """Drawn by Vega-Lite, as wide as it was meant to be whatever its letters need."""
    spec = {"background": None, "padding": 0, "config": _CONFIG, **drawn}
    opening, svg = str(vl_convert.vegalite_to_svg(spec, vl_version="6.1")).split(">", maxsplit=1)
    height = float(opening.partition(' height="')[2].partition('"')[0])
    size = (
        f'width="{width * scale:g}" height="{height * scale:g}" viewBox="0 0 {width:g} {height:g}"'
    )
    return f'<svg xmlns="http://www.w3.org/2000/svg" {attributes} {size}>{svg}'


def _inline(drawn: Json, attributes: str, width: float, inside: str = "") -> str:
    """An element for the page, in the page's own font."""
    opening, svg = _svg(drawn, attributes, width).split(">", maxsplit=1)
    return f"{opening}>{inside}{_CLUTTER.sub('', svg).replace(_FONT, '')}"


def _panel(panel: Panel, width: float, height: float) -> Json:
    return {
        "title": {"text": printable(panel.title), "limit": width},
        **panel.chart.spec(width, height),
    }


def _legend(names: Mapping[str, int], width: float, left: float = LEFT) -> Json:
    """Lines and markers with their names, as many beside each other as there is room for; at the left of all panels."""
    each = 42 + 0.9 * LETTER * max(map(len, names))
    across = max(1, int(width // each))
    values = [
        {
            **as_drawn(of),
            "name": name,
            "x": each * (k % across) - left,
            "y": 17 * (k // across) + 6.5,
        }
        for k, (name, of) in enumerate(names.items())
    ]
    end = {"calculate": "datum.x + 30", "as": "end"}
    at = {
        side: {"field": side, "type": "quantitative", "scale": None, "axis": None} for side in "xy"
    }
    line = {**at, "x2": {"field": "end"}, "strokeWidth": as_is("stroke"), "color": as_is("color")}
    return {
        "data": {"values": values},
        "transform": [end],
        "width": 30,
        "height": values[-1]["y"] + 6,
        "layer": [
            layer("rule", line),
            layer("point", {**at, **as_marker()}, xOffset=15, **MARKER),
            layer("text", {**at, "text": as_is("name")}, xOffset=35, align="left"),
        ],
    }
