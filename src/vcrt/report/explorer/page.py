"""The explorer's page: the gathered contents as JSON, a script and a style of our own, and no address of any network.

The Content-Security-Policy names the digests of the one script and the one style, and allows nothing else, so that even
a text that got out of its place could do nothing. Equal contents give equal bytes.
"""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from vcrt.hashing import Json
from vcrt.limits import MAX_DRAWN
from vcrt.orders import all_orders
from vcrt.report.certificate_words import order_text
from vcrt.report.explorer.contents import ExplorerContents
from vcrt.report.explorer.embedding import embedded
from vcrt.report.explorer.geometry import Point, faces, swaps
from vcrt.report.explorer.masses import Mass, RunMasses
from vcrt.report.wording import counted, label

#: Where the page's parts lie. The scripts are put together in this order.
ASSETS = "vcrt.report.explorer.assets"
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
#: Probabilities are written as whole millionths.
MILLION = 1_000_000


def render_explorer(contents: ExplorerContents) -> str:
    """The HTML of the page."""
    script = '(() => {\n"use strict";\n' + "\n".join(map(_asset, SCRIPTS)) + "})();\n"
    style = _asset("explorer.css")
    template = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    ).from_string(_asset("explorer.html.jinja"))
    return template.render(
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
        is_drawn=_is_drawn(contents),
    )


def page_json(contents: ExplorerContents) -> dict[str, Json]:
    """What the page's script is given."""
    n = contents.num_operations if _is_drawn(contents) else None
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
            for name, drawn in sorted(contents.drawings.items())
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
            {**episode, "runs": _said_of(name, contents.runs)}
            for name, episode in zip(contents.names, contents.episodes, strict=True)
        ],
    }


def _is_drawn(contents: ExplorerContents) -> bool:
    return contents.num_operations is not None and contents.num_operations <= MAX_DRAWN


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


def _said_of(name: str, runs: tuple[RunMasses, ...]) -> list[Json]:
    """By run: what the episode is to it, and what it says after each update."""
    return [
        {"role": run.roles[name], "masses": [_mass(mass) for mass in run.masses.get(name, ())]}
        for run in runs
    ]


def _mass(mass: Mass) -> dict[str, Json]:
    return {
        "p": [round(MILLION * p) for p in mass.probabilities],
        "z": round(MILLION * mass.legal),
        "lost": round(MILLION * mass.malformed),
        "greedy": mass.greedy,
        "answer": None if mass.answer is None else order_text(mass.answer),
        "passes": mass.passes,
        "error": None if mass.standard_error is None else round(MILLION * mass.standard_error),
    }


def _point(point: Point) -> list[Json]:
    return [round(x, 4) + 0.0 for x in point]


def _subtitle(contents: ExplorerContents) -> str:
    shown = len(contents.episodes)
    total = contents.num_in_dataset
    of = (
        f"all {total:,} episodes" if shown == total else f"{shown:,} of {counted(total, 'episode')}"
    )
    if len(contents.lengths) > 1:
        return f"{of} of the dataset, {contents.lengths[0]} to {contents.lengths[-1]} steps each"
    return f"{of} of the dataset, {counted(contents.lengths[0], 'step')} each"


def _asset(name: str) -> str:
    return files(ASSETS).joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode('utf-8')).digest()).decode('ascii')}'"
