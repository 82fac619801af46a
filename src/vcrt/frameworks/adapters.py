"""Call the tools of agent frameworks as the frameworks call them: with their own schemas, contexts and results.

Each adapter validates arguments by the framework's own schema, hands over the state where the framework has a place
for it, and gives the result in the form in which a model receives it. No framework is imported before one of its tools
is given.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import warnings
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

from vcrt.environments.awaited_calls import awaited
from vcrt.environments.tool_calls import NAMED_CALL, CallRefused, InvalidCall, Tool, call_method
from vcrt.errors import MalformedInputError, UnavailableError, VcrtError, VerifierFailure
from vcrt.hashing import Json, sha256_hex

#: Packages whose own functions are no tools of a user's.
LIBRARIES = ("pydantic_ai", "pydantic", "agents", "openai", "anyio", "asyncio", "functools")
#: Packages of servers that run in memory.
SERVERS = ("fastmcp", "mcp")
#: Exceptions that say that a tool broke, not that it refused.
BROKEN = (
    *(ConnectionError, TimeoutError, MemoryError, RecursionError, NotImplementedError),
    *(ImportError, NameError, AttributeError, asyncio.CancelledError),
)


class Given(NamedTuple):
    """A tool as it was given: what its maker declares of it, and how it is called in a state."""

    tool: Tool
    call: Callable[[Any, Mapping[str, Json]], object]
    #: The functions behind it, whose modules are watched and whose files count as its version.
    functions: tuple[Any, ...] = ()
    #: The package that calls it, if it is no plain function.
    framework: str = ""
    #: The server that it is a tool of, which keeps caches and clocks of its own.
    server: object = None


def given_tools(tools: object) -> list[Given]:
    """Return the tools that are given: one, several, a toolset or a server; raises :class:`MalformedInputError`."""
    if isinstance(tools, Mapping):
        tools = list(tools.values())
    several = list(tools) if isinstance(tools, list | tuple | set | frozenset) else [tools]
    found = [one for each in several for one in _given(each)]
    if not any(each.tool.sequential for each in found):  # then nothing is declared
        found = [each._replace(tool=replace(each.tool, sequential=None)) for each in found]
    names = [each.tool.name for each in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice or not found:
        raise MalformedInputError(
            "two tools of one name" if twice else "no tools",
            found=", ".join(twice) if twice else repr(tools)[:120],
            expected="tools of different names" if twice else "at least one tool",
        )
    return found


def is_tool(tools: object) -> bool:
    """Tell whether this is a tool, or holds tools, and not an object whose methods are tools."""
    holds_tools = isinstance(tools, list | tuple | set | frozenset | Mapping)
    return holds_tools or inspect.isroutine(tools) or _adapter(tools) is not None


def _adapter(each: object) -> Callable[[Any], Sequence[Given]] | None:
    for kind in type(each).__mro__:
        adapter = _ADAPTERS.get((kind.__module__.partition(".")[0], kind.__name__))
        if adapter is not None:
            return adapter
    return None


def _given(each: object) -> Sequence[Given]:
    adapter = _adapter(each)
    if adapter is not None:
        return adapter(each)
    if inspect.isroutine(each):
        return [_function(each)]
    raise MalformedInputError(
        "something that is no tool",
        found=f"{type(each).__module__}.{type(each).__qualname__}: {str(each)[:80]}",
        expected="a function, a method, a class of which the methods are tools, a tool or toolset of pydantic-ai, "
        "LangChain or OpenAI Agents, or a server of FastMCP or of the package mcp",
        remedy="wrap it in a function",
    )


def finished(output: object) -> object:
    """Return an output; raises :class:`MalformedInputError` for one that is still to come."""
    if isinstance(output, Iterator) or inspect.isasyncgen(output):
        raise MalformedInputError(
            "a tool that streams its output",
            found=type(output).__name__,
            expected="a tool that returns its whole output",
            remedy="give a function that returns list(...) of it",
        )
    return output


@contextmanager
def refusing() -> Iterator[None]:
    """Turn what a tool raises into its refusal, unless it says that the tool broke."""
    try:
        yield
    except (CallRefused, VcrtError):
        raise
    except BROKEN as error:
        raise VerifierFailure(
            "a tool broke, which says nothing about the call",
            found=f"{type(error).__name__}: {str(error)[:300]}",
            expected="an output, or an exception that says why the tool refuses",
        ) from error
    except Exception as error:
        raise CallRefused(str(error) or type(error).__name__) from error


def _call_id() -> str:
    """Return an id of the call that runs, its own in an episode, and the same in every order."""
    return f"call_{sha256_hex(NAMED_CALL.get().encode())[:24]}"


def _function(function: Any) -> Given:
    name = function.__name__
    one = SimpleNamespace(**{name: function})
    return Given(
        Tool(name=name), lambda _, arguments: method_call(one, name, arguments), (function,)
    )


def method_call(owner: object, name: str, arguments: Mapping[str, Json]) -> object:
    """Call a public method of an object, as :func:`vcrt.call_method` does; exceptions are its refusals."""
    with refusing():
        return finished(call_method(owner, name, arguments))


# pydantic-ai.


def _pydantic_tool(tool: Any) -> Sequence[Given]:
    from pydantic_ai import FunctionToolset

    return _pydantic_toolset(FunctionToolset([tool]))


def _pydantic_agent(agent: Any) -> Sequence[Given]:
    return [one for toolset in agent.toolsets for one in _pydantic_toolset(toolset)]


def _pydantic_toolset(toolset: Any) -> Sequence[Given]:
    from pydantic_ai import RunContext
    from pydantic_ai.exceptions import ModelRetry
    from pydantic_ai.models.test import TestModel
    from pydantic_ai.usage import RunUsage

    def context(state: Any, name: str | None = None) -> Any:
        about = {"tool_name": name, "tool_call_id": _call_id()} if name else {}
        return RunContext(deps=state, model=TestModel(), usage=RunUsage(), **about)

    async def asked(state: Any, name: str, arguments: Mapping[str, Json]) -> Any:
        from pydantic import ValidationError

        about = context(state, name)
        tools = await toolset.get_tools(about)
        if name not in tools:
            raise InvalidCall(f"no tool {name!r}")
        tool = tools[name]
        try:
            fitting = tool.args_validator.validate_python(
                dict(arguments), context=about.validation_context
            )
        except ValidationError as error:
            raise InvalidCall(_first(name, error)) from error
        except ModelRetry as error:
            raise CallRefused(error.message) from error
        if tool.args_validator_func is not None:
            checked = tool.args_validator_func(about, **fitting)
            if inspect.isawaitable(checked):
                await checked
        return await toolset.call_tool(name, fitting, about, tool)

    def one(name: str, declared: Any, functions: tuple[Any, ...]) -> Given:
        def call(state: Any, arguments: Mapping[str, Json]) -> object:
            with _in_one_thread(), refusing():
                try:
                    found = awaited(lambda: asked(state, name, arguments))
                except ModelRetry as error:
                    raise CallRefused(error.message) from error
            if type(found).__name__ == "ToolReturn":
                if found.content:
                    raise MalformedInputError(
                        "a tool of pydantic-ai that tells the model more than its result",
                        where=f"tool {name!r}",
                        found="ToolReturn(content=...), which is compared with nothing",
                        expected="what the model reads, in return_value",
                        remedy="put it into return_value; `metadata` may hold what the model does not read",
                    )
                found = found.return_value
            return finished(found)

        return Given(declared, call, functions, "pydantic-ai-slim")

    try:
        listed = awaited(lambda: toolset.get_tools(context(None)))
    except AttributeError as error:
        raise MalformedInputError(
            "a toolset of pydantic-ai that depends on the run's context",
            found=f"{type(error).__name__}: {str(error)[:200]}",
            expected="a toolset that lists its tools without deps",
            remedy="give the tools behind it: FunctionToolset([...])",
        ) from error
    known = getattr(toolset, "tools", {})
    inner = _toolsets_in(toolset)
    # What runs around each tool: methods of the user's own toolsets, and functions that these and others were given.
    around = [each.call_tool for each in inner if not _is_library(type(each))]
    around += [own for each in inner for own in vars(each).values() if inspect.isroutine(own)]
    behind = [tool.function for each in inner[1:] for tool in getattr(each, "tools", {}).values()]
    return [
        one(
            name,
            Tool(name=name, sequential=tool.tool_def.sequential),
            (*around, *([known[name].function] if name in known else behind)),
        )
        for name, tool in listed.items()
        if tool.tool_def.kind == "function"
    ]


def _toolsets_in(toolset: Any) -> list[Any]:
    """Return a toolset of pydantic-ai, and those that it wraps or combines."""
    found = [toolset]
    for each in found:
        found += filter(None, [getattr(each, "wrapped", None), *getattr(each, "toolsets", ())])
    return found


def _in_one_thread() -> Any:
    """Let pydantic-ai run functions in this thread: what a tool sees of it is the same in every replay."""
    try:
        from pydantic_ai._utils import disable_threads
    except ImportError:  # a later pydantic-ai: its threads are waited for
        return nullcontext()
    return disable_threads()


def _first(name: str, error: Any) -> str:
    from vcrt.forms import first_error

    field, message = first_error(error)
    return f"arguments that do not fit the tool {name!r}: {field}: {message}"


# LangChain and LangGraph.


def _langchain_tool(tool: Any) -> Sequence[Given]:
    from langchain_core.messages import ToolMessage
    from langchain_core.tools import ToolException
    from pydantic import ValidationError

    is_async = getattr(tool, "coroutine", None) is not None
    # What the tool makes once, it makes now, not in a call.
    for made_once in ("tool_call_schema", "args", "_injected_args_keys"):
        getattr(tool, made_once, None)
    injected = _injected(tool)
    given_too = {"state"} if injected else set[str]()
    for function in filter(None, (getattr(tool, "func", None), getattr(tool, "coroutine", None))):
        if "RunnableConfig" in str(getattr(function, "__annotations__", {})):
            given_too.add("config")

    def call(state: Any, arguments: Mapping[str, Json]) -> object:
        given: dict[str, Any] = {**arguments}
        for name, made in injected.items():
            given[name] = made(state)
        asked = {"name": tool.name, "args": given, "id": _call_id(), "type": "tool_call"}
        with refusing(), _lacking(tool.name, state, given_too), warnings.catch_warnings():
            # It warns of a state that is no dictionary.
            warnings.simplefilter("ignore")
            try:
                found = awaited(lambda: tool.ainvoke(asked)) if is_async else tool.invoke(asked)
            except ValidationError as error:
                raise InvalidCall(_first(tool.name, error)) from error
            except ToolException as error:
                raise CallRefused(str(error)) from error
        if not isinstance(found, ToolMessage):
            raise MalformedInputError(
                "a tool of LangChain that answers with no message",
                where=f"tool {tool.name!r}",
                found=type(found).__name__,
                expected="a result that LangChain writes into a ToolMessage",
                remedy="keep what the graph's state holds in the tools' own state, not in a Command",
            )
        if found.status == "error":
            raise CallRefused(str(found.content))
        if found.artifact is None:
            return found.content
        return {"content": found.content, "artifact": found.artifact}

    # A class of its own has methods, which may change its fields.
    functions = (getattr(tool, "func", None), getattr(tool, "coroutine", None))
    own = tuple(filter(None, functions)) or (tool._run,)
    return [Given(Tool(name=tool.name), call, own, "langchain-core")]


def _injected(tool: Any) -> dict[str, Callable[[Any], Any]]:
    """Return what the graph, not the model, gives for parameters of a tool of LangChain."""
    function = getattr(tool, "func", None) or getattr(tool, "coroutine", None)
    shown = set(tool.tool_call_schema.model_json_schema().get("properties", {}))
    if function is None:
        return {}
    from typing import get_type_hints

    try:
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError):
        hints = dict(getattr(function, "__annotations__", {}))
    found: dict[str, Callable[[Any], Any]] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        text = str(hints.get(name, ""))
        if name in shown or "InjectedToolCallId" in text or name in ("callbacks", "run_manager"):
            continue
        if "InjectedState" in text:
            found[name] = lambda state: state
        elif "ToolRuntime" in text:
            found[name] = partial(_runtime, tool.name)
        elif "RunnableConfig" in text:
            continue  # LangChain gives it
        elif parameter.default is parameter.empty:
            raise MalformedInputError(
                "a parameter of a LangChain tool gets no value here",
                where=f"tool {tool.name!r}, parameter {name!r}",
                found=text or "no type",
                expected="arguments of the model, InjectedState or ToolRuntime",
                remedy="give a tool that takes it from its state: tools_of=lambda state: [...]",
            )
    return found


#: What the call that runs asked for and no replay has, whatever the tool did with the error.
_LACKED: list[MalformedInputError] = []


class _NotGiven(dict[str, Any]):
    """What a run of the graph gives a tool, and a replay does not have: whoever reads it is told so."""

    def __init__(self, tool: str, what: str) -> None:
        super().__init__()
        self._told = tool, what

    def _refuse(self, *_: object, **__: object) -> Any:
        tool, what = self._told
        error = MalformedInputError(
            f"a tool of LangChain that uses {what}, which no replay has",
            where=f"tool {tool!r}",
            expected="a tool that works with its arguments and its state alone",
            remedy="let it take this from its state, or make the tools of the state: tools_of=lambda state: [...]",
        )
        _LACKED.append(error)
        raise error

    __getitem__ = __contains__ = __bool__ = get = _refuse

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # libraries ask what kind of object this is
            raise AttributeError(name)
        return self._refuse()


@contextmanager
def _lacking(tool: str, state: object, given: Collection[str]) -> Iterator[None]:
    """Name what a graph's state and config have, and a replay lacks, if a tool that is ``given`` these asks for it."""
    _LACKED.clear()
    try:
        yield
    except (KeyError, TypeError) as error:
        lacks = isinstance(state, Mapping) and error.args in (("messages",), ("remaining_steps",))
        if "config" in given and error.args in (("configurable",), ("thread_id",), ("user_id",)):
            _NotGiven(tool, "the run's config").get()
        if "state" in given and (lacks or "object is not subscriptable" in str(error)):
            raise MalformedInputError(
                "a tool of LangChain asks the graph's state for something that the state here lacks",
                where=f"tool {tool!r}",
                found=f"{type(error).__name__}: {error}; the state is of {type(state).__name__}",
                expected="a state with all that tools ask for",
                remedy="let the function that is given as state=... put it there",
            ) from error
        raise
    finally:
        if _LACKED:
            raise _LACKED[0]


