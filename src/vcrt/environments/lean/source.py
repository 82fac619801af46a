"""Take a Lean file apart: comments out, commands at the left margin, and the tactics in the proof of a theorem.

Promises the number of the line on which everything begins. Only the layout is looked at: whether a text may reach Lean
is for :mod:`vcrt.environments.lean.grammar` to say. Also finds the commands that may change how Lean reads those behind
them, as what is judged is judged without the rest of its file. That is the same only if nothing before it makes its
words or symbols mean something else: no notation, no macro, no attribute that is not known to leave terms alone, and no
name of the prelude's given to anything else. Not covered: imports, and what they bring in, as the report says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from vcrt.environments.lean.grammar import GLOBAL, VOCABULARY

_OPENING = re.compile(r"--|/-|'\\?\"'|\"")
_COMMENT_MARK = re.compile(r"/-|-/")
_STRING_END = re.compile(r'(?<!\\)(?:\\\\)*"')
_BY = re.compile(r"by(?!\w)")
_NO_COMMANDS = frozenset(("have", "case", "exact", "refine"))
_NAMING = frozenset(
    (
        *("def", "abbrev", "axiom", "opaque", "inductive", "structure", "class", "instance"),
        *("theorem", "lemma", "namespace"),
    )
)
_BINDING = frozenset(("variable", "variables"))
#: Commands that leave the reading of others alone, unless they give a name of the prelude's to something; and words
#: that begin no command at all.
_KNOWN = frozenset(
    (
        *(*_NO_COMMANDS, *_NAMING, *_BINDING, "set_option", "example", "open", "import"),
        *("#check", "#print", "#reduce", "#synth", "universe", "section", "end"),
    )
)
_TYPES = frozenset(("inductive", "structure", "class"))
_MODIFIERS = frozenset(
    ("noncomputable", "private", "protected", "public", "unsafe", "partial", "nonrec", "@[simp]")
)
#: Words of commands that change it, wherever they stand: for Lean a command need not begin a line.
_CHANGING = frozenset(
    (
        *("notation", "notation3", "infix", "infixl", "infixr", "prefix", "postfix", "mixfix"),
        *("macro", "macro_rules", "syntax", "declare_syntax_cat", "elab", "elab_rules"),
        *("binder_predicate", "attribute", "alias", "export", "include", "omit", "local", "scoped"),
        *("mutual", "run_cmd", "run_elab", "run_meta", "#eval", "#eval!", "#exit", "unif_hint"),
        *("initialize", "builtin_initialize", "add_decl_doc", "register_option", "seal", "unseal"),
    )
)
_OPTIONS = (
    *("pp.", "linter.", "trace.", "maxHeartbeats", "maxRecDepth", "autoImplicit"),
    "relaxedAutoImplicit",
)
_WORD = re.compile(r"[^\W\d][\w'!?]*")
_TOKEN = re.compile(r"@\[[^\]]*\]?|#?[^\W\d][\w'!?.]*|\S")
#: Where names stand in binders, fields and constructors: behind a bracket or a bar, and in front of a colon.
_BRACKET = re.compile(r"[({\[⦃]")
_END = re.compile(r"[(){}\[\]⦃⦄|]")
_BEHIND_BAR = re.compile(rf"\|\s*({_WORD.pattern})")


@dataclass(frozen=True, kw_only=True, slots=True)
class Original:
    """A command of a file as it stands there, with what stands before and behind it.

    ``text`` begins where the command before it ends, and ``following`` ends where the next one does. ``steps`` are the
    places of the steps of a proof in ``text``, which stand in one ``column``.
    """

    line: int
    name: str
    text: str
    following: str
    #: White space and comments at the beginning of ``following``, in characters.
    gap: int
    steps: tuple[tuple[int, int], ...] = ()
    column: int = 0

    @property
    def ends(self) -> tuple[int, int]:
        """Between which bytes of ``text + following`` the command ends."""
        end = len(self.text.encode())
        return end, end + len(self.following[: self.gap].encode())

    def rearranged(self, sequence: Sequence[int]) -> Original:
        """The command with the steps of its proof in another order."""
        if list(sequence) == list(range(len(self.steps))):
            return self
        (first, _), (_, last) = self.steps[0], self.steps[-1]
        texts = [self.text[slice(*self.steps[index])] for index in sequence]
        # Behind each a comment may stand that goes to the end of its line.
        steps = ("\n" + " " * self.column).join(texts)
        return replace(self, text=self.text[:first] + steps + self.text[last:])


@dataclass(frozen=True, kw_only=True, slots=True)
class Flaw:
    """A place in a file that cannot be taken apart."""

    line: int
    found: str
    expected: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A line that is not blank: its number, the column and place at which it begins, and its text from there on."""

    number: int
    column: int
    start: int
    text: str

    @property
    def end(self) -> int:
        """The place in the file at which it ends."""
        return self.start + len(self.text)

    def part(self, begin: int, end: int | None = None) -> tuple[Line, ...]:
        """What stands between two of its characters, if that is not blank."""
        text = self.text[begin:end]
        begin += len(text) - len(text.lstrip(" "))
        line = Line(
            number=self.number,
            column=self.column + begin,
            start=self.start + begin,
            text=text.strip(" "),
        )
        return (line,) if line.text else ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """Lines, or parts of lines, that belong together."""

    lines: tuple[Line, ...]

    @property
    def line(self) -> int:
        """The number of its first line."""
        return self.lines[0].number

    @property
    def text(self) -> str:
        """All of it on one line."""
        return " ".join(line.text for line in self.lines)


