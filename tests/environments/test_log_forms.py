"""Every form of a log is read with all of its outputs, or refused by its name at its line; nothing is passed over."""

from __future__ import annotations

import json

import pytest

import vcrt
from shop import Shop
from vcrt.calls.call_logs import read_traces, same_output, shows_failure
from vcrt.calls.log_lifting import run_trace
from vcrt.errors import MalformedInputError

CALLS = [
    ("look", {"item": "tea"}, {"item": "tea", "left": 3}),
    ("order", {"item": "tea", "customer": "ann"}, {"ordered": "tea"}),
    ("look", {"item": "tea"}, {"item": "tea", "left": 2}),
]
HELLO = {"role": "user", "content": "tea, please"}


def openai(name, arguments, identifier=None):
    call = {"type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    call |= {} if identifier is None else {"id": identifier}
    return message


def responses(k, name, arguments, output):
    yield {"type": "reasoning", "id": f"rs_{k}", "summary": []}
    call = {"id": f"fc_{k}", "call_id": f"c{k}", "name": name, "arguments": json.dumps(arguments)}
    yield {"type": "function_call", "status": "completed", **call}
    yield {"type": "function_call_output", "call_id": f"c{k}", "output": json.dumps(output)}
    text = {"type": "output_text", "text": "done"}
    yield {"type": "message", "role": "assistant", "content": [text]}


def responses_of_servers(k, name, arguments, output):
    call = {"id": f"mcp_{k}", "server_label": "shop", "name": name, "error": None}
    yield {"type": "mcp_list_tools", "id": "l", "server_label": "shop", "tools": [{"name": name}]}
    given, text = json.dumps(arguments), json.dumps(output)
    yield {"type": "mcp_call", **call, "arguments": given, "output": text}


def claude_code(k, name, arguments, output):
    use = {"type": "tool_use", "id": f"t{k}", "name": name, "input": arguments}
    result = {"type": "tool_result", "tool_use_id": f"t{k}", "content": json.dumps(output)}
    line = {"uuid": f"u{k}", "isSidechain": False, "sessionId": "s"}
    yield {"type": "summary", "summary": "Tea", "leafUuid": f"u{k}"}
    yield {**line, "type": "assistant", "message": {"role": "assistant", "content": [use]}}
    message = {"role": "user", "content": [result]}
    yield {**line, "type": "user", "message": message, "toolUseResult": output}


def langchain(k, name, arguments, output):
    call = {"name": name, "args": arguments, "id": f"c{k}", "type": "tool_call"}
    function = {"name": name, "arguments": json.dumps(arguments)}
    again = {"tool_calls": [{"id": f"c{k}", "type": "function", "function": function}]}
    yield {"type": "human", "content": "x", "name": None}
    yield {"type": "ai", "content": "", "tool_calls": [call], "additional_kwargs": again}
    result = {"content": json.dumps(output), "name": name, "tool_call_id": f"c{k}"}
    yield {"type": "tool", **result, "status": "success"}


def langchain_dicts(*call):
    for message in langchain(*call):
        kind = message.pop("type")
        yield {"type": kind, "data": message}


def langchain_blocks(k, name, arguments, output):
    (_, call, result) = langchain(k, name, arguments, output)
    use = {"type": "tool_use", "id": f"c{k}", "name": name, "input": arguments}
    yield {**call, "content": [{"type": "text", "text": "well"}, use], "invalid_tool_calls": []}
    yield result


def langchain_items(k, name, arguments, output):
    (_, call, result) = langchain(k, name, arguments, output)
    item = {"type": "function_call", "id": f"fc{k}", "call_id": f"c{k}", "name": name}
    yield {**call, "content": [{"type": "reasoning"}, {**item, "arguments": json.dumps(arguments)}]}
    yield result


def pydantic_ai(k, name, arguments, output):
    same = {"tool_name": name, "tool_call_id": f"c{k}"}
    user = {"content": "hi", "part_kind": "user-prompt"}
    call = {**same, "args": json.dumps(arguments), "part_kind": "tool-call"}
    result = {**same, "content": output, "part_kind": "tool-return"}
    yield {"parts": [user], "kind": "request"}
    yield {"parts": [{"content": "well", "part_kind": "text"}, call], "kind": "response"}
    yield {"parts": [result], "kind": "request"}


def inspect_ai(k, name, arguments, output):
    call = {"id": f"c{k}", "function": name, "arguments": arguments, "type": "function"}
    yield {"id": f"a{k}", "role": "assistant", "content": "", "tool_calls": [call]}
    result = {"tool_call_id": f"c{k}", "function": name, "content": json.dumps(output)}
    yield {"id": f"b{k}", "role": "tool", **result, "error": None}


def tau2(k, name, arguments, output):
    call = {"id": f"c{k}", "name": name, "arguments": arguments, "requestor": "assistant"}
    yield {"role": "assistant", "content": None, "tool_calls": [call]}
    yield {"role": "tool", "id": f"c{k}", "content": json.dumps(output), "error": False}


def function_calls(_, name, arguments, output):
    function = {"name": name, "arguments": json.dumps(arguments)}
    yield {"role": "assistant", "content": None, "function_call": function}
    yield {"role": "function", "name": name, "content": json.dumps(output)}


def blocks_of_servers(k, name, arguments, output):
    use = {"type": "mcp_tool_use", "id": f"m{k}", "name": name, "server_name": "shop"}
    text = [{"type": "text", "text": json.dumps(output)}]
    result = {"type": "mcp_tool_result", "tool_use_id": f"m{k}", "is_error": False}
    content = [{**use, "input": arguments}, {**result, "content": text}]
    yield {"role": "assistant", "content": content}


def chat_template(_, name, arguments, output):
    message = openai(name, arguments)
    message["tool_calls"][0]["function"]["arguments"] = arguments
    yield {**message, "name": None, "tool_call_id": None}
    yield {"role": "tool", "name": name, "content": json.dumps(output), "tool_calls": None}


def ollama(k, name, arguments, output):
    (message, result) = chat_template(k, name, arguments, output)
    yield message
    yield {"role": "tool", "tool_name": name, "content": result["content"]}


def swe_agent(k, name, arguments, output):
    yield openai(name, arguments, f"c{k}")
    content = [{"type": "text", "text": json.dumps(output)}]
    yield {"role": "tool", "content": content, "tool_call_ids": [f"c{k}"], "agent": "main"}


FORMS = [
    responses,
    responses_of_servers,
    claude_code,
    langchain,
    langchain_dicts,
    langchain_blocks,
    langchain_items,
    pydantic_ai,
    inspect_ai,
    tau2,
    function_calls,
    blocks_of_servers,
    chat_template,
    ollama,
    swe_agent,
]


def items(form, calls=CALLS):
    return [HELLO, *(item for k, call in enumerate(calls) for item in form(k, *call))]


@pytest.fixture
def read(tmp_path):
    def read(*lines, indent=None):
        path = tmp_path / "trace.jsonl"
        path.write_text("\n".join(json.dumps(line, indent=indent) for line in lines))
        return read_traces(path)

    return read


def differs(trace):
    return run_trace(Shop(), trace, 0, source="log").departure


def wrong_output(form):
    return [*CALLS[:2], (*CALLS[2][:2], {"item": "tea", "left": 77})]


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_read_with_all_of_its_outputs(read, form):
    (trace,) = read(*items(form))
    assert [(c.name, c.arguments) for c in trace.calls] == [(n, a) for n, a, _ in CALLS]
    assert all(c.logged is not None for c in trace.calls)
    assert differs(trace) is None
    assert not any("left" in text for texts in trace.known for text in texts)
    # The same as a whole trace, in one line and in several; and an output that was never given is seen.
    for indent in (None, 2):
        assert read({"messages": items(form)}, indent=indent)[0].calls == trace.calls
    (wrong,) = read(*items(form, wrong_output(form)))
    assert differs(wrong).place == 2


def test_trajectories_and_samples_are_read(read):
    one = {"task_id": 0, "reward": 1.0, "info": {"task": {}}, "traj": items(inspect_ai)}
    (trace, _) = read([one, one], indent=2)
    assert len(trace.calls) == 3
    message = items(inspect_ai)[1]
    events = [{"event": "tool", "type": "function", "function": "look"}, {"role": "tool"}]
    sample = {"id": 1, "epoch": 1, "input": "x", "events": events, "messages": items(inspect_ai)}
    (same,) = read({**sample, "output": {"choices": [{"message": message}]}})
    assert same.calls == trace.calls


LOOK = {"name": "look", "arguments": {"item": "tea"}}
NOT_READ = {
    "LangSmith runs": {"name": "look", "run_type": "tool", "inputs": {"item": "tea"}, "outputs": 1},
    "runs of inputs and outputs": {"inputs": {}, "outputs": {}},
    "LangChain's serialized constructors": {"lc": 1, "type": "constructor", "kwargs": {}},
    "OpenAI's chat completions": {"choices": [{"message": openai("look", {})}]},
    "ShareGPT": {"conversations": [{"from": "function_call", "value": "{}"}]},
    "SWE-agent trajectory": {"trajectory": [{"action": "look"}], "history": []},
    "inspect_ai log": {"version": 2, "eval": {}, "samples": []},
    "a tau2 log": {"tasks": [], "simulations": []},
}


@pytest.mark.parametrize("form", NOT_READ)
@pytest.mark.parametrize("indent", [None, 1])
def test_a_form_that_is_not_read_is_refused_by_its_name(read, form, indent):
    with pytest.raises(MalformedInputError, match=form) as caught:
        read(NOT_READ[form], indent=indent)
    assert caught.value.where.endswith("trace.jsonl:1" if indent is None else "trace.jsonl")


def assistant(*blocks, **fields):
    return {"role": "assistant", "content": [*blocks], **fields}


CALL_LIKE = [
    assistant({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}),
    assistant({"type": "web_search_tool_result", "tool_use_id": "s", "content": []}),
    assistant({"type": "tool-call", "toolCallId": "x", "toolName": "look", "input": {}}),
    assistant({"type": "tool_use", "id": "x", "name": "look", "args": {}}),
    assistant({"type": "tool_result", "content": "x"}),
    assistant({"type": "tool_result", "tool_use_id": "x", "output": "x"}),
    {"type": "mcp_call", "id": "x", "name": "look", "arguments": "{}", "result": 3},
    assistant({"type": "text", "text": "x", "tool_calls": [LOOK]}),
    assistant({"toolUse": {"toolUseId": "x", "name": "look", "input": {}}}),
    assistant({"toolResult": {"toolUseId": "x", "content": []}}),
    assistant(tool_calls=LOOK),
    assistant(tool_calls=[LOOK], function_call=LOOK),
    assistant(tool_calls=[{"type": "custom", "id": "x", "custom": LOOK}]),
    assistant(
        tool_calls=[{"id": "x", "function": {"name": "look", "parameters": {"item": "tea"}}}]
    ),
    assistant(toolCalls=[LOOK]),
    assistant(additional_kwargs={"function_call": LOOK}),
    {"role": "model", "parts": [{"functionCall": {"name": "look", "willContinue": True}}]},
    {"role": "model", "parts": [{"functionCall": {"name": "look"}, "toolCall": {"id": "x"}}]},
    {"role": "model", "parts": [{"function": {"name": "look", "args": {"item": "tea"}}}]},
    {"role": "user", "parts": [{"functionResponse": {"response": {"left": 3}}}]},
    {"role": "user", "parts": [{"toolResponse": {"id": "x", "response": {"left": 3}}}]},
    {"role": "user", "parts": [{"id": "x", "name": "look", "response": 3}]},
    {"role": "user", "parts": ["x"]},
    {"role": "model", "parts": [{"executableCode": {"language": "PYTHON", "code": "1"}}]},
    {"role": "user", "parts": [{"function_response": {"name": "look", "result": {}}}]},
    {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {}, "id": "x"}}]},
    {"role": "assistant", "parts": [{"type": "tool_call", "id": "x", "name": "look"}]},
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "x"}]},
    {"role": "assistant", "parts": [{"type": "server_tool_call", "name": "look"}]},
    {"role": "assistant", "parts": [{"type": "tool_call", "builtin": True, "name": "look"}]},
    {"role": "assistant", "parts": [{"type": "tool-look", "toolCallId": "x", "input": {}}]},
    {"role": "model", "content": "x", "parts": [{"functionCall": {"name": "look", "args": {}}}]},
    {"type": "response_item", "payload": {"type": "custom_tool_call", "call_id": "x"}},
    {"type": "response_item", "payload": {"type": "local_shell_call", "call_id": "x"}},
    {"type": "event_msg", "payload": {"type": "mcp_tool_call_end", "call_id": "x"}},
    {"role": "ipython", "content": "x"},
    {"role": "observation", "content": "x"},
    {"role": "tool", "tool_call_id": "x", "output": "x"},
    {"role": "tool", "tool_call_ids": ["x", "y"], "content": "x"},
    {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "x"}]},
    {"type": "AIMessageChunk", "content": "", "tool_calls": [LOOK], "name": None},
    {"role": "user", "tool_call_id": "x", "content": "x"},
    {"type": "result", "session_id": "s", "permission_denials": [{"tool_input": LOOK}]},
    {"type": "result", "session_id": "s", "denied": [{"tool_use_id": "x", "content": "no"}]},
    {"type": "web_search_call", "id": "ws", "status": "completed"},
    {"type": "local_shell_call", "call_id": "x", "action": {}},
    {"type": "custom_tool_call", "call_id": "x", "name": "look", "input": "tea"},
    {"type": "mcp_approval_request", "name": "look", "arguments": "{}"},
    {"type": "function_call", "call_id": "x", "name": "look", "input": {"item": "tea"}},
    {"type": "function_call_output", "call_id": "x", "result": "tea"},
    {"type": "progress", "uuid": "u", "data": {"message": assistant({"type": "tool_use"})}},
    {"kind": "response", "parts": [{"part_kind": "builtin-tool-call", "tool_name": "look"}]},
    {"name": "look", "inputs": {"item": "tea"}},
    {"name": "look", "input": {"item": "tea"}, "output": 1},
    {"tool": "look", "parameters": {"item": "tea"}},
    {"tool": "look", "item": "tea"},
    {"tool": "look", "name": "run", "arguments": {}},
    {"name": "look", "arguments": {}, "args": {"item": "tea"}},
    {"name": "look", "arguments": {}, "inputs": {"item": "tea"}},
    {"name": "look", "arguments": {"item": "tea"}, "outputs": 3},
    {"name": "look", "arguments": {"item": "tea"}, "observation": 3},
    {"name": "look", "arguments": {"item": "tea"}, "output": 3, "result": 4},
    {"name": "look", "initial": {"tea": 3}},
    {"tool": "look", "initial": {"tea": 3}},
    {"type": "TOOL", "name": "look", "arguments": {}},
    {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"tool": "look"}},
    {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "look", "input": {}}},
    {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "look", "task": {}}},
    {"jsonrpc": "2.0", "id": 9, "result": {"content": [{"type": "text", "text": "x"}]}},
    {"jsonrpc": "2.0", "id": 9},
    {"messages": [HELLO], "response": {"choices": [{"message": assistant(tool_calls=[LOOK])}]}},
    {"messages": [HELLO], "calls": [LOOK]},
    {"calls": [LOOK], "outputs": [{"item": "tea", "left": 3}]},
    # An identifier again, and another call or an output of its own.
    {
        "messages": [openai("look", {"item": "tea"}, "c")],
        "choices": [{"message": openai("look", {"item": "rice"}, "c")}],
    },
    assistant(
        {"type": "tool_use", "id": "c", "name": "look", "input": {"item": "tea"}},
        {"type": "bash_tool_result", "tool_use_id": "c", "content": "x"},
    ),
    assistant(
        {"type": "tool_use", "id": "c", "name": "look", "input": {"item": "tea"}},
        tool_calls=openai("look", {"item": "rice"}, "c")["tool_calls"],
    ),
    assistant(
        {"type": "tool_use", "name": "look", "input": {"item": "tea"}},
        tool_calls=openai("look", {"item": "tea"}, "c")["tool_calls"],
    ),
]


