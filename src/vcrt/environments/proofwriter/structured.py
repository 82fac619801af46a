"""Read the official ``meta-*.jsonl`` files of ProofWriter: one theory a line, atoms and rules as s-expressions.

Promised: each row gives one theory with its questions, or one :class:`MalformedInputError` that names its place.
Proofs (``proofs``, ``allProofs``, ``proofDetails``) are not read. Data: Tafjord, Dalvi, Clark 2021, Allen Institute
for AI, CC BY.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TypeAlias, Union

from vcrt.environments.proofwriter.rows import (
    GoldQuestion,
    LabelledTheory,
    assumption_of,
    gold_answer,
    placed,
    text_field,
)
from vcrt.environments.proofwriter.theory import Assumption, Atom, Polarity, Rule, Theory, is_term
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json

SExpression: TypeAlias = Union[str, "tuple[SExpression, ...]"]
#: Real representations are three deep: a rule holds a list of conditions, which holds atoms.
MAX_DEPTH = 8
_TOKEN = re.compile(r'\s*(?:([()])|(->)|"([^"\\]*)")')


def structured_theory(
    row: dict[str, Json], where: str, *, assumption: Assumption | None = None
) -> LabelledTheory:
    """The theory in a row of a ``meta-*.jsonl`` file; ``assumption`` is read from its id unless it is given.

    Raises :class:`MalformedInputError`, as everything here does.
    """
    identity = text_field(row, "id", where)
    world = assumption_of(identity, assumption, where)
    facts = [
        parse_atom(text_field(item, "representation", at), at)
        for at, item in _entries(row, "triples", where)
    ]
    rules = [
        _in_world(parse_rule(text_field(item, "representation", at), at), world)
        for at, item in _entries(row, "rules", where)
    ]
    try:
        theory = Theory(assumption=world, facts=tuple(facts), rules=tuple(rules))
    except MalformedInputError as error:
        raise placed(error, where) from error
    questions = tuple(_question(item, at) for at, item in _entries(row, "questions", where))
    return LabelledTheory(id=identity, where=where, theory=theory, questions=questions)


def _entries(row: dict[str, Json], key: str, where: str) -> Iterator[tuple[str, dict[str, Json]]]:
    """The entries of ``triples``, ``rules`` or ``questions``; null is the official files' padding."""
    entries = row.get(key)
    if not isinstance(entries, dict):
        raise MalformedInputError(
            f"the field {key!r} is missing or not an object",
            where=where,
            found=type(entries).__name__,
            expected='an object such as {"triple1": {"text": ..., "representation": ...}}',
        )
    for name, entry in entries.items():
        if entry is None:
            continue
        at = f"{where}, {key}.{name}"
        if not isinstance(entry, dict):
            raise MalformedInputError(
                "not an object", where=at, found=type(entry).__name__, expected="an object or null"
            )
        yield at, entry


def _in_world(rule: Rule, world: Assumption) -> Rule:
    """A negated condition is ``~`` in the files; it means failure under CWA, explicit negation under OWA."""
    negation: Polarity = "~" if world == "CWA" else "-"
    conditions = tuple(
        c if c.polarity == "+" else c.with_polarity(negation) for c in rule.conditions
    )
    return Rule(conditions=conditions, conclusion=rule.conclusion)


def _question(item: dict[str, Json], where: str) -> GoldQuestion:
    return GoldQuestion(
        atom=_ground_question(parse_atom(text_field(item, "representation", where), where), where),
        text=text_field(item, "question", where),
        answer=gold_answer(item.get("answer"), where),
        depth=_count(item, "QDep", where),
        length=_count(item, "QLen", where),
    )


def _ground_question(atom: Atom, where: str) -> Atom:
    if atom.variables():
        raise MalformedInputError(
            "a question must not have a variable", where=where, found=atom.text
        )
    return atom


def _count(item: dict[str, Json], key: str, where: str) -> int | None:
    """A number, a number in quotes, or nothing (missing, null, empty): the files have all of them."""
    value = item.get(key)
    if value is None or value == "":
        return None
    if isinstance(value, str) and re.fullmatch("[0-9]{1,9}", value):
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise MalformedInputError(
        f"the field {key!r} is not a count",
        where=where,
        found=repr(value)[:80],
        expected="a number, a number in quotes, or an empty string",
    )


def parse_atom(text: str, where: str = "text") -> Atom:
    """``("Bob" "is" "red" "+")`` as an atom; raises :class:`MalformedInputError`."""
    return _atom(parse_s_expression(text, where), text, where)


def parse_rule(text: str, where: str = "text") -> Rule:
    """``((atom atom ...) -> atom)`` as a rule; raises :class:`MalformedInputError`."""
    match parse_s_expression(text, where):
        case (tuple(conditions), "->", conclusion):
            atoms = tuple(_atom(condition, text, where) for condition in conditions)
            return Rule(conditions=atoms, conclusion=_atom(conclusion, text, where))
    raise MalformedInputError(
        "not a rule", where=where, found=text[:160], expected="((condition ...) -> conclusion)"
    )


def _atom(value: SExpression, text: str, where: str) -> Atom:
    match value:
        case (str(subject), str(predicate), str(obj), "+" | "-" | "~" as polarity) if all(
            is_term(term) and term != "->" for term in (subject, predicate, obj)
        ):
            return Atom(subject, predicate, obj, polarity)
    raise MalformedInputError(
        "not an atom",
        where=where,
        found=text[:160],
        expected='("subject" "predicate" "object" "+"), the last "+", "-" or "~"',
    )


def parse_s_expression(text: str, where: str = "text") -> SExpression:
    """Parentheses, quoted strings and ``->``, at most :data:`MAX_DEPTH` deep; one expression and nothing after it."""
    open_lists: list[list[SExpression]] = [[]]
    position = 0
    end = len(text.rstrip())
    while position < end:
        token = _TOKEN.match(text, position)
        if token is None:
            raise _broken(text, position, where, "'(', ')', '->' or a quoted string")
        bracket, arrow, string = token.groups()
        if bracket == "(":
            if len(open_lists) > MAX_DEPTH:
                raise _broken(text, position, where, f"at most {MAX_DEPTH} open parentheses")
            open_lists.append([])
        elif bracket == ")":
            if len(open_lists) == 1:
                raise _broken(text, position, where, "no ')' without its '('")
            closed = tuple(open_lists.pop())
            open_lists[-1].append(closed)
        else:
            open_lists[-1].append(arrow or string)
        position = token.end()
    if len(open_lists) > 1:
        raise _broken(text, end, where, "a ')' for each '('")
    if len(open_lists[0]) != 1:
        raise _broken(text, end, where, "exactly one expression")
    return open_lists[0][0]


def _broken(text: str, position: int, where: str, expected: str) -> MalformedInputError:
    return MalformedInputError(
        "not an s-expression",
        where=f"{where}, character {position + 1}",
        found=text[max(0, position - 20) : position + 60] or "nothing",
        expected=expected,
    )
