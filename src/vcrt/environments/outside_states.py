"""Find what a call changes beside the state that ``reset`` returned, where no replay in another order puts it back.

Looked at are: the globals of the modules of the environment's class and of those that lie beside them, attributes of
their classes, of the classes of what the state holds and of members of enumerations, defaults and closures of their
functions, the environment's own attributes, context variables, environment variables, what the process has one of (the
working directory, the decimal context, random numbers, the locale), and which objects the public attributes of the
standard library's modules are, and of others that they use. Not covered: what lies outside of the process (files,
databases, servers), what objects of those modules hold, and objects whose values cannot be read.
"""

from __future__ import annotations

import decimal
import locale
import logging
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from enum import Enum
from functools import lru_cache
from itertools import count
from pathlib import Path
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    FunctionType,
    GeneratorType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, TypeAlias

import numpy as np

from vcrt.environments.contract import Operation, Transition
from vcrt.environments.object_states import StateWriter
from vcrt.environments.tool_calls import CallEnvironment
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json, json_digest

#: Digests by owner and name: of all that the name holds, and of that without what the state holds too.
_Look: TypeAlias = "dict[str, Mapping[str, tuple[str, str]]]"
#: What vcrt itself sets on an environment.
_OWN = frozenset({"_is_guarded"})


class Watch:
    """Makes the calls of an environment, in whatever order, and looks at what they change beside the state.

    An environment whose ``call`` comes with vcrt is not looked at.
    """

    def __init__(
        self,
        environment: CallEnvironment[Any],
        step: Callable[[Any, Operation], Transition[Any]],
    ) -> None:
        self.environment, self._step = environment, step
        self._looks = type(environment).call.__module__.partition(".")[0] != "vcrt"
        #: The last look, and the state that it was taken beside, as long as nothing else was asked since.
        self._last: tuple[Any, _Looking] | None = None

    def forget(self) -> None:
        """Something else than a call was made: what it changed was not changed by the next call."""
        self._last = None

    def step(self, state: Any, operation: Operation) -> Transition[Any]:
        """One call; raises :class:`MalformedInputError` if it changes something else, or leaves a thread running."""
        if not self._looks:
            return self._step(state, operation)
        environment = self.environment
        kind = type(environment)
        restores = kind.restore is not CallEnvironment.restore
        kept = environment.snapshot(state) if restores else None
        known = self._last if self._last is not None and self._last[0] is state else None
        before = known[1] if known is not None else _Looking(environment, state)
        threads = set(threading.enumerate())
        self._last = None
        answer = self._step(state, operation)
        state, call = getattr(answer, "state", state), environment.describe(operation)
        if started := sorted(one.name for one in set(threading.enumerate()) - threads):
            raise MalformedInputError(
                "a call that leaves a thread running",
                found=f"{started[0]} runs on after call {call}",
                expected="a call that is over, with all its effects, when it returns",
                remedy="let call join the threads and timers that it starts; make pools of threads in reset",
            )
        after = _Looking(environment, state)
        change = _first_change(before.found, after.found)
        if change is None:
            self._last = state, after
            return answer
        if restores:
            now = environment.snapshot(state)
            restored = environment.restore(kept)
            same = _first_change(before.found, _Looking(environment, restored).found) is None
            environment.restore(now)
            if same:
                return answer
        owner, name = change
        raise MalformedInputError(
            "state outside of what `reset` returned",
            found=f"{owner}{name} changed during call {call}",
            expected="all state in what `reset` returns, which is copied to replay calls in other orders",
            remedy=f"make it in reset and keep it there; if no call can see it, name {name!r} in the environment's "
            "`ignored`",
        )


def _first_change(before: _Look, after: _Look) -> tuple[str, str] | None:
    """The first owner and name of which both digests differ; of owners that were met at both times."""
    for owner in before:
        one, other = before[owner], after.get(owner, before[owner])
        if one == other:
            continue
        for name in sorted({*one, *other}):
            pairs = zip(one.get(name, ("", "")), other.get(name, ("", "")), strict=True)
            if all(a != b for a, b in pairs):
                return owner, name
    return None


class _Attributes(Mapping[str, tuple[str, str]]):
    """The public attributes of a module of somebody else: which objects they are, not what these hold."""

    def __init__(self, space: Mapping[str, Any]) -> None:
        self._values = dict(space)
        self.key = hash(tuple(map(id, self._values.values())))

    def __getitem__(self, name: str) -> tuple[str, str]:
        if name[:1] == "_" or isinstance(self._values[name], ModuleType):
            raise KeyError(name)
        return (str(id(self._values[name])),) * 2

    def __iter__(self) -> Iterator[str]:
        return (n for n, v in self._values.items() if n[:1] != "_" and type(v) is not ModuleType)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Attributes) and self.key == other.key

    __hash__ = None  # type: ignore[assignment]


