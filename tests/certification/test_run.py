"""Certificates, relations and exclusions, on a toy environment and its mutants."""

from __future__ import annotations

from itertools import count, permutations

import pytest

import toy_environment as toy
from vcrt.certificates.certificates import certificates
from vcrt.certificates.episodes import PAPER_PRESET, CertifiedEpisode, certify_episode
from vcrt.environments.contract import CrossCheck, Rejected, Replay
from vcrt.errors import MalformedInputError, UnknownNameError, VerifierFailure
from vcrt.replay.config import given, sampled
from vcrt.replay.lattice_replay import replay_merged
from vcrt.replay.replay import replay_exhaustively, replay_from_json, replay_to_json
from vcrt.replay.run import certify
from vcrt.replay.shards import certify_again


def certified(environment, schema="needs", seed=0):
    episode = environment.sample(schema, seed)
    (evidence,) = replay_exhaustively(environment, [episode])
    return certify_episode(evidence, environment.versions(), PAPER_PRESET)


@pytest.fixture
def run(tmp_path):
    """Certify toy episodes, each call from nothing."""
    calls = count()

    def certified_schemas(kind, jobs=2, schemas=("needs", "overwrite"), count=5, seed=0):
        config = sampled({"toy": schemas}, count, seed=seed)
        directory = tmp_path / f"shards-{next(calls)}"
        return certify(config, directory, jobs=jobs, factories={"toy": kind})

    return certified_schemas


def results(schemas):
    return [
        (list(s.episodes()), s.exclusions, s.num_candidates, s.second_opinions) for s in schemas
    ]


@pytest.mark.parametrize("schema", ["needs", "overwrite"])
@pytest.mark.parametrize("seed", range(6))
def test_one_anti_diamond_and_five_diamonds(schema, seed):
    environment = toy.ToyEnvironment()
    outcome = certified(environment, schema, seed)
    assert isinstance(outcome, CertifiedEpisode)
    kinds = [relation.kind for relation in outcome.relations]
    expected = {"needs": "precedes", "overwrite": "conflicts"}[schema]
    assert sorted(kinds) == sorted([expected] + ["commutes"] * 5)
    (anti,) = [r for r in outcome.relations if r.kind != "commutes"]
    brute_force = [o for o in permutations(range(4)) if o.index(anti.first) < o.index(anti.second)]
    assert list(outcome.orbit) == brute_force


def test_every_certificate_holds_the_transitions_that_the_environment_gives():
    environment = toy.ToyEnvironment()
    outcome = certified(environment)
    episode = outcome.episode
    assert len({(c.context, c.pair) for c in outcome.certificates}) == len(outcome.certificates)
    vacuous = 0
    for certificate in outcome.certificates:
        for path in (certificate.forward, certificate.reverse):
            state = environment.initial_state(episode)
            answers = []
            for index in (*certificate.context, *path.operations):
                answer = environment.step(state, episode.operations[index])
                answers.append(answer)
                if isinstance(answer, Rejected):
                    break
                state = answer.state
            if path.accepted:
                assert len(answers) == len(certificate.context) + 2
            else:
                assert path.rejection == answers[-1].reason
        vacuous += certificate.verdict == "vacuous"
    # In the context where the needed step has not run, the pair (dependent, other) is blocked both ways.
    assert vacuous > 0


def test_vacuous_contexts_label_nothing():
    outcome = certified(toy.ToyEnvironment())
    blocked = [c for c in outcome.certificates if c.verdict == "vacuous"]
    for certificate in blocked:
        labels = {
            c.verdict
            for c in outcome.certificates
            if c.pair == certificate.pair and c.verdict != "vacuous"
        }
        assert len(labels) == 1


def test_a_sequence_refused_as_a_whole_blames_its_last_step():
    episode = toy.ToyEnvironment().sample("needs", 0)
    hashes = {o: str(sorted(o)) for n in range(5) for o in permutations(range(4), n)}
    replays = []
    for order in permutations(range(4)):
        states = tuple(hashes[order[:k]] for k in range(5))
        late = order[-1] == 0
        replays.append(Replay(order, states, Rejected("late") if late else None))
    from vcrt.certificates.replay_tree import EpisodeReplays

    found = certificates(EpisodeReplays.of_every_order(episode, tuple(replays)))
    last = [c for c in found if len(c.context) == 2 and 0 in c.pair]
    assert last
    assert all(c.verdict == "precedes" and c.before == 0 for c in last)


