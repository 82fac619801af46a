"""Draw figures with Vega-Lite: each panel as SVG for the page, and a figure as PDF and PNG for one column of a paper.

A panel has rows with intervals and rings, or lines with bands over updates. On the page, colours are variables of its
style sheet, so that figures follow its light or dark theme. In a paper, panels are stacked on white; text is 7 points
high in Liberation Sans, which vl-convert embeds. Equal figures give equal bytes with the same vl-convert: its PDF lists
opacities in no fixed order, so they are sorted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, NamedTuple, TypeAlias

import vl_convert

from vcrt.printable import printable
from vcrt_train.report.wording import label, method_under_study

#: Colours for a light and a dark background: contrast at least 3 to 1, and distinguishable with any colour vision.
LIGHT = ("#1f66b8", "#f24210", "#0c9b6a", "#553380", "#9f7fbd", "#7e4600", "#15352a", "#676170")
DARK = ("#6fb0f5", "#e67034", "#26aa74", "#a374ff", "#ea8bb4", "#d9c34a", "#e8ecef", "#927294")
INK, GROUND = "currentColor", "var(--ground)"
#: The methods' markers; the last two are outlines in a square from -1 to 1.
_SHAPES = (
    *("circle", "square", "triangle-up", "diamond", "triangle-down", "cross"),
    *("M0-1.2L1.14-.37L.7.97H-.7L-1.14-.37z", "M-1.2-.5H1.2V.5H-1.2z"),
)
#: How many markers distinguish a line from the others.
_MARKERS_A_LINE = 4
#: The width of a letter in the widest usual sans-serif font, and the space for the axis beside lines.
LETTER, LEFT = 6.7, 35.0
_BARE = {"title": None, "domain": False, "ticks": False}
_FAINT = {"fillOpacity": 0.13, "opacity": 1}

Json: TypeAlias = dict[str, Any]
Ends: TypeAlias = tuple[float, float]


class Reference(NamedTuple):
    """A line at one value, with ``label`` beside it; if the label is empty, the caption explains the line."""

    value: float
    dash: tuple[float, ...]
    label: str = ""


class Row(NamedTuple):
    """An estimate with the interval over items (if any), the interval over runs and items, and every single run."""

    label: str
    number: int
    value: float
    over_items: Ends | None
    over_both: Ends
    runs: tuple[float, ...]
    text: str


class LinePoint(NamedTuple):
    """A value at ``x`` with the band around it."""

    x: float
    y: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RowChart:
    """Rows above one axis of values."""

    rows: tuple[Row, ...]
    unit: str
    domain: Ends
    references: tuple[Reference, ...] = ()

    def spec(self, width: float, height: float) -> Json:
        """Draw the means with their intervals and, below them, a ring for each run; rows set the height."""
        left = 9 + min(0.42 * width, LETTER * max((len(row.label) for row in self.rows), default=0))
        right = 12 + LETTER * max((len(row.text) for row in self.rows), default=0)
        rows, runs = [], []
        for row in self.rows:
            shown = {"label": printable(row.label), "text": row.text, **as_drawn(row.number)}
            low, high = row.over_both
            first, last = row.over_items or (None, None)
            ends = {"low": low, "high": high, "first": first, "last": last}
            rows.append({**shown, **ends, "value": row.value})
            runs += [{**shown, "value": value} for value in row.runs if len(row.runs) > 1]
        room = {"minExtent": left, "maxExtent": left, "labelLimit": left - 9, "labelPadding": 9}
        y = {"field": "label", "type": "nominal", "sort": None, "axis": {**_BARE, **room}}
        cap: Json = {"orient": "vertical", "thickness": 1.4, "size": 6, "opacity": 1}
        rim: Json = {"size": 94, "stroke": GROUND, "strokeWidth": 1.1, "opacity": 1}
        ring: Json = {"yOffset": 10, "size": 33, "strokeWidth": 1.2, "opacity": 1}
        text = {"text": as_is("text"), "x": {"value": "width"}, "color": {"value": INK}}
        layers = [
            layer("rule", {"x": number("low"), "x2": {"field": "high"}}, strokeWidth=1.4),
            *(layer("tick", {"x": number(end)}, **cap) for end in ("low", "high")),
            layer("rule", {"x": number("first"), "x2": {"field": "last"}}, strokeWidth=4.6),
            layer("point", {"x": number("value"), **as_marker("fill")}, **rim),
            layer("point", {"x": number("value")}, runs, **ring),
            layer("text", text, align="right", dx=right),
        ]
        axis = number("value", self.domain, title=self.unit, grid=True)
        return {
            "data": {"values": rows},
            "width": width - left - right,
            "height": len(rows) * (30 if runs else 23),
            "layer": [
                _rules(self.references, x=axis),
                {"encoding": {"y": y, "color": as_is("color")}, "layer": layers},
            ],
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class LineChart:
    """The points of each method, by its number, over updates; ``remark`` is a text in the middle of the drawing."""

    lines: Mapping[int, Sequence[LinePoint]]
    x_domain: Ends
    y_domain: Ends
    references: tuple[Reference, ...] = ()
    remark: str = ""

    def spec(self, width: float, height: float) -> Json:
        """Draw lines with their bands and a few markers each, with the first method on top."""
        values, marked = [], []
        for of, found in list(self.lines.items())[::-1]:
            points = [{**point._asdict(), **as_drawn(of)} for point in found]
            values += points
            many = len(points) > 2 * _MARKERS_A_LINE
            every = math.ceil(len(points) / _MARKERS_A_LINE) if many else 1
            # Each method's markers start at another point, so that coinciding lines are all visible.
            marked += points[(1 + of * every // 8) % every :: every] or points[-1:]
        bands = [point for point in values if point["low"] != point["high"]]
        x = number("x", self.x_domain, title="update", grid=False)
        room: Json = {**_BARE, "grid": True, "minExtent": LEFT, "maxExtent": LEFT}
        if not 1e-3 <= max(map(abs, self.y_domain)) < 1e5:
            room["format"] = ".3~g"
        stroke = {"y": number("y"), "strokeWidth": as_is("stroke")}
        lines = [
            layer("area", {"y": number("low"), "y2": {"field": "high"}}, bands, **_FAINT),
            layer("line", stroke, strokeJoin="round"),
            layer("point", {"y": number("y"), **as_marker()}, marked, **MARKER),
        ]
        named = [one._asdict() for one in self.references]
        label = {"y": number("value"), "x": {"value": "width"}, "text": as_is("label")}
        above: Json = {"align": "right", "dy": -7}
        rim: Json = {"stroke": GROUND, "strokeWidth": 3, "strokeJoin": "round"}
        shared = {"x": x, "color": as_is("color"), "detail": {"field": "color"}}
        return {
            "data": {"values": values},
            "width": width - LEFT - 13,
            "height": height,
            "layer": [
                {"encoding": shared, "layer": lines},
                _rules(self.references, y=number("value", self.y_domain, **room)),
                layer("text", label, named, **above, **rim),
                layer("text", label, named, **above),
                # Without a position, the text is in the middle.
                layer("text", {}, [{}], text=self.remark),
            ],
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """One drawing; ``name`` is unique within a page, and ``description`` gives the content in words."""

    name: str
    title: str
    description: str
    chart: RowChart | LineChart


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A row of panels under one title; ``caption`` says how to read them, and ``name`` is the stem of the files."""

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    #: Whether a page shows the figure at once; otherwise after a click.
    core: bool = True
    #: The methods with the numbers of their colours and markers; empty if the figure needs no legend.
    legend: Mapping[str, int] = field(default_factory=dict)


