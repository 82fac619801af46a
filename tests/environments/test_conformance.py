"""The conformance kit passes a sound environment and names what is wrong with each mutant."""

from __future__ import annotations

import io
import itertools
from dataclasses import replace

import pytest
from rich.console import Console

import toy_environment as toy
from vcrt.api.listing import validate_environment
from vcrt.cli.environments import say_validation
from vcrt.environments.conformance import validate
from vcrt.environments.contract import Accepted, Operation, Rejected, StepEnvironment
from vcrt.environments.registry import environment_names, load_environment, make_environment
from vcrt.errors import UnavailableError, UnknownNameError, VcrtError, VerifierFailure
from vcrt.hashing import canonical_json, sha256_hex


class CoarseHash(toy.ToyEnvironment):
    """Its hash forgets the values until most variables are there, so that equal hashes have different futures."""

    def canonical(self, state):
        return canonical_json(state if len(state) > 3 else sorted(state))


class UnstableVersions(toy.ToyEnvironment):
    counter = itertools.count()

    def versions(self):
        return replace(super().versions(), adapter=str(next(self.counter)))


class UnseededSample(toy.ToyEnvironment):
    counter = itertools.count()

    def sample(self, schema, seed):
        return super().sample(schema, next(self.counter))


class ForgetfulReplay(toy.ToyEnvironment):
    """Looks at the length of the whole sequence, so that a prefix and its continuation disagree."""

    def _replay_one(self, request):
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


class ChangesInPlace(toy.ToyEnvironment):
    """Each replay begins with a fresh state, so that only stepping twice from one state shows it."""

    def step(self, state, operation):
        answer = super().step(state, operation)
        if isinstance(answer, Accepted):
            state.update(answer.state)
            return Accepted(state)
        return answer


class ChangesWhatItShares(toy.ToyEnvironment):
    """A new outer state around one inner dictionary, which a later step changes."""

    def initial_state(self, episode):
        return ({"start": episode.initial["start"]},)

    def step(self, state, operation):
        answer = super().step(state[0], operation)
        if isinstance(answer, Rejected):
            return answer
        state[0].update(answer.state)
        return Accepted((state[0],))

    def canonical(self, state):
        return super().canonical(state[0])


class NotJson(toy.ToyEnvironment):
    """A set is no JSON, and a number as a key becomes a text."""

    def sample(self, schema, seed):
        return replace(super().sample(schema, seed), initial={"start": {seed}})

    def initial_state(self, episode):
        return {"start": sorted(episode.initial["start"])}


class NumbersAsKeys(toy.ToyEnvironment):
    """JSON makes texts of its keys, so that the episode that is read back starts elsewhere."""

    def sample(self, schema, seed):
        return replace(super().sample(schema, seed), initial={seed: "start"})

    def initial_state(self, episode):
        return {"start": sum(key for key in episode.initial if isinstance(key, int))}


class WithoutReason(toy.ToyEnvironment):
    def step(self, state, operation):
        answer = super().step(state, operation)
        return Rejected("") if isinstance(answer, Rejected) else answer


class OtherHashes(toy.ToyEnvironment):
    """A replay of its own that accepts what the steps accept, but hashes another canonical form."""

    def _replay_one(self, request):
        answer = super()._replay_one(request)
        hashes = tuple(sha256_hex(h.encode()) for h in answer.state_hashes)
        return replace(answer, state_hashes=hashes)


class OneSeedForAll(toy.ToyEnvironment):
    def sample(self, schema, seed):
        episode = super().sample(schema, seed)
        return replace(episode, provenance=replace(episode.provenance, seed=7))


class Undeclared(toy.ToyEnvironment):
    """Says ``precedes`` of the schema that certification finds to be ``conflicts``."""

    schemas = (replace(toy.ToyEnvironment.schemas[1], relation="precedes"),)


class TwoDependentPairs(toy.ToyEnvironment):
    def sample(self, schema, seed):
        episode = super().sample(schema, seed)
        pairs = [("a", []), ("b", ["a"]), ("c", []), ("d", ["c"])]
        operations = tuple(
            Operation(signature=n, payload={"needs": needs, "writes": n, "value": seed})
            for n, needs in pairs
        )
        return replace(episode, operations=operations)


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
        (toy.Idle, "every step has an effect"),
        (toy.SameSignatures, "episodes are well formed"),
        (toy.NoProvenance, "episodes are well formed"),
        (toy.ReplayDependent, "replay is deterministic"),
        (toy.AlwaysAccepts, "some order is refused or ends elsewhere"),
        (toy.AlwaysRejects, "the reference order is accepted"),
        (ChangesInPlace, "a step leaves its state as it was"),
        (ChangesWhatItShares, "a step leaves its state as it was"),
        (NotJson, "an episode's JSON is enough to replay it"),
        (NumbersAsKeys, "an episode's JSON is enough to replay it"),
        (WithoutReason, "refusals give a reason"),
        (OtherHashes, "single steps agree with replays"),
        (OneSeedForAll, "sampling is a function of the seed"),
    ],
)
def test_each_mutant_is_named(mutant, check):
    assert check in problems(mutant())


