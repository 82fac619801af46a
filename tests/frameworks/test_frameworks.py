"""Tools of agent frameworks, each by the framework itself: one shop has one schedule in all of them."""

import contextlib
import json
import uuid
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

import vcrt
from vcrt.environments.tool_calls import CallRefused, InvalidCall, output_text
from vcrt.errors import MalformedInputError, VcrtError
from vcrt.testing import assert_declared

LEFT = {"tea": 3, "rice": 1}


class Line(BaseModel):
    item: str
    price: Decimal


@dataclass
class Shop:
    left: dict = field(default_factory=lambda: {"tea": 3, "rice": 1})
    due: dict = field(default_factory=dict)

    def look(self, item: str) -> dict:
        """Say how much is left."""
        return {"item": item, "left": self.left[item]}

    async def order(self, item: str, customer: str) -> dict:
        """Take one."""
        if self.left[item] < 1:
            raise ValueError(f"no {item} left")
        self.left[item] -= 1
        return {"item": item}

    def bill(self, line: Line, due: date) -> Line:
        """Note when a line is due."""
        assert isinstance(line, Line)
        assert isinstance(due, date)
        self.due[line.item] = due
        return line


def by_pydantic_ai(**of_bill):
    ai = pytest.importorskip("pydantic_ai")
    tools = ai.FunctionToolset()

    @tools.tool
    def look(ctx: ai.RunContext[Shop], item: str) -> dict:
        return ctx.deps.look(item)

    @tools.tool
    async def order(ctx: ai.RunContext[Shop], item: str, customer: str) -> dict:
        try:
            return await ctx.deps.order(item, customer)
        except ValueError as error:
            raise ai.ModelRetry(str(error)) from error

    @tools.tool(**of_bill)
    def bill(ctx: ai.RunContext[Shop], line: Line, due: date) -> Line:
        return ctx.deps.bill(line, due)

    return vcrt.tools_environment(tools, state=Shop)


def test_tools_that_are_not_declared_sequential_are_tested_beside_each_other(monkeypatch):
    """pydantic-ai runs them at once where one message calls several."""
    environment = by_pydantic_ai(sequential=True)
    monkeypatch.setitem(globals(), "ENVIRONMENT", environment)
    with pytest.raises(AssertionError) as raised:
        assert_declared(environment, [CALLS[0], CALLS[1], CALLS[4]])
    assert "look: sequential false is contradicted" in str(raised.value)
    assert "order: sequential false is contradicted" in str(raised.value)
    assert "bill" not in str(raised.value)
    monkeypatch.setitem(globals(), "ENVIRONMENT", environment := by_pydantic_ai())
    with pytest.raises(VcrtError, match="no declaration that replay could contradict"):
        assert_declared(environment, [CALLS[0], CALLS[1]])


def test_a_tool_that_is_given_beside_a_sequential_one_is_declared_to_run_beside_others():
    ai = pytest.importorskip("pydantic_ai")

    def look(item: str) -> str:
        return item

    def order(item: str) -> str:
        return item

    apart = ai.FunctionToolset([ai.Tool(order, sequential=True)])
    for given in (
        [ai.Tool(look), ai.Tool(order, sequential=True)],
        ai.Agent("test", tools=[look], toolsets=[apart]),
    ):
        declared = {tool.name: tool.sequential for tool in vcrt.tools_environment(given)().tools()}
        assert declared == {"look": False, "order": True}


def by_an_agent_of_pydantic_ai():
    ai = pytest.importorskip("pydantic_ai")
    agent = ai.Agent("test", deps_type=Shop)

    @agent.tool
    def look(ctx: ai.RunContext[Shop], item: str) -> dict:
        return ctx.deps.look(item)

    @agent.tool
    async def order(ctx: ai.RunContext[Shop], item: str, customer: str) -> dict:
        return await ctx.deps.order(item, customer)

    @agent.tool
    def bill(ctx: ai.RunContext[Shop], line: Line, due: date) -> Line:
        return ctx.deps.bill(line, due)

    return vcrt.tools_environment(agent, state=Shop)


