"""A small MCP server over stdio, of the standard library alone, that can also misbehave: what a test asks for.

python mcp_server.py FOLDER [how it starts]
"""

import json
import os
import secrets
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

FOLDER = Path(sys.argv[1])
HOW = sys.argv[2] if len(sys.argv) > 2 else "well"
MEMORY = []
CACHE = {}
READ_AT_START = {
    path.name: path.read_text(errors="replace") for path in FOLDER.iterdir() if path.is_file()
}


def write(path, text):
    (FOLDER / path).write_text(text)
    READ_AT_START[path] = text
    return f"wrote {FOLDER / path}"


def write_later(path, text):
    """It answers first."""
    threading.Timer(0.5, write, (path, text)).start()
    return "ok"


def write_kept(path, text):
    """By the file that it opened first, which may be another by now: as SQLite does, it refuses then."""
    file = CACHE.setdefault(path, (FOLDER / path).open("r+"))
    if os.fstat(file.fileno()).st_ino != os.stat(FOLDER / path).st_ino:
        raise LookupError("attempt to write a readonly database")
    file.truncate()
    file.write(text)
    file.flush()
    return "ok"


def now():
    return f"12:00:{time.monotonic_ns()}"


def read(path):
    return (FOLDER / path).read_text()


def read_cached(path):
    """The first text that it ever read there."""
    return CACHE.setdefault(path, read(path))


def read_as_started(path):
    """From what it read when it started, and has written since."""
    return READ_AT_START[path]


def note(text):
    MEMORY.append(text)
    return "noted"


def notes():
    return " ".join(MEMORY)


def add(title):
    """A task in a file of its own, whose name is drawn."""
    drawn = f"t{secrets.token_urlsafe(9)}"
    (FOLDER / f"{drawn}.md").write_text(title)
    MEMORY.append(f"{title} is {drawn}")
    return json.dumps({"task": {"id": drawn, "title": title}})


def finish(task):
    """Note it in one file for all."""
    title = (FOLDER / f"{task}.md").read_text()
    done = FOLDER / "done"
    done.write_text("".join(sorted([*(done.open() if done.exists() else []), f"{title} {task}\n"])))
    return f"finished {task}"


def sql(statement):
    """On a connection that stays open, with a log beside the file."""
    if "shop" not in CACHE:
        CACHE["shop"] = sqlite3.connect(FOLDER / "shop.db")
        CACHE["shop"].execute("PRAGMA journal_mode = WAL")
    rows = CACHE["shop"].execute(statement).fetchall()
    CACHE["shop"].commit()
    return json.dumps(rows)


def part(task):
    """A task within another one, whose id begins with that of the other; the answer is the id alone."""
    drawn = f"{task}.{secrets.token_hex(4)}"
    (FOLDER / f"{drawn}.md").write_text("part")
    return drawn


def take(given=None):
    """The id that is given, or the first of those that wait in a file: it draws none."""
    if given is not None:
        return json.dumps({"id": given})
    first, *others = (FOLDER / "waiting").read_text().split()
    (FOLDER / "waiting").write_text(" ".join(others))
    return json.dumps({"id": first})


def counted(title):
    """A file with the next number."""
    drawn = f"item-{len(list(FOLDER.glob('item-*'))):08d}"
    (FOLDER / drawn).write_text(title)
    return json.dumps({"id": drawn})


def two(title):
    """Two ids, one of which may be an object, or nothing."""
    one, other = secrets.token_hex(8), secrets.token_hex(8)
    (FOLDER / one).write_text(f"{title} {other}")
    return json.dumps({"one": one, "other": other, "object": {"id": one}, "nothing": None})


def number(title):
    return json.dumps({"id": len(list(FOLDER.iterdir()))})


def die():
    print("out of luck", file=sys.stderr, flush=True)
    os._exit(7)


def hang():
    time.sleep(3600)


def noise():
    print("Listening to you!", flush=True)
    time.sleep(3600)


def torn():
    """Half an answer, and no more."""
    sys.stdout.write('{"jsonrpc": "2.0", "id": 3, "resu')
    sys.stdout.flush()
    os._exit(0)


def torn_line():
    print('{"jsonrpc": "2.0", "id": 3, "resu', flush=True)
    time.sleep(3600)


def nonsense():
    return {"content": "no list"}


def bad_arguments():
    raise LookupError("path must be text")


WITHOUT_ENVIRONMENT = """
import ctypes, sys, time
if sys.platform == "linux":
    fields = open("/proc/self/stat").read().rpartition(")")[2].split()
    first, last = map(int, fields[47:49])
    ctypes.memset(first, 0, last - first)
print(flush=True)
time.sleep(3600)
"""


def internal():
    raise ArithmeticError("no item of that name")


def breaks():
    TOOLS.clear()
    raise ArithmeticError("lost the database")


def own_error():
    raise BufferError("sold out")


def start_child():
    """One that leaves the process group and writes over its environment."""
    child = subprocess.Popen(
        [sys.executable, "-c", WITHOUT_ENVIRONMENT],
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    child.stdout.readline()
    return str(child.pid)


def fetch():
    socket.create_connection(("127.0.0.1", 9), timeout=1)


def write_at(path):
    Path(path).write_text("x")
    return "wrote"


def variables():
    return json.dumps(dict(os.environ), sort_keys=True)


TOOLS = {
    tool.__name__: tool
    for tool in (
        *(write, read, read_cached, read_as_started, note, notes, die, hang, noise, torn),
        *(torn_line, nonsense, bad_arguments, internal, breaks, own_error, start_child, fetch),
        *(write_at, variables, write_later, write_kept, now, add, finish, number, sql),
        *(part, take, counted, two),
    )
}


def answer(method, given):
    if method == "initialize":
        return {
            "protocolVersion": given["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "small", "version": "1"},
        }
    if method == "tools/list":
        hints = {"read": {"readOnlyHint": True}, "write": {"idempotentHint": True}}
        return {
            "tools": [
                {
                    "name": name,
                    "inputSchema": {"type": "object"},
                    "annotations": hints.get(name, {}),
                }
                for name in TOOLS
            ]
        }
    if method == "tools/call":
        try:
            found = TOOLS[given["name"]](**given.get("arguments", {}))
        except (LookupError, ArithmeticError, BufferError):
            raise
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            return {"content": [{"type": "text", "text": text}], "isError": True}
        if isinstance(found, dict):
            return found
        return {"content": [{"type": "text", "text": found}]}
    raise NotImplementedError(method)


def main():
    if HOW == "exits":
        sys.exit("no such model")
    if HOW == "hangs":
        time.sleep(3600)
    if HOW == "prints":
        print("Welcome!", flush=True)
    if HOW == "fetches":
        fetch()
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked:
            continue
        reply = {"jsonrpc": "2.0", "id": asked["id"]}
        try:
            reply["result"] = answer(asked["method"], asked.get("params") or {})
        except LookupError as error:
            reply["error"] = {"code": -32602, "message": str(error)}
        except ArithmeticError as error:
            reply["error"] = {"code": -32603, "message": str(error)}
        except BufferError as error:
            reply["error"] = {"code": -32050, "message": str(error)}
        except NotImplementedError as error:
            reply["error"] = {"code": -32601, "message": f"no method {error}"}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
