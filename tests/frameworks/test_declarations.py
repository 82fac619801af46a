"""Declarations of what may run at once: each framework runs a message of several calls before and after its own."""

import asyncio
import json
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

import vcrt
from vcrt.words.declarations import declaration

#: Two orders of one item, sent at once, and a look at what is left.
MESSAGE = ["order", "order", "look", "look"]
#: What is left at the end, and what each call gave, one after the other; and what is left where one order was lost.
IN_ORDER, LOST = (1, [3, 2, 1, 1]), 2


class Shop:
    def __init__(self, left):
        self.left, self.looking, self.most = left, 0, 0

    async def look(self) -> int:
        self.looking += 1
        self.most = max(self.most, self.looking)
        await asyncio.sleep(0)
        self.looking -= 1
        return self.left

    async def order(self) -> int:
        left = self.left
        await asyncio.sleep(0)
        self.left = left - 1
        return left


class Kept(vcrt.CallEnvironment):
    name = "shop"

    def reset(self, initial):
        return {"left": initial}

    def call(self, state, name, arguments):
        shop = Shop(state["left"])
        given = asyncio.run(getattr(shop, name)(**arguments))
        state["left"] = shop.left
        return given


@pytest.fixture(scope="module")
def annotations(tmp_path_factory):
    log = tmp_path_factory.mktemp("declare") / "log.jsonl"
    calls = [{"name": name, "arguments": {}} for name in ("look", "order", "look")]
    traces = [{"id": str(left), "initial": left, "calls": calls} for left in range(5, 155, 5)]
    log.write_text("\n".join(map(json.dumps, traces)))
    return vcrt.annotate([log], environment=Kept, jobs=1)


def declared(annotations, target):
    found = {}
    exec(declaration(annotations, target), found)
    return found


def run_by_pydantic_ai(make):
    """Run the message on an agent that ``make`` makes of a model and a toolset."""
    ai = pytest.importorskip("pydantic_ai")
    messages = pytest.importorskip("pydantic_ai.messages")
    function = pytest.importorskip("pydantic_ai.models.function")
    shop = Shop(3)

    def model(history, info):
        if len(history) > 1:
            return messages.ModelResponse(parts=[messages.TextPart("done")])
        return messages.ModelResponse(parts=[messages.ToolCallPart(name, {}) for name in MESSAGE])

    tools = ai.FunctionToolset([shop.look, shop.order])
    ran = asyncio.run(make(function.FunctionModel(model), tools).run("go")).all_messages()
    parts = [part for one in ran for part in one.parts]
    outputs = [part.content for part in parts if isinstance(part, messages.ToolReturnPart)]
    return (shop.left, outputs), shop.most


def test_pydantic_ai_runs_a_message_at_once_and_in_order_as_declared(annotations):
    ai = pytest.importorskip("pydantic_ai")
    capabilities = pytest.importorskip("pydantic_ai.capabilities")
    of = declared(annotations, "pydantic-ai")
    assert of["SEQUENTIAL"] == {"look": False, "order": True}
    before, _ = run_by_pydantic_ai(lambda model, tools: ai.Agent(model, toolsets=[tools]))
    assert before[0] == LOST
    prepare = [capabilities.PrepareTools(of["declared"])]
    for make in (
        lambda model, tools: ai.Agent(model, toolsets=[tools], capabilities=prepare),
        lambda model, tools: ai.Agent(model, toolsets=[tools.prepared(of["declared"])]),
    ):
        assert run_by_pydantic_ai(make) == (IN_ORDER, 2)


def test_pydantic_ai_keeps_what_an_author_declared_and_what_no_log_has(annotations):
    tools = pytest.importorskip("pydantic_ai.tools")
    of = declared(annotations, "pydantic-ai")
    given = [
        tools.ToolDefinition(name="look", sequential=True),
        tools.ToolDefinition(name="look"),
        tools.ToolDefinition(name="unknown"),
    ]
    assert [one.sequential for one in of["declared"](None, given)] == [True, False, True]


def tools_of_langchain(shop):
    """The tools of a shop, to be awaited or not."""
    tool = pytest.importorskip("langchain_core.tools").StructuredTool

    def made(function):
        def blocking():
            return asyncio.run(function())

        return tool.from_function(
            blocking, coroutine=function, name=function.__name__, description="A tool."
        )

    return [made(shop.look), made(shop.order)]