def by_langgraph():
    tool = pytest.importorskip("langchain_core.tools").tool
    prebuilt = pytest.importorskip("langgraph.prebuilt")

    @tool
    def look(item: str, shop: Annotated[Any, prebuilt.InjectedState]):
        """Say how much is left."""
        return shop.look(item)

    @tool
    async def order(item: str, customer: str, runtime: prebuilt.ToolRuntime):
        """Take one."""
        return await runtime.context.order(item, customer)

    @tool
    def bill(line: Line, due: date, shop: Annotated[Any, prebuilt.InjectedState]):
        """Note when a line is due."""
        return shop.bill(line, due).model_dump(mode="json")

    return vcrt.tools_environment([look, order, bill], state=Shop)


def by_openai_agents():
    agents = pytest.importorskip("agents")

    @agents.function_tool
    def look(ctx: agents.RunContextWrapper[Any], item: str) -> str:
        return json.dumps(ctx.context.look(item))

    @agents.function_tool
    async def order(ctx: agents.RunContextWrapper[Any], item: str, customer: str) -> str:
        return json.dumps(await ctx.context.order(item, customer))

    @agents.function_tool
    def bill(ctx: agents.RunContextWrapper[Any], line: Line, due: date) -> str:
        return ctx.context.bill(line, due).model_dump_json()

    return vcrt.tools_environment([look, order, bill], state=Shop)


def served(server: type) -> Any:
    def tools(shop):
        made = server("shop")
        for method in (shop.look, shop.order, shop.bill):
            made.tool()(method)
        return made

    return vcrt.tools_environment(tools_of=tools, state=Shop)


def by_fastmcp():
    return served(pytest.importorskip("fastmcp").FastMCP)


def by_mcp():
    return served(pytest.importorskip("mcp.server.mcpserver").MCPServer)


MAKERS = [
    by_pydantic_ai,
    by_an_agent_of_pydantic_ai,
    by_langgraph,
    by_openai_agents,
    by_fastmcp,
    by_mcp,
]
CALLS = [
    ("look", {"item": "tea"}),
    ("order", {"item": "tea", "customer": "ann"}),
    ("look", {"item": "rice"}),
    ("order", {"item": "rice", "customer": "bob"}),
    ("bill", {"line": {"item": "tea", "price": "1.10"}, "due": "2026-02-01"}),
    ("bill", {"line": {"item": "rice", "price": "2"}, "due": "2026-02-02"}),
]


def written(path, environment) -> Any:
    """A log of the calls, with what the tools give."""
    made = environment()
    state = made.reset(None)
    lines = [
        {
            "name": name,
            "arguments": given,
            "output": json.loads(output_text(made.call(state, name, given))),
        }
        for name, given in CALLS
    ]
    file = path / "log.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
def test_one_shop_has_one_schedule(maker, tmp_path, monkeypatch):
    environment = maker()
    # Some of them hold what cannot be sent by value: a process finds them by their name in a module.
    monkeypatch.setitem(globals(), "ENVIRONMENT", environment)
    (found,) = vcrt.schedule(written(tmp_path, environment), environment=environment)
    assert found.problem is None, found.problem
    assert [(e.first, e.second) for e in found.schedule.edges] == [(0, 1), (2, 3)]


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
def test_arguments_are_validated_and_values_coerced_by_the_framework(maker):
    environment = maker()()
    state = environment.reset(None)
    output = environment.call(state, *CALLS[4])
    assert "1.10" in output_text(output)
    assert state.due == {"tea": date(2026, 2, 1)}
    for name, given in (
        ("look", {}),
        ("look", {"item": ["tea"]}),
        ("bill", {**CALLS[4][1], "due": "soon"}),
    ):
        with pytest.raises(CallRefused):
            environment.call(state, name, given)
    with pytest.raises(InvalidCall, match="did you mean 'look'"):
        environment.call(state, "lok", {})
    assert state.left == LEFT


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
def test_what_a_tool_raises_is_its_refusal(maker):
    environment = maker()()
    state = environment.reset(None)
    environment.call(state, "order", {"item": "rice", "customer": "bob"})
    with pytest.raises(CallRefused) as raised:
        environment.call(state, "order", {"item": "rice", "customer": "cleo"})
    if maker not in (by_openai_agents, by_mcp):  # these hide the reason from the model
        assert "no rice left" in str(raised.value)
    assert state.left == {"tea": 3, "rice": 0}


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
def test_versions_name_the_framework(maker):
    environment = maker()()
    assert environment.versions().libraries
    assert environment.versions() == maker()().versions()


