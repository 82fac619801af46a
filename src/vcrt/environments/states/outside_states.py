"""Find what a call changes beside the state that ``reset`` returned, where no replay in another order restores it.

It compares: globals that functions name, of the module of the environment's class and of those that it imports, but for
installed ones; attributes of their classes, of the classes of the state's objects and of members of enumerations;
defaults and closures of their functions; results that ``functools.lru_cache`` keeps, by mutable objects; registrations
with abstract classes; levels and handlers of loggers; the environment's own attributes; context variables; environment
variables; what a process has one of (the working directory, the decimal context, random numbers, the locale); and the
identities of the public attributes of the modules that this code names, the standard library's included. It does not
compare what lies outside of the process (files, databases, servers), the content of objects of those modules, globals
under computed names, and values that are unreadable or too large.
"""

from __future__ import annotations

import abc
import collections.abc
import decimal
import functools
import gc
import io
import locale
import logging
import marshal
import mimetypes
import numbers
import os
import random
import sys
import tempfile
import threading
import time
import warnings
import weakref
from collections.abc import (
    Callable,
    Collection,
    Iterator,
    Mapping,
    MutableMapping,
    MutableSequence,
    MutableSet,
)
from contextlib import suppress
from contextvars import Context, ContextVar
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import lru_cache
from importlib.util import find_spec
from itertools import count
from operator import is_
from types import BuiltinFunctionType, CodeType, FunctionType, GeneratorType, ModuleType
from typing import Any, TypeAlias, TypeVar

from vcrt.environments.contract import Environment, Operation, Transition
from vcrt.environments.states.code_identity import MADE_BY_C, is_fixed
from vcrt.environments.states.object_copies import array_class
from vcrt.environments.states.object_forms import can_change
from vcrt.environments.states.object_states import StateWriter
from vcrt.environments.states.reachable_names import (
    comes_along,
    names_in,
    namespaces,
    needs_no_look,
)
from vcrt.environments.tool_calls import CallEnvironment
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json, json_digest

Result = TypeVar("Result")
#: Digests of what a name holds: of all of it, and of all but the part that the state holds too.
_Digests: TypeAlias = tuple[object, object]
_NONE = "", ""
#: The number of new starts after which it is asked again whether anything beside the state names a part of it.
_CAREFUL_EVERY = 64
#: Comparisons that take so many seconds in total, and so many each, may be worth a warning.
_SLOW_S, _SLOW_LOOK_S = 5.0, 0.01
#: Of a value that holds more objects, or more bytes, the identity alone is compared, with a warning.
_MOST_OBJECTS, _MOST_BYTES = 10_000, 10_000_000
#: Whether this process ends after one sequence of calls, so that nothing meets what they leave behind.
_ALONE: ContextVar[bool] = ContextVar("alone", default=False)
#: Attributes that vcrt itself sets on an environment.
_OWN = frozenset({"_is_guarded", "_is_begun"})


