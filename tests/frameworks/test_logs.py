"""Logs that the frameworks themselves write of one run: each is read as the calls that were made, and replays."""

import asyncio
import json
import warnings

import pytest

import vcrt
from vcrt.calls.call_logs import read_traces
from vcrt.calls.log_lifting import run_trace

#: What the model asks for, message by message. In the third, one call is refused, and two are such that no tool takes.
SCRIPT = [
    [("c0", "look", {"item": "tea"}), ("c1", "order", {"item": "tea", "customer": "ann"})],
    [("c2", "look", {"item": "tea"})],
    [
        ("c3", "order", {"item": "rice", "customer": "bob"}),
        ("c4", "order", {"itm": "tea"}),
        ("c5", "fly", {}),
    ],
]


class Tools:
    def __init__(self):
        self.left = {"tea": 3, "rice": 0}

    def look(self, item: str) -> dict:
        """Say how much is left."""
        return {"item": item, "left": self.left[item]}

    def order(self, item: str, customer: str) -> dict:
        """Take one."""
        if self.left[item] < 1:
            raise ValueError(f"no {item} left")
        self.left[item] -= 1
        return {"ordered": item, "by": customer}


class Shop(vcrt.CallEnvironment):
    name = "shop"

    def reset(self, initial):
        return Tools()

    def call(self, state, name, arguments):
        try:
            return vcrt.call_method(state, name, arguments)
        except ValueError as error:
            raise vcrt.CallRefused(str(error)) from error


def pydantic_ai_messages():
    from pydantic_ai import Agent, ModelRetry
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    def model(messages, info):
        number = sum(isinstance(message, ModelResponse) for message in messages)
        calls = SCRIPT[number] if number < len(SCRIPT) else ()
        parts = [ToolCallPart(name, args, tool_call_id=own) for own, name, args in calls]
        return ModelResponse(parts=parts or [TextPart("done")])

    tools = Tools()

    def order(item: str, customer: str) -> dict:
        """Take one."""
        try:
            return tools.order(item, customer)
        except ValueError as error:
            raise ModelRetry(str(error)) from error

    return Agent(FunctionModel(model), tools=[tools.look, order], retries=3).run_sync("hi")


def pydantic_ai():
    return json.loads(pydantic_ai_messages().all_messages_json())


def otel_of_pydantic_ai():
    from pydantic_ai.models.instrumented import InstrumentationSettings

    return InstrumentationSettings().messages_to_otel_messages(
        pydantic_ai_messages().all_messages()
    )


def langgraph_state():
    from langchain_core.messages import AIMessage, HumanMessage
    from langchain_core.tools import tool
    from langgraph.graph import END, START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode

    def model(state):
        number = sum(isinstance(message, AIMessage) for message in state["messages"])
        calls = [
            {"name": name, "args": args, "id": own, "type": "tool_call"}
            for own, name, args in (SCRIPT[number] if number < len(SCRIPT) else ())
        ]
        return {"messages": [AIMessage("" if calls else "done", tool_calls=calls)]}

    tools = Tools()
    node = ToolNode([tool(tools.look), tool(tools.order)], handle_tool_errors=True)
    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tools", node)
    graph.add_edge(START, "model")
    graph.add_conditional_edges(
        "model", lambda state: "tools" if state["messages"][-1].tool_calls else END
    )
    graph.add_edge("tools", "model")
    limits = {"max_concurrency": 1}  # in the order of the calls, whichever thread is faster
    return graph.compile().invoke({"messages": [HumanMessage("hi")]}, limits)


def langgraph_dumpd():
    from langchain_core.load import dumpd

    return dumpd(langgraph_state())


def langchain_dicts():
    from langchain_core.messages import messages_to_dict

    return messages_to_dict(langgraph_state()["messages"])


def langgraph_dump():
    return {"messages": [message.model_dump() for message in langgraph_state()["messages"]]}


def openai_agents():
    from agents import Agent, Runner, function_tool, set_tracing_disabled
    from agents.items import ModelResponse
    from agents.models.interface import Model
    from agents.usage import Usage
    from openai.types.responses import (
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
        ResponseReasoningItem,
    )

    set_tracing_disabled(True)
    tools = Tools()

    class Scripted(Model):
        number = 0

        async def get_response(self, *args, **kwargs):
            text = ResponseOutputText(text="done", type="output_text", annotations=[])
            last = ResponseOutputMessage(
                id="m", role="assistant", type="message", status="completed", content=[text]
            )
            calls = [
                ResponseFunctionToolCall(
                    id=f"fc_{own}",
                    call_id=own,
                    name=name,
                    arguments=json.dumps(args),
                    type="function_call",
                    status="completed",
                )
                for own, name, args in (SCRIPT[self.number] if self.number < len(SCRIPT) else ())
                if name != "fly"  # it ends the run
            ]
            self.number += 1
            thought = ResponseReasoningItem(id=f"rs_{self.number}", summary=[], type="reasoning")
            output = [thought, *calls] if calls else [last]
            return ModelResponse(output=output, usage=Usage(), response_id="r")

        def stream_response(self, *args, **kwargs):
            raise NotImplementedError

    given = [function_tool(tools.look), function_tool(tools.order)]
    result = asyncio.run(Runner.run(Agent(name="a", model=Scripted(), tools=given), "hi"))
    return result.to_input_list()


#: What writes each form, and the package that it needs.
FORMS = {
    pydantic_ai: "pydantic_ai",
    otel_of_pydantic_ai: "pydantic_ai",
    langgraph_dumpd: "langgraph",
    langchain_dicts: "langchain_core",
    langgraph_dump: "langgraph",
    openai_agents: "agents",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("indent", [None, 2])
def test_a_log_that_a_framework_wrote_is_read_as_its_calls(tmp_path, form, indent):
    pytest.importorskip(FORMS[form])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        log = form()
    # OpenTelemetry's messages do not say that a call failed, so that one which no tool takes must be taken out.
    unmarked = (
        {"c4", "c5"} if form is otel_of_pydantic_ai else {"c5"} if form is openai_agents else set()
    )
    if form is otel_of_pydantic_ai:
        for message in log:
            message["parts"] = [part for part in message["parts"] if part.get("id") not in unmarked]
    path = tmp_path / "log.json"
    path.write_text(json.dumps(log, indent=indent))
    (trace,) = read_traces(path)
    not_run = {"c4", "c5"} if form is pydantic_ai else set()
    made = [call for batch in SCRIPT for call in batch if call[0] not in {*unmarked, *not_run}]
    assert [(call.identifier, call.name, call.arguments) for call in trace.calls] == made
    assert len(trace.invalid) == len(not_run)
    assert all(call.logged is not None for call in trace.calls)
    assert trace.sent_together(0, 1)
    assert not trace.sent_together(1, 2)
    lifted = run_trace(Shop(), trace, 0, source="log")
    assert lifted.departure is None