@dataclass(frozen=True, kw_only=True, slots=True)
class Command(Block):
    """A line at the left margin and the indented ones below it.

    ``around`` holds places in the file: where the command before it ends, and where the next one begins and ends.
    """

    around: tuple[int, int, int]

    def original(self, source: str, name: str, steps: Sequence[Block] = ()) -> Original:
        """It as it stands in ``source``, where it declares ``name`` and its proof has these steps."""
        begin, following, behind = self.around
        end = self.lines[-1].end
        return Original(
            line=self.line,
            name=name,
            text=source[begin:end],
            following=source[end:behind],
            gap=following - end,
            steps=tuple((s.lines[0].start - begin, s.lines[-1].end - begin) for s in steps),
            column=steps[0].lines[0].column if steps else 0,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TacticProof:
    """A theorem that ends in ``:= by`` and tactics."""

    statement: Block
    tactics: tuple[Block, ...]


def plain_text(source: str) -> str:
    """A file's text without what other systems put at its beginning and at the ends of its lines."""
    return source.removeprefix("\ufeff").replace("\r\n", "\n")


def read_commands(source: str) -> tuple[tuple[Command, ...], Flaw | None]:
    """The commands of a plain text, and the comment or quotation that never ends, if there is one.

    Such a flaw takes what follows it, and the command in the midst of which it stands, out of the file.
    """
    text, flaw = _without_comments(source)
    groups: list[list[Line]] = []
    begin = 0
    for number, raw in enumerate(text.split("\n"), start=1):
        stripped, column, start = raw.strip(" "), len(raw) - len(raw.lstrip(" ")), begin
        begin += len(raw) + 1
        if not stripped:
            continue
        line = Line(number=number, column=column, start=start + column, text=stripped)
        if line.column == 0 or not groups:
            groups.append([])
        groups[-1].append(line)
    end = len(text)
    ends = [0, *(lines[-1].end for lines in groups), end]
    starts = [*(lines[0].start for lines in groups), end]
    commands = tuple(
        Command(lines=tuple(lines), around=(ends[k], starts[k + 1], ends[k + 2]))
        for k, lines in enumerate(groups)
    )
    at_margin = len(text) == 0 or text.endswith("\n")
    return (commands if flaw is None or at_margin else commands[:-1]), flaw


def read_proof(command: Command) -> TacticProof | Flaw | None:
    """The tactics of a theorem; None if its proof is a term."""
    for index, line in enumerate(command.lines):
        mark = line.text.find(":=")
        if mark < 0:
            continue
        proof = (*line.part(mark + 2), *command.lines[index + 1 :])
        if not proof or not _BY.match(proof[0].text):
            return None
        tactics = _blocks([*proof[0].part(2), *proof[1:]])
        if isinstance(tactics, Flaw):
            return tactics
        statement = Block(lines=(*command.lines[:index], *line.part(0, mark)))
        return TacticProof(statement=statement, tactics=tactics)
    return None


def _blocks(lines: Sequence[Line]) -> tuple[Block, ...] | Flaw:
    """Tactics that begin in one column; deeper lines go on with the tactic above them."""
    groups: list[list[Line]] = []
    for line in lines:
        column = lines[0].column
        if line.column < column:
            return Flaw(
                line=line.number,
                found=f"a tactic in column {line.column}: {line.text}",
                expected=f"tactics in column {column}, as the first one, or deeper to go on with one",
            )
        if line.column == column:
            groups.append([])
        groups[-1].append(line)
    return tuple(Block(lines=tuple(group)) for group in groups)


def _without_comments(source: str) -> tuple[str, Flaw | None]:
    """The text with spaces in place of its comments, cut off where a comment or a quotation never ends."""
    parts: list[str] = []
    position = 0
    while (match := _OPENING.search(source, position)) is not None:
        parts.append(source[position : match.start()])
        end = _end(source, match)
        quoted = match[0].endswith('"')
        if end is None or (quoted and "\n" in source[match.start() : end]):
            # What stands on lines of its own in a quotation would be taken for commands.
            what = (
                "quotation that does not end on its line" if quoted else "comment that never ends"
            )
            number = source.count("\n", 0, match.start()) + 1
            flaw = Flaw(
                line=number, found=f"a {what}", expected="an end before the line's or file's"
            )
            return "".join(parts), flaw
        skipped = source[match.start() : end]
        parts.append(skipped if quoted else re.sub(r"[^\n]", " ", skipped))
        position = end
    return "".join(parts) + source[position:], None


def _end(source: str, opening: re.Match[str]) -> int | None:
    """Where the comment or the quotation ends that begins with ``opening``; comments in ``/- -/`` may be nested."""
    if opening[0] == "--":
        end = source.find("\n", opening.end())
        return len(source) if end < 0 else end
    if opening[0].startswith("'"):
        return opening.end()
    if opening[0] == '"':
        closing = _STRING_END.search(source, opening.end())
        return None if closing is None else closing.end()
    # Lean passes over the character behind the first mark: `/-/` does not open two comments, nor `/--/` close one.
    depth, position = 1, opening.end() + 1
    while depth:
        mark = _COMMENT_MARK.search(source, position)
        if mark is None:
            return None
        depth += 1 if mark[0] == "/-" else -1
        position = mark.end()
    return position


def may_change_others(command: str) -> bool:
    """Whether Lean may read what follows ``command`` otherwise than without it."""
    tokens = _TOKEN.findall(command)
    first = next((token for token in tokens if token not in _MODIFIERS), "section")
    return (
        # No command begins with any other mark.
        (first not in _KNOWN and (first[0].isalpha() or first[0] in "#@"))
        or any(token in _CHANGING or _is_unknown_attribute(token) for token in tokens)
        or any(map(_changes, tokens, [*tokens[1:], ""]))
        or bool(_TYPES.intersection(tokens) and _names_of_types(command) & VOCABULARY)
        or bool(_BINDING.intersection(tokens) and _names_in_brackets(command) & VOCABULARY)
        or bool("open" in tokens and _words(tokens) & VOCABULARY)
    )


def begins_command(text: str) -> bool:
    """Whether ``text`` surely begins a command of its own, and does not go on with what stands before it."""
    first = next(iter(_TOKEN.findall(text)), "")
    known = _KNOWN | _CHANGING | _MODIFIERS
    return first in known - _NO_COMMANDS or first.startswith(("@[", "#"))


def _is_unknown_attribute(token: str) -> bool:
    return token.startswith("@[") and token not in _MODIFIERS


def _changes(keyword: str, name: str) -> bool:
    """Whether an option, or a declaration by its name, changes the reading of others."""
    if keyword == "set_option":
        return not name.startswith(_OPTIONS)
    return keyword in _NAMING and bool(VOCABULARY & _words([name]))


def _names_of_types(command: str) -> set[str]:
    """The names of fields and constructors, as far as they can be told from types."""
    groups = [part.split(":")[:-1] for part in _END.split(command) if ":" in part]
    before = [_WORD.findall(text) for group in groups for text in group]
    last = {words[-1] for words in before if words}
    # Of what stands before a colon, the last word is a name; those before it may end another field's type.
    others = {word for words in before for word in words} & GLOBAL
    return last | others | set(_BEHIND_BAR.findall(command)) | _names_in_brackets(command)


def _names_in_brackets(command: str) -> set[str]:
    parts = [_END.split(part, maxsplit=1)[0] for part in _BRACKET.split(command)[1:]]
    return _words([part.partition(":")[0] for part in parts])


def _words(texts: Iterable[str]) -> set[str]:
    return {word for text in texts for word in _WORD.findall(text)}
