"""Say where two orders of two calls end apart: places of the state, with both values, and parts of outputs.

States of objects are compared by their canonical form, folders by their files and lines, others as their environment
shows them, or by their canonical bytes. Not covered: which orders differ (see :mod:`vcrt.certificates.lattice`).
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from io import BytesIO
from itertools import islice, zip_longest
from typing import Any, TypeAlias
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

from vcrt.certificates.certificates import Certificate
from vcrt.environments.contract import Episode
from vcrt.environments.folder_states import (
    MAX_BYTES,
    Entry,
    named_tree,
    printable_path,
    with_rows,
    with_texts,
)
from vcrt.environments.shared_prefixes import state_after
from vcrt.environments.states.database_rows import opened_copy
from vcrt.environments.states.object_copies import deeply
from vcrt.environments.states.object_states import differences, form_of, without_keys
from vcrt.environments.tool_calls import CallEnvironment, is_redacted, unseen_by
from vcrt.hashing import Json, json_text
from vcrt.orders import Order

#: The most places that are listed of a state, or of an output, and the most characters of a value.
MAX_PLACES, MAX_VALUE = 20, 80
#: What stands for every value that evidence is to hide.
HIDDEN = "hidden"


@dataclass(frozen=True, kw_only=True, slots=True)
class Differing:
    """A place where two orders end apart, such as ``state.stock["tea"]``, and what each has there.

    ``forward`` is of the reference order, ``reverse`` of the other one; None if there is nothing. Values are shortened
    around what differs. ``call`` is the call whose output has the place, None for a place of the state.
    """

    where: str
    forward: str | None
    reverse: str | None
    call: int | None = None

    def to_json(self) -> dict[str, Json]:
        """The JSON form."""
        found: dict[str, Json] = {} if self.call is None else {"call": self.call}
        return {**found, "where": self.where, "forward": self.forward, "reverse": self.reverse}


#: A place, and the values there; None for nothing.
_Place: TypeAlias = tuple[str, str | None, str | None]


def difference_of(
    environment: CallEnvironment[Any], episode: Episode, certificate: Certificate
) -> tuple[Differing, ...]:
    """Return where the two orders of a certificate end apart; nothing if one of them is refused.

    States are replayed. Their keys and values are hidden where outputs are: with ``--redact``, or if the environment's
    class has a ``redact`` of its own. Raises what the environment raises.
    """
    paths = (certificate.forward, certificate.reverse)
    ends = [(*certificate.context, *path.operations) for path in paths]
    given, otherwise = (path.output_of for path in paths)
    found = []
    if certificate.verdict == "conflicts":
        found += difference_of_states(environment, episode, *ends)
    for call in certificate.observers:
        found += difference_of_outputs(given.get(call), otherwise.get(call), call)
    return tuple(found)


def difference_of_states(
    environment: CallEnvironment[Any], episode: Episode, one: Order, other: Order
) -> list[Differing]:
    """Return where the states after two sequences differ, as :func:`difference_of` does."""
    with deeply():
        places = _of_states(environment, episode, one, other)
        return [_around(*place) for place in islice(places, MAX_PLACES)]


def difference_of_outputs(one: str | None, other: str | None, call: int) -> list[Differing]:
    """Return where two outputs of a call differ."""
    with deeply():
        places = _of_texts(one, other, "output")
        return [_around(*place, call) for place in islice(places, MAX_PLACES)]


def _of_states(
    environment: CallEnvironment[Any], episode: Episode, first: Order, second: Order
) -> Iterable[_Place]:
    start = environment.snapshot(environment.initial_state(episode))
    one, other = (state_after(environment, episode, each, start) for each in (first, second))
    objects = unseen_by(environment) is None
    if objects:
        form = partial(form_of, ignored=environment.ignored, key_order=environment.key_order)
        found = _of_forms(form(one), form(other), "state")
    else:
        found = _of_bytes(environment, one, other)
    if is_redacted(episode) or type(environment).redact is not CallEnvironment.redact:
        wheres = [without_keys(where) if objects else "state" for where, *_ in found]
        return [(where, HIDDEN, HIDDEN) for where in dict.fromkeys(wheres)]
    return found


def _around(where: str, one: str | None, other: str | None, call: int | None = None) -> Differing:
    """Shorten both values around the first character that differs."""
    start = 0
    if one is not None and other is not None and max(len(one), len(other)) > MAX_VALUE:
        pairs = enumerate(zip_longest(one, other))
        start = max(next((n for n, (a, b) in pairs if a != b), 0) - MAX_VALUE // 4, 0)

    def part(text: str | None) -> str | None:
        if text is None:
            return None
        end = start + MAX_VALUE
        return "..." * (start > 0) + text[start:end] + "..." * (len(text) > end)

    if len(where) > 2 * MAX_VALUE:
        where = f"{where[:MAX_VALUE]}...{where[-MAX_VALUE:]}"
    return Differing(where=where, forward=part(one), reverse=part(other), call=call)


def _of_forms(one: Json, other: Json, where: str) -> Iterator[_Place]:
    found = list(islice(differences(one, other, where), MAX_PLACES))
    # Objects are numbered as they are met: a new one gives all behind it other numbers.
    told = [each for each in found if not all(_kind(form) == "again" for form in each[1:])]
    for place, value, another in told or found[:1]:
        yield place, json_text(_plain(value)), json_text(_plain(another))


def _kind(form: Json) -> str:
    return next(iter(form), "") if isinstance(form, Mapping) else ""


def _plain(form: Any) -> Any:
    """Return a form without the names of classes: mappings, attributes and members are JSON objects and lists."""
    if not isinstance(form, Mapping):
        return form
    if _kind(form) == "again":
        return "an object that stands elsewhere, too"
    inner = next(iter(form.values()), None)
    if isinstance(inner, Mapping):
        return {name: _plain(each) for name, each in inner.items()}
    if not isinstance(inner, list):
        is_number = _kind(form) == "float" and str(inner).lstrip("-")[:1].isdigit()
        return float(str(inner)) if is_number else inner
    if inner == [] and any(word in _kind(form).lower() for word in ("dict", "counter")):
        return {}
    if inner and all(isinstance(each, list) for each in inner):
        return {key.strip('"'): _plain(each) for key, each in inner}
    return [_plain(each) for each in inner]


def _of_bytes(environment: CallEnvironment[Any], one: Any, other: Any) -> Iterator[_Place]:
    """Compare states that are no objects: folders by what is in them, others by their canonical bytes."""
    shown = [environment.shown(each) for each in (one, other)]
    if shown[0] != shown[1]:
        yield from _of_forms(form_of(shown[0]), form_of(shown[1]), "state")
        return
    kept = [environment.snapshot(each) for each in (one, other)]
    contents: list[Any] = [getattr(each, "content", each) for each in kept]
    names = [{drawn: own for own, drawn in getattr(each, "ids", {}).items()} for each in kept]
    ends: list[tuple[bytes, ...]] = [(c if isinstance(c, bytes) else b"",) for c in contents]
    found = _of_rows(ends, names, "state")
    if all(isinstance(each, dict) and _is_tree(each) for each in contents):
        by_path = [{with_texts(p, n): p for p in c} for c, n in zip(contents, names, strict=True)]
        trees = [named_tree(with_rows(c), n) for c, n in zip(contents, names, strict=True)]
        for path in sorted({*trees[0], *trees[1]}):
            entry, now = (each.get(path, Entry("", 0, b"")) for each in trees)
            known = path, f"{{state}}/{path}"  # a class's own, and those of vcrt.folder
            ignored = any(fnmatchcase(n, pattern) for pattern in environment.ignored for n in known)
            if not ignored and entry[:3] != now[:3]:
                where, old = f"file {printable_path(path)}", [p.get(path, path) for p in by_path]
                both = zip(contents, old, strict=True)
                ends = [
                    tuple(c[k].content if k in c else b"" for k in (p, f"{p}-wal")) for c, p in both
                ]
                first, then = (each.content if each.kind else None for each in (entry, now))
                found += _of_rows(ends, names, where) or _of_members(first, then, where)
    said = environment.canonical
    yield from found or [_of_lines(said(one), said(other), "state")]


def _is_tree(content: Mapping[str, object]) -> bool:
    return all(isinstance(each, Entry) for each in content.values())


def _of_rows(
    ends: Sequence[tuple[bytes, ...]], names: Sequence[Mapping[str, str]], where: str
) -> list[_Place]:
    """Compare the rows of two databases of SQLite, with ids named; [] for what are none, and for equal rows."""
    with suppress(sqlite3.Error):
        one, other = map(_rows, ends, names)
        return list(_of_forms(form_of(one), form_of(other), where))
    return []


def _of_members(one: bytes | None, other: bytes | None, where: str) -> list[_Place]:
    """Compare two files by lines; of two archives (ZIP, as office documents are) what is in them, properties last."""
    parts: list[dict[str, bytes]] = []
    with suppress(BadZipFile, EOFError, OSError, RuntimeError, ValueError, zlib.error):
        for content in (one, other):
            with ZipFile(BytesIO(content or b"")) as archive:
                held = archive.infolist()
                is_plain = {each.compress_type for each in held} <= {ZIP_STORED, ZIP_DEFLATED}
                if is_plain and sum(each.file_size for each in held) <= MAX_BYTES:
                    parts.append({each.filename: archive.read(each) for each in held})
    if len(parts) < 2 or parts[0] == parts[1]:
        return [_of_lines(one, other, where)]
    first, then = parts
    names = [n for n in {**first, **then} if first.get(n) != then.get(n)]
    return [
        _of_lines(first.get(name), then.get(name), f"{where}, {printable_path(name)}")
        for name in sorted(names, key=lambda name: (name.startswith("docProps/"), name))
    ]


def _rows(end: tuple[bytes, ...], names: Mapping[str, str]) -> dict[str, list[dict[str, object]]]:
    with opened_copy(*end) as database:
        database.text_factory = partial(str, encoding="utf-8", errors="backslashreplace")
        tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        database.row_factory = sqlite3.Row
        asked = {name: 'SELECT * FROM "{}"'.format(name.replace('"', '""')) for (name,) in tables}
        rows = {table: map(dict, database.execute(ask)) for table, ask in asked.items()}
        return {
            t: sorted((with_texts(row, names) for row in of), key=repr) for t, of in rows.items()
        }


def _of_texts(one: str | None, other: str | None, where: str) -> Iterator[_Place]:
    """Compare two outputs: of JSON the parts, else the lines."""
    try:
        value, another = (json.loads(each or "") for each in (one, other))
    except (ValueError, RecursionError):
        texts = [None if each is None else each.encode() for each in (one, other)]
        yield _of_lines(texts[0], texts[1], where)
    else:
        if json_text(value) == json_text(another):  # the order of keys differs
            yield where, one, other
        else:
            yield from _of_forms(form_of(value), form_of(another), where)


def _of_lines(one: bytes | None, other: bytes | None, where: str) -> _Place:
    """Return the first lines that differ; of a single line, of no text and of what is missing, the whole."""
    lines, others = ((each or b"").splitlines() for each in (one, other))
    has_lines = max(len(lines), len(others)) > 1 and b"\0" not in (one or b"") + (other or b"")
    if one is not None and other is not None and has_lines:
        for number, (line, another) in enumerate(zip_longest(lines, others), start=1):
            if line != another:
                return f"{where}, line {number}", _text(line), _text(another)
    return where, _text(one), _text(other)


def _text(content: bytes | None) -> str | None:
    if content is None:
        return None
    try:
        return json_text(content.decode())
    except UnicodeDecodeError:
        return f"bytes {content.hex()}"
