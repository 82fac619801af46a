"""From an Altair chart to a static SVG that stands inside a page: no script, no network, no fixed text colour.

Text and axes are drawn in ``currentColor`` on a transparent ground, so that a figure follows the page from light to
dark. Equal charts give equal bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias
from xml.etree import ElementTree

import altair as alt
import vl_convert

SVG_NAMESPACE = "http://www.w3.org/2000/svg"
_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}(?:e-?\d+)?")
Layers: TypeAlias = alt.LayerChart | alt.FacetChart
_INK = "currentColor"
THEME: Mapping[str, Any] = {
    "background": "transparent",
    "font": "sans-serif",
    "padding": 4,
    "view": {"stroke": None},
    "axis": {
        "labelColor": _INK,
        "labelFontSize": 11,
        "labelLimit": 150,
        "titleColor": _INK,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
        "domainColor": _INK,
        "domainOpacity": 0.5,
        "tickColor": _INK,
        "tickOpacity": 0.5,
        "gridColor": _INK,
        "gridOpacity": 0.15,
    },
    "title": {"color": _INK, "fontSize": 12, "anchor": "start", "offset": 6},
}
#: The drawing library's minus sign; tables and sentences write a hyphen, which CSV readers and terminals can parse.
_MINUS = "\N{MINUS SIGN}"
_DROPPED = re.compile(r"^(class|role|pointer-events|aria-.*)$")


def to_svg(chart: Layers, *, name: str, title: str, description: str) -> str:
    """A self-contained ``<svg role="img">`` with a title and a description.

    ``name`` makes the identifiers in it unique within a page.
    """
    spec = {**chart.to_dict(), "config": THEME}
    version = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    drawn = vl_convert.vegalite_to_svg(spec, vl_version=version, allowed_base_urls=[])
    root = ElementTree.fromstring(drawn)
    for element in root.iter():
        _clean(element)
    _prune(root)
    _describe(root, name, title, description)
    return ElementTree.tostring(root, encoding="unicode")


def _clean(element: ElementTree.Element) -> None:
    """Drop what only an interactive chart needs and decimals that no one can see; write minus as everywhere else."""
    element.tag = element.tag.removeprefix(f"{{{SVG_NAMESPACE}}}")
    if element.text:
        element.text = element.text.replace(_MINUS, "-")
    for key in list(element.attrib):
        if _DROPPED.match(key):
            del element.attrib[key]
        else:
            element.set(key, _LONG_NUMBER.sub(_shorter, element.attrib[key]))


def _shorter(match: re.Match[str]) -> str:
    return f"{round(float(match.group()), 2) + 0.0:g}"


def _prune(element: ElementTree.Element) -> None:
    for child in list(element):
        _prune(child)
        unseen = child.tag == "path" and not ({"fill", "stroke"} & set(child.attrib))
        if unseen or (child.tag == "g" and len(child) == 0):
            element.remove(child)


def _describe(root: ElementTree.Element, name: str, title: str, description: str) -> None:
    root.set("xmlns", SVG_NAMESPACE)
    root.set("role", "img")
    root.set("aria-labelledby", f"{name}-title {name}-description")
    for index, (tag, text) in enumerate((("title", title), ("desc", description))):
        suffix = "title" if tag == "title" else "description"
        element = ElementTree.Element(tag, {"id": f"{name}-{suffix}"})
        element.text = text
        root.insert(index, element)
