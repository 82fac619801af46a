"""Formulas as MathML, made when the site is built: browsers show it by themselves, so no script is loaded."""

from __future__ import annotations

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator


def visit_math(translator: HTML5Translator, node: nodes.math) -> None:
    """A formula within a line."""
    translator.body.append(f'<span class="formula">{convert(node.astext())}</span>')
    raise nodes.SkipNode


def visit_math_block(translator: HTML5Translator, node: nodes.math_block) -> None:
    """A formula on a line of its own."""
    translator.body.append(translator.starttag(node, "div", CLASS="formula-block"))
    translator.body.append(convert(node.astext(), display="block"))
    translator.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer as ``mathml``."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
