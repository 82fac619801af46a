"""Replay calls of published tools, and compare what is declared of them with what replay shows.

    python research/benchmarks/published_tools/run.py            # what is not done yet; then the results and the page
    python research/benchmarks/published_tools/run.py --only git # one server
    python research/benchmarks/published_tools/run.py --only ANALYST # one toolset of a framework
    python research/benchmarks/published_tools/run.py --only openhands # the tools of OpenHands' SDK
    python research/benchmarks/published_tools/run.py --page     # the page alone, from the results

It needs Python 3.12 as `python3.12`, npm, git, and an environment with `vcrt[mcp]` and `examples/mcp_servers`. Servers
are installed under `build/published`, each in an environment of its own. Each is done once: `build/published/found`
keeps it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import openhands_calls
from by_hand import by_hand, filled, recorded, started
from framework_runs import at_home, found_of_toolset, installed
from page import PAGE, page
from published_servers import BUILD, Called, Row
from servers import NOT_RUN, ROWS
from toolsets import TOOLSETS, Toolset

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results" / "published_tools.json"
#: Seconds that the replays of a server may take.
LIMIT_S = 900
#: Numbers of episodes of one trace in an episode's name.
_OF_A_TRACE = 1_000_000


def main() -> None:
    """Run what is not done yet, and write the results and the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", nargs="*", help="keys of servers and toolsets, or openhands; all by default"
    )
    parser.add_argument("--page", action="store_true", help="write the page alone")
    given = parser.parse_args()
    if not given.page:
        rows = [row for row in ROWS if given.only is None or row.key in given.only]
        for number, row in enumerate(rows, start=1):
            print(f"{number}/{len(rows)} {row.package} {row.version}", flush=True)
            done = found_of(row)
            print(f"  {done.get('problem') or summary(done)}", flush=True)
        for toolset in TOOLSETS:
            if given.only is None or toolset.key in given.only:
                print(f"{toolset.framework.name}: {toolset.place}", flush=True)
                print(
                    f"  {len(toolset_found(toolset)['against'])} pairs do not commute", flush=True
                )
        if given.only is None or "openhands" in given.only:
            openhands()
        write_results()
    PAGE.write_text(page(json.loads(RESULTS.read_text())))


def found_of(row: Row) -> dict[str, Any]:
    """Return what was found of a server; run it unless the same row was run before."""
    kept = BUILD / "found" / f"{row.key}.json"
    if kept.exists():
        found: dict[str, Any] = json.loads(kept.read_text())
        if found["row"] == row.said and "problem" not in found:
            return found
    started = time.monotonic()
    found = {"row": row.said, "key": row.key, "registry": row.registry, "package": row.package}
    found |= {"version": row.version, "with": list(row.with_them), "note": row.note}
    found |= {
        "masks": list(row.masks),
        "ignored": sorted(row.ignored),
        "install": install_line(row),
        "commit": commit(),
    }
    try:
        install(row)
        found |= replayed(row)
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        found["problem"] = str(error)[:400]
    found["seconds"] = round(time.monotonic() - started)
    keep(kept, found)
    return found


def toolset_found(row: Toolset) -> dict[str, Any]:
    """Return what was found of a toolset of a framework; run it unless the same row was run before."""
    kept, said = BUILD / "found" / f"{row.key}.json", repr(row)
    if kept.exists():
        found: dict[str, Any] = json.loads(kept.read_text())
        if found["row"] == said:
            return found
    log = log_of(row.key, row.traces)
    at = {"row": said, "commit": commit()}
    found = at | found_of_toolset(row, output_of, log, _OF_A_TRACE)
    keep(kept, found)
    return found


