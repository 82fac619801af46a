"""What all figures share: panels of one size, and for each method its colour, dash and width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from vcrt.report import paper
from vcrt.report.svg import Layers, to_svg
from vcrt.report.wording import label

PANEL_WIDTH, PANEL_HEIGHT = 340, 220
#: Colours whose contrast is at least 3 against both grounds of the page.
COLORS = ("#3b82d6", "#c8641b", "#2b9a57", "#a065d8", "#d9485f", "#158f96", "#9a7b2d", "#7d8791")
DASHES: tuple[tuple[int, ...], ...] = ((6, 3), (2, 2), (8, 3, 2, 3), (12, 4))


@dataclass(frozen=True, kw_only=True, slots=True)
class Style:
    """How a method is drawn in every figure."""

    color: str
    dash: tuple[int, ...]
    width: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A row of SVG panels under one title; ``caption`` says how to read them."""

    name: str
    title: str
    caption: str
    panels: tuple[str, ...]


def method_styles(methods: Sequence[str]) -> dict[str, Style]:
    """The method under study in the first colour, solid and heavier; the others by their place in the plan."""
    others = [method for method in methods if not paper.same_name(method, paper.METHOD)]
    return {
        method: Style(
            color=COLORS[1 + others.index(method) % (len(COLORS) - 1)],
            dash=DASHES[others.index(method) % len(DASHES)],
            width=1.75,
        )
        if method in others
        else Style(color=COLORS[0], dash=(), width=2.75)
        for method in methods
    }


def labels(names: list[str]) -> alt.Y:
    """The vertical axis of one row for each label, in their order."""
    return alt.Y(
        "label:N",
        title=None,
        sort=names,
        scale=alt.Scale(domain=names),
        axis=alt.Axis(ticks=False),
    )


def color(styles: Mapping[str, Style]) -> alt.Color:
    """Each method in its own colour; the page has the legend."""
    scale = alt.Scale(
        domain=[label(method) for method in styles],
        range=[style.color for style in styles.values()],
    )
    return alt.Color("label:N", scale=scale, legend=None)


def data(rows: Sequence[Mapping[str, Any]]) -> alt.InlineData:
    """Rows as inline data."""
    return alt.InlineData(values=list(rows))


def draw(
    chart: Layers,
    name: str,
    title: str,
    description: str,
    *,
    titled: bool = True,
    width: int = PANEL_WIDTH,
    height: int = PANEL_HEIGHT,
) -> str:
    """One panel as SVG; ``name`` must be unique within a page. Its title is drawn if ``titled`` and always spoken."""
    sized = chart.properties(
        width=width,
        height=height,
        autosize=alt.AutoSizeParams(type="fit", contains="padding"),
    )
    if titled:
        sized = sized.properties(title=title)
    return to_svg(sized, name=name, title=title, description=description)
