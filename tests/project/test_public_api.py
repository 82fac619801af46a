"""`import vcrt`, and its members: small, quick, typed, and the same from release to release."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import vcrt
from command_functions import FUNCTIONS, PACKAGES

FROZEN = Path(__file__).parents[1] / "support" / "public_api.json"
ROOT = Path(__file__).parents[2]
NAMES = [(package, name) for package in PACKAGES for name in package.__all__]


def surface() -> dict[str, dict[str, str]]:
    """Each public name of each package with its signature, or with what kind of thing it is."""
    return {package.__name__: surface_of(package) for package in PACKAGES}


def surface_of(package) -> dict[str, str]:
    found = {}
    for name in package.__all__:
        thing = getattr(package, name)
        if inspect.isclass(thing):
            fields = getattr(thing, "__dataclass_fields__", {})
            found[name] = f"class({', '.join(fields)})"
        else:
            found[name] = re.sub(r" object at 0x[0-9a-f]+", "", str(inspect.signature(thing)))
    return found


def test_the_public_surface_is_frozen():
    """A change here is a change for users: write it into the changelog, then into the file."""
    assert surface() == json.loads(FROZEN.read_text(encoding="utf-8"))


@pytest.mark.parametrize("package", PACKAGES)
def test_what_is_promised_to_type_checkers_is_what_is_loaded(package):
    tree = ast.parse(Path(package.__file__).read_text(encoding="utf-8"))
    (block,) = (n for n in tree.body if isinstance(n, ast.If))
    promised = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert promised == package._PLACE_OF
    assert sorted(promised) == package.__all__
    assert set(package.__all__) <= set(dir(package))


def test_no_name_is_public_in_two_packages():
    names = [name for _, name in NAMES]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(("package", "name"), NAMES)
def test_every_public_name_is_documented(package, name):
    text = inspect.getdoc(getattr(package, name)) or ""
    assert len(text) > 30, name
    assert not text.startswith(f"{name}("), "a generated docstring"


#: What runs in CI as it stands: examples, the code cells of the documentation, and Python that is tested in pages.
BLOCKS = re.compile(r"^```+\{?(?:code-cell|python)\b.*?\n(.*?)^```", re.DOTALL | re.MULTILINE)
PAGES = [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
EXECUTED = [path.read_text(encoding="utf-8") for path in ROOT.glob("examples/**/*.py")]
EXECUTED += [block for path in PAGES for block in BLOCKS.findall(path.read_text(encoding="utf-8"))]
#: Functions of commands, which the tests of the commands run.
COMMANDS = {name for names in FUNCTIONS.values() for name in names}
#: What functions return; nobody makes one.
RETURNED = {"Dataset", "Experiment", "Item", "CertifiedEpisode", "Exclusion", "Environment"}


@pytest.mark.parametrize(
    ("package", "name"), [one for one in NAMES if one[1] not in RETURNED | COMMANDS]
)
def test_every_public_name_has_an_example_that_runs(package, name):
    thing = getattr(package, name)
    found = doctest.DocTestFinder(recurse=False).find(
        thing, name, globs=vars(importlib.import_module(thing.__module__)).copy()
    )
    examples = [test for test in found if test.examples]
    for test in examples:
        assert doctest.DocTestRunner().run(test).failed == 0
    code = "\n".join(EXECUTED)
    assert examples or re.search(rf"\b{package.__name__}\.{name}\b|import [^\n]*\b{name}\b", code)


#: What imports a library that the tests do without, or that wants settings of its own first.
APART = ("vcrt_train.integrations.", "vcrt_django.")


def test_every_example_in_a_docstring_gives_what_it_shows():
    ran = 0
    sources = [ROOT / "src", ROOT / "train" / "src", *ROOT.glob("environments/*/src")]
    for path in sorted(path for source in sources for path in source.rglob("*.py")):
        (source,) = (source for source in sources if path.is_relative_to(source))
        name = ".".join(path.relative_to(source).with_suffix("").parts)
        if ">>> " not in path.read_text(encoding="utf-8") or name.startswith(APART):
            continue
        module = importlib.import_module(name.removesuffix(".__init__"))
        for test in doctest.DocTestFinder().find(module):
            assert doctest.DocTestRunner().run(test).failed == 0, (name, test.name)
            ran += len(test.examples)
    assert ran > 50


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'certifi'"):
        vcrt.certifi  # noqa: B018


def test_importing_it_loads_nothing_heavy():
    names = ", ".join(package.__name__ for package in PACKAGES)
    code = f"import sys, {names}; print(sorted({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(ast.literal_eval(done.stdout))
    assert not loaded & {"torch", "numpy", "pyarrow", "transformers", "pydantic", "rich", "tyro"}


if __name__ == "__main__":
    FROZEN.write_text(json.dumps(surface(), indent=1) + "\n", encoding="utf-8")
