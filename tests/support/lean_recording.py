"""Play back what Lean 4.28 answered to the driver: run as a program, it speaks the driver's protocol.

Of a recorded replay of all orders it gives what was asked for; what was not recorded ends it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

RECORDING = Path(__file__).with_name("lean_recording.json")


def recorded(files, request, opened):
    """The answer to a request, and the file that is open after it."""
    if request["do"] == "open":
        name = Path(request["file"]).name
        return files[name]["open"], name
    place = [request[name] for name in ("theorem", "first", "count")]
    (answer,) = [one["answer"] for one in files[opened]["replays"] if one["place"] == place]
    asked = [tuple(sequence) for sequence in request["sequences"]]
    nodes = [
        node
        for node in answer["nodes"]
        if any(sequence[: len(node["path"])] == tuple(node["path"]) for sequence in asked)
    ]
    ends = [end for end in answer["ends"] if tuple(end["path"]) in asked]
    return {"nodes": nodes, "ends": ends}, opened


def main():
    recording = json.loads(RECORDING.read_text(encoding="utf-8"))
    answer, opened = {"version": recording["version"], "protocol": 1}, None
    print("vcrt-answer", json.dumps(answer), flush=True)
    for line in sys.stdin:
        answer, opened = recorded(recording["files"], json.loads(line), opened)
        print("vcrt-answer", json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
