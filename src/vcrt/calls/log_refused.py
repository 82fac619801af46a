"""Name the forms of logs that are known and not read, each with what mends it. Pure.

Not covered: items that only look like calls (see :func:`vcrt.calls.log_events.unread_in`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vcrt.calls.log_events import FORMS
from vcrt.calls.log_fields import fields_of
from vcrt.errors import MalformedInputError

_ANY = "write its calls in one of these forms, one a line, each with its output"
_LANGSMITH = (
    'write the messages of the root run: json.dump(client.read_run(ID).outputs["messages"], file)'
)
_SPANS = (
    "write the list under `gen_ai.input.messages` of the last `chat` span into a file, and behind its last message "
    "those of that span's `gen_ai.output.messages`; or the list under `pydantic_ai.all_messages`"
)
_OPENHANDS = (
    "write its messages: json.dump([m.model_dump() for m in LLMConvertibleEvent.events_to_messages([e for e in "
    "conversation.state.events if isinstance(e, LLMConvertibleEvent)])], file)"
)
#: Each form by fields that tell it.
_BY_FIELDS = (
    ("LangSmith runs", {"run_type"}, _LANGSMITH),
    ("runs of inputs and outputs", {"inputs", "outputs"}, _ANY),
    (
        "a response of OpenAI's chat completions",
        {"choices"},
        "write the messages that were sent, and behind them `choices[0].message`",
    ),
    (
        "LangChain's serialized constructors of something else than whole messages",
        {"lc"},
        "write the messages: json.dump(messages_to_dict(messages), file)",
    ),
    ("ShareGPT conversations", {"conversations"}, _ANY),
    (
        "a response of Gemini",
        {"candidates"},
        'write {"contents": [...]} with what was sent, and behind it `candidates[0].content`',
    ),
    (
        "a SWE-agent trajectory without its messages",
        {"trajectory"},
        "write the whole .traj file, whose `history` has the messages",
    ),
    (
        "an inspect_ai log without samples",
        {"version", "eval"},
        "inspect log dump LOG.eval > log.json",
    ),
    ("a tau2 log without simulations", {"simulations"}, _ANY),
    ("OpenTelemetry spans", {"resourceSpans"}, _SPANS),
    ("OpenTelemetry spans", {"scopeSpans"}, _SPANS),
    ("OpenHands' events", {"id", "kind", "source", "timestamp"}, _OPENHANDS),
    ("OpenHands' events", {"source", "action", "args"}, _ANY),
    ("OpenHands' events", {"source", "observation"}, _ANY),
)


def require_read(value: Mapping[str, Any], where: str) -> None:
    """Raise :class:`MalformedInputError` for an item of a form that is known and not read."""
    if "arguments" in value:
        return
    for form, fields, remedy in _BY_FIELDS:
        if fields <= set(value):
            raise _not_read(value, form, remedy, where)
    attributes, kind = value.get("attributes"), value.get("type")
    inner = attributes if isinstance(attributes, Mapping) else {}
    names = [*value, *inner, value.get("name"), value.get("event_name"), value.get("event.name")]
    if any(
        isinstance(name, str) and name.startswith(("gen_ai.", "pydantic_ai.")) for name in names
    ):
        raise _not_read(value, "OpenTelemetry spans or events", _SPANS, where)
    if isinstance(kind, str) and kind.startswith(("thread.", "turn.", "item.")):
        remedy = "write its rollout, `~/.codex/sessions/.../rollout-....jsonl`"
        raise _not_read(value, "the output of `codex exec --json`", remedy, where)
    if value and all(
        isinstance(each, Mapping) and isinstance(each.get("messages"), list)
        for each in value.values()
    ):
        remedy = (
            "write the state at the end: json.dump(dumpd(graph.get_state(config).values), file)"
        )
        raise _not_read(value, "updates of a LangGraph stream", remedy, where)


def _not_read(value: Mapping[str, Any], form: str, remedy: str, where: str) -> MalformedInputError:
    return MalformedInputError(
        f"a log of a form that is not read: {form}",
        where=where,
        found=fields_of(value),
        expected=FORMS,
        remedy=remedy,
    )
