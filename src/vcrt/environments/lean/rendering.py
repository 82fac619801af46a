"""The source text of a batch: many replays one after the other, each under names of its own.

Every global name of replay ``i`` gets the suffix ``_r`` and ``i`` in four digits, so that replays cannot see each other
and Lean's output has the same layout wherever in a batch a replay stands. After every step the text makes Lean print
the state; the last line of each replay asks for a constant that does not exist, and Lean's complaint shows that it read
that far. Not covered: what Lean answers (see :mod:`vcrt.environments.lean.messages`).
"""

from __future__ import annotations

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
    "end",
]
#: The most replays that one batch can hold: their number has four digits.
MAX_REPLAYS = 10_000
PRELUDE = files("vcrt.environments.lean").joinpath("prelude.lean").read_text(encoding="utf-8")


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One line of a batch: what it is there for, after how many steps, and the original name that it asks about."""

    role: Role
    text: str
    step: int = 0
    name: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayText:
    """The lines of one replay; ``first_line`` is the number of the first one in the batch, counted from 1."""

    program: Program
    sequence: tuple[int, ...]
    index: int
    first_line: int
    lines: tuple[Line, ...]

    @property
    def complete(self) -> bool:
        """Whether the sequence runs every step of the program."""
        return len(set(self.sequence)) == len(self.program.steps)


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchText:
    """The whole source text and the replays in it."""

    source: str
    replays: tuple[ReplayText, ...]


def suffix(index: int) -> str:
    """What every global name of replay ``index`` ends with."""
    return f"_r{index:04d}"


def end_mark(index: int) -> str:
    """The name that replay ``index`` asks for at its end and that does not exist."""
    return f"vcrt_end{suffix(index)}"


def cut_mark(index: int) -> str:
    """The goal that replay ``index`` asks for where its proof is cut off and that does not exist."""
    return f"vcrt_cut{suffix(index)}"


def render_batch(replays: Sequence[tuple[Program, tuple[int, ...]]]) -> BatchText:
    """The source text of a batch of at most :data:`MAX_REPLAYS` replays."""
    if len(replays) > MAX_REPLAYS:
        raise ValueError(f"{len(replays)} replays in one batch; at most {MAX_REPLAYS}")
    parts = [PRELUDE]
    first_line = PRELUDE.count("\n") + 1
    texts = []
    for index, (program, sequence) in enumerate(replays):
        lines = tuple(_replay_lines(program, sequence, index))
        parts.extend(f"{line.text}\n" for line in lines)
        texts.append(
            ReplayText(
                program=program,
                sequence=sequence,
                index=index,
                first_line=first_line,
                lines=lines,
            )
        )
        first_line += len(lines)
    return BatchText(source="".join(parts), replays=tuple(texts))


def _replay_lines(program: Program, sequence: tuple[int, ...], index: int) -> Iterator[Line]:
    names = {name: name + suffix(index) for name in program.global_names}
    if isinstance(program, Declarations):
        yield from _declaration_lines(program, sequence, names)
    else:
        yield from _tactic_lines(program, sequence, names, cut_mark(index))
    yield Line(role="end", text=f"#print {end_mark(index)}", step=len(sequence))


def _declaration_lines(
    program: Declarations, sequence: tuple[int, ...], names: dict[str, str]
) -> Iterator[Line]:
    """Each name is printed once declared (Lean never changes a declaration), and all of them after the last step."""
    for step in program.setup:
        yield Line(role="setup", text=rename(step.text, names), name=step.name)
    declared = list(program.setup)
    yield from _state(program, declared, 0, names)
    for count, operation in enumerate(sequence, start=1):
        step = program.steps[operation]
        declared.append(step)
        shown = [step] if count < len(sequence) else sorted(declared, key=lambda s: s.name)
        yield Line(role="step", text=rename(step.text, names), step=count, name=step.name)
        axioms = f"#print axioms {names[step.name]}"
        yield Line(role="axioms", text=axioms, step=count, name=step.name)
        yield from _state(program, shown, count, names)


def _state(
    program: Declarations, shown: Sequence[Step], count: int, names: dict[str, str]
) -> Iterator[Line]:
    for step in shown:
        text = _show_command(step, names)
        yield Line(role="show", text=text, step=count, name=step.name)
    for probe in program.probes:
        yield Line(role="synth", text=f"#synth {rename(probe, names)}", step=count, name=probe)


def _show_command(step: Step, names: dict[str, str]) -> str:
    """Asks for what a declaration is to whatever follows: of a theorem the statement, of all else the body too."""
    command = "#check @" if step.kind == "theorem" else "#print "
    return command + names[step.name]


def _tactic_lines(
    program: Tactics, sequence: tuple[int, ...], names: dict[str, str], cut: str
) -> Iterator[Line]:
    """A proof with every step is finished; any other is cut off by a ``case`` that no goal answers to."""
    count = len(sequence)
    name = program.statement.name
    yield Line(role="setup", text=f"{rename(program.statement.text, names)} := by", name=name)
    if program.opening is not None:
        yield Line(role="opening", text=f"  {rename(program.opening, names)}")
    yield Line(role="trace", text="  trace_state")
    for position, operation in enumerate(sequence, start=1):
        step = program.steps[operation]
        text = rename(step.text, names)
        # Lean's own `have` tactic is this very `refine`, spelt by a macro that the prelude does not have.
        tactic = f"refine {text}; ?_" if step.kind == "have" else text
        yield Line(role="step", text=f"  {tactic}", step=position, name=step.name)
        yield Line(role="trace", text="  trace_state", step=position)
    if len(set(sequence)) < len(program.steps):
        yield Line(role="cut", text=f"  case {cut} => trace_state", step=count)
        return
    if program.closing is not None:
        yield Line(role="closing", text=f"  {rename(program.closing, names)}", step=count)
    yield Line(role="show", text=f"#check @{names[name]}", step=count, name=name)
    yield Line(role="axioms", text=f"#print axioms {names[name]}", step=count, name=name)
