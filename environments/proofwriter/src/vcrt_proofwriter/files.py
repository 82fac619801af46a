"""Read files of ProofWriter theories: JSON lines, structured as the official files or in English, as each row shows.

Every line of a file gives, in order, either its theory with its questions or the reason why it has none, with its
place. One line is in memory at a time. Proofs (``proofs``, ``allProofs``, ``proofDetails``) are not read. Official
data: Tafjord, Dalvi, Clark 2021, Allen Institute for AI, CC BY.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias, cast

from pydantic import BeforeValidator, TypeAdapter, ValidationError

from vcrt.documents import strict_json
from vcrt.errors import MalformedInputError
from vcrt.forms import first_error
from vcrt_proofwriter.engine import Answer
from vcrt_proofwriter.english import parse_question, parse_theory
from vcrt_proofwriter.theory import (
    ASSUMPTIONS,
    Assumption,
    Atom,
    Polarity,
    Rule,
    Theory,
    is_term,
)

#: The longest line that is read, in characters.
MAX_LINE = 2**24
#: An atom as an s-expression with four parts, and a rule with its conditions and its conclusion.
_ATOM = r'\(\s*"([^"\\]*)"\s*"([^"\\]*)"\s*"([^"\\]*)"\s*"([+~-])"\s*\)'
_ANY_ATOM = re.compile(_ATOM)
_GROUPLESS = re.sub(r"\((\[)", r"(?:\1", _ATOM)
_RULE = re.compile(rf"\s*\(\s*\(((?:\s*{_GROUPLESS})*)\s*\)\s*->\s*({_GROUPLESS})\s*\)\s*")


@dataclass(frozen=True, kw_only=True, slots=True)
class GoldQuestion:
    """A question of the data with its gold answer."""

    atom: Atom
    text: str
    answer: Answer


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledTheory:
    """A theory of the data under its own ``id``, with its questions; ``where`` is its place in a file."""

    id: str
    where: str
    theory: Theory
    questions: tuple[GoldQuestion, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    """A line or theory that cannot be used: its place, its id (None if it has none) and the reason."""

    where: str
    id: str | None
    error: MalformedInputError


Row: TypeAlias = LabelledTheory | Refused


def read_rows(path: Path) -> Iterator[Row]:
    """Yield a theory or a refusal for each line of a file.

    A file that cannot be read (to its end) gives a refusal in place of the missing part.
    """
    try:
        # A file without a line counts as one empty line: it is refused, not skipped.
        for number, line in enumerate(_lines(path), 1):
            yield read_row(line, f"{path}, line {number}")
    except (OSError, UnicodeDecodeError) as failure:
        error = MalformedInputError(
            "cannot read the file",
            where=str(path),
            found=str(failure),
            expected="a readable UTF-8 file",
        )
        yield Refused(where=str(path), id=None, error=error)


def read_theories(path: Path) -> Iterator[LabelledTheory]:
    """Yield the theories of a file; raise the error of the first line that has none, so that none is skipped."""
    for row in read_rows(path):
        if isinstance(row, Refused):
            raise row.error
        yield row


def _lines(path: Path) -> Iterator[str]:
    # Not splitlines(): JSON strings may hold U+2028 and similar characters unescaped.
    with path.open(encoding="utf-8", newline="\n") as stream:
        line = stream.readline(MAX_LINE + 1)
        while True:
            if len(line) > MAX_LINE:
                raise OSError(f"a line of more than {MAX_LINE:,} characters")
            yield line.removesuffix("\n")
            if not (line := stream.readline(MAX_LINE + 1)):
                return


def read_row(line: str, where: str) -> Row:
    """Return the theory in one line, or the reason why there is none."""
    identity = None
    try:
        row = _json(line, where)
        named = row.get("id") if isinstance(row, dict) else None
        identity = named if isinstance(named, str) else None
        read = _structured if isinstance(row, dict) and "triples" in row else _english
        return read(row, where)
    except MalformedInputError as error:
        return Refused(where=where, id=identity, error=error)


def _json(line: str, where: str) -> Any:
    if not line.strip():
        raise MalformedInputError(
            "empty line",
            where=where,
            found="no JSON object",
            expected="one JSON object a line",
            remedy="delete the line, or restore the row that stood here",
        )
    try:
        return strict_json(line)
    except ValueError as error:
        raise MalformedInputError(
            "not a JSON line",
            where=where,
            found=f"{str(error)[:160]} in {line[:80]!r}",
            expected="one complete JSON object a line, no key twice",
            remedy="fetch the file again if it was cut off; otherwise mend the line",
        ) from error


def _text_of_answer(value: object) -> object:
    """Return a gold answer as a string; closed-world files have booleans, open-world ones strings."""
    return str(value) if isinstance(value, bool) else value


_GoldAnswer: TypeAlias = Annotated[Answer, BeforeValidator(_text_of_answer)]


@dataclass(frozen=True, slots=True)
class _EnglishRow:
    id: str
    theory: str
    questions: list[Any]


@dataclass(frozen=True, slots=True)
class _StructuredRow:
    """A row of the official files, which pad with null."""

    id: str
    triples: dict[str, Any]
    rules: dict[str, Any]
    questions: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Represented:
    representation: str


@dataclass(frozen=True, slots=True)
class _Question:
    question: str
    answer: _GoldAnswer


@dataclass(frozen=True, slots=True)
class _RepresentedQuestion(_Question):
    representation: str


_ENGLISH, _STRUCTURED = TypeAdapter(_EnglishRow), TypeAdapter(_StructuredRow)
# Parts are checked one by one: a row may have millions, and pydantic would collect the faults of all.
_PART, _QUESTION = TypeAdapter(_Represented), TypeAdapter(_Question)
_PART_QUESTION = TypeAdapter(_RepresentedQuestion)


def _validated(form: TypeAdapter[Any], value: object, where: str) -> Any:
    try:
        return form.validate_python(value)
    except ValidationError as error:
        field, message = first_error(error)
        named = "a row or a part of one" if field == "(root)" else f"the field {field!r} of a row"
        raise MalformedInputError(
            f"{named} is missing or malformed",
            where=where,
            found=message,
            expected="an official structured row, or "
            '{"id": ..., "theory": ..., "questions": [{"question": ..., "answer": ...}]}',
        ) from None


def _english(row: object, where: str) -> LabelledTheory:
    form: _EnglishRow = _validated(_ENGLISH, row, where)
    theory = parse_theory(form.theory, assumption=_assumption(form.id, where), where=where)
    questions = []
    for number, part in enumerate(form.questions, 1):
        at = f"{where}, question {number}"
        item: _Question = _validated(_QUESTION, part, at)
        atom = parse_question(item.question, at)
        questions.append(GoldQuestion(atom=atom, text=item.question, answer=item.answer))
    return LabelledTheory(id=form.id, where=where, theory=theory, questions=tuple(questions))


def _structured(row: object, where: str) -> LabelledTheory:
    form: _StructuredRow = _validated(_STRUCTURED, row, where)
    world = _assumption(form.id, where)
    triples = _parts(_PART, form.triples, f"{where}, triples")
    facts = [parse_atom(item.representation, at) for at, item in triples]
    parts = _parts(_PART, form.rules, f"{where}, rules")
    rules = [_in_world(parse_rule(item.representation, at), world) for at, item in parts]
    try:
        theory = Theory(assumption=world, facts=tuple(facts), rules=tuple(rules))
    except MalformedInputError as error:
        raise error.within(where) from error
    questions = []
    for at, item in _parts(_PART_QUESTION, form.questions, f"{where}, questions"):
        atom = parse_atom(item.representation, at)
        if atom.variables():
            raise MalformedInputError(
                "a question must not have a variable", where=at, found=atom.text
            )
        questions.append(GoldQuestion(atom=atom, text=item.question, answer=item.answer))
    return LabelledTheory(id=form.id, where=where, theory=theory, questions=tuple(questions))


def _parts(form: TypeAdapter[Any], parts: dict[str, Any], where: str) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a structured row that are not padding, with their places."""
    for name, part in parts.items():
        if part is not None:
            yield f"{where}.{name}", _validated(form, part, f"{where}.{name}")


