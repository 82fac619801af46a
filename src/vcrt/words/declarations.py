"""Write what may run at once as the declaration of an agent framework, each line with its evidence as a comment.

Replay compares orders of whole calls: it sees no two calls that overlap in time. Two calls that commute may still lose
an update if both write, as two that add to one number do. So calls are declared to overlap only where none of their
tools changes the state, at the risk of the annotations; what commutes but changes something is declared to keep its
order. What was not tried is declared in the conservative way of the framework. Pure text. Not covered: how annotations
are made (see :mod:`vcrt.calls.annotations`), and frameworks whose released version has no form, as LiveKit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations_with_replacement
from math import ceil, log, log1p
from typing import TYPE_CHECKING, Literal, TypeAlias

from vcrt.calls.proportions import LEVEL
from vcrt.printable import counted, printable

if TYPE_CHECKING:
    from vcrt.calls.annotations import Annotations, PairEvidence, ToolEvidence, Witness

Target: TypeAlias = Literal["pydantic-ai", "langgraph", "mcp", "codex", "openhands", "haystack"]
#: The most characters of a comment's line, and the most relations that one names.
_WIDTH, _NAMED = 400, 3


def declaration(annotations: Annotations, target: Target) -> str:
    """Return the declaration as a Python module's source, in the form that ``target`` takes in its released version."""
    head = [
        "What may run at once in one message of calls, as replay shows it.",
        *_head(annotations),
    ]
    lines = [*_FORMS[target](annotations)]
    pairs = ["", "Pairs of tools:", *_pair_lines(annotations)]
    return "\n".join([*_comments(head), *_comments(pairs), "", *lines, ""])


def may_overlap(annotations: Annotations) -> tuple[str, ...]:
    """Return the tools whose calls may overlap with each other's: none changes the state, at the risk.

    A pair of them that was seen not to commute, or states that are not told apart, leave none.
    """
    read = {
        tool.name for tool in annotations.tools if _hints(annotations, tool).get("readOnlyHint")
    }
    contradicted = any(
        pair.against is not None and read.issuperset(pair.tools) for pair in annotations.pairs
    )
    return () if contradicted else tuple(sorted(read))


def _hints(annotations: Annotations, tool: ToolEvidence) -> dict[str, bool]:
    """Return the hints of a tool; where some replays contradict each other, counter-examples alone."""
    found = tool.hints(annotations.risk)
    if annotations.num_disputed or annotations.left_out:
        return {name: value for name, value in found.items() if not (value or tool.change is None)}
    return found


def _head(annotations: Annotations) -> Iterator[str]:
    yield (
        f"Environment {annotations.environment}: {counted(annotations.num_episodes, 'episode')} from "
        f"{counted(annotations.num_sources, 'source')}."
    )
    yield f"Risk {annotations.risk:.1%}; bounds hold at {LEVEL:.0%}, of each tool by itself."
    yield "Each call was replayed as a whole, and none beside another. So only calls that change nothing are"
    yield "declared to overlap. Calls that commute but change something keep their order."
    if annotations.missing:
        yield f"Of {counted(len(annotations.missing), 'call')} of the logs nothing is known: they were not replayed."
    if annotations.cut:
        yield f"{counted(len(annotations.cut), 'source')} replayed in part, for lack of time (--within) or for too many"
        yield f"contexts, such as {annotations.cut[0]}. In bounds, each counts as one that shows a change."
    for kind, number in annotations.left_out.items():
        yield f"{counted(number, 'episode')} left out, {kind}: so nothing is declared to overlap."
    if annotations.num_disputed:
        yield f"{counted(annotations.num_disputed, 'call')} gave two answers in states of one hash, since canonical()"
        yield "leaves out what they see or change: so nothing is declared to overlap."
    if annotations.ignored is None:
        yield "What the states' bytes leave out is not known (--environment): nothing is declared to overlap."
    elif annotations.ignored:
        names = ", ".join(annotations.ignored)
        yield f"The states' bytes leave out {names}: so nothing is declared to overlap."


def _why(annotations: Annotations, tool: ToolEvidence) -> str:
    """Say on which evidence a tool is declared as it is."""
    changed = tool.changed
    if not changed.total:
        return f"not tried: {counted(tool.refused.total, 'call')}, all refused"
    seen = f"{changed.count:,} of {counted(changed.total, 'call')} changed the state"
    if tool.change is not None:
        return f"{seen}, such as {_place(tool.change)}"
    chance = (
        f"{seen}, {counted(tool.changed_in.total, 'source')}: at most {tool.changed_in.bound:.1%} of "
        "the next sources show a change"
    )
    if tool.unknown_after:
        return f"{chance}, but the state after {counted(tool.unknown_after, 'refused call')} is not known"
    if tool.changed_in.bound <= annotations.risk:
        return chance
    enough = ceil(log(1 - LEVEL) / log1p(-annotations.risk))
    return (
        f"{chance}, which is above the risk; {counted(enough, 'source')} without one would bear it"
    )


