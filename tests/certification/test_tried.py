"""What was never tried is said: whatever two calls could only meet in, if they never did, is among it."""

from __future__ import annotations

import random
from itertools import combinations, product

import pytest

from vcrt.calls.conditions import as_arguments
from vcrt.calls.tried import Relation, untried

TEXTS = ["k1", "k2", "a", "a/b", "a/b/c", "ab"]


def case(first, second, output=None, other=None):
    return as_arguments(first), as_arguments(second), output, other


def texts(cases, one_tool=False):
    return [relation.text for relation in untried(cases, one_tool=one_tool)]


def test_keys_that_were_never_equal_are_said():
    cases = [
        case({"key": f"k{m}", "value": m}, {"key": f"k{n}", "value": n})
        for m, n in combinations(range(6), 2)
    ]
    said = texts(cases, one_tool=True)
    assert said == [
        "a.key = b.key",
        "a.value = b.value",
        "one of a.key and b.key inside the other",
    ]
    equal = case({"key": "k0", "value": 0}, {"key": "k0", "value": 1})
    assert texts([*cases, equal], one_tool=True) == said[1:]


def test_of_no_arguments_nothing_is_left_to_try():
    assert texts([case({}, {})]) == []
    assert texts([]) == []
    assert texts([case({"key": "k"}, {})]) == []


def test_arguments_of_other_names_are_asked_for_too():
    cases = [case({"item": "pen", "number": 1}, {"sku": "ink", "places": [2, 3]})]
    assert texts(cases) == [
        "a.item = b.sku",
        "a.number = b.places",
        "one of a.number and b.places inside the other",
    ]
    met = case({"item": "ink", "number": 3}, {"sku": "ink", "places": [2, 3]})
    assert texts([*cases, met]) == ["a.number = b.places"]


def test_what_was_equal_one_by_one_may_not_have_been_at_once():
    def stock(item, place, other_item, other_place):
        return case({"item": item, "place": place}, {"item": other_item, "place": other_place})

    cases = [stock(1, 2, 1, 4), stock(1, 2, 3, 2), stock(1, 2, 3, 4)]
    assert texts(cases) == [
        "a.item = b.place",
        "a.place = b.item",
        "a.item = b.item and a.place = b.place",
    ]
    assert Relation("equal", (("item", "item"), ("place", "place"))) in untried(
        cases, one_tool=True
    )
    assert len(texts([*cases, stock(1, 2, 1, 2)])) == 2


def test_values_that_never_differed_are_said():
    assert texts([case({"mode": 1}, {"mode": 1})]) == ["a.mode != b.mode"]


@pytest.mark.parametrize(
    ("one", "other"),
    [("a", "a/b"), ("a/b", "a"), ("k1", "k11"), ("pen", ["pen", "ink"]), ({"of": "pen"}, "pen")],
)
def test_one_inside_the_other_is_tried_by_paths_texts_and_parts(one, other):
    inside = Relation("inside", (("key", "key"),))
    apart = case({"key": "x"}, {"key": "y"})
    assert inside in untried([apart], one_tool=False)
    assert inside not in untried([apart, case({"key": one}, {"key": other})], one_tool=False)
    assert inside not in untried([apart, case({"key": other}, {"key": one})], one_tool=True)


def test_an_output_that_never_was_an_argument_is_said():
    made = [case({"name": f"n{k}"}, {"ticket": f"t{k}"}, f'"id{k}"', '"ok"') for k in range(2)]
    output = Relation("output")
    assert output in untried(made, one_tool=False)
    used = case({"name": "n3"}, {"ticket": "id3"}, '{"made":["id3"]}', '"ok"')
    assert output not in untried([*made, used], one_tool=False)
    # One that says always the same, or the call's own arguments, is nothing that could be used.
    constant = [case({"name": f"n{k}"}, {"ticket": f"t{k}"}, '"ok"', "null") for k in range(9)]
    echoed = [case({"name": f"n{k}"}, {"ticket": f"t{k}"}, f'"n{k}"', "null") for k in range(9)]
    assert output not in untried([*constant, *echoed], one_tool=False)
    hashed = [case({"name": "n"}, {"ticket": "t"}, f"sha256:{k}", None) for k in range(3)]
    assert output in untried(hashed, one_tool=False)


@pytest.mark.parametrize("one_tool", [False, True])
def test_two_calls_that_meet_only_in_equal_arguments_and_never_did_are_never_without_a_word(
    one_tool,
):
    """Random calls, and all sets of arguments in which they could meet: one part of each that was not met is said."""
    draw = random.Random(0)
    names = ("p", "q", "r")
    said = 0
    for _ in range(60):
        values = draw.choice([TEXTS, [1, 2, 3, 4], ["k1", 2]])
        other_names = names if one_tool or draw.random() < 0.5 else ("p", "x", "y")
        cases = [
            tuple({n: draw.choice(values) for n in some} for some in (names, other_names))
            for _ in range(draw.randint(1, 12))
        ]
        found = untried([case(*calls) for calls in cases], one_tool=one_tool)
        equal = [set(one.arguments) for one in found if one.kind == "equal"]
        meetings = [
            set(meeting)
            for number in (1, 2, 3)
            for meeting in combinations(product(names, other_names), number)
            if len({x for x, _ in meeting}) == len({y for _, y in meeting}) == number
        ]
        for meeting in meetings:
            met = any(
                all(f[x] == s[y] for x, y in meeting)
                for first, second in cases
                for f, s in ((first, second), (second, first))[: 1 + one_tool]
            )
            if not met and _of_one_kind(cases, meeting, one_tool):
                turned = {(y, x) for x, y in meeting} if one_tool else meeting
                assert any(one <= meeting or one <= turned for one in equal), (cases, meeting)
            # What is said to be untried is.
            assert not (met and meeting in equal)
            said += not met
    assert said > 300


def _of_one_kind(cases, meeting, one_tool):
    """Whether the arguments have a name, or a kind of value, in common."""

    def kinds(place, name):
        calls = [calls[place] for calls in cases]
        if one_tool:
            calls = [call for pair in cases for call in pair]
        return {type(call[name]) for call in calls}

    return all(x == y or kinds(0, x) & kinds(1, y) for x, y in meeting)
