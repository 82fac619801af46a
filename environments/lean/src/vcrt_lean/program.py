"""Read an episode from its JSON as a program for Lean, check every text against the grammar, and render it as source.

There are two forms. In the ``declarations`` form each step is a top-level command; ``setup`` holds the classes before
the steps and ``probes`` the class applications whose instance belongs to the state. In the ``tactics`` form the steps
stand in the proof of ``statement``: after ``opening`` (a ``refine`` that makes the goals, or none) and before
``closing`` (an ``exact`` that ends the proof, or none if the steps themselves end it).

Every global name of replay ``i`` of a batch gets the suffix ``_r`` and ``i`` in four digits, so that replays cannot see
each other and Lean's output has the same layout wherever in a batch a replay stands. After every step the text makes
Lean print what the step added to the state. The last line of each replay requests a constant that does not exist;
Lean's error shows that it read that far. :mod:`vcrt_lean.reading` reads Lean's answers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal, TypeAlias

from vcrt.environments.contract import Episode, Footprint
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json
from vcrt_lean import grammar
from vcrt_lean.grammar import Step, rename

PRELUDE = files("vcrt_lean").joinpath("prelude.lean").read_text(encoding="utf-8")
_FIELDS = {
    "declarations": {"form", "setup", "probes"},
    "tactics": {"form", "statement", "opening", "closing"},
}
#: The goals of a witness and of the proof about it.
_WITNESS = re.compile(r"Exists\.intro \?(\w+) \?(\w+)")
_WORD = re.compile(r"\w+")
Role: TypeAlias = Literal[
    "setup", "opening", "step", "show", "axioms", "synth", "trace", "closing", "cut"
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Declarations:
    """Steps that are top-level commands."""

    setup: tuple[Step, ...]
    probes: tuple[str, ...]
    steps: tuple[Step, ...]

    @property
    def global_names(self) -> frozenset[str]:
        """The names that the program adds to Lean's environment."""
        return frozenset(step.name for step in (*self.setup, *self.steps))


@dataclass(frozen=True, kw_only=True, slots=True)
class Tactics:
    """Steps in the proof of one theorem."""

    statement: Step
    opening: str | None
    closing: str | None
    steps: tuple[Step, ...]

    @property
    def global_names(self) -> frozenset[str]:
        """The name of the theorem."""
        return frozenset({self.statement.name})


Program = Declarations | Tactics


def read_program(episode: Episode) -> Program:
    """Return the program of an episode, which may come from a file; raise :class:`MalformedInputError` for others."""
    place = episode.episode_id
    initial = episode.initial
    if not isinstance(initial, Mapping) or set(initial) != _FIELDS.get(str(initial.get("form"))):
        raise _malformed(f"{place}: initial", _shown(initial), "one of the documented forms")
    read = _tactics if initial["form"] == "tactics" else _declarations
    return read(initial, episode)


def footprint_of(program: Program, number: int) -> Footprint:
    """Return the names of other steps that step ``number`` mentions, and its own names; for an instance, its class too.

    The proof about a witness mentions the witness, in the goal that the opening makes.
    """
    own = program.steps[number]
    given = {step.name for step in program.steps}
    writes = [own.name]
    if own.kind == "instance":
        writes.append(f"instance of {own.text.partition(' : ')[2].partition(' := ')[0]}")
    reads = set(grammar.names_in(own.text))
    if isinstance(program, Tactics) and program.opening:
        witnesses = _WITNESS.findall(program.opening)
        reads |= {witness for witness, proof in witnesses if proof == own.name}
    return Footprint(reads=tuple(sorted(reads & given - {own.name})), writes=tuple(writes))


def _declarations(initial: Mapping[str, Json], episode: Episode) -> Declarations:
    place = episode.episode_id
    setup = tuple(
        grammar.read_class(text, where=f"{place}: setup")
        for text in _texts(initial["setup"], f"{place}: setup")
    )
    classes = frozenset(step.name for step in setup)
    probes = tuple(
        grammar.read_type(text, where=f"{place}: probes")
        for text in _texts(initial["probes"], f"{place}: probes")
    )
    for probe in probes:
        if probe.split()[0] not in classes:
            raise _malformed(f"{place}: probes", probe, "a class of the setup")
    steps = []
    for where, text, signature in _payloads(episode):
        step = grammar.read_declaration(text, where=where, classes=classes)
        if step.name != signature:
            raise _malformed(where, f"signature {signature!r}", f"the declared name {step.name!r}")
        steps.append(step)
    return Declarations(setup=setup, probes=probes, steps=tuple(steps))


