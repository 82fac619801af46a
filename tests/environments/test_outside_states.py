"""What calls change beside the state that reset returned: found along the trace, and named."""

from __future__ import annotations

import calendar
import decimal
import json
import logging
import os
import re
import string
import subprocess
import sys
from importlib import import_module

import pytest

import vcrt
from vcrt.api.logs import lift_log
from vcrt.calls.log_lifting import run_trace
from vcrt.calls.log_traces import Trace
from vcrt.environments.guarding import make_guarded
from vcrt.environments.registry import FromFile
from vcrt.environments.states.outside_states import _first_change, _Looking
from vcrt.environments.states.reachable_names import namespaces
from vcrt.environments.tool_calls import Call
from vcrt.errors import MalformedInputError, VcrtError
from vcrt.replay.shards import replays_of

#: A class for each place: ``put`` changes it.
ENVIRONMENTS = """
import abc, collections, contextvars, dataclasses, decimal, enum, functools, hashlib, itertools, locale, logging
import mmap, os, random, sqlite3, string, threading, types
import cachetools_of_tests
import cellar_of_tests
import numpy as np
import vcrt
import beside_the_attic

LOG = logging.getLogger("attic")
GLOBAL = []
NOW = contextvars.ContextVar("now")
NUMBERS = itertools.count()
CATALOGUE = {"tea": collections.Counter(left=3)}
LOCAL = threading.local()
GRID = np.zeros(3)
CELLS = np.array([{}, {}], dtype=object)
CHESTS = {"first": np.array([{}, {}], dtype=object)}
MASKED = [np.ma.masked_array([1, 2, 3], mask=[False, False, False])]
def family(above, levels):
    one = {"above": above, "seen": []}
    one["below"] = [family(one, levels - 1) for _ in range(3 * (levels > 0))]
    return one
FAMILY = family(None, 2)
SETTINGS = types.ModuleType("settings_of_tests")
DICE = np.random.default_rng(1)
DRAWN = random.Random(1)
LETTERS = iter("abcdefgh")
BUFFER = bytearray(b"abc")
MAPPED = mmap.mmap(-1, 8)
SUM = hashlib.sha256()
DOOR = threading.Lock()
TURNS = itertools.cycle("ab")
THEN = contextvars.Context()
TABLES = sqlite3.connect(":memory:", check_same_thread=False)

def numbers():
    total = 0
    while True:
        total += 1
        yield total

COUNTED = numbers()

class Colour(enum.Enum):
    RED = 1

class Held:
    value = 0

def add(x, to=[]):
    to.append(x)

def counting():
    made = []
    return lambda x: made.append(x)

count_up = counting()

@functools.lru_cache
def double(x):
    return 2 * x

@functools.lru_cache
def listed(x):
    return []

@functools.cache
def price_in(tools):
    return tools.price

@functools.singledispatch
def shown(value):
    return "?"

@dataclasses.dataclass(frozen=True)
class Place:
    row: int

@functools.lru_cache
def row_of(place):
    return place.row

@cachetools_of_tests.cached
def remembered(x):
    return x

class Sellable(abc.ABC):
    pass

class Tools:
    shared = {}
    class Meta:
        registry = {}
    @functools.lru_cache
    def cached(self):
        return len(self.items)
    @property
    def noted(self, kept={}):
        return kept
    @property
    @functools.cache
    def listed_once(self):
        return []
    def __init__(self):
        self.items, self.colour, self.add, self.held = {}, Colour.RED, add, Held
        self.log, self.current = logging.getLogger("attic.tools"), Priced()

class Priced:
    price = 1

class Attic(vcrt.CallEnvironment):
    name = "attic"
    def reset(self, initial):
        self.current = Tools()
        return self.current
    def call(self, state, name, arguments):
        return getattr(self, name)(state, **arguments)
    def global_list(self, state, x): GLOBAL.append(x)
    def module_beside(self, state, x): beside_the_attic.ITEMS.append(x)
    def module_elsewhere(self, state, x): cellar_of_tests.BOXES.append(x)
    def class_elsewhere(self, state, x): cellar_of_tests.Shelf.size = x + 2
    def mode_of_files(self, state, x): os.umask(0o70 + x)
    def class_attribute(self, state, x): state.shared[x] = x
    def class_value(self, state, x): state.held.value = x
    def inner_class(self, state, x): state.Meta.registry[x] = x
    def default_of_a_property(self, state, x): state.noted[x] = x
    def cached_property_of_a_class(self, state, x): state.listed_once.append(x)
    def environment_class(self, state, x): type(self).last = x
    def environment_attribute(self, state, x): self.last = x
    def other_attributes(self, state, x): self.__dict__ = {**vars(self), "last": x}
    def default(self, state, x): state.add(x)
    def closure(self, state, x): count_up(x)
    def member(self, state, x): state.colour.seen = x
    def other_attributes_of_a_member(self, state, x):
        state.colour.__dict__ = {**vars(state.colour), "seen": x}
    def context_variable(self, state, x): NOW.set(x)
    def environment_variable(self, state, x): os.environ["ATTIC"] = str(x)
    def other_variables(self, state, x): os.environ._data = {**os.environ._data, b"ATTIC": b"1"}
    def counter(self, state, x): next(NUMBERS)
    def working_directory(self, state, x): os.chdir("/tmp")
    def decimal_context(self, state, x): decimal.getcontext().prec = 7
    def thread_local(self, state, x): LOCAL.last = x
    def array(self, state, x): GRID[0] = x
    def array_of_objects(self, state, x): CELLS[0][x] = x
    def array_within(self, state, x): CHESTS["first"][1][x] = x
    def mask(self, state, x): MASKED[0][1] = np.ma.masked
    def graph(self, state, x): FAMILY["below"][0]["below"][1]["seen"].append(x)
    def made_module(self, state, x): SETTINGS.last = x
    def generator_of_numpy(self, state, x): DICE.random()
    def generator_of_python(self, state, x): DRAWN.random()
    def generator(self, state, x): next(COUNTED)
    def iterator(self, state, x): next(LETTERS)
    def buffer(self, state, x): BUFFER[0] = x
    def mapped(self, state, x): MAPPED[0] = 1
    def hash(self, state, x): SUM.update(b"more")
    def lock(self, state, x): DOOR.acquire()
    def iterator_of_itertools(self, state, x): next(TURNS)
    def other_context(self, state, x): THEN.run(NOW.set, x)
    def table(self, state, x): TABLES.execute("CREATE TABLE made (x)")
    def number_of_a_database(self, state, x): TABLES.execute("PRAGMA user_version = 7")
    def attribute_of_a_library(self, state, x): string.last_of_the_attic = x
    def attribute_imported_on_the_way(self, state, x):
        import calendar
        calendar.last_of_the_attic = x
    def draw(self, state, x): random.random()
    def draw_of_numpy(self, state, x): np.random.rand()
    def cache_of_a_function(self, state, x): return price_in(state.current)
    def cache_of_a_method(self, state, x): return state.cached()
    def cached_list(self, state, x): listed(0).append(x)
    def kept_by_a_decorator(self, state, x): return remembered(x)
    def dispatch(self, state, x): shown.register(Held, lambda value: "held")
    def abstract(self, state, x): Sellable.register(Held)
    def abstract_of_python(self, state, x): collections.abc.Sized.register(Held)
    def level(self, state, x): LOG.setLevel(10)
    def handler(self, state, x): LOG.addHandler(logging.NullHandler())
    def logger_of_the_state(self, state, x): state.log.propagate = False
    def refused(self, state, x):
        GLOBAL.append(x)
        raise vcrt.CallRefused("no")
    def timer(self, state, x): threading.Timer(5, print).start()
    def sound(self, state, x):
        LOG.info("put %s", x)
        row_of(Place(x)), double(x), shown(x), listed(x), isinstance(x, Sellable)
        worker = threading.Thread(target=double, args=(x,))
        worker.start()
        worker.join()
        import beside_the_attic_too
        state.items[x] = CATALOGUE["tea"]
        return self.current is state
    def look(self, state, x): return x

class Careless(Attic):
    ignored = frozenset({"GLOBAL"})

class Kept(Attic):
    def canonical(self, state): return repr((state.items, GLOBAL)).encode()
    def snapshot(self, state): return dict(state.items), list(GLOBAL)
    def restore(self, snapshot):
        made = Tools()
        made.items, GLOBAL[:] = dict(snapshot[0]), snapshot[1]
        return made
"""