class Watch:
    """A runner of an environment's calls, in any order, that compares what lies beside the state before and after.

    It does not compare for an environment whose ``call`` belongs to vcrt. If nothing beside the state names a part of
    it, which is checked now and then, one quick comparison after each call is enough. If comparing takes most of the
    time, it warns once, and names what takes longest.
    """

    def __init__(self, environment: CallEnvironment[Any]) -> None:
        # The environment's own method; a guard may replace it later.
        self.environment, self._step = environment, environment.step
        self._looks = is_looked_at(environment)
        self._restores = type(environment).restore is not CallEnvironment.restore
        self._careful, self._starts = True, 0
        self._began, self._spent_s, self._warned = time.perf_counter(), 0.0, False
        tempfile.gettempdir()  # it looks for a folder once, and keeps it in its module
        self._surroundings = _Surroundings(environment)
        #: The last quick look; and the same, if nothing was started anew since.
        self._quick: _Looking | None = None
        self._last: _Looking | None = None

    def begin(self, state: Any) -> None:
        """Note that a state was made anew: the next call is not blamed for what that changed."""
        self._last = None
        if not self._looks or _ALONE.get():
            return
        if self._starts % _CAREFUL_EVERY == 0:
            looking = _Looking(self._surroundings, state)
            self._careful = self._restores or bool(looking.names_parts)
            self._surroundings.classes |= looking.classes
            self._surroundings.loggers |= looking.loggers
            self._quick = None
        self._starts += 1

    def step(self, state: Any, operation: Operation) -> Transition[Any]:
        """Run one call; raise :class:`MalformedInputError` if it changes anything else or leaves a thread running."""
        if not self._looks or _ALONE.get():
            return self._step(state, operation)
        environment, careful = self.environment, self._careful
        # What is cached for values that never change is no state: another order would find it, or would not.
        for cached in self._surroundings.caches.values():
            if all(map(_is_settled, _results(cached))):
                cached.cache_clear()
        kept = environment.snapshot(state) if self._restores else None
        before = self._look(state) if careful else self._last or self._look()
        threads = threading.enumerate()
        self._last = None
        answer = self._step(state, operation)
        state = getattr(answer, "state", state)
        running = threading.enumerate()
        if running != threads and (started := sorted(one.name for one in {*running} - {*threads})):
            raise MalformedInputError(
                "a call that leaves a thread running",
                found=f"{started[0]} runs on after call {environment.describe(operation)}",
                expected="a call that is over, with all its effects, when it returns",
                remedy="let call join the threads and timers that it starts; make pools of threads in reset",
            )
        after = self._look(state) if careful else self._look()
        change = _first_change(before, after)
        if change is None:
            self._last = None if careful else after
            return answer
        if self._restores:
            now = environment.snapshot(state)
            restored = environment.restore(kept)
            same = _first_change(before, self._look(restored)) is None
            environment.restore(now)
            if same:
                return answer
        owner, name = change
        raise MalformedInputError(
            "state outside of what `reset` returned",
            found=f"{owner}{name} changed during call {environment.describe(operation)}",
            expected="all state in what `reset` returns, which is copied to replay calls in other orders",
            remedy=f"{environment.keep_advice}; if no call can see it, name {name!r} in the environment's `ignored`",
        )

    def _look(self, state: Any = None) -> _Looking:
        """Look; warn once if looks took some seconds, and most of the time."""
        began = time.perf_counter()
        looking = self._quick if state is None else None
        if looking is None or not looking.is_same_now():
            looking = _Looking(self._surroundings, state)
            self._quick = looking if state is None else self._quick
        now = time.perf_counter()
        self._spent_s += now - began
        seconds = now - self._began
        slow = now - began > _SLOW_LOOK_S and self._spent_s >= max(_SLOW_S, seconds / 2)
        if slow and not self._warned:
            self._warned = True
            _warn(
                f"looks for what calls change beside the state took {self._spent_s:.0f} of {seconds:.0f} s, most of it "
                f"for {looking.slowest[1]}; if no call changes it, name it in the environment's `ignored`, and it is "
                "not looked at"
            )
        return looking


def alone(work: Callable[[], Result]) -> Result:
    """Return the result of work without any look, in a process that ends after it."""
    token = _ALONE.set(True)
    try:
        return work()
    finally:
        _ALONE.reset(token)


def named_part(environment: Environment, state: Any) -> str:
    """Say what beside a state names a part of it, such as ``global shop.SHELF``: a copy would duplicate that; or ""."""
    if not isinstance(environment, CallEnvironment) or not is_looked_at(environment):
        return ""
    named = _Looking(_Surroundings(environment), state).names_parts
    return f"{named[0]} names a part of the state" if named else ""


def is_looked_at(environment: CallEnvironment[Any]) -> bool:
    """Return whether what an environment's calls leave beside the state is looked for: its ``call`` is not vcrt's."""
    module = type(environment).call.__module__ or ""
    return bool(environment.watched()) or not needs_no_look(module)


def _first_change(before: _Looking, after: _Looking) -> tuple[str, str] | None:
    """Return the first owner and name whose digests both differ, among owners that were met both times."""
    if before is after:
        return None
    for owner, values in before.plain.items():
        others = after.plain.get(owner, values)
        if values is not others and not _same(values, others):
            for name in sorted({*values, *others}):
                text = os.fsdecode(name)
                if _is_own(values, name, others) and text not in after.ignored:
                    return owner, text
    for owner, digests in before.found.items():
        found = after.found.get(owner, digests)
        if digests is found or digests == found:
            continue
        for name in sorted({*digests, *found}):
            if name not in digests and owner.startswith("global ") and not before.regards(name):
                continue  # a module that names it was imported meanwhile
            one, other = digests.get(name, _NONE), found.get(name, _NONE)
            if one[0] != other[0] and one[1] != other[1]:
                return owner, name
    return None


def _same(one: object, other: object) -> bool:
    try:
        return bool(one == other)
    except Exception:  # whatever objects of somebody else say when they are compared
        return one is other


def _is_own(values: Mapping[Any, object], name: Any, others: Mapping[Any, object]) -> bool:
    """Return whether this name's value changed; ignore newly imported modules and private names."""
    one, other = values.get(name, _NONE), others.get(name, _NONE)
    if type(other) is ModuleType or (isinstance(name, str) and name[:1] == "_"):
        return False
    if (
        name not in values and "__getattr__" in values
    ):  # a module that imports a part when it is asked for
        return False
    return one is not other and not _same(one, other)