def method_styles(methods: Sequence[str]) -> dict[str, int]:
    """Number each method's colour and marker: 0 for the method under study, others by their place in the plan."""
    studied = method_under_study(methods)
    others = [method for method in methods if method != studied]
    return {
        method: 1 + others.index(method) % (len(LIGHT) - 1) if method in others else 0
        for method in methods
    }


#: A marker on a line.
MARKER: Json = {"size": 44, "filled": True, "opacity": 1}


def as_drawn(of: int) -> Json:
    """Return a method's colour, marker and line width as fields of data; the method under study has a wider line."""
    return {"color": f"var(--m{of})", "shape": _SHAPES[of], "stroke": 1.5 if of else 2.5}


def as_is(name: str) -> Json:
    """Encode a field whose values are used as they are: colours, shapes, widths or texts."""
    return {"field": name, "type": "nominal", "scale": None, "legend": None}


def as_marker(colored: str = "color") -> Json:
    """Encode a method's marker in its colour."""
    return {"shape": as_is("shape"), colored: as_is("color")}


def number(name: str, domain: Ends | None = None, /, **axis: Any) -> Json:
    """Encode a field of numbers; for fields that share an axis, one of them gives its domain and properties."""
    if domain is None:
        return {"field": name, "type": "quantitative"}
    scale = {"domain": list(domain), "nice": False, "zero": False, "clamp": True}
    return {"field": name, "type": "quantitative", "scale": scale, "axis": axis}


def layer(kind: str, encoding: Json, values: Sequence[Json] | None = None, **mark: Any) -> Json:
    """Make a layer of marks of a kind, from the chart's data or from ``values``."""
    data = {} if values is None else {"data": {"values": values}}
    return {**data, "mark": {"type": kind, **mark}, "encoding": encoding}


def _rules(references: Iterable[Reference], **place: Json) -> Json:
    values = [one._asdict() for one in references]
    return layer("rule", {**place, "strokeDash": as_is("dash")}, values, color=INK, strokeWidth=1.2)


def tens(values: Iterable[float]) -> Ends:
    """Return the multiples of ten around percentages, with a margin at both ends but within 0 and 100."""
    inside = [min(100.0, max(0.0, value)) for value in values]
    low, high = 10 * math.floor((min(inside) - 2) / 10), 10 * math.ceil((max(inside) + 2) / 10)
    return max(0.0, low), min(100.0, high)


