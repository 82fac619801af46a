"""Allow only listed texts to reach Lean: every text is code, so everything that is not listed is refused.

A text is one line of known tokens in one of a few forms, with balanced brackets. Names are a single letter, or letters
followed by digits, so that no name is a keyword of Lean; only names that vcrt makes have underscores. Lean decides
whether a text makes sense.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from vcrt.errors import MalformedInputError
from vcrt.printable import counted

#: The longest allowed text, in characters.
MAX_STEP_CHARS = 2000
#: Names of the prelude and words of Lean that terms and types may use.
VOCABULARY = frozenset(
    ("fun", "Prop", "Type", "True", "False", "Not", "And", "Or", "Iff", "Exists", "Eq", "Bool", "N")
)
#: Words that may follow a dot, besides names.
FIELDS = frozenset(
    (
        *("left", "right", "mp", "mpr", "intro", "inl", "inr", "refl", "rec"),
        *("true", "false", "z", "s", "mk"),
    )
)
#: Words that no term may hold.
KEYWORDS = frozenset(
    (
        *("theorem", "def", "noncomputable", "instance", "inductive", "class", "where"),
        *("have", "case", "exact", "refine"),
    )
)
_BRACKETS = {")": "(", "⟩": "⟨"}
_NAME = re.compile(r"[A-Za-z]{1,12}[0-9]{1,6}|[a-zA-Zαβγ]")
_IDENTIFIER = re.compile(r"[A-Za-zαβγ][A-Za-z0-9αβγ]*(?:\.[A-Za-z][A-Za-z0-9]*)*")
# A token must end where it ends for Lean: else `a_r0001` would pass as three tokens.
_TOKEN = re.compile(
    rf" |(?:\?(?:{_NAME.pattern})|{_IDENTIFIER.pattern}|(?<!\w)_)(?!\w)|:=|=>|[()⟨⟩:→,∀|]"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A text of an allowed form: its ``kind`` (``theorem``, ``case``, ...) and the ``name`` in it."""

    kind: str
    name: str
    text: str


def is_name(text: str) -> bool:
    """Return whether ``text`` may be the name of a step, a theorem or a goal."""
    return _NAME.fullmatch(text) is not None and text not in VOCABULARY


def rename(text: str, names: Mapping[str, str]) -> str:
    """Replace the first component of every identifier in ``text`` that ``names`` knows."""

    def replacement(match: re.Match[str]) -> str:
        head, dot, rest = match[0].partition(".")
        return names.get(head, head) + dot + rest

    return _IDENTIFIER.sub(replacement, text)


def names_in(text: str) -> frozenset[str]:
    """Return the first component of every identifier in ``text``."""
    return frozenset(found.partition(".")[0] for found in _IDENTIFIER.findall(text))


def read_declaration(text: str, *, where: str, classes: Collection[str] = ()) -> Step:
    """Read a ``theorem``, ``def``, ``inductive`` or ``instance``; an instance only of one of ``classes``.

    Other episodes could see an instance of any other class. Raise :class:`MalformedInputError` for another text.
    """
    tokens = _tokens(text, where)
    body = tokens[1:] if tokens[0] == "noncomputable" else tokens
    kind, name = _head(body, where)
    if kind == "inductive" and body is tokens:
        _inductive(body[2:], where)
    elif kind == "instance":
        statement, proof = _split(body[2:], ":=", where)
        if len(statement) < 2 or statement[0] != ":" or statement[1] not in classes:
            raise _refused(where, " ".join(body), "an instance of a class of this very episode")
        _terms((statement[1:], proof), where)
    elif kind == "def" or (kind == "theorem" and body is tokens):
        statement, proof = _split(body[2:], ":=", where)
        _terms((*_signature(statement, where), proof), where)
    else:
        raise _refused(where, kind, "theorem, def, inductive or instance")
    return Step(kind=kind, name=name, text=text)


def read_class(text: str, *, where: str) -> Step:
    """Read ``class NAME (α : Type) where FIELD : TYPE``, the form of a text before the steps of an episode."""
    tokens = _tokens(text, where)
    kind, name = _head(tokens, where)
    before, after = _split(tokens[2:], "where", where)
    if kind != "class" or len(after) < 3 or not is_name(after[0]) or after[1] != ":":
        raise _refused(where, text, "class NAME (α : Type) where FIELD : TYPE")
    _terms((before, after[2:]), where)
    return Step(kind=kind, name=name, text=text)


def read_statement(text: str, *, where: str) -> Step:
    """Read ``theorem NAME (binders) : TYPE``, without a proof."""
    tokens = _tokens(text, where)
    kind, name = _head(tokens, where)
    if kind != "theorem":
        raise _refused(where, kind, "theorem")
    _terms(_signature(tokens[2:], where), where)
    return Step(kind=kind, name=name, text=text)


