"""The documentation says what is so: its pages hang together, and its commands, names, tables and pictures are true."""

from __future__ import annotations

import ast
import inspect
import math
import os
import re
import shlex
from importlib import import_module
from typing import get_args

import pytest

import vcrt
from command_functions import PACKAGES
from documentation import (
    DOCS,
    PAGES,
    ROOT,
    all_blocks,
    blocks,
    commands,
    exists,
    first_cells,
    name_of,
    prose_links,
    references,
    text_of,
)
from vcrt.certificates.certificates import ExclusionKind
from vcrt.cli.commands import in_the_shell
from vcrt_train.config import ObjectiveConfig
from vcrt_train.config_files import load_config, settings_names
from vcrt_train.objective.losses import MAX_LOG_RATIO
from vcrt_train.training.methods import METHODS

TEXTS = {name_of(path): path.read_text(encoding="utf-8") for path in PAGES}
BESIDE = (
    "README.md",
    "CONTRIBUTING.md",
    "ARCHITECTURE.md",
    "examples/sqlite_changes/README.md",
    *(
        f"research/{name}.md"
        for name in (
            "results",
            "at-length",
            "estimator",
            "published-tools",
            "trust",
            "verifiers",
            "decisions",
            "tool-calls",
        )
    ),
)
ALL_TEXTS = {
    **TEXTS,
    **{f"../{name}": (ROOT / name).read_text(encoding="utf-8") for name in BESIDE},
}


def linked_from_the_readme():
    """The pages that somebody reaches from the README on a code host; the reference and notebooks are built first."""
    found, todo = set(), ["../README.md"]
    while todo:
        page = todo.pop()
        found.add(page)
        folder = (DOCS / page).parent
        for link in prose_links(ALL_TEXTS[page]):
            other = os.path.relpath((folder / link.partition("#")[0]).resolve(), DOCS)
            if other in ALL_TEXTS and not other.startswith(("api/", "notebooks/")):
                todo += {other} - found
    return sorted(found)


def listed(page):
    """The pages that a page's tables of contents name."""
    folder = (DOCS / page).parent
    for block in blocks(TEXTS[page], "{toctree}"):
        for line in block.split("\n\n", 1)[1].split():
            yield name_of((folder / f"{line}.md").resolve())


def test_every_page_is_in_one_table_of_contents():
    named = [other for page in TEXTS for other in listed(page)]
    assert sorted([*named, "index.md"]) == sorted(TEXTS)


@pytest.mark.parametrize("page", ALL_TEXTS)
def test_links_and_pictures_lead_somewhere(page):
    folder = (DOCS / page).parent
    for link in prose_links(ALL_TEXTS[page]):
        assert (folder / link.partition("#")[0]).exists(), link


@pytest.mark.parametrize("page", ALL_TEXTS)
def test_files_that_are_named_exist(page):
    for path in re.findall(
        r"`((?:src|train|environments|tests|docs|examples|benchmarks)/[\w./-]+)`", ALL_TEXTS[page]
    ):
        assert (ROOT / path).exists() or ((DOCS / page).parent / path).exists(), path


def test_the_files_of_the_architecture_exist():
    """Those that stand without their folder too."""
    for row in re.findall(r"^\| .* \|$", ALL_TEXTS["../ARCHITECTURE.md"], re.MULTILINE):
        folders = [(ROOT / path).parent for path in re.findall(r"`((?:\w+/)*src/[\w./-]+)`", row)]
        folders += [ROOT / path for path in re.findall(r"`((?:\w+/)*src/[\w./-]+/)`", row)]
        for name in re.findall(r"`(\w+\.py)`", row):
            assert any((folder / name).exists() for folder in folders), name


@pytest.mark.parametrize("page", ALL_TEXTS)
def test_names_that_are_referred_to_exist(page):
    for name in references(ALL_TEXTS[page]):
        assert exists(name), name
    for module in re.findall(r"^.. automodule:: (\S+)", ALL_TEXTS[page], re.MULTILINE):
        assert exists(module), module


def test_a_name_that_does_not_exist_is_found():
    assert exists("vcrt_train.config.ObjectiveConfig.clip")
    assert not exists("vcrt_train.config.ObjectiveConfig.clop")
    assert not exists("vcrt.configs")
    assert not exists("vcrt.orders.orbit_of.missing")


def test_the_reference_has_the_whole_public_surface():
    page = TEXTS["api/vcrt.md"]
    shown = re.findall(r"^.. autofunction:: vcrt\w*\.(\w+)$", page, re.MULTILINE)
    shown += [name.rpartition(".")[2] for name in references(page.partition("What else")[2])]
    assert sorted(shown) == sorted(name for package in PACKAGES for name in package.__all__)


