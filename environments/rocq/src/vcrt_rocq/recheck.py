"""Give a second opinion on orders by ``coqtop`` or ``coqc``, which read whole files and know nothing of the session.

Every order is a module of its own: an accepted one must pass up to its ``Qed``, a refused one must fail at its step and
nowhere before (``Fail``). With ``compiled``, ``coqchk`` checks the compiled result again with its own kernel. The
verdict is an exit status, which no text can forge. It covers neither states nor orders that were refused for their
assumptions.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from subprocess import CompletedProcess

from vcrt.environments.contract import CrossCheck, Replay
from vcrt.errors import VerifierFailure
from vcrt.processes.confinement import Report
from vcrt.processes.programs import confined, protections_by, run_program
from vcrt_rocq.program import Declarations, Proof
from vcrt_rocq.session import Limits, bounds_of, variables
from vcrt_rocq.toolchain import Toolchain

#: A program and replays of it.
Opinions = tuple[Proof | Declarations, Sequence[Replay]]
_PLACE = re.compile(r"(?:at the end, )?sentence (\d+), ")
_UNCHECKABLE = ("rests on", "is not there", "a goal is given up", "a declaration that leaves")
_LINE = re.compile(r'File "[^"]*", line (\d+)')
_SECONDS = 600.0
_NAME = "Orders"
#: The name of the second opinion, for both programs.
CHECKER = "whole files"


def second_opinions(
    toolchain: Toolchain, limits: Limits, items: Sequence[Opinions], *, compiled: bool = False
) -> list[CrossCheck]:
    """Return the other program's opinion on each; items with the same beginning share a file.

    Raise :class:`VerifierFailure` if it does not end.
    """
    together: dict[tuple[str, ...], list[int]] = {}
    for index, (program, _) in enumerate(items):
        together.setdefault(program.before, []).append(index)
    found: dict[int, CrossCheck] = {}
    for before, indices in together.items():
        orders = {index: list(_orders(*items[index])) for index in indices}
        wrong = _wrong(toolchain, limits, before, orders, compiled)
        for index in indices:
            checked = len(orders[index])
            found[index] = CrossCheck(CHECKER, checked, checked - wrong.get(index, 0))
    return [found[index] for index in range(len(items))]


def _orders(program: Proof | Declarations, replays: Sequence[Replay]) -> Iterator[list[str]]:
    """Yield the sentences of each order that can be checked; all of them must pass."""
    for replay in replays:
        reason = "" if replay.rejection is None else replay.rejection.reason
        if any(each in reason for each in _UNCHECKABLE):
            continue
        whole = len(replay.state_hashes) > len(replay.sequence)
        accepted = replay.sequence[: len(replay.state_hashes) - 1]
        lines = [sentence for step in accepted for sentence in program.steps[step]]
        proving = isinstance(program, Proof)
        if isinstance(program, Proof):
            lines = [*program.statement.sentences, *program.opening, *lines]
        place = _PLACE.match(reason)
        if replay.rejection is not None:
            last = program.steps[replay.sequence[len(accepted)]] if not whole else ()
            if isinstance(program, Proof) and whole:
                last = (*program.closing, "Qed.")
            number = int(place[1]) if place is not None else 1
            lines += [*last[: number - 1], f"Fail {last[number - 1]}"]
            # A declaration that fails within its proof leaves the proof open.
            lines += ["Abort."] if proving or number > 1 else []
        elif isinstance(program, Proof) and len(replay.sequence) == len(program.steps):
            lines += [*program.closing, "Qed."]
        elif proving:
            lines += ["Abort."]
        yield lines


def _wrong(
    toolchain: Toolchain,
    limits: Limits,
    before: Sequence[str],
    orders: dict[int, list[list[str]]],
    compiled: bool,
) -> dict[int, int]:
    """Count the orders of each item that the other program refutes; remove those until the rest passes."""
    left = [(index, lines) for index, several in orders.items() for lines in several]
    wrong: dict[int, int] = {}
    while left:
        text, ends = [" ".join(line.split()) for line in before], list[int]()
        for number, (_, lines) in enumerate(left):
            text += [f"Module Order{number}.", *lines, f"End Order{number}."]
            ends.append(len(text))
        line = _failing_line(toolchain, limits, "\n".join(text) + "\n", compiled)
        if line is None:
            break
        place = next((place for place, end in enumerate(ends) if line <= end), len(left) - 1)
        index, _ = left.pop(place)
        wrong[index] = wrong.get(index, 0) + 1
    return wrong


def _failing_line(toolchain: Toolchain, limits: Limits, text: str, compiled: bool) -> int | None:
    """Return the line of the first error in a file; None if it passes."""
    with tempfile.TemporaryDirectory(prefix="vcrt-rocq-") as folder:
        file = Path(folder, f"{_NAME}.v")
        file.write_text(text, encoding="utf-8")
        limits_here = bounds_of(toolchain, limits)
        limits_here = replace(limits_here, readable=(*limits_here.readable, folder))
        if not compiled:
            command = [str(toolchain.top), "-q", "-w", "none", "-batch", "-l", str(file)]
            return _line_in(_run(confined(command, limits_here)), str(file))
        limits_here = replace(
            limits_here, writable=(folder,), file_bytes=1 << 28, variables=tuple(variables())
        )
        command = [str(toolchain.compiler), "-q", "-w", "none", str(file)]
        line = _line_in(_run(confined(command, limits_here)), str(file))
        if line is None:
            command = [str(toolchain.checker), "-silent", "-Q", folder, "", "-norec", _NAME]
            checked = _run(confined(command, replace(limits_here, writable=())))
            if checked.returncode:
                raise VerifierFailure(
                    "coqchk refuses what Rocq has compiled", found=checked.stderr[-300:]
                )
        return line


def _line_in(process: CompletedProcess[str], where: str) -> int | None:
    if process.returncode == 0:
        return None
    lines = _LINE.findall(process.stderr)
    if not lines:
        raise VerifierFailure(
            "no second opinion of Rocq",
            where=where,
            found=f"exit status {process.returncode}: {process.stderr[-300:]}",
        )
    return int(lines[-1])


def _run(command: Sequence[str]) -> CompletedProcess[str]:
    try:
        return run_program(command, seconds=_SECONDS, variables=variables())
    except OSError as error:
        raise VerifierFailure("no second opinion of Rocq", found=str(error)[:300]) from error


@cache
def protected_by(toolchain: Toolchain, limits: Limits) -> Report:
    """Return the protections from a process of this Rocq: start one, which confines itself."""
    return protections_by(bounds_of(toolchain, limits))
