"""Write the few elements of SVG that figures need, as text: no script, no network, no fixed colour of text.

Ink is ``currentColor``, so that a figure follows the page from light to dark; a method's colour is that of a group of
class ``m0`` to ``m7``, which a page may set by its style sheet and which is the light one elsewhere. Equal input gives
equal bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from xml.sax.saxutils import escape, quoteattr

from vcrt.printable import printable
from vcrt.report.charts import LIGHT, Figure, Panel, Style

NAMESPACE = "http://www.w3.org/2000/svg"
#: Of a letter, in sizes of the font.
_ADVANCE = 0.61
#: Outlines of the methods' markers in a square from -1 to 1.
_MARKERS = (
    None,
    "M-.9-.9H.9V.9H-.9z",
    "M0-1.15L1.1.85H-1.1z",
    "M0-1.25L1.25 0L0 1.25L-1.25 0z",
    "M0 1.15L1.1-.85H-1.1z",
    "M-1.1-.35H-.35V-1.1H.35V-.35H1.1V.35H.35V1.1H-.35V.35H-1.1z",
    "M0-1.2L1.14-.37L.7.97H-.7L-1.14-.37z",
    "M-1.2-.5H1.2V.5H-1.2z",
)


def number(value: float) -> str:
    """A coordinate with at most two decimals."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def element(name: str, /, *children: str, **attributes: str | float) -> str:
    """One element; ``stroke_width`` is written ``stroke-width`` and ``class_`` without its underscore."""
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}={quoteattr(value if isinstance(value, str) else number(value))}"
        for key, value in attributes.items()
    )
    return f"<{name}{written}>{''.join(children)}</{name}>" if children else f"<{name}{written}/>"


def text(words: str, x: float, y: float, /, **attributes: str | float) -> str:
    """Words whose baseline starts at a place; control characters are written as escapes."""
    return element("text", escape(printable(words)), x=x, y=y, fill="currentColor", **attributes)


def line(x1: float, y1: float, x2: float, y2: float, **attributes: str | float) -> str:
    """A line, in the ink of its group unless ``stroke`` says otherwise."""
    ink = {"stroke": "currentColor", **attributes}
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, **ink)


def path(points: Iterable[tuple[float, float]], *, closed: bool = False) -> str:
    """The ``d`` of a line through the points, or of the area within it."""
    body = "L".join(f"{number(x)} {number(y)}" for x, y in points)
    return f"M{body}{'z' if closed else ''}"


def group(style: Style, *children: str) -> str:
    """What is drawn in a method's colour."""
    return element("g", *children, class_=f"m{style.number}", color=LIGHT[style.number])


def marker(style: Style, x: float, y: float, radius: float, *, rim: bool = False) -> str:
    """The method's own shape, filled in the colour of its group; with a rim of the ground where lines meet it."""
    outline = _MARKERS[style.number]
    shape: dict[str, str | float] = {"fill": "currentColor"}
    if rim:
        # The width is in units of the shape, which is scaled.
        width = 0.2 * radius if outline is None else 0.2
        shape |= {"class_": "halo", "stroke": "#ffffff", "stroke_width": width}
    if outline is None:
        return element("circle", cx=x, cy=y, r=radius, **shape)
    place = f"translate({number(x)} {number(y)}) scale({number(radius)})"
    return element("path", d=outline, transform=place, **shape)


def text_width(words: str, size: float) -> float:
    """About how wide words are in the widest usual sans-serif font, so that there is room for them."""
    return math.ceil(_ADVANCE * size * len(printable(words)))


def fitting(words: str, size: float, width: float) -> str:
    """The words, cut with an ellipsis where they are wider than there is room."""
    kept = max(1, int(width / (_ADVANCE * size)))
    shown = printable(words)
    return shown if len(shown) <= kept else f"{shown[: kept - 1]}…"


def document(
    shown: Panel | Figure, description: str, *children: str, width: float, height: float
) -> str:
    """A ``<svg role="img">`` with a title and a description, whose identifiers begin with the name of what is shown."""
    name = shown.name
    return element(
        "svg",
        element("title", escape(printable(shown.title)), id=f"{name}-title"),
        element("desc", escape(printable(description)), id=f"{name}-description"),
        *children,
        xmlns=NAMESPACE,
        role="img",
        aria_labelledby=f"{name}-title {name}-description",
        viewBox=f"0 0 {number(width)} {number(height)}",
        width=width,
        height=height,
    )
