"""Conditions on arguments: none contradicts what it was learned from, and none is tested on what it has seen."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from vcrt.calls import conditions
from vcrt.calls.conditions import Condition, Sample, as_arguments, cross_test, learn
from vcrt.calls.proportions import NONE, Proportion

PATHS = ["a", "a/b", "a/b/c", "ab", "b", "/a"]
ARGUMENTS = st.dictionaries(
    st.sampled_from(["path", "to", "mode"]), st.sampled_from([*PATHS, 1, None, ["a"]]), max_size=3
)
SAMPLES = st.lists(
    st.builds(
        lambda first, second, commuted, sources: Sample(
            as_arguments(first), as_arguments(second), commuted, frozenset(sources)
        ),
        ARGUMENTS,
        ARGUMENTS,
        st.booleans(),
        st.sets(st.sampled_from("stuvwxyz"), min_size=1, max_size=2),
    ),
    max_size=12,
)


def samples(rule, first="path", second="path", paths=PATHS):
    """All pairs of paths, each from a source of its own."""
    return [
        Sample(as_arguments({first: a}), as_arguments({second: b}), rule(a, b), frozenset([a + b]))
        for a in paths
        for b in paths
    ]


def text_of(found, one_tool=False):
    condition = learn(found, one_tool=one_tool)
    return None if condition is None else condition.text


def below(a, b):
    """Whether path ``b`` is ``a`` or lies in it."""
    return f"{b}/".startswith(f"{a}/")


@pytest.mark.parametrize("one_tool", [False, True])
@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (lambda a, b: True, "always"),
        (lambda a, b: False, None),
        (lambda a, b: a != b, "a.path != b.path"),
        (lambda a, b: a == b, "a.path = b.path"),
    ],
)
def test_a_rule_of_equality_is_found(rule, text, one_tool):
    assert text_of(samples(rule), one_tool) == text


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (lambda a, b: not below(a, b), "a.folder is no path prefix of b.path"),
        (lambda a, b: not below(b, a), "b.path is no path prefix of a.folder"),
        (lambda a, b: not b.startswith(a), "a.folder is no text prefix of b.path"),
        (lambda a, b: below(a, b), "a.folder is a path prefix of b.path"),
        (
            lambda a, b: not below(a, b) and not below(b, a),
            "a.folder is no path prefix of b.path and b.path is no path prefix of a.folder",
        ),
        (
            lambda a, b: a == b or not below(a, b),
            "a.folder = b.path or a.folder is no path prefix of b.path",
        ),
    ],
)
def test_a_rule_of_prefixes_is_found(rule, text):
    assert text_of(samples(rule, first="folder")) == text


def test_of_two_calls_of_one_tool_neither_is_the_first():
    found = samples(lambda a, b: not below(a, b) and not below(b, a))
    text = "(a.path is no path prefix of b.path and b.path is no path prefix of a.path)"
    assert text_of(found, one_tool=True) == text
    condition = learn(found, one_tool=True)
    turned = [Sample(s.second, s.first, s.commuted, s.sources) for s in found]
    assert learn(turned, one_tool=True) == condition


def test_constants_must_occur_in_several_sources():
    def mode(a, b, source):
        arguments = as_arguments({"mode": a}), as_arguments({"mode": b})
        return Sample(*arguments, a == b == "read", frozenset([source]))

    found = [mode(a, b, s) for a in ("read", "w", "x") for b in ("read", "w", "x") for s in "pq"]
    assert text_of(found, one_tool=True) == '(a.mode = "read" and b.mode = "read")'
    assert text_of(found) == 'a.mode = b.mode and a.mode = "read"'
    once = [Sample(s.first, s.second, s.commuted, frozenset("p")) for s in found]
    assert '"' not in (text_of(once) or "")


def test_what_one_source_says_alone_is_no_condition():
    def one(path, commuted, source):
        return Sample(as_arguments({"path": path}), {}, commuted, frozenset([source]))

    found = [one("a", True, "p"), one("a", True, "p"), one("b", False, "q"), one("b", False, "r")]
    assert learn(found, one_tool=False) is None
    condition = learn([*found, one("a", True, "s")], one_tool=False)
    assert condition.text == 'a.path = "a"'


def test_where_arguments_say_nothing_there_is_no_condition():
    same = as_arguments({"path": "a"})
    assert (
        learn([Sample(same, same, c, frozenset("s")) for c in (True, False)], one_tool=False)
        is None
    )
    assert learn([], one_tool=False) is None


def test_a_missing_argument_equals_nothing():
    (term,) = learn(samples(lambda a, b: a != b), one_tool=False).terms
    assert term.holds({}, {})
    assert term.holds({}, as_arguments({"path": "a"}))


@settings(max_examples=60, deadline=None)
@given(SAMPLES, st.booleans())
def test_no_sample_contradicts_its_condition(found, one_tool):
    condition = learn(found, one_tool=one_tool)
    if condition is None:
        return
    held = [sample for sample in found if condition.holds(sample.first, sample.second)]
    assert held
    assert all(sample.commuted for sample in held)
    assert len(condition.terms) <= conditions.MAX_LITERALS
    if one_tool:
        assert all(condition.holds(s.second, s.first) for s in held)
    shuffled = random.Random(0).sample(found, len(found))
    assert learn(shuffled, one_tool=one_tool) == condition


@settings(max_examples=40, deadline=None)
@given(SAMPLES)
def test_what_is_tested_has_no_source_among_what_was_learned(found):
    sides = []

    class Spy(Condition):
        def holds(self, first, second):
            sides[-1][1].append(first["number"])
            return True

    def learned(seen, one_tool):
        sides.append(({source for sample in seen for source in sample.sources}, []))
        return Spy()

    numbered = [
        Sample(as_arguments({"number": n}), {}, sample.commuted, sample.sources)
        for n, sample in enumerate(found)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conditions, "learn", learned)
        tested = cross_test(numbered, one_tool=False)
    for seen, numbers in sides:
        assert all(not numbered[int(n)].sources & seen for n in numbers)
    every = [number for _, numbers in sides for number in numbers]
    assert len(every) == len(set(every)) == tested.always.total == tested.commuted.total
    assert tested.right.count == sum(numbered[int(n)].commuted for n in every)


def test_conditions_are_tested_on_other_sources():
    tested = cross_test(samples(lambda a, b: a != b), one_tool=False)
    assert tested.conditional == Proportion(30, 30)
    assert tested.covered == Proportion(30, 30)
    assert tested.commuted == Proportion(30, 36)
    one = [Sample(s.first, s.second, s.commuted, frozenset("s")) for s in samples(below)]
    assert cross_test(one, one_tool=False).commuted == NONE


def test_a_condition_that_is_wrong_elsewhere_is_counted_as_wrong():
    good, bad = (as_arguments({"path": path}) for path in ("a", "b"))
    found = [Sample(good, bad, True, frozenset([f"s{n}"])) for n in range(9)]
    found.append(Sample(bad, good, False, frozenset(["odd"])))
    tested = cross_test(found, one_tool=False)
    assert tested.always.total - tested.always.count == 1


@pytest.mark.parametrize(("count", "total"), [(0, 1), (0, 59), (1, 7), (5, 9), (29, 30), (4, 4)])
def test_bounds_are_those_of_clopper_and_pearson(count, total):
    exact = binomtest(count, total, alternative="less").proportion_ci(0.95, method="exact")
    assert Proportion(count, total).bound == pytest.approx(exact.high, abs=1e-9)
    assert NONE.bound == 1
