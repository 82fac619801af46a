"""How the documentation is built: ``make docs``, or ``sphinx-build -W --keep-going -n docs build/docs``.

The site asks for nothing from a network: no web fonts, no scripts from elsewhere, formulas as MathML.
"""

import os
import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

from sphinx.ext.napoleon import GoogleDocstring  # noqa: E402

import vcrt  # noqa: E402 - after the path of the extensions

project = "vcrt"
author = "the vcrt authors"
version = release = vcrt.__version__
copyright = "the vcrt authors, Apache-2.0"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "importable_references",
    "inline_figures",
    "mathml",
]
exclude_patterns = ["_ext", "_static", "figures", "api/reference.md"]
nitpicky = True
# What pydantic makes of a field's pattern and default, names of types that are tuples and arrays, classes that are
# imported where they are used alone, annotated types, and those that hold JSON.
nitpick_ignore = [
    ("py:class", name)
    for name in (
        *("_PydanticGeneralMetadata", "FieldInfo", "NoneType", "Order", "BoolArray"),
        *("Qwen3Config", "Qwen3ForCausalLM", "types.Annotated"),
        *("Sequence[Json]", "Mapping[str, Json]"),
        *("FetchSource", "ExplorerContents"),
    )
]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
# As a code host writes them.
myst_fence_as_directive = ["math"]
myst_heading_anchors = 3
myst_links_external_new_tab = False

# Notebooks run at every build, in the Python that builds; an error in one fails the build.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_execution_show_tb = True
nb_merge_streams = True
# What a library complains of would show where it is installed.
nb_output_stderr = "warn"
os.environ.setdefault("PYTHONWARNINGS", "ignore:IProgress not found")
nb_kernel_rgx_aliases = {".*": "python3"}
nb_ipywidgets_js: dict[str, dict[str, str]] = {}
os.environ.setdefault("NO_COLOR", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Sections such as "Args:" stand in functions and classes alone: in what is said of a value, a colon is no section.
napoleon_google_docstring = napoleon_numpy_docstring = False


#: A link of a page to a page of the repository that is none of the documentation.
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./([\w./-]+\.md)(?:#[\w-]+)?\)")


def _named(app, docname, source):
    """Name a page that the site does not have, where a code host shows the link; the site has its own reference."""
    if "/" not in docname:
        source[0] = _OUTSIDE.sub(r"\1 (`\2`)", source[0]).replace(
            "(api/reference.md)", "(api/vcrt.md)"
        )


def _sections(app, what, name, obj, options, lines):
    if what in ("class", "exception", "function", "method"):
        lines[:] = GoogleDocstring(lines, app.config, app, what, name, obj, options).lines()


def setup(app):
    """Read the sections of docstrings, and links that lead out of the pages."""
    app.connect("autodoc-process-docstring", _sections)
    app.connect("source-read", _named)


autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
add_module_names = False
toc_object_entries_show_parents = "hide"

html_math_renderer = "mathml"
html_theme = "furo"
html_title = "vcrt"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"
html_theme_options = {
    "light_css_variables": {
        "font-stack": "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif",
        "font-stack--monospace": "ui-monospace, 'SFMono-Regular', Menlo, 'DejaVu Sans Mono', monospace",
    },
}
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True
copybutton_remove_prompts = True
