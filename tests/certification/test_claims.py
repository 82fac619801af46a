"""What annotations do not claim: of relations that were never tried, of refused calls, and of contexts of one trace."""

from __future__ import annotations

import random

import pytest

import vcrt
from vcrt.api import annotating
from vcrt.calls.annotations import Evidence
from vcrt.calls.proportions import Proportion, of_units
from vcrt.environments.contract import Provenance
from vcrt.environments.tool_calls import Call, episode_of_calls, operations_of
from vcrt.replay.shards import replays_of
from vcrt.words.annotation_words import (
    annotation_document,
    pair_rows,
    summary_lines,
    tool_rows,
    untried_lines,
)

#: Sources of which none shows something leave a chance below a tenth: 0.9^29 is less than a twentieth.
ENOUGH = 29


class State:
    def __init__(self):
        self.values, self.stock, self.looks = {}, {}, 0


class Stock(vcrt.CallEnvironment):
    name = "stock"

    def reset(self, initial):
        return State()

    def call(self, state, name, arguments):
        match name:
            case "put":
                state.values[arguments["key"]] = arguments["value"]
            case "reserve" | "restock":
                place = (arguments["item"], arguments["shop"])
                state.stock[place] = (
                    2 * state.stock.get(place, 1)
                    if name == "reserve"
                    else state.stock.get(place, 1) + 1
                )
            case "delete":
                if arguments["key"] not in state.values:
                    raise vcrt.CallRefused(f"no {arguments['key']}")
                del state.values[arguments["key"]]
            case "find":
                # A tool that says by its output that it will not.
                found = state.values.get(arguments["key"])
                return {"error": "nothing" if found is None else None, "found": found}
            case "count":
                state.looks += 1
                raise vcrt.CallRefused("counted")
            case "look":
                state.looks += 1
                return dict(state.values)
        return "ok"


class Forgetful(Stock):
    """Its looks are not part of the states' bytes."""

    ignored = frozenset({"looks"})


def annotated(traces, environment=Stock, fails=(), redact=False, ignored=()):
    """The annotations of traces, each a list of a tool's name and its arguments, and of a source of its own."""
    evidence = Evidence()
    episodes = [
        episode_of_calls(
            "stock",
            "log",
            None,
            operations_of(
                [Call(name, arguments) for name, arguments in calls], fails=fails, redact=redact
            ),
            Provenance(source=f"trace {n}", generator="test", seed=0),
        )
        for n, calls in enumerate(traces)
    ]
    for replays in replays_of(environment(), episodes):
        evidence.add(replays.episode, replays.tree)
    return evidence.annotations("stock", (), risk=0.1, ignored=ignored)


def pair(found, *names):
    (one,) = (one for one in found.pairs if one.tools == names)
    return one


def tool(found, name):
    (one,) = (one for one in found.tools if one.name == name)
    return one


def puts(keys, trace):
    return [("put", {"key": key, "value": f"{trace}.{n}"}) for n, key in enumerate(keys)]


def test_calls_whose_keys_were_never_equal_do_not_commute_always():
    found = annotated([puts([f"k{n}{m}" for m in range(4)], n) for n in range(3)])
    of = pair(found, "put", "put")
    assert of.commuted.count == of.commuted.total > 50
    assert of.rule == "always, as far as seen"
    assert "a.key = b.key" in [relation.text for relation in of.untried]
    # Three traces are three draws, however many contexts they give: 1 - 0.05^(1/3).
    assert of.not_commuted_in == Proportion(0, 3)
    assert of.not_commuted_in.bound == pytest.approx(0.632, abs=1e-3)
    (row,) = pair_rows(found)
    assert "63.2%" in row
    assert "always" not in row
    (document,) = annotation_document(found)["pairs"]
    assert document["condition"]["text"] == "always, as far as seen"
    assert {"kind": "equal", "arguments": [["key", "key"]], "text": "a.key = b.key"} in (
        document["untried"]
    )
    assert untried_lines(found)[1].startswith("  put, put: a.key = b.key; a.value = b.value; ")
    assert "say nothing about arguments whose relation was never tried" in "\n".join(
        summary_lines(found)
    )


def test_equal_keys_that_were_tried_give_the_condition():
    traces = [puts(["a", "b", "a", "c"], n) for n in range(3)]
    of = pair(annotated(traces), "put", "put")
    assert of.rule == "a.key != b.key"
    assert "a.key = b.key" not in [relation.text for relation in of.untried]
    assert of.not_commuted_in == Proportion(3, 3)


def test_tools_that_meet_only_where_two_arguments_are_equal_are_told_that_they_never_were():
    def trace(n, *places):
        (item, shop), (other, at) = places
        return [
            ("reserve", {"item": f"{item}{n}", "shop": f"{shop}{n}"}),
            ("restock", {"item": f"{other}{n}", "shop": f"{at}{n}"}),
        ]

    apart = [trace(n, ("pen", "x"), ("pen", "y")) for n in range(3)]
    apart += [trace(n, ("pen", "x"), ("ink", "x")) for n in range(3, 6)]
    of = pair(annotated(apart), "reserve", "restock")
    assert of.commuted == Proportion(6, 6)
    assert of.rule == "always, as far as seen"
    assert "a.item = b.item and a.shop = b.shop" in [one.text for one in of.untried]
    met = pair(annotated([*apart, trace(9, ("pen", "x"), ("pen", "x"))]), "reserve", "restock")
    assert met.commuted == Proportion(6, 7)
    assert "always" not in (met.rule or "")


