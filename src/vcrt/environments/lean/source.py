"""Take a Lean file apart: comments out, commands at the left margin, and the tactics in the proof of a theorem.

Promises the number of the line on which everything begins. Only the layout is looked at: whether a text may reach Lean
is for :mod:`vcrt.environments.lean.grammar` to say.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

_OPENING = re.compile(r"--|/-|'\\?\"'|\"")
_COMMENT_MARK = re.compile(r"/-|-/")
_STRING_END = re.compile(r'(?<!\\)(?:\\\\)*"')
_BY = re.compile(r"by(?!\w)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """A text on one line, as joined from one or more, and the number of the first of them."""

    line: int
    text: str
    #: Where it begins and ends in the file, in characters, and the column in which it begins.
    span: tuple[int, int] = (0, 0)
    column: int = 0


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """A line at the left margin and the indented ones below it.

    ``around`` holds places in the file: where the command before it ends, and where the next one begins and ends.
    """

    lines: tuple[Line, ...]
    around: tuple[int, int, int]

    @property
    def line(self) -> int:
        """The number of its first line."""
        return self.lines[0].number

    @property
    def text(self) -> str:
        """All of it on one line."""
        return _joined(self.lines)

    def original(self, source: str, name: str, steps: Sequence[Piece] = ()) -> Original:
        """It as it stands in ``source``, where it declares ``name`` and its proof has these steps."""
        begin, following, behind = self.around
        end = self.lines[-1].end
        return Original(
            line=self.line,
            name=name,
            text=source[begin:end],
            following=source[end:behind],
            gap=following - end,
            steps=tuple((piece.span[0] - begin, piece.span[1] - begin) for piece in steps),
            column=steps[0].column if steps else 0,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TacticProof:
    """A theorem that ends in ``:= by`` and tactics, each joined to one line."""

    statement: Piece
    tactics: tuple[Piece, ...]


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
        before, mark, after = line.text.partition(":=")
        if not mark:
            continue
        start = len(line.text) - len(after.lstrip(" "))
        rest = [_from(line, start)] if after.strip(" ") else []
        rest += command.lines[index + 1 :]
        if not rest or not _BY.match(rest[0].text):
            return None
        body = rest[0].text[2:]
        first = [_from(rest[0], len(rest[0].text) - len(body.lstrip(" ")))] if body.strip() else []
        statement = " ".join([*(line.text for line in command.lines[:index]), before.strip(" ")])
        tactics = _blocks([*first, *rest[1:]])
        if isinstance(tactics, Flaw):
            return tactics
        return TacticProof(
            statement=Piece(line=command.line, text=statement.strip(" ")), tactics=tactics
        )
    return None


def _from(line: Line, start: int) -> Line:
    """The part of a line from character ``start`` on."""
    return Line(
        number=line.number,
        column=line.column + start,
        start=line.start + start,
        text=line.text[start:],
    )


def _blocks(lines: Sequence[Line]) -> tuple[Piece, ...] | Flaw:
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
    return tuple(
        Piece(
            line=group[0].number,
            text=_joined(group),
            span=(group[0].start, group[-1].end),
            column=group[0].column,
        )
        for group in groups
    )


def _joined(lines: Sequence[Line]) -> str:
    return " ".join(line.text for line in lines)


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
