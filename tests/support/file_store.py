"""Files by path, with tools of which it is known when they commute, and hints of which some are false."""

from __future__ import annotations

import random
from types import SimpleNamespace

import vcrt
from vcrt import Provenance, Schema
from vcrt.environments.tool_calls import Call, Tool, episode_of_calls, operations_of

PATHS = ("a/x", "a/y", "b/x", "b/y")
TOOLS = ("write", "append", "read", "delete", "list")


class Files(vcrt.CallEnvironment):
    name = "files"
    schemas = (Schema(name="calls", summary="calls", relation="either", preset="any"),)

    def tools(self):
        return [
            Tool(name="write", read_only=True, idempotent=True),
            Tool(name="append", read_only=False, idempotent=True),
            Tool(name="read", read_only=True, idempotent=True),
            Tool(name="delete", destructive=True),
            Tool(name="list", read_only=False),
            Tool(name="never called", read_only=True),
        ]

    def reset(self, initial):
        return dict(initial or {})

    def call(self, state, name, arguments):
        return run(state, name, arguments)

    def sample(self, schema, seed):
        return sampled(seed)


def run(state, name, arguments):
    """Call a tool in place."""
    path = arguments.get("path", "")
    if name in ("read", "delete") and path not in state:
        raise vcrt.CallRefused(f"no {path}")
    match name:
        case "write":
            state[path] = arguments["text"]
        case "append":
            state[path] = state.get(path, "") + arguments["text"]
        case "read":
            return state[path]
        case "delete":
            del state[path]
        case "list":
            return sorted(one for one in state if one.startswith(f"{arguments['folder']}/"))
    return "done"


class CountedFiles(Files):
    """A store that counts how often it was made anew, and shows it from the sixth time on."""

    made = SimpleNamespace(number=0)

    def reset(self, initial):
        self.made.number += 1
        return super().reset(initial) | {"number": str(self.made.number > 5)}


def sampled(seed, num_calls=4):
    """An episode of random calls; no two texts are equal."""
    draw = random.Random(f"files {seed}")
    calls = []
    for place in range(num_calls):
        tool, path = draw.choice(TOOLS), draw.choice(PATHS)
        arguments = {"folder": path[0]} if tool == "list" else {"path": path}
        if tool in ("write", "append"):
            arguments["text"] = f"<{seed}.{place}>"
        calls.append(Call(tool, arguments))
    if draw.random() < 0.3:
        calls[-1] = calls[0]
    return episode_of_calls(
        "files",
        "calls",
        {path: f"<{seed}>" for path in PATHS if draw.random() < 0.8},
        operations_of(calls),
        Provenance(source=f"trace {seed // 2}", generator="file store", seed=seed),
    )
