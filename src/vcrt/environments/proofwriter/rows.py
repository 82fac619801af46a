"""Read rows from outside, JSON objects with a theory, its questions and gold answers; each fault names its place."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from vcrt.environments.proofwriter.engine import Answer
from vcrt.environments.proofwriter.theory import ASSUMPTIONS, Assumption, Atom, Theory
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json

_SURROGATE = re.compile("[\ud800-\udfff]")
ANSWERS: tuple[Answer, ...] = ("True", "False", "Unknown")


@dataclass(frozen=True, kw_only=True, slots=True)
class GoldQuestion:
    """A question of the data with its gold answer; ``depth`` and ``length`` (of its proof) where the data has them."""

    atom: Atom
    text: str
    answer: Answer
    depth: int | None = None
    length: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledTheory:
    """A theory of the data under its own ``id``, with its questions; ``where`` is its place in a file."""

    id: str
    where: str
    theory: Theory
    questions: tuple[GoldQuestion, ...]


def json_row(line: str, where: str) -> dict[str, Json]:
    """One line as a JSON object without repeated keys; raises :class:`MalformedInputError`."""
    if not line.strip():
        raise MalformedInputError(
            "empty line",
            where=where,
            found="no JSON object",
            expected="one JSON object a line",
            remedy="delete the line, or restore the row that stood here",
        )
    try:
        value = json.loads(line, object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as error:
        raise MalformedInputError(
            "not a JSON line",
            where=where,
            found=f"{str(error)[:160]} in {line[:80]!r}",
            expected="one complete JSON object a line, no key twice",
            remedy="fetch the file again if it was cut off; otherwise mend the line",
        ) from error
    if not isinstance(value, dict):
        raise MalformedInputError(
            "not a JSON object", where=where, found=type(value).__name__, expected="an object"
        )
    return value


def _unique_keys(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    # json keeps the last of equal keys, which would lose a fact or a rule without a word.
    keyed = dict(pairs)
    if len(keyed) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return keyed


def text_field(row: dict[str, Json], key: str, where: str) -> str:
    """A string field of a row that can be written out again; raises :class:`MalformedInputError`."""
    value = row.get(key)
    if not isinstance(value, str) or _SURROGATE.search(value):
        raise MalformedInputError(
            f"the field {key!r} is missing or not text",
            where=where,
            found=repr(value)[:80],
            expected="a string of whole Unicode characters",
        )
    return value


def assumption_of(identity: str, given: Assumption | None, where: str) -> Assumption:
    """The assumption ``given``, or else the one that a ProofWriter id names (``AttNeg-OWA-D5-1``)."""
    if given is not None:
        return given
    named = [a for a in ASSUMPTIONS if a in identity.split("-")]
    if len(named) != 1:
        raise MalformedInputError(
            "the id does not say whether the world is closed or open",
            where=where,
            found=repr(identity)[:80],
            expected="an id with -CWA- or -OWA-, as in AttNeg-OWA-D5-1",
            remedy="name the assumption when you call the reader",
        )
    return named[0]


def gold_answer(value: Json, where: str) -> Answer:
    """The gold answer: a boolean (CWA files) or a string (OWA files)."""
    text = str(value) if isinstance(value, bool) else value
    if text not in ANSWERS:
        raise MalformedInputError(
            "not a gold answer",
            where=f"{where}, field 'answer'",
            found=repr(value)[:80],
            expected='true, false, "True", "False" or "Unknown"',
        )
    return text


def placed(error: MalformedInputError, where: str) -> MalformedInputError:
    """The same error, with the file and line put before its place."""
    return MalformedInputError(
        error.what,
        where=where if error.where is None else f"{where}, {error.where}",
        found=error.found,
        expected=error.expected,
        remedy=error.remedy,
    )
