"""Every name that a page or a docstring refers to must exist: documented here, or importable.

A name is looked up as the module of the docstring sees it, so ``:class:`RunError``` leads to ``vcrt.errors.RunError``.
What can be imported but has no entry here (Python, NumPy, PyTorch, internals of vcrt) is shown without a link; what
cannot be imported fails the build. No inventory of another site is fetched.

In a page, which a code host shows too, a reference is a dotted name in code;
tests/project/test_docs.py finds those that do not exist.
"""

from __future__ import annotations

import builtins
import re
from importlib import import_module

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms.post_transforms import SphinxPostTransform

_NAME = re.compile(r"vcrt\w*(\.\w+)+")
_PACKAGES = (
    *("vcrt", "vcrt_train", "vcrt_research", "vcrt_clrs", "vcrt_django", "vcrt_lean"),
    *("vcrt_proofwriter", "vcrt_rocq"),
)
#: The modules in which the public names of each package were written.
_HOMES = {name: tuple(dict.fromkeys(import_module(name)._PLACE_OF.values())) for name in _PACKAGES}


class NamesInCode(SphinxPostTransform):
    """Make a link of each dotted name of vcrt that stands in code on a page and is documented; imports nothing."""

    default_priority = 4

    def run(self, **_: object) -> None:
        """Look at the code of one page; what autodoc wrote has its references already."""
        documented = self.env.get_domain("py").objects
        for code in list(self.document.findall(nodes.literal)):
            name = code.astext()
            if code["classes"] or not _NAME.fullmatch(name):
                continue
            # What a package exports has its entry under the module in which it was written.
            package, _, rest = name.partition(".")
            places = [name, *(f"{home}.{rest}" for home in _HOMES.get(package, ()))]
            target = next((place for place in places if place in documented), None)
            if target is not None:
                reference = pending_xref(
                    "",
                    refdomain="py",
                    reftype="obj",
                    reftarget=target,
                    refspecific=False,
                    refdoc=self.env.docname,
                    refwarn=True,
                )
                code.replace_self(reference)
                reference += code


class AsItsModuleSeesIt(SphinxPostTransform):
    """Give each reference the full name under which what it means is documented, before it is resolved."""

    default_priority = 5

    def run(self, **_: object) -> None:
        """Look at the references of one page."""
        documented = self.env.get_domain("py").objects
        for node in self.document.findall(pending_xref):
            if node.get("refdomain") == "py":
                found = _found(node["reftarget"], node.get("py:module"), node.get("py:class"))
                for name in found or ():
                    if name in documented:
                        node["reftarget"] = name
                        node["refspecific"] = False
                        break


def resolve(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, shown: nodes.TextElement
) -> nodes.TextElement | None:
    """The bare text of a reference to what exists without an entry here; None, which is a warning, if it does not."""
    if node.get("refdomain") != "py":
        return None
    exists = _found(node["reftarget"], node.get("py:module"), node.get("py:class")) is not None
    return shown if exists else None


def _found(target: str, module: str | None, within: str | None) -> tuple[str, ...] | None:
    """The full names under which the target may be documented; None if there is no such name."""
    # Sphinx cuts the text of an alias such as tuple[int, ...] at its commas.
    target = target.partition("[")[0]
    places = [target]
    if module is not None:
        places += [f"{module}.{target}"]
        if within is not None:
            places += [f"{module}.{within}.{target}"]
    for package in _PACKAGES if module is None else (module,):
        # What a package exports was written in other modules, with the names of those.
        places += [f"{home}.{target}" for home in _HOMES.get(package, ())]
    for place in places:
        exists, value = _imported(place)
        if exists:
            home = getattr(value, "__module__", None)
            name = getattr(value, "__qualname__", None)
            return (place, *([f"{home}.{name}"] if home and name else []))
    return None if not hasattr(builtins, target.split(".")[0]) else ()


def _imported(place: str) -> tuple[bool, object]:
    """Whether there is such a name, and what it stands for; an annotated field stands for itself."""
    parts = place.split(".")
    for length in range(len(parts), 0, -1):
        try:
            value: object = import_module(".".join(parts[:length]))
        except (ImportError, ValueError):
            continue
        for part in parts[length:]:
            if not hasattr(value, part):
                return part in getattr(value, "__annotations__", {}), None
            value = getattr(value, part)
        return True, value
    return False, None


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the transforms, and what happens to references that nothing else resolves."""
    app.add_post_transform(NamesInCode)
    app.add_post_transform(AsItsModuleSeesIt)
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