def _pair_lines(annotations: Annotations) -> Iterator[str]:
    """Say of each pair of tools what was tried, and give a counter-example with its calls."""
    known = {pair.tools: pair for pair in annotations.pairs if pair.commuted.total}
    names = sorted(_reasons(annotations))
    vain = []
    for tools in combinations_with_replacement(names, 2):
        if tools in known:
            yield f"{' and '.join(tools)}: {_pair(known[tools])}"
        else:
            vain.append(" and ".join(tools))
    if vain:
        yield "not tried: " + "; ".join(vain)


def _pair(pair: PairEvidence) -> str:
    seen = pair.commuted
    text = f"commuted in {seen.count:,} of {counted(seen.total, 'context')}"
    if pair.against is not None:
        text += f", not in {_place(pair.against)}"
        if pair.condition is not None and pair.condition.terms:
            text += f"; seen to commute if {pair.condition.text}"
    if pair.untried:
        more = len(pair.untried) - _NAMED
        named = "; ".join(one.text for one in pair.untried[:_NAMED])
        text += f"; not tried: {named}" + (f"; {more} more" if more > 0 else "")
    return text


def _place(witness: Witness) -> str:
    after = " ".join(map(str, witness.context))
    where = f"after {after} of" if after else "first in"
    return f"{', '.join(witness.calls)} {where} {witness.episode_id}"


def _comments(lines: list[str]) -> list[str]:
    """Write untrusted lines as comments; none of them can end its comment."""
    return [f"# {printable(line)[:_WIDTH]}".rstrip() for line in lines]


def _reasons(annotations: Annotations) -> dict[str, str]:
    """Say of each tool, by name, on which evidence it is declared as it is."""
    called = {tool.name: _why(annotations, tool) for tool in annotations.tools}
    return called | dict.fromkeys(annotations.uncalled, "not tried: no episode calls it")


def _entries(annotations: Annotations, value: Callable[[str], object]) -> list[str]:
    """Write the entries of a dictionary by the tools' names, each after its evidence."""
    lines = []
    for name, why in _reasons(annotations).items():
        lines += [f"    {one}" for one in _comments([why])]
        lines.append(f"    {name!r}: {value(name)},")
    return lines


def _overlapping(annotations: Annotations) -> list[str]:
    """Write the set of tools whose calls may overlap, and why the others are not in it."""
    free, reasons = may_overlap(annotations), _reasons(annotations)
    lines = ["#: Calls of these tools may overlap with each other: they change nothing."]
    lines.append("MAY_OVERLAP = frozenset(" + ("{" if free else ")"))
    for name in free:
        lines += [f"    {one}" for one in _comments([reasons[name]])]
        lines.append(f"    {name!r},")
    lines += ["})"] if free else []
    lines.append("# All others keep their order, and so does a tool that is not named here:")
    others = [f"{name}: {why}" for name, why in reasons.items() if name not in free]
    return [*lines, *_comments(others)]


_PYDANTIC_AI = '''

def declared(ctx, tools):
    """Declare the tools: Agent(..., capabilities=[PrepareTools(declared)]), or toolset.prepared(declared)."""
    return [replace(one, sequential=one.sequential or SEQUENTIAL.get(one.name, True)) for one in tools]'''


def _pydantic_ai(annotations: Annotations) -> list[str]:
    free = may_overlap(annotations)
    return [
        "from dataclasses import replace",
        "",
        "#: Whether a tool is a barrier, which runs alone and in its place; so is a tool that is not named here.",
        "SEQUENTIAL = {",
        *_entries(annotations, lambda name: name not in free),
        "}",
        *_PYDANTIC_AI.split("\n"),
    ]


