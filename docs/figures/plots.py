"""Draw the plots of measured results: ``python docs/figures/plots.py`` writes the SVG files beside it.

Numbers come from ``research/benchmarks/results``; colours, as in the other pictures, from variables that the site
sets by theme.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import mean
from typing import Any

from draw import HERE, picture, text

RESULTS = HERE.parents[1] / "research" / "benchmarks" / "results"
Point = tuple[float, float]
#: Colour and dashes of each line of a plot, in turn.
LOOKS = (
    ("good", ""),
    ("bad", ""),
    ("quiet", ""),
    ("good", "7 5"),
    ("bad", "7 5"),
    ("quiet", "7 5"),
)
WIDTH, HEIGHT = 520, 330
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 34, 46


@dataclass(frozen=True, kw_only=True)
class Line:
    """Points of one line with its name; ``spread`` has the lowest and highest value at each, if there is one."""

    name: str
    points: Sequence[Point]
    spread: Sequence[Point] = ()


def plot(
    name: str,
    lines: Sequence[Line],
    *,
    title: str,
    across: str,
    up: str,
    logs: str = "",
    ticks: tuple[Sequence[float], Sequence[float]],
) -> str:
    """A chart of lines; ``logs`` holds x, y or both, ``ticks`` the marked values of each axis, ends included."""
    xs, ys = ticks
    to_x = _scale(xs, LEFT, WIDTH - RIGHT, "x" in logs)
    to_y = _scale(ys, HEIGHT - BOTTOM, TOP, "y" in logs)
    parts = [text((LEFT, 14), title, size=14, anchor="start", bold=True)]
    for value in ys:
        y = to_y(value)
        parts.append(_path([(LEFT, y), (WIDTH - RIGHT, y)], "line", width=1))
        parts.append(text((LEFT - 8, y), _number(value), "quiet", 12, "end"))
    for value in xs:
        parts.append(text((to_x(value), HEIGHT - BOTTOM + 16), _number(value), "quiet", 12))
    parts.append(text(((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10), across, "quiet", 13))
    parts.append(
        f'<g transform="rotate(-90 14 {(TOP + HEIGHT - BOTTOM) / 2:g})">'
        f"{text((14, (TOP + HEIGHT - BOTTOM) / 2), up, 'quiet', 13)}</g>"
    )
    for line, (colour, dashes) in zip(lines, LOOKS, strict=False):
        placed = [(to_x(x), to_y(min(max(y, ys[0]), ys[-1]))) for x, y in line.points]
        if line.spread:
            low, high = (
                [
                    (to_x(x), to_y(min(max(s[k], ys[0]), ys[-1])))
                    for (x, _), s in zip(line.points, line.spread, strict=True)
                ]
                for k in (0, 1)
            )
            corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*low, *reversed(high)])
            parts.append(f'<polygon points="{corners}" style="fill:var(--{colour});opacity:0.13"/>')
        parts.append(_path(placed, colour, dashes=dashes))
        if len(placed) < 10:
            parts += [
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2" style="fill:var(--{colour})"/>'
                for x, y in placed
            ]
    parts += _legend(lines)
    return picture(name, WIDTH, HEIGHT + 20 * math.ceil(len(lines) / 3), parts)


def _legend(lines: Sequence[Line]) -> list[str]:
    parts = []
    for number, (line, (colour, dashes)) in enumerate(zip(lines, LOOKS, strict=False)):
        x, y = 8 + 172 * (number % 3), HEIGHT + 8 + 20 * (number // 3)
        parts.append(_path([(x, y), (x + 24, y)], colour, dashes=dashes))
        parts.append(text((x + 30, y), line.name, "ink", 12, "start"))
    return parts


def _scale(
    ticks: Sequence[float], start: float, end: float, is_log: bool
) -> Callable[[float], float]:
    of = math.log if is_log else float
    low, high = of(ticks[0]), of(ticks[-1])
    return lambda value: start + (end - start) * (of(value) - low) / (high - low)


def _path(points: Sequence[Point], colour: str, *, width: float = 2.2, dashes: str = "") -> str:
    at = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dash = f";stroke-dasharray:{dashes}" if dashes else ""
    return f'<polyline points="{at}" style="fill:none;stroke:var(--{colour});stroke-width:{width:g}{dash}"/>'


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10_000 else f"{value:g}"


def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def _cells(scheme: str, policy: str, operations: int, pairs: int) -> list[dict[str, Any]]:
    wanted = {"scheme": scheme, "policy": policy, "operations": operations, "pairs": pairs}
    return [c for c in _read("estimator")["cells"] if wanted.items() <= c.items()]


def _by_policy(value: Callable[[dict[str, Any]], float]) -> list[Line]:
    return [
        Line(
            name=policy if scheme == "systematic" else "independent paths",
            points=[(cell["paths"], value(cell)) for cell in _cells(scheme, policy, 8, 4)],
        )
        for scheme in ("systematic", "independent")
        for policy in ("trained", "half-trained", "untrained")
    ]


def spread_of_the_mass() -> str:
    """The relative standard deviation of the estimated mass against the number of paths."""
    return plot(
        "estimator-spread",
        _by_policy(lambda cell: cell["relative_standard_deviation"]),
        title="Relative standard deviation of the mass, n = 8",
        across="paths",
        up="standard deviation / mass",
        logs="xy",
        ticks=((2, 4, 8, 16, 32), (0.001, 0.01, 0.1, 1, 3)),
    )


def bias_of_the_gradient() -> str:
    """The relative bias of the gradient of the log-mass against the number of paths."""
    return plot(
        "estimator-gradient",
        _by_policy(lambda cell: cell["gradient_of_log"]["relative_bias"]),
        title="Bias of the gradient of the log-mass, n = 8",
        across="paths",
        up="norm of bias / norm",
        logs="xy",
        ticks=((2, 4, 8, 16, 32), (0.001, 0.01, 0.1, 1, 3)),
    )


def training() -> str:
    """The mass of legal orders on held-back records, exact and estimated training."""
    result = _read("estimated_training")
    lines = []
    for way in ("exact", "8 paths", "32 paths"):
        curves = [run["curve"] for run in result["runs"] if run["way"] == way]
        columns = list(zip(*curves, strict=True))
        masses = [[point["orbit_mass"] for point in column] for column in columns]
        lines.append(
            Line(
                name=way,
                points=[
                    (column[0]["update"], mean(some))
                    for column, some in zip(columns, masses, strict=True)
                ],
                spread=[(min(some), max(some)) for some in masses],
            )
        )
    last = result["settings"]["updates"]
    return plot(
        "estimated-training",
        lines,
        title=f"Held-back records of six operations, {result['settings']['seeds']} seeds",
        across="updates",
        up="mass of legal orders",
        ticks=([last * k / 4 for k in range(5)], (0, 0.25, 0.5, 0.75, 1)),
    )


def cost() -> str:
    """Processor time of an update against the number of operations."""
    result = _read("update_cost")
    ways = list(dict.fromkeys(cell["way"] for cell in result["cells"]))
    lines = [
        Line(
            name=way,
            points=[
                (cell["operations"], cell["median_seconds"])
                for cell in result["cells"]
                if cell["way"] == way
            ],
        )
        for way in ways
    ]
    return plot(
        "update-cost",
        lines,
        title="Processor time of one update",
        across="operations",
        up="seconds",
        logs="y",
        ticks=((4, 6, 8, 10, 12, 14, 16), (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2)),
    )


def _ends(one: dict[str, list[float]]) -> list[float]:
    """The interval over runs and items."""
    return one["runs_and_items"]


def at_length() -> str:
    """Held-out pass rates by the length of the tests, trained on four steps and on the tests' own length."""
    parts = _read("at_length")["parts"]
    ways = {
        "vcrt, its length": ("vcrt", None),
        "GRPO, its length": ("canonical-grpo", None),
        "before training": (None, None),
        "vcrt, trained on 4": ("vcrt", "posets4"),
        "GRPO, trained on 4": ("canonical-grpo", "posets4"),
    }
    lines = []
    for name, (method, suite) in ways.items():
        found = {}
        for part in parts.values():
            own = part["settings"]["suite"]
            for test_set, cells in part["test_sets"].items():
                row = cells["frozen"] if method is None else cells["methods"].get(method)
                if (
                    row is not None
                    and not part["settings"]["planned"]
                    and (method is None or own == (suite or test_set))
                ):
                    found[cells["steps"]] = row["macro"]
        at = sorted(found)
        lines.append(
            Line(
                name=name,
                points=[(n, 100 * found[n]["value"]) for n in at],
                spread=[tuple(100 * end for end in _ends(found[n])) for n in at],
            )
        )
    lengths = sorted({int(x) for line in lines for x, _ in line.points})
    return plot(
        "at-length",
        lines,
        title="Held-out pass rate by steps, intervals over runs and items",
        across="steps of the test items",
        up="pass rate (%)",
        ticks=(lengths, (0, 25, 50, 75, 100)),
    )


