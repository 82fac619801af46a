"""Attacks on Lean: each through every door, past the grammar too; none is accepted, and none moves another verdict."""

from __future__ import annotations

from collections import Counter

import pytest

from lean_attacks import ATTACKS, Attack
from lean_doors import (
    LIMITS,
    Raw,
    by_certificate,
    by_deciding,
    by_step,
    good_certificate,
    good_digest,
    in_this_process,
)
from vcrt_lean import inprocess
from vcrt_lean.environment import LeanEnvironment

#: What may become of an attack that the grammar has seen, and of one that it has not.
#: (Without a verdict: a definition by recursion, which needs what the prelude does not have, is a named error.)
SEEN = {"grammar", "lean", "axioms", "limit", "no verdict"}
UNSEEN = {"lean", "axioms", "kernel", "limit", "no verdict"}
#: They run into the wall clock, twice: the second time in a new worker.
LONG = {"a name of 500 parts", "100 holes", "a small tower"}
QUICK = tuple(attack for attack in ATTACKS if attack.name not in LONG)
FAMILIES = sorted({attack.family for attack in ATTACKS})
CONTROLS = (
    Attack(family="control", name="a proof", text="theorem a1 (p : Prop) (x : p) : p := x"),
    Attack(family="control", name="a case", text="case a1 => exact hidden7", tactic=True),
)
#: What Lean itself takes for proved; nothing but the grammar and the second check of the kernel stands before them.
ACCEPTED_BY_LEAN = {
    "unsafe",
    "opaque with a value",
    "debug.skipKernelTC and a loop",
    "no axioms, traced",
    "no axioms, traced, of sorryAx",
}


@pytest.fixture(scope="module")
def environment():
    return LeanEnvironment(limits=LIMITS, recheck=True)


@pytest.fixture(scope="module")
def good(environment):
    return good_digest(environment.replay)


@pytest.fixture(scope="module")
def document():
    with pytest.MonkeyPatch.context() as patch:
        in_this_process(patch)
        return good_certificate()


@pytest.fixture(scope="module")
def raw():
    made = Raw()
    yield made
    made.elaborators.close()


def of(family):
    return [attack for attack in QUICK if attack.family == family]


def test_the_corpus_is_large_and_each_attack_is_one_of_its_own():
    assert len(ATTACKS) >= 200
    assert len({(attack.family, attack.name) for attack in ATTACKS}) == len(ATTACKS)
    assert len({attack.text for attack in ATTACKS}) == len(ATTACKS)


class TestDoors:
    @pytest.mark.parametrize("family", FAMILIES)
    def test_steps_of_an_episode(self, environment, good, family):
        for attack in of(family):
            found = dict(by_step(environment, attack))
            assert set(found.values()) <= SEEN, (attack.name, found)
            assert "no verdict" not in found.values() or attack.name == "nonterminating"
            if set(found.values()) != {"grammar"}:
                assert good_digest(environment.replay) == good, attack.name
        assert good_digest(environment.replay) == good

    @pytest.mark.parametrize(
        "every", [4, pytest.param(2, marks=pytest.mark.slow)], ids=["some", "more"]
    )
    def test_certificates(self, document, monkeypatch, tmp_path, every):
        in_this_process(monkeypatch)
        for attack in (*of("unproved"), *of("kernel off"), *QUICK[::8])[::every]:
            found = dict(by_certificate(document, attack, tmp_path))
            assert set(found.values()) <= SEEN, (attack.name, found)

    def test_what_is_decided_never_comes_to_lean(self, monkeypatch):
        def started(*_):
            raise AssertionError("a Lean process was started")

        monkeypatch.setattr(inprocess, "BoundedProcess", started)
        monkeypatch.setattr("vcrt_lean.judging.run_lean", started)
        for attack in ATTACKS:
            found = dict(by_deciding(attack))
            assert set(found.values()) <= {"grammar", "not run"}, (attack.name, found)

    def test_these_tests_would_see_what_is_accepted(
        self, environment, document, monkeypatch, tmp_path
    ):
        in_this_process(monkeypatch)
        proof, case = CONTROLS
        assert dict(by_step(environment, proof))["step/declaration"] == "accepted"
        assert dict(by_step(environment, case))["step/tactic"] == "accepted"
        steps = document["episode"]["operations"]
        own = Attack(family="control", name="its own", text=steps[0]["payload"])
        assert dict(by_certificate(document, own, tmp_path))["certificate/step 0"] == "accepted"

    @pytest.mark.slow
    def test_attacks_that_take_long(self, environment, good):
        for attack in ATTACKS:
            if attack.name in LONG:
                assert set(dict(by_step(environment, attack)).values()) <= SEEN
                assert good_digest(environment.replay) == good


class TestPastTheGrammar:
    def test_what_lean_itself_accepts_the_kernel_alone_refuses(self, raw):
        before = raw.environment(), good_digest(raw.replay)
        for attack in ATTACKS:
            if attack.name in ACCEPTED_BY_LEAN:
                found = dict(raw.outcomes(attack, everywhere=False))
                assert found == {"raw/declaration": "kernel"}, attack.name
        assert (raw.environment(), good_digest(raw.replay)) == before

    def test_controls_are_accepted(self, raw):
        for control in CONTROLS:
            assert "accepted" in dict(raw.outcomes(control)).values()

    def test_some_attacks_between_good_episodes(self, raw):
        no_text = [attack for attack in ATTACKS if attack.name == "a lone surrogate"]
        assert no_text
        self.check(raw, of("kernel off")[:3] + of("axioms")[:2] + of("classes")[:3] + no_text)

    @pytest.mark.slow
    def test_every_attack_between_good_episodes(self, raw):
        outcomes = self.check(raw, QUICK, at_a_time=4)
        assert outcomes["kernel"] == len(ACCEPTED_BY_LEAN)

    def check(self, raw, attacks, *, at_a_time=1):
        """A few attacks at a time in one worker with good episodes around them."""
        outcomes = Counter()
        before = raw.environment(), good_digest(raw.replay)
        for start in range(0, len(attacks), at_a_time):
            some = attacks[start : start + at_a_time]
            for attack in some:
                for place, found in raw.outcomes(attack, everywhere=False):
                    assert found in UNSEEN, (attack.name, place, found)
                    outcomes[found] += 1
            after = raw.environment(), good_digest(raw.replay)
            assert after == before, [attack.name for attack in some]
        return outcomes
