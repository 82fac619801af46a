"""The conformance kit passes a sound environment and names what is wrong with each mutant."""

from __future__ import annotations

import itertools

import pytest

import toy_environment as toy
from vcrt.environments.conformance import validate
from vcrt.environments.registry import environment_names, load_environment
from vcrt.errors import UnknownNameError
from vcrt.hashing import canonical_json


class CoarseHash(toy.ToyEnvironment):
    """Its hash forgets the values until most variables are there, so that equal hashes have different futures."""

    def canonical(self, state):
        return canonical_json(state if len(state) > 3 else sorted(state))


class UnstableVersions(toy.ToyEnvironment):
    counter = itertools.count()

    def versions(self):
        from dataclasses import replace

        return replace(super().versions(), adapter=str(next(self.counter)))


class UnseededSample(toy.ToyEnvironment):
    counter = itertools.count()

    def sample(self, schema, seed):
        return super().sample(schema, next(self.counter))


class ForgetfulReplay(toy.ToyEnvironment):
    """Looks at the length of the whole sequence, so that a prefix and its continuation disagree."""

    def _replay_one(self, request):
        from dataclasses import replace

        from vcrt.hashing import sha256_hex

        answer = super()._replay_one(request)
        salt = str(len(request.sequence))
        return replace(
            answer,
            state_hashes=tuple(sha256_hex((h + salt).encode()) for h in answer.state_hashes),
        )


class RefusedLater(toy.ToyEnvironment):
    """Refuses whole orders that begin with step 1, although it accepts the prefix (1, 0) by itself."""

    def _replay_one(self, request):
        from vcrt.environments.contract import Rejected, Replay

        answer = super()._replay_one(request)
        if len(request.sequence) == 4 and request.sequence[0] == 1:
            return Replay(answer.sequence, answer.state_hashes[:2], Rejected("not so soon"))
        return answer


class OneTwinRefused(toy.ToyEnvironment):
    """Refuses one of two orders as a whole that reach the same states."""

    def _replay_one(self, request):
        from vcrt.environments.contract import Rejected, Replay

        answer = super()._replay_one(request)
        if request.sequence == (1, 0, 2, 3):
            return Replay(answer.sequence, answer.state_hashes, Rejected("not as a whole"))
        return answer


class StepDisagrees(toy.ToyEnvironment):
    def step(self, state, operation):
        from vcrt.environments.contract import Rejected

        return Rejected("single steps are refused")

    def _replay_one(self, request):
        return toy.ToyEnvironment()._replay_one(request)


def problems(environment):
    return {finding.check for finding in validate(environment) if not finding.passed}


def test_a_sound_environment_passes():
    findings = validate(toy.ToyEnvironment())
    assert [f for f in findings if not f.passed] == []
    assert {f.subject for f in findings} == {"toy", "toy/needs", "toy/overwrite"}


@pytest.mark.parametrize(
    ("mutant", "check"),
    [
        (CoarseHash, "equal states have equal futures"),
        (UnstableVersions, "versions are stable"),
        (UnseededSample, "sampling is a function of the seed"),
        (toy.SameContent, "sampling is a function of the seed"),
        (ForgetfulReplay, "replays agree on their prefixes"),
        (toy.DisagreeingSecondOpinion, "second opinions agree"),
        (RefusedLater, "replays agree on their prefixes"),
        (OneTwinRefused, "equal states have equal futures"),
        (StepDisagrees, "single steps agree with replays"),
        (toy.Idle, "every step changes the state"),
        (toy.SameSignatures, "episodes are well formed"),
        (toy.NoProvenance, "episodes are well formed"),
        (toy.ReplayDependent, "replay is deterministic"),
        (toy.AlwaysAccepts, "some order is refused or ends elsewhere"),
        (toy.AlwaysRejects, "the reference order is accepted"),
    ],
)
def test_each_mutant_is_named(mutant, check):
    assert check in problems(mutant())


def test_the_three_environments_are_registered():
    assert {"clrs", "lean", "proofwriter"} <= set(environment_names())
    with pytest.raises(UnknownNameError, match="did you mean 'clrs'"):
        load_environment("clr")


@pytest.mark.parametrize("name", ["clrs", "lean", "proofwriter"])
def test_each_environment_passes(name):
    environment = load_environment(name)
    findings = validate(environment, seeds=(11, 12))
    assert [f for f in findings if not f.passed] == []
    relations = {schema.relation for schema in environment.schemas}
    assert relations == {"precedes", "conflicts"}
