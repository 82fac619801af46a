"""Check again by the kernel alone what Lean accepted, in an environment that holds nothing but the prelude.

The effects of an elaborator, a tactic or an option on an environment are not copied. From the final state of a
sequence, only the constants that its declarations rest on are taken, each as text of the kernel's own language, and the
kernel gets them in the order of their dependences. Constructors and recursors are not taken, as the kernel makes them
anew from the inductive type. No axiom is allowed, neither in the declarations nor in the parts of the prelude that they
use. Like :mod:`vcrt_lean.elaborator`, this supports one commit of Lean only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from vcrt_lean.elaborator import Elaborator, Said, State
from vcrt_lean.values import (
    Parts,
    Value,
    construct,
    dotted,
    elements,
    listed,
    name_parts,
)

#: The axioms that an accepted step may rest on. The schemas need none: they prove propositions from their own rules.
ALLOWED_AXIOMS: frozenset[str] = frozenset()

# Kinds of constants and of kernel declarations.
_AXIOM, _DEFINITION, _THEOREM, _OPAQUE, _QUOTIENT, _INDUCTIVE, _CONSTRUCTOR, _RECURSOR = range(8)
_KINDS = (
    *("an axiom", "a definition", "a theorem", "opaque", "a quotient", "an inductive type"),
    *("a constructor", "a recursor"),
)
_INDUCTIVE_DECLARATION = 6
# The fields of Lean's structures that this module reads.
_COMMON, _BODY = 0, 1
_NAME, _LEVELS, _TYPE = 0, 1, 2
_DEFINITION_FIELDS, _SAFE = 4, 1
_INDUCTIVE_FIELDS, _NUM_PARAMETERS, _ALL, _CONSTRUCTORS, _IS_UNSAFE = 6, 1, 3, 4, 1
_OF_INDUCTIVE = 1


class Unsound(Exception):
    """The kernel alone does not accept what Lean accepted; the text says what."""


@dataclass(slots=True)
class _Progress:
    """A growing environment, and its constants beyond the prelude, as they are in the state."""

    environment: Value
    there: dict[Parts, tuple[Value, Value]]


class Rechecker:
    """A checker of declarations after ``start``, the state behind the prelude, in the states of one request.

    ``plain`` has the constants of the prelude that are known to rest on no axiom; it grows. Without ``asked``, nothing
    is checked.
    """

    def __init__(
        self, elaborator: Elaborator, start: State, plain: set[Parts], *, asked: bool
    ) -> None:
        self._asked = asked
        self._elaborator = elaborator
        self._start = elaborator.environment(start)
        self._plain = plain
        self._known: dict[str, list[list[tuple[Value, Value]]]] = {}
        #: The number of declarations found sound, and of kernel checks for them.
        self.num_declarations = self.num_kernel_checks = 0

    def check(self, state: State, name: str, said: Iterable[Said]) -> None:
        """Have the kernel check the constant ``name``, unless it was checked before with all that it rests on.

        Skip declarations that Lean does not call free of axioms in ``said``: they are not accepted anyway. Raise
        :class:`Unsound` if the kernel refuses one.
        """
        if not self._asked or not any(
            text == f"'{name}' does not depend on any axioms" for _, _, text in said
        ):
            return
        environment = self._elaborator.environment(state)
        known = self._known.setdefault(name, [])
        if not any(self._is_there(environment, constants) for constants in known):
            progress = _Progress(self._start, {})
            self._add(progress, environment, self._elaborator.library.name(name))
            known.append(list(progress.there.values()))
        self.num_declarations += 1

    def _is_there(self, environment: Value, constants: list[tuple[Value, Value]]) -> bool:
        for name, constant in constants:
            found = self._elaborator.find(environment, name)
            if found is None or not self._elaborator.same_constant(found, constant):
                return False
        return True

    def _add(self, progress: _Progress, state: Value, name: Value) -> None:
        """Have the kernel check a constant of an environment after all that it rests on."""
        parts = name_parts(name)
        if parts in progress.there or self._in_prelude(name, parts):
            return
        text = dotted(name)
        constant = self._found(state, name, text)
        # The kernel judges what rests on itself (a recursive type, a forged theorem).
        progress.there[parts] = name, constant
        if constant.tag in (_CONSTRUCTOR, _RECURSOR):
            for kind in _inductive_types(constant):
                self._add(progress, state, kind)
            if self._elaborator.find(progress.environment, name) is None:
                raise Unsound(f"{text} is not what the kernel makes of its type")
            return
        declaration, terms, group = self._declaration(state, constant, text)
        for each in group:
            progress.there.setdefault(name_parts(each), (each, self._found(state, each, text)))
        for term in terms:
            for used in self._elaborator.constants(term):
                self._add(progress, state, used)
        self.num_kernel_checks += 1
        after = self._elaborator.added(progress.environment, declaration)
        if after is None:
            raise Unsound(f"the kernel refuses {text}")
        progress.environment = after

    def _declaration(
        self, state: Value, constant: Value, text: str
    ) -> tuple[Value, list[Value], list[Value]]:
        """Return the kernel's declaration, the terms in it that must be known before, and the names it declares."""
        body = constant.field(0)
        common = body.field(_COMMON)
        if constant.tag == _INDUCTIVE:
            return self._inductive_declaration(state, body, text)
        if constant.tag not in (_THEOREM, _DEFINITION):
            raise Unsound(f"{text} is {_KINDS[constant.tag]}")
        is_safe = body.num_fields == _DEFINITION_FIELDS and body.byte(0) == _SAFE
        if constant.tag == _DEFINITION and not is_safe:
            raise Unsound(f"{text} is unsafe or partial")
        declaration = construct(constant.tag, body)
        return declaration, [common.field(_TYPE), body.field(_BODY)], [common.field(_NAME)]

    def _inductive_declaration(
        self, state: Value, body: Value, text: str
    ) -> tuple[Value, list[Value], list[Value]]:
        if body.num_fields != _INDUCTIVE_FIELDS or body.byte(_IS_UNSAFE):
            raise Unsound(f"{text} is unsafe")
        kinds, terms, names = [], [], []
        for name in elements(body.field(_ALL)):
            kind = self._found(state, name, text).field(0)
            made = []
            for constructor in elements(kind.field(_CONSTRUCTORS)):
                common = self._found(state, constructor, text).field(0).field(_COMMON)
                made.append(construct(0, constructor, common.field(_TYPE)))
                terms.append(common.field(_TYPE))
                names.append(constructor)
            common = kind.field(_COMMON)
            terms.append(common.field(_TYPE))
            names.append(name)
            kinds.append(construct(0, name, common.field(_TYPE), listed(made)))
        levels = body.field(_COMMON).field(_LEVELS)
        declaration = construct(
            *(_INDUCTIVE_DECLARATION, levels, body.field(_NUM_PARAMETERS), listed(kinds)), small=1
        )
        return declaration, terms, names

    def _found(self, state: Value, name: Value, text: str) -> Value:
        constant = self._elaborator.find(state, name)
        if constant is None:
            raise Unsound(f"{text} rests on {dotted(name)}, which is not there")
        return constant

    def _in_prelude(self, name: Value, parts: Parts) -> bool:
        """Return whether the prelude declares a constant; raise :class:`Unsound` if that rests on an axiom."""
        if parts in self._plain:
            return True
        if self._elaborator.find(self._start, name) is None:
            return False
        seen: set[Parts] = set()
        pending = [name]
        while pending:
            each = pending.pop()
            found = name_parts(each)
            if found in seen:
                continue
            seen.add(found)
            text = dotted(each)
            constant = self._found(self._start, each, text)
            if constant.tag in (_AXIOM, _OPAQUE, _QUOTIENT) and text not in ALLOWED_AXIOMS:
                raise Unsound(f"{dotted(name)} rests on {text}, {_KINDS[constant.tag]}")
            body = constant.field(0)
            pending += self._elaborator.constants(body.field(_COMMON).field(_TYPE))
            if constant.tag in (_DEFINITION, _THEOREM):
                pending += self._elaborator.constants(body.field(_BODY))
            elif constant.tag == _INDUCTIVE:
                pending += elements(body.field(_CONSTRUCTORS))
            else:
                pending += _inductive_types(constant)
        self._plain |= seen
        return True


def _inductive_types(constant: Value) -> list[Value]:
    """Return the types that a constructor or a recursor belongs to."""
    field = constant.field(0).field(_OF_INDUCTIVE)
    return [field] if constant.tag == _CONSTRUCTOR else list(elements(field))
