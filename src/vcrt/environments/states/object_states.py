"""Write the state of Python objects as canonical bytes: values, attributes, and how they refer to each other.

It serves environments whose native state consists of objects of arbitrary classes. Two states have equal bytes if their
objects have the same classes, equal values, and the same objects in the same places (cycles and sharing count). The
order of a mapping's keys does not count, except in an ``OrderedDict``; the order of a set never does.

Values of built-in types have forms of their own, objects of Python classes are written by their attributes, and objects
of C classes by what rebuilds them (``__reduce_ex__``, ``copyreg``). Mutable objects have an identity: a second
reference to one differs from a reference to an equal one. State outside of the objects (open files, databases, C code
without a protocol) is refused with its place, never passed over.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import groupby
from json.encoder import encode_basestring
from operator import itemgetter
from types import CellType, FunctionType
from typing import Any

from vcrt.environments.states.code_identity import (
    MADE_BY_C,
    code_digest,
    digest_of,
    is_elsewhere,
    is_fixed,
    is_found,
    name_of,
    sets_variables,
)
from vcrt.environments.states.object_copies import deeply, has_protocol, own_slots
from vcrt.environments.states.object_forms import (
    LONG,
    Place,
    attributes_alone,
    path_of,
    rebuilt,
    without_form,
    writing,
)
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json, json_text

#: Classes whose values are their own JSON form; whole numbers too, unless they are very long.
_AS_JSON = frozenset({type(None), bool, str})
#: The flag of classes that Python code made.
_MADE_BY_PYTHON = 1 << 9
_EMPTY = CellType()
#: Digests of the first class of each name that no module here has; a second class of the name is told from it.
_FIRST: dict[str, str] = {}
#: Looks at members of sets of objects are counted within so many others, since each level doubles them; the most of
#: these, which take a second; and the most sets, or keys, of objects within others.
_DEEP, _MOST_LOOKS, _MOST_WITHIN = 4, 10_000, 12
#: Entries of a class's body that do not affect behaviour.
_SAYS_NOTHING = {
    *("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__annotations__"),
    "_abc_impl",
}


def canonical_objects(
    state: object, *, ignored: Collection[str] = (), key_order: bool = False
) -> bytes:
    """Return the canonical bytes of a state without the attributes named in ``ignored``.

    With ``key_order`` the order of a mapping's keys counts. Raise :class:`vcrt.errors.MalformedInputError`, naming the
    attribute, for a value that cannot be read: a lock or connection, an iterator, a function with variables of its own,
    an object of a C class that nothing rebuilds; or for a state that is nested too deeply.

    >>> canonical_objects({"b": {2, 1}, "a": (1, None)}) == canonical_objects({"a": (1, None), "b": {1, 2}})
    True
    """
    return _written(_form(state, frozenset(ignored), key_order))


def form_of(
    state: object, *, ignored: Collection[str] = (), set_order: bool = False, key_order: bool = True
) -> Json:
    """Return a state as JSON, keys in their order (set members too if ``set_order``); a text if it is unreadable."""
    try:
        return _form(state, frozenset(ignored), key_order, set_order)
    except MalformedInputError:
        return "unread"


def first_difference(one: Any, other: Any, path: str = "state") -> str | None:
    """Return where two forms of states first differ, such as ``state.shelf["a"]``; None if they are equal.

    Keys may hold any argument of a call: :func:`without_keys` removes them.

    >>> first_difference(form_of({"a": [1, 2]}), form_of({"a": [1, 3]}))
    'state["a"][1]'
    """
    with deeply():
        return next((where for where, *_ in differences(one, other, path)), None)


def differences(one: Any, other: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Give each place where two forms of states differ, and the form of what is there in both."""
    if _written(one) == _written(other):
        return
    found = False
    if isinstance(one, dict) and isinstance(other, dict) and list(one) == list(other):
        for parts, others in zip(one.values(), other.values(), strict=True):
            for step, value, now in _paired(parts, others):
                for each in differences(value, now, path + step[:50]):
                    found = True
                    yield each
    if not found:
        yield path, one, other


def without_keys(path: str) -> str:
    """Return a path from :func:`first_difference` up to its first key, which may hold anything.

    >>> without_keys('state.shelf["a"].of[1]')
    'state.shelf[...]'
    """
    start, bracket, _ = path.partition("[")
    return f"{start}[...]" if bracket else start