#: The same, but that nothing beside the state names a part of it, and no function keeps its results.
PLAINER = re.sub(r"\n *@functools\.(lru_)?cache\b", "", ENVIRONMENTS)
PLAINER = PLAINER.replace("self.current = Tools()\n        return self.current", "return Tools()")
PLAINER = PLAINER.replace("self.current is state", "x")
#: What takes long to look at.
SLOW = """
TOWN = [Held() for _ in range(4999)]
def town(): return TOWN
"""
#: A library that keeps what functions gave.
DECORATOR = """
def cached(function):
    kept = {}
    def inner(x):
        if x not in kept:
            kept[x] = function(x)
        return kept[x]
    return inner
"""


@pytest.fixture
def ran(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in ("beside_the_attic", "beside_the_attic_too"):
        (tmp_path / f"{name}.py").write_text("ITEMS = []\n")
    library = tmp_path / "src" / "cellar_of_tests"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text("BOXES = []\nclass Shelf:\n    size = 1\n")
    monkeypatch.setattr(sys, "path", [str(library.parent), *sys.path])
    elsewhere = tmp_path / "site-packages"
    elsewhere.mkdir()
    (elsewhere / "cachetools_of_tests.py").write_text(DECORATOR)
    monkeypatch.setattr(sys, "path", [str(elsewhere), *sys.path])

    def run(*names, kind="Attic", text=None):
        (tmp_path / "attic_of_tests.py").write_text(text or ENVIRONMENTS)
        environment = make_guarded(FromFile(str(tmp_path / "attic_of_tests.py"), kind))
        calls = tuple(Call(name, {"x": x}) for x, name in enumerate(names))
        places = tuple(f"call {x}" for x in range(len(calls)))
        trace = Trace(name="trace", calls=calls, places=places)
        return run_trace(environment, trace, 0, source="test")

    mask = os.umask(0o77)
    os.umask(mask)
    yield run
    os.umask(mask)
    names = ("attic_of_tests", "beside_the_attic", "beside_the_attic_too", "cachetools_of_tests")
    names += ("cellar_of_tests",)
    for name in names:
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("name", "place"),
    CHANGES := [
        ("global_list", "global attic_of_tests.GLOBAL"),
        ("module_beside", "global beside_the_attic.ITEMS"),
        ("module_elsewhere", "global cellar_of_tests.BOXES"),
        ("class_elsewhere", "class attribute cellar_of_tests.Shelf.size"),
        ("mode_of_files", "the mode of new files"),
        ("class_attribute", "class attribute attic_of_tests.Tools.shared"),
        ("class_value", "class attribute attic_of_tests.Held.value"),
        ("inner_class", "class attribute attic_of_tests.Tools.Meta.registry"),
        ("default_of_a_property", "class attribute attic_of_tests.Tools.noted.fget"),
        ("cached_property_of_a_class", "class attribute attic_of_tests.Tools.listed_once.fget"),
        ("environment_class", "class attribute attic_of_tests.Attic.last"),
        ("environment_attribute", "attribute of the environment last"),
        ("other_attributes", "attribute of the environment last"),
        ("default", "global attic_of_tests.add"),
        ("closure", "global attic_of_tests.count_up"),
        ("member", "attribute attic_of_tests.Colour.RED.seen"),
        ("other_attributes_of_a_member", "attribute attic_of_tests.Colour.RED.seen"),
        ("context_variable", "global attic_of_tests.NOW"),
        ("environment_variable", "environment variable ATTIC"),
        ("other_variables", "environment variable ATTIC"),
        ("counter", "global attic_of_tests.NUMBERS"),
        ("refused", "global attic_of_tests.GLOBAL"),
        ("working_directory", "the working directory"),
        ("decimal_context", "the decimal context"),
        ("thread_local", "global attic_of_tests.LOCAL"),
        ("array", "global attic_of_tests.GRID"),
        ("array_of_objects", "global attic_of_tests.CELLS"),
        ("array_within", "global attic_of_tests.CHESTS"),
        ("mask", "global attic_of_tests.MASKED"),
        ("graph", "global attic_of_tests.FAMILY"),
        ("made_module", "global attic_of_tests.SETTINGS"),
        ("generator_of_numpy", "global attic_of_tests.DICE"),
        ("generator_of_python", "global attic_of_tests.DRAWN"),
        ("generator", "global attic_of_tests.COUNTED"),
        ("iterator", "global attic_of_tests.LETTERS"),
        ("buffer", "global attic_of_tests.BUFFER"),
        ("mapped", "global attic_of_tests.MAPPED"),
        ("hash", "global attic_of_tests.SUM"),
        ("lock", "global attic_of_tests.DOOR"),
        ("iterator_of_itertools", "global attic_of_tests.TURNS"),
        ("other_context", "global attic_of_tests.THEN"),
        ("table", "global attic_of_tests.TABLES"),
        ("number_of_a_database", "global attic_of_tests.TABLES"),
        ("attribute_of_a_library", "attribute string.last_of_the_attic"),
        ("attribute_imported_on_the_way", "attribute calendar.last_of_the_attic"),
        ("draw", "the numbers of module random"),
        ("cache_of_a_function", "global attic_of_tests.price_in"),
        ("cache_of_a_method", "class attribute attic_of_tests.Tools.cached"),
        ("cached_list", "result for 0 of global attic_of_tests.listed"),
        ("kept_by_a_decorator", "global attic_of_tests.remembered"),
        ("dispatch", "global attic_of_tests.shown"),
        ("abstract", "abstract class attic_of_tests.Sellable"),
        ("abstract_of_python", "abstract class collections.abc.Sized"),
        ("level", "logger attic, level"),
        ("handler", "logger attic, handlers"),
        ("logger_of_the_state", "logger attic.tools, propagate"),
        ("draw_of_numpy", "the numbers of numpy.random"),
    ],
)
def test_what_a_call_changes_elsewhere_is_named(ran, monkeypatch, tmp_path, name, place):
    is_named(ran, monkeypatch, tmp_path, name, place)


