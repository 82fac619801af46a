"""Write the page on published tools from its results: pure text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[3] / "research" / "published-tools.md"
_HINTS = ("readOnlyHint", "idempotentHint")
_WIDTH = 160

_HEAD = """# What published tools declare, and what replay shows

Each tool server below was installed as it is published, and some of its calls were run in every order, by
`vcrt annotate`. This page says what is declared of the tools, what the replays contradict, with the call that shows it,
and which pairs of calls do not commute. It speaks of these versions and these calls alone. A hint that is not
contradicted here is not proved.

{versions}

```text
{command}
```

It installs the servers, replays the calls and writes this page. The calls are in
`research/benchmarks/published_tools/servers.py`, all counts in `research/benchmarks/results/published_tools.json`.

A hint counts as contradicted if a replay changed the state, and if two new processes show the same to a client that
shares no code with `vcrt`. The hints are read as the specification of MCP says them: `readOnlyHint`, the tool does not
modify its environment; `idempotentHint`, calling it again with the same arguments has no additional effect, which says
something of tools that are not read-only. Times, and identifiers that a server draws, are
[left out](#what-was-left-out) of states and outputs, so they are no contradiction.
"""

_COLUMNS = """
## MCP servers

- **tools**: how many were called, of how many the server lists.
- **declared**: how many of the called tools declare `readOnlyHint: true`, and how many of the others
  `idempotentHint: true`. "none": no tool of the server declares one of the two, true or false.
- **contradicted**: declared hints that replay contradicts.
- **must not run at once**: pairs of called tools (also a tool with itself) that did not commute in some replay, of the
  pairs that were compared; not if the example is one call made twice, which nobody would see swapped. A framework
  that runs all calls of a message at once lets them race. In brackets: those of which both tools declare
  `readOnlyHint: true`, which a host such as codex runs at once.
- **serialised, perhaps for nothing**: called tools without `readOnlyHint: true` that never changed the state. Such a
  host waits for each. Few calls were made: this says where to look, not that the hint may be set.

| server | tools | declared | contradicted | must not run at once | serialised, perhaps for nothing |
| --- | --- | --- | --- | --- | --- |
"""


def page(results: Mapping[str, Any]) -> str:
    """Return the page as Markdown."""
    ran = [server for server in results["servers"] if "problem" not in server]
    failed = [server for server in results["servers"] if "problem" in server]
    versions = ", ".join(f"{name} {of}" for name, of in results["versions"].items())
    of_frameworks = results.get("toolsets", ())
    parts_of = (*results["servers"], *of_frameworks, *filter(None, [results.get("openhands")]))
    commits = sorted({f"`{each['commit']}`" for each in parts_of})
    at = f"at commit {' and '.join(commits)}"
    if len(commits) > 1:
        at += " (the results say which part at which)"
    head = _HEAD.format(
        versions=f"Run on {results['made']} with {versions}, {at}.",
        command=results["command"],
    )
    parts = [head, _COLUMNS, *(f"{row}\n" for row in table(results))]
    parts += _contradictions(ran)
    parts += _races(ran)
    parts += _frameworks(of_frameworks)
    parts += _openhands(results.get("openhands"))
    parts += _left_out(ran)
    parts += _not_run(failed, results.get("not_run", ()))
    return "".join(parts)


def table(results: Mapping[str, Any]) -> list[str]:
    """Return the rows of the table of servers."""
    return [_row(server) for server in results["servers"] if "problem" not in server]


def contradicted(server: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the contradictions that the plain client made again, twice alike, and saw.

    `idempotentHint` says nothing of a tool that is declared read-only, by the specification.
    """
    return [
        each
        for each in server["contradicted"]
        if each["same_twice"]
        and (each["differs"] or each["answers_otherwise"])
        and (each["hint"] == "readOnlyHint" or not _read_only(server, each["tool"]))
    ]


def _read_only(server: Mapping[str, Any], tool: str) -> bool:
    return bool(server["tools"].get(tool, {}).get("readOnlyHint"))


def _row(server: Mapping[str, Any]) -> str:
    hints = {name: server["tools"].get(name, {}) for name in server["called"]}
    any_said = any(hint in said for said in server["tools"].values() for hint in _HINTS)
    read = {name for name in hints if _read_only(server, name)}
    again = [name for name, of in hints.items() if of.get("idempotentHint") and name not in read]
    said = f"{len(read)} readOnlyHint, {len(again)} idempotentHint"
    found = sorted(
        {
            f"`{each['tool']}` {each['hint']}" + ("" if each["differs"] else " (by its answers)")
            for each in contradicted(server)
        }
    )
    against = _against(server)
    both = [pair for pair in against if {pair["a"], pair["b"]} <= read]
    idle = [
        name
        for name, of in server["called"].items()
        if name not in read and of["changed"][1] and not of["changed"][0]
    ]
    cells = (
        f"{server['package']} {server['version']}",
        f"{len(server['called'])} of {len(server['tools'])}",
        said if any_said else "none",
        "; ".join(found) or "0",
        f"{len(against)} of {sum(bool(p['commuted'][1]) for p in server['pairs'])} ({len(both)})",
        ", ".join(f"`{name}`" for name in idle) or "0",
    )
    return f"| {' | '.join(cells)} |"


def _against(server: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return pairs that did not commute, but for those whose example is a call made twice: nobody sees them swapped."""
    return [pair for pair in server["pairs"] if pair["against"] and not _is_one_call_twice(pair)]


def _is_one_call_twice(pair: Mapping[str, Any]) -> bool:
    first, second = pair["against"]["calls"]
    return bool(first.partition(" #")[0] == second.partition(" #")[0])


def _contradictions(ran: list[Any]) -> Iterator[str]:
    yield "\n## Contradicted\n"
    none = True
    for server in ran:
        for each in contradicted(server):
            none = False
            said = str(each["declared"]).lower()
            yield f"\n### `{each['tool']}` of {server['package']} {server['version']}\n\n"
            yield f"Declared: `{each['hint']}: {said}`."
            if each["differs"]:
                yield f" Contradicted in {each['seen']['count']} of {each['seen']['total']} calls that were replayed."
            yield "\n\n"
            yield "```text\n"
            for call, output in zip(each["calls"], each["outputs"], strict=True):
                yield f"{_cut(call)}\n  -> {_cut(output)}\n"
            yield from _changes(each)
            yield "```\n"
            if not each["differs"]:
                yield _IN_MEMORY
    if none:
        yield "\nNo declared hint was contradicted.\n"


def _changes(each: Mapping[str, Any]) -> Iterator[str]:
    for name, after in each["after"].items():
        before = each["before"].get(name, "(not there)")
        if before != after:
            yield f"{_cut(name)}\n  before the last call: {_cut(before)}\n"
            yield f"  after it:             {_cut(after)}\n"
    if each["answers_otherwise"]:
        yield f"the last call once more\n  -> {_cut(each['again'])}\n"


_IN_MEMORY = """
No file changed. The server keeps each call in its memory, and its own answer shows it. Whether that is its
*environment*, the specification does not say. A host that runs such calls at once, or makes one again, gets other
answers.
"""


def _races(ran: list[Any]) -> Iterator[str]:
    yield "\n## Pairs that must not run at once\n\nOne pair of each server; all are in the results.\n\n"
    yield "| server | after | these two do not commute |\n| --- | --- | --- |\n"
    for server in ran:
        if against := _against(server):
            pair = min(against, key=lambda each: (len(each["against"]["context"]), each["a"]))
            calls = " and ".join(f"`{_cut(call)}`" for call in pair["against"]["calls"])
            number = len(pair["against"]["context"])
            after = f"{number} more call{'s' * (number > 1)}" if number else "nothing"
            yield f"| {server['package']} | {after} | {_cell(calls)} |\n"


def _frameworks(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not found:
        return
    yield _FRAMEWORKS
    for each in found:
        pairs = [pair for pair in each["pairs"] if pair["commuted"][1]]
        idle = ", ".join(f"`{name}`" for name, changed in each["called"].items() if not changed)
        cells = (
            f"{each['framework']}: {each['place']}",
            str(len(each["called"])),
            each["declared"],
            f"{len(each['against'])} of {len(pairs)}",
            idle or "none",
        )
        yield f"| {' | '.join(cells)} |\n"
    yield _AT_ONCE.format(runs=found[0]["against"][0]["runs"])
    for each in found:
        for pair in each["against"]:
            calls = " and ".join(f"`{_cut(call)}`" for call in pair["calls"])
            apart = "yes" if pair["in_order"] != pair["swapped"] else "no"
            cells = (each["place"], _cell(calls), apart, str(pair["runs"] - pair["as_in_order"]))
            yield f"| {' | '.join(cells)} |\n"
    for each in found:
        for pair in each["against"]:
            yield from _ended(each["place"], pair)
    yield "\nVersions:\n\n"
    for of in dict.fromkeys((each["framework"], ", ".join(each["versions"])) for each in found):
        yield f"- {of[0]}: {of[1]}\n"


def _ended(place: str, pair: Mapping[str, Any]) -> Iterator[str]:
    """Say which runs of a message ended in an error that no model sees."""
    ended = [
        (outputs[0], count)
        for (outputs, _), count in pair["in_one_message"]
        if outputs[0].startswith("the run ends")
    ]
    if ended:
        yield f"\nOf {place}, in one message, {' and '.join(f'`{_cut(call)}`' for call in pair['calls'])}:\n\n"
        yield "```text\n"
        for said, count in ended:
            yield f"{count} of {pair['runs']}: {_cut(said)}\n"
        yield "```\n"


_FRAMEWORKS = """
## Toolsets of frameworks

Examples and toolkits that frameworks publish, by `vcrt.tools_environment`. Nothing was changed in the tools. The calls
are in `research/benchmarks/published_tools/toolsets.py`, the first states in `frameworks` beside it. In replays of
`data_analyst` the deps keep a table as its columns, which compare better than pandas' own blocks. Two more were run and
are not shown: `SQLDatabaseToolkit` of `langchain_community` reads the names of tables once, when it is made, and replay
made it anew for each call; of `planning` of `pydantic-ai-harness` replays disputed one answer, and why was not found
out.

- **at once**: pydantic-ai runs the calls of a message at once, unless a tool says `sequential`. LangGraph's `ToolNode`
  and the runner of OpenAI Agents run all of them at once, and have no declaration for a tool
  (`max_function_tool_concurrency` of OpenAI Agents is one limit for all tools).
- **must not run at once**: pairs of calls that did not commute in some replay, of the pairs of tools that were
  compared.
- **changed nothing**: tools whose calls never changed the state. They could overlap with each other, as they do;
  nothing says so.

| toolset | tools called | declared | must not run at once | changed nothing |
| --- | --- | --- | --- | --- |
"""

_AT_ONCE = """
Each of these pairs was then given to the framework itself, by a program that uses nothing of `vcrt`, with a model that
is a script: in two messages, in both orders, and {runs} times in one message. "Apart" says whether the two orders
gave other outputs or another end. The last column counts runs of the one message, in the order of the log, that ended
otherwise than the two messages in that order. 0 means that no race was seen here, not that there is none. A plain
function is run in a thread, and how often two of them race depends on how busy the machine is. A function that
is `async` and never awaits runs to its end before the next begins, and stops doing so when it awaits.

| toolset | calls | apart | of {runs}, in one message, otherwise |
| --- | --- | --- | --- |
"""


def _openhands(found: Mapping[str, Any] | None) -> Iterator[str]:
    if found is None:
        return
    yield _OPENHANDS.format(versions=found["versions"])
    yield "| calls | what they lock | did not commute in |\n| --- | --- | --- |\n"
    for row in found["rows"]:
        calls = " and ".join(f"`{_cut(call)}`" for call in row["calls"])
        keys = "; ".join(", ".join(f"`{key}`" for key in each) or "nothing" for each in row["keys"])
        yield f"| {_cell(calls)} | {keys} | {row['seen']} |\n"
    yield _OF_OPENHANDS.format(
        read=", ".join(f"`{name}`" for name in found["read_only"]),
        against=", ".join(f"`{name}`" for name in found["contradicted"]) or "none",
    )


_OPENHANDS = """
## Tools of OpenHands' SDK

{versions}. A tool of the SDK declares what its call locks, by
`declared_resources()`; a call that declares no key runs without a lock, and one that is not declared locks its own
tool. Calls of a message run at once if the agent's
`tool_concurrency_limit` is more than 1; it is 1 by default. Each row is two such calls that lock nothing in common, so
that nothing keeps their order, and that do not commute.

"""

_OF_OPENHANDS = """
Replay runs each call as a whole. So this is not about half-written files: what is lost is the order of the message. Two
calls that share a key are run one after the other, and neither is said to be first.

`readOnlyHint: true` is declared of {read}. Contradicted: {against}.
Without ripgrep, as here, `glob` locks itself. A terminal was made anew for each call (by tmux), so its row speaks of
files and not of a shell. `task` needs a language model and was not run.
"""


def _left_out(ran: list[Any]) -> Iterator[str]:
    yield "\n## What was left out\n\n| server | not compared | note |\n| --- | --- | --- |\n"
    for server in ran:
        left = [f"`{mask}`".replace("|", "\\|") for mask in (*server["masks"], *server["ignored"])]
        lost = [f"{number} trace left out: {kind}" for kind, number in server["left_out"].items()]
        note = " ".join(filter(None, (server["note"], *lost)))
        if left or note:
            yield f"| {server['package']} | {', '.join(left) or 'nothing'} | {note} |\n"


def _not_run(failed: list[Any], tried: Sequence[Sequence[str]]) -> Iterator[str]:
    said = [(each["package"], each["version"], each["problem"]) for each in failed]
    if said or tried:
        yield "\n## Not run\n\n| server | why |\n| --- | --- |\n"
        for package, version, why in (*said, *tried):
            yield f"| {package} {version} | {_cell(_cut(why))} |\n"


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