@lru_cache(maxsize=1)
def _stdlib(number: int) -> tuple[ModuleType, ...]:
    """The modules of the standard library that are imported, of so many modules."""
    return tuple(
        module
        for name, module in list(sys.modules.items())
        if isinstance(module, ModuleType)
        and name[:1] != "_"
        and name.partition(".")[0] in sys.stdlib_module_names
    )


def _libraries() -> tuple[ModuleType, ...]:
    return _stdlib(len(sys.modules))


def _of_the_process() -> dict[str, str]:
    """What the whole process has one of, in words."""
    context = decimal.getcontext()
    traps = sorted(each.__name__ for each, is_set in context.traps.items() if is_set)
    numbers: Any = np.random.mtrand._rand
    drawn = numbers.get_state(legacy=False)
    try:
        folder = os.getcwd()
    except FileNotFoundError:
        folder = ""
    return {
        "the working directory": folder,
        "the decimal context": repr(
            (context.prec, context.rounding, context.Emin, context.Emax, context.clamp, traps)
        ),
        "the numbers of module random": str(hash(random.getstate())),
        "the numbers of numpy.random": str(
            hash((drawn["state"]["key"].tobytes(), drawn["state"]["pos"], drawn["gauss"]))
        ),
        "the locale": locale.setlocale(locale.LC_ALL),
        "sys.path": repr(sys.path),
        "the time zone": repr(time.tzname),
    }