def worth() -> str:
    """How probable certified orders became while policies trained on the harder set, by the method."""
    seeds = [
        json.loads(gzip.decompress(path.read_bytes()))
        for path in sorted((RESULTS / "orders" / "hard").glob("seed-*.json.gz"))
    ]
    updates = seeds[0]["config"]["schedule"]["updates"]
    lines = []
    for method, name in {
        "margin-alone": "margin alone",
        "canonical-grpo": "Canonical-GRPO",
        "exact-reward": "exact pass rate",
        "vcrt": "VCRT",
        "orbit-grpo": "Orbit-GRPO",
        "exact-log-odds": "exact log-odds",
    }.items():
        curves = [
            curve["orbit_mass"]
            for seed in seeds
            for run, curve in seed["curves"].items()
            if run.split("/")[0] == method
        ]
        each = updates / len(curves[0])
        lines.append(
            Line(
                name=name,
                points=[
                    (each * (k + 0.5), 100 * mean(some))
                    for k, some in enumerate(zip(*curves, strict=True))
                ],
            )
        )
    return plot(
        "orders",
        lines,
        title=f"Orders of source prompts that pass, mean of {len(seeds)} seeds and three folds",
        across="updates",
        up="probability (%)",
        ticks=([updates * k / 4 for k in range(5)], (0, 25, 50, 75, 100)),
    )


