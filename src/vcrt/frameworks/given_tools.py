"""Make an environment of tools as they are: functions, methods, or the tools of an agent framework."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from types import CellType, FunctionType, MethodType
from typing import Any, ClassVar

from vcrt.environments.contract import Versions
from vcrt.environments.folder_states import with_texts
from vcrt.environments.registry import own_module_name
from vcrt.environments.states.object_copies import copied
from vcrt.environments.states.object_states import canonical_objects, form_of
from vcrt.environments.tool_calls import CallEnvironment, CallRefused, InvalidCall, Tool
from vcrt.errors import MalformedInputError, VcrtError
from vcrt.frameworks.adapters import SERVERS, Given, given_tools, is_tool, method_call
from vcrt.frameworks.tool_states import Objects, ToolState
from vcrt.hashing import Json, file_digest, json_digest

#: The tools by name, for what they receive in a call.
_Tools = Callable[[Any], Mapping[str, Given]]


class ToolsEnvironment(CallEnvironment[Any]):
    """An environment of given tools; :func:`tools_environment` makes its subclasses."""

    # By such names they are no attributes that are watched for changes.
    __kept__: ClassVar[ToolState]
    __given__: ClassVar[_Tools]
    #: Whether the tools are made anew in each call.
    __is_made__: ClassVar[bool]
    keep_advice = (
        "give it to tools_environment as state=..., or, where the tools hold it in a closure, make them of the state: "
        "tools_of=lambda state: [...]; of a path, let `opened` of vcrt.folder set it (docs/tools-logs.md)"
    )

    def reset(self, initial: Json) -> Any:
        """Make the state before the first call."""
        return type(self).__kept__.begin(initial)

    def call(self, state: Any, name: str, arguments: Mapping[str, Json]) -> object:
        """Call the tool as its framework does."""
        kept = type(self).__kept__
        names = kept.names(state)
        with kept.opened(state) as received:
            tools = type(self).__given__(received)
            if name not in tools:
                near = get_close_matches(name, tools, n=1)
                raise InvalidCall(
                    f"no tool {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")
                )
            own = with_texts(dict(arguments), {text: place for place, text in names.items()})
            before = _set_on(tools[name].server, self.ignored)
            try:
                found = tools[name].call(received, own if names else arguments)
                return with_texts(found, names) if names else found
            except CallRefused as refusal:
                raise type(refusal)(with_texts(str(refusal), names)) from refusal
            finally:
                if type(self).__is_made__:
                    self._require_nothing_else(received, tools, name)
                after = _set_on(tools[name].server, self.ignored)
                if after != before:
                    changed = [n for n in {**before, **after} if before.get(n) != after.get(n)]
                    raise MalformedInputError(
                        "state outside of what `reset` returned",
                        where=f"tool {name!r}",
                        found=f"attribute {changed[0]} of the server changed",
                        expected="tools that keep nothing in attributes of their server",
                        remedy=self.keep_advice,
                    )

    def _require_nothing_else(self, received: Any, used: Mapping[str, Given], name: str) -> None:
        """Raise :class:`MalformedInputError` if a call left in its tools what tools of the state would not have."""
        made = type(self).__given__(received)
        held = [_held(tools, received, self.ignored) for tools in (used, made)]
        if lost := [p for p, form in held[0].items() if p not in held[1] or held[1][p] != form]:
            raise MalformedInputError(
                "tools that keep something besides the state that they are made of",
                where=f"tool {name!r}",
                found=f"{lost[0][-1]} changed, and tools made of the state anew do not have it",
                expected="tools_of, which is called for each call, to put all that lasts into the state",
                remedy="keep it in the state; or, if no call can see it, name it in `ignored`",
            )

    def own_places(self, state: Any) -> Collection[str]:
        """Return the folders of the state, and the kinds of effects that its bytes show."""
        kept = type(self).__kept__
        return (*kept.names(state), *kept.effects)

    def tools(self) -> Sequence[Tool]:
        """Return the tools with what their makers declare of them."""
        return tuple(one.tool for one in self._listed().values())

    def versions(self) -> Versions:
        """Return digests of the files that the tools stand in and of the start, and the frameworks' versions."""
        kind, tools = type(self), self._listed().values()
        codes = [
            getattr(inspect.unwrap(f), "__code__", None) for one in tools for f in one.functions
        ]
        module = sys.modules.get(kind.__module__)
        files = {getattr(module, "__file__", None), *(code.co_filename for code in codes if code)}
        digests = sorted(file_digest(Path(f)) for f in files if f and Path(f).is_file())
        names = sorted({one.framework for one in tools if one.framework})
        return Versions(
            environment=self.name,
            adapter="tools/1",
            canonicalizer="objects/3"
            if kind.__kept__.is_objects
            else f"{type(kind.__kept__).__name__}/{kind.__kept__.form}",
            verifier=f"{own_module_name(kind)} {json_digest([digests, kind.__kept__.version()])}",
            libraries={name: version(name) for name in names},
        )

    def watched(self) -> Sequence[type]:
        """Return a class for each module that tools stand in; it holds their functions and the objects of methods."""
        kind = type(self)
        found: dict[str, dict[str, Any]] = {kind.__module__: {}}
        for one in self._listed().values():
            for each in one.functions:
                held = found.setdefault(each.__module__ or kind.__module__, {})
                if kind.__is_made__ or not isinstance(
                    inspect.unwrap(each), FunctionType | MethodType
                ):
                    continue
                if _owner(each) is not None:
                    held[f"the object of {each.__name__}"] = _owner(each)
                else:
                    held[each.__name__] = staticmethod(each)
        return [type("tools", (), {"__module__": name, **held}) for name, held in found.items()]

    def passed_over(self) -> Sequence[object]:
        """Return the servers that the tools are of."""
        servers = {id(one.server): one.server for one in self._listed().values()}
        return [each for each in servers.values() if each is not None]

    def _listed(self) -> Mapping[str, Given]:
        kept = type(self).__kept__
        try:
            begun = kept.begin(None)
        except VcrtError:
            raise
        except Exception as error:
            raise MalformedInputError(
                "a state that cannot be made without a log's initial state",
                where=f"environment {self.name!r}, to list its tools",
                found=f"{type(error).__name__}: {str(error)[:200]}",
                expected="a state for None too, which `initial` is for a log that says nothing of its start",
                remedy="let the state's class or function take None, as in `initial or {}`",
            ) from error
        with kept.opened(begun) as received:
            return type(self).__given__(received)