@pytest.mark.parametrize("redact", [False, True])
def test_a_tool_that_was_refused_each_time_has_no_hint_and_no_rule(redact):
    traces = [
        [
            ("put", {"key": f"a{n}", "value": 1}),
            ("delete", {"key": f"z{n}"}),
            ("look", {}),
        ]
        for n in range(ENOUGH)
    ]
    found = annotated(traces, fails=[1], redact=redact)
    of = tool(found, "delete")
    assert of.refused.count == of.refused.total > ENOUGH
    assert of.changed == Proportion(0, 0)
    assert of.hints(1.0) == {}
    met = pair(found, "delete", "put")
    assert met.num_refused == met.verdicts["diamond"] > 0
    assert met.condition is None
    assert met.commuted == Proportion(0, 0)
    assert met.tested.right == Proportion(0, 0)
    said = "\n".join(summary_lines(found))
    assert f"delete: {of.refused.total} calls refused, none accepted" in said
    assert "delete and put" in said
    # It stands in no row of pairs.
    assert not any("delete" in row for row in pair_rows(found))
    document = annotation_document(found)
    (listed,) = (one for one in document["tools"] if one["name"] == "delete")
    assert listed["annotations"] == {}
    assert listed["_meta"]["vcrt"]["changed"]["bound"] is None


def test_an_output_that_tells_an_error_is_a_refusal_and_one_that_tells_none_is_not():
    def trace(n, kept):
        return [("put", {"key": f"k{n}", "value": n}), ("find", {"key": kept})]

    refused = annotated([trace(n, "none") for n in range(ENOUGH)])
    assert tool(refused, "find").hints(1.0) == {}
    assert pair(refused, "find", "put").condition is None
    found = tool(annotated([trace(n, f"k{n}") for n in range(ENOUGH)]), "find")
    assert (found.changed, found.refused) == (
        Proportion(0, ENOUGH),
        Proportion(1 * ENOUGH, 2 * ENOUGH),
    )
    assert found.hints(0.1) == {"readOnlyHint": True, "destructiveHint": False}


def test_a_refused_call_that_changed_something_changed_it():
    found = tool(annotated([[("count", {}), ("look", {})]], fails=[0]), "count")
    assert found.changed.count > 0
    assert found.hints(0.1)["readOnlyHint"] is False


def test_what_changes_only_what_is_ignored_is_not_called_read_only():
    traces = [[*puts([f"k{n}"], n), ("look", {}), ("look", {})] for n in range(ENOUGH)]
    named = annotating._look(Forgetful()).ignored
    found = annotated(traces, Forgetful, ignored=named)
    assert tool(found, "look").changed.count == 0
    assert tool(found, "look").hints(0.1) == {}
    assert "the states' bytes leave out what the environment ignores (looks)" in "\n".join(
        summary_lines(found)
    )
    assert annotation_document(found)["ignored"] == ["looks"]
    # Nor is it where the environment is not there to say what it leaves out.
    unknown = annotated(traces, Forgetful, ignored=None)
    assert tool(unknown, "look").hints(0.1) == {}
    assert "is not known" in "\n".join(summary_lines(unknown))
    # With all of the state, the change is seen.
    assert tool(annotated(traces), "look").hints(0.1)["readOnlyHint"] is False


def test_a_hint_takes_sources_and_not_contexts():
    def trace(n):
        return [*puts([f"k{n}"], n), *(("find", {"key": f"k{n}"}) for _ in range(3))]

    def hints(number):
        return tool(annotated([trace(n) for n in range(number)]), "find").hints(0.1)

    assert hints(ENOUGH - 1) == {}
    assert hints(ENOUGH) == {"readOnlyHint": True, "destructiveHint": False}
    (row,) = (row for row in tool_rows(annotated([trace(0)])) if row[0] == "find")
    assert "95.0%" in row


def test_copies_of_a_trace_are_one_source():
    found = annotated([puts(["a", "b"], 0)] * 40)
    assert found.num_sources == 40
    assert pair(found, "put", "put").not_commuted_in == Proportion(0, 1)


def test_earlier_parts_of_a_conversation_are_no_further_sources():
    trace = [*puts(["a"], 0), *([("find", {"key": "a"})] * 5)]
    found = annotated([trace[: n + 2] for n in range(5)])
    assert found.num_sources == 5
    assert tool(found, "find").changed_in == Proportion(0, 1)
    assert of_units((n, range(n, 9), False) for n in range(9)).total == 1


def test_units_are_no_more_than_sources_or_cases():
    draw = random.Random(1)
    for _ in range(200):
        cases = [
            (n, draw.sample("stuvw", draw.randint(1, 3)), draw.random() < 0.2)
            for n in range(draw.randint(0, 8))
        ]
        units = of_units(cases)
        sources = {source for _, those, _ in cases for source in those}
        assert units.total <= min(len(sources), len(cases))
        assert (units.count > 0) == any(counts for _, _, counts in cases)
        # More contexts of the same sources are no more units.
        longer = [((n, m), those, counts) for n, those, counts in cases for m in range(5)]
        assert of_units(longer).total <= len(sources)


def test_the_bound_over_sources_holds_where_one_over_contexts_does_not():
    """A fifth of the sources have a counter-example in each context: 95% of bounds must lie above a fifth."""
    draw = random.Random(2)
    held = {"sources": 0, "contexts": 0}
    repetitions = 400
    for _ in range(repetitions):
        cases = []
        for source in range(8):
            is_bad = draw.random() < 0.2
            cases += [((source, n), [f"s{source}"], is_bad) for n in range(20)]
        each = Proportion(sum(counts for _, _, counts in cases), len(cases))
        held["sources"] += of_units(cases).bound >= 0.2
        held["contexts"] += each.bound >= 0.2
    assert held["sources"] / repetitions > 0.93
    assert held["contexts"] / repetitions < 0.85