def _paired(parts: Any, others: Any) -> Iterable[tuple[str, Any, Any]]:
    """Pair the parts of two forms: attributes, items of a mapping, or items of a sequence."""
    if isinstance(parts, dict) and isinstance(others, dict):
        return [(f".{name}", parts[name], others[name]) for name in parts if name in others]
    if not isinstance(parts, list) or not isinstance(others, list) or len(parts) != len(others):
        return ()
    if not all(isinstance(each, list) for each in (*parts, *others)):
        return [(f"[{n}]", *pair) for n, pair in enumerate(zip(parts, others, strict=True))]
    same = [key for key, _ in parts] == [key for key, _ in others]
    pairs = zip(parts, others, strict=True) if same else ()
    return [(f"[{key}]", value, now) for (key, value), (_, now) in pairs]


def _form(state: object, ignored: frozenset[str], key_order: bool, set_order: bool = False) -> Json:
    """Return the form of a state, whatever order its sets have in this process."""
    try:
        with deeply():
            writer = StateWriter(ignored, key_order, set_order)
            form = writer.form(state, None)
            if not writer.tied:
                return form
            # Other references to them tell members that look alike apart; members that still look alike are refused.
            known = writer.references
            again = [
                StateWriter(ignored, key_order, set_order, known, last) for last in (False, True)
            ]
            forms = [each.form(state, None) for each in again]
    except RecursionError as error:
        raise _too_deep() from error
    if _written(forms[0]) != _written(forms[1]):
        raise MalformedInputError(
            "a state has members of a set, or keys, that differ only in their identity",
            where=again[0].tied,
            expected="members that differ in what they hold",
            remedy="give them a name or a number; or override canonical()",
        )
    return forms[0]


def _written(form: Json) -> bytes:
    """Return canonical JSON as bytes; texts may have lone surrogates."""
    try:
        with deeply():
            return json_text(form).encode("utf-8", "surrogatepass")
    except RecursionError as error:
        raise _too_deep() from error


def _too_deep() -> MalformedInputError:
    return MalformedInputError(
        "a state that is nested too deeply",
        where="state",
        found="objects that hold each other some thousands deep, or some hundreds on Python 3.12",
        expected="at most about two thousand objects, one in the other; 400 on Python 3.12",
        remedy="keep them in a list or a dictionary; or override canonical, snapshot and restore",
    )


def _too_nested(where: Place) -> MalformedInputError:
    return MalformedInputError(
        "a state whose sets, or keys, are objects that hold each other",
        where=f"{path_of(where, exact=False)[:60]}...",
        found=f"more than {_MOST_LOOKS:,} ways to them, or {_MOST_WITHIN} of these sets one in the other",
        expected="members whose own sets and keys are texts and numbers, or few objects",
        remedy="keep the members' names in such sets, or the members in lists; or override canonical()",
    )