class _Surroundings:
    """The places beside an environment's states that are compared; found anew when more modules are imported.

    ``classes`` are the classes of objects that states were seen to hold.
    """

    def __init__(self, environment: CallEnvironment[Any]) -> None:
        self.environment, self.ignored = environment, frozenset(environment.ignored)
        kind = type(environment)
        self.bases = [
            each for each in (*kind.__mro__, *environment.watched()) if not comes_along(each)
        ]
        self.passed_over = {id(each): each for each in environment.passed_over()}
        self.classes: set[Any] = set()
        self._known: tuple[int, int] = 0, 0
        self.spaces: dict[int, tuple[str, dict[str, Any]]] = {}
        self.loggers: dict[str, logging.Logger] = {}
        self.named: Collection[str] | None = None
        self.names: Collection[str] = ()
        self._registered: tuple[object, dict[Any, object]] = None, {}
        #: The plan for the names of each owner, and the ancestors of each class.
        self.plans: dict[str, _Plan] = {}
        #: Names whose content was reported as too large.
        self.told = set[str]()
        self._bases: dict[Any, tuple[Any, list[tuple[str, Any]]]] = {}
        self.libraries: list[ModuleType] = []
        #: Functions whose results ``functools`` caches, by identity.
        self.caches: dict[int, Any] = {}
        self._copies: dict[str, dict[Any, object]] = {}
        #: By identity, what `marshal` wrote of values, and their digests.
        self.quick: dict[int, tuple[int | None, object]] = {}

    def look_around(self) -> None:
        """Find the modules of the environment, and those that their code names."""
        if self.is_known():
            return
        self.spaces, self.named = namespaces(self.bases)
        self.plans.clear()
        names = {"builtins", "os", "sys"}
        for _, space in self.spaces.values():
            for value in list(space.values()):
                if type(value) is ModuleType:
                    names.add(value.__name__)
                names |= names_in(value)
        self.names = names
        if "mimetypes" in names and not mimetypes.inited:
            mimetypes.init()  # the first question would
        self.libraries = [
            module
            for name in sorted(names)
            if isinstance(module := sys.modules.get(name), ModuleType)
            and id(vars(module)) not in self.spaces
            and not needs_no_look(name)
        ]
        self._known = len(sys.modules), sum(len(space) for _, space in self.spaces.values())

    def is_known(self) -> bool:
        """Return whether no module was imported, and no global added or removed, since the last :meth:`look_around`."""
        known = len(sys.modules), sum(len(space) for _, space in self.spaces.values())
        return known == self._known

    def bases_of(self, kind: Any) -> list[tuple[str, Any]]:
        """Return a class and its ancestors outside of Python and vcrt, with their names."""
        order, bases = self._bases.get(kind, (None, []))
        if order is not kind.__mro__:
            bases = [(_name(base), base) for base in kind.__mro__ if not comes_along(base)]
            self._bases[kind] = kind.__mro__, bases
        return bases

    def kept_copy(self, owner: str, values: dict[Any, object]) -> dict[Any, object]:
        """Return a copy of an owner's values, the same object while they are equal: then looks need no comparison."""
        kept = self._copies.get(owner)
        if kept is None or not _same(kept, values):
            kept = self._copies[owner] = dict(values)
        return kept

    def is_registered(self) -> bool:
        """Return whether no class was registered with an abstract one since the last :meth:`registered`."""
        return bool(abc.get_cache_token() == self._registered[0])

    def registered(self) -> dict[Any, object]:
        """Return which classes of these modules are registered with their abstract classes, and with Python's."""
        if self.is_registered():
            return self._registered[1]
        token = abc.get_cache_token()
        ours = {name for name, _ in self.spaces.values()}
        spaces = [space for _, space in self.spaces.values()]
        abstract = {
            id(kind): kind
            for space in (*spaces, vars(collections.abc), vars(numbers))
            for kind in space.values()
            if isinstance(kind, abc.ABCMeta)
        }
        found: dict[Any, object] = {}
        for kind in abstract.values():
            members = [ref() for ref in abc._get_dump(kind)[0]]  # type: ignore[attr-defined]
            known = [each for each in members if each is not None and each.__module__ in ours]
            found[_name(kind)] = [_name(each) for each in known]
        self._registered = token, found
        return found


def _name(value: Any) -> str:
    """Return the full name of a class or function."""
    return f"{value.__module__}.{value.__qualname__}"


