"""Lean's elaborator in this process: texts run in persistent states, so that what follows one state never sees another.

Promises for Lean 4.35.0 (commit :data:`COMMIT`) only: which functions there are, which references they consume and how
their objects are laid out belongs to a commit. A wrong layout ends the process; hence it runs in one of its own.
Not covered: limits on time and memory (see :mod:`vcrt.environments.lean.inprocess`).
"""

from __future__ import annotations

import ctypes
from pathlib import Path

from vcrt.environments.lean.values import Library, Value, construct, empty_array, number

#: The commit whose functions and objects this module knows.
COMMIT = "eb6cafb7290e8bd5f2937522d8d804f58f02bafc"
#: Line, severity and text of a message.
Said = tuple[int, str, str]
State = Value

_SEVERITIES = ("information", "warning", "error")
# The fields of Lean's structures that are used here.
_STATE_FIELDS, _ENVIRONMENT, _MESSAGES, _SCOPES = 13, 0, 1, 2
_SCOPE_OPTIONS, _SCOPE_NAMESPACE, _SCOPE_OPEN = 1, 2, 3
_MESSAGE_FIELDS, _POSITION, _DATA, _SEVERITY, _SILENT = 5, 1, 4, 1, 2
_INPUT_MAP = 2


class ElaboratorError(Exception):
    """Lean did something that this module does not expect of it."""


class Elaborator:
    """Runs texts of commands; ``folder`` holds Lean's shared libraries."""

    def __init__(self, folder: Path) -> None:
        library = Library(folder)
        self._library = library
        objects = library.on_objects
        self._input = library.function(
            "l_Lean_Parser_mkInputContext___redArg",
            *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint8, ctypes.c_void_p),
        )
        self._parse = objects("l_Lean_Parser_parseCommand", 4)
        self._elaborate = objects("l_Lean_Elab_Command_elabCommandTopLevel", 4)
        self._is_terminal = library.function("l_Lean_Parser_isTerminalCommand", ctypes.c_void_p)
        self._new_cell = objects("lean_st_mk_ref", 1)
        self._cell_content = objects("lean_st_ref_get", 1)
        self._log_array = objects("l_Lean_MessageLog_toArray", 1)
        self._data_text = objects("l_Lean_MessageData_toString", 1)
        self._file = library.string("<stdin>")
        self._no_messages = library.variable("l_Lean_MessageLog_empty")
        self._macro_scope = library.variable("l_Lean_firstFrontendMacroScope")

    def empty_state(self) -> State:
        """The state before any text: an environment with nothing in it, and the default options."""
        objects = self._library.on_objects
        made = _result(objects("l_Lean_mkEmptyEnvironment", 1)(0))
        module = objects("lean_name_mk_string", 2)(1, self._library.string("_stdin").give())
        environment = objects("l_Lean_Environment_setMainModule", 2)(made.give(), module)
        state = Value(
            objects("l_Lean_Elab_Command_mkState", 3)(
                environment,
                self._no_messages.give(),
                self._library.variable("l_Lean_Options_empty").give(),
            )
        )
        if state.num_fields != _STATE_FIELDS:
            raise ElaboratorError(f"a state of {state.num_fields} fields")
        return state

    def run(self, state: State, text: str) -> tuple[State, list[Said]]:
        """Run the commands in ``text`` after ``state``, which stays as it is: the new state, and what Lean said."""
        said: list[Said] = []
        size = number(len(text.encode()))
        source = Value(
            self._input(self._library.string(text).give(), self._file.give(), 0, size.address)
        )
        position = construct(0, number(0), small=1)
        while True:
            parsed = Value(
                self._parse(
                    source.give(),
                    self._scope(state).give(),
                    position.give(),
                    self._no_messages.give(),
                )
            )
            syntax, rest = parsed.field(0), parsed.field(1)
            start, position = position.field(0), rest.field(0)
            del parsed
            self._read(rest.field(1), said)
            if self._is_terminal(syntax.give()) & 1:
                break
            state = self._command(state, syntax, source, start)
            self._read(state.field(_MESSAGES), said)
            state = state.replaced(_MESSAGES, self._no_messages)
        if position.field(0).address != size.address:
            raise ElaboratorError("Lean did not read the text to its end")
        return state, said

    def _scope(self, state: State) -> Value:
        """What the parser must know of a state."""
        scope = state.field(_SCOPES).field(0)
        known = [scope.field(i) for i in (_SCOPE_OPTIONS, _SCOPE_NAMESPACE, _SCOPE_OPEN)]
        return construct(0, state.field(_ENVIRONMENT), *known)

    def _command(self, state: State, syntax: Value, source: Value, start: Value) -> State:
        nothing = number(0)
        context = construct(
            0,
            *(self._file, source.field(_INPUT_MAP), nothing, start, nothing),
            *(nothing, self._macro_scope, nothing, nothing, nothing),
            small=1,
        )
        cell = Value(self._new_cell(state.give()))
        _result(self._elaborate(syntax.give(), empty_array().give(), context.address, cell.address))
        return Value(self._cell_content(cell.address))

    def _read(self, log: Value, said: list[Said]) -> None:
        for message in Value(self._log_array(log.address)).items():
            if message.num_fields != _MESSAGE_FIELDS:
                raise ElaboratorError(f"a message of {message.num_fields} fields")
            if message.byte(_SILENT):
                continue
            line = message.field(_POSITION).field(0).number()
            text = Value(self._data_text(message.field(_DATA).give())).text()
            said.append((line, _SEVERITIES[message.byte(_SEVERITY)], text))


def _result(address: int) -> Value:
    """The value of an action that succeeded."""
    result = Value(address)
    if result.tag != 0:
        raise ElaboratorError("an action of Lean failed")
    return result.field(0)