class _InFiles(ToolsEnvironment):
    """Tools whose state is no Python object."""

    def canonical(self, state: Any) -> bytes:
        return type(self).__kept__.canonical(state)

    def shown(self, state: Any) -> Json:
        return type(self).__kept__.shown(state)

    def snapshot(self, state: Any) -> object:
        return type(self).__kept__.snapshot(state)

    def restore(self, snapshot: Any) -> Any:
        return type(self).__kept__.restore(snapshot)


def tools_environment(
    tools: Any = None,
    *,
    state: Callable[..., Any] | ToolState | None = None,
    tools_of: Callable[[Any], Any] | None = None,
    name: str | None = None,
    ignored: Collection[str] = (),
    key_order: bool = False,
    ids: Mapping[str, str | Collection[str]] | None = None,
) -> type[CallEnvironment[Any]]:
    """Make an environment's class from tools as they are, for ``vcrt schedule LOG --environment FILE.py:NAME``.

    A tool receives the state in the place that its framework has for it: ``self`` of methods, ``RunContext.deps`` of
    pydantic-ai, ``InjectedState`` or ``ToolRuntime`` of LangGraph, ``RunContextWrapper.context`` of OpenAI Agents. The
    framework's own schema validates the arguments, and ``async`` tools are awaited. An error that a tool raises is its
    refusal, but errors such as ``ConnectionError`` or ``NameError`` mean that the tool broke.

    >>> class Shop:
    ...     def __init__(self): self.left = {"tea": 3}
    ...     def look(self, item: str): return self.left[item]
    >>> environment = tools_environment(Shop, name="shop")()
    >>> environment.call(environment.reset(None), "look", {"item": "tea"})
    3

    Args:
        tools: A class or an object, whose public methods are then the tools; one or several functions, methods, or
            tools of pydantic-ai, LangChain or OpenAI Agents; a toolset or an agent of pydantic-ai; or a server of
            FastMCP or of the package mcp, in memory.
        state: What makes the state before the first call: a class or function, without parameters or with one for the
            log's initial state; or :func:`sqlite_file`, :func:`folder` or :func:`module_globals`. By default, the state
            is the objects of the given methods; functions have none.
        tools_of: In place of ``tools``, makes the tools from the state: for tools that hold the state in a closure.
        name: The environment's name; by default, that of the module that calls this function.
        ignored: Attributes of the state that no call can see, such as caches.
        key_order: Whether the order of a mapping's keys is part of the state and of outputs.
        ids: For each tool that draws ids in Python (``uuid.uuid4``, ``secrets``, ``random``), their places in its
            outputs, such as ``{"create": "id"}``. Each call of these tools then draws its own numbers, whatever ran
            before it. In later calls of a log, the ids that replay drew replace the log's.

    Raises:
        MalformedInputError: There is no tool, two tools have the same name, or something given is not a tool.
    """
    if (tools is None) == (tools_of is None):
        raise MalformedInputError(
            "which tools?",
            found="both tools and tools_of" if tools is not None else "neither tools nor tools_of",
            expected="one of them",
        )
    caller = sys._getframe(1).f_globals
    module = str(caller.get("__name__", "__main__"))
    file = caller.get("__file__")
    own = name or (Path(file).stem if module == "__main__" and file else module.rpartition(".")[2])
    given, kept = _from_state(tools_of) if tools_of is not None else _as_given(tools)
    if state is not None:
        kept = state if isinstance(state, ToolState) else Objects(state)
    base: type[ToolsEnvironment] = ToolsEnvironment if kept.is_objects else _InFiles
    return type(
        own,
        (base,),
        {
            "__module__": module,
            "__doc__": f"The tools of {own}.",
            "__kept__": kept,
            "__given__": staticmethod(given),
            "__is_made__": tools_of is not None,
            "name": own,
            "ignored": frozenset({*ignored, *kept.ignored}),
            "key_order": key_order,
            "ids": dict(ids or {}),
        },
    )