def _of_the_process(named: Collection[str]) -> dict[Any, object]:
    """Return what the process has one of; random numbers only if the code names their module."""
    context = decimal.getcontext()
    try:
        folder = os.getcwd()
    except FileNotFoundError:
        folder = ""
    mask = os.umask(0o77)
    os.umask(mask)
    settings = context.prec, context.rounding, context.Emin, context.Emax, context.clamp
    found: dict[Any, object] = {
        "the working directory": folder,
        "the mode of new files": mask,
        "the decimal context": (*settings, context.traps.copy()),
        "the locale": locale.setlocale(locale.LC_ALL),
        "sys.path": list(sys.path),
        "the time zone": time.tzname,
    }
    if "random" in named:
        found["the numbers of module random"] = random.getstate()
    if "numpy" in named and find_spec("numpy"):
        from numpy.random import mtrand

        numbers: Any = mtrand._rand
        drawn = numbers.get_state(legacy=False)
        key, place = drawn["state"]["key"].tobytes(), drawn["state"]["pos"]
        found["the numbers of numpy.random"] = key, place, drawn["has_gauss"], drawn["gauss"]
    return found


class _Plan:
    """The values of some names, split into those that are fixed while they are the same objects, and the others."""

    def __init__(
        self,
        names: list[str],
        objects: list[Any],
        ignored: Collection[str],
        of_class: Any,
        named: Collection[str] | None,
    ) -> None:
        self.names, self.objects = names, objects
        self.fixed: dict[str, _Digests] = {}
        self.moving: list[tuple[str, Any]] = []
        #: Names whose value is too large to be compared; and of those caches whose results are.
        self.large, self.full = set[str](), set[str]()
        self.loggers: dict[str, logging.Logger] = {}
        self.classes = [each for each in objects if isinstance(each, type)]
        members = set[str]()
        if of_class is not None:
            members = {"_abc_impl"}  # what is registered is looked at by itself
            objects = [getattr(each, "__func__", each) for each in objects]
            if issubclass(of_class, Enum):
                members |= {*of_class.__members__, *(name for name in names if name[0] == "_")}
        for name, value in zip(names, objects, strict=True):
            skipped = name in ignored or name in members or (name[:2] == "__" == name[-2:])
            skipped = skipped or (named is not None and name not in named)
            if skipped or _is_imported(value):
                continue
            if isinstance(value, property):
                for part in ("fget", "fset", "fdel"):
                    self._put(f"{name}.{part}", getattr(value, part))
            else:
                self._put(name, value)

    def _put(self, name: str, value: Any) -> None:
        if isinstance(value, logging.Logger):
            self.loggers[value.name] = value
        elif type(value) in _PLAIN:
            self.fixed[name] = ((type(value), value),) * 2
        elif not isinstance(value, FunctionType) and _holds_nothing(value):
            self.fixed[name] = _identity(value)
        else:  # what a function holds may be set later
            self.moving.append((name, value))