@pytest.mark.parametrize("item", CALL_LIKE, ids=lambda item: json.dumps(item)[:60])
def test_what_looks_like_a_call_or_a_result_is_never_passed_over(read, item):
    before = {**LOOK, "output": {"item": "tea", "left": 3}}
    with pytest.raises(MalformedInputError) as caught:
        read(before, item, before)
    assert "trace.jsonl:2" in caught.value.where
    assert caught.value.found


def test_what_is_no_call_is_passed_over(read):
    (trace,) = read(
        {"initial": {"tea": 1}, "note": "a small shop"},
        {"role": "system", "content": "x", "tool_calls": [], "function_call": None, "name": "s"},
        assistant({"type": "thinking", "thinking": "hm"}, {"type": "image", "source": {}}, "text"),
        {"role": "assistant", "content": None, "metadata": {"usage": {"tool_calls": 3}}},
        assistant(usage={"server_tool_use": {"web_search_requests": 0}}),
        {"type": "system", "subtype": "init", "session_id": "s", "tools": ["look"]},
        {"type": "system", "content": "hook", "uuid": "u", "toolUseID": "t", "isMeta": False},
        {"type": "progress", "uuid": "u", "data": {"type": "hook_progress"}, "toolUseID": "t"},
        {"name": "list_orders"},
        {**LOOK, "id": 7, "ms": 3, "output": 1},
    )
    assert (trace.initial, [c.name for c in trace.calls]) == ({"tea": 1}, ["list_orders", "look"])
    assert trace.known[0] == ("x", "text")