def is_named(ran, monkeypatch, tmp_path, name, place):
    """That a call is refused for what it changes."""
    monkeypatch.setattr(os.environ, "_data", dict(os.environ._data))
    for logger in ("attic", "attic.tools"):
        monkeypatch.delitem(logging.root.manager.loggerDict, logger, raising=False)
    monkeypatch.setenv("ATTIC", "none")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(string, "last_of_the_attic", None, raising=False)
    monkeypatch.setattr(calendar, "last_of_the_attic", None, raising=False)
    changed = pytest.raises(MalformedInputError, match="outside of what `reset` returned")
    with changed as caught, decimal.localcontext():
        ran("sound", name, "sound")
    assert caught.value.where == "call 1"
    assert caught.value.found == f"{place} changed during call {name}(x=1)"


@pytest.mark.parametrize(("name", "place"), [each for each in CHANGES if "cache" not in each[0]])
def test_it_is_named_where_looks_may_end_early(ran, monkeypatch, tmp_path, name, place):
    monkeypatch.setitem(globals(), "ENVIRONMENTS", PLAINER)
    early, is_same_now = [], _Looking.is_same_now

    def noted(looking):
        early.append(is_same_now(looking))
        return early[-1]

    monkeypatch.setattr(_Looking, "is_same_now", noted)
    is_named(ran, monkeypatch, tmp_path, name, place)
    assert early.count(False) >= 1