def openhands() -> dict[str, Any]:
    """Return the pairs of OpenHands' calls that nothing orders and that do not commute."""
    kept = BUILD / "found" / "openhands.json"
    row = repr((openhands_calls.FRAMEWORK, openhands_calls.TRACES))
    if kept.exists():
        found: dict[str, Any] = json.loads(kept.read_text())
        if found["row"] == row:
            return found
    program = installed(openhands_calls.FRAMEWORK) / "bin" / "vcrt"
    log = log_of("openhands", openhands_calls.TRACES)
    file = HERE / "openhands_tools.py"
    command = [str(program), "annotate", str(log), "--environment", f"{file}:TOOLS", "--json"]
    command += ["--verifier-timeout", "300"]  # to import the SDK takes long
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        env = at_home(home) | {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LOG_LEVEL": "ERROR"}
        said = json.loads(output_of(command, env))
        locked = json.loads(
            output_of([str(program.with_name("python")), str(file), str(log)], env)
            .splitlines()[-1]
            .replace("/tmp/state", "{state}")
        )
    found = {
        "row": row,
        "versions": ", ".join(openhands_calls.FRAMEWORK.packages),
        "commit": commit(),
        **told_of_locks(said, locked),
    }
    keep(kept, found)
    return found


def keep(place: Path, found: Mapping[str, Any]) -> None:
    """Write what was found."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(found, indent=1))


def told_of_locks(
    said: Mapping[str, Any], locked: Sequence[Sequence[Mapping[str, Any]]]
) -> dict[str, Any]:
    """Return pairs that did not commute and share no lock, and the tools whose readOnlyHint replay contradicts."""
    rows = []
    for pair in said["pairs"]:
        against, commuted = pair["against"], pair["commuted"]
        if against is None or commuted["count"] == commuted["total"]:
            continue
        calls = locked[int(against["episode"].rsplit("/", 1)[1]) // _OF_A_TRACE]
        two = [calls[operation] for operation in against["operations"]]
        keys = [each["keys"] if each["declared"] else [f"tool:{each['name']}"] for each in two]
        if set(keys[0]).isdisjoint(keys[1]):
            seen = f"{commuted['total'] - commuted['count']} of {commuted['total']} contexts"
            rows.append({"calls": against["calls"], "keys": keys, "seen": seen})
    hints = {each["name"]: each["hints"] for calls in locked for each in calls}
    changed = {t["name"] for t in said["tools"] if t["_meta"]["vcrt"]["changed"]["count"]}
    read = {name for name, of in hints.items() if of.get("readOnlyHint")}
    return {"rows": rows, "read_only": sorted(read), "contradicted": sorted(read & changed)}


def output_of(
    command: Sequence[str], env: Mapping[str, str] | None = None, given: str | None = None
) -> str:
    """Return what a command prints of what it is given.

    Raises :class:`RuntimeError` with its last words if it prints nothing.
    """
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env=env,
        input=given,
    )
    if not ended.stdout.strip():
        said = ended.stderr[max(ended.stderr.rfind("error: "), 0) :]
        raise RuntimeError(f"{Path(command[0]).name}: {said.strip()[:400]}")
    return ended.stdout


def log_of(key: str, traces: Sequence[Sequence[Called]]) -> Path:
    """Write the calls as a log, and return where."""
    return written(
        key, [[{"name": name, "arguments": given} for name, given in trace] for trace in traces]
    )


def written(key: str, traces: Sequence[Sequence[Mapping[str, Any]]]) -> Path:
    """Write a log of whole traces, and return where."""
    log = BUILD / "logs" / f"{key}.jsonl"
    log.parent.mkdir(parents=True, exist_ok=True)
    lines = [{"id": str(number), "calls": calls} for number, calls in enumerate(traces)]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return log


def summary(found: dict[str, Any]) -> str:
    """Say in a line what was found."""
    contradicted = [f"{each['tool']} {each['hint']}" for each in found["contradicted"]]
    return f"{len(found['called'])} tools, {found['seconds']} s, contradicted: {contradicted}"


def install_line(row: Row) -> str:
    """Return the command that installs the server."""
    if row.registry == "npm":
        return " ".join(["npm install", *row.with_them, f"{row.package}@{row.version}"])
    others = [f"'{other}'" for other in row.with_them]
    return " ".join(["pip install", f"{row.package}=={row.version}", *others])


def install(row: Row) -> None:
    """Install a server unless it is there; raises :class:`RuntimeError` with what the installer said."""
    if Path(row.command[0]).exists():
        return
    row.folder.mkdir(parents=True, exist_ok=True)
    if row.registry == "npm":
        (row.folder / "package.json").write_text('{"private": true}\n')
        wanted = f"{row.package}@{row.version}"
        steps = [["npm", "install", "--no-audit", "--no-fund", *row.with_them, wanted]]
    else:
        wanted_all = [f"{row.package}=={row.version}", *row.with_them]
        steps = [["python3.12", "-m", "venv", "."], ["bin/pip", "install", "-q", *wanted_all]]
    for step in steps:
        ended = subprocess.run(step, cwd=row.folder, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise RuntimeError(
                f"it could not be installed: {ended.stderr.strip().splitlines()[-1]}"
            )


def replayed(row: Row) -> dict[str, Any]:
    """Replay the calls of a server by `vcrt annotate`, and make again by hand what it contradicts."""
    log = log_of(row.key, row.traces) if row.ids is None else written(row.key, recorded(row))
    environment = f"{HERE / 'servers.py'}:{row.key}"
    program = str(Path(sys.executable).with_name("vcrt"))
    said = json.loads(
        output_of([program, "annotate", str(log), "--environment", environment, "--json"])
    )
    with tempfile.TemporaryDirectory() as given:
        folder = filled(row, given)
        with started(row, folder) as client:
            tools, server = client.tools(), client.server
    hints = {tool["name"]: tool.get("annotations") or {} for tool in tools}
    contradicted = [each for each in said["declared"] if each["standing"] == "contradicted"]
    return {
        "server": {name: server[name] for name in ("name", "version") if name in server},
        "tools": {
            name: {k: v for k, v in of.items() if k.endswith("Hint")} for name, of in hints.items()
        },
        "called": {tool["name"]: _tool(tool) for tool in said["tools"]},
        "pairs": [_pair(pair) for pair in said["pairs"]],
        "disputed": said["disputed"],
        "left_out": said["left_out"],
        "undeclared": said["undeclared"],
        "unsupported": [
            {"tool": each["tool"], "hint": each["hint"], "seen": each["seen"]}
            for each in said["declared"]
            if each["standing"] == "unsupported"
        ],
        "not_contradicted": sum(e["standing"] == "not contradicted" for e in said["declared"]),
        "not_tested": sum(each["standing"] == "not tested" for each in said["declared"]),
        "contradicted": [by_hand(row, each, _OF_A_TRACE) for each in contradicted],
    }


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    of = tool["_meta"]["vcrt"]
    return {
        "changed": [of["changed"]["count"], of["changed"]["total"]],
        "changed_again": [of["changed_again"]["count"], of["changed_again"]["total"]],
        "refused": of["refused"]["count"],
    }


def _pair(pair: dict[str, Any]) -> dict[str, Any]:
    against = pair["against"]
    return {
        "a": pair["a"],
        "b": pair["b"],
        "commuted": [pair["commuted"]["count"], pair["commuted"]["total"]],
        "against": against and {"calls": against["calls"], "context": against["context"]},
    }


def write_results() -> None:
    """Write what was found, with the versions of all that took part; what was not run here stays as it was."""
    before = json.loads(RESULTS.read_text())
    node = shutil.which("node")
    document = {
        "made": datetime.now(UTC).date().isoformat(),
        "command": "python research/benchmarks/published_tools/run.py",
        "versions": {
            "vcrt": version("vcrt"),
            "mcp (client)": version("mcp"),
            "Python of servers": _said(["python3.12", "--version"]),
            "Node": _said([node, "--version"]) if node else "none",
        },
        "servers": _found_or_before(ROWS, before["servers"]),
    }
    document["not_run"] = [list(each) for each in NOT_RUN]
    document["toolsets"] = _found_or_before(TOOLSETS, before["toolsets"])
    of_openhands = BUILD / "found" / "openhands.json"
    document["openhands"] = before["openhands"]
    if of_openhands.exists():
        found = json.loads(of_openhands.read_text())
        document["openhands"] = {name: of for name, of in found.items() if name != "row"}
    RESULTS.write_text(json.dumps(document, indent=1, sort_keys=False) + "\n")


def _found_or_before(
    rows: Sequence[Row | Toolset], before: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return what was found of each row here, or else what the results already say of it."""
    held = {each["key"]: each for each in before}
    for row in rows:
        kept = BUILD / "found" / f"{row.key}.json"
        if kept.exists():
            found = json.loads(kept.read_text())
            held[row.key] = {name: of for name, of in found.items() if name != "row"}
    return [held[row.key] for row in rows if row.key in held]


def commit() -> str:
    """Return the commit that runs, with "-dirty" if files of it were changed beside the page and the results."""
    changed = _said(["git", "status", "--porcelain", "--untracked-files=no"]).splitlines()
    others = [line for line in changed if not line.endswith((PAGE.name, RESULTS.name))]
    return _said(["git", "rev-parse", "--short=12", "HEAD"]) + "-dirty" * bool(others)


def _said(command: list[str]) -> str:
    return subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=HERE
    ).stdout.strip()


if __name__ == "__main__":
    main()