# Results without identifiers.


def several(*calls):
    message = openai(*calls[0])
    message["tool_calls"] = [openai(*each)["tool_calls"][0] for each in calls]
    return message


BOTH = several(("look", {"item": "tea"}), ("look", {"item": "rice"}))
MIXED = several(("look", {"item": "tea"}), ("order", {"item": "tea", "customer": "ann"}))


def result(content, name=None):
    return {"role": "tool", "content": content} | ({} if name is None else {"name": name})


def test_results_without_identifiers_are_those_of_the_calls_in_their_order(read):
    (trace,) = read(BOTH, result("1"), result("2", "look"), HELLO, MIXED, result("3"), result("4"))
    assert [call.logged for call in trace.calls] == ['"1"', '"2"', '"3"', '"4"']
    (trace,) = read(BOTH, HELLO, MIXED, result("3", "look"))
    assert [call.logged for call in trace.calls] == [None, None, '"3"', None]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([BOTH, result("1"), result("2"), result("3")], "no call of the last message"),
        ([HELLO, result("1"), BOTH], "no call of the last message"),
        ([MIXED, result("1", "order"), result("2", "look")], "another tool"),
        ([BOTH, result("1", "look"), MIXED], "several calls of a message"),
        ([BOTH, result("1", "look")], "several calls of a message"),
        ([MIXED, result("1")], "several calls of a message"),
    ],
)
def test_a_result_without_identifier_of_which_it_is_unsure_whose_it_is_is_an_error(
    read, lines, message
):
    with pytest.raises(MalformedInputError, match=message):
        read({"calls": lines})


