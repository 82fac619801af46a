"""Spell a user's Lean as the allow-list does: unknown names get other names, symbols become words.

A name is replaced, everywhere alike, only where the text itself binds it; ``p ∧ q`` becomes ``And p q``, and so on; or
``_root_.And p q`` if the texts hold the word ``And`` themselves: a binder of that name must not capture what a symbol
stands for. The result still has to pass :mod:`vcrt.environments.lean.grammar`: what is not understood here is left as
it is. Whether Lean agrees that it says the same is for :mod:`vcrt.environments.lean.sameness`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vcrt.environments.lean.grammar import FIELDS, GLOBAL, KEYWORDS, VOCABULARY, is_name
from vcrt.errors import MalformedInputError

_WORD = r"[^\W\d][\w'!?]*"
_DOTTED = re.compile(rf"{_WORD}(?:\.{_WORD})*")
_ATOM = re.compile(rf"\??{_DOTTED.pattern}")
# Nothing but a space is passed over.
_TOKEN = re.compile(rf"{_ATOM.pattern}|:=|=>|[^ ]")
#: Other spellings of one and the same symbol.
_SYNONYMS = {"λ": " fun ", "↦": "=>", "<->": "↔", "->": "→", "/\\": "∧", "\\/": "∨"}
#: How strongly a symbol binds, what its left and its right side need at least, and how it is said in words.
_INFIX = {
    "↔": (20, 21, 21, "{Iff} {} {}"),
    "→": (25, 26, 25, "{} → {}"),
    "∨": (30, 31, 30, "{Or} {} {}"),
    "∧": (35, 36, 35, "{And} {} {}"),
    "=": (50, 51, 51, "{Eq} {} {}"),
    "≠": (50, 51, 51, "{Not} ({Eq} {} {})"),
}
_NEGATION = 40
_TIGHTEST = 1024
#: How deep terms may stand in terms.
_MAX_DEPTH = 100
_BINDERS = frozenset(("fun", "∀", "∃"))
_SYMBOLS = frozenset("↔∨∧=≠¬∃")
_CLOSING = {"(": ")", "⟨": "⟩"}
_NAMING = frozenset(("theorem", "def", "instance", "inductive", "class", "have", "case"))
_BEFORE_MEMBERS = frozenset(("|", "where"))
_BEFORE_NAMES = _NAMING | _BINDERS | _BEFORE_MEMBERS | {"("}
#: Words that begin or part terms and tactics in Lean, so that they name nothing.
_RESERVED = frozenset(
    (
        *("at", "by", "calc", "do", "else", "exact", "exists", "forall", "from", "fun", "have"),
        *("if", "in", "let", "match", "matches", "nomatch", "open", "refine", "return"),
        *("set_option", "show", "sorry", "suffices", "then", "theorem", "unless", "using"),
        *("where", "with"),
    )
)
_NOT_FREE = _RESERVED | _NAMING


@dataclass(frozen=True, kw_only=True, slots=True)
class Spelling:
    """How the names of some texts are spelt where Lean reads them: ``aliases`` by original name.

    ``types`` are the inductive types and classes among them, and ``members`` their constructors and fields; ``words``
    are those of the texts for which a symbol might stand too.
    """

    aliases: Mapping[str, str]
    types: frozenset[str] = frozenset()
    members: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()

    def spelt(self, text: str, *, where: str) -> str:
        """``text`` for Lean; raises :class:`MalformedInputError` for a word that nothing in the texts binds."""
        text = _unified(text)
        for word in _DOTTED.findall(text):
            self._check(word, where)
        return _as_words(_DOTTED.sub(lambda match: self._alias(match[0]), text), self._said())

    def _said(self) -> Mapping[str, str]:
        return {word: f"_root_.{word}" if word in self.words else word for word in GLOBAL}

    def restored(self, text: str) -> str:
        """A message of Lean with the names that the user wrote."""
        names = {alias: name for name, alias in self.aliases.items()}
        return _DOTTED.sub(
            lambda match: ".".join(names.get(part, part) for part in match[0].split(".")), text
        )

    def _alias(self, word: str) -> str:
        head, *parts = word.split(".")
        changed = [
            self.aliases.get(part, part) if self._is_member(head, part) else part for part in parts
        ]
        return ".".join([self.aliases.get(head, head), *changed])

    def _is_member(self, head: str, part: str) -> bool:
        return part in self.members and (head in self.types or part not in FIELDS)

    def _check(self, word: str, where: str) -> None:
        head, *_ = word.split(".")
        known = head in self.aliases or head in VOCABULARY or head in KEYWORDS or head == "_"
        if not known and not is_name(head):
            raise MalformedInputError(
                "a text that is not allowed to reach Lean",
                where=where,
                found=f"the word {head!r}",
                expected="names that are bound here, and the words "
                + ", ".join(sorted(VOCABULARY)),
            )


def spelling_of(texts: Sequence[str]) -> Spelling:
    """The spelling of the names that ``texts`` bind; names that the grammar knows stay as they are."""
    found = _Binders()
    words: set[str] = set()
    alone: set[str] = set()
    for text in texts:
        unified = _unified(text)
        dotted = _DOTTED.findall(unified)
        words.update(part for word in dotted for part in word.split("."))
        # With a dot behind it, a name binds nothing.
        alone.update(word for word in dotted if "." not in word)
        found.note(_TOKEN.findall(unified))
    aliases: dict[str, str] = {}
    numbers: dict[str, int] = {}
    for name in dict.fromkeys(found.names):
        if is_name(name) or name in VOCABULARY or name in _RESERVED or name == "_":
            continue
        letters = re.sub(r"[^A-Za-z]", "", name)[:12] or "v"
        number = numbers.get(letters, 1)
        while f"{letters}{number}" in words:
            number += 1
        numbers[letters] = number
        aliases[name] = f"{letters}{number}"
        words.add(aliases[name])
    return Spelling(
        aliases=aliases,
        types=frozenset(found.types),
        members=frozenset(found.members),
        words=frozenset(alone & GLOBAL),
    )


@dataclass(kw_only=True, slots=True)
class _Binders:
    """The names that tokens bind, in the order of their appearance."""

    names: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    members: list[str] = field(default_factory=list)

    def note(self, tokens: Sequence[str]) -> None:
        """Add what ``tokens`` bind."""
        for index, token in enumerate(tokens):
            if token[0] == "?" and len(token) > 1:
                self.names.append(token[1:])
            if token not in _BEFORE_NAMES:
                continue
            run = _run_of_words(tokens, index + 1)
            after = tokens[index + 1 + len(run) : index + 2 + len(run)]
            if token in _NAMING:
                self.names += run[:1]
                self.types += run[:1] if token in ("inductive", "class") else []
            elif token in _BINDERS or (token == "(" and after == [":"]):
                self.names += run
            elif token in _BEFORE_MEMBERS:
                self.names += run[:1]
                self.members += run[:1]


def _run_of_words(tokens: Sequence[str], start: int) -> list[str]:
    end = start
    # By index: to skip to the start, or to copy from it, would take time for every token before or behind.
    while end < len(tokens) and _is_free_word(tokens[end]):
        end += 1
    return list(tokens[start:end])


def _is_free_word(token: str) -> bool:
    return re.fullmatch(_WORD, token) is not None and token not in _NOT_FREE


def _unified(text: str) -> str:
    for synonym, symbol in _SYNONYMS.items():
        text = text.replace(synonym, symbol)
    return re.sub(" +", " ", text).strip(" ")


def with_explicit_binders(statement: str) -> str:
    """A theorem's statement with its binders in round brackets: that makes no difference to its proof."""
    depth, parts = 0, []
    for character in statement:
        if character in "{}":
            depth -= character == "}"
            outermost = depth == 0
            depth += character == "{"
            parts.append({"{": "(", "}": ")"}[character] if outermost else character)
        else:
            depth += (character in _CLOSING) - (character in _CLOSING.values())
            parts.append(character)
    return "".join(parts)


