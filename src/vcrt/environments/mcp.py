"""Certify the tools of any MCP server: an environment whose state is a folder that the server works on.

The user describes a server by a few attributes of a class: its command, the initial content of the folder, and what the
server keeps outside of the folder. The environment reads and restores the folder as a value (or by the user's hooks),
confines the server to it, and replaces its path in all texts. It does not support servers whose state lies where it
cannot be restored. :mod:`vcrt.environments.tool_calls` defines calls.
"""

from __future__ import annotations

import json
import os
import re
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from shutil import copytree
from typing import Any, ClassVar, TypeAlias

from vcrt.environments.contract import CrossCheck, Episode, Guards, ReplayRequest, Versions
from vcrt.environments.drawn_ids import ids_at
from vcrt.environments.folder_states import (
    Tree,
    Workplace,
    canonical_tree,
    holds,
    put_back,
    read_tree,
    with_texts,
    write_files,
)
from vcrt.environments.mcp_servers import (
    MARKS,
    PORT,
    STATE,
    About,
    Description,
    Refusal,
    Server,
    free_port,
    require_client,
)
from vcrt.environments.tool_calls import CallEnvironment, CallRefused, Tool
from vcrt.errors import MalformedInputError, UnknownNameError, VerifierFailure
from vcrt.hashing import Json, canonical_json, file_digest, json_digest, sha256_hex
from vcrt.printable import counted
from vcrt.processes.confinement import Bounds
from vcrt.processes.programs import empty_environment, protections_by

#: The value of ``remembered`` that means every tool.
EVERY_TOOL = "*"
#: An id that a server drew: a text of eight or more characters. Chance gives digits alone, or letters alone, too.
_LONG_ID = re.compile(r"(?!\d*\.\d*$)[A-Za-z0-9_.:/+=-]{8,}")
#: The most initial states that are kept as values.
_BEGINNINGS = 16
_FILE_BYTES, _OPEN_FILES = 1 << 30, 4096
#: The protections that some bounds put in force; cached.
_protections = cache(protections_by)
#: Commands of servers and tools that were seen to write nothing after an answer.
_SETTLED = set[tuple[tuple[str, ...], str]]()
#: A call in a state: name and arguments.
_Call: TypeAlias = tuple[str, Mapping[str, Json]]


@dataclass(frozen=True, slots=True)
class Kept:
    """A state as a value: the initial state, the calls since, the content of the folder, and its canonical bytes.

    ``ids`` are the ids that the server drew, by those that stand for them in outputs and in the canonical bytes, which
    follow from ``seeds``, one for each call.
    """

    initial: Json
    calls: tuple[_Call, ...]
    content: object
    form: bytes
    ids: Mapping[str, str]
    seeds: tuple[bytes, ...]


@dataclass(eq=False, slots=True, weakref_slot=True)
class ServerState:
    """A state: either the server is in it now, or the server is put into it when a question needs it.

    ``kept`` is the state as a value, or None if a call has changed the state since it was last read. Of a state that
    is ``anew`` the first call takes a server that is started for it.
    """

    initial: Json
    calls: list[_Call]
    kept: Kept | None
    anew: bool = False
    seeds: list[bytes] = field(default_factory=list)