def test_looks_end_early_and_see_what_whole_ones_do(ran, monkeypatch):
    monkeypatch.setitem(globals(), "ENVIRONMENTS", PLAINER)
    early, is_same_now = [], _Looking.is_same_now

    def compared(looking):
        early.append(is_same_now(looking))
        if early[-1]:
            assert _first_change(looking, _Looking(looking.around)) is None
        return early[-1]

    monkeypatch.setattr(_Looking, "is_same_now", compared)
    ran(*["look", "sound"] * 4)
    assert early.count(True) > 5


def test_what_lies_in_the_state_or_is_a_cache_is_no_other_place(ran):
    assert not ran("sound", "look", "sound").changes_nothing


def test_what_no_call_can_see_may_be_named(ran):
    ran("global_list", "sound", kind="Careless")


def test_what_restore_puts_back_is_state(ran):
    found = ran("global_list", "sound", "global_list", kind="Kept")
    assert not found.changes_nothing
    assert import_module("attic_of_tests").GLOBAL == [0, 2]
    with pytest.raises(MalformedInputError, match=r"Tools\.shared changed"):
        ran("global_list", "class_attribute", kind="Kept")


def test_a_thread_that_runs_on_is_named_with_its_call(ran):
    with pytest.raises(MalformedInputError, match="leaves a thread running") as caught:
        ran("sound", "timer")
    assert caught.value.where == "call 1"
    assert "timer(x=1)" in caught.value.found


def test_modules_of_vcrt_are_not_looked_at():
    """Methods that vcrt gives the class of somebody's tools have its globals, and looks at them take time."""
    found = namespaces([vcrt.tools_environment(Reader)])[0]
    assert id(globals()) in found  # and those of modules beside this one, if some are imported
    assert [name for name, _ in found.values() if name.partition(".")[0] == "vcrt"] == []


class Reader:
    def read(self, text: str):
        return json.loads(text)


def test_looks_that_take_most_of_the_time_are_warned_of_and_go_on(ran, monkeypatch):
    monkeypatch.setattr("vcrt.environments.states.outside_states._SLOW_S", 0.0)
    monkeypatch.setitem(globals(), "ENVIRONMENTS", ENVIRONMENTS + SLOW)
    with (
        pytest.warns(RuntimeWarning, match=r"most of it for global attic_of_tests\.TOWN") as told,
        pytest.raises(MalformedInputError, match="outside of what `reset` returned"),
    ):
        ran(*["look"] * 9, "global_list")
    assert len(told) == 1