class _NotUnderstood(Exception):
    """The text has a form that is not known here."""


def _as_words(text: str, said: Mapping[str, str]) -> str:
    """``text`` with words in place of logical symbols, or as it is if it has none or is not understood."""
    if not _SYMBOLS & set(text):
        return text
    try:
        return _Reader(_TOKEN.findall(text), said).whole()
    except _NotUnderstood:
        return text


@dataclass(slots=True)
class _Reader:
    """Reads terms by the strength of their symbols, as Lean does; ``said`` is how the words for them are written."""

    tokens: Sequence[str]
    said: Mapping[str, str]
    position: int = 0
    depth: int = 0

    def whole(self) -> str:
        """Terms, and between them what stands between terms."""
        parts: list[str] = []
        after_term = False
        while (token := self._peek()) is not None:
            between = token in (":", ":=", "=>", "|", ",") or token in KEYWORDS
            if not between and after_term:
                # For Lean no term ends here: to go on would join what it keeps apart.
                raise _NotUnderstood
            parts.append(self._take() if between else self._term(0))
            after_term = not between
        return " ".join(parts).replace(" ,", ",")

    def _peek(self) -> str | None:
        return self.tokens[self.position] if self.position < len(self.tokens) else None

    def _take(self, expected: str | None = None) -> str:
        token = self._peek()
        if token is None or expected not in (None, token):
            raise _NotUnderstood
        self.position += 1
        return token

    def _term(self, strength: int) -> str:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise _NotUnderstood
        left, looseness = self._operand(), _TIGHTEST
        while (symbol := self._peek()) in _INFIX:
            own, left_side, right_side, form = _INFIX[str(symbol)]
            # As for Lean, what is on the left ends here too if it is too loose; `a = b = c` then goes no further.
            if own < strength or looseness < left_side:
                break
            self._take()
            right = self._term(right_side)
            if symbol != "→":
                left, right = _grouped(left), _grouped(right)
            left, looseness = form.format(left, right, **self.said), own
        self.depth -= 1
        return left

    def _operand(self) -> str:
        token = self._peek()
        if token == "¬":
            return self._negation()
        if token in _BINDERS:
            return self._binding()
        parts = self._arguments()
        # Both take all that follows; ∀ and ∃ are no arguments without brackets.
        if parts and self._peek() == "fun":
            parts.append(self._binding())
        elif parts and self._peek() == "¬":
            parts.append(f"({self._negation()})")
        if not parts:
            raise _NotUnderstood
        return " ".join(parts)

    def _negation(self) -> str:
        self._take("¬")
        return f"{self.said['Not']} {_grouped(self._term(_NEGATION))}"

    def _arguments(self) -> list[str]:
        """The names and groups that stand side by side."""
        parts = []
        while (token := self._peek()) is not None:
            if token in _CLOSING:
                parts.append(self._group())
            elif _ATOM.fullmatch(token) and token not in KEYWORDS and token != "fun":
                parts.append(self._take())
            else:
                break
        return parts

    def _group(self) -> str:
        opening = self._take()
        text = self._term(0)
        while (mark := self._peek()) in (":", ","):
            self._take()
            text += ", " if mark == "," else " : "
            text += self._term(0)
        return f"{opening}{text}{self._take(_CLOSING[opening])}"

    def _binding(self) -> str:
        binder = self._take()
        variables = self._arguments()
        kind = ""
        if self._peek() == ":":
            self._take()
            kind = f" : {self._term(0)}"
        mark = self._take("=>" if binder == "fun" else ",")
        body = self._term(0)
        if binder == "∃":
            for variable in reversed(_single(variables)):
                body = f"{self.said['Exists']} (fun {variable}{kind} => {body})"
            return body
        return f"{binder} {' '.join(variables)}{kind}{' =>' if mark == '=>' else mark} {body}"


def _single(variables: Sequence[str]) -> list[str]:
    """Bound variables one by one: ``(x y : N)`` as ``(x : N)`` and ``(y : N)``."""
    found = []
    for variable in variables:
        names, colon, kind = variable.strip("()").partition(" : ")
        found += [f"({name} : {kind})" if colon else name for name in names.split(" ")]
    return found


def _grouped(text: str) -> str:
    """``text`` in brackets, unless it is one word or stands in brackets already."""
    if " " not in text:
        return text
    depth = 0
    for index, character in enumerate(text):
        depth += (character in _CLOSING) - (character in _CLOSING.values())
        if depth == 0:
            return text if index == len(text) - 1 else f"({text})"
    raise _NotUnderstood