def run_by_langgraph(make, *, awaited):
    """Run the message on a graph whose node ``make`` makes of the tools."""
    graphs = pytest.importorskip("langgraph.graph")
    core = pytest.importorskip("langchain_core.messages")
    shop = Shop(3)
    graph = graphs.StateGraph(graphs.MessagesState)
    graph.add_node("tools", make(tools_of_langchain(shop)))
    graph.add_edge(graphs.START, "tools")
    graph.add_edge("tools", graphs.END)
    calls = [{"name": name, "args": {}, "id": str(n)} for n, name in enumerate(MESSAGE)]
    given = {"messages": [core.HumanMessage("go"), core.AIMessage("", tool_calls=calls)]}
    compiled = graph.compile()
    ran = asyncio.run(compiled.ainvoke(given)) if awaited else compiled.invoke(given)
    outputs = ran["messages"][2:]
    assert [one.tool_call_id for one in outputs] == ["0", "1", "2", "3"]
    return (shop.left, [int(one.content) for one in outputs]), shop.most


def test_langgraph_runs_a_message_at_once_and_in_order_as_declared(annotations):
    prebuilt = pytest.importorskip("langgraph.prebuilt")
    of = declared(annotations, "langgraph")
    assert of["MAY_OVERLAP"] == {"look"}
    before, _ = run_by_langgraph(prebuilt.ToolNode, awaited=True)
    assert before[0] == LOST
    assert run_by_langgraph(of["in_waves"], awaited=True) == (IN_ORDER, 2)
    after, _ = run_by_langgraph(of["in_waves"], awaited=False)
    assert after == IN_ORDER


@pytest.mark.parametrize("awaited", [True, False])
def test_an_agent_of_langchain_runs_one_call_at_a_time(annotations, awaited):
    agents = pytest.importorskip("langchain.agents")
    fake = pytest.importorskip("langchain_core.language_models.fake_chat_models")
    core = pytest.importorskip("langchain_core.messages")
    of = declared(annotations, "langgraph")
    calls = [{"name": name, "args": {}, "id": str(n)} for n, name in enumerate(MESSAGE)]

    class Model(fake.FakeMessagesListChatModel):
        def bind_tools(self, tools, **options):
            return self

    def run(config):
        shop = Shop(3)
        tools = tools_of_langchain(shop)
        model = Model(responses=[core.AIMessage("", tool_calls=calls), core.AIMessage("done")])
        agent = agents.create_agent(model, tools)
        given = {"messages": [core.HumanMessage("go")]}
        made_config = config(tools)
        if awaited:
            ran = asyncio.run(agent.ainvoke(given, config=made_config))
        else:
            ran = agent.invoke(given, config=made_config)
        outputs = [one for one in ran["messages"] if isinstance(one, core.ToolMessage)]
        assert [one.tool_call_id for one in outputs] == ["0", "1", "2", "3"]
        return shop.left, [int(one.content) for one in outputs]

    if awaited:
        assert run(lambda tools: {})[0] == LOST
    assert run(of["config_for"]) == IN_ORDER
    free = [SimpleNamespace(name="look")]
    assert of["config_for"](free) == {}


def test_what_a_command_of_langgraph_gives_is_passed_on(annotations):
    types = pytest.importorskip("langgraph.types")
    core = pytest.importorskip("langchain_core.messages")
    tool = pytest.importorskip("langchain_core.tools").tool
    graphs = pytest.importorskip("langgraph.graph")
    of = declared(annotations, "langgraph")

    @tool
    def order():
        """Go on."""
        return types.Command(update={"messages": [core.ToolMessage("moved", tool_call_id="0")]})

    @tool
    def look():
        """Say a number."""
        return 7

    graph = graphs.StateGraph(graphs.MessagesState)
    graph.add_node("tools", of["in_waves"]([order, look]))
    graph.add_edge(graphs.START, "tools")
    calls = [{"name": name, "args": {}, "id": str(n)} for n, name in enumerate(["order", "look"])]
    ran = graph.compile().invoke({"messages": [core.AIMessage("", tool_calls=calls)]})
    assert [one.content for one in ran["messages"][1:]] == ["moved", "7"]


def test_a_server_lists_the_hints_that_the_evidence_bears(annotations):
    fastmcp = pytest.importorskip("fastmcp")
    mcp = pytest.importorskip("mcp.types")
    of = declared(annotations, "mcp")
    server, shop = fastmcp.FastMCP("shop"), Shop(3)
    for function in (shop.look, shop.order):
        server.tool(function, annotations=of["ANNOTATIONS"][function.__name__])

    async def listed():
        async with fastmcp.Client(server) as client:
            return await client.list_tools()

    hints = {one.name: one.annotations for one in asyncio.run(listed())}
    assert hints["look"] == mcp.ToolAnnotations(readOnlyHint=True, destructiveHint=False)
    assert hints["order"] == mcp.ToolAnnotations(readOnlyHint=False)
    assert declared(annotations, "codex")["ANNOTATIONS"] == of["ANNOTATIONS"]


