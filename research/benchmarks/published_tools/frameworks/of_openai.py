"""Tools of the examples in the source of `openai-agents`, for `--environment of_openai.py:AIRLINE`.

Run as a program, the framework's runner runs them, with a model that is a script. The environment variable SOURCE says
where the source lies.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, Usage, set_tracing_disabled
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)
from sent import Call, main

sys.path.insert(0, os.environ["SOURCE"])
from examples.customer_service.main import AirlineAgentContext, faq_lookup_tool, update_seat
from examples.sandbox.healthcare_support import tools as healthcare
from examples.sandbox.healthcare_support.data import HealthcareSupportDataStore

AIRLINE_TOOLS = [faq_lookup_tool, update_seat]
HEALTHCARE_TOOLS = [
    healthcare.lookup_patient,
    healthcare.lookup_insurance_eligibility,
    healthcare.lookup_referral_status,
    healthcare.route_to_human_queue,
]


def airline() -> AirlineAgentContext:
    """Return the context as the handoff to the seat agent leaves it, with a fixed flight."""
    return AirlineAgentContext(flight_number="FLT-100")


def support() -> healthcare.HealthcareSupportContext:
    """Return the context of the example's first case, approved."""
    store = HealthcareSupportDataStore.load()
    first = store.get_scenario(store.list_scenario_ids()[0])
    return healthcare.HealthcareSupportContext(store, first, human_handoff_approved=True)


class Scripted(Model):
    """A model that sends the given messages of calls."""

    def __init__(self, messages: Sequence[Sequence[Call]]) -> None:
        self.messages = list(messages)

    async def get_response(self, *_: Any, **__: Any) -> ModelResponse:
        """Return the next message; at the end, a text."""
        text = ResponseOutputText(text="done", type="output_text", annotations=[])
        last = ResponseOutputMessage(
            id="m", role="assistant", type="message", status="completed", content=[text]
        )
        left = len(self.messages)
        calls = [
            ResponseFunctionToolCall(
                call_id=f"{left}.{place}",
                name=name,
                arguments=json.dumps(given),
                type="function_call",
            )
            for place, (name, given) in enumerate(self.messages.pop(0) if left else ())
        ]
        return ModelResponse(output=calls or [last], usage=Usage(), response_id="r")

    def stream_response(self, *_: Any, **__: Any) -> Any:
        """Refuse: nothing here streams."""
        raise NotImplementedError


def answers(tools: list[Any], context: object, messages: Sequence[Sequence[Call]]) -> list[str]:
    """Return the outputs of the last two calls."""
    agent = Agent[Any](name="agent", model=Scripted(messages), tools=tools)
    ran = asyncio.run(Runner.run(agent, "go", context=context))
    said = [each for each in ran.to_input_list() if each.get("type") == "function_call_output"]
    return [str(each["output"]) for each in said[-2:]]


def ran_airline(messages: Sequence[Sequence[Call]]) -> tuple[list[str], str]:
    """Run messages on a new context."""
    context = airline()
    return answers(AIRLINE_TOOLS, context, messages), context.model_dump_json()


def ran_healthcare(messages: Sequence[Sequence[Call]]) -> tuple[list[str], str]:
    """Run messages on a new context."""
    context = support()
    outputs = answers(HEALTHCARE_TOOLS, context, messages)
    return outputs, json.dumps([each["payload"]["queue"] for each in context.human_handoffs])


if __name__ == "__main__":
    set_tracing_disabled(True)
    main({"AIRLINE": ran_airline, "HEALTHCARE": ran_healthcare})
else:
    import vcrt

    AIRLINE = vcrt.tools_environment(AIRLINE_TOOLS, state=airline, name="airline")
    HEALTHCARE = vcrt.tools_environment(HEALTHCARE_TOOLS, state=support, name="healthcare")
