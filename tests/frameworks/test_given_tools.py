"""Tools as they are: one shop, given in every way, has one schedule; state that nobody gave is refused by its name."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import threading
import zipfile
from contextlib import closing
from functools import lru_cache
from pathlib import Path

import pytest

import vcrt
from vcrt.environments.tool_calls import CallRefused, InvalidCall
from vcrt.errors import MalformedInputError, VcrtError, VerifierFailure

HERE = __name__

LOG = [
    {"name": "look", "arguments": {"item": "tea"}, "output": {"item": "tea", "left": 3}},
    {"name": "order", "arguments": {"item": "tea", "customer": "ann"}, "output": {"item": "tea"}},
    {"name": "look", "arguments": {"item": "rice"}, "output": {"item": "rice", "left": 1}},
    {"name": "order", "arguments": {"item": "rice", "customer": "bob"}, "output": {"item": "rice"}},
    {
        "name": "order",
        "arguments": {"item": "rice", "customer": "cleo"},
        "output": "Error: no rice left",
    },
]


class Shop:
    def __init__(self, initial=None):
        self.left = {"tea": 3, "rice": 1, **(initial or {})}

    def look(self, item: str):
        return {"item": item, "left": self.left[item]}

    async def order(self, item: str, customer: str):
        await asyncio.sleep(0)
        if self.left[item] < 1:
            raise ValueError(f"no {item} left")
        self.left[item] -= 1
        return {"item": item}


class ByHand(vcrt.CallEnvironment):
    name = "shop"
    refusals = (ValueError,)

    def reset(self, initial):
        return Shop(initial)

    def call(self, state, name, arguments):
        return vcrt.call_method(state, name, arguments)


LEFT = {"tea": 3, "rice": 1}


def look(item: str):
    return {"item": item, "left": LEFT[item]}


async def order(item: str, customer: str):
    global LEFT
    if LEFT[item] < 1:
        raise ValueError(f"no {item} left")
    LEFT = {**LEFT, item: LEFT[item] - 1}
    return {"item": item}


def around(shop):
    """Tools that hold their state in a closure."""

    def look(item: str):
        return shop.look(item)

    async def order(item: str, customer: str):
        return await shop.order(item, customer)

    return [look, order]


SCRIPT = """
    CREATE TABLE left (item TEXT PRIMARY KEY, n INTEGER);
    INSERT INTO left VALUES ('tea', 3), ('rice', 1);