def _runtime(tool: str, state: Any) -> Any:
    from langgraph.prebuilt import ToolRuntime

    return ToolRuntime(
        state=state,
        context=state,
        config={"configurable": _NotGiven(tool, "the run's config")},
        stream_writer=lambda _: None,
        tool_call_id=_call_id(),
        store=_NotGiven(tool, "the run's store"),
    )


# OpenAI Agents.


def _openai_tool(tool: Any) -> Sequence[Given]:
    from agents.items import ItemHelpers
    from agents.tool import default_tool_error_function
    from agents.tool_context import ToolContext
    from openai.types.responses import ResponseFunctionToolCall

    def call(state: Any, arguments: Mapping[str, Json]) -> object:
        text = json.dumps(arguments)
        about = ToolContext(
            context=state, tool_name=tool.name, tool_call_id=_call_id(), tool_arguments=text
        )
        with refusing():
            found = finished(awaited(lambda: tool.on_invoke_tool(about, text)))
        if isinstance(found, str) and found == default_tool_error_function(about, Exception()):
            raise CallRefused(found)
        asked = ResponseFunctionToolCall(
            arguments=text, call_id=_call_id(), name=tool.name, type="function_call"
        )
        written: Any = ItemHelpers.tool_call_output_item(asked, found)
        return written["output"]

    return [Given(Tool(name=tool.name), call, functions_in(tool.on_invoke_tool), "openai-agents")]