def test_a_server_whose_state_nobody_gave_is_refused_by_its_place(tmp_path):
    server = pytest.importorskip("fastmcp").FastMCP("shop")
    shop = Shop()
    server.tool(shop.look)
    server.tool(shop.order)
    file = tmp_path / "log.jsonl"
    file.write_text("".join(json.dumps({"name": n, "arguments": a}) + "\n" for n, a in CALLS[:4]))
    environment = vcrt.tools_environment(server)
    with pytest.raises(MalformedInputError) as raised:
        vcrt.schedule(file, environment=environment)
    assert "vcrt.tools_environment" in raised.value.remedy  # it cannot be sent by value
    module = tmp_path / "hidden_shop.py"
    module.write_text(
        "import vcrt\n"
        "from fastmcp import FastMCP\n"
        "class Shop:\n"
        "    def __init__(self): self.left = {'tea': 3, 'rice': 1}\n"
        "    def look(self, item: str) -> dict: return {'item': item, 'left': self.left[item]}\n"
        "    def order(self, item: str, customer: str) -> dict: self.left[item] -= 1; return {}\n"
        "def made():\n"
        "    shop, server = Shop(), FastMCP('shop')\n"
        "    server.tool(shop.look), server.tool(shop.order)\n"
        "    return server\n"
        "SHOP = vcrt.tools_environment(made())\n"
    )
    with pytest.raises(MalformedInputError, match="state outside") as raised:
        vcrt.schedule(file, environment=f"{module}:SHOP")
    assert "the object of look changed during call order" in raised.value.found


def test_hints_of_a_server_are_declared():
    server = pytest.importorskip("fastmcp").FastMCP("shop")

    @server.tool(annotations={"readOnlyHint": True})
    def look(item: str) -> str:
        return item

    (tool,) = vcrt.tools_environment(server)().tools()
    assert tool.read_only is True
    assert tool.idempotent is None


def test_a_parameter_that_only_a_graph_gives_is_named():
    tool = pytest.importorskip("langchain_core.tools").tool
    prebuilt = pytest.importorskip("langgraph.prebuilt")

    @tool
    def look(item: str, store: Annotated[Any, prebuilt.InjectedStore]):
        """Say how much is left."""

    with pytest.raises(MalformedInputError, match="parameter 'store'"):
        vcrt.tools_environment([look])().tools()


def langgraph_tools():
    """Tools that take from a run of a graph what no replay has, or what differs from call to call."""
    tool = pytest.importorskip("langchain_core.tools").tool
    prebuilt = pytest.importorskip("langgraph.prebuilt")
    from langchain_core.runnables import RunnableConfig

    @tool
    def claim(item: str, runtime: prebuilt.ToolRuntime) -> str:
        """Note the call that came last."""
        runtime.state["claims"][item] = runtime.tool_call_id
        return "claimed"

    @tool(response_format="content_and_artifact")
    def book(who: str, runtime: prebuilt.ToolRuntime) -> tuple:
        """Give a seat, which the model does not see."""
        runtime.state["seats"].append(who)
        return "booked", {"seat": len(runtime.state["seats"])}

    @tool
    def remember(item: str, runtime: prebuilt.ToolRuntime) -> str:
        """Use the store."""
        runtime.store.put(("a",), item, {"v": 1})
        return "ok"

    @tool
    def perhaps(item: str, runtime: prebuilt.ToolRuntime) -> str:
        """Use the store, if there is one."""
        return "kept" if runtime.store else "not kept"

    @tool
    async def gladly(item: str, runtime: prebuilt.ToolRuntime) -> str:
        """Use the store, and go on without it whatever happens."""
        try:
            runtime.store.put(("a",), item, {"v": 1})
        except Exception:
            return "not kept"
        return "kept"

    @tool
    def assign(item: str, config: RunnableConfig) -> str:
        """Use the run's config."""
        return config["configurable"]["thread_id"]

    @tool
    def thread(item: str, runtime: prebuilt.ToolRuntime) -> str:
        """Use the same, of the runtime."""
        return runtime.config["configurable"]["thread_id"]

    @tool
    def count(item: str, runtime: prebuilt.ToolRuntime) -> int:
        """Use the graph's messages."""
        return len(runtime.state["messages"])

    return vcrt.tools_environment(
        [claim, book, remember, perhaps, gladly, assign, thread, count],
        state=lambda: {"claims": {}, "seats": []},
        name="desk",
    )