_LANGGRAPH = '''

def waves(calls):
    """Divide the calls of a message, in their order, into those that may overlap."""
    found = []
    for call in calls:
        if found and MAY_OVERLAP.issuperset({call["name"], found[-1][-1]["name"]}):
            found[-1].append(call)
        else:
            found.append([call])
    return found


def in_waves(tools, **options):
    """Return a node in place of ToolNode(tools, **options), which runs all calls of a message at once."""
    node, key = ToolNode(tools, **options), options.get("messages_key", "messages")

    def parts(state):
        *before, message = state[key]
        for calls in waves(message.tool_calls):
            yield {**state, key: [*before, message.model_copy(update={"tool_calls": calls})]}

    def joined(results):
        every = [one for some in results for one in (some if isinstance(some, list) else [some])]
        if all(isinstance(one, dict) for one in every):
            return {key: [message for one in every for message in one[key]]}
        return every

    def run(state, config: RunnableConfig):
        return joined([node.invoke(part, config) for part in parts(state)])

    async def run_async(state, config: RunnableConfig):
        return joined([await node.ainvoke(part, config) for part in parts(state)])

    return RunnableLambda(run, run_async, name=options.get("name", "tools"))


def config_for(tools):
    """Return the config of an agent of create_agent: agent.invoke(..., config=config_for(tools)).

    It runs each call as a task by itself, so nothing sees a message's calls together: they run one after the other, in
    their order, unless all the tools may overlap.
    """
    return {} if MAY_OVERLAP.issuperset(one.name for one in tools) else {"max_concurrency": 1}'''


def _langgraph(annotations: Annotations) -> list[str]:
    return [
        "from langchain_core.runnables import RunnableConfig, RunnableLambda",
        "from langgraph.prebuilt import ToolNode",
        "",
        *_overlapping(annotations),
        *_LANGGRAPH.split("\n"),
    ]


_HAYSTACK = '''

def limit(tools):
    """Return the limit of an agent: Agent(..., tools=tools, tool_concurrency_limit=limit(tools)).

    Inputs from the agent's state and outputs to it are no way to say more: a call that reads is then run after all that
    write, wherever it stands in the message.
    """
    return 4 if MAY_OVERLAP.issuperset(one.name for one in tools) else 1'''


def _haystack(annotations: Annotations) -> list[str]:
    return [*_overlapping(annotations), *_HAYSTACK.split("\n")]


_OPENHANDS = '''

class Declared:
    """Put it first among the bases of each tool: class LookTool(Declared, ToolDefinition[...])."""

    def declared_resources(self, action):
        """Return the locks of a call; a tool that is not named here has its own, as by default."""
        keys = KEYS.get(self.name)
        return DeclaredResources(keys=keys or (), declared=keys is not None)


def limit(tools, most=4):
    """Return the limit of an agent: Agent(..., tool_concurrency_limit=limit(its tools)).

    A lock excludes, but keeps no order. So calls run one after the other if any of the tools needs one.
    """
    return most if all(KEYS.get(one.name) == () for one in tools) else 1'''


def _openhands(annotations: Annotations) -> list[str]:
    """Give no locks if all tools change nothing; else one to all, as what reads may not overlap with what writes."""
    is_free = {*_reasons(annotations)} == {*may_overlap(annotations)}
    keys = () if is_free else (f"state:{annotations.environment}",)
    return [
        "from openhands.sdk.tool.tool import DeclaredResources",
        "",
        "#: The locks of each tool's calls: none if no tool changes anything, else one for all.",
        "KEYS = {",
        *_entries(annotations, lambda name: keys),
        "}",
        *_OPENHANDS.split("\n"),
    ]


def _mcp(annotations: Annotations) -> list[str]:
    hints = {tool.name: _hints(annotations, tool) for tool in annotations.tools}
    return [
        "#: The hints that the evidence bears: server.tool(function, annotations=ANNOTATIONS[name]) of FastMCP, or",
        "#: annotations=ToolAnnotations(**ANNOTATIONS[name]) of the package mcp. Where a hint is missing, clients",
        "#: take the tool for one that changes and destroys.",
        "ANNOTATIONS = {",
        *_entries(annotations, lambda name: hints.get(name, {})),
        "}",
        *_comments(_contradictions(annotations)),
    ]


def _contradictions(annotations: Annotations) -> list[str]:
    return [
        f"{one.tool}: {one.hint} {str(one.declared).lower()} is declared, and contradicted: {_place(one.witness)}"
        for one in annotations.declared
        if one.standing == "contradicted" and one.witness is not None
    ]


def _codex(annotations: Annotations) -> list[str]:
    safe = {*_reasons(annotations)} == {*may_overlap(annotations)}
    return [
        "# codex runs a call beside others if its server lists the tool with readOnlyHint true; all others run alone.",
        "# In config.toml, supports_parallel_tool_calls lets the server's other tools overlap as well: "
        + ("it is not needed." if safe else "leave it out."),
        *_mcp(annotations),
    ]


_FORMS: Mapping[Target, Callable[[Annotations], list[str]]] = {
    "pydantic-ai": _pydantic_ai,
    "langgraph": _langgraph,
    "mcp": _mcp,
    "codex": _codex,
    "openhands": _openhands,
    "haystack": _haystack,
}