"""


def in_rows(database: sqlite3.Connection):
    def look(item: str):
        row = database.execute("SELECT n FROM left WHERE item = ?", (item,)).fetchone()
        return {"item": item, "left": row[0]}

    def order(item: str, customer: str):
        if look(item)["left"] < 1:
            raise ValueError(f"no {item} left")
        database.execute("UPDATE left SET n = n - 1 WHERE item = ?", (item,))
        return {"item": item}

    return [look, order]


def in_files(path: str):
    def look(item: str):
        return {"item": item, "left": int((Path(path) / item).read_text())}

    def order(item: str, customer: str):
        left = look(item)["left"]
        if left < 1:
            raise ValueError(f"no {item} left")
        (Path(path) / item).write_text(str(left - 1))
        return {"item": item}

    return [look, order]


def files(tmp_path: Path) -> Path:
    start = tmp_path / "start"
    start.mkdir()
    (start / "tea").write_text("3")
    (start / "rice").write_text("1")
    return start


SHOP = Shop()
GIVEN = {
    "a class": lambda tmp_path: vcrt.tools_environment(Shop),
    "an object": lambda tmp_path: vcrt.tools_environment(Shop()),
    "methods of an object": lambda tmp_path: vcrt.tools_environment([SHOP.look, SHOP.order]),
    "functions over globals": lambda tmp_path: vcrt.tools_environment(
        [look, order], state=vcrt.module_globals(f"{HERE}:LEFT")
    ),
    "closures": lambda tmp_path: vcrt.tools_environment(tools_of=around, state=Shop),
    "a database": lambda tmp_path: vcrt.tools_environment(
        tools_of=in_rows, state=vcrt.sqlite_file(script=SCRIPT)
    ),
    "a folder": lambda tmp_path: vcrt.tools_environment(
        tools_of=in_files, state=vcrt.folder(files(tmp_path))
    ),
}


def written(path: Path, log=LOG) -> Path:
    file = path / "log.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in log))
    return file


def edges(found):
    (one,) = found
    assert one.problem is None, one.problem
    return one.schedule.waves, [(e.first, e.second, e.kind) for e in one.schedule.edges]


@pytest.mark.parametrize("given", GIVEN)
def test_a_shop_has_one_schedule_however_it_is_given(given, tmp_path):
    log = written(tmp_path)
    expected = edges(vcrt.schedule(log, environment=ByHand))
    assert len(expected[1]) >= 3
    assert edges(vcrt.schedule(log, environment=GIVEN[given](tmp_path))) == expected
    # What was given is as it was.
    assert LEFT == {"tea": 3, "rice": 1}
    assert SHOP.left == {"tea": 3, "rice": 1}


@pytest.mark.parametrize("given", GIVEN)
def test_states_are_apart_and_come_back(given, tmp_path):
    environment = GIVEN[given](tmp_path)()
    one, other = environment.reset(None), environment.reset(None)
    start = environment.canonical(one)
    kept = environment.snapshot(one)
    assert environment.call(one, "order", {"item": "tea", "customer": "ann"}) == {"item": "tea"}
    assert environment.canonical(one) != start
    assert environment.canonical(other) == start
    assert environment.call(other, "look", {"item": "tea"}) == {"item": "tea", "left": 3}
    again = environment.restore(kept)
    assert environment.canonical(again) == start
    assert environment.call(one, "look", {"item": "tea"}) == {"item": "tea", "left": 2}
    environment.call(again, "order", {"item": "rice", "customer": "bob"})
    with pytest.raises(CallRefused, match="no rice left"):
        environment.call(again, "order", {"item": "rice", "customer": "cleo"})
    with pytest.raises(InvalidCall, match="did you mean 'look'"):
        environment.call(again, "lok", {"item": "tea"})
    with pytest.raises(InvalidCall, match="item"):
        environment.call(again, "look", {"itm": "tea"})
    assert [tool.name for tool in environment.tools()] == ["look", "order"]


def test_a_log_says_where_the_state_begins(tmp_path):
    log = [{"initial": {"tea": 7}}, {**LOG[0], "output": {"item": "tea", "left": 7}}, *LOG[1:]]
    found = vcrt.schedule(written(tmp_path, log), environment=vcrt.tools_environment(Shop))
    assert found[0].schedule is not None
    with pytest.raises(MalformedInputError, match="does not take"):
        vcrt.schedule(
            written(tmp_path, log),
            environment=vcrt.tools_environment(tools_of=around, state=lambda: Shop()),
        )


def test_globals_of_modules_begin_as_the_log_says(tmp_path):
    environment = vcrt.tools_environment([look], state=vcrt.module_globals(f"{HERE}:LEFT"))()
    state = environment.reset({"LEFT": {"tea": 9}})
    assert environment.call(state, "look", {"item": "tea"})["left"] == 9
    with pytest.raises(MalformedInputError, match="other globals"):
        environment.reset({"RIGHT": 1})
    with pytest.raises(MalformedInputError, match="not there"):
        vcrt.module_globals(f"{HERE}:NOTHING")
    with pytest.raises(MalformedInputError, match="not there"):
        vcrt.module_globals("no_such_module:LEFT")


ALIAS = SHELF = {"tea": 3}


def take(item: str):
    ALIAS[item] -= 1
    return SHELF[item]


def stream(item: str):
    yield item


async def background(item: str):
    task = asyncio.get_running_loop().create_task(asyncio.sleep(60))
    return f"{item} {task.done()}"


def thread(item: str):
    threading.Thread(target=threading.Event().wait, args=(2,), daemon=True).start()
    return item


def broken(item: str):
    raise ConnectionError("no network")


def misspelt(item: str):
    return itm  # noqa: F821


class Seats:
    """Tools with something of their own, which `tools_of` makes for each call."""

    def __init__(self, shop):
        self.shop, self.row = shop, 0

    def go_back(self, item: str):
        self.row += 1
        return f"{item} {self.row}"


class Lazy:
    """The same, of which nothing was there before the call."""

    def __init__(self, shop):
        self.shop = shop

    def choose(self, item: str):
        self.chosen = item


def with_a_helper(shop):
    basket = []

    def add(item):
        basket.append(item)

    def put(item: str):
        add(item)

    return [put]


def made_in_a_loop(shop):
    def tool(name):
        basket = []

        def put(item: str):
            basket.append(item)

        put.__name__ = name
        return put

    return [tool("first"), tool("second")]


def with_a_basket(shop):
    basket = []

    def put(item: str):
        basket.append(item)
        return len(basket)

    return [put]


async def later(item: str):
    asyncio.get_running_loop().call_later(60, print, item)
    return item


def attach(database):
    def archive(item: str):
        database.execute("ATTACH ? AS archive", (item,))

    return [archive]


def left_running(folder):
    def sleep(item: str):
        subprocess.Popen(["sleep", "20"])

    return [sleep]


HIDDEN = {
    "an attribute of made tools": (
        lambda: vcrt.tools_environment(tools_of=Seats, state=Shop),
        "row of Seats changed, and tools made of the state anew do not have it",
    ),
    "a closure of made tools": (
        lambda: vcrt.tools_environment(tools_of=with_a_basket, state=Shop),
        "basket of with_a_basket.<locals>.put changed",
    ),
    "a new attribute of made tools": (
        lambda: vcrt.tools_environment(tools_of=Lazy, state=Shop),
        "chosen of Lazy changed",
    ),
    "a closure behind one of made tools": (
        lambda: vcrt.tools_environment(tools_of=with_a_helper, state=Shop),
        "basket of with_a_helper.<locals>.add changed",
    ),
    "one of several tools of one name in the code": (
        lambda: vcrt.tools_environment(tools_of=made_in_a_loop, state=Shop),
        "basket of made_in_a_loop.<locals>.tool.<locals>.put changed",
    ),
    "a timer": (lambda: vcrt.tools_environment([later]), "leaves a timer running"),
    "a process": (
        lambda: vcrt.tools_environment(tools_of=left_running, state=vcrt.folder()),
        "leaves a process running",
    ),
    "another database": (
        lambda: vcrt.tools_environment(tools_of=attach, state=vcrt.sqlite_file(script=SCRIPT)),
        "a call that attaches another database",
    ),
    "a global": (lambda: vcrt.tools_environment([look, order]), "LEFT changed during call order"),
    "a closure": (
        lambda: vcrt.tools_environment(around(Shop())),
        "look changed during call order",
    ),
    "another name of a global": (
        lambda: vcrt.tools_environment([take], state=vcrt.module_globals(f"{HERE}:SHELF")),
        "ALIAS changed during call take",
    ),
    "a stream": (lambda: vcrt.tools_environment([stream]), "a tool that streams"),
    "a task": (lambda: vcrt.tools_environment([background]), "leaves a task running"),
    "a thread": (lambda: vcrt.tools_environment([thread]), "leaves a thread running"),
    "a connection": (lambda: vcrt.tools_environment([broken]), "no network"),
    "a bug": (lambda: vcrt.tools_environment([misspelt]), "NameError"),
}


@pytest.mark.parametrize("hidden", HIDDEN)
def test_what_hides_is_named_and_never_a_verdict(hidden, tmp_path):
    make, text = HIDDEN[hidden]
    environment = make()
    names = [tool.name for tool in environment().tools()]
    log = LOG if "order" in names else [{"name": names[0], "arguments": {"item": "tea"}}] * 3
    log = [{key: line[key] for key in ("name", "arguments")} for line in log]
    with pytest.raises(VcrtError) as raised:
        vcrt.schedule(written(tmp_path, log), environment=environment)
    assert text in str(raised.value)
    if "changed during" in text:
        assert "tools_of=lambda state" in raised.value.remedy


PRICES = {"tea": 3}


@lru_cache
def price(item: str):
    return PRICES[item]


def look_up(item: str):
    return price(item)


def set_price(item: str, to: int):
    PRICES[item] = to
    return "ok"


def test_what_was_cached_in_another_order_is_not_found(tmp_path):
    log = [
        {"name": "look_up", "arguments": {"item": "tea"}, "output": 3},
        {"name": "set_price", "arguments": {"item": "tea", "to": 5}, "output": "ok"},
    ]
    kept = vcrt.module_globals(f"{HERE}:PRICES")
    environment = vcrt.tools_environment([look_up, set_price], state=kept)
    found = vcrt.schedule(written(tmp_path, log), environment=environment)
    assert edges(found)[0] == ((0,), (1,))


class Votes:
    def __init__(self):
        self.votes = {"tea": 2, "rice": 1}

    def vote(self, number: int):
        self.votes[["tea", "rice"][number]] += 5
        return "ok"

    def ranking(self):
        return dict.fromkeys(sorted(self.votes, key=lambda n: -self.votes[n]), "good")


@pytest.mark.parametrize("key_order", [True, False])
def test_the_order_of_keys_in_an_output_counts_where_it_is_asked_for(key_order, tmp_path):
    log = [
        {"name": "ranking", "arguments": {}, "output": {"tea": "good", "rice": "good"}},
        {"name": "vote", "arguments": {"number": 1}, "output": "ok"},
    ]
    environment = vcrt.tools_environment(Votes, key_order=key_order)
    found = vcrt.schedule(written(tmp_path, log), environment=environment)
    assert edges(found)[0] == (((0,), (1,)) if key_order else ((0, 1),))


def test_a_state_that_needs_a_start_of_the_log_is_said_by_name():
    class Stock:
        def __init__(self, initial):
            self.left = dict(initial["left"])

        def look(self, item: str):
            return self.left[item]

    environment = vcrt.tools_environment(Stock, name="stock")()
    with pytest.raises(MalformedInputError) as caught:
        environment.tools()
    assert caught.value.where == "environment 'stock', to list its tools"
    assert caught.value.found.startswith("TypeError: 'NoneType' object is not subscriptable")


def test_a_tool_that_breaks_is_no_refusal():
    environment = vcrt.tools_environment([broken])()
    with pytest.raises(VerifierFailure, match="a tool broke"):
        environment.call(environment.reset(None), "broken", {"item": "tea"})


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: vcrt.tools_environment(), "which tools"),
        (lambda: vcrt.tools_environment(Shop, tools_of=around), "which tools"),
        (lambda: vcrt.tools_environment([look, SHOP.order]), "methods of objects beside"),
        (lambda: vcrt.tools_environment([look, look])().tools(), "two tools of one name"),
        (lambda: vcrt.tools_environment([])().tools(), "no tools"),
        (lambda: vcrt.tools_environment([3])().tools(), "no tool"),
        (lambda: vcrt.tools_environment(object()), "without public methods"),
        (lambda: vcrt.sqlite_file("nowhere.db"), "does not exist"),
        (lambda: vcrt.folder("nowhere"), "does not exist"),
    ],
)
def test_what_is_no_tool_is_said(make, text):
    with pytest.raises(MalformedInputError, match=text):
        make()


class TestDatabases:
    def states(self, *scripts, **options):
        environment = vcrt.tools_environment(
            tools_of=in_rows, state=vcrt.sqlite_file(script=SCRIPT, **options)
        )()
        return [environment.canonical(environment.reset(script)) for script in scripts]

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("SELECT 1", "INSERT INTO left VALUES ('x', 1)"),
            ("INSERT INTO left VALUES ('x', '1a')", "INSERT INTO left VALUES ('x', x'3161')"),
            ("INSERT INTO left VALUES ('x', 1)", "INSERT INTO left VALUES ('x', 1.5)"),
            ("INSERT INTO left VALUES ('x', NULL)", "INSERT INTO left VALUES ('x', 'None')"),
            ("SELECT 1", "CREATE INDEX i ON left (n)"),
            ("SELECT 1", "PRAGMA user_version = 3"),
            ("SELECT 1", "CREATE TABLE t (a)"),
            ("SELECT 1", "CREATE TRIGGER t AFTER INSERT ON left BEGIN SELECT 1; END"),
            (
                "INSERT INTO left VALUES ('x', 1), ('y', 2)",
                "INSERT INTO left VALUES ('y', 2), ('x', 1)",
            ),
            (
                "CREATE TABLE t (a INTEGER PRIMARY KEY AUTOINCREMENT); INSERT INTO t VALUES (1)",
                "CREATE TABLE t (a INTEGER PRIMARY KEY AUTOINCREMENT); INSERT INTO t VALUES (1), (2);"
                "DELETE FROM t WHERE a = 2",
            ),
        ],
    )
    def test_what_a_query_can_see_counts(self, one, other):
        first, second = self.states(one, other)
        assert first != second

    def test_rows_can_be_a_set(self):
        scripts = (
            "INSERT INTO left VALUES ('x', 1), ('y', 2)",
            "INSERT INTO left VALUES ('y', 2), ('x', 1)",
        )
        first, second = self.states(*scripts, row_order=False)
        assert first == second
        more, _ = self.states("INSERT INTO left VALUES ('x', 1)", "SELECT 1", row_order=False)
        assert more != first

    def test_a_file_is_copied_with_its_log_and_stays(self, tmp_path):
        file = tmp_path / "shop.db"
        with closing(sqlite3.connect(file)) as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.executescript(SCRIPT)
            database.commit()
            # Not yet in the file itself.
            environment = vcrt.tools_environment(tools_of=in_rows, state=vcrt.sqlite_file(file))()
            state = environment.reset(None)
            environment.call(state, "order", {"item": "tea", "customer": "ann"})
            assert environment.call(state, "look", {"item": "tea"})["left"] == 2
            again = environment.restore(environment.snapshot(state))
            assert environment.canonical(again) == environment.canonical(state)
            assert database.execute("SELECT n FROM left").fetchall() == [(3,), (1,)]

    def test_what_is_made_of_the_path_is_closed_after_each_call(self):
        opened, closed = [], []

        class Client:
            def __init__(self, path):
                opened.append(path)
                self.path = path

            def close(self):
                closed.append(self.path)

        environment = vcrt.tools_environment(
            tools_of=lambda client: [lambda: None] and around(Shop()),
            state=vcrt.sqlite_file(None, Client, script=SCRIPT),
        )()
        state = environment.reset(None)
        environment.call(state, "look", {"item": "tea"})
        assert opened == closed
        assert opened

    @pytest.mark.parametrize(
        ("writes", "mode"), [("a file", "WAL"), ("another database", "DELETE")]
    )
    def test_a_file_written_beside_the_database_is_refused(self, writes, mode, tmp_path):
        def tools(path: str):
            def note(text: str):
                with closing(sqlite3.connect(path)) as database:
                    database.execute("INSERT INTO left VALUES (?, 1)", (text,))
                    database.commit()
                    if text == "both" and writes == "another database":
                        database.execute("ATTACH ? AS other", (f"{path}.more",))
                        database.execute("CREATE TABLE other.t (a)")
                if text == "both" and writes == "a file":
                    Path(f"{path}.more").write_text(text)

            return [note]

        state = vcrt.sqlite_file(None, str, script=f"PRAGMA journal_mode = {mode};{SCRIPT}")
        environment = vcrt.tools_environment(tools_of=tools, state=state)
        calls = [("note", {"text": "one"}), ("note", {"text": "two"})]
        log = written(tmp_path, [{"name": n, "arguments": a} for n, a in calls])
        assert edges(vcrt.schedule(log, environment=environment))[0] == ((0,), (1,))
        log = written(tmp_path, [{"name": "note", "arguments": {"text": "both"}}] * 2)
        with pytest.raises(MalformedInputError, match=r"(?s)beside the database.*state\.db\.more"):
            vcrt.schedule(log, environment=environment)


def test_paths_of_folders_are_no_part_of_arguments_and_outputs(tmp_path):
    def tools(path):
        def find(below: str):
            return [str(each) for each in sorted(Path(below).iterdir())]

        return [find]

    environment = vcrt.tools_environment(tools_of=tools, state=vcrt.folder(files(tmp_path)))()
    found = environment.call(environment.reset(None), "find", {"below": "{state}"})
    assert found == ["{state}/rice", "{state}/tea"]
    with pytest.raises(CallRefused, match=r"^\[Errno 2\] .*: '\{state\}/cocoa'$"):
        environment.call(environment.reset(None), "find", {"below": "{state}/cocoa"})


def test_versions_name_the_code_and_the_start(tmp_path):
    start = files(tmp_path)
    make = lambda: vcrt.tools_environment(tools_of=in_files, state=vcrt.folder(start))  # noqa: E731
    one = make()().versions()
    assert one == make()().versions()
    (start / "tea").write_text("4")
    assert make()().versions() != one


def test_the_command_takes_a_name_of_a_file_and_says_what_is_none(tmp_path, monkeypatch):
    file = tmp_path / "shop.py"
    file.write_text(
        "import vcrt\n"
        "def look(item: str): return {'item': item, 'left': 3}\n"
        "TOOLS = [look]\n"
        "SHOP = vcrt.tools_environment(TOOLS)\n"
    )
    log = written(tmp_path, [LOG[0], {**LOG[0]}])
    found = vcrt.schedule(log, environment=f"{file}:SHOP")
    assert found[0].schedule.waves == ((0, 1),)
    with pytest.raises(MalformedInputError) as raised:
        vcrt.schedule(log, environment=f"{file}:TOOLS")
    assert "vcrt.tools_environment(TOOLS" in raised.value.remedy
    assert f"{file}:SHOP" in raised.value.expected


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_difference_of_two_databases_in_a_folder_names_file_table_row_and_column(tmp_path, mode):
    (tmp_path / "start").mkdir()
    with closing(sqlite3.connect(tmp_path / "start" / "a.db")) as database:
        database.execute(f"PRAGMA journal_mode={mode}")
        database.execute("CREATE TABLE tank (name TEXT, litres INT)")
        database.execute("INSERT INTO tank VALUES ('a', 3)")
        database.commit()

    def tools(path):
        def put(litres: int) -> str:
            with closing(sqlite3.connect(f"{path}/a.db")) as database, database:
                database.execute("UPDATE tank SET litres = ?", (litres,))
            return "ok"

        return [put]

    environment = vcrt.tools_environment(
        tools_of=tools, state=vcrt.folder(tmp_path / "start"), name="tanks"
    )
    (found,) = vcrt.schedule(puts(tmp_path), environment=environment)
    ((place,),) = found.differences.values()
    assert (place.where, place.forward, place.reverse) == (
        'file a.db["tank"][0]["litres"]',
        "2",
        "1",
    )


def test_a_difference_of_two_office_documents_names_the_part(tmp_path):
    def tools(path):
        def put(litres: int) -> str:
            with zipfile.ZipFile(f"{path}/tank.xlsx", "w") as archive:
                for name in ("docProps/core.xml", "xl/sheet1.xml", "xl/styles.xml"):
                    part = zipfile.ZipInfo(name)
                    archive.writestr(part, "<same/>" if "styles" in name else f"<v>{litres}</v>")
            return "ok"

        return [put]

    environment = vcrt.tools_environment(tools_of=tools, state=vcrt.folder(), name="tanks")
    (found,) = vcrt.schedule(puts(tmp_path), environment=environment)
    (places,) = found.differences.values()
    assert [(each.where, each.forward, each.reverse) for each in places] == [
        ("file tank.xlsx, xl/sheet1.xml", '"<v>2</v>"', '"<v>1</v>"'),
        ("file tank.xlsx, docProps/core.xml", '"<v>2</v>"', '"<v>1</v>"'),
    ]


def test_what_a_folder_ignores_is_left_out_of_no_hint(tmp_path):
    """A tool that writes only there looks as if it changed nothing."""

    def tools(path):
        def put(litres: int) -> str:
            Path(path, "tank.log").write_text(str(litres))
            return "ok"

        return [put]

    environment = vcrt.tools_environment(
        tools_of=tools, state=vcrt.folder(ignored=("*.log",)), name="tanks"
    )
    (put,) = vcrt.annotate([puts(tmp_path)], environment=environment).tools
    assert put.changed.count == 0
    assert put.hints(risk=1.0) == {}


def puts(folder):
    """A log of two calls of ``put``."""
    log = folder / "log.jsonl"
    calls = ({"name": "put", "arguments": {"litres": k}} for k in (1, 2))
    log.write_text("".join(json.dumps(call) + "\n" for call in calls))
    return log


@pytest.mark.parametrize("row_order", [True, False])
def test_a_difference_of_two_databases_names_table_row_and_column(tmp_path, row_order):
    def tools(database):
        def put(litres: int) -> str:
            database.execute("UPDATE tank SET litres = ?", (litres,))
            return "ok"

        return [put]

    script = "CREATE TABLE tank (name TEXT, litres INT); INSERT INTO tank VALUES ('a', 3)"
    environment = vcrt.tools_environment(
        tools_of=tools, state=vcrt.sqlite_file(script=script, row_order=row_order), name="tanks"
    )
    (found,) = vcrt.schedule(puts(tmp_path), environment=environment)
    ((place,),) = found.differences.values()
    assert (place.where, place.forward, place.reverse) == (
        'state["tank"][0]["litres"]',
        "2",
        "1",
    )