def _tactics(initial: Mapping[str, Json], episode: Episode) -> Tactics:
    place = episode.episode_id
    statement, opening, closing = (initial[key] for key in ("statement", "opening", "closing"))
    if not isinstance(statement, str):
        raise _malformed(f"{place}: statement", _shown(statement), "a text")
    return Tactics(
        statement=grammar.read_statement(statement, where=f"{place}: statement"),
        opening=_optional(opening, "refine", f"{place}: opening"),
        closing=_optional(closing, "exact", f"{place}: closing"),
        steps=tuple(
            grammar.read_tactic(text, where=where) for where, text, _ in _payloads(episode)
        ),
    )


def _optional(value: Json, kind: str, where: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise _malformed(where, _shown(value), f"null, or {kind} and a term")
    return grammar.read_term_tactic(value, kind, where=where)


def _payloads(episode: Episode) -> list[tuple[str, str, str]]:
    """Return place, text and signature of each operation."""
    found = []
    for index, operation in enumerate(episode.operations):
        where = f"{episode.episode_id}: operation {index}"
        if not isinstance(operation.payload, str):
            raise _malformed(where, _shown(operation.payload), "a text")
        found.append((where, operation.payload, operation.signature))
    if len({signature for _, _, signature in found}) != len(found):
        signatures = ", ".join(signature for _, _, signature in found)
        raise _malformed(
            episode.episode_id, signatures, "a signature of its own for each operation"
        )
    return found


def _texts(value: Json, where: str) -> list[str]:
    if isinstance(value, list | tuple):
        texts = [item for item in value if isinstance(item, str)]
        if len(texts) == len(value):
            return texts
    raise _malformed(where, _shown(value), "a list of texts")


def _shown(value: Json) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."


def _malformed(where: str, found: str, expected: str) -> MalformedInputError:
    return MalformedInputError(
        "a Lean episode that does not have the documented form",
        where=where,
        found=found,
        expected=expected,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One line of a text: its role, and the original name that it queries."""

    role: Role
    text: str
    name: str = ""


#: The lines before the steps, those of one step, or those of the end.
Part: TypeAlias = tuple[Line, ...]
_TRACE = Line(role="trace", text="  trace_state")


class Rendered:
    """A program under the names of replay ``index`` of a batch: its parts, as texts for Lean.

    ``start`` stands before the steps and makes Lean print the initial state, ``steps`` are one part each, and ``end``
    follows all of them: it is the rest of a proof.
    """

    def __init__(self, program: Program, index: int = 0) -> None:
        self.program = program
        self.suffix = f"_r{index:04d}"
        #: Names that do not exist: the goal requested where a proof is cut off, and the constant requested at the end.
        self.cut_mark, self.end_mark = f"vcrt_cut{self.suffix}", f"vcrt_end{self.suffix}"
        #: The global names, as the texts have them.
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
        """Return whether ``sequence`` runs every step."""
        return len(set(sequence)) == len(self.steps)

    def parts(self, sequence: Sequence[int]) -> list[Part]:
        """Return the start, one part a step, and the end; for a proof that is cut off, a mark."""
        cut = (Line(role="cut", text=f"  case {self.cut_mark} => trace_state"),)
        whole = self.is_complete(sequence) or isinstance(self.program, Declarations)
        return [self.start, *(self.steps[k] for k in sequence), self.end if whole else cut]

    def _render_declarations(self, program: Declarations) -> None:
        """Print each declaration once, as Lean never changes one, and instances after each step, as they may change."""
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
        # Lean's own `have` tactic is this very `refine`, by a macro that the prelude does not have.
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
        """Return the line that prints a declaration: the statement of a theorem, and the body too of all others.

        Lean prints its raw form, which takes a tenth of the time, except for a class, whose raw form would hold
        numbers.
        """
        command = "#check @" if step.kind == "theorem" else "#print "
        plain = "" if step.kind == "class" else "set_option pp.raw true in "
        return Line(role="show", text=plain + command + self.names[step.name], name=step.name)


def part_text(part: Sequence[Line]) -> str:
    """Return the lines of a part as source text."""
    return "".join(f"{line.text}\n" for line in part)