def test_an_identifier_of_a_result_may_be_the_call_s_or_its_own(read):
    calls = [openai("look", {"item": item}, item)["tool_calls"][0] for item in ("tea", "rice")]
    both = {"role": "assistant", "tool_calls": calls}
    for names in (("tea", "rice"), ("m1", "m2")):
        (trace,) = read(both, *({**result(name), "id": name} for name in names))
        assert [call.logged for call in trace.calls] == [f'"{name}"' for name in names]
    (trace,) = read(both, {**result("3"), "id": "tea"})
    assert [call.logged for call in trace.calls] == ['"3"', None]
    with pytest.raises(MalformedInputError, match="identifier of another call"):
        read(both, *({**result(name), "id": name} for name in ("rice", "tea")))


def test_results_with_identifiers_may_come_in_any_order(read):
    calls = [
        {"id": name, "function": {"name": "look", "arguments": json.dumps({"item": name})}}
        for name in ("tea", "rice")
    ]
    answers = [{**result(name), "tool_call_id": name} for name in ("rice", "tea")]
    (trace,) = read({"role": "assistant", "tool_calls": calls}, *answers)
    assert [call.logged for call in trace.calls] == ['"tea"', '"rice"']


# Failures.


def failing():
    """A call that failed with the text "sold", in each form that can say so."""
    name, arguments = "sell", {"item": "tea"}
    text = [{"type": "text", "text": "sold"}]
    for error in ({"isError": True}, {"is_error": True}):
        yield "plain", [{"name": name, "arguments": arguments, "output": "sold", **error}]
        yield (
            "plain",
            [{"name": name, "arguments": arguments, "output": {"content": text, **error}}],
        )
    logged = json.dumps({"content": text, "isError": True})
    yield "text", [{"name": name, "arguments": arguments, "output": logged}]
    yield (
        "block",
        [{"name": name, "arguments": arguments, "output": [{"type": "text", "text": logged}]}],
    )
    use = {"type": "tool_use", "id": "c0", "name": name, "input": arguments}
    for content in ("sold", text):
        answer = {"type": "tool_result", "tool_use_id": "c0", "content": content, "is_error": True}
        yield "blocks", [assistant(use), {"role": "user", "content": [answer]}]
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    request["params"] = {"name": name, "arguments": arguments}
    yield (
        "mcp",
        [request, {"jsonrpc": "2.0", "id": 1, "result": {"content": text, "isError": True}}],
    )
    yield "mcp", [request, {"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "sold"}}]
    (_, call, answer) = langchain(0, name, arguments, None)
    yield "langchain", [call, {**answer, "content": "sold", "status": "error"}]
    (call, answer) = inspect_ai(0, name, arguments, None)
    yield "inspect", [call, {**answer, "content": "", "error": {"message": "sold"}}]
    (call, answer) = tau2(0, name, arguments, None)
    yield "tau2", [call, {**answer, "content": "sold", "error": True}]
    (_, call, _) = pydantic_ai(0, name, arguments, None)
    retry = {
        "part_kind": "retry-prompt",
        "tool_name": name,
        "tool_call_id": "c0",
        "content": "sold",
    }
    yield "pydantic", [call, {"kind": "request", "parts": [retry]}]
    (_, call) = responses_of_servers(0, name, arguments, None)
    yield "mcp_call", [{**call, "output": None, "error": "sold"}]


class Sells(vcrt.CallEnvironment):
    name = "sells"
    refuses = False

    def reset(self, initial):
        return {}

    def call(self, state, name, arguments):
        if self.refuses:
            raise vcrt.CallRefused("sold")
        return "sold"


class Refuses(Sells):
    refuses = True


@pytest.mark.parametrize(("form", "lines"), list(failing()))
def test_an_error_is_no_success_with_the_same_text(read, form, lines):
    (trace,) = read(*lines)
    (call,) = trace.calls
    assert shows_failure(call.logged), form
    assert not same_output(call.logged, '"sold"')
    assert run_trace(Sells(), trace, 0, source="log").departure is not None
    assert run_trace(Refuses(), trace, 0, source="log").departure is None


def test_a_tool_that_gives_results_marked_as_errors_gives_what_the_log_has():
    marked = json.dumps({"content": [{"type": "text", "text": "no"}], "isError": True})
    assert same_output(marked, marked)
    assert not same_output('"no"', marked)


# Sessions of MCP.


def request(identifier, method, **params):
    return {"jsonrpc": "2.0", "id": identifier, "method": method, "params": params}


def answer(identifier, result):
    return {"jsonrpc": "2.0", "id": identifier, "result": result}


def tool_call(identifier, item="tea"):
    return request(identifier, "tools/call", name="look", arguments={"item": item})


GIVEN = {"content": [{"type": "text", "text": '{"item":"tea","left":77}'}]}
OF_SERVERS = [
    ("roots/list", {"roots": []}),
    ("elicitation/create", {"action": "accept", "content": {"sure": True}}),
    ("sampling/createMessage", {"role": "assistant", "content": [], "model": "m"}),
    ("ping", {}),
]


@pytest.mark.parametrize(("method", "given"), OF_SERVERS)
@pytest.mark.parametrize("late", [False, True])
def test_a_request_of_the_server_with_the_identifier_of_a_call_takes_nothing(
    read, method, given, late
):
    answers = [answer(1, given), answer(1, GIVEN)]
    (trace,) = read(tool_call(1), request(1, method), *(answers[::-1] if late else answers))
    assert json.loads(trace.calls[0].logged) == GIVEN
    assert differs(trace).place == 0


@pytest.mark.parametrize(("method", "given"), OF_SERVERS[:3])
def test_an_answer_to_a_request_that_is_not_in_the_log_is_no_output(read, method, given):
    with pytest.raises(MalformedInputError, match="may be that of the call") as caught:
        read(tool_call(1), answer(1, given), answer(1, GIVEN))
    assert "trace.jsonl:2" in caught.value.where


def test_an_error_that_may_be_of_either_side_is_an_error(read):
    failed = {"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "no"}}
    with pytest.raises(MalformedInputError, match="may be that of the call"):
        read(tool_call(1), request(1, "roots/list"), failed)
    (trace,) = read(request(1, "roots/list"), failed, tool_call(1), answer(1, GIVEN))
    assert json.loads(trace.calls[0].logged) == GIVEN


def test_identifiers_that_are_texts_are_not_those_that_are_numbers(read):
    (trace,) = read(tool_call(1), tool_call("1"), answer("1", GIVEN))
    assert [call.logged is None for call in trace.calls] == [True, False]


def test_a_call_that_was_cancelled_is_not_taken_for_made(read):
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    with pytest.raises(MalformedInputError, match="cancelled") as caught:
        read(tool_call(1), cancel, tool_call(2))
    assert "trace.jsonl:2" in caught.value.where
    (trace,) = read(tool_call(1), cancel, answer(1, GIVEN))
    assert len(trace.calls) == 1
    (trace,) = read(tool_call(1), answer(1, GIVEN), cancel)
    assert len(trace.calls) == 1


# Texts that look like JSON, and are none.

TEXTS = [
    "12e4567",
    "-1e999",
    "NaN",
    "-Infinity",
    "[" * 10_000,
    "[" * 70 + "]" * 70,
    '"\\ud800"',
    '{"a": "\\udc00"}',
    '{"a": 1, "a": 2}',
    "9" * 5000,
]


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:20])
def test_a_text_that_is_no_json_is_an_output_like_any(read, text):
    class Echo(Sells):
        def call(self, state, name, arguments):
            return arguments["text"]

    calls = [{"name": "say", "arguments": {"text": text}, "output": text}]
    (trace,) = read(*calls, {**calls[0], "output": [{"type": "text", "text": text}]})
    assert run_trace(Echo(), trace, 0, source="log").departure is None
    (trace,) = read({**calls[0], "output": text + "x"})
    assert run_trace(Echo(), trace, 0, source="log").departure is not None


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("9" * 5000, "4300"),
        ("[" * 70 + "]" * 70, "deep"),
        ("[" * 100_000, "recursion"),
        ('"\\ud800"', "surrogate"),
        ("NaN", "NaN"),
        ("1e999", "range"),
    ],
)
@pytest.mark.parametrize("pretty", [False, True])
def test_a_line_that_holds_what_is_not_read_is_named(tmp_path, output, message, pretty):
    path = tmp_path / "trace.jsonl"
    line = f'{{"name": "say", "arguments": {{}}, "output": {output}}}'
    path.write_text(f"[\n{line}\n]" if pretty else f"{json.dumps(LOOK)}\n{line}\n")
    with pytest.raises(MalformedInputError, match=message) as caught:
        read_traces(path)
    assert caught.value.where == (str(path) if pretty else f"{path}:2")


