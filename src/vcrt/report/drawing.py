"""Draw a panel at a given size, for the page or for a column of a paper.

Not covered: what is drawn (:mod:`vcrt.report.charts`), and files (:mod:`vcrt.report.paper_figures`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from vcrt.report.axes import Scale, ticks
from vcrt.report.charts import Ends, Line, LineChart, Panel, Reference, Row, RowChart
from vcrt.report.svg import (
    document,
    element,
    fitting,
    group,
    line,
    marker,
    path,
    text,
    text_width,
)

Ink: TypeAlias = Mapping[str, str | float]

#: How many markers tell a line apart from the others.
_MARKERS_A_LINE = 4
#: Words among lines stand on a rim of the ground, which a page sets by the class.
_HALO: Ink = {
    "class_": "halo",
    "stroke": "#ffffff",
    "stroke_width": "3",
    "paint_order": "stroke",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """The width of a panel, the height of one with lines, and the size of its text; in units of the drawing."""

    width: float
    height: float
    font: float
    #: Of titles.
    weight: str = "bold"

    @property
    def thin(self) -> float:
        """The width of a thin line."""
        return self.font / 11

    @property
    def grid(self) -> Ink:
        """A line of the grid: lighter than ink, and of the page's own colour where it has a style sheet."""
        return {"class_": "grid", "stroke": "#d5dbe0", "stroke_width": self.thin}


#: As wide as a phone shows it, so that text is never smaller than it is drawn.
PAGE = Size(width=340, height=212, font=11)


def to_svg(panel: Panel, size: Size = PAGE) -> str:
    """The panel as a self-contained drawing for a page."""
    body, height = draw(panel, size)
    return document(panel, panel.description, body, width=size.width, height=height)


def draw(panel: Panel, size: Size) -> tuple[str, float]:
    """The panel's elements in a group, and its height."""
    top = 1.7 * size.font
    title = text(
        fitting(panel.title, 1.1 * size.font, size.width),
        *(0, 1.05 * size.font),
        font_size=1.09 * size.font,
        font_weight=size.weight,
    )
    if isinstance(panel.chart, RowChart):
        body, height = _rows(panel.chart, size, top)
    else:
        body, height = _lines(panel.chart, size, top)
    return element("g", title, body, font_size=size.font), height


def _rows(chart: RowChart, size: Size, top: float) -> tuple[str, float]:
    font = size.font
    rings = any(len(row.runs) > 1 for row in chart.rows)
    step = font * (2.7 if rings else 2.1)
    room = 0.42 * size.width
    label = min(room, max((text_width(row.label, font) for row in chart.rows), default=0))
    value = max((text_width(row.text, font) for row in chart.rows), default=0)
    start, end = label + 0.8 * font, size.width - value - 1.1 * font
    x = Scale(low=chart.domain[0], high=chart.domain[1], start=start, end=end)
    bottom = top + step * len(chart.rows) + 0.3 * font
    parts = _x_axis(chart.domain, x, (top, bottom), chart.unit, size)
    for reference in chart.references:
        at = x(reference.value)
        parts.append(line(at, top, at, bottom, **_dashed(reference, size)))
    for index, row in enumerate(chart.rows):
        middle = top + step * (index + 0.5)
        base = middle + 0.35 * font
        parts.append(text(fitting(row.label, font, room), label, base, text_anchor="end"))
        parts.append(_row(row, x, middle, font, rings=rings))
        parts.append(text(row.text, size.width, base, text_anchor="end"))
    return "".join(parts), bottom + 2.7 * font


def _row(row: Row, x: Scale, middle: float, font: float, *, rings: bool) -> str:
    """The mean with its intervals and, below it, a ring for each run."""
    y = middle - (0.35 * font if rings else 0)
    low, high = map(x, row.over_both)
    thin, end = {"stroke_width": 0.13 * font}, 0.28 * font
    parts = [line(low, y, high, y, **thin)]
    parts += [line(at, y - end, at, y + end, **thin) for at in (low, high)]
    if row.over_items is not None:
        first, last = map(x, row.over_items)
        parts.append(line(first, y, last, y, stroke_width=0.42 * font))
    parts.append(marker(row.style, x(row.value), y, 0.44 * font, rim=True))
    ring: Ink = {
        "r": 0.26 * font,
        "fill": "none",
        "stroke": "currentColor",
        "stroke_width": 0.11 * font,
    }
    if rings:
        at = y + 0.95 * font
        parts += [element("circle", cx=x(value), cy=at, **ring) for value in row.runs]
    return group(row.style, *parts)


def _lines(chart: LineChart, size: Size, top: float) -> tuple[str, float]:
    font, height = size.font, size.height
    marks = ticks(*chart.y_domain, 5)
    start = max((text_width(words, font) for _, words in marks), default=0) + 0.7 * font
    end, bottom = size.width - 1.2 * font, height - 2.7 * font
    x = Scale(low=chart.x_domain[0], high=chart.x_domain[1], start=start, end=end)
    y = Scale(low=chart.y_domain[0], high=chart.y_domain[1], start=bottom, end=top + 0.3 * font)
    parts = []
    for value, words in marks:
        parts.append(line(start, y(value), end, y(value), **size.grid))
        parts.append(text(words, start - 0.4 * font, y(value) + 0.35 * font, text_anchor="end"))
    parts += _x_axis(chart.x_domain, x, (bottom, bottom), "update", size)
    parts += [_band(drawn, x, y) for drawn in chart.lines]
    parts += [_line(drawn, x, y, size) for drawn in chart.lines[::-1]]
    for reference in chart.references:
        at = y(reference.value)
        parts.append(line(start, at, end, at, **_dashed(reference, size)))
        if reference.label:
            rim: Ink = {"font_size": 0.95 * font, **_HALO}
            above = at - 0.35 * font
            parts.append(text(reference.label, end, above, text_anchor="end", **rim))
    if chart.remark:
        place = ((start + end) / 2, (top + bottom) / 2)
        parts.append(text(chart.remark, *place, text_anchor="middle"))
    return "".join(parts), height


def _band(drawn: Line, x: Scale, y: Scale) -> str:
    if all(p.low == p.high for p in drawn.points):
        return ""
    outline = [(x(p.x), y(p.high)) for p in drawn.points]
    outline += [(x(p.x), y(p.low)) for p in reversed(drawn.points)]
    area = element("path", d=path(outline, closed=True), fill="currentColor", fill_opacity=0.13)
    return group(drawn.style, area)


def _line(drawn: Line, x: Scale, y: Scale, size: Size) -> str:
    if not drawn.points:
        return ""
    places = [(x(p.x), y(p.y)) for p in drawn.points]
    trace = element(
        "path",
        d=path(places),
        fill="none",
        stroke="currentColor",
        stroke_width=drawn.style.width * size.thin,
        stroke_linejoin="round",
    )
    every = 1 if len(places) <= 2 * _MARKERS_A_LINE else math.ceil(len(places) / _MARKERS_A_LINE)
    # Each method's markers start elsewhere, so that lines on top of each other are all seen.
    first = (1 + drawn.style.number * every // 8) % every
    shown = places[first::every] or places[-1:]
    return group(drawn.style, trace, *(marker(drawn.style, *at, 0.3 * size.font) for at in shown))


def _x_axis(
    domain: Ends, x: Scale, heights: tuple[float, float], unit: str, size: Size
) -> list[str]:
    """Ticks with their texts below a plot that reaches from one height to the other, and the unit."""
    font, (top, bottom) = size.font, heights
    thin = {"stroke_width": size.thin}
    parts = [line(x.start, bottom, x.end, bottom, **thin)]
    for value, words in ticks(*domain, 5):
        at = x(value)
        if top < bottom:
            parts.append(line(at, top, at, bottom, **size.grid))
        parts.append(line(at, bottom, at, bottom + 0.35 * font, **thin))
        parts.append(text(words, at, bottom + 1.35 * font, text_anchor="middle"))
    parts.append(text(unit, (x.start + x.end) / 2, bottom + 2.5 * font, text_anchor="middle"))
    return parts


def _dashed(reference: Reference, size: Size) -> Ink:
    dash = " ".join(f"{length:g}" for length in reference.dash)
    return {"stroke_dasharray": dash, "stroke_width": 1.2 * size.thin}