def _in_world(rule: Rule, world: Assumption) -> Rule:
    """Return the rule with its negated conditions, ``~`` in the files, as failure (CWA) or explicit negation (OWA)."""
    return Rule(
        conditions=tuple(
            c if c.polarity == "+" else c.with_polarity("~" if world == "CWA" else "-")
            for c in rule.conditions
        ),
        conclusion=rule.conclusion,
    )


def _assumption(identity: str, where: str) -> Assumption:
    """Return the assumption in a ProofWriter id (``AttNeg-OWA-D5-1``)."""
    named = [a for a in ASSUMPTIONS if a in identity.split("-")]
    if len(named) != 1:
        raise MalformedInputError(
            "the id does not say whether the world is closed or open",
            where=where,
            found=repr(identity)[:80],
            expected="an id with -CWA- or -OWA-, as in AttNeg-OWA-D5-1",
        )
    return named[0]


def parse_atom(text: str, where: str = "text") -> Atom:
    """Return ``("Bob" "is" "red" "+")`` as an atom; raise :class:`MalformedInputError` for another text."""
    found = _ANY_ATOM.fullmatch(text.strip())
    *terms, polarity = found.groups() if found else ("", "")
    if not all(map(is_term, terms)):
        raise MalformedInputError(
            "not an atom",
            where=where,
            found=text[:160],
            expected='("subject" "predicate" "object" "+"), the last "+", "-" or "~"',
        )
    subject, predicate, obj = terms
    return Atom(subject, predicate, obj, cast("Polarity", polarity))


def parse_rule(text: str, where: str = "text") -> Rule:
    """Return ``((atom atom ...) -> atom)`` as a rule; raise :class:`MalformedInputError` for another text."""
    found = _RULE.fullmatch(text)
    if found is None:
        raise MalformedInputError(
            "not a rule", where=where, found=text[:160], expected="((condition ...) -> conclusion)"
        )
    conditions, conclusion = found.groups()
    return Rule(
        conditions=tuple(parse_atom(c[0], where) for c in _ANY_ATOM.finditer(conditions)),
        conclusion=parse_atom(conclusion, where),
    )