OUTPUT = {"left": 3}


def with_field(field, where=OUTPUT):
    """Calls of each form with a field of their own that could be what they gave."""
    given, function = {"item": "tea"}, {"name": "look", "arguments": "{}"}
    use = {"type": "tool_use", "id": "t", "name": "look", "input": given}
    part = {"part_kind": "tool-call", "tool_name": "look", "tool_call_id": "c", "args": given}
    listed = {"id": "c", "type": "function", "function": function}
    named = {"id": "c", "type": "tool_call", "name": "look", "args": given}
    for call, wrap in (
        ({"name": "look", "arguments": given}, lambda call: call),
        ({"type": "function_call", "call_id": "c", **function}, lambda call: call),
        ({"type": "mcp_call", "id": "c", "server_label": "s", **function}, lambda call: call),
        (use, lambda call: {"role": "assistant", "content": [call]}),
        (part, lambda call: {"kind": "response", "parts": [call]}),
        (listed, lambda call: {"role": "assistant", "tool_calls": [call]}),
        (named, lambda call: {"role": "assistant", "tool_calls": [call]}),
        (
            function,
            lambda call: {"role": "assistant", "tool_calls": [{"id": "c", "function": call}]},
        ),
    ):
        yield wrap({**call, field: where})


@pytest.mark.parametrize("field", ["stdout", "reply", "value", "api_response", "toolOutput", "x"])
def test_a_field_beside_a_call_that_could_be_its_output_is_never_passed_over(read, field):
    for item in with_field(field):
        with pytest.raises(MalformedInputError, match=repr(field)) as caught:
            read(item)
        assert caught.value.where.endswith("trace.jsonl:1")
        # Nothing stands in it.
        assert read(json.loads(json.dumps(item).replace(json.dumps(OUTPUT), "null")))[0].calls