class _Looking:
    """A look at what lies beside a state; ``found`` has the digests. Without a state it is a quick one."""

    def __init__(self, around: _Surroundings, state: Any = None) -> None:
        around.look_around()
        self.around = around
        self.ignored, self.spaces, self.quick = around.ignored, around.spaces, state is None
        self.named = around.named
        self.known: Mapping[int, object] = {}
        self.kept: list[object] = []
        self.classes, self.loggers = set(around.classes), dict(around.loggers)
        #: Names outside of the state that hold a part of it.
        self.names_parts: list[str] = []
        #: The number of objects that were read, or of thousands of bytes.
        self.objects = 0.0
        #: The longest time in seconds, and the place that took it.
        self.slowest = 0.0, "no name"
        #: Mappings with their names and values, as they were; and values that are digested at every look.
        self._taken: list[tuple[Mapping[str, Any], list[str], list[Any]]] = []
        #: Objects whose attributes are compared, with their dictionaries: an object may be given another one.
        self._owners: list[tuple[object, Mapping[str, Any]]] = []
        self._moving: list[tuple[str, _Plan, str, Any, _Digests]] = []
        #: Whether there are cached results, which may grow; and functions that may be given something to hold.
        self._has_results = False
        self._bare: list[FunctionType] = []
        self._settings: list[tuple[str, logging.Logger]] = []
        self._orders: list[tuple[Any, object]] = []
        if state is not None:
            of_state = _Reader(self, {}, of_state=True)
            with suppress(Exception):
                of_state.form(state, None)
            # The objects that were met are kept: identities are unique among living objects alone.
            self.known, self.kept = of_state.seen, [of_state]
            self.classes |= set(of_state.classes)
            self.loggers |= of_state.loggers
        environment = around.environment
        self._owners.append((environment, vars(environment)))
        self._take(vars(environment))
        #: Values compared directly, by owner and name; the keys of environment variables are as the system has them.
        self.found: dict[str, Mapping[str, _Digests]] = {}
        self.plain: dict[str, dict[Any, object]] = {
            "environment variable ": os.environ._data,  # type: ignore[attr-defined]
            "": _of_the_process(around.names),
        }
        own = {
            name: value
            for name, value in vars(environment).items()
            if name not in _OWN
            and not hasattr(CallEnvironment, name)
            # Methods that guards replace.
            and not callable(getattr(type(environment), name, None))
        }
        self._add("attribute of the environment ", own, is_made=True)
        for module in around.libraries:
            self.plain[f"attribute {module.__name__}."] = vars(module)
        classes = {id(each): each for each in (*around.bases, *self.classes)}
        for name, space in self.spaces.values():
            owner = f"global {name}."
            # What was sent by value has globals of its own, under the same name.
            while owner in self.found:
                owner += " "
            plan = self._add(owner, space, named=around.named)
            local = (each for each in plan.classes if each.__module__ == name)
            classes |= {id(each): each for each in local}
        for each in classes.values():
            self._add_class(each)
        for name, logger in self.loggers.items():
            self.plain[f"logger {name}, "] = _settings(logger)
            self._settings.append((f"logger {name}, ", logger))
        self.plain["abstract class "] = around.registered()
        for owner, values in self.plain.items():
            self.plain[owner] = around.kept_copy(owner, values)

    def regards(self, name: str) -> bool:
        """Return whether globals of this name were compared."""
        return self.named is None or name in self.named

    def is_same_now(self) -> bool:
        """Return whether a quick look now would see the same as this one; asking takes less time than looking."""
        around = self.around
        if self._has_results or not (around.is_known() and around.is_registered()):
            return False
        for kind, order in self._orders:
            if kind.__mro__ is not order:
                return False
        if not all(vars(owner) is values for owner, values in self._owners):
            return False
        for values, names, objects in self._taken:
            if not (
                len(values) == len(names)
                and all(map(is_, values, names))
                and all(map(is_, values.values(), objects))
            ):
                return False
        try:
            if not (
                self.plain["environment variable "] == os.environ._data  # type: ignore[attr-defined]
                and all(
                    self.plain[f"attribute {module.__name__}."] == vars(module)
                    for module in around.libraries
                )
                and self.plain[""] == _of_the_process(around.names)
                and all(self.plain[owner] == _settings(logger) for owner, logger in self._settings)
            ):
                return False
        except Exception:  # whatever objects of somebody else say when they are compared
            return False
        if any(each.__defaults__ or each.__kwdefaults__ or each.__dict__ for each in self._bare):
            return False
        num_kept = len(self.kept)
        is_same = all(
            digests == self._digests_of(value, name, owner, plan)
            for owner, plan, name, value, digests in self._moving
        )
        # Equal digests name objects that were met before and are kept.
        del self.kept[num_kept:]
        return is_same

    def _take(self, values: Mapping[str, Any]) -> None:
        self._taken.append((values, list(values), list(values.values())))

    def _add_class(self, kind: Any) -> None:
        self._orders.append((kind, kind.__mro__))
        for name, base in self.around.bases_of(kind):
            if f"class attribute {name}." in self.found:
                continue
            if issubclass(base, Enum):
                self._take(base.__members__)
                for member in base:
                    self._owners.append((member, vars(member)))
                    self._add(f"attribute {name}.{member.name}.", vars(member))
            plan = self._add(f"class attribute {name}.", vars(base), base)
            for inner in plan.classes:
                if inner.__module__ == base.__module__:
                    self._add_class(inner)

    def _add(
        self,
        owner: str,
        values: Mapping[str, Any],
        of_class: Any = None,
        named: Collection[str] | None = None,
        *,
        is_made: bool = False,
    ) -> _Plan:
        """Add digests of all readable values; with ``of_class`` the values are those of the class's body.

        ``is_made`` says that the mapping was made for this look.
        """
        names, objects = list(values), list(values.values())
        if not is_made:
            self._taken.append((values, names, objects))
        plan = self.around.plans.get(owner)
        if plan is None or plan.names != names or not all(map(is_, plan.objects, objects)):
            plan = self.around.plans[owner] = _Plan(names, objects, self.ignored, of_class, named)
        self.found[owner] = found = dict(plan.fixed) if plan.moving else plan.fixed
        self.loggers |= plan.loggers
        for name, value in plan.moving:
            if isinstance(value, FunctionType) and _holds_nothing(value):
                self._bare.append(value)
                found[name] = _identity(value)
                continue
            if isinstance(value, _CACHED):
                self.around.caches[id(value)] = value
                if name not in plan.full:
                    self._has_results = True
                    self._add_results(value, name, owner, plan)
            found[name] = self._digests_of(value, name, owner, plan)
            self._moving.append((owner, plan, name, value, found[name]))
        return plan

    def _add_results(self, cached: Any, name: str, owner: str, plan: _Plan) -> None:
        """Add digests of the results that a function keeps; all together may be as large as one value."""
        began = self.objects
        for key, result in _results(cached):
            if self.objects - began > _MOST_OBJECTS:
                plan.full.add(name)
                why = "keeps results that hold too much to be looked at after each call"
                self._tell(f"{owner}{name}", why)
                break
            if not _is_settled(result):
                self.objects += 1
                self._add(f"result for {key!r:.60} of {owner}", {name: result}, is_made=True)

    def _digests_of(self, value: Any, name: str, owner: str, plan: _Plan) -> _Digests:
        # Of a value that is too large, or whose reading fails, replacement is still seen.
        if name in plan.large or _holds_nothing(value):
            return _identity(value)
        began, place = time.perf_counter(), f"{owner}{name}"
        found, why = _identity(value), ""
        try:
            found, unread = self._digests(value, place)
            if unread:
                why = f"is or holds an object of {next(iter(unread))}, which cannot be read"
        except _TooLargeError:
            plan.large.add(name)
            why = "holds too much to be looked at after each call"
        except Exception as error:
            why = f"cannot be read ({type(error).__name__})"
        if why:
            self._tell(place, why)
        self.slowest = max(self.slowest, (time.perf_counter() - began, place))
        return found

    def _tell(self, place: str, why: str) -> None:
        """Warn once of what is not compared."""
        if place not in self.around.told:
            self.around.told.add(place)
            _warn(
                f"{place} {why}: what calls change in it is not seen; make it in reset and keep it there, or, if no "
                "call changes it, name it in the environment's `ignored`"
            )

    def _digests(self, value: Any, place: str) -> tuple[_Digests, Collection[str]]:
        """Return a value's digests, and the classes of what was not read."""
        quick = self._quick_digest(value)
        if quick is not None:
            return (quick, quick), ()
        whole = _Reader(self, {})
        try:
            digest = apart = json_digest(whole.form(value, None))
        finally:
            self.objects += whole.objects
        self.kept.append(whole)
        if self.known.keys() & whole.seen.keys():
            self.names_parts.append(place)
            apart = json_digest(_Reader(self, self.known).form(value, None))
        return (digest, apart), whole.unread

    def _quick_digest(self, value: Any) -> object:
        """Return a digest of a value of built-in types alone; None for others, and in a look that is not quick."""
        if not self.quick:
            return None
        try:
            # Equal bytes mean equal values. Others may differ in how often something elsewhere refers to an object.
            written = marshal.dumps(value)
        except ValueError:
            return None
        if len(written) > _MOST_BYTES:
            raise _TooLargeError
        self.objects += len(written) * _MOST_OBJECTS / _MOST_BYTES
        quick, now = self.around.quick, hash(written)
        before, digest = quick.get(id(value), (None, None))
        if now != before:
            # Version 2 writes no references, and so a shared part as often as there are ways to it.
            digest = hash(marshal.dumps(value, 2)) if _is_tree(value) else None
            if len(quick) > _MOST_OBJECTS:
                quick.clear()
            quick[id(value)] = now, digest
        return digest