class McpEnvironment(CallEnvironment[ServerState]):
    """An environment of an MCP server's tools. Subclasses give ``name`` and ``command``; all else has a default.

    In ``command``, ``env`` and the arguments of calls, ``root`` stands for the folder that is the state, as it does in
    outputs. Every method that needs the server raises :class:`vcrt.errors.UnavailableError` if it does not start, and
    :class:`vcrt.errors.VerifierFailure` if it breaks.
    """

    #: The program and its arguments.
    command: ClassVar[tuple[str, ...]]
    #: The name of the folder in commands, calls and outputs: the one in your log, such as ``/home/ann/project``.
    root: ClassVar[str] = STATE
    #: The name of the one file in the folder for which ``root`` stands; "" for the folder itself.
    file: ClassVar[str] = ""
    #: Where a server over HTTP answers: then its command has ``{port}``, a port of this machine that is free.
    url: ClassVar[str] = f"http://127.0.0.1:{PORT}/mcp"
    #: Tools that take no argument, and resources (``memo://insights``), whose answers show what the server keeps in its
    #: memory: they are part of the state.
    shown_by: ClassVar[tuple[str, ...]] = ()
    #: The initial content of the folder if a log has none: texts by path (None: a folder), or a name of ``templates``.
    initial: ClassVar[Json] = None
    #: Folders and files that states may begin with, by name.
    templates: ClassVar[Mapping[str, Path]] = {}
    #: The server's environment variables, besides ``PATH`` and the library paths of the user's own.
    env: ClassVar[Mapping[str, str]] = {}
    #: Whether the server reads the folder at its start, or keeps it open. Then it is restarted whenever a state is
    #: restored. False promises that the server holds nothing of the folder between two calls.
    restart: ClassVar[bool] = True
    #: Whether a server without ``restart`` is at least started for each order that begins anew. A schedule is then
    #: tested on new servers, and what another order has left in a server's memory is found out.
    starts_anew: ClassVar[bool] = False
    #: Tools whose calls leave something in the server's own memory. The calls of a state with such a call are made
    #: again to restore it. ``{EVERY_TOOL}`` means that the server keeps its state in memory.
    remembered: ClassVar[Collection[str]] = frozenset()
    #: Paths in the folder that no call can see, as patterns (``fnmatch``).
    ignored: ClassVar[frozenset[str]] = frozenset()
    unseen: ClassVar[str] = (
        "the server's answers depend on something outside of its folder, such as its memory: name the tools whose "
        "calls leave something there in `remembered` of the environment's class ({EVERY_TOOL}: all), and add to "
        "`canonical` what a tool or a resource says of it, as by `self.look(state, TOOL, {})`; `restart = False` is "
        "for servers that hold nothing between two calls; leave out of `answer` what a clock or chance decides"
    )
    drawn_advice = (
        "the output holds a time or an identifier that the server drew: --ids TOOL=PLACE says where an identifier "
        "stands, in the log's output too; of a time, delete these calls from the log where nothing rests on them; or "
        "write a class whose `answer`, and `content` if the state holds it too, leave it out (docs/tools-reference.md)"
    )
    #: Fewer than elsewhere, since each may start a server.
    max_probes = 16
    #: Seconds that a server may take to start, and to answer a call.
    start_timeout_s: ClassVar[float] = 30.0
    timeout_s: ClassVar[float] = 20.0
    #: When the first call of a tool seems to have changed nothing, it is looked again after so many seconds: a server
    #: may answer first and write later.
    settle_s: ClassVar[float] = 1.2
    #: Paths that the server may read and run, where the system can confine it. It writes into its own folders alone.
    readable: ClassVar[tuple[str, ...]] = ("/",)

    def __init__(self) -> None:
        self._host = _Host()
        self._beginnings: OrderedDict[bytes, Kept] = OrderedDict()
        self._about: About | None = None
        self._last: Tree = {}
        self._drawn_as: dict[str, str] = {}
        weakref.finalize(self, self._host.close)

    # Methods that a subclass may override, for states that are more than files.

    def fill(self, folder: Path, initial: Json) -> None:
        """Make ``initial`` in an empty folder; raise :class:`MalformedInputError` if it has another form."""
        if isinstance(initial, str):
            template = self.templates.get(initial)
            if template is None:
                raise UnknownNameError.of("template", initial, self.templates, where=self.name)
            if template.is_dir():
                copytree(template, folder, symlinks=True, dirs_exist_ok=True)
            else:
                (folder / (self.file or template.name)).write_bytes(template.read_bytes())
        elif initial is not None:
            write_files(folder, initial)

    def keep(self, folder: Path) -> object:
        """Return the content of the folder as a value that no later call changes."""
        self._last = read_tree(folder, self._last)
        return self._last

    def content(self, folder: Path, kept: Any) -> bytes:
        """Return the canonical bytes of the folder, of which ``kept`` is the value; do not change the folder."""
        return canonical_tree(kept, ignored=self.ignored, names=self._names())

    def put_back(self, folder: Path, kept: Any) -> None:
        """Restore the folder to a value that :meth:`keep` returned."""
        put_back(folder, kept)

    def answer(self, name: str, result: Mapping[str, Json]) -> Json:
        """Return the part of a tool's result that counts as its output; raise :class:`CallRefused` for a refusal.

        Override it to leave out parts that the clock or chance decides, or for servers that report refusals otherwise
        than by ``isError``.
        """
        if result.get("isError"):
            raise CallRefused(text_of(result) or "the tool gave no reason")
        return {key: part for key, part in result.items() if key != "isError"}

    # The contract.

    def reset(self, initial: Json) -> ServerState:
        """Fill the folder anew and return the state; a server runs on it from the first call on."""
        initial = self.initial if initial is None else initial
        key = canonical_json(initial)
        if key not in self._beginnings:
            self._leave()
            if self.restart or self._host.memory is not None:
                self._host.end_server()
            self._host.unasked, self._host.ids = None, {}
            folder = self._host.place().state
            put_back(folder, {})
            self.fill(folder, initial)
            self._beginnings[key] = self._taken(initial, ())
            if len(self._beginnings) > _BEGINNINGS:
                self._beginnings.popitem(last=False)
        kept = self._beginnings[key]
        if self.starts_anew and self._host.unasked is not kept:
            return ServerState(initial, [], kept, anew=True)
        return self.restore(kept)

    def call(self, state: ServerState, name: str, arguments: Mapping[str, Json]) -> Json:
        """Make the call; raise :class:`CallRefused` for a refusal, :class:`MalformedInputError` for an unknown tool."""
        # Drawn first: whatever else draws, it is the call's own.
        seed = os.urandom(16) if name in self.ids else b""
        server = self._entered(state)
        for unknown in {name, *self.ids} - {*server.about.tools}:
            error = UnknownNameError.of("tool", unknown, server.about.tools)
            raise MalformedInputError(
                error.what,
                where=f"environment {self.name!r}, {server.about.server}",
                expected=error.expected,
                remedy=error.remedy,
            )
        before = None if (self.command, name) in _SETTLED else self._kept(state).form
        state.calls.append((name, arguments))
        state.seeds.append(seed)
        state.kept = None
        self._host.memory = self._memory(state.initial, state.calls) or self._host.memory
        answer = self._made(server, name, arguments, seed)
        if before is not None and self._kept(state).form == before:
            time.sleep(self.settle_s)
            if self._taken(None, ()).form != before:
                raise VerifierFailure(
                    "an MCP server that writes after it has answered",
                    where=f"environment {self.name!r}, tool {name!r}",
                    expected="a call whose changes are all in the state when it is answered",
                    remedy="a class whose `keep` waits until all is written (docs/tools-reference.md)",
                )
            _SETTLED.add((self.command, name))
        return answer

    def resource(self, state: ServerState, uri: str) -> Json:
        """Return a resource of the server as it is now, for a ``canonical`` that adds it to the folder."""
        server = self._entered(state)
        found: Json = self._asked(lambda: server.resource(self._placed(uri)))
        return found

    def look(self, state: ServerState, name: str, arguments: Mapping[str, Json]) -> Json:
        """Return the output of a call that changes nothing, for such a ``canonical``; it is no part of the state."""
        return self._made(self._entered(state), name, arguments)

    def canonical(self, state: ServerState) -> bytes:
        """Return the canonical bytes of the folder, and of what ``shown_by`` answers."""
        form = self._kept(state).form
        shown = [self._shown(state, each) for each in self.shown_by]
        return form + canonical_json(shown) if shown else form

    def _shown(self, state: ServerState, name: str) -> Json:
        try:
            return self.resource(state, name) if "://" in name else self.look(state, name, {})
        except (CallRefused, Refusal) as error:
            raise MalformedInputError(
                "a server that does not show what it keeps",
                where=f"environment {self.name!r}, {name!r} of `shown_by`",
                found=str(error),
                expected="a tool that takes no argument, or a resource",
            ) from error

    def snapshot(self, state: ServerState) -> object:
        """Return the state as a value."""
        return self._kept(state)

    def restore(self, snapshot: Any) -> ServerState:
        """Restore a snapshot; first keep the state that the server was in, since somebody may ask about it again."""
        state = ServerState(
            snapshot.initial, list(snapshot.calls), snapshot, seeds=list(snapshot.seeds)
        )
        self._enter(state)
        return state

    def cross_check(self, episode: Episode) -> tuple[CrossCheck, ...]:
        """Compare a server that serves several orders with one that is started for one order alone."""
        if self.restart or self.starts_anew:
            return ()  # each order has such a server as it is
        order = tuple(range(episode.num_operations))
        requests = [ReplayRequest(episode, order), ReplayRequest(episode, order[::-1])]
        usual = self.replay(requests)
        alone = []
        for request in requests:
            self._leave()
            self._host.end_server()
            alone += self.replay([request])
        agreed = sum(one == other for one, other in zip(usual, alone, strict=True))
        return (CrossCheck("a server started for one order alone", len(requests), agreed),)

    def tools(self) -> Sequence[Tool]:
        """Return the server's tools and its declarations about them."""
        return [Tool.of_mcp(name, declared) for name, declared in self._facts().tools.items()]

    def versions(self) -> Versions:
        """Return the digest of the class's file, and the server's version, protocol and tools, as it declares them."""
        client = require_client()
        own, about = super().versions(), self._facts()
        return Versions(
            environment=self.name,
            adapter="mcp/1",
            canonicalizer="folder/2",
            verifier=f"{about.server}; {own.verifier}",
            libraries={
                "protocol": about.protocol,
                "command": " ".join(self.command),
                "tools": about.tools_digest,
                "templates": json_digest({k: _digest(path) for k, path in self.templates.items()}),
                "mcp": client,
            },
        )

    def guards(self) -> Guards:
        """Return the confinement of the server on this system."""
        report = _protections(self._description(self._host.place()).bounds)
        return Guards(in_force=report.in_force, absent=report.absent)

    def close(self) -> None:
        """End the server and remove its folder; the next question makes new ones."""
        self._host.close()
        self._beginnings.clear()

    # How the server is put into a state.

    def _enter(self, state: ServerState) -> None:
        """Put the folder and the server into a state."""
        self._leave()
        kept = state.kept
        if kept is None:
            raise VerifierFailure(
                "a state was lost with its server",
                where=f"environment {self.name!r}",
                expected="a state whose server has not broken since",
            )
        if self._host.unasked is kept and (self.restart or self.starts_anew):
            self._host.state = weakref.ref(state)
            return  # A server that was started in this state, and has answered nothing since, is a new one.
        self._host.unasked = None
        memory = self._memory(kept.initial, kept.calls)
        if self.restart or memory != self._host.memory or (memory and self.ids):
            self._host.end_server()
        again = kept.calls if memory != self._host.memory else ()
        start = self.reset(kept.initial).kept if again else kept
        assert start is not None
        self.put_back(self._host.place().state, start.content)
        self._host.ids = dict(start.ids)
        for (name, arguments), seed in zip(again, kept.seeds, strict=False):
            with suppress(CallRefused):
                self._made(self._running(), name, arguments, seed)
        self._host.memory = memory
        if again:
            state.kept = self._taken(kept.initial, kept.calls, kept.seeds)
            if state.kept.form != kept.form:
                raise VerifierFailure(
                    "calls that were made again led to another state",
                    where=f"environment {self.name!r}, {counted(len(again), 'call')}",
                    expected="a server that does the same each time it gets the same calls",
                    remedy="if it draws ids, say where they stand (--ids); let a class's `content` leave out times",
                )
        self._host.state = weakref.ref(state)

    def _leave(self) -> None:
        """Keep the state that the server is in, if somebody may ask about it again."""
        state = self._host.current()
        if state is not None:
            self._kept(state)
        self._host.state = None

    def _kept(self, state: ServerState) -> Kept:
        if state.kept is None:
            if self._host.current() is not state:
                self._enter(state)
            state.kept = self._taken(state.initial, tuple(state.calls), tuple(state.seeds))
        return state.kept

    def _taken(
        self, initial: Json, calls: tuple[_Call, ...], seeds: tuple[bytes, ...] = ()
    ) -> Kept:
        folder = self._host.place().state
        content = self.keep(folder)
        form = self.content(folder, content)
        if type(self).content is not McpEnvironment.content:  # that one has replaced them already
            for own, drawn in self._host.ids.items():
                form = form.replace(drawn.encode(), own.encode())
        return Kept(initial, calls, content, form, dict(self._host.ids), seeds)

    def _entered(self, state: ServerState) -> Server:
        """Return the server, in that state."""
        if state.anew:
            self._leave()
            self._host.end_server()
            state.anew = False
        if self._host.current() is not state:
            self._enter(state)
        is_new = self._host.server is None and state.kept is not None
        server = self._running()
        if is_new:
            self._host.unasked = state.kept
        return server

    def _running(self) -> Server:
        """Return the server; start it on the present folder if none runs."""
        if self._host.server is None:
            require_client()
            place = self._host.place()
            place.clear_others()
            server = Server(self._description(place), place.path)
            self._host.server = server
            if self._about not in (None, server.about):
                raise VerifierFailure(
                    "an MCP server describes itself in another way than when it was started before",
                    where=f"environment {self.name!r}",
                    found=f"{server.about.server}, tools {server.about.tools_digest[:8]}",
                    expected="the same version and tools in every state",
                )
            self._about = server.about
        return self._host.server

    def _facts(self) -> About:
        if self._about is None:
            self._entered(self.reset(None))
        assert self._about is not None
        return self._about

    def _made(
        self, server: Server, name: str, arguments: Mapping[str, Json], seed: bytes = b""
    ) -> Json:
        try:
            result = self._asked(lambda: server.call(name, self._placed(arguments)))
        except Refusal as refusal:
            raise CallRefused(self._named(str(refusal)) or "no valid arguments") from refusal
        if seed and not result.get("isError"):
            self._host.ids |= self._drawn(name, arguments, result, seed)
            result = self._named(result)
        return self.answer(name, result)

    def _drawn(
        self, name: str, arguments: Mapping[str, Json], result: Mapping[str, Json], seed: bytes
    ) -> dict[str, str]:
        """Return the ids that a call of a tool in ``ids`` drew, by others that follow from the call alone.

        What an earlier call drew, and what the start or the call's own arguments hold, this call did not draw.
        """
        texts: Any = [result.get("structuredContent"), text_of(result)]
        with suppress(ValueError):
            texts.insert(1, json.loads(texts[1]))
        texts += [each["result"] for each in texts if isinstance(each, dict) and "result" in each]
        every = [[x for x in ids_at(one, self.ids[name]) if x is not None] for one in texts]
        found = min(filter(None, every), key=lambda ids: {*map(type, ids)} != {str}, default=[])
        held = [arguments, *(one.content for one in self._beginnings.values())]
        own: dict[str, str] = {}
        for number, drawn in enumerate(found):
            drawn = with_texts(drawn, {text: other for other, text in own.items()})
            other, fault = f"id-{sha256_hex(seed + b'%d' % number)[:20]}", ""
            if not isinstance(drawn, str) or not _LONG_ID.fullmatch(drawn):
                fault = "a text of 8 or more characters without spaces, because vcrt looks for this exact text"
            elif drawn in self._host.ids or drawn in own or any(holds(o, drawn) for o in held):
                continue
            elif self._drawn_as.setdefault(drawn, other) != other:
                fault = "an id that no other call gets in another order, unlike a counter's ids"
            if fault:
                raise MalformedInputError(
                    "an id of an MCP server may stand for something else, too",
                    where=f"environment {self.name!r}, tool {name!r}",
                    found=repr(drawn)[:80],
                    expected=fault,
                    remedy="take the place out of `ids`",
                )
            own[other] = drawn
        return own

    def _asked(self, ask: Callable[[], dict[str, Json]]) -> Any:
        """Return a server's answer without the folder's path; end a server that does not answer."""
        self._host.unasked = None
        try:
            return self._named(ask())
        except Refusal:
            raise
        except BaseException:
            self._host.end_server()
            self._host.state = None
            raise

    def _memory(self, initial: Json, calls: Sequence[_Call]) -> tuple[Json, Sequence[_Call]] | None:
        """Return all that may decide the content of the server's memory after these calls; None if it is empty."""
        for length in range(len(calls), 0, -1):
            if calls[length - 1][0] in self.remembered or EVERY_TOOL in self.remembered:
                return initial, tuple(calls[:length])
        return None

    # No text depends on the place of the folder.

    def _names(self) -> dict[str, str]:
        place, ids = self._host.place(), self._host.ids
        paths = {str(place.state / self.file): self.root, str(place.path): "{place}"}
        return paths | {drawn: own for own, drawn in ids.items()}

    def _named(self, value: Json) -> Any:
        return with_texts(value, self._names())

    def _placed(self, value: Json) -> Any:
        state = str(self._host.place().state / self.file)
        ids = dict(reversed(self._host.ids.items()))  # an id may have an earlier one in it
        return with_texts(value, {**ids, self.root: state, STATE: state})

    def _description(self, place: Workplace) -> Description:
        variables = empty_environment() | {"LANG": "C.UTF-8", "TZ": "UTC"}
        variables |= {name: os.environ[name] for name in ("PATH", *MARKS) if name in os.environ}
        variables |= {"HOME": str(place.path / "home"), "TMPDIR": str(place.path / "tmp")}
        variables |= self._placed(dict(self.env))
        port = free_port() if any(PORT in part for part in self.command) else 0
        placed = self._placed(list(self.command))
        bounds = Bounds(
            address_space=None,
            cpu_seconds=None,
            readable=tuple(self.readable),
            programs=tuple(self.readable),
            file_bytes=_FILE_BYTES,
            open_files=_OPEN_FILES,
            writable=(*(str(place.path / name) for name in ("state", "home", "tmp")), "/dev/null"),
            variables=tuple(sorted({*variables, *MARKS})),
            port=port,
        )
        return Description(
            name=self.name,
            command=tuple(part.replace(PORT, str(port)) for part in placed),
            shown=" ".join(self.command),
            variables=variables,
            bounds=bounds,
            start_timeout_s=self.start_timeout_s,
            timeout_s=self.timeout_s,
            url=self.url.replace(PORT, str(port)) if port else None,
        )


def text_of(result: Mapping[str, Json]) -> str:
    r"""Return the texts of a tool's result, one below the other.

    >>> text_of({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]})
    'a\nb'
    """
    parts: Any = result.get("content") or ()
    return "\n".join(part["text"] for part in parts if part.get("type") == "text")


class _Host:
    """The server and its folder, apart from the environment, so that a finalizer of the environment can end them."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._place: Workplace | None = None
        self.server: Server | None = None
        self.state: weakref.ref[ServerState] | None = None
        #: What decides the content of the server's memory; None if it is empty.
        self.memory: object = None
        #: The state in which the server was started, if it has been asked for nothing but its tools since.
        self.unasked: Kept | None = None
        #: The ids that the server drew on the way to the state that it is in, by those that stand for them.
        self.ids: dict[str, str] = {}

    def place(self) -> Workplace:
        """Return the folder; make it if there is none."""
        if self._process != os.getpid():  # a fork: all that is there belongs to the other process
            self.__init__()  # type: ignore[misc]
        if self._place is None:
            self._place = Workplace()
        return self._place

    def current(self) -> ServerState | None:
        """Return the state that the server is in."""
        return None if self.state is None or self._process != os.getpid() else self.state()

    def end_server(self) -> None:
        """End the server; keep its folder."""
        server, self.server, self.memory, self.unasked = self.server, None, None, None
        if server is not None:
            server.close()

    def close(self) -> None:
        """End the server and remove the folder."""
        self.end_server()
        place, self._place, self.state = self._place, None, None
        if place is not None and self._process == os.getpid():
            place.close()


def _digest(template: Path) -> str:
    if template.is_dir():
        return sha256_hex(canonical_tree(read_tree(template)))
    return file_digest(template)