def test_a_step_in_place_is_found_by_single_steps_alone():
    """Why the checks are there: replays alone, which start afresh each time, cannot tell."""
    found = {"a step leaves its state as it was", "single steps agree with replays"}
    assert problems(ChangesInPlace()) == found


def test_an_environment_that_skips_answers_is_an_error():
    with pytest.raises(VerifierFailure, match="did not answer each replay request"):
        validate(toy.SkipsAnswers())


def test_what_is_found_is_said_in_steps_and_answers():
    (finding,) = (
        f
        for f in validate(CoarseHash())
        if not f.passed and f.check == "equal states have equal futures"
    )
    assert finding.problem.startswith("[step ")
    assert "end in states of one hash; then [step " in finding.problem
    assert "accepted in state" in finding.problem
    assert finding.remedy.startswith("canonical() leaves out something")


def printed(environment, name="toy"):
    """What the command prints about an environment, and the error it ends with."""
    text = io.StringIO()
    error = None
    try:
        found = validate_environment(name, environments={name: type(environment)})
        say_validation(Console(file=text, width=120), name, found)
    except VcrtError as raised:
        error = str(raised)
    return text.getvalue(), error


def test_the_command_explains_each_failure():
    text, error = printed(toy.ToyEnvironment())
    assert (error, "to mend" in text, "0 of" in text) == (None, False, False)
    text, error = printed(toy.Idle())
    assert (
        "every step has an effect (toy/needs)\n  found: [step 2] changes nothing and has no output, run first"
        in text
    )
    assert "  to mend: either the operation does nothing here" in text
    assert "no_effect: step" in text
    assert "│ every step has an effect                 │ 0 of 2 │ toy/needs, toy/overwrite" in text
    assert f"{text.count('to mend:')} of 32 checks failed" in error


@pytest.mark.parametrize(
    ("mutant", "name", "found"),
    [
        (Undeclared, "toy", "found: ['conflicts'], not 'precedes'"),
        (TwoDependentPairs, "toy", "found: outside_schema: 6 legal orders"),
        (toy.ContextDependent, "toy", "found: context_dependent: operations (0, 1)"),
        (toy.ToyEnvironment, "other", "found: its class says 'toy'"),
    ],
)
def test_what_only_the_command_finds(mutant, name, found):
    text, error = printed(mutant(), name)
    assert found in text
    assert "does not conform" in error


def test_the_three_environments_are_registered():
    assert {"clrs", "lean", "proofwriter"} <= set(environment_names())
    with pytest.raises(UnknownNameError, match="did you mean 'clrs'"):
        load_environment("clr")


@pytest.mark.parametrize("name", ["clrs", "proofwriter"])
def test_environments_pass_a_quick_look(name):
    findings = validate(load_environment(name), seeds=(11, 12), quick=True)
    assert [f for f in findings if not f.passed] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["clrs", pytest.param("lean", marks=pytest.mark.nightly), "proofwriter"]
)
def test_each_environment_passes(name):
    environment = load_environment(name)
    findings = validate(environment, seeds=(11, 12))
    assert [f for f in findings if not f.passed] == []
    relations = {schema.relation for schema in environment.schemas}
    assert relations >= {"precedes", "conflicts"}


class _ReturnsDict(toy.ToyEnvironment):
    def step(self, state, operation):
        return {"next": state}


class _Raises(toy.ToyEnvironment):
    def step(self, state, operation):
        return {}["missing"]


class _Text(toy.ToyEnvironment):
    def canonical(self, state):
        return "no bytes"


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (_ReturnsDict, "found dict, expected Accepted(state) or Rejected(reason)"),
        (_Raises, "KeyError: 'missing' (test_conformance.py:"),
        (_Text, "found str, expected bytes"),
    ],
)
def test_a_class_that_breaks_is_a_finding_and_no_traceback(broken, said):
    failed = [finding for finding in validate(broken()) if not finding.passed]
    assert {finding.check for finding in failed} == {"its methods answer"}
    assert all(said in finding.problem for finding in failed)


class _NoSecondOpinion(toy.ToyEnvironment):
    def cross_check(self, episode):
        raise KeyError("no engine")


def test_what_breaks_in_certification_is_a_finding_too():
    text, error = printed(_NoSecondOpinion())
    assert "KeyError: 'no engine' (environment 'toy', toy/needs/0, second opinion; " in text
    assert "test_conformance.py:" in text
    assert "does not conform" in error


def test_a_class_that_cannot_be_made_is_named():
    class Unfinished(StepEnvironment):
        name, schemas = "unfinished", ()

    with pytest.raises(UnavailableError, match="abstract methods") as raised:
        make_environment("unfinished", Unfinished)
    assert "every method of the contract" in raised.value.expected
    with pytest.raises(UnavailableError, match="by an instance"):
        make_environment("toy", toy.ToyEnvironment())
