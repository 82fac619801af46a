"""Run the steps of one proof from saved states: Lean elaborates a theorem up to a hook, where each step is a branch.

The hook is a tactic of ours in the place where the steps stand. Called by Lean in the middle of the proof, it runs
tactics of Lean, and saves and restores all of Lean's state around them. A whole sequence is ended by Lean itself: it
elaborates the theorem once more, the hook puts the state after the sequence in place, and Lean goes on from there to
the kernel. That works because equal commands in equal states give equal names to their goals. Like
:mod:`vcrt_lean.elaborator`, for one commit of Lean only.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from vcrt.printable import counted
from vcrt_lean.elaborator import (
    Command,
    Elaborator,
    ElaboratorError,
    Said,
    State,
)
from vcrt_lean.values import Value, construct, number

#: The tactic that calls the hook, and what makes Lean know it.
HOOK = "vcrt_hook"
HOOK_SYNTAX = (
    "namespace Lean.Parser.Tactic\n"
    f'syntax (name := vcrtHook) "{HOOK}" : tactic\n'
    "end Lean.Parser.Tactic\n"
)
_HOOK_KIND = ("Lean", "Parser", "Tactic", "vcrtHook")
_SEQUENCE_KIND = "tacticSeq1Indented"

#: What Lean calls a tactic with: its syntax, contexts and cells in turn, and a token.
_NUM_ARGUMENTS = 10
# The fields of Lean's structures that are used here.
_CORE_FIELDS, _CORE_TRACES, _CORE_MESSAGES = 9, 4, 6
_TRACE_LIST, _TRACE_DATA = 0, 1
_NODE, _NODE_KIND, _NODE_PARTS = 1, 1, 2
_ERROR = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All of Lean's state between two tactics, and how much of its limit on work was used up by then."""

    contents: tuple[Value, ...]
    heartbeats: int


class Stage:
    """The place of the hook in a proof that Lean is elaborating; valid while the hook runs."""

    def __init__(self, proofs: Proofs, arguments: list[Value]) -> None:
        self._proofs = proofs
        self._elaborator = proofs.elaborator
        self._surroundings = arguments[1:-1]
        self._cells = self._surroundings[1::2]
        # What the proof traced before the hook stays in Lean's list.
        self._before = self._core().field(_CORE_TRACES)
        self._num_before = len(proofs.traces(self._before.field(_TRACE_LIST)))

    def snapshot(self) -> Snapshot:
        """The state as it is now."""
        contents = tuple(self._elaborator.content(cell) for cell in self._cells)
        return Snapshot(contents, self._proofs.heartbeats())

    def restore(self, snapshot: Snapshot) -> None:
        """Make the state what it was."""
        for cell, content in zip(self._cells, snapshot.contents, strict=True):
            self._proofs.put(cell, content)
        self._proofs.set_heartbeats(snapshot.heartbeats)

    def take_messages(self) -> Value:
        """What Lean has said in the proof so far, or since this was called last."""
        messages = self._core().field(_CORE_MESSAGES)
        self.put_messages(self._elaborator.no_messages)
        return messages

    def put_messages(self, messages: Value) -> None:
        """Make these what Lean has said in the proof so far."""
        self._proofs.put(self._cells[-1], self._core().replaced(_CORE_MESSAGES, messages))

    def attempt(self, tactic: Value) -> Value:
        """Run a tactic: Lean's own record of whether it failed."""
        return self._proofs.run_tactic(tactic, self._surroundings)

    def run(self, tactic: Value, line: int) -> list[Said]:
        """Run a tactic: what Lean said, an exception included, as of ``line`` if Lean does not tell."""
        result = self.attempt(tactic)
        said = self._elaborator.read(self.take_messages())
        if result.tag != 0:
            failure = result.field(0)
            if failure.tag == _ERROR:
                said.append((line, "error", self._proofs.exception_text(failure)))
            elif not any(severity == "error" for _, severity, _ in said):
                raise ElaboratorError(f"a tactic failed without a word: {said}")
        return said

    def run_trace(self, tactic: Value, line: int) -> list[Said]:
        """Run a tactic that traces something: what Lean said, and what was traced."""
        said = self.run(tactic, line)
        core = self._core()
        traces = self._proofs.traces(core.field(_CORE_TRACES).field(_TRACE_LIST))
        for trace in traces[self._num_before :]:
            said.append((line, "information", self._elaborator.text(trace)))
        self._proofs.put(self._cells[-1], core.replaced(_CORE_TRACES, self._before))
        return said

    def _core(self) -> Value:
        core = self._elaborator.content(self._cells[-1])
        if core.num_fields != _CORE_FIELDS:
            raise ElaboratorError(f"a state of {counted(core.num_fields, 'field')} in a proof")
        return core


