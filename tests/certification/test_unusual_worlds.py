"""Random worlds of unusual values against brute force; and what is asked afterwards, where the bytes forget."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from unusual_worlds import KINDS, Unusual, calls_of, differ
from vcrt.calls.call_logs import Trace
from vcrt.calls.log_lifting import run_trace
from vcrt.calls.schedules import schedule_of
from vcrt.certificates.episodes import (
    ANY_PRESET,
    CertifiedEpisode,
    Exclusion,
    certify_episode,
)
from vcrt.certificates.probes import probed_pair, probed_pairs
from vcrt.environments.guarding import make_guarded
from vcrt.environments.tool_calls import Call
from vcrt.errors import MalformedInputError
from vcrt.replay.evidence import evidence_from_json
from vcrt.replay.shards import difference_of, evidence_of, replays_of

#: What cannot be read, or lies where no replay puts it back. (Copies of "labelled" arrays lose what they hold.)
HIDDEN = {"counted", "closure", "iterator", "view"}


def said_of(environment, kind, calls):
    """What vcrt says of two calls: that they commute, that they do not, or why it refuses them."""
    try:
        return "equal" if commute(environment, kind, calls) else "apart"
    except MalformedInputError as error:
        return str(error)


def commute(environment, kind, calls):
    """Whether vcrt says that the two calls commute; both replays must say the same."""
    made = tuple(Call(name, arguments) for name, arguments in calls)
    trace = Trace(name="trace", calls=made, places=("call 0", "call 1"), initial=kind)
    (window,) = run_trace(environment, trace, 0, source="test").windows
    (first,) = replays_of(environment, [window.episode])
    (second,) = replays_of(environment, [window.episode], backwards=True)
    assert difference_of(first, second) is None
    return not schedule_of(first.tree).edges


@pytest.mark.parametrize("worlds", [102, pytest.param(408, marks=pytest.mark.slow)])
def test_random_worlds_agree_with_brute_force_or_are_refused_by_their_place(worlds):
    draw, environment = random.Random(40), make_guarded(Unusual)
    found = Counter()
    for number in range(worlds):
        kind = list(KINDS)[number % len(KINDS)]
        calls = calls_of(draw)
        said = said_of(environment, kind, calls)
        found[said if said in ("apart", "equal") else "refused"] += 1
        if kind in {*HIDDEN, "labelled"} and said not in ("apart", "equal"):
            assert "state" in said
        else:
            assert said == ("apart" if differ(kind, calls) else "equal"), (kind, calls)
    assert found["apart"] > 0.34 * worlds
    assert found["equal"] > 0.24 * worlds
    assert 0.06 * worlds < found["refused"] <= worlds * (len(HIDDEN) + 1) // len(KINDS)


@pytest.mark.parametrize("kind", sorted(HIDDEN - {"counted"}))
def test_what_cannot_be_read_is_refused(kind):
    with pytest.raises(MalformedInputError) as refused:
        commute(make_guarded(Unusual), kind, [("make", {"place": "a", "n": 0}), ("look", {})])
    assert refused.value.where.endswith(("state.a", "state.b"))


class Forgetful(Unusual):
    """Its bytes leave out what the places name, so that only further calls can tell."""

    name = "forgetful"

    def canonical(self, state):
        return type(state).__name__.encode()


def judged(environment, kind, calls, others=()):
    made = tuple(Call(name, arguments) for name, arguments in calls)
    trace = Trace(
        name="t", calls=made, places=tuple(f"call {n}" for n in range(len(made))), initial=kind
    )
    further = [Call(name, arguments) for name, arguments in others]
    (window,) = run_trace(environment, trace, 0, source="test", others=further).windows
    (evidence,) = evidence_of(environment, [window.episode], sampled=False, backwards=False)
    outcome = certify_episode(
        evidence.replays, environment.versions(), ANY_PRESET, evidence.cross_checks
    )
    return evidence, outcome


MAKES = [("make", {"place": "a", "n": 1}), ("make", {"place": "a", "n": 2})]


def test_what_bytes_forget_is_found_by_calls_that_look():
    environment = make_guarded(Forgetful)
    _, unseen = judged(environment, "deque", MAKES)
    assert not isinstance(unseen, Exclusion)
    evidence, outcome = judged(environment, "deque", MAKES, [("look", {})])
    assert isinstance(outcome, Exclusion)
    assert outcome.kind == "unequal_futures"
    assert "look()" in outcome.detail
    assert "after [0, 1]" in outcome.detail
    (check,) = evidence.cross_checks
    assert (probed_pair(check), check.checked - check.agreed) == ((0, 1), 1)


def test_each_pair_says_how_many_calls_stand_behind_it():
    environment = make_guarded(Unusual)
    calls = [*MAKES[:1], ("make", {"place": "b", "n": 2}), ("look", {}), ("same", {})]
    evidence, outcome = judged(environment, "deque", calls, [("poke", {"place": "a", "n": 3})])
    assert isinstance(outcome, CertifiedEpisode)
    probed = probed_pairs(evidence.cross_checks)
    assert set(probed) == {(0, 1), (0, 3), (1, 3), (2, 3)}
    assert set(probed.values()) == {5}
    again = evidence_from_json(evidence.to_json())
    assert again == evidence


def test_the_calls_that_may_be_made_are_shared_between_pairs():
    class Sparing(Unusual):
        max_probes = 3

    calls = [("look", {}), ("same", {}), ("peek", {}), ("glance", {})][:2]
    evidence, _ = judged(make_guarded(Sparing), "deque", [*calls, *MAKES[:1]])
    assert sum(check.checked for check in evidence.cross_checks) <= 3

    class Silent(Unusual):
        max_probes = 0

    evidence, _ = judged(make_guarded(Silent), "deque", MAKES)
    assert not evidence.cross_checks


def test_a_tool_that_breaks_where_it_was_never_called_is_an_answer():
    class Frail(Forgetful):
        def call(self, state, name, arguments):
            if name == "again" and getattr(state, "done", False):
                raise KeyError("done")
            state.done = state.done + 1 if hasattr(state, "done") else 1
            return None if name == "again" else super().call(state, name, arguments)

    _, outcome = judged(make_guarded(Frail), "deque", [*MAKES, ("look", {})], [("again", {})])
    assert isinstance(outcome, Exclusion)


def test_a_call_that_only_reads_is_made_with_every_argument_that_was_seen():
    class Looking(Forgetful):
        def call(self, state, name, arguments):
            if name == "at":
                return repr(getattr(state, arguments["place"]))
            return super().call(state, name, arguments)

    # The log looks at b alone, and changes a.
    _, outcome = judged(make_guarded(Looking), "suit", MAKES, [("at", {"place": "b"})])
    assert not isinstance(outcome, Exclusion)
    calls = [("at", {"place": "b"}), *MAKES]
    _, outcome = judged(make_guarded(Looking), "deque", calls)
    assert isinstance(outcome, Exclusion)
    assert 'at(place="a")' in outcome.detail


#: Two calls of one order each, and a third one tells: as reports had them, in one wave.
APART = {
    "which of the keys is named": ("stock", "make", 1, "make", 4),
    "a factory": ("default", "make", 0, "make", 1),
    "an attribute of a number": ("money", "poke", 3, "poke", 4),
    "a zone of one offset": ("time", "make", 1, "make", 4),
    "a zone of one name": ("clock", "make", 2, "make", 3),
    "a shared array": ("sealed", "link", None, "copy", None),
    "a shared buffer": ("array", "link", None, "copy", None),
    "what may be written": ("bytes", "make", 0, "make", 1),
    "one source of numbers": ("random", "link", None, "copy", None),
    "fold": ("fold", "make", 0, "make", 1),
    "what lies under a mask": ("masked", "make", 1, "make", 2),
    "a flag without a name": ("access", "make", 1, "make", 2),
}


@pytest.mark.parametrize("name", APART)
def test_two_calls_that_a_third_one_tells_apart_do_not_commute(name):
    kind, one, first, other, second = APART[name]
    calls = [
        (call, {"place": "b", **({} if number is None else {"n": number})})
        for call, number in ((one, first), (other, second))
    ]
    assert differ(kind, calls)
    assert said_of(make_guarded(Unusual), kind, calls) == "apart"
