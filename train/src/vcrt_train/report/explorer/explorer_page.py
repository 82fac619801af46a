"""Render and write the explorer's page: contents as JSON, one script and one style, and no external address.

The Content-Security-Policy allows only the script and the style with the stated digests, so that a text could do
nothing even if it were not escaped. Equal contents give equal bytes.
"""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from markupsafe import Markup

from vcrt.errors import VcrtError
from vcrt.hashing import Json
from vcrt.orders import all_orders, order_columns
from vcrt.printable import counted
from vcrt.records.dataset import Dataset
from vcrt.storage import make_directory, write_file
from vcrt.words.certificate_words import order_text
from vcrt_train.report.explorer.episodes import drawing_name, embedded
from vcrt_train.report.explorer.explorer_contents import ExplorerContents
from vcrt_train.report.explorer.geometry import Point, drawn_steps, faces, swaps
from vcrt_train.report.explorer.masses import Mass, RunMasses
from vcrt_train.report.table import template
from vcrt_train.report.wording import counted_range, label

EXPLORER_FILE = "explorer.html"
#: The first bytes of every explorer's page, by which an earlier page is recognised.
_BEGINS = b"<!doctype html>\n<!-- made by `vcrt explore` -->\n"
#: The scripts, in the order in which they are joined.
SCRIPTS = (
    "elements.js",
    "state.js",
    "steps.js",
    "relations.js",
    "solid.js",
    "partial_order.js",
    "training.js",
    "main.js",
)
_PACKAGE = "vcrt_train.report.explorer"
#: Probabilities are written as whole millionths.
MILLION = 1_000_000


def require_place(path: Path, dataset: Dataset) -> None:
    """Raise :class:`VcrtError` if ``path`` holds anything but an explorer, or if it is in the dataset's folder."""
    found = None
    if path.is_dir():
        found = "a folder"
    elif path.exists() and not (path.is_file() and _begins(path) == _BEGINS):
        found = "a file that is no explorer"
    if found is not None:
        raise VcrtError(
            "something else is where the page is to be written",
            where=str(path),
            found=found,
            expected="nothing, or an earlier explorer",
            remedy="give another place with --output",
        )
    if path.resolve().is_relative_to(dataset.path.resolve()):
        raise VcrtError(
            "a dataset's folder holds the dataset alone",
            where=str(path),
            expected="a place outside of it",
            remedy=f"for example: --output {dataset.path.with_name(EXPLORER_FILE)}",
        )


def _begins(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(len(_BEGINS))


def write_explorer(contents: ExplorerContents, path: Path) -> None:
    """Write the page, which is under 5 MB; replace an earlier one."""
    page = render_explorer(contents).encode("utf-8")
    make_directory(path.parent)
    write_file(path, page)


def render_explorer(contents: ExplorerContents) -> str:
    """Render the HTML of the page."""
    script = '(() => {\n"use strict";\n' + "\n".join(map(_asset, SCRIPTS)) + "})();\n"
    style = _asset("explorer.css")
    return template(_PACKAGE, "assets/explorer.html.jinja").render(
        policy=f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; "
        "base-uri 'none'; form-action 'none'",
        script=Markup(script),
        style=Markup(style),
        data=Markup(embedded(page_json(contents))),
        subtitle=_subtitle(contents),
        notes=contents.notes,
        report=contents.report,
        root_hash=contents.root_hash,
        has_runs=bool(contents.runs),
        is_drawn=drawn_steps(contents.num_operations) is not None,
    )


def page_json(contents: ExplorerContents) -> dict[str, Json]:
    """Return the data for the page's script."""
    n = drawn_steps(contents.num_operations)
    drawings = {drawing_name(one.required): one.drawing for one in contents.episodes}
    return {
        "n": contents.num_operations,
        "orders": [] if n is None else [order_text(order) for order in all_orders(n)],
        "swaps": [] if n is None else [list(swap) for swap in swaps(n)],
        "faces": [] if n is None else [list(face) for face in faces(n)],
        "drawings": {
            name: {
                "turns": drawn.turns,
                "points": [_point(point) for point in drawn.points],
                "apart": [_point(point) for point in drawn.apart],
            }
            for name, drawn in sorted(drawings.items())
            if drawn is not None
        },
        "schemas": [
            {
                "environment": environment,
                "environmentLabel": label(environment),
                "schema": schema,
                "shown": shown,
                "total": total,
            }
            for (environment, schema), (shown, total) in contents.schemas.items()
        ],
        "runs": [_run(run) for run in contents.runs],
        "episodes": [
            {**one.shown, "runs": [_said_of(one.name, run) for run in contents.runs]}
            for one in contents.episodes
        ],
    }


def _run(scored: RunMasses) -> dict[str, Json]:
    run = scored.run
    return {
        "name": run.name,
        "method": label(run.method),
        "methodName": run.method,
        "heldOut": run.held_out,
        "heldOutLabel": label(run.held_out),
        "seed": run.seed,
        "updates": list(scored.updates),
    }


def _said_of(name: str, scored: RunMasses) -> dict[str, Json]:
    """Return an episode's role in a run, and the run's probabilities after each update."""
    masses = [_mass(mass) for mass in scored.masses.get(name, ())]
    return {"role": scored.roles[name], "masses": masses}


def _mass(mass: Mass) -> dict[str, Json]:
    return {
        "p": [round(MILLION * p) for p in mass.probabilities],
        "z": round(MILLION * mass.legal),
        "lost": round(MILLION * mass.malformed),
        "greedy": None
        if mass.answer is None or not mass.probabilities
        else order_columns(len(mass.answer))[mass.answer],
        "answer": None if mass.answer is None else order_text(mass.answer),
        "passes": mass.passes,
        "error": None if mass.standard_error is None else round(MILLION * mass.standard_error),
    }


def _point(point: Point) -> list[Json]:
    return [round(x, 4) + 0.0 for x in point]


def _subtitle(contents: ExplorerContents) -> str:
    shown, total = len(contents.episodes), contents.num_in_dataset
    every = "the only episode" if total == 1 else f"all {total:,} episodes"
    of = every if shown == total else f"{shown:,} of {counted(total, 'episode')}"
    return f"{of} of the dataset, {counted_range(contents.lengths, 'step')} each"


def _asset(name: str) -> str:
    return files(_PACKAGE).joinpath("assets", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode('utf-8')).digest()).decode('ascii')}'"