def test_outputs_beside_calls_that_come_back_in_messages_of_their_own_are_not_passed_over(read):
    plain, function, mcp, *others = with_field("output")
    assert read(plain)[0].calls[0].logged == read(mcp)[0].calls[0].logged is not None
    for item in (function, *others, *list(with_field("result"))[1:]):
        with pytest.raises(MalformedInputError, match=r"'(output|result)'"):
            read(item)


@pytest.mark.parametrize("field", ["stdout", "reply", "output", "outputs", "results", "response"])
def test_an_output_beside_the_calls_of_a_message_is_never_passed_over(read, field):
    for message in (openai("look", {}, "c"), *list(with_field("x", None))[3:4]):
        for lines in (
            [{**message, field: "ok"}],
            [{"messages": [HELLO, {**message, field: ["ok"]}]}],
        ):
            with pytest.raises(MalformedInputError, match=repr(field)):
                read(*lines)
        assert read({**message, field: None})[0].calls


@pytest.mark.parametrize("field", ["started_at", "durationMs", "trace_id", "timestamp", "tokens"])
def test_a_field_that_says_when_or_by_whom_a_call_was_made_is_left_aside(read, field):
    for item in with_field(field, 3):
        assert read(item)[0].calls[0].logged is None


@pytest.mark.parametrize("key", ["messages", "calls", "traj"])
def test_outputs_in_a_list_beside_the_calls_are_not_passed_over(read, key):
    trace = {key: [LOOK], "outputs": ["ok"]}
    with pytest.raises(MalformedInputError, match="'outputs' beside"):
        read(trace)


def test_what_a_trace_begins_with_is_never_passed_over(read):
    begins = {"initial": {"tea": 1}}
    assert read(begins, LOOK)[0].initial == {"tea": 1}
    assert read({**begins, "calls": [LOOK]})[0].initial == {"tea": 1}
    for lines, said in (
        ([{**begins, **LOOK}], "line of its own"),
        ([begins, {"calls": [LOOK]}], "belongs to no trace"),
        ([begins, {"initial": {"tea": 2}}, LOOK], "second `initial`"),
        ([LOOK, begins], "where no trace begins"),
        ([{**openai("look", {}, "c"), **begins}], "where no trace begins"),
        ([{"messages": [HELLO, {**openai("look", {}, "c"), **begins}]}], "where no trace begins"),
        ([{**HELLO, **begins}, LOOK], "where no trace begins"),
    ):
        with pytest.raises(MalformedInputError, match=said):
            read(*lines)


def test_a_response_with_an_error_that_is_null_is_a_result(read):
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "look"}}
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "ok"}]}}
    alone = read(call, answer)
    assert not shows_failure(alone[0].calls[0].logged)
    assert read(call, {**answer, "error": None}) == alone
    with pytest.raises(MalformedInputError, match="both a result and an error"):
        read(call, {**answer, "error": {"code": 1, "message": "no"}})


@pytest.mark.parametrize("failed", [{"status": "Error"}, {"is_error": "true"}, {"isError": True}])
def test_a_result_that_says_that_it_failed_is_no_success_in_any_case(read, failed):
    item = {"role": "tool", "tool_call_id": "c", "content": "no tea"}
    (trace,) = read(openai("look", {}, "c"), {**item, **failed})
    assert shows_failure(trace.calls[0].logged)
    for empty in ({"error": {}}, {"error": []}, {"error": None}):
        (trace,) = read(openai("look", {}, "c"), {**item, **empty})
        assert trace.calls[0].logged == '"no tea"'


def test_a_mark_before_the_first_line_is_no_part_of_it(tmp_path):
    for text in (json.dumps([LOOK]), json.dumps(LOOK), json.dumps([LOOK, LOOK], indent=1)):
        path = tmp_path / "trace.jsonl"
        path.write_text(text, encoding="utf-8-sig")
        assert read_traces(path)[0].calls