def read_tactic(text: str, *, where: str) -> Step:
    """Read ``case NAME => exact TERM`` or ``have NAME : TYPE := TERM``."""
    tokens = _tokens(text, where)
    kind, name = _head(tokens, where)
    if kind == "case" and tokens[2:4] == ["=>", "exact"]:
        _terms((tokens[4:],), where)
    elif kind == "have" and tokens[2:3] == [":"]:
        _terms(_split(tokens[3:], ":=", where), where)
    else:
        raise _refused(where, text, "case NAME => exact TERM, or have NAME : TYPE := TERM")
    return Step(kind=kind, name=name, text=text)


def read_term_tactic(text: str, kind: str, *, where: str) -> str:
    """Read ``exact TERM`` or ``refine TERM`` as ``kind`` says; only ``refine`` may name new goals (``?name``)."""
    tokens = _tokens(text, where)
    if tokens[0] != kind:
        raise _refused(where, tokens[0], kind)
    _terms((tokens[1:],), where, goals=kind == "refine")
    return text


def read_type(text: str, *, where: str) -> str:
    """Read a bare term, such as the class application of a probe."""
    _terms((_tokens(text, where),), where)
    return text


def _tokens(text: str, where: str) -> list[str]:
    if len(text) > MAX_STEP_CHARS:
        found = counted(len(text), "character")
        raise _refused(where, found, f"at most {MAX_STEP_CHARS} characters")
    tokens: list[str] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            found = f"{text[position]!r} at character {position}"
            raise _refused(where, found, "one line of names, brackets and : := => → , ∀ | _")
        tokens.append(match[0])
        position = match.end()
    tokens = [token for token in tokens if token != " "]
    if not tokens:
        raise _refused(where, "an empty text", "a step")
    for token in tokens:
        if _IDENTIFIER.fullmatch(token):
            _check_identifier(token, where)
    _check_brackets(tokens, where)
    return tokens


def _check_identifier(token: str, where: str) -> None:
    head, *fields = token.split(".")
    known = head in VOCABULARY or (head in KEYWORDS and not fields)
    if not (known or _NAME.fullmatch(head)):
        expected = "a name (one letter, or letters and then digits) or a word of the prelude"
        raise _refused(where, token, expected)
    for part in fields:
        if part not in FIELDS and not _NAME.fullmatch(part):
            raise _refused(where, token, "a known field or constructor")


def _check_brackets(tokens: list[str], where: str) -> None:
    stack: list[str] = []
    for token in tokens:
        if token in _BRACKETS.values():
            stack.append(token)
        elif token in _BRACKETS and (not stack or stack.pop() != _BRACKETS[token]):
            raise _refused(where, f"{token!r} without its partner", "balanced brackets")
    if stack:
        raise _refused(where, f"{stack[-1]!r} without its partner", "balanced brackets")


def _head(tokens: list[str], where: str) -> tuple[str, str]:
    if len(tokens) < 2 or not is_name(tokens[1]):
        raise _refused(where, " ".join(tokens[:2]), "a keyword and a name")
    return tokens[0], tokens[1]


def _split(tokens: list[str], at: str, where: str) -> tuple[list[str], list[str]]:
    if tokens.count(at) != 1:
        raise _refused(where, f"{tokens.count(at)} times {at!r}", f"{at!r} once")
    index = tokens.index(at)
    return tokens[:index], tokens[index + 1 :]


def _signature(tokens: list[str], where: str) -> list[list[str]]:
    """Split at the first colon outside brackets, into binders, if there are any, and type."""
    depth = 0
    for index, token in enumerate(tokens):
        depth += (token in _BRACKETS.values()) - (token in _BRACKETS)
        if token == ":" and depth == 0:
            return [part for part in (tokens[:index],) if part] + [tokens[index + 1 :]]
    raise _refused(where, " ".join(tokens), "a type after ':'")


def _inductive(tokens: list[str], where: str) -> None:
    constructors = tokens[3:]
    regular = bool(constructors) and all(
        t == "|" if i % 2 == 0 else is_name(t) for i, t in enumerate(constructors)
    )
    if tokens[:3] != [":", "Type", "where"] or not regular or len(constructors) % 2:
        raise _refused(where, " ".join(tokens), ": Type where | NAME | NAME ...")


def _terms(parts: Collection[list[str]], where: str, *, goals: bool = False) -> None:
    """Check that each part is a non-empty run of tokens that may stand in a term."""
    for part in parts:
        if not part:
            raise _refused(where, "nothing", "a term")
        for token in part:
            if token in KEYWORDS or token in (":=", "|") or (token[0] == "?" and not goals):
                raise _refused(where, f"{token!r} inside a term", "a term")


def _refused(where: str, found: str, expected: str) -> MalformedInputError:
    return MalformedInputError(
        "a text that is not allowed to reach Lean",
        where=where,
        found=found if len(found) <= 120 else found[:117] + "...",
        expected=expected,
    )
