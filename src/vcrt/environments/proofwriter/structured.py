"""Read the s-expressions of ProofWriter's official ``meta-*.jsonl`` files, atoms and rules.

Data: Tafjord, Dalvi, Clark 2021, Allen Institute for AI, CC BY.
"""

from __future__ import annotations

import re
from typing import cast

from vcrt.environments.proofwriter.theory import Atom, Polarity, Rule, is_term
from vcrt.errors import MalformedInputError

_ATOM = r'\(\s*"([^"\\]*)"\s*"([^"\\]*)"\s*"([^"\\]*)"\s*"([+~-])"\s*\)'
_ANY_ATOM = re.compile(_ATOM)
_GROUPLESS = re.sub(r"\((\[)", r"(?:\1", _ATOM)
_RULE = re.compile(rf"\s*\(\s*\(((?:\s*{_GROUPLESS})*)\s*\)\s*->\s*({_GROUPLESS})\s*\)\s*")


def parse_atom(text: str, where: str = "text") -> Atom:
    """``("Bob" "is" "red" "+")`` as an atom; raises :class:`MalformedInputError`."""
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
    """``((atom atom ...) -> atom)`` as a rule; raises :class:`MalformedInputError`."""
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