def test_what_is_too_large_to_look_at_is_said_once_and_what_replaces_it_is_seen(ran, monkeypatch):
    large = """
PLACES = [Held() for _ in range(20_000)]
NUMBERED = {n: "x" * 100 for n in range(250_000)}
MAP = np.zeros(10 ** 6)
def places(): return PLACES, NUMBERED, MAP
class Larger(Attic):
    def replace(self, state, x):
        global PLACES
        PLACES = list(PLACES)
"""
    monkeypatch.setitem(globals(), "ENVIRONMENTS", ENVIRONMENTS + large)
    with pytest.warns(RuntimeWarning, match="holds too much") as told:
        ran("look", "sound", "look", kind="Larger")
    names = sorted(str(each.message).split()[1].split(".")[1] for each in told)
    assert names == ["MAP", "NUMBERED", "PLACES"]
    changed = pytest.raises(MalformedInputError, match=r"global attic_of_tests\.PLACES changed")
    with pytest.warns(RuntimeWarning, match="holds too much"), changed:
        ran("look", "replace", kind="Larger")


def test_results_that_are_too_large_together_are_said_once_and_no_longer_read(ran, monkeypatch):
    parsing = """
@functools.cache
def parsed(x):
    return [Held() for _ in range(500)]
@functools.lru_cache(maxsize=64)
def parsed_lately(x):
    return [Held() for _ in range(500)]
class Parsing(Attic):
    def parse(self, state, x):
        for number in range(60):
            parsed(number), parsed_lately(number)
        listed(0)
    def change(self, state, x):
        listed(0).append(x)
"""
    monkeypatch.setitem(globals(), "ENVIRONMENTS", ENVIRONMENTS + parsing)
    with pytest.warns(RuntimeWarning, match="keeps results that hold too much") as told:
        ran("look", "parse", "look", "parse", "look", kind="Parsing")
    names = [str(each.message).split()[1].split(".")[1] for each in told]
    assert sorted(names) == ["parsed", "parsed_lately"]
    # Other caches are looked at as before.
    changed = pytest.raises(MalformedInputError, match=r"result for 0 of global .*\.listed changed")
    with pytest.warns(RuntimeWarning, match="keeps results"), changed:
        ran("parse", "look", "change", kind="Parsing")


def test_what_holds_something_unreadable_is_said_once_by_name(ran, monkeypatch):
    queues = """
import queue, weakref
WAITING = {"first": [queue.SimpleQueue()]}
SEEN = weakref.WeakSet()
class Queues(Attic):
    def put(self, state, x): WAITING["first"][0].put(x)
    def see(self, state, x): SEEN.add(type(self))
"""
    monkeypatch.setitem(globals(), "ENVIRONMENTS", ENVIRONMENTS + queues)
    with pytest.warns(RuntimeWarning, match="not seen") as told:
        ran("look", "put", "look", kind="Queues")
    (said,) = [str(each.message) for each in told]
    assert said.startswith(
        "global attic_of_tests.WAITING is or holds an object of _queue.SimpleQueue, which cannot"
    )


def test_a_view_of_objects_is_said_to_be_unread(ran, monkeypatch):
    views = """
CRATES = memoryview(np.array([{}], dtype=object))
class Views(Attic):
    def put(self, state, x): CRATES.obj[0][x] = x
"""
    monkeypatch.setitem(globals(), "ENVIRONMENTS", ENVIRONMENTS + views)
    with pytest.warns(RuntimeWarning, match=r"global attic_of_tests\.CRATES .* cannot be read"):
        ran("look", "put", "look", kind="Views")


def test_what_never_changes_is_not_warned_of(ran, monkeypatch, recwarn):
    constants = """
import datetime, json, operator, re, struct, typing
VALUES = [dict[str, int], tuple[float, ...], typing.Optional[int], int | str, collections.abc.Callable[[int], str],
    typing.TypeVar("T"), typing.Literal["a"], re.compile("x"), struct.Struct("i"), json.JSONDecoder(), object(),
    datetime.timezone.utc, operator.itemgetter(1), functools.partial(print, 1), range(3), Ellipsis]
class Constants(Attic):
    def see(self, state, x): return len(VALUES)
"""
    monkeypatch.setitem(globals(), "ENVIRONMENTS", ENVIRONMENTS + constants)
    ran("look", "see", "look", kind="Constants")
    assert not [str(each.message) for each in recwarn]


