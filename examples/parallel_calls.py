"""Run an agent's tool calls at once where that is certified: files, SQLite and an HTTP service, all asynchronous.

python examples/parallel_calls.py

The tools are those of a support desk. The program writes the logs of three made-up conversations, asks `vcrt schedule`
which calls may run at once (this takes minutes), and runs each log again in four ways, from the same start:

- one by one: the calls in the log's order;
- at once: message by message, the calls of a message all at once, as most agent frameworks do it;
- message in waves: message by message, and of each message only those calls at once that may run at once;
- waves: the waves of the whole log, across its messages, as a workflow that is run again can do.

It prints the time of each, and how many logs end in another state or with another output than one by one.

Copy two things for your own tools: `Desk`, which has them, and `DeskEnvironment`, which says what their state is and
how it is copied. A certificate says that the order of two calls does not matter. It does not say that they may overlap
in time. Tools see to that themselves: here by the locks of `alone`. `DeskInSteps` has the same tools without locks.
"""

import asyncio
import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import vcrt

PEOPLE = ("ann", "bob", "cyd", "dan")
ITEMS = ("tea", "rice", "salt", "figs")
ORDERS = {f"A-{10 + n}": PEOPLE[n % 4] for n in range(6)}
TABLES = {"orders": "desk.db", "stock": "desk.db", "messages": "service.db"}
#: What a request to the HTTP service takes beside its work, in seconds: a service in the same region.
LATENCY_S = 0.02


# The tools.


class Desk:
    """The tools of a support desk; all that they change lies in one folder."""

    is_whole = True  # whether calls that read something and then write it do both as a whole

    def __init__(self, kept=None):
        self.place = tempfile.TemporaryDirectory()  # goes when the desk is gone
        self.folder = Path(self.place.name)
        self.locks = defaultdict(asyncio.Lock)
        for path, content in (kept or beginning()).items():
            (self.folder / path).write_bytes(content)

    def alone(self, what):
        return self.locks[what] if self.is_whole else nullcontext()

    # Files.

    async def list_files(self):
        return sorted(path.name for path in self.folder.glob("*.md"))

    async def read_file(self, path: str):
        try:
            return await asyncio.to_thread((self.folder / path).read_text)
        except FileNotFoundError:
            raise vcrt.CallRefused(f"no file {path}") from None

    async def write_file(self, path: str, text: str):
        await asyncio.to_thread((self.folder / path).write_text, text)
        return "written"

    async def remember(self, key: str, value: str):
        """Keep a fact about a customer in one JSON file, as agents' memories do."""
        file = self.folder / "memory.json"
        async with self.alone("memory.json"):
            facts = json.loads(await asyncio.to_thread(file.read_text))
            facts[key] = value
            await asyncio.to_thread(file.write_text, json.dumps(facts, sort_keys=True))
        return "kept"

    # A database.

    async def order_status(self, order: str):
        ((customer, paid, refunded),) = await self.query(
            "SELECT customer, paid, refunded FROM orders WHERE id = ?", order
        )
        return {"customer": customer, "paid": paid, "refunded": refunded}

    async def refund(self, order: str, amount: int):
        async with self.alone("orders"):
            state = await self.order_status(order)
            refunded = state["refunded"] + amount
            if refunded > state["paid"]:
                raise vcrt.CallRefused("more than was paid")
            await self.query("UPDATE orders SET refunded = ? WHERE id = ?", refunded, order)
        return "refunded"

    async def reserve(self, item: str, quantity: int):
        """One statement, so SQLite does it as a whole."""
        done = await self.query(
            "UPDATE stock SET left = left - ? WHERE item = ? AND left >= ? RETURNING item",
            *(quantity, item, quantity),
        )
        if not done:
            raise vcrt.CallRefused(f"too few of {item}")
        return "reserved"

    async def query(self, statement, *values):
        return await asyncio.to_thread(query, self.folder / "desk.db", statement, values)

    # A service over HTTP, whose own database lies in the folder too.

    async def price(self, item: str):
        return await self.ask("GET", f"/price/{item}")

    async def messages(self, person: str):
        return await self.ask("GET", f"/messages/{person}")

    async def send_message(self, person: str, text: str):
        return await self.ask("POST", f"/messages/{person}", text)

    async def ask(self, method, path, text=""):
        return await asyncio.to_thread(ask, self.folder, method, path, text)


class DeskInSteps(Desk):
    """The same tools, but between a call's reading and its writing another call may come."""

    is_whole = False


