"""Compare what Lean makes of a user's text, as it stands in the file, with what it makes of the text that vcrt judges.

Lean itself parses and elaborates both: the first after its own notations, the second after the prelude alone. What they
declare must then agree term by term in the kernel's language, down to every name that is not the user's own; names of
the user's must correspond one to one. Of two things nothing is asked: names of bound variables, and whether binders
are implicit. ``a ≠ b`` is compared with ``Not (Eq a b)``, which is its definition, and where Lean could not elaborate
a part of both, those parts agree if their types do. Like :mod:`vcrt.environments.lean.elaborator`, for one commit of
Lean only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vcrt.environments.lean.elaborator import Command, Elaborator, State
from vcrt.environments.lean.notations import Notations
from vcrt.environments.lean.values import Parts, Value, dotted, elements, name_parts

# Kinds of constants and of terms, and the fields of Lean's structures that are used here.
_DEFINITION, _THEOREM, _INDUCTIVE, _CONSTRUCTOR, _RECURSOR = 1, 2, 5, 6, 7
_COMMON, _BODY = 0, 1
_LEVELS, _TYPE = 1, 2
_CONSTRUCTORS = 4
_OF_INDUCTIVE = 1
_CONST, _APP, _LAMBDA, _PI, _LET, _MDATA, _PROJECTION = 4, 5, 6, 7, 8, 10, 11
#: Which fields of a term hold the terms that it is made of.
_PARTS = {_APP: (0, 1), _LAMBDA: (1, 2), _PI: (1, 2), _LET: (1, 2, 3)}
_NODE, _NODE_KIND = 1, 1
_MODULE_DOC = ("Lean", "Parser", "Command", "moduleDoc")
_NE, _NOT, _EQ, _SORRY = ("Ne",), ("Not",), ("Eq",), ("sorryAx",)
#: An error's term is ``sorryAx`` of a type, a flag and a place in the text.
_NUM_SORRY = 3


class Differs(Exception):
    """Lean does not make the same of both texts; the text says where they part."""


def difference(
    elaborator: Elaborator, notations: Notations, start: State, items: Sequence[Mapping[str, Any]]
) -> list[Any] | None:
    """Place and reason of the first item that Lean does not make the same of, or None.

    An item is ``{"original": text, "ends": [first, last], "name": name, "spelt": text, "alias": name}``: the command
    that begins ``original`` must end between the two bytes of ``ends``; what follows there shows that it ends. It
    declares ``name``, and the spelling ``alias``.
    """
    original, spelt = notations.on(start), start
    agreement = _Agreement(elaborator, start)
    for index, item in enumerate(items):
        try:
            first = _first_command(elaborator, original, item)
            commands = elaborator.parse(spelt, item["spelt"])
            if len(commands) != 2 or commands[0].said:
                raise Differs(f"vcrt's spelling is no command for Lean: {item['spelt']}")
            original, problems = elaborator.run_command(original, first, brief=True)
            spelt, others = elaborator.run_command(spelt, commands[0], brief=True)
            agreement.declared(original, item["name"], spelt, item["alias"])
            if bool(problems) != bool(others):
                accepted = "vcrt's spelling" if problems else "the text as it stands"
                message = (problems or others)[0][2]
                raise Differs(f"Lean accepts {accepted} alone, and says of the other: {message}")
        except Differs as problem:
            return [index, str(problem)]
    return None


def _first_command(elaborator: Elaborator, state: State, item: Mapping[str, Any]) -> Command:
    """The first command that is no title or remark of the file."""
    low, high = item["ends"]
    for command in elaborator.read_ahead(state, item["original"]):
        if command.said:
            raise Differs(f"Lean does not read the text as it stands: {command.said[0][2]}")
        if command.syntax is None:
            break
        if (
            command.syntax.tag == _NODE
            and name_parts(command.syntax.field(_NODE_KIND)) == _MODULE_DOC
        ):
            continue
        end = command.end.field(0).number()
        if not low <= end <= high:
            raise Differs("for Lean the text ends elsewhere than for vcrt")
        return command
    raise Differs("for Lean there is no command in the text")


class _Agreement:
    """Which constants of the two sides are the same ones, and that they are."""

    def __init__(self, elaborator: Elaborator, start: State) -> None:
        self._elaborator = elaborator
        self._library = elaborator.library
        self._start = elaborator.environment(start)
        self._level_equal = elaborator.library.on_objects("lean_level_eq", 2)
        self._partner: dict[Parts, Parts] = {}
        self._partner_back: dict[Parts, Parts] = {}
        self._paired: set[tuple[Parts, Parts]] = set()

    def declared(self, original: State, name: str, spelt: State, alias: str) -> None:
        """Compare what two commands have declared, if anything; raises :class:`Differs`."""
        self._environments = (
            self._elaborator.environment(original),
            self._elaborator.environment(spelt),
        )
        names = self._library.name(*name.split(".")), self._library.name(*alias.split("."))
        found = [self._found(side, each) for side, each in enumerate(names)]
        if found == [None, None]:
            return
        if None in found:
            raise Differs(
                "Lean takes one of the text and its spelling for a declaration, and not the other"
            )
        self._pending: list[tuple[Value, Value]] = []
        # Kept while addresses are compared: another object could come to stand at that of a forgotten one.
        self._seen: dict[tuple[int, int], tuple[Value, Value]] = {}
        self._pair(*names)
        while self._pending:
            one, other = map(_plain, self._pending.pop())
            if (one.address, other.address) not in self._seen:
                self._seen[one.address, other.address] = one, other
                self._compare(one, other)

    def _compare(self, one: Value, other: Value) -> None:
        head, arguments = _application(one)
        name = _constant_name(head)
        if name == _NE and len(arguments) == 3:
            self._compare_inequality(head, arguments, other)
        elif name == _SORRY and len(arguments) >= _NUM_SORRY:
            other_head, others = _application(other)
            if _constant_name(other_head) != _SORRY or len(others) != len(arguments):
                raise Differs(
                    "Lean finds an error in the text as it stands, and not in its spelling"
                )
            self._pending.append((arguments[0], others[0]))
            self._pending += zip(arguments[_NUM_SORRY:], others[_NUM_SORRY:], strict=True)
        elif one.tag != other.tag:
            raise Differs("Lean makes terms of another form of the text and of its spelling")
        elif one.tag == _CONST:
            self._pair(one.field(0), other.field(0))
            self._compare_levels(one, other)
        elif one.tag in _PARTS:
            self._pending += [(one.field(k), other.field(k)) for k in _PARTS[one.tag]]
        elif one.tag == _PROJECTION:
            self._pair(one.field(0), other.field(0))
            if one.field(1).address != other.field(1).address:
                raise Differs("Lean takes other parts of a structure")
            self._pending.append((one.field(2), other.field(2)))
        elif not self._elaborator.same_term(one, other):
            raise Differs("Lean makes other terms of the text and of its spelling")

    def _compare_inequality(self, head: Value, arguments: list[Value], other: Value) -> None:
        negation, inner = _application(other)
        if _constant_name(negation) == _NOT and len(inner) == 1:
            equation, others = _application(inner[0])
            if _constant_name(equation) == _EQ and len(others) == len(arguments):
                self._compare_levels(head, equation)
                self._pending += zip(arguments, others, strict=True)
                return
        raise Differs("an inequality is read as something else")

    def _compare_levels(self, one: Value, other: Value) -> None:
        levels = [list(elements(each.field(1))) for each in (one, other)]
        if len(levels[0]) != len(levels[1]) or not all(
            self._level_equal(a.address, b.address) & 1 for a, b in zip(*levels, strict=True)
        ):
            raise Differs("Lean finds other universe levels")

    def _pair(self, one: Value, other: Value) -> None:
        """Take two constants for the same one: the same of the prelude, or two of the user's that are made alike."""
        names = name_parts(one), name_parts(other)
        if any(self._elaborator.find(self._start, each) is not None for each in (one, other)):
            if names[0] != names[1]:
                raise Differs(
                    f"what Lean takes for {dotted(one)} stands as {dotted(other)} in the spelling"
                )
            return
        known = self._partner.setdefault(names[0], names[1])
        known_back = self._partner_back.setdefault(names[1], names[0])
        if known != names[1] or known_back != names[0]:
            raise Differs(f"{dotted(one)} is not everywhere the same in the spelling")
        if names in self._paired:
            return
        self._paired.add(names)
        found, found_other = self._found(0, one), self._found(1, other)
        if found is None or found_other is None or found.tag != found_other.tag:
            raise Differs(f"{dotted(one)} is declared in another way")
        self._pair_declarations(found, found_other, one)

    def _pair_declarations(self, found: Value, found_other: Value, name: Value) -> None:
        bodies = found.field(0), found_other.field(0)
        commons = [body.field(_COMMON) for body in bodies]
        levels = [
            [name_parts(level) for level in elements(each.field(_LEVELS))] for each in commons
        ]
        if levels[0] != levels[1]:
            raise Differs(f"{dotted(name)} has other universe levels")
        self._pending.append((commons[0].field(_TYPE), commons[1].field(_TYPE)))
        if found.tag in (_DEFINITION, _THEOREM):
            self._pending.append((bodies[0].field(_BODY), bodies[1].field(_BODY)))
        elif found.tag == _INDUCTIVE:
            self._pair_all(*(list(elements(body.field(_CONSTRUCTORS))) for body in bodies))
        elif found.tag == _CONSTRUCTOR:
            self._pair(*(body.field(_OF_INDUCTIVE) for body in bodies))
        elif found.tag == _RECURSOR:
            self._pair_all(*(list(elements(body.field(_OF_INDUCTIVE))) for body in bodies))
        else:
            raise Differs(f"{dotted(name)} is nothing that a text of an episode declares")

    def _pair_all(self, names: list[Value], others: list[Value]) -> None:
        if len(names) != len(others):
            raise Differs("a type has another number of constructors")
        for one, other in zip(names, others, strict=True):
            self._pair(one, other)

    def _found(self, side: int, name: Value) -> Value | None:
        return self._elaborator.find(self._environments[side], name)


def _plain(term: Value) -> Value:
    """A term without Lean's remarks on it."""
    while term.tag == _MDATA:
        term = term.field(1)
    return term


def _application(term: Value) -> tuple[Value, list[Value]]:
    """What is applied, and to what."""
    arguments: list[Value] = []
    while (term := _plain(term)).tag == _APP:
        arguments.append(term.field(1))
        term = term.field(0)
    return term, arguments[::-1]


def _constant_name(term: Value) -> Parts | None:
    return name_parts(term.field(0)) if term.tag == _CONST else None
