"""Render replays as source text: what stands before the steps, each step, and the end, as parts of lines.

Every global name of replay ``i`` of a batch gets the suffix ``_r`` and ``i`` in four digits, so that replays cannot see
each other and Lean's output has the same layout wherever in a batch a replay stands. After every step the text makes
Lean print what the step added to the state. The last line of each replay asks for a constant that does not exist, and
Lean's complaint shows that it read that far. Not covered: what Lean answers (see
:mod:`vcrt.environments.lean.messages`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal, TypeAlias

from vcrt.environments.lean.grammar import Step, rename
from vcrt.environments.lean.program import Declarations, Program, Tactics

Role: TypeAlias = Literal[
    "setup",
    "opening",
    "step",
    "show",
    "axioms",
    "synth",
    "trace",
    "closing",
    "cut",
]
_ASKING = ("show", "synth", "trace")
_WORD = re.compile(r"\w+")
PRELUDE = files("vcrt.environments.lean").joinpath("prelude.lean").read_text(encoding="utf-8")


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One line of a text: what it is there for, and the original name that it asks about."""

    role: Role
    text: str
    name: str = ""


#: The lines before the steps, those of one step, or those of the end.
Part: TypeAlias = tuple[Line, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rendered:
    """A program under the names of one replay: its parts, as texts for Lean."""

    program: Program
    index: int

    @property
    def names(self) -> dict[str, str]:
        """The global names, as they stand in the texts."""
        return {name: name + suffix(self.index) for name in self.program.global_names}

    @property
    def theorem(self) -> str:
        """The theorem that a proof is of, as it stands in the texts."""
        assert isinstance(self.program, Tactics)
        return self.names[self.program.statement.name]

    def start(self) -> Part:
        """What stands before the steps; it makes Lean print the initial state."""
        if isinstance(self.program, Declarations):
            return tuple(_setup_lines(self.program, self.names))
        return tuple(_opening_lines(self.program, self.names))

    def step(self, operation: int) -> Part:
        """A step; it makes Lean print what the step added to the state."""
        step = self.program.steps[operation]
        if isinstance(self.program, Declarations):
            return tuple(_declaration_lines(self.program, step, self.names))
        return tuple(_tactic_lines(step, self.names))

    def end(self, *, complete: bool) -> Part:
        """What follows the last step: of a proof the rest, or a mark where it is cut off if it is not ``complete``."""
        if isinstance(self.program, Declarations):
            return ()
        if complete:
            return tuple(_closing_lines(self.program, self.names))
        return (Line(role="cut", text=f"  case {cut_mark(self.index)} => trace_state"),)

    def words(self) -> frozenset[str]:
        """The words in the texts of the program."""
        parts = [self.start(), self.end(complete=True)]
        parts += [self.step(operation) for operation in range(len(self.program.steps))]
        return frozenset(
            word for part in parts for line in part for word in _WORD.findall(line.text)
        )


def is_complete(program: Program, sequence: Sequence[int]) -> bool:
    """Whether ``sequence`` runs every step of ``program``."""
    return len(set(sequence)) == len(program.steps)


def suffix(index: int) -> str:
    """What every global name of replay ``index`` ends with."""
    return f"_r{index:04d}"


def end_mark(index: int) -> str:
    """The name that replay ``index`` asks for at its end and that does not exist."""
    return f"vcrt_end{suffix(index)}"


def silent(part: Part) -> Part:
    """The lines without those that ask for the state, where that has been asked for already."""
    return tuple(line for line in part if line.role not in _ASKING)


def asks_for_state(part: Part) -> bool:
    """Whether a step's lines ask for the state after it."""
    return part != silent(part)


def end_part(index: int) -> Part:
    """The line at the end of replay ``index``, which shows that Lean read that far."""
    return (Line(role="cut", text=f"#print {end_mark(index)}"),)


def cut_mark(index: int) -> str:
    """The goal that replay ``index`` asks for where its proof is cut off and that does not exist."""
    return f"vcrt_cut{suffix(index)}"


def replay_parts(rendered: Rendered, sequence: tuple[int, ...]) -> tuple[Part, ...]:
    """The start, one part a step, and the end."""
    complete = is_complete(rendered.program, sequence)
    return (rendered.start(), *map(rendered.step, sequence), rendered.end(complete=complete))


def part_text(part: Part) -> str:
    """The lines of a part as source text."""
    return "".join(f"{line.text}\n" for line in part)


def _setup_lines(program: Declarations, names: dict[str, str]) -> Iterator[Line]:
    for step in program.setup:
        yield Line(role="setup", text=rename(step.text, names), name=step.name)
    for step in program.setup:
        yield _show(step, names)
    yield from _instances(program, names)


def _declaration_lines(program: Declarations, step: Step, names: dict[str, str]) -> Iterator[Line]:
    """A declaration is printed once, as Lean never changes one; which instance is found may change with every step."""
    yield Line(role="step", text=rename(step.text, names), name=step.name)
    yield Line(role="axioms", text=f"#print axioms {names[step.name]}", name=step.name)
    yield _show(step, names)
    yield from _instances(program, names)


def _instances(program: Declarations, names: dict[str, str]) -> Iterator[Line]:
    for probe in program.probes:
        yield Line(role="synth", text=f"#synth {rename(probe, names)}", name=probe)


def _show(step: Step, names: dict[str, str]) -> Line:
    """Asks for what a declaration is to whatever follows: of a theorem the statement, of all else the body too.

    Lean prints its inner form, which takes a tenth of the time; that of a class would hold numbers of its own.
    """
    command = "#check @" if step.kind == "theorem" else "#print "
    plain = "" if step.kind == "class" else "set_option pp.raw true in "
    return Line(role="show", text=plain + command + names[step.name], name=step.name)


def _opening_lines(program: Tactics, names: dict[str, str]) -> Iterator[Line]:
    name = program.statement.name
    yield Line(role="setup", text=f"{rename(program.statement.text, names)} := by", name=name)
    if program.opening is not None:
        yield Line(role="opening", text=f"  {rename(program.opening, names)}")
    yield Line(role="trace", text="  trace_state")


def _tactic_lines(step: Step, names: dict[str, str]) -> Iterator[Line]:
    text = rename(step.text, names)
    # Lean's own `have` tactic is this very `refine`, spelt by a macro that the prelude does not have.
    tactic = f"refine {text}; ?_" if step.kind == "have" else text
    yield Line(role="step", text=f"  {tactic}", name=step.name)
    yield Line(role="trace", text="  trace_state")


def _closing_lines(program: Tactics, names: dict[str, str]) -> Iterator[Line]:
    name = program.statement.name
    if program.closing is not None:
        yield Line(role="closing", text=f"  {rename(program.closing, names)}")
    yield Line(role="show", text=f"#check @{names[name]}", name=name)
    yield Line(role="axioms", text=f"#print axioms {names[name]}", name=name)