#: How certification replays, by its name in the results.
WAYS = {
    "exhaustive": "every order",
    "merged": "every context",
    "reduced": "sampled contexts",
}
ENVIRONMENTS = {"proofwriter": "ProofWriter", "clrs": "CLRS", "lean": "Lean", "posets": "Synthetic"}


def certification(environment: str, value: str) -> str:
    """Transitions or processor time of certifying one episode against its steps, by the way of replay."""
    rows = [r for r in _read("long_certification")["rows"] if r["environment"] == environment]
    cpu = value == "cpu_seconds"
    steps = (5, 10, 16, 24, 32, 48, 64) if environment == "posets" else (6, 8, 12, 16)
    return plot(
        f"certification-{environment}-{'time' if cpu else 'transitions'}",
        [
            Line(name=name, points=[(r["steps"], r[value]) for r in rows if r["way"] == way])
            for way, name in WAYS.items()
        ],
        title=f"{ENVIRONMENTS[environment]}: {'processor time' if cpu else 'transitions'} of one episode",
        across="steps",
        up="seconds" if cpu else "transitions",
        logs="y",
        ticks=(steps, (0.001, 0.01, 0.1, 1, 10, 100) if cpu else (10, 100, 1000, 10_000, 100_000)),
    )


PICTURES: dict[str, Callable[[], str]] = {
    "estimator-spread": spread_of_the_mass,
    "estimator-gradient": bias_of_the_gradient,
    "estimated-training": training,
    "update-cost": cost,
    "orders": worth,
    **{
        f"certification-{environment}-{name}": partial(certification, environment, value)
        for environment in ENVIRONMENTS
        for name, value in (("transitions", "transitions"), ("time", "cpu_seconds"))
    },
}
if (RESULTS / "at_length.json").exists():
    PICTURES["at-length"] = at_length


if __name__ == "__main__":
    for name, made in PICTURES.items():
        (HERE / f"{name}.svg").write_text(made(), encoding="utf-8")
