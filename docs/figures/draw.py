"""Draw the pictures of the documentation: ``python docs/figures/draw.py`` writes the SVG files beside it.

Each picture takes its colours from variables, which the site sets by theme; opened by itself it follows the system's.
Narrow enough for a phone: 520 units wide at most.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations
from pathlib import Path

HERE = Path(__file__).parent
STYLE = """<style>
svg { --ink: #1b1f24; --quiet: #5b6470; --line: #b9c0c8; --paper: #f4f6f8; --good: #0b6e99; --bad: #b3420b;
  font-family: system-ui, "DejaVu Sans", sans-serif; }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e6e9ec; --quiet: #a2abb5; --line: #59626c; --paper: #1d2126; --good: #6cc3ea; --bad: #f5a26b; }
}
</style>
"""
HEADS = "".join(
    f'<marker id="head-{colour}-{{name}}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
    f'orient="auto-start-reverse"><path d="M0 0 10 5 0 10z" style="fill:var(--{colour})"/></marker>'
    for colour in ("good", "bad", "quiet")
)
Point = tuple[float, float]


def picture(name: str, width: int, height: int, parts: Iterable[str]) -> str:
    """A whole SVG file."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">\n{STYLE}'
        f"<defs>{HEADS.format(name=name)}</defs>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def text(
    at: Point,
    words: str,
    colour: str = "ink",
    size: int = 15,
    anchor: str = "middle",
    bold: bool = False,
) -> str:
    """Words, their middle at a point."""
    weight = ";font-weight:600" if bold else ""
    return (
        f'<text x="{at[0]:g}" y="{at[1] + size * 0.35:g}" text-anchor="{anchor}" '
        f'style="fill:var(--{colour});font-size:{size}px{weight}">{words}</text>'
    )


def box(
    at: Point,
    size: Point,
    stroke: str = "line",
    fill: str = "paper",
    radius: int = 8,
    extra: str = "",
) -> str:
    """A rounded rectangle around a point."""
    x, y = at[0] - size[0] / 2, at[1] - size[1] / 2
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{size[0]:g}" height="{size[1]:g}" rx="{radius}" '
        f'style="fill:var(--{fill});stroke:var(--{stroke});stroke-width:1.6{extra}"/>'
    )


def arrow(name: str, start: Point, end: Point, colour: str = "quiet", dashed: bool = False) -> str:
    """An arrow from point to point."""
    dash = ";stroke-dasharray:6 5" if dashed else ""
    return (
        f'<line x1="{start[0]:g}" y1="{start[1]:g}" x2="{end[0]:g}" y2="{end[1]:g}" '
        f'marker-end="url(#head-{colour}-{name})" style="stroke:var(--{colour});stroke-width:2{dash}"/>'
    )


def state(at: Point, words: str, colour: str = "line") -> list[str]:
    """A state of the verifier."""
    return [box(at, (128, 38), colour), text(at, words, size=14)]


def diamond() -> str:
    """Both orders of two steps that commute."""
    top, left, right, bottom = (240, 30), (100, 120), (380, 120), (240, 210)
    parts = [
        arrow("diamond", (200, 51), (122, 99), "good"),
        arrow("diamond", (280, 51), (358, 99), "good"),
        arrow("diamond", (122, 141), (200, 189), "good"),
        arrow("diamond", (358, 141), (280, 189), "good"),
        text((138, 66), "a", "good", 18, bold=True),
        text((342, 66), "b", "good", 18, bold=True),
        text((138, 176), "b", "good", 18, bold=True),
        text((342, 176), "a", "good", 18, bold=True),
        *state(top, "the state before"),
        *state(left, "after a"),
        *state(right, "after b"),
        *state(bottom, "one state", "good"),
        text((240, 248), "four accepted steps, equal canonical states: a and b commute", "ink", 14),
    ]
    return picture("diamond", 480, 266, parts)


def anti_diamond() -> str:
    """The two ways in which a reversal can fail."""
    parts = []
    for x, kind in ((125, "precedes"), (395, "conflicts")):
        parts += [
            text((x, 18), f"a {kind} b", "ink", 16, bold=True),
            arrow("anti", (x - 22, 76), (x - 62, 122), "good"),
            arrow("anti", (x - 68, 160), (x - 68, 206), "good"),
            text((x - 58, 92), "a", "good", 18, bold=True),
            text((x - 82, 182), "b", "good", 18, bold=True),
            box((x, 56), (110, 36)),
            text((x, 56), "before", size=14),
            box((x - 68, 141), (100, 36)),
            text((x - 68, 141), "after a", size=14),
            box((x - 68, 226), (100, 36), "good"),
            text((x - 68, 226), "reference", size=14),
            text((x + 58, 92), "b", "bad", 18, bold=True),
        ]
        if kind == "precedes":
            parts += [
                arrow("anti", (x + 22, 76), (x + 56, 116), "bad", dashed=True),
                text((x + 66, 134), "✕", "bad", 22, bold=True),
                text((x + 66, 160), "refused,", "bad", 13),
                text((x + 66, 177), "with a message", "bad", 13),
            ]
        else:
            parts += [
                arrow("anti", (x + 22, 76), (x + 62, 122), "bad"),
                arrow("anti", (x + 68, 160), (x + 68, 206), "bad"),
                text((x + 82, 182), "a", "bad", 18, bold=True),
                box((x + 68, 141), (100, 36)),
                text((x + 68, 141), "after b", size=14),
                box((x + 68, 226), (112, 36), "bad"),
                text((x + 68, 226), "another state", size=14),
            ]
    return picture("anti", 520, 252, parts)