def _is_tree(value: Any) -> bool:
    """Return whether a value is of built-in types and numbers in arrays, with no container in two places."""
    arrays, seen, waiting = array_class(), set[int](), [value]
    while waiting:
        one = waiting.pop()
        if type(one) in _CONTAINERS:
            if id(one) in seen and one != ():
                return False
            seen.add(id(one))
            parts = gc.get_referents(one)
            if not {*map(type, parts)} <= _PLAIN:
                waiting += parts
        elif type(one) not in _WRITTEN and not _is_buffer(one, arrays):
            return False
    return True


def _is_buffer(value: Any, arrays: Any) -> bool:
    """Return whether a value holds numbers or bytes in memory, and nothing else."""
    if arrays and isinstance(value, arrays):
        return type(value).__name__ in ("ndarray", "memmap") and not value.dtype.hasobject
    try:
        with memoryview(value) as seen:
            return "O" not in seen.format and not hasattr(value, "__dict__")
    except (TypeError, ValueError, BufferError):
        return False


def _settings(logger: logging.Logger) -> dict[Any, object]:
    """Return the settings of a logger without its name."""
    own = vars(logger)
    return {each: own[each] for each in ("level", "disabled", "propagate")} | {
        each: list(own[each]) for each in ("handlers", "filters")
    }


#: Classes whose values are identified by class and value.
_PLAIN = frozenset({type(None), bool, int, float, str, bytes})
#: Other classes of values without parts that `marshal` writes.
_WRITTEN = _PLAIN | {complex, type(...), CodeType}


