"""Define environments of tool calls: a state, and tools that are called in it by name.

An author writes ``reset`` and ``call`` alone. The output of a call is observed: two orders are equal only if they end
in one state and each call gave the same output in both. :mod:`vcrt.calls.call_logs` reads logs of calls, and
:mod:`vcrt.environments.mcp` runs a server's tools.
"""

from __future__ import annotations

import copy
import inspect
import json
import sys
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from types import CodeType, FunctionType, MappingProxyType
from typing import Any, ClassVar, Generic
from weakref import WeakKeyDictionary

from vcrt.environments.contract import (
    Accepted,
    Environment,
    Episode,
    FormedSnapshot,
    Operation,
    Provenance,
    Rejected,
    Schema,
    State,
    StepEnvironment,
    Transition,
    Versions,
)
from vcrt.environments.drawn_ids import own_draws
from vcrt.environments.outside_effects import watched_effects
from vcrt.environments.registry import name_in_commands, own_module_name
from vcrt.environments.states.object_copies import copied
from vcrt.environments.states.object_states import (
    canonical_objects,
    first_difference,
    form_of,
    without_keys,
)
from vcrt.errors import MalformedInputError, VcrtError, VerifierFailure
from vcrt.hashing import Json, canonical_json, file_digest, json_digest, sha256_hex

#: Digests of the forms of states of which a copy was seen to keep everything, by the environment's class.
_COPIED: WeakKeyDictionary[type, set[str]] = WeakKeyDictionary()
#: The signature of the call that runs, which is its own in an episode; "call" outside of one.
NAMED_CALL: ContextVar[str] = ContextVar("named call", default="call")
#: The most characters of an operation's name; longer call texts are cut.
_MAX_SIGNATURE = 120


class CallRefused(Exception):
    """A tool's refusal, raised by ``call``; its message is the reason."""


class InvalidCall(CallRefused):
    """A call of an unknown tool, or with arguments that do not fit; nothing ran."""


@dataclass(frozen=True, slots=True)
class InvalidRejected(Rejected):
    """The refusal of an :class:`InvalidCall`; a log may word the reason in any way."""