def functions_in(value: Any, depth: int = 4) -> tuple[Any, ...]:
    """Return the functions of somebody's own that a wrapper holds, in its attributes or its closure."""
    found: list[Any] = []
    waiting, seen = [(value, 0)], set[int]()
    while waiting:
        each, level = waiting.pop()
        if id(each) in seen or level > depth:
            continue
        seen.add(id(each))
        if inspect.ismethod(each) and not _is_library(each.__func__):
            found.append(each)
        elif inspect.isfunction(each):
            if not _is_library(each):
                found.append(each)
            waiting += [(c.cell_contents, level + 1) for c in each.__closure__ or () if _is_set(c)]
        elif (
            hasattr(each, "__dict__") and not inspect.ismodule(each) and not isinstance(each, type)
        ):
            waiting += [(part, level + 1) for part in vars(each).values()]
    return tuple(found)


def _is_library(function: Any) -> bool:
    return (function.__module__ or "").partition(".")[0] in LIBRARIES


def _is_set(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


# Servers of the Model Context Protocol, in memory.


def _require_no_lifespan(given: Any) -> None:
    """Refuse a server with a lifespan of the user's: each call would begin one, which lasts over calls in service."""
    if given is not None and getattr(given, "__name__", "") != "default_lifespan":
        raise MalformedInputError(
            "a server in memory with a lifespan",
            found=f"{given.__module__}.{getattr(given, '__qualname__', type(given).__qualname__)}",
            expected="tools whose state is what tools_of gives the server",
            remedy="make what the lifespan yields in the state; or run the server itself: `--mcp COMMAND`",
        )


def _fastmcp_server(server: Any) -> Sequence[Given]:
    from fastmcp import Client

    _require_no_lifespan(getattr(server, "_lifespan", None))

    async def asked(name: str, arguments: Mapping[str, Json]) -> Any:
        async with Client(server) as client:
            return await client.call_tool_mcp(name, dict(arguments))

    async def listed() -> Any:
        async with Client(server) as client:
            return await client.list_tools()

    return _mcp_tools(server, listed, asked, "fastmcp")


def _mcp_server(server: Any) -> Sequence[Given]:
    try:
        from mcp.client import Client
    except ImportError as error:
        raise UnavailableError(
            "a server of an older package mcp",
            found=f"{type(server).__module__}",
            expected="the package mcp, 2.x, or fastmcp",
            remedy="pip install 'mcp>=2'",
        ) from error

    _require_no_lifespan(getattr(getattr(server, "settings", None), "lifespan", None))

    async def asked(name: str, arguments: Mapping[str, Json]) -> Any:
        async with Client(server) as client:
            return await client.call_tool(name, dict(arguments))

    async def listed() -> Any:
        async with Client(server) as client:
            return (await client.list_tools()).tools

    return _mcp_tools(server, listed, asked, "mcp")


def _mcp_tools(
    server: Any,
    listed: Callable[[], Awaitable[Any]],
    asked: Callable[[str, Mapping[str, Json]], Awaitable[Any]],
    framework: str,
) -> Sequence[Given]:
    def one(declared: Any) -> Given:
        name = declared.name
        hints = declared.model_dump(by_alias=True, exclude_none=True, mode="json")

        def call(state: Any, arguments: Mapping[str, Json]) -> object:
            with _quiet(), refusing():
                found = awaited(lambda: asked(name, arguments))
            result = found.model_dump(by_alias=True, exclude_none=True, mode="json")
            content = result.get("content", [])
            texts = [part["text"] for part in content if part.get("type") == "text"]
            if result.get("isError"):
                raise CallRefused("\n".join(texts) or "the tool gave no reason")
            return {key: result[key] for key in ("content", "structuredContent") if key in result}

        return Given(
            Tool.of_mcp(name, hints),
            call,
            tuple(filter(None, (getattr(functions.get(name), "fn", None),))),
            framework,
            server,
        )

    with _quiet():
        # Those of a server that passes calls on are not here.
        functions = {each.name: each for each in _own_tools(server)}
        return [one(each) for each in awaited(listed)]


def _own_tools(server: Any) -> Sequence[Any]:
    manager = getattr(server, "_tool_manager", None)
    if manager is not None:
        return list(manager.list_tools())
    return list(awaited(server.list_tools))


@contextmanager
def _quiet() -> Iterator[None]:
    """Log nothing: servers log each refusal."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


#: What makes tools of an object, by the package and the name of one of its classes.
_ADAPTERS: Mapping[tuple[str, str], Callable[[Any], Sequence[Given]]] = {
    ("pydantic_ai", "AbstractToolset"): _pydantic_toolset,
    ("pydantic_ai", "Tool"): _pydantic_tool,
    ("pydantic_ai", "AbstractAgent"): _pydantic_agent,
    ("langchain_core", "BaseTool"): _langchain_tool,
    ("agents", "FunctionTool"): _openai_tool,
    ("fastmcp", "FastMCP"): _fastmcp_server,
    ("mcp", "MCPServer"): _mcp_server,
    ("mcp", "FastMCP"): _mcp_server,
}