def permutohedron() -> str:
    """The 24 orders of a, b, c, d where a must come before b: two halves, and the swaps between them."""
    pair = (1.0, -1.0, 0.0, 0.0)
    up, depth = (0.5, 0.5, -0.5, -0.5), (0.0, 0.0, 1.0, -1.0)

    def place(order: tuple[int, ...]) -> Point:
        steps = [order.index(i) - 1.5 for i in range(4)]
        x, y, z = (
            sum(s * w for s, w in zip(steps, axis, strict=True)) for axis in (pair, up, depth)
        )
        gap = 18 if x > 0 else -18
        return 260 + gap + 65 * x, 165 + 57 * y + 19 * z + 3.4 * x

    orders = list(permutations(range(4)))
    lines, dots = [], []
    for order in orders:
        for k in range(3):
            other = (*order[:k], order[k + 1], order[k], *order[k + 2 :])
            if order < other:
                (x1, y1), (x2, y2) = place(order), place(other)
                cut = {order[k], order[k + 1]} == {0, 1}
                legal = order.index(0) < order.index(1)
                colour = "quiet" if cut else "good" if legal else "bad"
                dash = ";stroke-dasharray:4 5" if cut else ""
                lines.append(
                    f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
                    f'style="stroke:var(--{colour});stroke-width:{1.4 if cut else 2}{dash}"/>'
                )
        x, y = place(order)
        legal = order.index(0) < order.index(1)
        colour = "good" if legal else "bad"
        dots += [
            box((x, y), (42, 20), colour, "paper", 10),
            text((x, y), "".join("abcd"[i] for i in order), colour, 12),
        ]
    words = [
        text((130, 336), "12 legal orders: one orbit", "good", 15, bold=True),
        text((390, 336), "12 illegal orders", "bad", 15, bold=True),
        text(
            (260, 362),
            "a line is a swap of neighbours; broken: the anti-diamond of a and b",
            "quiet",
            13,
        ),
    ]
    return picture("permutohedron", 520, 378, [*lines, *dots, *words])


def ratios() -> str:
    """One update seen by the ratio of the sampled order and by that of its orbit."""
    old, new = (0.20, 0.12, 0.08), (0.10, 0.25, 0.15)
    names = ("a b c d (sampled)", "a c b d", "a b d c")
    scale, floor = 440.0, 250.0
    parts = []
    for x, shares, title in ((135, old, "before"), (345, new, "after")):
        y = floor
        for place, share in enumerate(shares):
            height = scale * share
            fill = "good" if place == 0 else "paper"
            parts.append(box((x, y - height / 2), (92, height), "good", fill, 3))
            parts.append(
                text((x, y - height / 2), f"{share:.2f}", "paper" if place == 0 else "ink", 14)
            )
            if x == 345:
                parts.append(text((398, y - height / 2), names[place], "quiet", 12, "start"))
            y -= height
        parts.append(text((x, y - 14), f"orbit {sum(shares):.2f}", "good", 14, bold=True))
        parts.append(text((x, floor + 18), title, "quiet", 14))
    parts += [
        f'<line x1="40" y1="{floor}" x2="500" y2="{floor}" style="stroke:var(--line);stroke-width:1.5"/>',
        text(
            (20, 300),
            "ratio of the sampled order:  0.10 / 0.20 = 0.50, as if it got worse",
            "ink",
            14,
            "start",
        ),
        text(
            (20, 324),
            "ratio of its orbit:  0.50 / 0.40 = 1.25, as it is",
            "good",
            14,
            "start",
            bold=True,
        ),
    ]
    return picture("ratios", 520, 340, parts)


def flow() -> str:
    """The engine in five rooms, what passes between them, and what plugs in where."""
    rooms = (
        ("environments", "the contract of steps that can be run", "steps and answers"),
        ("certificates", "what the answers show of pairs and orders", "what to run, what it shows"),
        ("replay", "all orders, in workers, twice", "certified episodes"),
        ("records", "sealed audit view, anonymous policy view", "the same evidence, of a log"),
        ("calls", "logs read, scheduled, annotated", ""),
    )
    plugged = (
        (0, "a verifier", ("Lean, Rocq, CLRS, ProofWriter,", "Django, tool calls, your own")),
        (2, "a cluster", ("Ray or Dask in place", "of local processes")),
        (3, "vcrt-train", ("policies, objective,", "protocol, reports")),
        (4, "a lifter", ("steps of your own files:", "vcrt lift NAME")),
    )
    parts = [
        box((190, 208), (360, 396), "line"),
        text((24, 22), "vcrt, the engine", "ink", 13, "start", bold=True),
    ]
    heights = [58 + place * 78 for place in range(len(rooms))]
    for (room, about, passed), y in zip(rooms, heights, strict=True):
        parts += [
            box((190, y), (320, 46), "good"),
            text((190, y - 8), room, "ink", 15, bold=True),
            text((190, y + 11), about, "quiet", 13),
        ]
        if passed:
            parts += [
                arrow("flow", (190, y + 23), (190, y + 53), "quiet"),
                text((202, y + 37), passed, "quiet", 12, "start"),
            ]
    for place, name, lines in plugged:
        y = heights[place]
        out = name == "vcrt-train"
        ends = ((350, y), (414, y)) if out else ((414, y), (350, y))
        parts += [
            arrow("flow", *ends, "quiet", dashed=True),
            box((520, y), (212, 62), "line"),
            text((520, y - 18), name, "ink", 14, bold=True),
            text((520, y), lines[0], "quiet", 12),
            text((520, y + 16), lines[1], "quiet", 12),
        ]
    return picture("flow", 640, 416, parts)


PICTURES = {
    "diamond": diamond,
    "anti-diamond": anti_diamond,
    "permutohedron": permutohedron,
    "ratios": ratios,
    "flow": flow,
}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (HERE / f"{name}.svg").write_text(draw(), encoding="utf-8")