class _Looking:
    """A look at what is beside a state; ``found`` has the digests."""

    def __init__(self, environment: CallEnvironment[Any], state: Any) -> None:
        self.ignored = frozenset(environment.ignored)
        bases = [each for each in type(environment).__mro__ if not _comes_along(each)]
        self.spaces = _namespaces(bases)
        of_state = _Reader(self, {}, of_state=True)
        with suppress(Exception):
            of_state.form(state, None)
        # What was met is kept: the identities of living objects alone are told apart.
        self.known, self.kept = of_state.seen, [of_state]
        self.found: _Look = {
            "environment variable ": self._digests(os.environ),
            "": {name: (text, text) for name, text in _of_the_process().items()},
        }
        own = {
            name: value
            for name, value in vars(environment).items()
            if name not in _OWN and not hasattr(CallEnvironment, name)
        }
        self.found["attribute of the environment "] = self._digests(own)
        used = [v for _, s in self.spaces.values() for v in s.values() if type(v) is ModuleType]
        for module in {id(each): each for each in (*_libraries(), *used)}.values():
            if id(vars(module)) not in self.spaces and module.__name__.partition(".")[0] != "vcrt":
                self.found[f"attribute {module.__name__}."] = _Attributes(vars(module))
        classes = {id(each): each for each in (*bases, *of_state.classes)}
        for name, space in self.spaces.values():
            self.found[f"global {name}."] = self._digests(space)
            local = (v for v in space.values() if isinstance(v, type) and v.__module__ == name)
            classes |= {id(each): each for each in local}
        for each in classes.values():
            self._add_class(each)

    def _add_class(self, kind: Any) -> None:
        for base in kind.__mro__:
            name = f"{base.__module__}.{base.__qualname__}"
            if _comes_along(base) or f"class attribute {name}." in self.found:
                continue
            inner = {n: getattr(v, "__func__", v) for n, v in vars(base).items()}
            if issubclass(base, Enum):
                inner = {
                    n: v for n, v in inner.items() if n[0] != "_" and n not in base.__members__
                }
                for member in base:
                    self.found[f"attribute {name}.{member.name}."] = self._digests(vars(member))
            self.found[f"class attribute {name}."] = self._digests(inner)

    def _digests(self, values: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
        """Of all values that can be read."""
        found = {}
        for name, value in list(values.items()):
            skipped = name in self.ignored or (name[:2] == "__" == name[-2:])
            if skipped or isinstance(value, ModuleType | logging.Logger):
                continue
            if type(value) in _PLAIN or _holds_nothing(value):
                text = repr(value) if type(value) in _PLAIN else str(id(value))
                found[name] = (f"{type(value)} {text}",) * 2
                continue
            with suppress(Exception):
                whole = _Reader(self, {})
                digest = json_digest(whole.form(value, None))
                self.kept.append(whole)
                apart = digest
                if self.known.keys() & whole.seen.keys():
                    apart = json_digest(_Reader(self, self.known).form(value, None))
                found[name] = digest, apart
        return found


#: Values that are all that there is to be known of them.
_PLAIN = frozenset({type(None), bool, int, float, str, bytes})


def _holds_nothing(value: Any) -> bool:
    """Whether it is a function that holds nothing that could change."""
    if isinstance(value, FunctionType):
        return not (value.__closure__ or value.__defaults__ or value.__kwdefaults__ or vars(value))
    if isinstance(value, BuiltinFunctionType):
        return isinstance(value.__self__, ModuleType | None)
    # Classes are looked at by themselves.
    return isinstance(value, (type, property, *_DESCRIPTORS))


#: What stands in the classes of C.
_DESCRIPTORS = (
    *(ClassMethodDescriptorType, GetSetDescriptorType, MemberDescriptorType),
    *(MethodDescriptorType, WrapperDescriptorType),
)


class _Reader(StateWriter):
    """Writes what it can, and the identity of what it cannot; of what is ``known`` the identity alone."""

    def __init__(
        self, looking: _Looking, known: Mapping[int, object], *, of_state: bool = False
    ) -> None:
        super().__init__(looking.ignored, key_order=True)
        # What a function holds is no part of the state: its name alone is.
        self.spaces, self.known = {} if of_state else looking.spaces, known
        self.seen: dict[int, object] = {}
        self.classes: dict[Any, None] = {}

    def form(self, value: Any, where: Any) -> Json:
        """The form of a value, whatever it is."""
        if id(value) in self.known:
            return {"state": id(value)}
        if isinstance(value, type):
            self.classes[value] = None
            return {"class": f"{value.__module__}.{value.__qualname__}"}
        self.classes[type(value)] = None
        if isinstance(value, FunctionType):
            foreign = id(value.__globals__) not in self.spaces
            if id(value) in self.met or foreign or _holds_nothing(value):
                return {"function": f"{value.__module__}.{value.__qualname__}"}
            self.met[id(value)] = len(self.met)
            held = [value.__defaults__, value.__kwdefaults__, vars(value), *_cells(value)]
            return {"function": [self.form(each, where) for each in held]}
        if isinstance(value, ContextVar):
            return {"context": self.form(value.get(None), where)}
        if isinstance(value, Enum):
            return {"member": f"{type(value).__qualname__}.{value.name}"}
        if isinstance(value, count):
            return {"count": repr(value)}
        if isinstance(value, GeneratorType):
            frame = value.gi_frame
            if frame is None:
                return {"generator": "over"}
            own = {name: self.form(v, where) for name, v in frame.f_locals.items()}
            return {"generator": [frame.f_lasti, own]}
        if isinstance(value, threading.local):
            return {"local": self.form(vars(value), where)}
        self.seen[id(value)] = value
        checkpoint = len(self.met)
        try:
            return super().form(value, where)
        except MalformedInputError:
            self._forget(checkpoint)
            if type(value).__module__ == "builtins" and hasattr(value, "__next__"):
                with suppress(Exception):
                    _, arguments, *state = value.__reduce__()
                    return {"iterator": [self.form(each, where) for each in (arguments, state)]}
            return {"unread": id(value)}


def _cells(function: FunctionType) -> Iterator[object]:
    """What a function has of the functions around it."""
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # not set yet
            yield cell.cell_contents


def _comes_along(kind: Any) -> bool:
    """Whether a class is of Python or of vcrt itself."""
    top = kind.__module__.partition(".")[0]
    return top == "vcrt" or top in sys.stdlib_module_names


def _namespaces(classes: list[Any]) -> dict[int, tuple[str, dict[str, Any]]]:
    """The globals of the modules of these classes, with those of the modules beside them, by identity."""
    found: dict[int, tuple[str, dict[str, Any]]] = {}
    for kind in classes:
        module = sys.modules.get(kind.__module__)
        spaces = [vars(module)] if module is not None else []
        # A class that was sent to another process by value has globals of its own.
        spaces += [v.__globals__ for v in vars(kind).values() if isinstance(v, FunctionType)]
        for space in spaces:
            found.setdefault(id(space), (kind.__module__, space))
        file = getattr(module, "__file__", None)
        if file is None or Path(file).parent.name in ("site-packages", "dist-packages"):
            continue
        package = getattr(module, "__package__", None)
        folder, prefix = f"{Path(file).parent}{os.sep}", f"{package}." if package else ""
        for name, other in list(sys.modules.items()):
            space = getattr(other, "__dict__", {})
            path = space.get("__file__")
            if isinstance(path, str) and path.startswith(folder):
                inner = path[len(folder) :].removesuffix(".py").replace(os.sep, ".")
                if name == prefix + inner.removesuffix(".__init__"):
                    found.setdefault(id(space), (name, space))
    return found