class Proofs:
    """Runs theorems with a hook. Create it before the first state: it tells Lean about the hook."""

    def __init__(self, elaborator: Elaborator) -> None:
        self.elaborator = elaborator
        library = elaborator.library
        self._tactic = library.on_objects("l_Lean_Elab_Tactic_evalTactic", 9)
        self._swap = library.on_objects("lean_st_ref_swap", 2)
        self._exception_data = library.on_objects("l_Lean_Exception_toMessageData", 1)
        self._items = library.on_objects("l_Lean_PersistentArray_toArray___redArg", 1)
        self.heartbeats = library.function("lean_io_get_num_heartbeats")
        self.set_heartbeats = library.function("lean_io_set_heartbeats", ctypes.c_size_t)
        self._hook: Callable[[Stage], Value] | None = None
        self._failure: BaseException | None = None
        signature = ctypes.CFUNCTYPE(ctypes.c_size_t, *[ctypes.c_size_t] * _NUM_ARGUMENTS)
        # Kept, as Lean has no reference to it that Python knows of.
        self._function = signature(self._called)
        attribute = "l_Lean_Elab_Tactic_tacticElabAttribute"
        library.register(attribute, _HOOK_KIND, HOOK, self._function, _NUM_ARGUMENTS)

    def explore(self, state: State, theorem: Command, visit: Callable[[Stage], None]) -> list[Said]:
        """Elaborate a theorem and call ``visit`` at its hook: what Lean said besides."""

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
        """Elaborate a theorem from ``snapshot`` at its hook on, by ``closing``, if any: the state, and the errors."""

        def hook(stage: Stage) -> Value:
            messages = stage.take_messages()
            stage.restore(snapshot)
            stage.put_messages(messages)
            return _success() if closing is None else stage.attempt(closing)

        return self._run(state, theorem, hook, brief=True)

    def put(self, cell: Value, content: Value) -> None:
        """Change what is in a cell."""
        Value(self._swap(cell.address, content.give()))

    def run_tactic(self, tactic: Value, surroundings: list[Value]) -> Value:
        """Lean's own record of running a tactic."""
        return Value(self._tactic(tactic.give(), *(value.address for value in surroundings)))

    def exception_text(self, exception: Value) -> str:
        """The text of an exception."""
        return self.elaborator.text(Value(self._exception_data(exception.give())))

    def traces(self, traces: Value) -> list[Value]:
        """The messages in a list of traces."""
        found = Value(self._items(traces.address)).items()
        return [trace.field(_TRACE_DATA) for trace in found]

    def _run(
        self, state: State, theorem: Command, hook: Callable[[Stage], Value], *, brief: bool
    ) -> tuple[State, list[Said]]:
        self._hook = hook
        after, said = self.elaborator.run_command(state, theorem, brief=brief)
        self._hook = None
        if self._failure is not None:
            raise self._failure
        return after, said

    def _called(self, *addresses: int) -> int:
        """What Lean calls; it must not raise."""
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


def tactics(theorem: Command) -> list[Value]:
    """The tactics of a theorem's proof, in order; empty if it has none."""
    assert theorem.syntax is not None
    for node in _nodes(theorem.syntax):
        if _kind(node) == _SEQUENCE_KIND:
            (listed,) = node.field(_NODE_PARTS).items()
            return listed.field(_NODE_PARTS).items()[::2]
    return []


def _nodes(syntax: Value) -> Iterator[Value]:
    """The syntax and all that it is made of, from the outside in."""
    if syntax.num_fields and syntax.tag == _NODE:
        yield syntax
        for part in syntax.field(_NODE_PARTS).items():
            yield from _nodes(part)


def _kind(node: Value) -> str:
    """The last part of the name of a node's kind."""
    kind = node.field(_NODE_KIND)
    return kind.field(1).text() if kind.num_fields else ""


def _success() -> Value:
    return construct(0, number(0))
