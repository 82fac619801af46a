"""Make a figure for one column of a paper, as PDF and PNG: the page's panels below each other, the legend on top.

Text is 7 points high in Liberation Sans, embedded in the PDF as a subset; the ground is white. Equal figures give
equal bytes on machines with the same font file and the same vl-convert; another release of the font gives others. The
PDF writer lists fonts and opacities in no fixed order: a figure has one font, and its opacities are put in order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import vl_convert

from vcrt.report.charts import Figure, Panel, RowChart
from vcrt.report.drawing import Size, draw
from vcrt.report.svg import document, element, group, line, marker, text, text_width
from vcrt.report.wording import label

#: In points: 240 are 3.33 inches, a column of most two-column styles.
WIDTH, FONT = 240.0, 7.0
_INK = "#1c2329"
#: To the inch.
_PIXELS = 300
_GAP = 8.0
_OPACITIES = re.compile(rb"(?<=/ExtGState <<\n)(?: +/gs\d+ \d+ 0 R\n)+")
#: A figure is not higher than this, so that a caption fits below it on the page.
_HIGHEST = 560.0
#: A panel with lines is at least so high; more panels make a higher figure.
_LOWEST = 44.0


def to_files(figures: Iterable[Figure]) -> dict[str, bytes]:
    """``NAME.pdf`` and ``NAME.png`` of each figure."""
    files = {}
    for figure in figures:
        drawn = column(figure)
        files[f"{figure.name}.pdf"] = in_order(bytes(vl_convert.svg_to_pdf(drawn)))
        files[f"{figure.name}.png"] = bytes(vl_convert.svg_to_png(drawn, ppi=_PIXELS))
    return files


def in_order(pdf: bytes) -> bytes:
    """The same document with its list of opacities sorted; as long as it was, so every offset in it still holds."""
    return _OPACITIES.sub(lambda found: b"".join(sorted(found[0].splitlines(keepends=True))), pdf)


def column(figure: Figure) -> str:
    """The figure as one drawing of the width of a column, in points."""
    # Rows name their methods themselves.
    rows = all(isinstance(panel.chart, RowChart) for panel in figure.panels)
    legend, top = ("", 0.0) if rows else _legend(figure)
    size = Size(width=WIDTH, height=_height(figure.panels, top), font=FONT, weight="normal")
    parts = [legend]
    for panel in figure.panels:
        body, height = draw(panel, size)
        parts.append(element("g", body, transform=f"translate(0 {top:g})"))
        top += height + _GAP
    height = top - _GAP + 2
    ground = element("rect", width=WIDTH, height=height, fill="#ffffff")
    inked = element("g", *parts, color=_INK, font_family="Liberation Sans, Arial, sans-serif")
    return document(figure, figure.caption, ground, inked, width=WIDTH, height=height)


def _height(panels: Sequence[Panel], top: float) -> float:
    """Of a panel with lines: low enough for all of them to stand below each other."""
    return min(104.0, max(_LOWEST, (_HIGHEST - top) / len(panels) - _GAP))


def _legend(figure: Figure) -> tuple[str, float]:
    """The methods in lines as wide as the column, and the height of them."""
    parts, x, y = [], 0.0, FONT
    for method, style in figure.legend.items():
        name = label(method)
        width = 20 + text_width(name, FONT)
        if x and x + width > WIDTH:
            x, y = 0.0, y + 1.5 * FONT
        middle = y - 0.35 * FONT
        stroke = line(x, middle, x + 14, middle, stroke_width=style.width * 0.64)
        parts.append(group(style, stroke, marker(style, x + 7, middle, 0.3 * FONT)))
        parts.append(text(name, x + 17, y, font_size=FONT))
        x += width + 6
    return "".join(parts), y + _GAP
