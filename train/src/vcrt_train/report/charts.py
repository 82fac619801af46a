"""Draw figures with Vega-Lite: each panel as SVG for the page, and a figure as PDF and PNG for one column of a paper.

A panel has rows with intervals and rings, or lines with bands over updates. On the page, colours are variables of its
style sheet, so that a figure follows it from light to dark. In a paper, panels stand below each other on white; text is
7 points high in Liberation Sans, which vl-convert embeds. Equal figures give equal bytes with the same vl-convert,
whose PDF lists opacities in no fixed order: they are put in order.
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
from vcrt_train.report.wording import METHOD, label, same_name

#: Colours on a light and on a dark ground: at least 3 to 1 against it, and apart for people with any colour vision.
LIGHT = ("#1f66b8", "#f24210", "#0c9b6a", "#553380", "#9f7fbd", "#7e4600", "#15352a", "#676170")
DARK = ("#6fb0f5", "#e67034", "#26aa74", "#a374ff", "#ea8bb4", "#d9c34a", "#e8ecef", "#927294")
INK, GROUND = "currentColor", "var(--ground)"
#: The methods' markers; the last two are outlines in a square from -1 to 1.
_SHAPES = (
    *("circle", "square", "triangle-up", "diamond", "triangle-down", "cross"),
    *("M0-1.2L1.14-.37L.7.97H-.7L-1.14-.37z", "M-1.2-.5H1.2V.5H-1.2z"),
)
#: How many markers tell a line apart from the others.
_MARKERS_A_LINE = 4
#: The width of a letter in the widest usual sans-serif font, and the room for the axis beside lines.
LETTER, LEFT = 6.7, 35.0
_BARE = {"title": None, "domain": False, "ticks": False}
_FAINT = {"fillOpacity": 0.13, "opacity": 1}

Json: TypeAlias = dict[str, Any]
Ends: TypeAlias = tuple[float, float]


class Reference(NamedTuple):
    """A line at one value. ``label`` is written beside it; where it is empty the caption explains the line."""

    value: float
    dash: tuple[float, ...]
    label: str = ""


class Row(NamedTuple):
    """An estimate with the interval over items, if any, that over runs and items, and every single run."""

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
        """The means with their intervals and, below them, a ring for each run; as high as the rows are many."""
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
    """The points of each method, by its number, over updates. ``remark`` is written where lines alone do not speak."""

    lines: Mapping[int, Sequence[LinePoint]]
    x_domain: Ends
    y_domain: Ends
    references: tuple[Reference, ...] = ()
    remark: str = ""

    def spec(self, width: float, height: float) -> Json:
        """Lines with their bands and a few markers each, the first method's on top."""
        values, marked = [], []
        for of, found in list(self.lines.items())[::-1]:
            points = [{**point._asdict(), **as_drawn(of)} for point in found]
            values += points
            many = len(points) > 2 * _MARKERS_A_LINE
            every = math.ceil(len(points) / _MARKERS_A_LINE) if many else 1
            # Each method's markers start elsewhere, so that lines on top of each other are all seen.
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
                # Without a place it stands in the middle.
                layer("text", {}, [{}], text=self.remark),
            ],
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """One drawing. ``name`` is unique within a page; ``description`` says in words what is drawn."""

    name: str
    title: str
    description: str
    chart: RowChart | LineChart


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A row of panels under one title; ``caption`` says how to read them. ``name`` is the stem of its files."""

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    #: Whether a page shows it at once; otherwise it is a click away.
    core: bool = True
    #: The methods with the numbers of their colours and markers; empty where nothing needs a legend.
    legend: Mapping[str, int] = field(default_factory=dict)


def method_styles(methods: Sequence[str]) -> dict[str, int]:
    """The number of each method's colour and marker: 0 for that under study, the others by their place in the plan."""
    others = [method for method in methods if not same_name(method, METHOD)]
    return {
        method: 1 + others.index(method) % (len(LIGHT) - 1) if method in others else 0
        for method in methods
    }


#: A marker on a line.
MARKER: Json = {"size": 44, "filled": True, "opacity": 1}


def as_drawn(of: int) -> Json:
    """The colour, marker and line of a method, as fields of data; the line of that under study is heavier."""
    return {"color": f"var(--m{of})", "shape": _SHAPES[of], "stroke": 1.5 if of else 2.5}


def as_is(name: str) -> Json:
    """A field that says itself how something is drawn, or which words."""
    return {"field": name, "type": "nominal", "scale": None, "legend": None}


def as_marker(colored: str = "color") -> Json:
    """A method's marker in its colour."""
    return {"shape": as_is("shape"), colored: as_is("color")}


def number(name: str, domain: Ends | None = None, /, **axis: Any) -> Json:
    """A field of numbers; one of those that share an axis says what that is like."""
    if domain is None:
        return {"field": name, "type": "quantitative"}
    scale = {"domain": list(domain), "nice": False, "zero": False, "clamp": True}
    return {"field": name, "type": "quantitative", "scale": scale, "axis": axis}


def layer(kind: str, encoding: Json, values: Sequence[Json] | None = None, **mark: Any) -> Json:
    """Marks of a kind, of the chart's data or of these."""
    data = {} if values is None else {"data": {"values": values}}
    return {**data, "mark": {"type": kind, **mark}, "encoding": encoding}


def _rules(references: Iterable[Reference], **place: Json) -> Json:
    values = [one._asdict() for one in references]
    return layer("rule", {**place, "strokeDash": as_is("dash")}, values, color=INK, strokeWidth=1.2)


def tens(values: Iterable[float]) -> Ends:
    """The tens around percentages, with room at both ends but within 0 and 100."""
    inside = [min(100.0, max(0.0, value)) for value in values]
    low, high = 10 * math.floor((min(inside) - 2) / 10), 10 * math.ceil((max(inside) + 2) / 10)
    return max(0.0, low), min(100.0, high)


def padded(low: float, high: float, share: float = 0.05) -> Ends:
    """An interval with zero in it, and some room at the ends that are not zero."""
    low, high = min(low, 0.0), max(high, 0.0)
    if low >= -1e-9 * high:
        # Rounding alone took it below zero.
        low = 0.0
    room = share * (high - low) or 1.0
    return (low - room if low < 0 else 0.0), (high + room if high > 0 or low == 0 else 0.0)


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