#: A mutant that asks in which process it is, or by what chance that differs.
OF_PROCESSES = pytest.mark.processes
MUTANTS = [
    (toy.Idle, "no_effect"),
    (toy.SameSignatures, "ambiguous_correspondence"),
    (toy.NoProvenance, "missing_provenance"),
    (toy.AlwaysAccepts, "outside_schema"),
    (toy.AlwaysRejects, "outside_schema"),
    (toy.ContextDependent, "context_dependent"),
    pytest.param(toy.ProcessDependent, "nondeterministic", marks=OF_PROCESSES),
    (toy.ReplayDependent, "nondeterministic"),
    pytest.param(toy.ChangingVersions, "version_disagreement", marks=OF_PROCESSES),
    (toy.DisagreeingSecondOpinion, "second_opinion"),
    (toy.Forgetful, "unequal_futures"),
    (toy.Aliasing, "outside_schema"),  # what its first replay shares, it has changed in place
    (toy.LearnsFromOthers, "nondeterministic"),
    (toy.CountsEpisodes, "nondeterministic"),
    pytest.param(toy.SamplesAtRandom, "nondeterministic", marks=OF_PROCESSES),
    (toy.ForgetsTheOnlyStep, "unequal_futures"),
    (toy.NeverRefuses, "outside_schema"),
]


@pytest.mark.parametrize(("mutant", "kind"), MUTANTS)
def test_mutants_are_excluded_by_name_and_yield_no_certificate(mutant, kind, run):
    schema = "overwrite" if mutant is toy.Forgetful else "needs"
    with pytest.raises(MalformedInputError, match="too few episodes") as caught:
        run(mutant, jobs=1, schemas=(schema,), count=1)
    assert f"left out as {kind}:" in str(caught.value)


@pytest.mark.parametrize("mutant", [toy.SameContent, toy.CosmeticDuplicates])
def test_duplicates_are_counted_and_left_out(mutant, run):
    with pytest.raises(MalformedInputError, match="left out as duplicate"):
        run(mutant, schemas=("needs",), count=2)


@pytest.mark.parametrize(
    ("mutant", "message"),
    [
        (toy.DyingVerifier, "verifier died"),
        pytest.param(toy.KilledProcess, "worker process died twice", marks=pytest.mark.processes),
        (toy.SkipsAnswers, "in due form"),
        (toy.BreaksTheSecondTime, "died the second time"),
        (toy.Breaks, r"(?s)without an answer.*toy/needs/\d+, step 'step 0'.*KeyError"),
        (toy.ChangesEpisodes, "changed the episode"),
        (toy.RenamesSteps, "changed the episode"),
        (toy.SamplesAnother, "sampled another episode"),
        (toy.SamplesOneSeed, "sampled another episode"),
    ],
)
def test_a_broken_verifier_is_an_error_and_never_a_verdict(mutant, message, run):
    with pytest.raises(VerifierFailure, match=message):
        run(mutant, schemas=("needs",), count=1)


def test_answers_to_other_episodes_are_never_certified(run):
    with pytest.raises(VerifierFailure, match="each replay request in turn"):
        run(toy.SwapsEpisodes, schemas=("needs",), count=1)


@pytest.mark.parametrize("name", toy.MALFORMED_ANSWERS)
def test_answers_of_another_form_are_errors(name):
    environment = toy.answering(toy.MALFORMED_ANSWERS[name])()
    episodes = [toy.ToyEnvironment().sample("needs", 0)]
    with pytest.raises(VerifierFailure, match="in due form"):
        replay_exhaustively(environment, episodes)
    with pytest.raises(VerifierFailure, match="in due form"):
        replay_merged(environment, episodes)


@pytest.mark.parametrize(
    "opinions", [[], None, [()] * 3, [(CrossCheck("x", -3, -3),)], [(CrossCheck("x", 1, 2),)]]
)
def test_second_opinions_of_another_form_are_errors(opinions, monkeypatch):
    monkeypatch.setattr(toy.ToyEnvironment, "cross_check_all", lambda *arguments: opinions)
    episode = toy.ToyEnvironment().sample("needs", 0)
    with pytest.raises(VerifierFailure, match="second opinion that is not in due form"):
        certify_again(toy.ToyEnvironment, [episode], PAPER_PRESET)


def test_backwards_replay_asks_for_the_same_in_another_succession():
    asked = []

    class Noting(toy.InBatches):
        def replay(self, requests):
            asked.extend((r.episode.provenance.seed, r.sequence) for r in requests)
            return super().replay(requests)

    episodes = [toy.ToyEnvironment().sample("needs", seed) for seed in range(3)]
    forwards = replay_exhaustively(Noting(), episodes)
    first, asked[:] = list(asked), []
    assert replay_exhaustively(Noting(), episodes, backwards=True) == forwards
    assert sorted(asked) == sorted(first)
    assert asked[0] == (2, (3, 2, 1, 0))
    assert asked[1] == (1, (3, 2, 1, 0))


