"""A toolset of pydantic-ai's examples, for `--environment of_pydantic_ai.py:ANALYST`.

Run as a program, an agent of pydantic-ai runs them, with a model that is a script.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pandas
from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import FunctionModel
from sent import Call, main

# The example names a hosted model when it is imported; no call reaches it.
os.environ.setdefault("OPENAI_API_KEY", "unused")
from pydantic_ai_examples.data_analyst import AnalystAgentDeps, analyst_agent

TABLE = {"name": ["tea", "rice"], "n": [2, 1]}


class Tables(AnalystAgentDeps):
    """The example's deps, with tables kept as plain columns, of which every copy is the same."""

    def store(self, value: Any) -> str:
        """Keep a table and return its reference."""
        return super().store(value.to_dict("list"))

    def get(self, ref: str) -> Any:
        """Return the table of a reference."""
        return pandas.DataFrame(super().get(ref))


def analyst() -> Tables:
    """Return the analyst's deps with one table, as `load_dataset` leaves them."""
    deps = Tables()
    deps.store(pandas.DataFrame(TABLE))
    return deps


def answers(agent: Agent[Any, Any], deps: object, messages: Sequence[Sequence[Call]]) -> list[str]:
    """Return the outputs of the last two calls."""

    def script(said: list[Any], _: object) -> ModelResponse:
        number = sum(isinstance(each, ModelResponse) for each in said)
        calls = messages[number] if number < len(messages) else ()
        asked = [
            ToolCallPart(name, dict(given), f"{number}.{place}")
            for place, (name, given) in enumerate(calls)
        ]
        return ModelResponse(parts=asked or [TextPart("done")])

    try:
        ran = agent.run_sync("go", deps=deps, model=FunctionModel(script), output_type=str)
    except Exception as error:  # what a tool raises, and the framework does not hand to the model
        return [f"the run ends: {type(error).__name__}: {error}"] * 2
    found = {
        part.tool_call_id: str(part.content)
        for message in ran.all_messages()
        for part in message.parts
        if isinstance(part, ToolReturnPart | RetryPromptPart)
    }
    return [found[own] for own in sorted(found)][-2:]


def ran_analyst(messages: Sequence[Sequence[Call]]) -> tuple[list[str], str]:
    """Run messages by the example's own agent."""
    deps = AnalystAgentDeps()
    deps.store(pandas.DataFrame(TABLE))
    outputs = answers(analyst_agent, deps, messages)
    return outputs, str({ref: deps.output[ref].to_dict("list") for ref in sorted(deps.output)})


if __name__ == "__main__":
    main({"ANALYST": ran_analyst})
else:
    import vcrt

    ANALYST = vcrt.tools_environment(analyst_agent, state=analyst, name="analyst")
