"""Logs as frameworks write them give the calls, outputs and batches that were made; or they are refused by name."""

from __future__ import annotations

import json
import zipfile
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vcrt
from shop import Shop
from vcrt.calls.call_logs import read_traces, same_output, same_refusal, shows_failure
from vcrt.calls.log_lifting import run_trace
from vcrt.errors import MalformedInputError

# Each form writes batches: lists of calls that were sent together, each with a name, arguments and an output.


def numbered(batches):
    count = 0
    for batch in batches:
        yield [(f"c{count + k}", *call) for k, call in enumerate(batch)]
        count += len(batch)


def pydantic_ai(batches):
    """As `all_messages_json()` of pydantic-ai 2.68."""
    user = {"content": "hi", "timestamp": "2026-11-29T04:46:31Z", "part_kind": "user-prompt"}
    messages = [{"parts": [user], "instructions": None, "kind": "request", "state": "complete"}]
    none = {"tool_kind": None, "id": None, "provider_name": None, "provider_details": None}
    for batch in numbered(batches):
        calls, results = [], []
        for identifier, name, arguments, output in batch:
            same = {"tool_name": name, "tool_call_id": identifier}
            calls.append({**same, "args": arguments, **none, "part_kind": "tool-call"})
            ended = {"metadata": None, "outcome": "success", "retry": None, "tool_kind": None}
            returned = {"content": output, **same, **ended, "part_kind": "tool-return"}
            results.append({**returned, "content_file_digests": []})
        usage = {"input_tokens": 52, "details": {}, "cost": None}
        messages.append({"parts": calls, "usage": usage, "model_name": "m", "kind": "response"})
        messages.append({"parts": results, "instructions": None, "kind": "request"})
    return messages


def otel_of_pydantic_ai(batches):
    """As pydantic-ai 2.68 writes the attribute `pydantic_ai.all_messages`."""
    messages = [{"role": "user", "parts": [{"type": "text", "content": "hi"}]}]
    for batch in numbered(batches):
        calls = [
            {"type": "tool_call", "id": identifier, "name": name, "arguments": arguments}
            for identifier, name, arguments, _ in batch
        ]
        results = [
            {"type": "tool_call_response", "id": identifier, "name": name, "result": output}
            for identifier, name, _, output in batch
        ]
        messages.append({"role": "assistant", "parts": calls})
        messages.append({"role": "user", "parts": results})
    return messages


def otel(batches):
    """As the JSON schema of `gen_ai.input.messages` in OpenTelemetry's semantic conventions says."""
    messages = [{"role": "user", "parts": [{"type": "text", "content": "hi"}]}]
    for batch in numbered(batches):
        thought = {"type": "reasoning", "content": "well"}
        calls = [
            {"type": "tool_call", "id": identifier, "name": name, "arguments": arguments}
            for identifier, name, arguments, _ in batch
        ]
        messages.append(
            {"role": "assistant", "parts": [thought, *calls], "finish_reason": "tool_call"}
        )
        messages += [
            {
                "role": "tool",
                "parts": [{"type": "tool_call_response", "id": identifier, "response": output}],
            }
            for identifier, _, _, output in batch
        ]
    return messages


def constructor(name, /, **kwargs):
    return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", name]} | {
        "kwargs": kwargs
    }


def langchain_dumpd(batches):
    """As `dumpd(state)` of langchain-core 1.8 writes the state of a LangGraph."""
    messages = [constructor("HumanMessage", content="hi", type="human", id="m0")]
    for batch in numbered(batches):
        calls = [
            {"name": name, "args": arguments, "id": identifier, "type": "tool_call"}
            for identifier, name, arguments, _ in batch
        ]
        fields = {"content": "", "type": "ai", "id": "m", "invalid_tool_calls": []}
        messages.append(constructor("AIMessage", **fields, tool_calls=calls))
        for identifier, name, _, output in batch:
            fields = {"content": json.dumps(output), "type": "tool", "name": name, "id": "m"}
            messages.append(
                constructor("ToolMessage", **fields, tool_call_id=identifier, status="success")
            )
    return {"messages": messages}


def langchain_dicts(batches):
    """As `messages_to_dict` of langchain-core 1.8."""
    messages = langchain_dumpd(batches)["messages"]
    return [{"type": each["kwargs"]["type"], "data": each["kwargs"]} for each in messages]


