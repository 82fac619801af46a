"""Write docs/gallery.md: a certified episode of each environment, its picture, what the verifier says of reversals.

    python docs/figures/gallery.py               # every environment that this machine can run; the others stay
    python docs/figures/gallery.py clrs --check  # fail if something else stands there

What a step is and what is not covered are an environment's own docstring; schemas are its own list; episodes are
replayed now. Speeds are those of ``research/benchmarks/results``.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path

from draw import HERE, arrow, box, picture, text

import vcrt
from vcrt.calls.schedules import Schedule
from vcrt.environments.contract import Environment
from vcrt.environments.registry import load_environment

ROOT = HERE.parents[1]
PAGE = HERE.parent / "gallery.md"
#: The episode of each environment, and its title.
EPISODES = {
    "clrs": ("Algorithms (CLRS)", "clrs/bellman_ford_poset/7"),
    "lean": ("Lean 4", "lean/have_poset/2"),
    "proofwriter": ("Deduction (ProofWriter)", "proofwriter/ground_poset/3"),
    "rocq": ("Rocq", "rocq/assert_poset/1"),
    "django": ("Migrations (Django)", "django/backfills/1"),
    "bfcl": ("Tool calls (BFCL)", "bfcl/posts/5"),
    "agentdojo": ("Tool calls (AgentDojo)", "agentdojo/calendar/2"),
}
_ORDERS = "median_exhaustive_orders_per_cpu_second"
_PAPER, _OTHERS, _CALLS = ("clrs", "lean", "proofwriter"), ("rocq", "django"), ("bfcl", "agentdojo")
#: Where the speed of an environment was measured, the keys to it, and what it counts.
SPEEDS = {
    **{name: ("certify.json", (_ORDERS, name), "orders of four steps") for name in _PAPER},
    **{name: (f"certify_{name}.json", (_ORDERS, name), "orders of four steps") for name in _OTHERS},
    **{name: ("tool_calls.json", (name, "calls_per_second"), "calls") for name in _CALLS},
}
INTRODUCTION = """# Gallery

One certified episode of each environment that comes along: what `vcrt show` prints of it, with the refusals in the
verifier's own words. Arrows are what replay found: a step at the arrow's end must come later. Steps without a way
between them may come in any order. Grey: the other way round is refused; red: it ends in another state, or a step gives
another output. [Yours](your-environment.md) is some twenty lines.

"""


def docstring_of(environment: Environment) -> tuple[str, str]:
    """What an environment judges, and what it does not cover, in its module's own words."""
    module = inspect.getmodule(type(environment))
    words = " ".join((inspect.getdoc(module) or "").split())
    words = re.sub(r":\w+:`[~.]?(?:[\w.]+\.)?(\w+)`", r"`\1`", words).replace("``", "`")
    what, _, rest = words.partition(". ")
    left = re.search(r"Not covered: (.*?)\.(?: |$)", f"{rest} ")
    assert left is not None, f"{module}: no sentence 'Not covered: ...'"
    return f"{what}.".replace("Judge ", "It judges ", 1), f"{left[1]}."


def drawn(name: str, schedule: Schedule) -> str:
    """The steps of a schedule by their waves, with an arrow for each edge that does not follow from others."""
    gap, wide = 110.0, 44.0
    at = {}
    for column, wave in enumerate(schedule.waves):
        for row, step in enumerate(wave):
            at[step] = (40 + gap * column, 32 + 56 * (row + (0.5 if column % 2 else 0.0)))
    height = round(max(y for _, y in at.values()) + 32)
    parts = []
    for edge in schedule.direct:
        (x, y), (u, v) = at[edge.first], at[edge.second]
        colour = "quiet" if edge.kind == "precedes" else "bad"
        parts.append(arrow(name, (x + wide / 2, y), (u - wide / 2 - 2, v), colour))
    for step, place in at.items():
        parts += [box(place, (wide, 34)), text(place, str(step))]
    width = round(80 + gap * (len(schedule.waves) - 1))
    return picture(name, max(width, 520), height, parts)


def printed(episode: str) -> str:
    """What ``vcrt show`` prints of an episode."""
    run = subprocess.run(
        [sys.executable, "-m", "vcrt", "show", episode, "--brief"],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.rstrip() for line in run.stdout.rstrip().splitlines()]
    return "\n".join(line for line in lines if not line.startswith("--full")).rstrip()


def speed(name: str) -> str:
    """What a core does in a second, and where that was measured."""
    file, keys, unit = SPEEDS[name]
    value = json.loads((ROOT / "research" / "benchmarks" / "results" / file).read_text())
    for key in keys:
        value = value[key]
    return f"{value:,.0f} {unit} a second and core (`research/benchmarks/results/{file}`)"


def section(name: str) -> tuple[str, str]:
    """The section of one environment, and its picture."""
    title, episode = EPISODES[name]
    environment = load_environment(name)
    what, left = docstring_of(environment)
    (found,) = vcrt.schedule(episode)
    assert found.schedule is not None, found.problem
    schemas = ", ".join(f"`{schema.name}`" for schema in environment.schemas)
    waves = " then ".join(
        " and ".join(str(step) for step in sorted(wave)) for wave in found.schedule.waves
    )
    words = [
        f"## {title}",
        f"Environment `{name}`. {what}",
        f"Schemas: {schemas}.",
        f"![The steps of {episode} and what must come before what: {waves}.](figures/gallery-{name}.svg)",
        f"```text\n{printed(episode)}\n```",
        f"**Speed:** {speed(name)}.",
        f"**Not covered:** {left}",
    ]
    return "\n\n".join(words) + "\n", drawn(f"gallery-{name}", found.schedule)


def standing() -> dict[str, str]:
    """The sections that the page has, by environment."""
    if not PAGE.exists():
        return {}
    parts = re.split(r"<!-- (\w+) -->\n", PAGE.read_text(encoding="utf-8"))
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def page(sections: dict[str, str]) -> str:
    """The whole page."""
    told = [f"<!-- {name} -->\n{sections[name]}" for name in EPISODES if name in sections]
    return escape(INTRODUCTION, quote=False) + "".join(told)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the sections, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("environments", nargs="*", default=list(EPISODES))
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(arguments)
    sections = standing()
    for name in options.environments:
        words, drawing = section(name)
        path = HERE / f"gallery-{name}.svg"
        if options.check:
            if (sections.get(name, "").strip(), path.read_text()) != (words.strip(), drawing):
                raise SystemExit(
                    f"{name}: something else stands there; python {Path(__file__).name}"
                )
            continue
        path.write_text(drawing, encoding="utf-8")
        sections[name] = words + "\n"
        PAGE.write_text(page(sections).rstrip() + "\n", encoding="utf-8")
        print(name)


if __name__ == "__main__":
    main()
