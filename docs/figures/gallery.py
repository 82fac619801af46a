"""Write docs/gallery.md: a certified episode of each environment, its picture, what the verifier says of its orders.

    python docs/figures/gallery.py               # every environment that this machine can run; the others stay
    python docs/figures/gallery.py clrs --check  # fail if something else stands there

What a step is and what is not covered are an environment's own docstring; episodes are replayed now.
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path
from textwrap import fill

from draw import HERE, arrow, box, picture, text

import vcrt
from vcrt.calls.schedules import Schedule
from vcrt.certificates.episodes import CertifiedEpisode
from vcrt.environments.contract import Environment
from vcrt.environments.registry import load_environment

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
#: Characters of a line of the page.
WIDTH = 118
INTRODUCTION = """# Gallery

Each picture is a certified episode of an environment that comes with `vcrt`. A number is a step. A step at the head
of an arrow must come later than the step at its tail. Steps without a path between them may come in any order. At a
grey arrow, the verifier refuses the reversal. At a red one, the reversal ends in another state, or changes an output.

`vcrt show EPISODE` prints the steps, the relations and all orders of an episode. `vcrt environments` lists all
schemas. [Your own environment](your-environment.md) takes fifteen minutes.

"""


def docstring_of(environment: Environment) -> tuple[str, str]:
    """What an environment judges, and what it does not cover, in its module's own words."""
    module = inspect.getmodule(type(environment))
    words = " ".join((inspect.getdoc(module) or "").split())
    words = re.sub(r":\w+:`[~.]?(?:[\w.]+\.)?(\w+)`", r"`\1`", words).replace("``", "`")
    what, _, rest = words.partition(". ")
    left = re.search(r"Not covered: (.*?)\.(?: |$)", f"{rest} ")
    assert left is not None, f"{module}: no sentence 'Not covered: ...'"
    return what.removeprefix("Judge "), f"{left[1]}."


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


def in_code(words: str) -> str:
    """Words that may have backticks, as code."""
    return f"`` {words} ``" if "`" in words else f"`{words}`"


def outcome(certified: CertifiedEpisode) -> str:
    """What becomes of all orders of an episode, with the most frequent refusal in the verifier's own words."""
    legal = [replay for replay in certified.replays if replay.sequence in certified.orbit]
    refusals = Counter(one.rejection.reason for one in certified.replays if one.rejection)
    states = {replay.terminal_hash for replay in legal}
    others = [one.terminal_hash for one in certified.replays if not one.rejection]
    elsewhere = sum(state not in states for state in others)
    same = len(others) - elsewhere - len(legal)
    told = list[str]()
    if refusals:
        ((reason, _),) = refusals.most_common(1)
        told.append(f"the verifier refuses {refusals.total()} ({in_code(reason)})")
    if elsewhere:
        told.append(f"{elsewhere} end in another state")
    if same:
        told.append(f"{same} end in the same state with other outputs")
    words = ", and ".join(told)
    return (
        f"{len(legal)} of {len(certified.replays)} orders are legal. {words[0].upper()}{words[1:]}."
    )


def section(name: str) -> tuple[str, str]:
    """The section of one environment, and its picture."""
    title, episode = EPISODES[name]
    environment = load_environment(name)
    what, left = docstring_of(environment)
    _, schema, seed = episode.split("/")
    preset = environment.schema(schema).preset
    certified = vcrt.certify_episode(name, environment.sample(schema, int(seed)), preset=preset)
    assert isinstance(certified, CertifiedEpisode), certified
    (found,) = vcrt.schedule(episode)
    assert found.schedule is not None, found.problem
    waves = " then ".join(
        " and ".join(str(step) for step in sorted(wave)) for wave in found.schedule.waves
    )
    words = [
        f"## {title}",
        f"![Order in {episode}: {waves}.](figures/gallery-{name}.svg)",
        fill(f"`{name}` judges {what}. In `{episode}`, {outcome(certified)}", WIDTH),
        fill(f"It does not cover {left}", WIDTH),
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