@pytest.mark.parametrize(
    ("calls", "place"),
    [
        ([("claim", {"item": "x"})] * 2, 'state["claims"]["x"]'),
        ([("book", {"who": "ann"}), ("book", {"who": "bob"})], 'output["artifact"]["seat"]'),
    ],
)
def test_what_differs_from_call_to_call_is_seen(tmp_path, capsys, calls, place):
    # Each call has an id of its own, as in a run; and an artifact is a part of the output.
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps({"name": n, "arguments": a}) + "\n" for n, a in calls))
    (found,) = vcrt.schedule(log, environment=langgraph_tools())
    assert found.schedule.waves == ((0,), (1,))
    assert place in {each.where for each in next(iter(found.differences.values()))} | {
        str(each.where).replace("output of", "output") for each in found.differences[0, 1]
    }


@pytest.mark.parametrize(
    ("artifact", "accepted"), [({"seat": 1}, True), (None, True), ({"seat": 7}, False)]
)
def test_an_artifact_of_a_log_is_compared_where_it_has_one(tmp_path, artifact, accepted):
    calls = [{"name": "book", "args": {"who": "ann"}, "id": "c0", "type": "tool_call"}]
    calls.append({**calls[0], "name": "claim", "args": {"item": "x"}, "id": "c1"})
    messages = [{"type": "ai", "data": {"type": "ai", "content": "", "tool_calls": calls}}]
    for call, content in zip(calls, ("booked", "claimed"), strict=True):
        data = {
            "type": "tool",
            "content": content,
            "name": call["name"],
            "tool_call_id": call["id"],
        }
        kept = artifact if call["name"] == "book" else None
        messages.append({"type": "tool", "data": {**data, "artifact": kept}})
    log = tmp_path / "log.json"
    log.write_text(json.dumps(messages))
    if accepted:
        (found,) = vcrt.schedule(log, environment=langgraph_tools())
        assert found.schedule.waves == ((0, 1),)
    else:
        with pytest.raises(VcrtError, match="another output"):
            vcrt.schedule(log, environment=langgraph_tools())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("remember", "the run's store"),
        ("perhaps", "the run's store"),
        ("gladly", "the run's store"),
        ("assign", "the run's config"),
        ("thread", "the run's config"),
        ("count", "asks the graph's state for something that the state here lacks"),
    ],
)
def test_what_no_replay_has_is_named_and_no_refusal(name, said):
    environment = langgraph_tools()()
    with pytest.raises(VcrtError, match=said):
        environment.call(environment.reset(None), name, {"item": "x"})


def test_an_id_in_the_text_that_a_tool_of_langchain_gives_is_found(tmp_path):
    tool = pytest.importorskip("langchain_core.tools").tool
    prebuilt = pytest.importorskip("langgraph.prebuilt")

    @tool
    def plant(bed: str, runtime: prebuilt.ToolRuntime) -> dict:
        """Draw a tag."""
        tag = f"pl-{uuid.uuid4().hex[:8]}"
        runtime.state[tag] = bed
        return {"tag": tag}

    @tool
    def dig(tag: str, runtime: prebuilt.ToolRuntime) -> str:
        """Dig up what has the tag."""
        return runtime.state.pop(tag)

    calls = [("plant", {"bed": "n"}, {"tag": "pl-11aa22bb"}), ("dig", {"tag": "pl-11aa22bb"}, "n")]
    log = tmp_path / "log.jsonl"
    lines = [{"name": n, "arguments": a, "output": o} for n, a, o in calls]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def environment(place):
        return vcrt.tools_environment([plant, dig], state=dict, name="beds", ids={"plant": place})

    (found,) = vcrt.schedule(log, environment=environment("tag"))
    assert found.schedule.order.pairs == ((0, 1),)
    with pytest.raises(VcrtError, match="the output has nothing at the place of an id"):
        vcrt.schedule(log, environment=environment("nosuch"))


