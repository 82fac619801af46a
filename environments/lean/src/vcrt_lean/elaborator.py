"""Run commands, and the steps of proofs, by Lean's elaborator in this process, in persistent states.

What follows one state never affects another. A proof runs from saved states: Lean elaborates a theorem up to a hook, a
tactic of ours at the place of the steps, which runs tactics of Lean, and saves and restores all of Lean's state around
them. Lean itself ends a whole sequence: it elaborates the theorem once more, the hook restores the state after the
sequence, and Lean continues from there to the kernel. This works because equal commands in equal states give equal
names to their goals.

This module supports Lean 4.35.0 (commit :data:`COMMIT`) only: the functions, the references that they consume and the
layout of objects differ between commits. A wrong layout ends the process; hence it runs in a process of its own.
:mod:`vcrt_lean.inprocess` limits its time and memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from vcrt.printable import counted
from vcrt_lean.values import Library, Value, construct, elements, empty_array, number

#: The commit whose functions and objects this module supports.
COMMIT = "eb6cafb7290e8bd5f2937522d8d804f58f02bafc"
#: Line, severity and text of a message.
Said = tuple[int, str, str]
State = Value

_SEVERITIES = ("information", "warning", "error")
# The fields of Lean's structures that this module reads.
_STATE_FIELDS, _ENVIRONMENT, _MESSAGES, _SCOPES, _INFO = 13, 0, 1, 2, 8
_SCOPE_OPTIONS, _SCOPE_NAMESPACE, _SCOPE_OPEN = 1, 2, 3
_MESSAGE_FIELDS, _POSITION, _DATA, _SEVERITY, _SILENT = 5, 1, 4, 1, 2
_INFO_FIELDS = 3
_INPUT_MAP = 2
_DEFINITION, _THEOREM = 1, 2
_COMMON, _BODY = 0, 1
_LEVELS, _TYPE = 1, 2
_ACCEPTED = 1
#: The tactic that calls the hook, and its declaration to Lean.
HOOK = "vcrt_hook"
HOOK_SYNTAX = (
    "namespace Lean.Parser.Tactic\n"
    f'syntax (name := vcrtHook) "{HOOK}" : tactic\n'
    "end Lean.Parser.Tactic\n"
)
_HOOK_KIND = ("Lean", "Parser", "Tactic", "vcrtHook")
_SEQUENCE_KIND = "tacticSeq1Indented"

#: The arguments of a tactic: its syntax, contexts and cells in turn, and a token.
_NUM_ARGUMENTS = 10
_CORE_FIELDS, _CORE_TRACES, _CORE_MESSAGES = 9, 4, 6
_TRACE_LIST, _TRACE_DATA = 0, 1
_NODE, _NODE_KIND, _NODE_PARTS = 1, 1, 2
_ERROR = 0


class ElaboratorError(Exception):
    """Lean did something that this module does not expect."""


@dataclass(frozen=True, slots=True)
class Source:
    """A text in the form of Lean's parser, and its size in bytes."""

    context: Value
    size: Value


@dataclass(frozen=True, slots=True)
class Command:
    """A command that Lean parsed: its syntax, its place, the place where parsing continues, and the parser's messages.

    The last command of a text has no ``syntax``: it is the end.
    """

    syntax: Value | None
    source: Source
    start: Value
    end: Value
    said: list[Said]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All of Lean's state between two tactics, and the heartbeats used by then."""

    contents: tuple[Value, ...]
    heartbeats: int