def langgraph_state(batches):
    """As the messages of a LangGraph's state by `model_dump`."""
    return {"messages": [each["kwargs"] for each in langchain_dumpd(batches)["messages"]]}


def gemini(batches):
    """As a request of Gemini's REST API, without identifiers."""
    contents = [{"role": "user", "parts": [{"text": "hi"}]}]
    for batch in batches:
        calls = [
            {"functionCall": {"name": name, "args": arguments}, "thoughtSignature": "Eg=="}
            for name, arguments, _ in batch
        ]
        results = [
            {"functionResponse": {"name": name, "response": {"result": output}}}
            for name, _, output in batch
        ]
        contents.append({"role": "model", "parts": [{"text": "well"}, *calls]})
        contents.append({"role": "user", "parts": results})
    return {"contents": contents, "tools": [{"functionDeclarations": []}]}


def gemini_of_python(batches):
    """As `Content.model_dump(mode="json")` of google-genai 3.6, with identifiers."""
    none = {"text": None, "thought": None, "thought_signature": None, "executable_code": None}
    none |= {"code_execution_result": None, "function_response": None, "function_call": None}
    none |= {"tool_call": None, "tool_response": None}
    more = {"partial_args": None, "will_continue": None}
    contents = [{"role": "user", "parts": [{**none, "text": "hi"}]}]
    for batch in numbered(batches):
        calls = [
            {**none, "function_call": {"id": identifier, "name": name, "args": arguments, **more}}
            for identifier, name, arguments, _ in batch
        ]
        more_of_results = {"will_continue": None, "scheduling": None, "parts": None}
        results = [
            {"id": identifier, "name": name, "response": {"output": output}, **more_of_results}
            for identifier, name, _, output in batch
        ]
        contents.append({"role": "model", "parts": calls})
        results = [{**none, "function_response": each} for each in results]
        contents.append({"role": "user", "parts": results})
    return contents


def openai_agents(batches):
    """As `to_input_list()` of openai-agents 0.24."""
    yield {"content": "hi", "role": "user"}
    for batch in numbered(batches):
        yield {"id": "rs_1", "summary": [], "type": "reasoning"}
        for identifier, name, arguments, _ in batch:
            call = {"arguments": json.dumps(arguments), "call_id": identifier, "name": name}
            yield {**call, "type": "function_call", "id": f"fc_{identifier}", "status": "completed"}
        for identifier, _, _, output in batch:
            text = json.dumps(output)
            yield {"call_id": identifier, "output": text, "type": "function_call_output"}
        text = {"annotations": [], "text": "hm", "type": "output_text"}
        yield {"id": "m", "content": [text], "role": "assistant", "type": "message"}


def codex(batches):
    """As the lines of a rollout of Codex."""
    meta = {"id": "s", "cwd": "/w", "originator": "codex_exec", "cli_version": "0.46.0"}
    yield {"type": "session_meta", "payload": meta}
    yield {"type": "turn_context", "payload": {"cwd": "/w", "model": "m", "summary": "auto"}}
    yield {"type": "event_msg", "payload": {"type": "user_message", "message": "hi"}}
    for item in openai_agents(batches):
        line = {"timestamp": "2025-10-29T00:59:38.317Z", "type": "response_item"}
        yield {**line, "payload": {"type": "message", **item}}
        if item.get("type") == "function_call_output":
            invocation = {"server": "shop", "tool": "look", "arguments": {}}
            event = {"type": "mcp_tool_call_end", "call_id": item["call_id"]}
            event |= {"invocation": invocation, "result": {"Ok": {"content": []}}}
            yield {"type": "event_msg", "payload": event}
    yield {"type": "event_msg", "payload": {"type": "token_count", "info": None}}


def claude_code(batches):
    """As Claude Code's lines: one for each block, those of one message with its identifier; hooks between them."""
    saved = {"messageId": "m", "trackedFileBackups": {}, "timestamp": "t"}
    yield {"type": "file-history-snapshot", "messageId": "m", "snapshot": saved}
    yield {"type": "queue-operation", "operation": "enqueue", "sessionId": "s", "content": "x"}
    for number, batch in enumerate(numbered(batches)):
        same = {"isSidechain": False, "sessionId": "s", "uuid": f"u{number}"}
        for identifier, name, arguments, _ in batch:
            use = {"type": "tool_use", "id": identifier, "name": name, "input": arguments}
            message = {"id": f"msg_{number}", "role": "assistant", "content": [use]}
            yield {**same, "type": "assistant", "message": message}
            hook = {"type": "hook_success", "hookName": f"PreToolUse:{name}", "exitCode": 0}
            hook |= {
                "toolUseID": identifier,
                "hookEvent": "PreToolUse",
                "content": "",
                "stdout": "x",
            }
            yield {**same, "type": "attachment", "attachment": hook}
        for identifier, _, _, output in batch:
            block = {"type": "tool_result", "tool_use_id": identifier}
            content = [{**block, "content": json.dumps(output)}]
            yield {**same, "type": "user", "message": {"role": "user", "content": content}}