def test_a_global_that_is_named_only_by_a_module_imported_meanwhile_has_not_changed(ran, tmp_path):
    lazily = """
HIDDEN = {"tea": 1}
class Lazy(Attic):
    def late(self, state, x): import late_in_the_attic; return late_in_the_attic.known()
    def change(self, state, x): import late_in_the_attic; late_in_the_attic.change(x)
"""
    (tmp_path / "late_in_the_attic.py").write_text(
        "import attic_of_tests\n"
        "def known(): return len(attic_of_tests.HIDDEN)\n"
        "def change(x): attic_of_tests.HIDDEN[x] = x\n"
    )
    try:
        assert ran("late", "late", kind="Lazy", text=ENVIRONMENTS + lazily).changes_nothing
        with pytest.raises(MalformedInputError, match=r"global attic_of_tests\.HIDDEN changed"):
            ran("late", "change", kind="Lazy", text=ENVIRONMENTS + lazily)
    finally:
        sys.modules.pop("late_in_the_attic", None)


def test_a_trace_that_changes_nothing_says_so(ran):
    assert ran("look", "look").changes_nothing


#: ``late`` writes beside the state only where it comes before the other call.
LATE = """
import vcrt
class Tools:
    alerts = []
    def __init__(self): self.stock = 0
    def deliver(self, n): self.stock += n
    def take(self, n):
        if self.stock < n: Tools.alerts.append(n)
        self.stock -= n
class Late(vcrt.CallEnvironment):
    name = "late"
    def reset(self, initial):
        Tools.alerts = []
        return Tools()
    def call(self, state, name, arguments): return vcrt.call_method(state, name, arguments)
"""


def test_what_only_another_order_changes_elsewhere_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "late_of_tests.py").write_text(LATE)
    environment = make_guarded(FromFile(str(tmp_path / "late_of_tests.py"), "Late"))
    calls = (Call("deliver", {"n": 5}), Call("take", {"n": 5}))
    trace = Trace(name="trace", calls=calls, places=("call 0", "call 1"))
    (window,) = run_trace(environment, trace, 0, source="test").windows
    for backwards in (False, True):
        with pytest.raises(MalformedInputError, match="outside of what `reset`") as caught:
            replays_of(environment, [window.episode], backwards=backwards)
        assert "Tools.alerts changed during call take(n=5)" in str(caught.value)


#: A mark that is known by its identity, which a copy of the state does not keep.
MARKED = """
import vcrt
class Mark:
    pass
MISSING = Mark()
class Marked(vcrt.CallEnvironment):
    name = "marked"
    def reset(self, initial): return {"size": MISSING}
    def call(self, state, name, arguments):
        state[name] = 1
        return state["size"] is MISSING
"""


def test_what_beside_the_state_names_a_part_of_it_is_named(tmp_path):
    with pytest.raises(MalformedInputError) as caught:
        lifted(tmp_path, MARKED, "Marked", ("a", 1), ("b", 2))
    assert "global marked_of_tests.MISSING names a part of the state" in str(caught.value)


#: A tool that names what its module keeps: what one order left behind refuses the first call of the next.
KEPT = """
import vcrt
KEPT = {}
class Tools:
    def __init__(self): self.items = KEPT
    def add(self, x):
        if x in self.items: raise vcrt.CallRefused("there already")
        self.items[x] = []
class Keeping(vcrt.CallEnvironment):
    name = "keeping"
    def reset(self, initial): return Tools()
    def call(self, state, name, arguments): return vcrt.call_method(state, name, arguments)
"""
#: A tool that reads the clock, where no output shows it.
CLOCK = """
import time, vcrt
class Clock(vcrt.CallEnvironment):
    name = "clock"
    def reset(self, initial): return {"due": {}, "seen": []}
    def call(self, state, name, arguments):
        if name == "open": state["due"][arguments["x"]] = time.time_ns()
        else: state["seen"] = sorted({*state["seen"], arguments["x"]})
"""


def lifted(tmp_path, source, kind, *calls):
    (tmp_path / f"{kind.lower()}_of_tests.py").write_text(source)
    log = tmp_path / "log.jsonl"
    lines = [{"name": name, "arguments": {"x": x}} for name, x in calls]
    log.write_text("\n".join(map(json.dumps, lines)))
    place = FromFile(str(tmp_path / f"{kind.lower()}_of_tests.py"), kind)
    return lift_log([log], environment=place)


@pytest.mark.processes
def test_what_one_order_leaves_behind_for_the_next_is_named(tmp_path):
    (found,) = lifted(tmp_path, KEPT, "Keeping", ("add", "a"), ("add", "b")).calls
    assert found.schedule is None
    assert "global keeping_of_tests.KEPT names a part of the state" in found.problem
    assert "AssertionError" not in found.problem


#: A tool that changes what a library keeps in C, where no look at values can see it.
DIALECTS = """
import csv, vcrt
class Dialects(vcrt.CallEnvironment):
    name = "dialects"
    def reset(self, initial): return {}
    def call(self, state, name, arguments):
        if name == "register": csv.register_dialect(arguments["x"], delimiter=";")
        else: return csv.list_dialects()
"""