def test_a_schema_may_not_stand_twice():
    with pytest.raises(MalformedInputError, match="named twice"):
        sampled({"toy": ("needs", "needs")}, 1)


def test_the_result_does_not_depend_on_the_number_of_workers(run):
    one = results(run(toy.ToyEnvironment, jobs=1, count=13))
    three = results(run(toy.ToyEnvironment, jobs=3, count=13))
    assert one == three
    assert [len(episodes) for episodes, *_ in one] == [13, 13]
    assert results(run(toy.ToyEnvironment, jobs=1, count=13, seed=1)) != one


def test_a_longer_run_begins_with_the_shorter_one(run):
    short, long = run(toy.ToyEnvironment, count=5), run(toy.ToyEnvironment, count=12)
    assert [list(s.episodes()) for s in short] == [list(s.episodes())[:5] for s in long]


def test_unknown_names_are_refused_before_any_work(run, tmp_path):
    with pytest.raises(UnknownNameError, match="did you mean 'needs'"):
        run(toy.ToyEnvironment, schemas=("need",))
    with pytest.raises(UnknownNameError, match="unknown environment 'tyo'"):
        certify(sampled({"tyo": ("needs",)}, 1), tmp_path / "shards", jobs=1)
    assert not (tmp_path / "shards").exists()


def test_replays_round_trip_through_json():
    episode = toy.ToyEnvironment().sample("needs", 3)
    (evidence,) = replay_exhaustively(toy.ToyEnvironment(), [episode])
    for replay in evidence.replays:
        assert replay_from_json(replay_to_json(replay)) == replay
    with pytest.raises(MalformedInputError, match="not a replay"):
        replay_from_json({"order": "0123"})


@pytest.mark.parametrize("schema", ["needs", "overwrite"])
def test_merged_replay_gives_what_exhaustive_replay_gives_with_a_third_of_the_transitions(schema):
    episodes = [toy.ToyEnvironment().sample(schema, seed) for seed in range(5)]
    for environment in (toy.ToyEnvironment(), toy.InBatches()):
        assert replay_merged(environment, episodes) == replay_exhaustively(environment, episodes)
    steps = []

    class Counting(toy.ToyEnvironment):
        def step(self, state, operation):
            steps.append(operation)
            return super().step(state, operation)

    for episode in episodes:
        steps.clear()
        replay_merged(Counting(), [episode])
        # The lattice of subsets has 32 edges, the tree of orders 64; conflicts split a context in two.
        assert len(steps) <= 32 + 12 * (schema == "overwrite")


def test_merged_replay_of_a_forgetful_canonical_form_differs_from_exhaustive_replay():
    environment = toy.Forgetful()
    episode = environment.sample("overwrite", 0)
    (merged,) = replay_merged(environment, [episode])
    assert [merged] != replay_exhaustively(environment, [episode])


def test_merged_replay_notices_a_verifier_that_changes_its_mind():
    with pytest.raises(VerifierFailure, match="answered differently"):
        replay_merged(toy.Fickle(), [toy.ToyEnvironment().sample("needs", 0)])


def test_given_episodes_are_certified_and_all_of_them_accounted_for(tmp_path):
    environment = toy.ToyEnvironment()
    episodes = [environment.sample("needs", seed) for seed in range(13)]
    broken = toy.SameSignatures().sample("needs", 99)
    (schema,) = certify(
        given([*episodes, broken, episodes[0]]),
        tmp_path / "shards",
        jobs=2,
        factories={"toy": toy.ToyEnvironment},
    )
    assert [e.episode for e in schema.episodes()] == episodes
    assert [e.kind for e in schema.exclusions] == ["ambiguous_correspondence", "duplicate"]
    assert schema.num_candidates == 15


def test_second_opinions_are_counted_over_all_candidates(run):
    with pytest.raises(MalformedInputError):
        run(toy.DisagreeingSecondOpinion, schemas=("needs",), count=1)
    (schema,) = run(toy.SometimesDisagreeing, schemas=("needs",), count=6)
    opinion = schema.second_opinions["oracle"]
    left_out = [e for e in schema.exclusions if e.kind == "second_opinion"]
    assert left_out
    assert opinion["disagreeing_episodes"] == len(left_out)
    assert opinion["episodes"] == schema.num_candidates
    assert opinion["checked"] - opinion["agreed"] == len(left_out)