def _holds_nothing(value: Any) -> bool:
    """Return whether a value needs no look by itself: a class, or a function that holds nothing mutable."""
    if isinstance(value, FunctionType):
        return not (value.__closure__ or value.__defaults__ or value.__kwdefaults__ or vars(value))
    if isinstance(value, BuiltinFunctionType):
        return isinstance(value.__self__, ModuleType | None)
    # Classes are compared separately.
    return isinstance(value, (type, property, *MADE_BY_C))


def _is_imported(value: object) -> bool:
    """Return whether a value is a module that is imported under its name, and thus no object that code made."""
    return isinstance(value, ModuleType) and sys.modules.get(value.__name__) is value


def _identity(value: object) -> _Digests:
    """Return the identity of an object, in place of digests."""
    return ((type(value), id(value)),) * 2


#: Containers whose size is known without running foreign code.
_CONTAINERS: tuple[Any, ...] = (dict, list, tuple, set, frozenset)


class _TooLargeError(Exception):
    """A value holds more than is compared."""


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=2)


class _Reader(StateWriter):
    """A writer of what it can write, and of the identity of other objects; of ``known`` objects the identity alone."""

    def __init__(
        self, looking: _Looking, known: Mapping[int, object], *, of_state: bool = False
    ) -> None:
        # One process compares with itself: its unchanged sets keep their order.
        super().__init__(looking.ignored, key_order=True, set_order=True)
        # What a function holds is no part of the state; its name is.
        self.spaces, self.of_state, self.known = looking.spaces, of_state, known
        self.passed_over = looking.around.passed_over
        self.seen: dict[int, object] = {}
        self.classes: dict[Any, None] = {}
        self.loggers: dict[str, logging.Logger] = {}
        self.objects, self.bytes = 0.0, 0
        #: The classes of values that have no form.
        self.unread: dict[str, None] = {}

    def _count(self, number: float) -> None:
        """Raise the error about a value that is too large; numbers, texts and elements of arrays count little."""
        self.objects += number
        if not self.of_state and (self.objects > _MOST_OBJECTS or self.bytes > _MOST_BYTES):
            raise _TooLargeError

    def form(self, value: Any, where: Any) -> Json:
        """Return the form of any value."""
        if isinstance(value, bytes | bytearray):
            self.bytes += len(value)
        elif (arrays := array_class()) and isinstance(value, arrays):
            self._count(value.size / 20)
        for kind in _CONTAINERS:
            if isinstance(value, kind):
                self._count(kind.__len__(value) / 20)
        self._count(1)
        if id(value) in self.known:
            return {"state": id(value)}
        if id(value) in self.passed_over:
            return {"passed over": id(value)}
        if isinstance(value, type):
            self.classes[value] = None
            return {"class": _name(value)}
        self.classes[type(value)] = None
        if isinstance(value, FunctionType):
            if id(value) in self.met or self.of_state or _holds_nothing(value):
                return {"function": _name(value)}
            self.met[id(value)] = len(self.met)
            if id(value.__globals__) in self.spaces:
                held = [value.__defaults__, value.__kwdefaults__, vars(value), *_cells(value)]
            else:
                held = list(_held_for_us(value))
            return {"function": [self.form(each, where) for each in held]}
        if isinstance(value, _CACHED):
            self.met.setdefault(id(value), len(self.met))
            keys = [key for key, _ in _results(value) if not _is_settled(key)]
            self.kept += keys
            parts: list[Json] = [{"unread": id(key)} for key in keys]
            if not self.of_state:
                parts.insert(0, self.form(getattr(value, "__wrapped__", None), where))
            return {"cache": parts}
        if isinstance(value, logging.Logger):
            self.loggers[value.name] = value
            return {"logger": value.name}
        if isinstance(value, ContextVar):
            return {"context": self.form(value.get(None), where)}
        if isinstance(value, Enum):
            return {"member": f"{type(value).__qualname__}.{value.name}"}
        if isinstance(value, (count, _ALIAS)):
            return {"shown": repr(value)}
        if isinstance(value, ModuleType) and not _is_imported(value):
            if id(value) in self.met:
                return {"module": id(value)}
            self.met[id(value)] = len(self.met)
            own = {name: v for name, v in vars(value).items() if name[:2] != "__"}
            return {"module": {name: self.form(v, where) for name, v in own.items()}}
        if isinstance(value, GeneratorType):
            frame = value.gi_frame
            if frame is None:
                return {"generator": "over"}
            own = {name: self.form(v, where) for name, v in frame.f_locals.items()}
            return {"generator": [frame.f_lasti, own]}
        sqlite: Any = sys.modules.get("sqlite3")
        if sqlite and isinstance(value, sqlite.Connection):
            with suppress(sqlite.Error):  # it is closed, or another thread's
                return {"database": [id(value), repr(_settings_of_database(value))]}
        if isinstance(value, io.IOBase):
            with suppress(OSError, ValueError):  # closed, no file, or one without places
                # What is printed is no state.
                return {"file": [id(value), value.tell() if value.fileno() > 2 else 0]}
        if isinstance(value, threading.local):
            return {"local": self.form(vars(value), where)}
        if can_change(type(value)):
            self.seen[id(value)] = value
        checkpoint = len(self.met)
        try:
            return super().form(value, where)
        except MalformedInputError:
            self._forget(checkpoint)
            if type(value).__module__ in ("builtins", "itertools") and hasattr(value, "__next__"):
                with suppress(Exception):
                    _, arguments, *state = value.__reduce__()
                    return {"iterator": [self.form(each, where) for each in (arguments, state)]}
            if isinstance(value, Context):
                return {"context": [[each.name, self.form(value[each], where)] for each in value]}
            if type(value).__module__ in _HASHES:
                with suppress(Exception):
                    return {"hash": value.copy().hexdigest()}
            if isinstance(value, _LOCKS):
                return {"lock": repr(value)}
            if _is_buffer(value, array_class()):
                with memoryview(value) as seen:
                    self.bytes += seen.nbytes
                    self._count(0)
                    return {"buffer": [id(value), hash(seen.tobytes())]}
            name = _name(type(value))
            if not isinstance(value, _SILENT) and name not in _NEVER_CHANGED:
                self.unread.setdefault(name)
            return {"unread": id(value)}


#: Locks, whose text says whether they are held; and the modules of hash functions.
_LOCKS: Any = (type(threading.Lock()), type(threading.RLock()))
_HASHES = frozenset(
    {"_hashlib", "_blake2", "_md5", "_sha1", "_sha2", "_sha256", "_sha512", "_sha3"}
)
#: Classes whose objects hold nothing that only they can show: what a weak reference means, something else holds.
_SILENT = (ModuleType, CodeType, BuiltinFunctionType, classmethod, staticmethod, weakref.ref)
#: Names of other classes whose objects never change; and the class of those such as ``dict[str, int]``.
_NEVER_CHANGED = frozenset({"builtins.object", "_struct.Struct", "_json.Scanner"})
_ALIAS: Any = type(dict[str, int])


def _settings_of_database(connection: Any) -> list[Any]:
    """Return what tells whether an SQLite connection wrote rows, tables or settings, or is within a transaction."""
    cursor = connection.cursor()
    cursor.row_factory = None
    found = [connection.total_changes, connection.in_transaction]
    return found + [cursor.execute(f"PRAGMA {each}").fetchall() for each in _PRAGMAS]


_PRAGMAS = (
    *("database_list", "schema_version", "temp.schema_version", "user_version", "application_id"),
    *("foreign_keys", "recursive_triggers"),
)


def _results(cached: Any) -> list[tuple[Any, Any]]:
    """Return keys and results of a ``functools.lru_cache``, as the garbage collector sees them."""
    seen = gc.get_referents(cached)
    place = len(seen) - 1 - seen[::-1].index(_LINK) - 3
    cache: dict[Any, Any] = seen[place]
    if any(type(each) is _LINK for each in cache.values()):
        # A bounded cache keeps them in a ring: key, result, the class of the links.
        return list(zip(seen[1:place:3], seen[2:place:3], strict=True))
    return list(cache.items())


#: The class of cached functions; and the class of the cache's links, at its place in their references.
_CACHED: Any = type(lru_cache(_results))
_LINK: Any = gc.get_referents(lru_cache(_results))[4]


def _is_settled(value: Any) -> bool:
    """Return whether a value and all its parts never change: then results cached for it may stay."""
    if type(value) is object:  # between arguments and those by name, in keys of a cache
        return True
    if isinstance(value, tuple):
        return not hasattr(value, "__dict__") and all(map(_is_settled, value))
    if is_dataclass(value) and not isinstance(value, type):
        made: Any = value
        settled = all(_is_settled(getattr(value, each.name)) for each in fields(value))
        return settled and bool(made.__dataclass_params__.frozen)
    return is_fixed(value)


def _held_for_us(function: FunctionType) -> Iterator[object]:
    """Yield what a library's function, such as a decorator, keeps in the functions around it."""
    registered = vars(function).get("registry")
    if function.__globals__ is vars(functools) and isinstance(registered, Mapping):
        yield [(_name(kind), id(each)) for kind, each in registered.items()]
        return
    for each in _cells(function):
        if isinstance(each, (MutableMapping, MutableSequence, MutableSet, FunctionType, _CACHED)):
            yield each


def _cells(function: FunctionType) -> Iterator[object]:
    """Yield the values of a function's closure."""
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # not set yet
            yield cell.cell_contents