def test_each_equation_has_its_function():
    """Every function of the objective's own table stands on the page of mathematics, and every equation has a name."""
    table = ast.get_docstring(
        ast.parse((ROOT / "train/src/vcrt_train/objective/__init__.py").read_text())
    )
    functions = re.findall(r":func:`([\w.]+)`", table or "")
    assert len(functions) >= 12
    assert set(functions) <= set(references(TEXTS["mathematics.md"]))
    _, *sections = TEXTS["mathematics.md"].split("```math\n")
    assert len(sections) >= 14
    for section in sections:
        after = section.partition("```")[2]
        assert "`vcrt" in after or "form a diamond" in after or "notebooks/" in after


def stubbed(command, arguments):
    """A command that takes the same options and does nothing."""
    run = in_the_shell(command, arguments)

    def nothing(**options):
        return None

    nothing.__doc__, nothing.__annotations__ = run.__doc__, run.__annotations__
    nothing.__signature__ = inspect.signature(run)
    return nothing


@pytest.fixture
def parsed(monkeypatch, tmp_path):
    """Parses a command line as `vcrt` does and runs nothing, beside the file of settings that is shown."""
    (settings,) = blocks(TEXTS["train.md"], "toml")
    (tmp_path / "wide.toml").write_text(settings, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    module = import_module("vcrt.cli.main")
    monkeypatch.setattr(module, "in_the_shell", stubbed)

    def parse(arguments):
        try:
            module.main(arguments)
        except SystemExit as left:
            if left.code:
                raise

    return parse


#: What pages run beside `vcrt` and `make`.
SHELL = {
    "pip",
    ".",
    ".ci/run",
    "hf",
    "openssl",
    "mkdir",
    "cd",
    "cp",
    "mv",
    "sed",
    "echo",
    "export",
    "jq",
    "pytest",
    "npm",
}


def documented_commands():
    return sorted({line for text in ALL_TEXTS.values() for line in commands(text)})


def test_commands_are_commands(parsed, capsys):
    found = documented_commands()
    assert len(found) > 30
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in found:
        program, *arguments = shlex.split(line)
        if program == "torchrun":
            program, *arguments = arguments[arguments.index("-m") + 1 :]
        if program == "vcrt":
            parsed(arguments)
        elif program == "make":
            assert set(arguments) <= targets, line
        else:
            assert program in SHELL, line
    capsys.readouterr()


def test_a_wrong_option_is_found(parsed, capsys):
    with pytest.raises(SystemExit):
        parsed(["plan", "runs/data", "--outputs", "x"])
    capsys.readouterr()


def test_the_python_of_the_first_page_prints_what_it_says(capsys):
    example, _ = blocks(TEXTS["start.md"], "python")
    (printed,) = blocks(TEXTS["start.md"], "text")
    exec(compile(example, "start.md", "exec"), {})
    assert capsys.readouterr().out == printed


def test_other_python_imports_what_exists():
    pieces = [(page, block) for page, text in TEXTS.items() for block in blocks(text, "py")]
    assert pieces
    for page, block in pieces:
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "vcrt":
                assert node.attr in vcrt.__all__, f"{page}: vcrt.{node.attr}"
            if isinstance(node, ast.ImportFrom) and node.module.startswith("vcrt"):
                for alias in node.names:
                    assert exists(f"{node.module}.{alias.name}"), f"{page}: {alias.name}"


def test_the_readme_is_short_and_leads_to_every_way_in():
    readme = ALL_TEXTS["../README.md"]
    assert len(readme.encode()) <= 6 * 1024
    assert {
        "docs/start.md",
        "docs/tools.md",
        "docs/training.md",
        "docs/proofs.md",
        "docs/trl.md",
    } <= set(prose_links(readme))
    assert set(linked_from_the_readme()) >= {
        "start.md",
        "train.md",
        "trl.md",
        "certify.md",
        "mathematics.md",
    }


def not_rendered(text):
    """What a code host shows as it is written: directives, roles, labels of formulas, prompts to be copied."""
    known = ("bash", "python", "py", "toml", "json", "lean", "text", "math")
    found = [block.language for block in all_blocks(text) if block.language not in known]
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    found += re.findall(r"^:{3,}.*|\{[a-z:-]+\}`|^\$\$.*|^% .*|^\(\w+\)=", prose, re.MULTILINE)
    for formula in re.findall(r"(?<![\\$`])\$[^$`\n]+\$", re.sub(r"`[^`]*`", "", prose)):
        # Markdown takes a backslash before a sign for its own.
        found += re.findall(r"\\[^\w\s]", formula)
    for language in ("bash", "python"):
        for block in blocks(text, language):
            found += re.findall(r"^(?:\$|>>>|\.\.\.) .*", block, re.MULTILINE)
    return found


@pytest.mark.parametrize("page", linked_from_the_readme())
def test_a_code_host_renders_what_the_readme_links(page):
    assert not not_rendered(ALL_TEXTS[page])


@pytest.mark.parametrize(
    "text",
    [
        "```console\n$ vcrt\n```\n",
        "```{code-block} python\n```\n",
        "```bash\n$ vcrt\n```\n",
        "```python\n>>> 1\n```\n",
        ":::{note}\n",
        "see {py:func}`vcrt_train.plan`",
        "$$\nx\n$$ (label)\n",
        "a set $\\{x\\}$",
    ],
)
def test_what_a_code_host_does_not_render_is_found(text):
    assert not_rendered(text)


def headings(text):
    """The anchors that a code host gives to the headings of a page."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", ALL_TEXTS)
def test_links_to_headings_lead_to_one(page):
    for link in prose_links(ALL_TEXTS[page]):
        path, mark, anchor = link.partition("#")
        other = os.path.relpath((DOCS / page).parent / path, DOCS) if path else page
        if mark and other in ALL_TEXTS:
            assert anchor in headings(ALL_TEXTS[other]), link


def test_the_settings_beside_trl_s_are_those_of_the_class():
    (given,) = (
        node
        for node in ast.parse(
            (ROOT / "train/src/vcrt_train/integrations/trl/orbit_grpo_config.py").read_text()
        ).body
        if isinstance(node, ast.ClassDef) and node.name == "OrbitGRPOConfig"
    )
    defaults = {
        node.target.id: str(ast.literal_eval(node.value.keywords[0].value))
        for node in given.body
        if isinstance(node, ast.AnnAssign)
    }
    rows = re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", TEXTS["trl.md"], re.MULTILINE)
    assert dict(rows) == defaults


def test_the_tables_of_the_protocol_are_complete():
    assert first_cells(TEXTS["protocol.md"], "exclusion") == list(get_args(ExclusionKind))
    assert first_cells(TEXTS["protocol.md"], "method") == list(METHODS)


def test_the_values_that_the_paper_does_not_print_are_the_defaults():
    config = ObjectiveConfig()
    said = rf"clip {config.clip:g}, $\alpha$ {config.alpha:g}, margin {config.margin:g} nats, $\mu$ {config.mu:g}"
    assert said in ALL_TEXTS["../research/decisions.md"]
    caps = (config.commutation_cap, config.retention_cap, config.action_kl_cap)
    said = "Caps are {} (commutation), {} (retention) and {:.2f} (KL)".format(*caps)
    assert said in TEXTS["mathematics.md"]


def test_where_ratios_are_cut_is_said_where_they_are_defined():
    said = f"vcrt_train.objective.losses.MAX_LOG_RATIO` = {MAX_LOG_RATIO:g} is cut"
    ratios = TEXTS["mathematics.md"].partition(r"\rho_i^{\mathcal{O}}(\theta) =")[2]
    ratios = ratios.partition(r"\mathcal{L}_{\mathrm{orbit}} =")[0]
    assert said in ratios.replace("\n", " ")
    exponent = int(math.log10(math.exp(MAX_LOG_RATIO)))
    assert rf"${math.exp(MAX_LOG_RATIO) / 10**exponent:.0f} \cdot 10^{exponent}$" in ratios
    assert f"cut at a log-ratio of {MAX_LOG_RATIO:g}" in ALL_TEXTS["../research/decisions.md"]


def test_how_the_scale_of_adapters_is_read_is_said():
    for name in settings_names():
        paper = load_config(settings=name).resolved().adapter
        said = (
            f"scale of {paper.alpha:g}** is read as `lora_alpha`: at rank {paper.rank} "
            f"an adapter's product is multiplied by {paper.alpha:g} / {paper.rank} = {paper.scale:g}"
        )
        assert said in ALL_TEXTS["../research/decisions.md"].replace("\n", " ")


def test_where_code_and_paper_differ_is_not_called_silence():
    """That one update makes one dual step is tested in test_training_update; this is what the pages say of it."""
    silent, _, differ = ALL_TEXTS["../research/decisions.md"].partition("## Where we differ")
    assert "Duals move once an update" in differ
    assert "one dual step" not in silent
    assert "where the paper has one in each epoch" in TEXTS["mathematics.md"]


def test_the_pictures_are_as_drawn(monkeypatch):
    pictures = {}
    monkeypatch.syspath_prepend(str(DOCS / "figures"))
    for script in ("draw", "plots"):
        made = import_module(script).PICTURES
        pictures |= {name: (script, make) for name, make in made.items()}
    drawn = {path.stem for path in DOCS.glob("figures/*.svg")}
    # Those of the gallery are replayed: tests/project/test_gallery.py.
    assert {name for name in drawn if not name.startswith("gallery-")} == pictures.keys()
    for name, (script, make) in pictures.items():
        assert text_of(f"figures/{name}.svg") == make(), f"python docs/figures/{script}.py ({name})"


def test_the_reference_for_code_hosts_is_what_the_code_says(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS / "api"))
    made = import_module("reference").reference()
    assert (DOCS / "api" / "reference.md").read_text(encoding="utf-8") == made, (
        "python docs/api/reference.py"
    )
    assert made.count("\n### ") == text_of("api/vcrt.md").count("autofunction")
    assert not re.search(r"(?<!`)``(?!`)|:\w+:`|object at", made)


@pytest.mark.parametrize("page", ALL_TEXTS)
def test_nothing_of_one_machine(page):
    assert not re.search(r"/(work|tmp|home|root|Users)/", ALL_TEXTS[page])