def run_by_haystack(limited):
    agents = pytest.importorskip("haystack.components.agents")
    data = pytest.importorskip("haystack.dataclasses")
    tools = pytest.importorskip("haystack.tools")
    core = pytest.importorskip("haystack")
    shop = Shop(3)

    @core.component
    class Model:
        @core.component.output_types(replies=list)
        def run(self, messages, tools=None, **options):
            calls = [data.ToolCall(tool_name=name, arguments={}) for name in MESSAGE]
            done = any(one.tool_call_results for one in messages)
            return {
                "replies": [
                    data.ChatMessage.from_assistant(
                        "done" if done else None, tool_calls=[] if done else calls
                    )
                ]
            }

        @core.component.output_types(replies=list)
        async def run_async(self, messages, tools=None, **options):
            return self.run(messages)

    made = [
        tools.Tool(
            name=one.__name__,
            description="A tool.",
            parameters={"type": "object", "properties": {}},
            async_function=one,
        )
        for one in (shop.look, shop.order)
    ]
    agent = agents.Agent(chat_generator=Model(), tools=made, **limited(made))
    ran = asyncio.run(agent.run_async(messages=[data.ChatMessage.from_user("go")]))
    outputs = [int(r.result) for one in ran["messages"] for r in one.tool_call_results]
    return (shop.left, outputs), shop.most


def test_haystack_runs_a_message_at_once_and_in_order_as_declared(annotations, monkeypatch):
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
    pytest.importorskip("haystack")
    limit = declared(annotations, "haystack")["limit"]
    before, _ = run_by_haystack(lambda tools: {})
    assert before[0] == LOST
    after, _ = run_by_haystack(lambda tools: {"tool_concurrency_limit": limit(tools)})
    assert after == IN_ORDER
    look = type("Tool", (), {"name": "look"})
    assert limit([look]) > 1


def run_by_openhands(annotations, *, declares, most, names=MESSAGE):
    """Run the message by the SDK's executor, on tools that wait with their threads."""
    sdk = pytest.importorskip("openhands.sdk")
    executors = pytest.importorskip("openhands.sdk.agent.parallel_executor")
    events = pytest.importorskip("openhands.sdk.event")
    llm = pytest.importorskip("openhands.sdk.llm")
    of = declared(annotations, "openhands")
    shop, outputs = Shop(3), {}

    class Nothing(sdk.Action):
        pass

    def made(kind):
        bases = (of["Declared"],) if declares else ()

        class Made(*bases, sdk.ToolDefinition):
            name = kind

            @classmethod
            def create(cls, *args, **params):
                return [cls(description="A tool.", action_type=Nothing)]

        return Made.create()[0]

    def run(event):
        function = {"look": shop.look, "order": shop.order}[event.tool_name]
        step = function()
        step.send(None)
        time.sleep(0.05)
        try:
            step.send(None)
        except StopIteration as done:
            outputs[event.tool_call_id] = done.value
        return []

    tools = {name: made(name) for name in ("look", "order") if name in names}
    sent = [
        events.ActionEvent(
            thought=[],
            action=Nothing(),
            tool_name=name,
            tool_call_id=str(number),
            tool_call=llm.MessageToolCall(
                id=str(number), name=name, arguments="{}", origin="completion"
            ),
            llm_response_id="one",
        )
        for number, name in enumerate(names)
    ]
    workers = of["limit"](tools.values()) if most is None else most
    executors.ParallelToolExecutor(max_workers=workers).execute_batch(sent, run, tools=tools)
    return (shop.left, [outputs[str(number)] for number in range(len(names))]), shop.most


def test_openhands_runs_a_message_at_once_and_in_order_as_declared(annotations):
    """By default a lock of its own keeps each tool's calls apart, but not a look from an order."""
    pytest.importorskip("openhands.sdk")
    before, _ = run_by_openhands(annotations, declares=False, most=4)
    assert before != IN_ORDER
    after, most = run_by_openhands(annotations, declares=True, most=None)
    assert (after, most) == (IN_ORDER, 1)
    locked, most = run_by_openhands(annotations, declares=True, most=4)
    assert (locked[0], most) == (1, 1)
    looks = replace(annotations, tools=annotations.tools[:1])
    assert looks.tools[0].name == "look"
    after, most = run_by_openhands(looks, declares=True, most=None, names=["look", "look"])
    assert (after, most) == ((3, [3, 3]), 2)