def padded(low: float, high: float, share: float = 0.05) -> Ends:
    """Extend an interval to include zero, with a margin at the ends that are not zero."""
    low, high = min(low, 0.0), max(high, 0.0)
    if low >= -1e-9 * high:
        # Only a rounding error made it negative.
        low = 0.0
    room = share * (high - low) or 1.0
    return (low - room if low < 0 else 0.0), (high + room if high > 0 or low == 0 else 0.0)


#: Width in points: 240 are 3.33 inches, a column of most two-column styles.
WIDTH = 240.0
#: The greatest height of a figure in points, so that a caption fits below it.
_HIGHEST = 560.0
#: A panel on the page is as wide as on a phone, so that text is never scaled down; 11 units of text are 7 points.
_PAGE, _POINT = 340.0, 7 / 11
_FONT = ' font-family="Liberation Sans"'
#: Attributes that title and description replace, and paths that draw nothing.
_CLUTTER = re.compile(r' (?:role|aria-\w+|class|pointer-events)="[^"]*"|<path[^>]* d=""[^>]*/>')
_OPACITIES = re.compile(rb"(?<=/ExtGState <<\n)(?: +/gs\d+ \d+ 0 R\n)+")
#: The values of the page's variables in a paper.
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
        # Vega uses another minus sign.
        "labelExpr": "replace(datum.label, '\N{MINUS SIGN}', '-')",
    },
}


def to_svg(panel: Panel) -> str:
    """Draw the panel as ``<svg role="img">`` with a title and a description, whose identifiers begin with its name."""
    name = panel.name
    return _inline(
        _panel(panel, _PAGE, 150),
        f'role="img" aria-labelledby="{name}-title {name}-description"',
        _PAGE,
        f'<title id="{name}-title">{escape(printable(panel.title))}</title>'
        f'<desc id="{name}-description">{escape(printable(panel.description))}</desc>',
    )


def swatch(number: int) -> str:
    """Draw a method's line and marker, for a legend in text."""
    return _inline(_legend({"": number}, 0, left=0), 'class="swatch" aria-hidden="true"', 36)


def to_files(figures: Iterable[Figure]) -> dict[str, bytes]:
    """Draw ``NAME.pdf`` and ``NAME.png`` of each figure."""
    files = {}
    for figure in figures:
        drawn = column(figure)
        files[f"{figure.name}.pdf"] = in_order(bytes(vl_convert.svg_to_pdf(drawn)))
        files[f"{figure.name}.png"] = bytes(vl_convert.svg_to_png(drawn, ppi=300))
    return files


def in_order(pdf: bytes) -> bytes:
    """Sort a document's list of opacities; its length stays the same, so every offset in it still holds."""
    return _OPACITIES.sub(lambda found: b"".join(sorted(found[0].splitlines(keepends=True))), pdf)


def column(figure: Figure) -> str:
    """Draw the figure as one SVG of the width of a column, in points."""
    rows = all(isinstance(panel.chart, RowChart) for panel in figure.panels)
    width, highest = WIDTH / _POINT, _HIGHEST / _POINT
    high = min(110.0, max(32.0, highest / len(figure.panels) - 85))
    parts = [_panel(panel, width, high) for panel in figure.panels]
    # Rows have the names of their methods.
    if figure.legend and not rows:
        names = {label(method): number for method, number in figure.legend.items()}
        parts.insert(0, _legend(names, width))
    drawn = {"vconcat": parts, "spacing": 12, "background": GROUND}
    svg = _svg(drawn, 'version="1.1"', width, scale=_POINT).replace(' font-weight="bold"', "")
    for variable, color in _PAPER.items():
        svg = svg.replace(variable, color)
    return svg


def _svg(drawn: Json, attributes: str, width: float, *, scale: float = 1.0) -> str:
    """Draw with Vega-Lite, and set the given width, because texts may change Vega-Lite's own."""
    spec = {"background": None, "padding": 0, "config": _CONFIG, **drawn}
    opening, svg = str(vl_convert.vegalite_to_svg(spec, vl_version="6.1")).split(">", maxsplit=1)
    height = float(opening.partition(' height="')[2].partition('"')[0])
    size = (
        f'width="{width * scale:g}" height="{height * scale:g}" viewBox="0 0 {width:g} {height:g}"'
    )
    return f'<svg xmlns="http://www.w3.org/2000/svg" {attributes} {size}>{svg}'


def _inline(drawn: Json, attributes: str, width: float, inside: str = "") -> str:
    """Make an element for the page, in the page's own font."""
    opening, svg = _svg(drawn, attributes, width).split(">", maxsplit=1)
    return f"{opening}>{inside}{_CLUTTER.sub('', svg).replace(_FONT, '')}"


def _panel(panel: Panel, width: float, height: float) -> Json:
    return {
        "title": {"text": printable(panel.title), "limit": width},
        **panel.chart.spec(width, height),
    }


def _legend(names: Mapping[str, int], width: float, left: float = LEFT) -> Json:
    """Draw lines and markers with their names in as many columns as fit the width, from the left end of the panels."""
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
