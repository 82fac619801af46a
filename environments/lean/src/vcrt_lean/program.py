"""Read an episode as Lean runs it from its JSON, every text checked against the grammar.

Two forms. In the ``declarations`` form each step is a top-level command; ``setup`` holds the classes that stand before
them and ``probes`` the class applications whose instance belongs to the state. In the ``tactics`` form the steps stand
in the proof of ``statement``: after ``opening`` (a ``refine`` that makes the goals, or none) and before ``closing`` (an
``exact`` that ends the proof, or none if the steps themselves end it).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from vcrt.environments.contract import Episode, Footprint
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json
from vcrt_lean import grammar
from vcrt_lean.grammar import Step

_FIELDS = {
    "declarations": {"form", "setup", "probes"},
    "tactics": {"form", "statement", "opening", "closing"},
}


#: The goals of a witness and of the proof that it fits.
_WITNESS = re.compile(r"Exists\.intro \?(\w+) \?(\w+)")


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
    """Steps that stand in the proof of one theorem."""

    statement: Step
    opening: str | None
    closing: str | None
    steps: tuple[Step, ...]

    @property
    def global_names(self) -> frozenset[str]:
        """The name of the theorem."""
        return frozenset({self.statement.name})


Program = Declarations | Tactics


def read_program(episode: Episode, *, max_chars: int) -> Program:
    """The program of an episode, which may come from a file.

    No text may be longer than ``max_chars``. Raises :class:`MalformedInputError`.
    """
    place = episode.episode_id
    initial = episode.initial
    if not isinstance(initial, Mapping) or set(initial) != _FIELDS.get(str(initial.get("form"))):
        raise _malformed(f"{place}: initial", _shown(initial), "one of the documented forms")
    read = _tactics if initial["form"] == "tactics" else _declarations
    return read(initial, episode, max_chars)


def footprint_of(program: Program, number: int) -> Footprint:
    """What step ``number`` mentions of what other steps give, and what it gives; of an instance, its class too.

    The proof that a witness fits mentions the witness, in the goal that the opening makes.
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


def _declarations(initial: Mapping[str, Json], episode: Episode, cap: int) -> Declarations:
    place = episode.episode_id
    setup = tuple(
        grammar.read_class(text, where=f"{place}: setup", max_chars=cap)
        for text in _texts(initial["setup"], f"{place}: setup")
    )
    classes = frozenset(step.name for step in setup)
    probes = tuple(
        grammar.read_type(text, where=f"{place}: probes", max_chars=cap)
        for text in _texts(initial["probes"], f"{place}: probes")
    )
    for probe in probes:
        if probe.split()[0] not in classes:
            raise _malformed(f"{place}: probes", probe, "a class of the setup")
    steps = []
    for where, text, signature in _payloads(episode):
        step = grammar.read_declaration(text, where=where, max_chars=cap, classes=classes)
        if step.name != signature:
            raise _malformed(where, f"signature {signature!r}", f"the declared name {step.name!r}")
        steps.append(step)
    return Declarations(setup=setup, probes=probes, steps=tuple(steps))


def _tactics(initial: Mapping[str, Json], episode: Episode, cap: int) -> Tactics:
    place = episode.episode_id
    statement, opening, closing = (initial[key] for key in ("statement", "opening", "closing"))
    if not isinstance(statement, str):
        raise _malformed(f"{place}: statement", _shown(statement), "a text")
    return Tactics(
        statement=grammar.read_statement(statement, where=f"{place}: statement", max_chars=cap),
        opening=_optional(opening, "refine", f"{place}: opening", cap),
        closing=_optional(closing, "exact", f"{place}: closing", cap),
        steps=tuple(
            grammar.read_tactic(text, where=where, max_chars=cap)
            for where, text, _ in _payloads(episode)
        ),
    )


def _optional(value: Json, kind: str, where: str, cap: int) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise _malformed(where, _shown(value), f"null, or {kind} and a term")
    return grammar.read_term_tactic(value, kind, where=where, max_chars=cap)


def _payloads(episode: Episode) -> list[tuple[str, str, str]]:
    """Place, text and signature of each operation."""
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