@pytest.mark.processes
def test_what_a_call_leaves_in_a_library_is_met_by_a_process_that_begins_with_later_calls(tmp_path):
    log, place = tmp_path / "log.jsonl", f"{tmp_path / 'tools.py'}:Dialects"
    (tmp_path / "tools.py").write_text(DIALECTS)
    calls = [{"name": name, "arguments": {"x": "mine"}} for name in ("register", "list")]
    log.write_text("\n".join(map(json.dumps, calls)))
    (made,) = vcrt.schedule(log, environment=place, jobs=1)
    assert made.schedule is None
    assert re.match("nondeterministic: .* what a call leaves beside the state", made.problem)
    with pytest.raises(VcrtError) as caught:
        vcrt.annotate([log], environment=place, jobs=1)
    assert caught.value.found == "1 nondeterministic"
    (lifted,) = lift_log([log], environment=place, jobs=1).calls
    assert lifted.schedule is None
    assert lifted.outcome.kind == "nondeterministic"


def test_a_clock_in_the_state_is_called_one(tmp_path):
    calls = [("open", "a"), ("see", "b"), ("open", "c"), ("see", "d")]
    (found,) = lifted(tmp_path, CLOCK, "Clock", *calls).calls
    assert found.outcome.kind == "nondeterministic"
    assert "fix clocks and chance" in found.problem
    assert "key_order" not in found.problem
    assert 'state["due"]["a"] differs between two runs' in found.problem


#: What functions of a module name, and what its imports bring, is looked at; what nobody can reach is not.
REACHED = """
import importlib, vcrt
from reached_of_tests import through
PLAIN, ALIASED, BY_TEXT, HELD = [], [], [], []
alias = ALIASED
class Reaching(vcrt.CallEnvironment):
    name = "reaching"
    held = HELD
    def reset(self, initial): return {}
    def call(self, state, name, arguments): return getattr(self, name)(state, **arguments)
    def plain(self, state, x): PLAIN.append(x)
    def by_alias(self, state, x): alias.append(x)
    def by_class(self, state, x): self.held.append(x)
    def through_an_import(self, state, x): through(x)
    def by_import(self, state, x):
        import imported_of_tests
        imported_of_tests.ITEMS.append(x)
    def by_name(self, state, x): importlib.import_module("named_of_tests").ITEMS.append(x)
"""
#: Names that a program makes up, each in a way of its own.
MADE_UP = {
    "made_up": 'globals()["BY" + "_TEXT"].append(x)',
    "made_by_exec": "made_at_import(x)",
    "made_up_module": 'importlib.import_module("named" + "_of_tests").ITEMS.append(x)',
}
AT_IMPORT = 'exec("def made_at_import(x): BY_TEXT.append(x)")\n'


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("plain", "global reaching.PLAIN"),
        ("by_alias", "global reaching.alias"),
        ("by_class", "class attribute reaching.Reaching.held"),
        ("through_an_import", "global deep_of_tests.ITEMS"),
        ("by_import", "global imported_of_tests.ITEMS"),
        ("by_name", "global named_of_tests.ITEMS"),
        ("made_up", "global reaching.BY_TEXT"),
        ("made_by_exec", "global reaching.BY_TEXT"),
        ("made_up_module", "global named_of_tests.ITEMS"),
    ],
)
def test_what_a_call_can_reach_is_looked_at(tmp_path, monkeypatch, name, place):
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    helpers = ("reached_of_tests", "deep_of_tests", "imported_of_tests", "named_of_tests")
    for helper in helpers:
        (tmp_path / f"{helper}.py").write_text("ITEMS = []\n")
    (tmp_path / "deep_of_tests.py").write_text("ITEMS = []\ndef add(x): ITEMS.append(x)\n")
    text = "import deep_of_tests\ndef through(x): deep_of_tests.add(x)\n"
    (tmp_path / "reached_of_tests.py").write_text(text)
    text = REACHED
    if name in MADE_UP:
        text = "".join(line for line in REACHED.splitlines(True) if "named_of_tests" not in line)
        text += f"    def {name}(self, state, x): {MADE_UP[name]}\n"
        text += AT_IMPORT if name == "made_by_exec" else ""
    (tmp_path / "reaching.py").write_text(text)
    for helper in helpers:
        import_module(helper)
    environment = make_guarded(FromFile(str(tmp_path / "reaching.py"), "Reaching"))
    calls = (Call(name, {"x": 1}), Call(name, {"x": 2}))
    trace = Trace(name="trace", calls=calls, places=("call 0", "call 1"))
    try:
        with pytest.raises(MalformedInputError, match="outside of what `reset`") as caught:
            run_trace(environment, trace, 0, source="test")
    finally:
        for module in (*helpers, "reaching"):
            sys.modules.pop(module, None)
    assert caught.value.found.startswith(f"{place} changed during call {name}(x=1)")


