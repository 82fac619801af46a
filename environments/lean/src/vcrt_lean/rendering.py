"""Render replays as source text: what stands before the steps, each step, and the end, as parts of lines.

Every global name of replay ``i`` of a batch gets the suffix ``_r`` and ``i`` in four digits, so that replays cannot see
each other and Lean's output has the same layout wherever in a batch a replay stands. After every step the text makes
Lean print what the step added to the state. The last line of each replay asks for a constant that does not exist, and
Lean's complaint shows that it read that far. Not covered: what Lean answers (see
:mod:`vcrt_lean.messages`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal, TypeAlias

from vcrt_lean.grammar import Step, rename
from vcrt_lean.program import Declarations, Program, Tactics

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
_WORD = re.compile(r"\w+")
PRELUDE = files("vcrt_lean").joinpath("prelude.lean").read_text(encoding="utf-8")


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One line of a text: what it is there for, and the original name that it asks about."""

    role: Role
    text: str
    name: str = ""


#: The lines before the steps, those of one step, or those of the end.
Part: TypeAlias = tuple[Line, ...]
_TRACE = Line(role="trace", text="  trace_state")


class Rendered:
    """A program under the names of replay ``index`` of a batch: its parts, as texts for Lean.

    ``start`` stands before the steps and makes Lean print the initial state, ``steps`` are one part each, and ``end``
    is what follows all of them: the rest of a proof.
    """

    def __init__(self, program: Program, index: int = 0) -> None:
        self.program = program
        self.suffix = f"_r{index:04d}"
        #: The goal that a proof asks for where it is cut off, and what a replay asks for at its end: neither exists.
        self.cut_mark, self.end_mark = f"vcrt_cut{self.suffix}", f"vcrt_end{self.suffix}"
        #: The global names, as they stand in the texts.
        self.names = {name: name + self.suffix for name in program.global_names}
        self.start: Part
        self.steps: tuple[Part, ...]
        self.end: Part
        if isinstance(program, Declarations):
            self._render_declarations(program)
        else:
            self._render_proof(program)
        parts = (self.start, *self.steps, self.end)
        #: The words in the texts.
        self.words = frozenset(w for part in parts for x in part for w in _WORD.findall(x.text))

    def is_complete(self, sequence: Sequence[int]) -> bool:
        """Whether ``sequence`` runs every step."""
        return len(set(sequence)) == len(self.steps)

    def parts(self, sequence: Sequence[int]) -> list[Part]:
        """The start, one part a step, and the end: of a proof that is cut off, a mark."""
        cut = (Line(role="cut", text=f"  case {self.cut_mark} => trace_state"),)
        whole = self.is_complete(sequence) or isinstance(self.program, Declarations)
        return [self.start, *(self.steps[k] for k in sequence), self.end if whole else cut]

    def _render_declarations(self, program: Declarations) -> None:
        """A declaration is printed once, as Lean never changes one; which instance is found may change at any step."""
        instances = [
            Line(role="synth", text=f"#synth {rename(probe, self.names)}", name=probe)
            for probe in program.probes
        ]
        classes = [self._line("setup", step) for step in program.setup]
        self.start = (*classes, *map(self._shown, program.setup), *instances)
        self.steps = tuple(
            (self._line("step", step), self._axioms(step), self._shown(step), *instances)
            for step in program.steps
        )
        self.end = ()

    def _render_proof(self, program: Tactics) -> None:
        theorem, name = program.statement, program.statement.name
        self.start = (
            self._line("setup", theorem, "{} := by"),
            *self._tactic("opening", program.opening),
            _TRACE,
        )
        # Lean's own `have` tactic is this very `refine`, spelt by a macro that the prelude does not have.
        forms = {"have": "  refine {}; ?_", "case": "  {}"}
        self.steps = tuple(
            (self._line("step", step, forms[step.kind]), _TRACE) for step in program.steps
        )
        shown = Line(role="show", text=f"#check @{self.names[name]}", name=name)
        self.end = (*self._tactic("closing", program.closing), shown, self._axioms(theorem))

    def _tactic(self, role: Role, text: str | None) -> Part:
        return (Line(role=role, text=f"  {rename(text, self.names)}"),) if text else ()

    def _line(self, role: Role, step: Step, form: str = "{}") -> Line:
        return Line(role=role, text=form.format(rename(step.text, self.names)), name=step.name)

    def _axioms(self, step: Step) -> Line:
        return Line(role="axioms", text=f"#print axioms {self.names[step.name]}", name=step.name)

    def _shown(self, step: Step) -> Line:
        """Asks for what a declaration is to whatever follows: of a theorem the statement, of all else the body too.

        Lean prints its inner form, which takes a tenth of the time; that of a class would hold numbers of its own.
        """
        command = "#check @" if step.kind == "theorem" else "#print "
        plain = "" if step.kind == "class" else "set_option pp.raw true in "
        return Line(role="show", text=plain + command + self.names[step.name], name=step.name)


def part_text(part: Sequence[Line]) -> str:
    """The lines of a part as source text."""
    return "".join(f"{line.text}\n" for line in part)