def test_what_a_class_of_langchain_keeps_in_its_fields_is_named(tmp_path):
    module = tmp_path / "basket_of_tests.py"
    pytest.importorskip("langchain_core")
    module.write_text(
        "import vcrt\n"
        "from langchain_core.tools import BaseTool\n"
        "class Put(BaseTool):\n"
        "    name: str = 'put'\n"
        "    description: str = 'Put an item into the basket.'\n"
        "    basket: dict = {}\n"
        "    def _run(self, user: str, item: str) -> str:\n"
        "        self.basket[user] = item\n"
        "        return 'ok'\n"
        "BASKET = vcrt.tools_environment([Put()])\n"
    )
    log = tmp_path / "log.jsonl"
    calls = [{"name": "put", "arguments": {"user": "ann", "item": i}} for i in ("tea", "rice")]
    log.write_text("".join(json.dumps(call) + "\n" for call in calls))
    with pytest.raises(MalformedInputError, match="state outside") as raised:
        vcrt.schedule(log, environment=f"{module}:BASKET")
    assert "the object of _run changed during call put" in raised.value.found


@pytest.mark.parametrize("package", ["fastmcp.FastMCP", "mcp.server.MCPServer"])
def test_what_tools_keep_in_attributes_of_their_server_is_named(package):
    module, name = package.rsplit(".", 1)
    server = getattr(pytest.importorskip(module), name)("shop")
    server.basket = {"tea": 1}

    def put(item: str) -> str:
        server.basket[item] = 1
        return "ok"

    def leave(item: str) -> str:
        server.last = item
        return "ok"

    for each in (put, leave):
        server.tool()(each)
    environment = vcrt.tools_environment(server)()
    state = environment.reset(None)
    for tool, attribute in (("put", "basket"), ("leave", "last")):
        with pytest.raises(MalformedInputError, match="state outside") as raised:
            environment.call(state, tool, {"item": "rice"})
        assert raised.value.found == f"attribute {attribute} of the server changed"
    assert environment.call(state, "put", {"item": "tea"})


def test_what_a_wrapper_of_pydantic_ai_keeps_in_its_fields_is_named(tmp_path):
    module = tmp_path / "counted_of_tests.py"
    pytest.importorskip("pydantic_ai")
    module.write_text(
        "import vcrt\n"
        "from dataclasses import dataclass\n"
        "from pydantic_ai import FunctionToolset\n"
        "from pydantic_ai.toolsets import WrapperToolset\n"
        "@dataclass\n"
        "class Counted(WrapperToolset):\n"
        "    number: int = 0\n"
        "    async def call_tool(self, name, arguments, context, tool):\n"
        "        self.number += 1\n"
        "        return await super().call_tool(name, arguments, context, tool)\n"
        "def put(user: str, item: str) -> str:\n"
        "    return 'ok'\n"
        "BASKET = vcrt.tools_environment(Counted(FunctionToolset([put])).prefixed('of'))\n"
    )
    log = tmp_path / "log.jsonl"
    calls = [{"name": "of_put", "arguments": {"user": "ann", "item": i}} for i in ("tea", "rice")]
    log.write_text("".join(json.dumps(call) + "\n" for call in calls))
    with pytest.raises(MalformedInputError, match="state outside") as raised:
        vcrt.schedule(log, environment=f"{module}:BASKET")
    assert "the object of call_tool changed during call of_put" in raised.value.found


@contextlib.asynccontextmanager
async def lasting(server):
    yield {"basket": {}}


@pytest.mark.parametrize("package", ["fastmcp.FastMCP", "mcp.server.MCPServer"])
def test_a_lifespan_that_would_begin_anew_for_each_call_is_refused(package):
    module, name = package.rsplit(".", 1)
    made = getattr(pytest.importorskip(module), name)("shop", lifespan=lasting)
    environment = vcrt.tools_environment(tools_of=lambda state: made, state=Shop)()
    with pytest.raises(MalformedInputError, match="a server in memory with a lifespan"):
        environment.tools()


def test_what_the_model_reads_beside_a_result_is_refused():
    pydantic_ai = pytest.importorskip("pydantic_ai")

    def look(item: str):
        told = f"there is {item}" if item != "nothing" else None
        return pydantic_ai.ToolReturn(return_value=item, content=told, metadata={"at": 1})

    environment = vcrt.tools_environment(pydantic_ai.FunctionToolset([look]))()
    state = environment.reset(None)
    assert environment.call(state, "look", {"item": "nothing"}) == "nothing"
    with pytest.raises(MalformedInputError, match="more than its result"):
        environment.call(state, "look", {"item": "tea"})