@pytest.mark.parametrize(
    ("beside", "named", "elsewhere"),
    [
        ("WORD = re.compile('a')", "from shelf_of_tests import ITEMS", True),
        ("WORD = eval('1')", "from shelf_of_tests import ITEMS", True),
        ("importlib.import_module('json')", "def late(): from shelf_of_tests import ITEMS", True),
        ("", "KEY = 'shelf_of_tests'", False),
        ("WORD = re.compile('a')", "KEY = 'shelf_of_tests'", False),
        ("", "TEXT = 'shelf_of_tests.ITEMS'", True),
        ("", "FILE = 'shelf_of_tests.json'", False),
        ("importlib.import_module('json')", "KEY = 'shelf_of_tests'", True),
        ("pkgutil.resolve_name('json')", "KEY = 'shelf_of_tests:ITEMS'", True),
        ("from builtins import eval as value; value('1')", "KEY = 'shelf_of_tests'", True),
        ("import builtins; builtins.eval('1')", "KEY = 'shelf_of_tests'", True),
        ("__import__('builtins').eval('1')", "KEY = 'shelf_of_tests'", True),
        ("from loader_of_tests import load", "KEY = 'shelf_of_tests'", True),
    ],
)
def test_modules_in_other_folders_are_reached(tmp_path, monkeypatch, beside, named, elsewhere):
    """A file with ``re.compile``, taken for one that may import any module, lost those that it imports."""
    for folder in ("shop", "lib"):
        (tmp_path / folder).mkdir()
        monkeypatch.syspath_prepend(str(tmp_path / folder))
    (tmp_path / "lib" / "shelf_of_tests.py").write_text("import json\nITEMS = []\n")
    load = "from importlib import import_module\ndef load(x): return import_module(x)\n"
    (tmp_path / "lib" / "loader_of_tests.py").write_text(load)
    (tmp_path / "shop" / "shop_of_tests.py").write_text(
        f"import importlib, pkgutil, re\n{beside}\n{named}\nclass Shop:\n    def call(self): pass\n"
    )
    try:
        made = [import_module(f"{name}_of_tests") for name in ("shelf", "loader", "shop")]
        reached, names = namespaces([made[-1].Shop])
    finally:
        for name in ("shelf", "loader", "shop"):
            sys.modules.pop(f"{name}_of_tests", None)
    assert ("shelf_of_tests" in {name for name, _ in reached.values()}) is elsewhere
    # Text that runs may have any name.
    assert (names is None) is ("eval" in beside)


@pytest.mark.parametrize("inner", ["", "tools."])
def test_where_a_file_may_import_any_module_its_whole_package_counts(tmp_path, monkeypatch, inner):
    monkeypatch.syspath_prepend(str(tmp_path))
    files = {
        "__init__": "OPEN = []\n",
        "shelves.tea": "LEFT = []\n",
        f"{inner}shop": "import importlib\nclass Shop:\n    def call(self, x): importlib.import_module(x)\n",
    }
    for name, text in files.items():
        path = (tmp_path / "app_of_tests" / name.replace(".", "/")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    try:
        made = import_module(f"app_of_tests.{inner}shop")
        import_module("app_of_tests.shelves.tea")
        reached = {name for name, _ in namespaces([made.Shop])[0].values()}
    finally:
        for name in [each for each in sys.modules if each.startswith("app_of_tests")]:
            del sys.modules[name]
    assert reached == {made.__name__, "app_of_tests", "app_of_tests.shelves.tea"}


MODULES_OF_TESTS = {
    "store.py": "LEFT = []\n",
    "test_other.py": "SEEN = []\n\n\ndef test_other():\n    pass\n",
    "test_named.py": "SEEN = []\n\n\ndef test_named():\n    pass\n",
    "test_within.py": "SEEN = []\n\n\ndef test_within():\n    pass\n",
    "test_own.py": """
import importlib

import test_named
from vcrt.environments.states.reachable_names import namespaces

HELD = []


class Own:
    def call(self, name):
        return importlib.import_module(name)


def test_own():
    import test_within

    importlib.import_module("sto" + "re")
    names = {name for name, _ in namespaces([Own])[0].values()}
    assert {"test_own", "test_named", "test_within", "store"} <= names, names
    assert not any(name.endswith("other") for name in names), names
""",
}


def test_other_modules_of_tests_are_not_looked_at_if_a_file_may_import_any(tmp_path):
    for name, text in MODULES_OF_TESTS.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout
