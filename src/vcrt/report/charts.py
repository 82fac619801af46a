"""Hold what a panel of a figure shows, before it is drawn: rows with intervals and dots, or lines over updates.

Plain values, so that the page and a paper draw the same panel at their own sizes (:mod:`vcrt.report.drawing`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from vcrt.report import paper

#: Colours on a light and on a dark ground: at least 3 to 1 against it, and apart for people with any colour vision.
LIGHT = ("#1f66b8", "#f24210", "#0c9b6a", "#553380", "#9f7fbd", "#7e4600", "#15352a", "#676170")
DARK = ("#6fb0f5", "#e67034", "#26aa74", "#a374ff", "#ea8bb4", "#d9c34a", "#e8ecef", "#927294")

Ends: TypeAlias = tuple[float, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Style:
    """How a method is drawn in every figure: the number of its colour and marker, and the width of its line."""

    number: int
    width: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """A line at one value. ``label`` is written beside it; where it is empty the caption explains the line."""

    value: float
    dash: tuple[float, ...]
    label: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """An estimate with the paper's interval over items and that over runs and items, and every single run."""

    label: str
    style: Style
    value: float
    over_items: Ends | None
    over_both: Ends
    runs: tuple[float, ...]
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RowChart:
    """Rows above one axis of values."""

    rows: tuple[Row, ...]
    unit: str
    domain: Ends
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class LinePoint:
    """A value at ``x`` with the band around it."""

    x: float
    y: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """The points of one method, from left to right."""

    style: Style
    points: tuple[LinePoint, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class LineChart:
    """Lines over updates. ``remark`` is written into the panel where the lines alone do not speak."""

    lines: tuple[Line, ...]
    x_domain: Ends
    y_domain: Ends
    references: tuple[Reference, ...] = ()
    remark: str = ""


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
    #: The methods that the colours stand for; empty where nothing needs a legend.
    legend: Mapping[str, Style] = field(default_factory=dict)


def method_styles(methods: Sequence[str]) -> dict[str, Style]:
    """The method under study in the first colour and heavier; the others by their place in the plan."""
    others = [method for method in methods if not paper.same_name(method, paper.METHOD)]
    return {
        method: Style(number=1 + others.index(method) % (len(LIGHT) - 1), width=1.5)
        if method in others
        else Style(number=0, width=2.5)
        for method in methods
    }