def openhands(batches):
    """As OpenHands' SDK 1.58 dumps the messages of `LLMConvertibleEvent.events_to_messages`."""
    none = {"reasoning_content": None, "thinking_blocks": [], "responses_reasoning_item": None}

    def text(given):
        return [{"cache_prompt": False, "type": "text", "text": given}]

    for batch in numbered(batches):
        calls = [
            {
                "id": identifier,
                "responses_item_id": None,
                "name": name,
                "arguments": json.dumps(arguments),
                "origin": "completion",
            }
            for identifier, name, arguments, _ in batch
        ]
        more = {"tool_call_id": None, "name": None, **none}
        yield {"role": "assistant", "content": text("well"), "tool_calls": calls, **more}
        for identifier, name, _, output in batch:
            more = {"tool_calls": None, "tool_call_id": identifier, "name": name, **none}
            yield {"role": "tool", "content": text(json.dumps(output)), **more}


def chat(batches):
    messages = [{"role": "user", "content": "hi"}]
    for batch in numbered(batches):
        calls = [
            {
                "id": identifier,
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for identifier, name, arguments, _ in batch
        ]
        messages.append({"role": "assistant", "content": "", "tool_calls": calls})
        messages += [
            {"role": "tool", "content": json.dumps(output), "tool_call_id": identifier}
            for identifier, _, _, output in batch
        ]
    return messages


def inspect_ai(batches):
    """As inspect_ai 0.3.285 writes a log as JSON."""
    messages = [{"id": "a", "role": "user", "source": "input", "content": "hi"}]
    for batch in numbered(batches):
        calls = [
            {"id": identifier, "function": name, "arguments": arguments, "type": "function"}
            for identifier, name, arguments, _ in batch
        ]
        fields = {"id": "b", "content": "", "source": "generate", "model": "m"}
        messages.append({**fields, "role": "assistant", "tool_calls": calls})
        for identifier, name, _, output in batch:
            fields = {"id": "c", "role": "tool", "tool_call_id": identifier, "function": name}
            messages.append({**fields, "content": json.dumps(output)})
    events = [
        {"event": "tool", "id": identifier, "function": name, "arguments": {}, "result": "x"}
        for batch in numbered(batches)
        for identifier, name, _, _ in batch
    ]
    sample = {"id": "s1", "epoch": 1, "input": "hi", "target": "", "messages": messages}
    sample |= {"events": events, "events_data": {"messages": messages, "calls": []}}
    return {"version": 2, "status": "success", "eval": {"task": "t"}, "samples": [sample]}


def swe_agent(batches):
    """As SWE-agent's .traj files: what was made stands in `history`, behind demonstrations."""
    history = []
    for message in chat(batches):
        identifier = message.pop("tool_call_id", None)
        history.append(
            {**message, "agent": "main", "message_type": "action"}
            | ({} if identifier is None else {"tool_call_ids": [identifier]})
        )
    demonstration = [{**each, "is_demo": True} for each in history if each["role"] != "user"]
    step = {"action": "look tea", "observation": "3", "query": chat(batches), "thought": "well"}
    whole = {"trajectory": [step], "info": {"exit_status": "submitted"}, "replay_config": "{}"}
    return {**whole, "history": [*demonstration, *history], "environment": "main"}


def tau2(batches):
    """As the results of tau2."""
    messages = []
    for message in chat(batches):
        calls = [
            {
                "id": call["id"],
                "name": call["function"]["name"],
                "arguments": json.loads(call["function"]["arguments"]),
                "requestor": "assistant",
            }
            for call in message.get("tool_calls", [])
        ]
        if message["role"] == "tool":
            message["id"] = message.pop("tool_call_id")
            message |= {"requestor": "assistant", "error": False}
        messages.append({**message, "tool_calls": calls or None, "turn_idx": 0})
    return {"tasks": [], "simulations": [{"id": "s", "task_id": "0", "messages": messages}]}


def tau_bench(batches):
    """As the results of tau-bench."""
    return [{"task_id": 0, "reward": 1.0, "info": {}, "traj": chat(batches), "trial": 0}]


FORMS = [
    pydantic_ai,
    otel_of_pydantic_ai,
    otel,
    langchain_dumpd,
    langchain_dicts,
    langgraph_state,
    gemini,
    gemini_of_python,
    openai_agents,
    codex,
    claude_code,
    inspect_ai,
    openhands,
    swe_agent,
    tau2,
    tau_bench,
]


def write(path, log, indent=None):
    """Write a document, or a form's items one a line."""
    whole = isinstance(log, dict | list)
    items = [log] if whole else list(log)
    path.write_text("\n".join(json.dumps(item, indent=indent if whole else None) for item in items))


@pytest.fixture
def read(tmp_path):
    def read(log, indent=None):
        path = tmp_path / "log.json"
        write(path, log, indent)
        return read_traces(path)

    return read


VALUES = st.one_of(st.integers(-9, 9), st.text("ab", max_size=3), st.lists(st.integers(0, 9)))
OUTPUTS = st.one_of(VALUES, st.none(), st.booleans(), st.dictionaries(st.text("xyz"), VALUES))
CALLS = st.tuples(
    st.sampled_from(["look", "order"]),
    st.dictionaries(st.sampled_from(["item", "n"]), VALUES),
    OUTPUTS,
)
BATCHES = st.lists(st.lists(CALLS, min_size=1, max_size=3), min_size=1, max_size=3)


@settings(max_examples=40, deadline=None)
@given(batches=BATCHES, indent=st.sampled_from([None, 1]))
def test_the_same_calls_give_the_same_trace_in_every_form(tmp_path_factory, batches, indent):
    calls = [call for batch in batches for call in batch]
    of = [number for number, batch in enumerate(batches) for _ in batch]
    path = tmp_path_factory.getbasetemp() / "forms.json"
    for form in FORMS:
        write(path, form(batches), indent)
        (trace,) = read_traces(path)
        made = [(call.name, call.arguments) for call in trace.calls]
        assert made == [(name, arguments) for name, arguments, _ in calls], form
        for call, (_, _, output) in zip(trace.calls, calls, strict=True):
            assert same_output(call.logged, json.dumps(output)), form
        for one, other in combinations(range(len(calls)), 2):
            assert trace.sent_together(one, other) == (of[one] == of[other]), form
            assert trace.is_before(one, other) == (of[one] < of[other]), form
        assert not trace.invalid


def fields(value, above=()):
    """Yield the place and name of each field in a document."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(value, dict):
            yield above, key
        if isinstance(inner, dict | list):
            yield from fields(inner, (*above, key))


OTHERWISE_NAMED = [[("look", {"item": "tea"}, {"left": 3}), ("order", {}, "x")], [("look", {}, 1)]]


@pytest.mark.parametrize("form", FORMS)
def test_a_field_of_another_name_never_takes_a_call_or_an_output_away(read, form):
    log = form(OTHERWISE_NAMED)
    log = log if isinstance(log, dict | list) else list(log)
    (trace,) = read(log)
    tried = 0
    for above, key in list(fields(log)):
        if key in ("item", "is_demo"):  # what is renamed with it is the argument, or all of a call
            continue
        changed = json.loads(json.dumps(log))
        inner = changed
        for step in above:
            inner = inner[step]
        inner[f"{key}X"] = inner.pop(key)
        tried += 1
        try:
            (other,) = read(changed)
        except MalformedInputError:
            continue
        assert len(other.calls) == len(trace.calls), (above, key)
        for call, before in zip(other.calls, trace.calls, strict=True):
            assert (call.name, call.arguments) == (before.name, before.arguments), (above, key)
            assert call.logged is not None, (above, key)
    assert tried > 10


TEA = {"item": "tea"}


@pytest.mark.parametrize("form", FORMS)
def test_a_batch_whose_outputs_only_another_order_explains_raced_in_every_form(read, form):
    order = ("order", {**TEA, "customer": "ann"}, {"ordered": "tea"})
    for left, calls in ((2, ["order", "look"]), (3, ["look", "order"])):
        (trace,) = read(form([[("look", TEA, {**TEA, "left": left}), order]]))
        lifted = run_trace(Shop(), trace, 0, source="log")
        assert lifted.departure is None
        assert [call.name for call in lifted.trace.calls] == calls
        assert lifted.trace.raced(range(2)) == (left == 2)
    # In two messages no order explains it.
    (trace,) = read(form([[("look", TEA, {**TEA, "left": 2})], [order]]))
    assert run_trace(Shop(), trace, 0, source="log").departure.place == 0


# Calls that pydantic-ai did not run, and such that its tools refused.


class Sells(vcrt.CallEnvironment):
    name = "sells"

    def reset(self, initial):
        return []

    def call(self, state, name, arguments):
        state.append(name)
        if name == "order":
            raise vcrt.CallRefused("no tea left")
        return "looked"


def ended(content, **fields):
    messages = pydantic_ai([[("look", {}, "looked"), ("order", {}, "x")], [("look", {}, "looked")]])
    messages[2]["parts"][1] |= {"content": content, **fields}
    return messages


def retried(cause):
    return {"outcome": "retried", "retry": {"cause": cause, "attempt": 1, "max_retries": 3}}


MISSING = [{"type": "missing", "loc": ["item"], "msg": "Field required", "input": {}}]
OF_1 = {"part_kind": "retry-prompt", "outcome": None, "retry": None}
TEXT = "Tool not executed - a final result was already processed."
NOT_RUN = [
    ended("Unknown tool name: 'order'.", **retried("unknown_tool")),
    ended("Tool 'order' is not available.", **retried("unavailable_tool")),
    ended(MISSING, **retried("validation_error")),
    ended(MISSING, **OF_1),
    ended("The tool call was denied.", outcome="denied"),
    ended("Final result processed."),
    ended(TEXT),
]


@pytest.mark.parametrize("log", NOT_RUN)
def test_a_call_that_no_tool_ran_is_left_out_and_said(read, log):
    (trace,) = read(log)
    assert [call.name for call in trace.calls] == ["look", "look"]
    ((place, reason),) = trace.invalid
    assert "item 2" in place
    assert "not run" in reason
    assert run_trace(Sells(), trace, 0, source="log").departure is None


@pytest.mark.parametrize(
    "fields", [retried("model_retry"), OF_1, {"outcome": "failed"}, {"outcome": "retried"}]
)
def test_a_retry_is_a_refusal_of_the_tool(read, fields):
    (trace,) = read(ended("no tea left", **fields))
    assert [call.name for call in trace.calls] == ["look", "order", "look"]
    assert run_trace(Sells(), trace, 0, source="log").departure is None
    (other,) = read(ended("sold", **fields))
    assert run_trace(Sells(), other, 0, source="log").departure.place == 1
    (taken,) = read(ended("no tea left"))
    assert not same_output(trace.calls[1].logged, taken.calls[1].logged)


def test_a_call_that_was_interrupted_is_an_error(read):
    with pytest.raises(MalformedInputError, match="interrupted") as caught:
        read(ended("The tool call was interrupted.", outcome="interrupted"))
    assert "item 3" in caught.value.where
    assert caught.value.remedy


AROUND = [
    "no tea left\n\nFix the errors and try again.",  # pydantic-ai
    "Error: ValueError('no tea left')\n Please fix your mistakes.",  # LangGraph
    "Error calling tool 'order': no tea left",  # FastMCP
    "Error executing tool order: no tea left",  # MCP's SDK
    "An error occurred while running the tool. Please try again. Error: no tea left",
    "<tool_use_error>no tea left</tool_use_error>",  # Claude Code
]


@pytest.mark.parametrize("text", AROUND)
def test_what_frameworks_write_around_a_reason_is_no_other_reason(text):
    assert same_refusal(json.dumps(text), "no tea left")
    assert not same_refusal(json.dumps(text), "no tea")
    assert not same_refusal(json.dumps(text), "left")
    assert not same_refusal(json.dumps(text.replace("no tea left", "sold")), "no tea left")


HIDDEN = [
    "An error occurred while running the tool. Please try again.",  # OpenAI Agents
    "Error calling tool 'order'",  # FastMCP
    "Error executing tool order",  # MCP's SDK
]


@pytest.mark.parametrize("text", HIDDEN)
def test_a_reason_that_a_framework_hides_may_be_any(text):
    assert same_refusal(json.dumps(text), "no tea left")
    assert shows_failure(json.dumps(text))
    assert not same_refusal(json.dumps(text + " sold"), "no tea left")
    assert not same_output(json.dumps(text), '"no tea left"')


@pytest.mark.parametrize("value", [{"a": 1.5, "b": [None, True]}, ["it's", '"'], [[], {}]])
def test_an_output_that_python_wrote_as_text_is_that_value(value):
    for text in (str(value), repr(value)):
        assert same_output(json.dumps(text), json.dumps(value))
        assert not same_output(json.dumps(text), json.dumps([value]))
        assert not same_output(json.dumps(text[:-1]), json.dumps(value))


@pytest.mark.parametrize(
    "text", ["[" * 99_999, "{1, 2}", "[print(1)]", "{'a': 1}.get('a')", "(b'x',)"]
)
def test_a_text_that_only_begins_as_python_writes_values_is_a_text(text):
    assert same_output(json.dumps(text), json.dumps(text))
    assert not same_output(json.dumps(text), "[1]")
    assert not same_output(json.dumps(text), "[1,2]")


# What is refused by its name, with what mends it.

MESSAGES = langgraph_state([[("look", {}, 1)]])["messages"]
REFUSED = {
    "LangSmith runs": ({"id": "r", "run_type": "llm", "inputs": {}, "outputs": {}}, "read_run"),
    "updates of a LangGraph stream": ([{"model": {"messages": MESSAGES}}], "get_state"),
    "something else than whole messages": (
        [{**constructor("Document"), "kwargs": {}}],
        "messages_to_dict",
    ),
    "response of Gemini": ({"candidates": [{"content": {"parts": []}}]}, "contents"),
    "OpenTelemetry spans": ({"resourceSpans": [{"scopeSpans": []}]}, "gen_ai.input.messages"),
    "OpenTelemetry spans or events": (
        {"name": "chat m", "attributes": {"gen_ai.input.messages": "[]"}},
        "gen_ai.input.messages",
    ),
    "spans or events": ({"event_name": "gen_ai.tool.message", "body": {}}, "gen_ai.input.messages"),
    "OpenTelemetry spans or": (
        {"span_name": "agent run", "attributes": {"pydantic_ai.all_messages": []}},
        "pydantic_ai.all_messages",
    ),
    "OpenHands' events": (
        {"kind": "ActionEvent", "id": "e", "timestamp": "t", "source": "agent", "tool_name": "x"},
        "events_to_messages",
    ),
    "OpenHands": ([{"id": 1, "source": "agent", "action": "run", "args": {}}], "one a line"),
    "codex exec": ({"type": "item.completed", "item": {"type": "agent_message"}}, "rollout"),
    "inspect_ai log": ({"version": 2, "eval": {}, "samples": None}, "inspect log dump"),
    "SWE-agent": ({"trajectory": [{"action": "x"}], "info": {}}, "history"),
}


@pytest.mark.parametrize("form", REFUSED)
def test_a_log_that_is_not_read_is_refused_by_its_name_and_what_mends_it(read, form):
    log, remedy = REFUSED[form]
    with pytest.raises(MalformedInputError, match=form) as caught:
        read(log)
    assert "a log of a form that is not read" in str(caught.value)
    assert remedy in caught.value.remedy
    assert caught.value.found


def test_a_sample_of_inspect_ai_whose_messages_were_trimmed_is_an_error(read):
    log = inspect_ai([[("look", {}, 1)], [("order", {}, 2)]])
    log["samples"][0]["messages"][1:3] = []
    with pytest.raises(MalformedInputError, match="not in its messages") as caught:
        read(log)
    assert "sample 1" in caught.value.where
    assert "'c0'" in caught.value.found


def test_an_archive_is_named(tmp_path):
    path = tmp_path / "log.eval"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("header.json", "{}")
    with pytest.raises(MalformedInputError, match="an archive") as caught:
        read_traces(path)
    assert caught.value.remedy == "inspect log dump log.eval > log.json"


def test_messages_without_their_content_are_named(read):
    messages = otel([[("look", {"item": "tea"}, 3)]])
    del messages[1]["parts"][1]["arguments"]
    with pytest.raises(MalformedInputError, match="content was not recorded") as caught:
        read(messages)
    assert "include_content" in caught.value.remedy


def test_results_of_gemini_in_another_order_are_no_results_of_other_calls(read):
    log = gemini([[("look", {}, 1), ("order", {}, 2)]])
    log["contents"][2]["parts"].reverse()
    with pytest.raises(MalformedInputError, match="another tool"):
        read(log)