@dataclass(eq=False)
class StateWriter:
    """A writer that numbers objects as it meets them, so that a second reference differs from an equal object.

    ``tied`` is the place of the first set or mapping with members that look alike in all that they hold. If
    ``known_references`` are given (the places of further references to each object), they order such members; ``last``
    reverses the order of members that still look alike.
    """

    ignored: frozenset[str]
    key_order: bool
    set_order: bool = False
    known_references: Mapping[int, list[str]] = field(default_factory=dict)
    last: bool = False
    met: dict[int, int] = field(default_factory=dict)
    #: Identities are unique among living objects alone, so temporary objects are kept until the end.
    kept: list[object] = field(default_factory=list)
    owners: dict[int, object] = field(default_factory=dict)
    tied: str | None = None
    references: dict[int, list[str]] = field(default_factory=dict)
    #: Looks, and texts, that others are within; and the number of looks deep in others.
    depth: int = 0
    num_within: int = 0
    num_deep: int = 0

    def form(self, value: Any, where: Place) -> Json:
        """Return the JSON form of a value; ``where`` is the path to it from the state."""
        kind: Any = type(value)
        if kind in _AS_JSON or (kind is int and -LONG < value < LONG):
            return value  # type: ignore[no-any-return]
        tag, write, base, can_change = writing(kind)
        if can_change:
            met, key = self.met, id(value)
            if key in met:
                self.references.setdefault(key, []).append(path_of(where, exact=False))
                return {"again": met[key]}
            met[key] = len(met)
            self.kept.append(value)
        form = write(self, value, where)
        if base is kind:
            return {tag: form} if tag else form
        more = self._attributes(value, base, where)
        parts: dict[str, Json] = {name_of(kind): more if write is attributes_alone else form}
        if more and write is not attributes_alone:
            parts["attributes"] = more
        return parts | self.what_it_does(kind, where)

    def what_it_does(self, kind: Any, where: Place) -> dict[str, Json]:
        """Return a class's behaviour unless its name identifies it; a digest if another process may have sent it."""
        if not kind.__flags__ & _MADE_BY_PYTHON:
            return {}
        if not is_found(kind):
            return {"class": self._class(kind, where)}
        if not is_elsewhere(kind):
            return {}
        code = _class_digest(kind)
        if kind.__module__ != "__main__" and _FIRST.setdefault(name_of(kind), code) == code:
            return {}
        return {"code": code}

    def _attributes(self, value: Any, base: Any, where: Place) -> dict[str, Json]:
        """Return the attributes of an object beside what its base class ``base`` holds.

        If the class defines how its objects are rebuilt, an attribute that cannot be written, such as a lock, is left
        out: then what rebuilds the object is written too, and must not hold the attribute.
        """
        kind: Any = type(value)
        found = dict(getattr(value, "__dict__", {}))
        for name, slot in own_slots(kind, base):
            if name in self.ignored:
                continue
            while name in found:  # of a class above, which this one hides
                name += "'"
            with suppress(AttributeError):  # not set
                found[name] = slot.__get__(value)
        forms: dict[str, Json] = {}
        left_out: MalformedInputError | None = None
        for name in sorted(found, key=str):
            if name in self.ignored:
                continue
            checkpoint = len(self.met)
            try:
                forms[name] = self.form(found[name], (where, ".{}", name))
            except MalformedInputError as error:
                if not has_protocol(kind):
                    raise
                self._forget(checkpoint)
                left_out = left_out or error
        if left_out is not None:
            try:
                forms["rebuilt with"] = rebuilt(self, value, where)
            except MalformedInputError:
                raise left_out from None
        return forms

    def _class(self, kind: Any, where: Place) -> Json:
        """Return a class's name if a module has it, else its behaviour: its bases and the code of its functions."""
        if is_found(kind):
            return name_of(kind)
        if id(kind) in self.met:
            return {"again": self.met[id(kind)]}
        self.met[id(kind)] = len(self.met)
        bases = [self._class(each, where) for each in kind.__bases__]
        body = {
            name: self._code(each, (where, " (class, {})", name))
            for name, each in sorted(vars(kind).items())
            if name not in _SAYS_NOTHING and name not in self.ignored
        }
        made = {} if is_found(type(kind)) else {"made by": self._class(type(kind), where)}
        return {"bases": bases, "body": body, **made}

    def _code(self, value: Any, where: Place) -> Json:
        """Return an entry of a class's body: code and values; of an object that C made, the kind alone."""
        if type(value) in MADE_BY_C:
            return name_of(type(value))
        inner = [value]
        if isinstance(value, property):
            inner = [value.fget, value.fset, value.fdel]
        elif isinstance(value, staticmethod | classmethod):
            inner = [value.__func__]
        elif isinstance(value, cached_property):
            inner = [value.func]
        return [self._part_of_class(each, where) for each in inner]

    def _part_of_class(self, value: Any, where: Place) -> Json:
        if isinstance(value, FunctionType):
            return self.function(value, where, of_class=True)
        if isinstance(value, type):
            return self._class(value, where)
        return self.form(value, where)

    def function(self, value: FunctionType, where: Place, *, of_class: bool = False) -> Json:
        """Return a function's name if a module has it, else its code; it must hold nothing mutable.

        Its closure may hold values only if it is ``of_class``: otherwise another function may set them.
        """
        found = is_found(value)
        if found and value.__module__.partition(".")[0] in sys.stdlib_module_names:
            return {"name": name_of(value)}
        if value.__dict__.keys() - {"__wrapped__"}:
            raise without_form(value, where)
        module = sys.modules.get(value.__module__ or "")
        if value.__module__ != "__main__" and not of_class:
            space = None if module is None else vars(module)
            if value.__globals__ is not space:
                # It may depend on variables that nothing else can see.
                raise without_form(value, where)
        if found:
            sent = {"code": digest_of(value)} if is_elsewhere(value) else {}
            return {"name": name_of(value), **sent}
        held: list[Json] = []
        for cell in value.__closure__ or ():
            inner = cell.cell_contents if cell != _EMPTY else None
            if isinstance(inner, type):  # such as the class that `super()` means
                held.append(self._class(inner, where))
            elif is_fixed(inner) and of_class and not sets_variables(value.__code__):
                held.append(self.form(inner, where))
            elif not isinstance(inner, FunctionType) or not is_found(inner):
                raise without_form(value, where)
        for each in (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()):
            if not is_fixed(each):
                raise without_form(value, where)
            held.append(self.form(each, where))
        return {"function": name_of(value), "code": code_digest(value.__code__), "held": held}

    def _forget(self, checkpoint: int) -> None:
        """Remove the numbers given since the checkpoint, and what was written of their objects."""
        while len(self.met) > checkpoint:
            self.met.popitem()

    def _looked_at(self, *values: tuple[Any, Place]) -> str:
        """Return the form of values by themselves, as text; forget the objects met on the way."""
        checkpoint, references = len(self.met), self.references
        self.references = {}
        self.depth += 1
        self.num_deep += self.depth > _DEEP
        try:
            if self.num_deep > _MOST_LOOKS:
                raise _too_nested(values[0][1])
            text = json_text([self.form(*each) for each in values])
        finally:
            self.depth -= 1
            known = self.known_references
            marks: Json = [
                [number - checkpoint, sorted(known[each])]
                for each, number in self.met.items()
                if number >= checkpoint and each in known
            ]
            self._forget(checkpoint)
            self.references = references
        return f"{text} {json_text(marks)}" if marks else text

    def _in_order(
        self, values: Iterable[Any], where: Place, look: Callable[[Any], str]
    ) -> list[Any]:
        """Sort values by what they hold and by other references to them alone."""
        looked = [(look(each), each) for each in values]
        looked.sort(key=itemgetter(0))
        ordered: list[Any] = []
        for _, some in groupby(looked, key=itemgetter(0)):
            alike = [each for _, each in some]
            if len(alike) > 1 and self.tied is None:
                self.tied = path_of(where)
            ordered += reversed(alike) if self.last else alike
        return ordered

    def members(self, values: Iterable[Any], where: Place) -> list[Json]:
        """Return the forms of a set's members, as text unless they keep their order."""
        place = (where, ": a member", None)
        members = list(values)
        if self.set_order:
            forms: list[Json] = [_text(each) or self.form(each, place) for each in members]
            return forms
        others = [each for each in members if _text(each) is None]
        if len(others) > 1:
            others = self._in_order(others, place, lambda each: self._looked_at((each, place)))
        texts = [self._inner(each, place) for each in others]
        texts += [text for each in members if (text := _text(each)) is not None]
        return list[Json](sorted(texts))

    def _inner(self, value: Any, where: Place) -> str:
        """Return the form of a member or key as text; each text within texts makes them twice as long."""
        self.num_within += 1
        try:
            if self.num_within > _MOST_WITHIN:
                raise _too_nested(where)
            return json_text(self.form(value, where))
        finally:
            self.num_within -= 1

    def entries(
        self, pairs: Iterable[tuple[Any, Any]], where: Place, *, in_order: bool = False
    ) -> list[Json]:
        """Return keys, as JSON, with the forms of their values, sorted by key, or in their order where that counts."""
        place = (where, ": a key", None)
        entries = list(pairs)
        # As in Python, where two OrderedDicts of different order are not equal.
        if not (in_order or self.key_order):
            others = [pair for pair in entries if _text(pair[0]) is None]
            if len(others) > 1:
                others = self._entries_in_order(others, where)
            if others:
                entries = [pair for pair in entries if _text(pair[0]) is not None] + others
        inner = self.form if self.set_order and self.key_order else self._inner
        texts = [_text(key) or inner(key, place) for key, _ in entries]
        keyed = [(text, *pair) for text, pair in zip(texts, entries, strict=True)]
        if not (in_order or self.key_order):
            keyed.sort(key=itemgetter(0))
        return [
            [text, v if type(v) in _AS_JSON else self.form(v, (where, "[{!r}]", key))]
            for text, key, v in keyed
        ]

    def _entries_in_order(self, pairs: list[tuple[Any, Any]], where: Place) -> list[Any]:
        """Sort entries whose keys are objects: by the keys, and by the values where keys look alike."""
        place = (where, ": a key", None)
        keys = [self._looked_at((key, place)) for key, _ in pairs]
        alone = {id(pair): text for pair, text in zip(pairs, keys, strict=True)}
        number = Counter(keys)

        def look(pair: tuple[Any, Any]) -> str:
            text = alone[id(pair)]
            if number[text] == 1:
                return text
            inner = (where, "[{!r}]", pair[0])
            return text + self._looked_at((pair[0], place), (pair[1], inner))

        return self._in_order(pairs, place, look)

    def sequence(self, values: Iterable[Any], where: Place) -> list[Json]:
        """Return the forms of the values of a sequence."""
        return [
            v if type(v) in _AS_JSON else self.form(v, (where, "[{!r}]", i))
            for i, v in enumerate(values)
        ]


def _text(key: Any) -> str | None:
    """Return the JSON of a key that is a text or a number; None for other keys."""
    if type(key) is str:
        return encode_basestring(key)
    return repr(key) if type(key) is int and -LONG < key < LONG else None


@lru_cache(maxsize=1024)
def _class_digest(kind: Any) -> str:
    return digest_of(kind)