def _from_state(tools_of: Callable[[Any], Any]) -> tuple[_Tools, ToolState]:
    def given(received: Any) -> Mapping[str, Given]:
        made = tools_of(received)
        return _by_name(given_tools(made) if is_tool(made) else _methods(type(made), made))

    return given, Objects(lambda: None)


def _as_given(tools: Any) -> tuple[_Tools, ToolState]:
    """Return the tools, and the state that they have where none is given."""
    if isinstance(tools, type):
        found = _by_name(_methods(tools))
        return lambda _: found, Objects(tools)
    if not is_tool(tools):
        found = _by_name(_methods(type(tools)))
        return lambda _: found, Objects(lambda: copied(tools))
    several = list(tools) if isinstance(tools, list | tuple | set | frozenset) else [tools]
    bound = [each for each in several if _owner(each) is not None]
    if not bound:
        return _Once(several), Objects(lambda: None)
    if len(bound) < len(several):
        raise MalformedInputError(
            "methods of objects beside other tools",
            found=", ".join(str(getattr(each, "__name__", each)) for each in several)[:200],
            expected="methods alone, or tools without an object",
            remedy="give them with their state: tools_of=lambda state: [...], state=...",
        )
    owners = list({id(_owner(each)): _owner(each) for each in bound}.values())
    places = [[owner is _owner(each) for owner in owners].index(True) for each in bound]
    found = _by_name(
        [
            Given(Tool(name=each.__name__), _at(place, each.__name__), (each.__func__,))
            for each, place in zip(bound, places, strict=True)
        ]
    )
    return lambda _: found, Objects(lambda: copied(owners))