def beginning():
    """Make what stands in the folder before the first call: bytes by name."""
    with closing(sqlite3.connect(":memory:")) as desk, closing(sqlite3.connect(":memory:")) as sent:
        desk.execute("CREATE TABLE orders (id TEXT PRIMARY KEY, customer, paid, refunded)")
        desk.execute("CREATE TABLE stock (item TEXT PRIMARY KEY, left)")
        desk.executemany("INSERT INTO orders VALUES (?, ?, 60, 0)", ORDERS.items())
        desk.executemany("INSERT INTO stock VALUES (?, 5)", [(item,) for item in ITEMS])
        desk.commit()
        sent.execute("CREATE TABLE messages (person, number, text, UNIQUE (person, number))")
        sent.commit()
        databases = {"desk.db": desk.serialize(), "service.db": sent.serialize()}
    notes = {f"{person}.md": f"# {person}\n".encode() for person in PEOPLE}
    return {**databases, **notes, "memory.json": b"{}"}


def query(path, statement, values):
    with closing(sqlite3.connect(path, timeout=30)) as database:
        rows = database.execute(statement, values).fetchall()
        database.commit()
    return rows


def ask(folder, method, path, text):
    request = Request(os.environ["DESK_SERVICE"] + path, text.encode(), {"Folder": str(folder)})
    request.method = method
    try:
        with urlopen(request, timeout=30) as answer:
            return json.load(answer)
    except HTTPError as error:
        raise vcrt.CallRefused(error.read().decode()) from None


# The service: a process of its own. Each request is one transaction.


class Service(BaseHTTPRequestHandler):
    """Prices, and messages to people, which are numbered for each person."""

    latency_s = 0.0

    def do_GET(self):
        _, what, name = self.path.split("/")
        if what == "price":
            self.answer({"item": name, "cents": 100 + 7 * len(name)})
        else:
            self.answer(
                self.query(
                    "SELECT number, text FROM messages WHERE person = ? ORDER BY number", name
                )
            )

    def do_POST(self):
        name = self.path.split("/")[2]
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        ((number,),) = self.query(
            "INSERT INTO messages SELECT ?, 1 + count(*), ? FROM messages WHERE person = ? RETURNING number",
            *(name, text, name),
        )
        self.answer({"number": number})

    def query(self, statement, *values):
        time.sleep(self.latency_s / 2)
        return query(Path(self.headers["Folder"]) / "service.db", statement, values)

    def answer(self, value):
        time.sleep(self.latency_s / 2)
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def serve(latency_s):
    Service.latency_s = latency_s
    ThreadingHTTPServer.request_queue_size = 64
    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        print(server.server_port, flush=True)
        server.serve_forever()