class Stage:
    """The hook's place in a proof that Lean is elaborating; valid while the hook runs."""

    def __init__(self, elaborator: Elaborator, arguments: list[Value]) -> None:
        self._elaborator = elaborator
        self._surroundings = arguments[1:-1]
        self._cells = self._surroundings[1::2]
        # Traces from before the hook stay in Lean's list.
        self._before = self._core().field(_CORE_TRACES)
        self._num_before = len(elaborator.traces(self._before))

    def snapshot(self) -> Snapshot:
        """Return the present state."""
        contents = tuple(self._elaborator.content(cell) for cell in self._cells)
        return Snapshot(contents, self._elaborator.heartbeats())

    def restore(self, snapshot: Snapshot) -> None:
        """Restore a state."""
        for cell, content in zip(self._cells, snapshot.contents, strict=True):
            self._elaborator.put(cell, content)
        self._elaborator.set_heartbeats(snapshot.heartbeats)

    def take_messages(self) -> Value:
        """Return Lean's messages in the proof so far, or since the last call."""
        messages = self._core().field(_CORE_MESSAGES)
        self.put_messages(self._elaborator.no_messages)
        return messages

    def put_messages(self, messages: Value) -> None:
        """Replace Lean's messages in the proof so far."""
        self._elaborator.put(self._cells[-1], self._core().replaced(_CORE_MESSAGES, messages))

    def attempt(self, tactic: Value) -> Value:
        """Run a tactic; return Lean's own record of whether it failed."""
        surroundings = [value.address for value in self._surroundings]
        return Value(self._elaborator.evaluate_tactic(tactic.give(), *surroundings))

    def run(self, tactic: Value, line: int) -> list[Said]:
        """Run a tactic; return Lean's messages and exception, at ``line`` if Lean gives none."""
        result = self.attempt(tactic)
        said = self._elaborator.read(self.take_messages())
        if result.tag != 0:
            failure = result.field(0)
            if failure.tag == _ERROR:
                said.append((line, "error", self._elaborator.exception_text(failure)))
            elif not any(severity == "error" for _, severity, _ in said):
                raise ElaboratorError(f"a tactic failed without a word: {said}")
        return said

    def run_trace(self, tactic: Value, line: int) -> list[Said]:
        """Run a tactic that traces; return Lean's messages and the traces."""
        said = self.run(tactic, line)
        core = self._core()
        for trace in self._elaborator.traces(core.field(_CORE_TRACES))[self._num_before :]:
            said.append((line, "information", self._elaborator.text(trace)))
        self._elaborator.put(self._cells[-1], core.replaced(_CORE_TRACES, self._before))
        return said

    def _core(self) -> Value:
        core = self._elaborator.content(self._cells[-1])
        if core.num_fields != _CORE_FIELDS:
            raise ElaboratorError(f"a state of {counted(core.num_fields, 'field')} in a proof")
        return core