def _at(place: int, name: str) -> Callable[[Any, Mapping[str, Json]], object]:
    return lambda state, arguments: method_call(state[place], name, arguments)


class _Once:
    """Finds tools when they are first asked for, in each process."""

    def __init__(self, tools: list[Any]) -> None:
        self._tools = tools
        self._found: Mapping[str, Given] | None = None

    def __call__(self, received: object) -> Mapping[str, Given]:
        if self._found is None:
            self._found = _by_name(given_tools(self._tools))
        return self._found

    def __getstate__(self) -> dict[str, Any]:
        return {"_tools": self._tools, "_found": None}


def _set_on(server: Any, ignored: Collection[str]) -> dict[str, Json]:
    """Return the forms of attributes that the user's code set on a server, which has others of its library."""
    if server is None:
        return {}
    kind: Any = type(server)
    names = vars(server).keys() - _of_its_library(kind) - {*ignored}
    return {name: form_of(vars(server)[name], ignored=ignored) for name in sorted(names)}


@lru_cache(maxsize=64)
def _of_its_library(kind: Any) -> frozenset[str]:
    """Return the names of a server's attributes that its library sets, not a user's class."""
    made = next(each for each in kind.__mro__ if each.__module__.partition(".")[0] in SERVERS)
    return frozenset(vars(made("names")))


def _held(
    tools: Mapping[str, Given], state: Any, ignored: Collection[str]
) -> dict[tuple[str, ...], bytes | None]:
    """Return the canonical form of what tools hold beside the state, by its place; None for what has no form."""
    found: dict[tuple[str, ...], bytes | None] = {}
    waiting: list[tuple[tuple[str, ...], Any]] = [
        ((name,), each) for name, one in tools.items() for each in one.functions
    ]
    seen = set[int]()
    for place, each in waiting:
        owner, function = _owner(each), inspect.unwrap(each)
        parts = dict(getattr(owner, "__dict__", {})) if owner is not None else {}
        if isinstance(function, FunctionType):
            names = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
            parts |= {n: cell.cell_contents for n, cell in names if cell != _NOT_SET}
        of = getattr(each, "__qualname__", "") if owner is None else type(owner).__qualname__
        for name, value in parts.items():
            if name in ignored or value is state or id(value) in seen:
                continue
            if isinstance(value, FunctionType | MethodType):
                seen.add(id(value))
                waiting.append(((*place, name), value))
            elif not callable(value):
                whole = (*place, f"{name} of {of}")
                found[whole] = None
                with suppress(MalformedInputError, RecursionError):
                    found[whole] = canonical_objects(value, ignored=ignored)
    return found


#: Equal to a cell that holds nothing yet.
_NOT_SET = CellType()


def _owner(each: Any) -> object:
    """Return the object of a bound method; None for anything else, and for methods of classes."""
    owner = each.__self__ if inspect.ismethod(each) else None
    return None if isinstance(owner, type) else owner


def _methods(kind: type, owner: object = None) -> list[Given]:
    """Return the public methods of a class: of ``owner``, or of what they are given as the state."""
    names = [n for n in dir(kind) if n[0] != "_" and inspect.isroutine(getattr(kind, n, None))]
    if not names:
        raise MalformedInputError(
            "a class without public methods",
            found=f"{kind.__module__}.{kind.__qualname__}",
            expected="tools, or a class of which the public methods are tools",
        )

    def call(name: str) -> Callable[[Any, Mapping[str, Json]], object]:
        return lambda state, given: method_call(state if owner is None else owner, name, given)

    of = kind if owner is None else owner
    return [Given(Tool(name=n), call(n), (getattr(of, n),)) for n in names]


def _by_name(found: Sequence[Given]) -> Mapping[str, Given]:
    return {one.tool.name: one for one in found}
