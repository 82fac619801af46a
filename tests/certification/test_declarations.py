"""Declarations of what may run at once: what the evidence bears, and nothing that it does not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import get_args

import pytest

import vcrt
from command_line import refused, run
from shop import Shop
from vcrt.calls import conditions
from vcrt.calls.annotations import Annotations, Evidence, PairEvidence, ToolEvidence, Witness
from vcrt.calls.proportions import NONE, Proportion
from vcrt.environments.tool_calls import Tool
from vcrt.words.declarations import Target, declaration, may_overlap

TARGETS = get_args(Target)


def tool(name, *, changed=0, sources=40, ignored=()):
    """The evidence on a tool that was called once in each source and changed the state in some."""
    return ToolEvidence(
        name=name,
        refused=Proportion(0, sources),
        changed=Proportion(changed, sources),
        changed_again=NONE,
        same_output=NONE,
        refused_again=0,
        num_sources=sources,
        changed_in=Proportion(changed, sources),
        changed_again_in=NONE,
        change=Witness("shop/log/7", (1, 2), (3,), (f"{name}(item=1)",)) if changed else None,
        ignored=ignored,
    )


def pair(a, b, *, commuted, total, against=None):
    return PairEvidence(
        tools=(a, b),
        verdicts={"diamond": commuted, "observes": total - commuted},
        num_refused=0,
        num_sources=total,
        not_commuted_in=Proportion(total - commuted, total),
        condition=None,
        untried=(),
        tested=conditions.Tested(),
        against=against,
    )


def annotations(*tools, pairs=(), **others):
    given = {
        "declared": (),
        "num_episodes": 40,
        "num_sources": 40,
        "left_out": {},
        "num_disputed": 0,
        "risk": 0.1,
        **others,
    }
    return Annotations(environment="shop", tools=tools, pairs=tuple(pairs), **given)


def written(found, target):
    """The names that the declaration defines, without the frameworks that its functions take."""
    lines = declaration(found, target).splitlines()
    kept = [line for line in lines if not line.startswith(("from lang", "from openhands"))]
    names: dict = {"RunnableConfig": object}
    exec("\n".join(kept), names)
    return names


def test_tools_that_change_nothing_at_the_risk_may_overlap():
    found = annotations(tool("list"), tool("look", sources=28), tool("order", changed=1))
    assert may_overlap(found) == ("list",)
    assert may_overlap(replace(found, risk=0.11)) == ("list", "look")
    assert written(found, "pydantic-ai")["SEQUENTIAL"] == {
        "list": False,
        "look": True,
        "order": True,
    }
    for target in ("langgraph", "haystack"):
        assert written(found, target)["MAY_OVERLAP"] == {"list"}
    for target in ("mcp", "codex"):
        assert written(found, target)["ANNOTATIONS"] == {
            "list": {"readOnlyHint": True, "destructiveHint": False},
            "look": {},
            "order": {"readOnlyHint": False},
        }
    assert written(found, "openhands")["KEYS"] == dict.fromkeys(
        ("list", "look", "order"), ("state:shop",)
    )
    assert written(annotations(tool("list")), "openhands")["KEYS"] == {"list": ()}
    assert "29 sources without one would bear it" in declaration(found, "mcp")
    assert "order(item=1) after 1 2 of shop/log/7" in declaration(found, "mcp")


def test_calls_that_commute_but_change_something_keep_their_order():
    """Two additions commute, and lose one of the two if they overlap."""
    found = annotations(tool("add", changed=40), pairs=[pair("add", "add", commuted=40, total=40)])
    assert may_overlap(found) == ()
    text = declaration(found, "pydantic-ai")
    assert "add and add: commuted in 40 of 40 contexts" in text
    assert written(found, "pydantic-ai")["SEQUENTIAL"] == {"add": True}


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ({"num_disputed": 1}, "1 call gave two answers"),
        ({"left_out": {"nondeterministic": 2}}, "2 episodes left out, nondeterministic"),
        (
            {
                "pairs": [
                    pair(
                        "list",
                        "look",
                        commuted=3,
                        total=4,
                        against=Witness("e", (), (0, 1), ("look()", "list()")),
                    )
                ]
            },
            "commuted in 3 of 4 contexts, not in look(), list() first in e",
        ),
    ],
    ids=["disputed", "left out", "contradicted"],
)
def test_contradictions_leave_nothing_that_may_overlap(others, said):
    found = annotations(tool("list"), tool("look"), tool("order", changed=1), **others)
    assert may_overlap(found) == ()
    assert set(written(found, "pydantic-ai")["SEQUENTIAL"].values()) == {True}
    assert said in declaration(found, "pydantic-ai")
    if "pairs" not in others:
        of = written(found, "mcp")["ANNOTATIONS"]
        assert of == {"list": {}, "look": {}, "order": {"readOnlyHint": False}}


@pytest.mark.parametrize(("ignored", "said"), [(None, "is not known"), (("log",), "leave out log")])
def test_what_states_leave_out_leaves_nothing_that_may_overlap(ignored, said):
    found = annotations(tool("list", ignored=ignored), ignored=ignored)
    assert may_overlap(found) == ()
    assert said in declaration(found, "langgraph")


def test_pairs_and_tools_that_were_not_tried_are_said():
    refused_tool = replace(tool("buy"), changed=NONE, changed_in=NONE, refused=Proportion(3, 3))
    pairs = [pair("look", "look", commuted=4, total=4)]
    found = annotations(refused_tool, tool("look"), pairs=pairs)
    text = declaration(found, "pydantic-ai")
    assert "not tried: 3 calls, all refused" in text
    assert "# not tried: buy and buy; buy and look\n" in text
    assert written(found, "pydantic-ai")["SEQUENTIAL"] == {"buy": True, "look": False}
    assert "lets the server's other tools overlap as well: leave it out" in declaration(
        found, "codex"
    )


def test_a_tool_that_no_log_calls_is_said_to_be_not_tried():
    pairs = [pair("look", "look", commuted=4, total=4)]
    assert Evidence().annotations("shop", [Tool(name="pay")], risk=0.1).uncalled == ("pay",)
    found = annotations(tool("look"), pairs=pairs, uncalled=("pay",))
    for target in TARGETS:
        text = declaration(found, target)
        assert "not tried: no episode calls it" in text
        assert "# not tried: look and pay; pay and pay\n" in text
    assert written(found, "pydantic-ai")["SEQUENTIAL"] == {"look": False, "pay": True}
    assert written(found, "langgraph")["MAY_OVERLAP"] == {"look"}
    assert written(found, "mcp")["ANNOTATIONS"]["pay"] == {}
    assert "leave it out" in declaration(found, "codex")
    assert "it is not needed" in declaration(replace(found, uncalled=()), "codex")


@pytest.mark.parametrize("target", TARGETS)
def test_no_name_and_no_call_ends_its_comment(target):
    name = "look\"'\n\u2028\\ raise SystemExit\n😀"
    found = annotations(
        replace(tool(name, changed=1), change=Witness("e\nraise SystemExit", (), (0,), ("a\rb",))),
        tool("look"),
        pairs=[pair("look", name, commuted=0, total=1)],
        ignored=("a\nraise SystemExit",),
    )
    of = written(replace(found, environment="shop\nraise SystemExit"), target)
    if target == "pydantic-ai":
        assert of["SEQUENTIAL"] == {name: True, "look": False}
    if "ANNOTATIONS" in of:
        assert of["ANNOTATIONS"][name] == {"readOnlyHint": False}


def test_calls_of_langgraph_are_divided_in_their_order():
    waves = written(annotations(tool("list"), tool("look")), "langgraph")["waves"]
    calls = [{"name": one} for one in ("look", "list", "order", "order", "look", "unknown", "look")]
    assert [[call["name"] for call in wave] for wave in waves(calls)] == [
        ["look", "list"],
        ["order"],
        ["order"],
        ["look"],
        ["unknown"],
        ["look"],
    ]
    assert waves([]) == []


def test_the_command_writes_a_declaration_or_the_tables(capsys, tmp_path):
    log = tmp_path / "log.jsonl"
    calls = [
        {"name": "look", "arguments": {"item": "tea"}},
        {"name": "order", "arguments": {"item": "tea", "customer": "ann"}},
    ]
    log.write_text(json.dumps({"id": "one", "calls": calls}))
    shop = f"{tmp_path / 'own.py'}:Shop"
    (tmp_path / "own.py").write_text("from shop import Shop\n")
    options = ["annotate", log, "--environment", shop, "--jobs", "1", "--for"]
    for target in TARGETS:
        code, out, _ = run(capsys, *options, target)
        assert code == 0
        found = vcrt.annotate([log], environment=Shop, jobs=1)
        assert out == declaration(found, target)
    message = refused(capsys, *options, "mcp", "--json")
    assert "--json and --for" in message


def test_a_log_that_replay_contradicts_is_declared_by_nothing(capsys, tmp_path):
    log = tmp_path / "log.jsonl"
    calls = [{"name": "look", "arguments": {"item": "tea"}, "output": {"item": "tea", "left": 9}}]
    calls.append({"name": "look", "arguments": {"item": "rice"}})
    log.write_text(json.dumps({"id": "one", "calls": calls}))
    (tmp_path / "own.py").write_text("from shop import Shop\n")
    options = ["--environment", f"{tmp_path / 'own.py'}:Shop", "--for", "mcp"]
    code, out, _ = run(capsys, "annotate", log, *options)
    assert code != 0
    assert not out