class Elaborator:
    """A parser and runner of commands with the Lean of ``library``, in which it registers the hook."""

    def __init__(self, library: Library) -> None:
        self.library = library
        objects, pointer = library.on_objects, ctypes.c_void_p
        self._input = library.function(
            "l_Lean_Parser_mkInputContext___redArg", pointer, pointer, ctypes.c_uint8, pointer
        )
        self._parse = objects("l_Lean_Parser_parseCommand", 4)
        self._elaborate = objects("l_Lean_Elab_Command_elabCommandTopLevel", 4)
        self._is_terminal = objects("l_Lean_Parser_isTerminalCommand", 1)
        self._new_cell = objects("lean_st_mk_ref", 1)
        self._cell_content = objects("lean_st_ref_get", 1)
        self._swap = objects("lean_st_ref_swap", 2)
        self._log_array = objects("l_Lean_MessageLog_toArray", 1)
        self._data_text = objects("l_Lean_MessageData_toString", 1)
        self._exception_data = objects("l_Lean_Exception_toMessageData", 1)
        self._items = objects("l_Lean_PersistentArray_toArray___redArg", 1)
        self._find = library.function(
            "l_Lean_Environment_find_x3f", pointer, pointer, ctypes.c_uint8
        )
        self._constants = objects("l_Lean_Expr_getUsedConstants", 1)
        self._add = library.function(
            "l_Lean_Environment_addDeclCore",
            *(pointer, ctypes.c_size_t, ctypes.c_size_t, pointer, pointer, ctypes.c_uint8),
        )
        self._equal = objects("lean_expr_equal", 2)
        self._equal_names = objects("lean_name_eq", 2)
        self.evaluate_tactic = objects("l_Lean_Elab_Tactic_evalTactic", 9)
        self.heartbeats = library.function("lean_io_get_num_heartbeats")
        self.set_heartbeats = library.procedure("lean_io_set_heartbeats", ctypes.c_size_t)
        self._file = library.string("<stdin>")
        self.no_messages = library.variable("l_Lean_MessageLog_empty")
        self._macro_scope = library.variable("l_Lean_firstFrontendMacroScope")
        self._hook: Callable[[Stage], Value] | None = None
        self._failure: BaseException | None = None
        signature = ctypes.CFUNCTYPE(ctypes.c_size_t, *[ctypes.c_size_t] * _NUM_ARGUMENTS)
        # Kept, since Python does not see Lean's reference to it.
        self._function = signature(self._called)
        attribute = "l_Lean_Elab_Tactic_tacticElabAttribute"
        library.register(attribute, _HOOK_KIND, HOOK, self._function, _NUM_ARGUMENTS)

    def empty_state(self) -> State:
        """Return the state before any command: an empty environment, the default options, no record for editors."""
        objects = self.library.on_objects
        made = action_result(objects("l_Lean_mkEmptyEnvironment", 1)(0))
        environment = objects("l_Lean_Environment_setMainModule", 2)(
            made.give(), self.library.name("_stdin").give()
        )
        options = self.library.variable("l_Lean_Options_empty")
        make = objects("l_Lean_Elab_Command_mkState", 3)
        state = Value(make(environment, self.no_messages.give(), options.give()))
        info = state.field(_INFO)
        if (state.num_fields, info.num_fields) != (_STATE_FIELDS, _INFO_FIELDS):
            raise ElaboratorError(f"a state of {counted(state.num_fields, 'field')}")
        # The small value that enables recording stays zero.
        return state.replaced(_INFO, construct(0, *map(info.field, range(_INFO_FIELDS)), small=1))

    def run(self, state: State, text: str) -> tuple[State, list[Said]]:
        """Run the commands in ``text`` after ``state``, without changing it; return the new state and Lean's messages.

        Raise :class:`ElaboratorError` if Lean does not read the text to its end.
        """
        said: list[Said] = []
        source = self._source(text)
        position = construct(0, number(0), small=1)
        while True:
            command = self._next(state, source, position)
            state, more = self.run_command(state, command)
            said += more
            if command.syntax is None:
                return state, said
            position = command.end

    def parse(self, state: State, text: str) -> list[Command]:
        """Return the commands in ``text``, none of which may change the syntax that ``state`` knows.

        Raise :class:`ElaboratorError` if Lean does not read the text to its end.
        """
        source = self._source(text)
        position = construct(0, number(0), small=1)
        commands = [self._next(state, source, position)]
        while commands[-1].syntax is not None:
            commands.append(self._next(state, source, commands[-1].end))
        return commands

    def run_command(
        self, state: State, command: Command, *, brief: bool = False
    ) -> tuple[State, list[Said]]:
        """Return the state after a command, and the messages of parser and elaborator (only errors, if ``brief``)."""
        if command.syntax is None:
            return state, command.said
        nothing = number(0)
        # The map from positions to lines.
        lines = command.source.context.field(_INPUT_MAP)
        context = construct(
            0,
            *(self._file, lines, nothing, command.start, nothing),
            *(nothing, self._macro_scope, nothing, nothing, nothing),
            small=1,
        )
        cell = Value(self._new_cell(state.give()))
        action_result(
            self._elaborate(
                command.syntax.give(), empty_array().give(), context.address, cell.address
            )
        )
        after = self.content(cell)
        said = command.said + self.read(after.field(_MESSAGES), brief=brief)
        return after.replaced(_MESSAGES, self.no_messages), said

    def explore(self, state: State, theorem: Command, visit: Callable[[Stage], None]) -> list[Said]:
        """Elaborate a theorem and call ``visit`` at its hook; return Lean's other messages."""

        def hook(stage: Stage) -> Value:
            start = stage.snapshot()
            stage.take_messages()
            visit(stage)
            stage.restore(start)
            return _success()

        return self._run(state, theorem, hook, brief=False)[1]

    def finish(
        self, state: State, theorem: Command, snapshot: Snapshot, closing: Value | None
    ) -> tuple[State, list[Said]]:
        """Elaborate a theorem from ``snapshot`` at its hook on, then ``closing``, if any; return state and errors."""

        def hook(stage: Stage) -> Value:
            messages = stage.take_messages()
            stage.restore(snapshot)
            stage.put_messages(messages)
            return _success() if closing is None else stage.attempt(closing)

        return self._run(state, theorem, hook, brief=True)

    def find(self, environment: Value, name: Value) -> Value | None:
        """Return the constant of a name in an environment, or None."""
        found = Value(self._find(environment.give(), name.give(), 0))
        return found.field(0) if found.num_fields else None

    def constants(self, term: Value) -> list[Value]:
        """Return the names of the constants in a term."""
        return Value(self._constants(term.give())).items()

    def same_declaration(self, one: Value, other: Value) -> bool:
        """Return whether two constants are theorems or definitions of equal statement and body, down to each name."""
        if one.tag != other.tag or one.tag not in (_DEFINITION, _THEOREM):
            return False
        bodies = [constant.field(0) for constant in (one, other)]
        common = [body.field(_COMMON) for body in bodies]
        levels = [list(elements(part.field(_LEVELS))) for part in common]
        return (
            len(levels[0]) == len(levels[1])
            and all(self._agree(self._equal_names, *pair) for pair in zip(*levels, strict=True))
            and self._agree(self._equal, *(part.field(_TYPE) for part in common))
            and self._agree(self._equal, *(body.field(_BODY) for body in bodies))
        )

    def same_constant(self, one: Value, other: Value) -> bool:
        """Return whether two constants are the same object, or :meth:`same_declaration` holds."""
        return one.field(0).address == other.field(0).address or self.same_declaration(one, other)

    def environment(self, state: State) -> Value:
        """Return the environment of a state."""
        return state.field(_ENVIRONMENT)

    def added(self, environment: Value, declaration: Value) -> Value | None:
        """Return the environment with a declaration that the kernel has checked, or None if it refuses it."""
        result = Value(
            self._add(environment.give(), 0, 0, declaration.address, number(0).address, 1)
        )
        return result.field(0) if result.tag == _ACCEPTED else None

    def content(self, cell: Value) -> Value:
        """Return the content of a mutable cell."""
        return Value(self._cell_content(cell.address))

    def put(self, cell: Value, content: Value) -> None:
        """Replace the content of a mutable cell."""
        Value(self._swap(cell.address, content.give()))

    def exception_text(self, exception: Value) -> str:
        """Return the text of an exception."""
        return self.text(Value(self._exception_data(exception.give())))

    def traces(self, state: Value) -> list[Value]:
        """Return the messages in a proof's state of traces."""
        found = Value(self._items(state.field(_TRACE_LIST).address)).items()
        return [trace.field(_TRACE_DATA) for trace in found]

    def read(self, log: Value, *, brief: bool = False) -> list[Said]:
        """Return the messages in one of Lean's logs (only errors, if ``brief``: texts take the time)."""
        said = []
        for message in Value(self._log_array(log.address)).items():
            if message.num_fields != _MESSAGE_FIELDS:
                raise ElaboratorError(f"a message of {counted(message.num_fields, 'field')}")
            severity = _SEVERITIES[message.byte(_SEVERITY)]
            if not message.byte(_SILENT) and not (brief and severity != "error"):
                line = message.field(_POSITION).field(0).number()
                said.append((line, severity, self.text(message.field(_DATA))))
        return said

    def text(self, data: Value) -> str:
        """Return the text of a message."""
        return Value(self._data_text(data.give())).text()

    def _run(
        self, state: State, theorem: Command, hook: Callable[[Stage], Value], *, brief: bool
    ) -> tuple[State, list[Said]]:
        self._hook = hook
        after, said = self.run_command(state, theorem, brief=brief)
        self._hook = None
        if self._failure is not None:
            raise self._failure
        return after, said

    def _called(self, *addresses: int) -> int:
        """Run the hook for Lean; this must not raise."""
        arguments = [Value(address) for address in addresses]
        result = _success()
        try:
            if self._hook is None:
                raise ElaboratorError("the hook was called twice, or where no proof is run")
            hook, self._hook = self._hook, None
            result = hook(Stage(self, arguments))
        except BaseException as failure:
            self._failure = failure
        return result.give()

    def _agree(self, compare: Callable[..., int], one: Value, other: Value) -> bool:
        return one.address == other.address or bool(compare(one.address, other.address) & 1)

    def _source(self, text: str) -> Source:
        size = number(len(text.encode()))
        context = self._input(self.library.string(text).give(), self._file.give(), 0, size.address)
        return Source(Value(context), size)

    def _next(self, state: State, source: Source, position: Value) -> Command:
        scope = state.field(_SCOPES).field(0)
        known = [scope.field(i) for i in (_SCOPE_OPTIONS, _SCOPE_NAMESPACE, _SCOPE_OPEN)]
        context = construct(0, state.field(_ENVIRONMENT), *known)
        parsed = Value(
            self._parse(
                source.context.give(), context.give(), position.give(), self.no_messages.give()
            )
        )
        syntax, rest = parsed.field(0), parsed.field(1)
        end, said = rest.field(0), self.read(rest.field(1))
        if not self._is_terminal(syntax.give()) & 1:
            return Command(syntax, source, position.field(0), end, said)
        if end.field(0).address != source.size.address:
            raise ElaboratorError("Lean did not read the text to its end")
        return Command(None, source, position.field(0), end, said)


def action_result(address: int) -> Value:
    """Return the value of an action that succeeded."""
    result = Value(address)
    if result.tag != 0:
        raise ElaboratorError("an action of Lean failed")
    return result.field(0)


def tactics(theorem: Command) -> list[Value]:
    """Return the tactics of a theorem's proof, in order; empty if it has none."""
    assert theorem.syntax is not None
    for node in _nodes(theorem.syntax):
        if _kind(node) == _SEQUENCE_KIND:
            (listed,) = node.field(_NODE_PARTS).items()
            return listed.field(_NODE_PARTS).items()[::2]
    return []


def _nodes(syntax: Value) -> Iterator[Value]:
    """Yield the syntax and all its parts, outer ones first."""
    if syntax.num_fields and syntax.tag == _NODE:
        yield syntax
        for part in syntax.field(_NODE_PARTS).items():
            yield from _nodes(part)


def _kind(node: Value) -> str:
    """Return the last part of the name of a node's kind."""
    kind = node.field(_NODE_KIND)
    return kind.field(1).text() if kind.num_fields else ""


def _success() -> Value:
    return construct(0, number(0))