@contextmanager
def service(latency_s):
    """Start the service; the tools find it by an environment variable."""
    command = [sys.executable, __file__, "serve", str(latency_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            os.environ["DESK_SERVICE"] = f"http://127.0.0.1:{int(process.stdout.readline())}"
            yield
        finally:
            process.terminate()


# What the state is: everything that a later call can see.


class DeskEnvironment(vcrt.CallEnvironment):
    """A desk, whose state lies in files and databases."""

    name = "desk"

    def reset(self, initial):
        return Desk()

    def call(self, state, name, arguments):
        return vcrt.call_method(state, name, arguments)

    def canonical(self, state):
        return canonical(state)

    def snapshot(self, state):
        return {path.name: path.read_bytes() for path in sorted(state.folder.iterdir())}

    def restore(self, snapshot):
        return Desk(snapshot)


def canonical(desk):
    """Files by their bytes, and databases by their rows: the bytes of a database tell how they came there."""
    rows = {
        table: sorted(query(desk.folder / database, f"SELECT * FROM {table}", ()))
        for table, database in TABLES.items()
    }
    files = {path.name: path.read_text() for path in desk.folder.iterdir() if path.suffix != ".db"}
    return json.dumps([rows, files], sort_keys=True).encode()


# Logs: what an agent sent, message by message, and what it saw.


def conversation(seed):
    """Draw 5 to 12 calls about one or two people, by message; those of the first message only look."""
    draw = random.Random(seed)
    people, items = draw.sample(PEOPLE, draw.randint(1, 2)), draw.sample(ITEMS, 2)
    left, sent = min(draw.randint(5, 12), draw.randint(5, 12)), []
    while left:
        size = left if left < 4 else draw.randint(2, min(5, left - 2))
        message = []
        while len(message) < size:
            made = drawn_call(draw, draw.choice(people), draw.choice(items), acts=bool(sent))
            if made not in message:
                message.append(made)
        sent.append(message)
        left -= size
    return sent


def drawn_call(draw, person, item, *, acts):
    order = draw.choice([order for order, customer in ORDERS.items() if customer == person])
    file = draw.choice([f"{person}.md", "report.md"])
    looking = [
        ("read_file", {"path": file}),
        ("list_files", {}),
        ("order_status", {"order": order}),
        ("price", {"item": item}),
        ("messages", {"person": person}),
    ]
    acting = [
        ("write_file", {"path": file, "text": f"checked {draw.randint(1, 9)} times\n"}),
        ("remember", {"key": f"{person} likes {item}", "value": draw.choice(["yes", "no"])}),
        ("refund", {"order": order, "amount": 10 * draw.randint(1, 4)}),
        ("reserve", {"item": item, "quantity": draw.randint(1, 3)}),
        ("send_message", {"person": person, "text": f"about {order}"}),
    ]
    return draw.choice(looking if not acts or draw.random() < 0.3 else acting)


def logged(name, sent, outputs):
    """Write a conversation as a line of a log in OpenAI's chat form."""
    rest, messages, number = iter(outputs), [], 0
    for message in sent:
        calls, results = [], []
        for tool, arguments in message:
            identifier = f"call_{number}"
            number += 1
            function = {"name": tool, "arguments": json.dumps(arguments)}
            calls.append({"id": identifier, "type": "function", "function": function})
            content = json.dumps(next(rest))
            results.append({"role": "tool", "tool_call_id": identifier, "content": content})
        messages += [{"role": "assistant", "content": None, "tool_calls": calls}, *results]
    return json.dumps({"id": name, "messages": messages})


# Running a log.


def one_by_one(calls):
    return [[number] for number in range(calls)]


def by_message(sent):
    """Give the numbers of the calls of each message."""
    number = iter(range(sum(map(len, sent))))
    return [[next(number) for _ in message] for message in sent]


def message_in_waves(messages, schedule):
    """Split each message into the waves of its own calls."""
    before = {*schedule.order.pairs}
    waves = []
    for message in messages:
        left = message
        while left:
            now = [b for b in left if not any((a, b) in before for a in left)]
            waves.append(now)
            left = [b for b in left if b not in now]
    return waves


def run(rounds, sent, desk):
    """Run the calls of each round at once, round after round; give seconds, outputs and the state at the end."""
    calls = [call for message in sent for call in message]
    outputs = [None] * len(calls)

    async def one(number):
        tool, arguments = calls[number]
        try:
            outputs[number] = await getattr(desk, tool)(**arguments)
        except (vcrt.CallRefused, ValueError) as refusal:  # ValueError: a file that is half written
            outputs[number] = {"error": str(refusal)}

    async def every():
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(16))
        began = time.perf_counter()
        for numbers in rounds:
            await asyncio.gather(*map(one, numbers))
        return time.perf_counter() - began

    seconds = asyncio.run(every())
    return seconds, json.loads(json.dumps(outputs)), canonical(desk)


def scheduled(conversations):
    """Write logs, and ask which calls may run at once. What is certified is the order, so the service need not wait."""
    with service(0), tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "desk.jsonl")
        lines = [
            logged(f"desk {number}", sent, run(one_by_one(sum(map(len, sent))), sent, Desk())[1])
            for number, sent in enumerate(conversations)
        ]
        log.write_text("".join(f"{line}\n" for line in lines))
        found = vcrt.schedule(log, environment=f"{__file__}:DeskEnvironment")
    if problems := [one for one in found if one.schedule is None]:
        raise SystemExit("\n".join(f"{one.name}: {one.problem}" for one in problems))
    return [one.schedule for one in found]


def ways(sent, schedule):
    """Give the rounds of each way to run a conversation; numbers are those of its calls in the log."""
    messages = by_message(sent)
    return {
        "one by one": one_by_one(schedule.num_steps),
        "at once": messages,
        "message in waves": message_in_waves(messages, schedule),
        "waves": schedule.waves,
    }


def main(number=3):
    conversations = [conversation(seed) for seed in range(number)]
    began = time.perf_counter()
    schedules = scheduled(conversations)
    print(f"{number} schedules in {time.perf_counter() - began:.1f} s")
    seconds, other = defaultdict(list), defaultdict(set)
    with service(LATENCY_S):
        for place, (sent, schedule) in enumerate(zip(conversations, schedules, strict=True)):
            log = run(one_by_one(schedule.num_steps), sent, Desk())
            for tools in (Desk, DeskInSteps):
                for way, rounds in ways(sent, schedule).items():
                    took, *ended = run(rounds, sent, tools())
                    seconds[tools, way].append(took)
                    if ended != [*log[1:]]:
                        other[tools, way].add(place)
    for (tools, way), each in seconds.items():
        apart = len(other[tools, way])
        print(
            f"{tools.__name__:12} {way:17} {1000 * median(each):4.0f} ms, {apart} of {number} end otherwise"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(float(sys.argv[2]))
    else:
        main(*map(int, sys.argv[1:]))