def call_method(tools: object, name: str, arguments: Mapping[str, Any]) -> object:
    """Call the method of that name; raise :class:`InvalidCall` if it is missing or its parameters do not fit.

    Type hints convert arguments, as in pydantic's ``validate_call``: a text to a date, an object to a model. The result
    of an ``async`` method is awaited. Names that begin with an underscore are no tools.

    >>> call_method([3, 1], "indx", {})
    Traceback (most recent call last):
    ...
    vcrt.environments.tool_calls.InvalidCall: no tool 'indx'; did you mean 'index'?
    """
    method = None if name.startswith("_") else getattr(tools, name, None)
    if not callable(method):
        kind = type(tools)
        names = [n for n in dir(kind) if n[0] != "_" and callable(getattr(kind, n, None))]
        near = get_close_matches(name, names, n=1)
        raise InvalidCall(f"no tool {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    given, function = arguments, getattr(method, "__func__", method)
    if isinstance(function, FunctionType) and {*function.__annotations__} - {"return"}:
        from vcrt.environments.typed_calls import UnfitArguments, fitted

        try:
            given = fitted(function, arguments, alone=isinstance(method, FunctionType))
        except UnfitArguments as error:
            _require_parameters(method, name, arguments)
            raise InvalidCall(f"arguments that do not fit the tool {name!r}: {error}") from error
    try:
        output = method(**given)
    except TypeError:
        _require_parameters(method, name, arguments)
        raise
    if not inspect.isawaitable(output):
        return output
    from vcrt.environments.awaited_calls import awaited

    return awaited(lambda: output)


def _require_parameters(
    method: Callable[..., object], name: str, arguments: Mapping[str, Any]
) -> None:
    try:
        inspect.signature(method).bind(**arguments)
    except TypeError as error:
        raise InvalidCall(f"arguments that do not fit the tool {name!r}: {error}") from error
    except ValueError:  # a function of C that does not say
        pass


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """A tool and its declared annotations, as in the Model Context Protocol; None means that nothing is declared.

    ``sequential``: whether its calls run alone, as pydantic-ai takes it; if not, beside those of other such tools.
    """

    name: str
    read_only: bool | None = None
    idempotent: bool | None = None
    destructive: bool | None = None
    open_world: bool | None = None
    sequential: bool | None = None

    @classmethod
    def of_mcp(cls, name: str, declared: Mapping[str, Any]) -> Tool:
        """Return a tool as a server of the Model Context Protocol declares it."""
        hints = declared.get("annotations") or {}
        return cls(
            name=name,
            read_only=hints.get("readOnlyHint"),
            idempotent=hints.get("idempotentHint"),
            destructive=hints.get("destructiveHint"),
            open_world=hints.get("openWorldHint"),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """Numbers of calls and outputs in a log before a call and before its output (None without one), and of texts.

    ``message`` names the message that the call came in, None if it came alone.
    """

    made: int
    answered: int | None = None
    texts: int = 0
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A call: a tool's name, its arguments, and its output in a log (None if the log has none).

    ``span`` gives the places of call and output in the log, None if they are unknown; ``identifier`` is the log's own.
    """

    name: str
    arguments: Mapping[str, Json]
    logged: str | None = None
    span: Span | None = field(default=None, compare=False)
    identifier: str | None = field(default=None, compare=False)

    def to_json(self) -> dict[str, Json]:
        """Return the payload of its operation."""
        return {"name": self.name, "arguments": dict(self.arguments)}


class CallEnvironment(StepEnvironment[State], Generic[State]):
    """An environment of tool calls. Subclasses give ``name``, :meth:`reset` and :meth:`call`.

    The default canonical state is that of the Python objects which ``reset`` made
    (:func:`vcrt.environments.states.object_states.canonical_objects`), and the default snapshots are deep copies of
    them. An environment whose state lies elsewhere overrides ``canonical``, ``snapshot`` and ``restore``.
    """

    schemas: ClassVar[tuple[Schema, ...]] = (
        Schema(name="log", summary="calls as a log has them", relation="either", preset="any"),
    )
    #: Attributes of the state's objects that no call can see, such as caches and counters of time.
    ignored: ClassVar[frozenset[str]] = frozenset()
    #: Whether the order of a mapping's keys is part of states and outputs, for tools that list them in that order.
    key_order: ClassVar[bool] = False
    #: What to say and do about states of one canonical form that answer a later call differently, where ``canonical``
    #: is overridden.
    unseen: ClassVar[str] = (
        "a call sees a clock or chance, or what the environment's own canonical, snapshot or restore leave out: put "
        "that into all three"
    )
    #: How to bring what a call changes beside the state into it.
    keep_advice: ClassVar[str] = "make it in reset and keep it there"
    #: How to mend outputs that differ from a log's from the first on.
    begin_advice: ClassVar[str] = (
        "let reset begin where the trace did; `initial` in the log can say where"
    )
    #: How to mend an output that holds a time or something drawn, and so differs from the log's.
    drawn_advice: ClassVar[str] = (
        "the output holds a time or a random identifier: fix the clock and the chance in reset, "
        "or carry the log's values in `initial`; of an id that Python drew, name the place in `ids`"
    )
    #: For each tool that draws ids, their places in its outputs (see :func:`vcrt.environments.drawn_ids.ids_at`). Each
    #: call of such a tool has random numbers of its own, and a log's later calls get the ids that replay drew.
    ids: ClassVar[Mapping[str, str | Collection[str]]] = MappingProxyType({})
    #: Exceptions besides :class:`CallRefused` by which ``call`` reports a tool's refusal.
    refusals: ClassVar[tuple[type[Exception], ...]] = ()

    @abstractmethod
    def reset(self, initial: Json) -> State:
        """Return the state before the first call; ``initial`` is the log's initial state, None if it has none."""

    @abstractmethod
    def call(self, state: State, name: str, arguments: Mapping[str, Json]) -> object:
        """Call a tool, which may change ``state`` in place, and return its output; raise :class:`CallRefused`.

        The output is JSON, or an object that :func:`output_text` can write.
        """

    def tools(self) -> Sequence[Tool]:
        """Return the tools with their declarations. By default none are listed, and a call of any name is tried."""
        return ()

    def watched(self) -> Sequence[type]:
        """Return classes, beside the environment's own, whose modules are watched for changes. Default: none."""
        return ()

    def passed_over(self) -> Sequence[object]:
        """Return objects of a library that change with each call and hold no state. Default: none."""
        return ()

    def redact(self, output: str) -> str:
        """Return the part of an output that evidence may keep, equal for equal outputs; by default all of it.

        :func:`hidden` keeps the SHA-256 alone. A refusal is given as the output ``{"error": reason}``; if the result
        differs, it replaces the reason.
        """
        return output

    def versions(self) -> Versions:
        """Return the environment's name, and the SHA-256 of the file that defines its class."""
        kind = type(self)
        return Versions(
            environment=self.name,
            adapter="1",
            canonicalizer="objects/3",
            verifier=f"{own_module_name(kind)}.{kind.__qualname__} {_source_digest(kind)}",
        )

    def sample(self, schema: str, seed: int) -> Episode:
        """Raise :class:`vcrt.errors.VcrtError`: its episodes come from logs."""
        raise VcrtError(
            "an environment without a sampler",
            where=f"environment {self.name!r}",
            expected="a log of calls",
            remedy=f"`vcrt lift log TRACE.jsonl --environment {name_in_commands(self)}` runs the checks on a log's "
            "calls; or override sample",
        )

    def initial_state(self, episode: Episode) -> State:
        """Return the state that :meth:`reset` makes of a copy of the start, after the trace's calls before the window.

        Both run anew each time: a restored start would not show what a snapshot leaves out.
        """
        initial: Any = initial_of(episode)
        state = self.reset(copied(_in_order(initial["state"], initial.get("keys"))))
        for payload in initial.get("before", ()):
            answer = self.step(state, Operation(signature=payload["name"], payload=payload))
            if isinstance(answer, Rejected):
                raise VerifierFailure(
                    "a call before the window is refused, but was accepted in the trace",
                    where=f"{episode.episode_id}, {call_text(payload['name'], payload['arguments'])}",
                    found=answer.reason,
                    expected="the environment that gave the trace, with the same answers as then",
                )
            state = answer.state
        return state

    def probes(self, episode: Episode) -> tuple[Operation, ...]:
        """Return the episode's calls, and the further calls of its log (``probes`` of its initial state)."""
        initial: Any = episode.initial if isinstance(episode.initial, Mapping) else {}
        found = {_asked(each.payload): each for each in episode.operations}
        for payload in initial.get("probes", ()):
            found.setdefault(_asked(payload), Operation(signature=payload["name"], payload=payload))
        if self.ids:  # a further call draws other ids than the call that it repeats
            return tuple(
                Operation(signature=each.signature, payload={**payload, "turn": "asked"})
                for each in found.values()
                if isinstance(payload := each.payload, Mapping)
            )
        return tuple(found.values())

    def shown(self, state: State) -> Json:
        """Return a state that is no object as JSON that shows where it differs from another, or None."""
        return None

    def own_places(self, state: State) -> Collection[str] | None:
        """Return the folders that a call may write to, and the kinds of effects that the bytes of the state show.

        None if that is not known: then calls are not watched. By default none, where the state's bytes are those of its
        objects: a call that writes to a file is refused (:mod:`vcrt.environments.outside_effects`).
        """
        return () if type(self).canonical is CallEnvironment.canonical else None

    def step(self, state: State, operation: Operation) -> Transition[State]:
        """Call the tool. Where the log has a refusal, it is an output, and so part of the reference order."""
        payload: Any = operation.payload
        hide = hidden if payload.get("redact") else self.redact
        refusals: tuple[type[Exception], ...] = (CallRefused, *self.refusals)
        try:
            # A copy: a later replay of the call must not see what a tool does to its arguments.
            arguments = copied(_in_order(payload["arguments"], payload.get("keys")))
            draws = payload["name"] in self.ids
            places = self.own_places(state)
            watched = nullcontext() if places is None else watched_effects(places, self.ignored)
            with watched, own_draws(_asked(payload)) if draws else nullcontext():
                named = NAMED_CALL.set(operation.signature)
                try:
                    output: object = self.call(state, payload["name"], arguments)
                finally:
                    NAMED_CALL.reset(named)
        except refusals as error:
            reason = str(error) or type(error).__name__
            output = {"error": reason}
            if not payload.get("fails"):
                if isinstance(error, InvalidCall):  # names alone, which are never hidden
                    return InvalidRejected(reason)
                kept = hide(output_text(output))
                return Rejected(reason if kept == output_text(output) else kept)
        try:
            text = output_text(output, key_order=self.key_order)
        except Exception as error:
            part, found = "output", f"{type(error).__name__}: {str(error)[:200]}"
            if isinstance(error, MalformedInputError):
                part, found = str(error.where).replace("state", "output", 1), str(error.found)
            raise MalformedInputError(
                "an output that is no JSON",
                where=f"{self.describe(operation)}, {part}",
                found=found,
                expected="JSON, or an object with attributes",
                remedy="let call give back text, numbers, lists and mappings",
            ) from error
        return Accepted(state, hide(text))

    def canonical(self, state: State) -> bytes:
        """Return the canonical bytes of the state's objects."""
        try:
            return canonical_objects(state, ignored=self.ignored, key_order=self.key_order)
        except MalformedInputError as error:
            raise _outside(error, state) from error

    def snapshot(self, state: State) -> object:
        """Return a deep copy; raise :class:`vcrt.errors.MalformedInputError` for a connection, a lock or a file.

        Raise it too for a copy that loses something, if ``canonical`` is not overridden.
        """
        try:
            if type(self).canonical is not CallEnvironment.canonical:
                return copied(state)
            form, kept = self.canonical(state), copied(state)
            self._require_same(state, form, kept)
            # A method that overrides this one may have given it a part of the state, which has another form.
            is_own = type(self).snapshot is CallEnvironment.snapshot
            return FormedSnapshot(kept, form) if is_own else kept
        except (TypeError, copy.Error) as error:
            try:
                canonical_objects(state)
            except MalformedInputError as named:
                raise _outside(named, state) from error
            raise

    def _require_same(self, state: object, form: bytes, kept: object) -> None:
        """Raise :class:`vcrt.errors.MalformedInputError` with the place where a copy differs from the state.

        States of one form are copied alike, so this is looked at once for each form.
        """
        known = _COPIED.setdefault(type(self), set())
        digest = sha256_hex(repr((sorted(self.ignored), self.key_order)).encode() + form)
        if digest in known or self.canonical(kept) == form:  # type: ignore[arg-type]
            known.add(digest)
            return
        one, other = (form_of(each, ignored=self.ignored) for each in (state, kept))
        raise MalformedInputError(
            "a copy of the state does not keep everything",
            # Keys may hold values that evidence must hide.
            where=without_keys(first_difference(one, other) or "state"),
            found="another value at this place in a deep copy",
            expected="a state that copy.deepcopy keeps, to go on from it in several orders",
            remedy="let __deepcopy__, or __reduce__, of its class leave nothing out; or override snapshot and restore",
        )

    def restore(self, snapshot: Any) -> State:
        """Return a deep copy of the snapshot."""
        if isinstance(snapshot, FormedSnapshot):
            snapshot = snapshot.value
        restored: State = copied(snapshot)
        return restored

    def describe(self, operation: Operation) -> str:
        """Return the call with all of its arguments."""
        payload: Any = operation.payload
        return call_text(payload["name"], _in_order(payload["arguments"], payload.get("keys")))


def _asked(payload: Any) -> str:
    """Return a digest that tells calls apart, whatever their results in a log."""
    return json_digest(
        {key: payload[key] for key in payload if key not in ("fails", "redact", "keys")}
    )


def require_calls(environment: Environment) -> CallEnvironment[Any]:
    """Return the environment; raise :class:`MalformedInputError` if it is not one of calls."""
    if isinstance(environment, CallEnvironment):
        return environment
    raise MalformedInputError(
        "the environment's steps are no calls",
        where=f"environment {environment.name!r}",
        found=type(environment).__name__,
        expected="a vcrt.CallEnvironment, with reset and call",
    )


def comes_from_logs(environment: Environment) -> bool:
    """Return whether the environment is one of calls without a sampler of its own."""
    return type(environment).sample is CallEnvironment.sample


def unseen_by(environment: Environment) -> str | None:
    """Return the explanation of states that seem equal and are not; None for objects, whose differing place says it."""
    if not isinstance(environment, CallEnvironment):
        return None
    return None if type(environment).canonical is CallEnvironment.canonical else environment.unseen


def _outside(error: MalformedInputError, state: object) -> MalformedInputError:
    """Return the error about an unreadable state; it advises to ignore an attribute only if the state can be copied."""
    remedy = (
        "override canonical, snapshot and restore, all three, as docs/tools-logs.md does for sqlite3; or keep what no "
        "call needs out of the state"
    )
    with suppress(Exception):
        copied(state)
        remedy = (
            "name the attribute in the environment's `ignored` if no call can see it; else "
            + remedy
        )
    return MalformedInputError(
        error.what, where=error.where, found=error.found, expected=error.expected, remedy=remedy
    )


def is_redacted(episode: Episode) -> bool:
    """Return whether the hash alone of each output is kept."""
    payloads = [operation.payload for operation in episode.operations]
    return any(isinstance(payload, Mapping) and payload.get("redact") for payload in payloads)


def initial_of(episode: Episode) -> Mapping[str, Json]:
    """Return the start of an episode of calls, with its ``state``; raise :class:`MalformedInputError` for others."""
    if not isinstance(episode.initial, Mapping) or "state" not in episode.initial:
        raise MalformedInputError(
            "an episode of another kind of environment",
            where=episode.episode_id,
            found=repr(episode.initial)[:80],
            expected='{"state": what reset takes}',
        )
    return episode.initial


def output_text(output: object, *, key_order: bool = False) -> str:
    """Return an output as text, the same for equal outputs: canonical JSON, or that of an object's attributes.

    With ``key_order``, the keys of mappings in JSON stay in their order. Models, dates and the like are written as
    pydantic writes them; sets are sorted.

    >>> from datetime import date
    >>> output_text({"due": date(2026, 2, 1), "tags": {"b", "a"}})
    '{"due":"2026-02-01","tags":["a","b"]}'
    """
    with suppress(TypeError, ValueError, RecursionError):
        text = canonical_json(output).decode()  # type: ignore[arg-type]
        orders = list(_key_orders(output)) if key_order else []  # type: ignore[arg-type]
        if all(order == sorted(order) for order in orders):
            return text
        ordered = _in_order(json.loads(text), orders)
        return json.dumps(ordered, ensure_ascii=False, separators=(",", ":"))
    from vcrt.environments.typed_calls import written_with_sets_sorted

    with suppress(TypeError, ValueError, RecursionError):
        return canonical_json(written_with_sets_sorted(output)).decode()
    return canonical_objects(output).decode()


def hidden(output: str) -> str:
    """Return the SHA-256 that replaces an output."""
    return f"sha256:{sha256_hex(output.encode(errors='surrogatepass'))}"


def call_text(name: str, arguments: Mapping[str, Json]) -> str:
    """Return a call as a person writes it.

    >>> call_text("move", {"file": "a.txt", "to": "b"})
    'move(file="a.txt", to="b")'
    """
    given = ", ".join(
        f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in arguments.items()
    )
    return f"{name}({given})"


def _key_orders(value: Json) -> Iterator[list[str]]:
    """Yield the keys of each mapping in JSON, in their order; outer mappings come before inner ones."""
    if isinstance(value, Mapping):
        yield list(value)
    if isinstance(value, Mapping | list | tuple):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _key_orders(each)


def _kept_order(value: Json) -> dict[str, Json]:
    """Return the field that keeps the order of keys, which canonical JSON sorts; none if they are sorted."""
    orders = list(_key_orders(value))
    return {} if all(order == sorted(order) for order in orders) else {"keys": orders}


def _in_order(value: Any, orders: object) -> Any:
    """Return JSON with the keys of its mappings in the orders from :func:`_key_orders`; unchanged for None."""
    if orders is None:
        return value
    remaining = iter(orders if isinstance(orders, list | tuple) else ())

    def ordered(part: Any) -> Any:
        if isinstance(part, Mapping):
            keys = next(remaining, None)
            if not isinstance(keys, list | tuple) or sorted(map(str, keys)) != sorted(part):
                raise MalformedInputError(
                    "an episode of calls whose `keys` are not those of its mappings",
                    found=repr(keys)[:80],
                    expected=f"an order of {sorted(part)}"[:200],
                )
            return {key: ordered(part[key]) for key in keys}
        return [ordered(each) for each in part] if isinstance(part, list | tuple) else part

    return ordered(value)


def operations_of(
    calls: Sequence[Call],
    *,
    fails: Collection[int] = (),
    redact: bool = False,
    keep_order: bool = False,
    earlier: Sequence[Call] | None = None,
) -> tuple[Operation, ...]:
    """Return the operations of calls, in their order; a repeated call gets a number, so that each name is unique.

    ``fails`` has the places of the calls that the tool refuses there: the refusal is their output. With ``keep_order``,
    each replay gives a tool the keys of its arguments in their order, not sorted. Where calls draw numbers of their
    own, ``earlier`` has the trace's calls before them: each repetition draws others.
    """
    seen: dict[str, int] = {}
    made = Counter(json_digest(call.to_json()) for call in earlier or ())
    operations = []
    for place, call in enumerate(calls):
        text = call_text(call.name, call.arguments)
        if len(text) > _MAX_SIGNATURE:
            text = f"{text[: _MAX_SIGNATURE - 10]}... {json_digest(call.to_json())[:6]}"
        seen[text] = seen.get(text, 0) + 1
        payload = call.to_json()
        if place in fails:
            payload["fails"] = True
        if redact:
            payload["redact"] = True
        if earlier is not None:
            payload["turn"] = made[json_digest(call.to_json())]
            made[json_digest(call.to_json())] += 1
        if keep_order:
            payload |= _kept_order(call.arguments)
        signature = text if seen[text] == 1 else f"{text} #{seen[text]}"
        operations.append(Operation(signature=signature, payload=payload))
    return tuple(operations)


def episode_of_calls(
    environment: str,
    schema: str,
    initial: Json,
    operations: Sequence[Operation],
    provenance: Provenance,
    *,
    before: Sequence[Operation] = (),
    probes: Sequence[Operation] = (),
    keep_order: bool = False,
) -> Episode:
    """Return an episode of calls; ``reset`` receives ``initial``, and the calls ``before`` run ahead of it.

    ``probes`` are further calls that may tell its states apart. With ``keep_order``, each replay gives ``reset`` the
    keys of ``initial`` in their order, not sorted.
    """
    start: dict[str, Json] = {"state": initial, **(_kept_order(initial) if keep_order else {})}
    if before:
        start["before"] = [operation.payload for operation in before]
    if probes:
        start["probes"] = [operation.payload for operation in probes]
    return Episode(
        environment=environment,
        schema=schema,
        initial=start,
        operations=tuple(operations),
        provenance=provenance,
    )


def _source_digest(kind: type) -> str:
    """Return the SHA-256 of the file of a class; if no other process can import the class, of its methods' code."""
    module = sys.modules.get(kind.__module__)
    if kind.__module__ != "__main__" and getattr(module, kind.__qualname__, None) is kind:
        return file_digest(Path(inspect.getfile(kind)))
    own = [vars(each) for each in kind.__mro__ if each.__module__ == kind.__module__]
    return json_digest(
        [[_code_form(each[name]) for name in sorted(each) if name[0] != "_"] for each in own]
    )


def _code_form(value: object) -> Json:
    """Return the form of a function's code, or of another attribute's value, equal in every process of one Python."""
    code = getattr(value, "__code__", value)
    if isinstance(code, CodeType):
        constants: Json = [_code_form(constant) for constant in code.co_consts]
        return [code.co_code.hex(), list(code.co_names), list(code.co_varnames), constants]
    if isinstance(code, str | int | float | None):
        return repr(code)
    if isinstance(code, tuple):
        return [_code_form(each) for each in code]
    return sorted(map(repr, code)) if isinstance(code, frozenset) else type(code).__name__
