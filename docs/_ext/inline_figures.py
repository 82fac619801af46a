"""SVG pictures of ``docs/figures`` put into the page itself, so that they follow the theme that its reader chose."""

from __future__ import annotations

import re
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

_ROOT = re.compile(r"^.*?<svg ", re.DOTALL)
_OWN_STYLE = re.compile(r"<style>.*?</style>\s*", re.DOTALL)


class InlineFigures(SphinxPostTransform):
    """Replace each picture ``figures/*.svg`` by its source, with the picture's words as its name."""

    default_priority = 5
    formats = ("html",)

    def run(self, **_: object) -> None:
        """Replace the pictures of one page."""
        for image in list(self.document.findall(nodes.image)):
            path = Path(image["uri"])
            if path.suffix == ".svg" and path.parent.name == "figures":
                image.replace_self(self._inline(image))

    def _inline(self, image: nodes.image) -> nodes.raw:
        source = Path(self.env.srcdir, "figures", Path(image["uri"]).name)
        svg = _OWN_STYLE.sub("", source.read_text(encoding="utf-8"))
        words = nodes.make_id(source.stem)
        opened = f'<svg role="img" aria-labelledby="figure-{words}" '
        title = f'<title id="figure-{words}">{image["alt"]}</title>'
        svg = _ROOT.sub(opened, svg, count=1).replace(">", f">{title}", 1)
        return nodes.raw("", f'<div class="drawn">{svg}</div>', format="html")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the transform."""
    app.add_post_transform(InlineFigures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
