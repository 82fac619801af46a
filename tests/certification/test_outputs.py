"""Outputs are part of what happens: orders are equal only if states and each operation's output are."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations

import pytest

from cells import ENVIRONMENT, VERSIONS, certified, contexts_of, drawn, episode, legal_of
from vcrt.certificates.episodes import (
    ANY_PRESET,
    CertifiedEpisode,
    Exclusion,
    Preset,
    certify_episode,
)
from vcrt.certificates.pairs import report_orders
from vcrt.environments.contract import (
    ReplayRequest,
)
from vcrt.environments.posets import below_of
from vcrt.environments.relation_search import relations_of
from vcrt.environments.shared_prefixes import replay_sharing
from vcrt.errors import VcrtError
from vcrt.orders import linear_extensions
from vcrt.randomness import generator
from vcrt.records.certificate import certificate_document, read_certificate
from vcrt.replay.evidence import Evidence, evidence_from_json
from vcrt.replay.lattice_replay import replay_lattices, replay_merged
from vcrt.replay.replay import replay_exhaustively
from vcrt.words.certificate_words import pair_title, relation_text


def kinds(outcome):
    assert isinstance(outcome, CertifiedEpisode), outcome
    return {(r.first, r.second): r.kind for r in outcome.relations}


def test_a_read_beside_a_write_observes_it_and_two_reads_commute():
    outcome = certified(episode([["get", 0, 1], ["set", 0, 2], ["get", 1, 1], ["get", 1, 1]]))
    assert kinds(outcome) == {
        (0, 1): "observes",
        (0, 2): "commutes",
        (0, 3): "commutes",
        (1, 2): "commutes",
        (1, 3): "commutes",
        (2, 3): "commutes",
    }
    assert len(outcome.orbit) == 12
    (first, *_) = [c for c in outcome.certificates if c.pair == (0, 1)]
    assert (first.verdict, first.observers) == ("observes", (0,))
    assert pair_title((0, 1), [first]) == "Steps 0 and 1: an anti-diamond, 0 observes 1"
    (relation,) = (r for r in outcome.relations if r.kind == "observes")
    assert relation_text(relation).startswith("0 comes before 1, one of which observes the other")


def test_a_step_without_output_that_changes_nothing_is_still_left_out():
    outcome = certified(episode([["set", 0, 1], ["get", 1, 1]]))
    assert isinstance(outcome, Exclusion)
    assert outcome.kind == "no_effect"


@pytest.mark.parametrize("steps", [2, 3, 4, 5])
def test_every_certified_episode_has_exactly_the_legal_orders(steps):
    found = {"certified": 0, "observes": 0}
    for seed in range(80):
        made = drawn(seed, steps)
        (merged,) = replay_merged(ENVIRONMENT, [made])
        (exhaustive,) = replay_exhaustively(ENVIRONMENT, [made])
        assert merged.replays == exhaustive.replays
        outcome = certify_episode(exhaustive, VERSIONS, ANY_PRESET)
        if isinstance(outcome, CertifiedEpisode):
            found["certified"] += 1
            found["observes"] += "observes" in outcome.kinds
            assert sorted(outcome.orbit) == legal_of(seed, steps)
    assert min(found.values()) > 3, found


@pytest.mark.parametrize("sampled", [False, True])
def test_long_episodes_have_exactly_the_legal_orders(sampled):
    found = {"certified": 0, "observes": 0}
    preset = Preset(num_operations=None, orbit_size=None, sampled=sampled)
    for seed in range(80):
        outcome = certify_episode(contexts_of(seed, 6, sampled), VERSIONS, preset)
        if isinstance(outcome, CertifiedEpisode):
            found["certified"] += 1
            found["observes"] += "observes" in outcome.kinds
            pairs = outcome.order.pairs
            assert linear_extensions(6, pairs) == legal_of(seed, 6), (seed, pairs)
    assert min(found.values()) > 3, found


def test_shared_prefixes_and_the_other_direction_give_the_same_replays():
    made = ENVIRONMENT.sample("cells", 3, 4)
    requests = [ReplayRequest(made, order) for order in permutations(range(4))]
    assert replay_sharing(ENVIRONMENT, requests) == ENVIRONMENT.replay(requests)
    (one,) = replay_lattices(ENVIRONMENT, [ENVIRONMENT.sample("cells", 3, 6)])
    (other,) = replay_lattices(ENVIRONMENT, [ENVIRONMENT.sample("cells", 3, 6)], backwards=True)
    assert one.tree == other.tree


@pytest.mark.parametrize("steps", [4, 6])
def test_evidence_and_certificates_keep_outputs(steps, tmp_path):
    made = episode([["get", 0, 1], ["set", 0, 2], *[["get", 1, 1]] * (steps - 2)])
    (evidence,) = (replay_exhaustively if steps == 4 else replay_lattices)(ENVIRONMENT, [made])
    written = json.loads(json.dumps(Evidence(evidence).to_json()))
    assert evidence_from_json(written).replays == evidence
    outcome = certify_episode(evidence, VERSIONS, ANY_PRESET)
    document = certificate_document(outcome, ANY_PRESET)
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps(document))
    assert read_certificate(path).certified == outcome
    changed = json.loads(json.dumps(document).replace('"outputs": ["1"', '"outputs": ["7"', 1))
    assert changed != document
    path.write_text(json.dumps(changed))
    with pytest.raises(VcrtError):
        read_certificate(path)


def test_a_contradicted_output_is_nondeterminism():
    made = episode([["get", 0, 1], ["get", 1, 1]])
    (evidence,) = replay_exhaustively(ENVIRONMENT, [made])
    one, other = evidence.replays
    forged = replace(other, outputs=("5", *other.outputs[1:]))
    twice = type(evidence).of_every_order(made, [one, replace(one, outputs=("5", "1")), forged])
    outcome = certify_episode(twice, VERSIONS, ANY_PRESET)
    assert isinstance(outcome, Exclusion)
    assert outcome.kind == "nondeterministic"


def test_the_report_of_any_episode_names_what_was_observed():
    (evidence,) = replay_exhaustively(
        ENVIRONMENT, [episode([["get", 0, 1], ["add", 0, 2], ["set", 0, 1]])]
    )
    report = report_orders(evidence)
    relations = {(p.first, p.second): (p.relation, p.reason) for p in report.pairs}
    relation, reason = relations[0, 1]
    assert relation == "observes"
    assert "0 gives '1' before 1 and '3' after it" in reason


def test_samplers_find_what_is_observed():
    made = episode([["get", 0, 1], ["set", 0, 2], ["get", 1, 1], ["swap", 2, 1]])
    found = relations_of(ENVIRONMENT, made, below_of(generator(0, "outputs")))
    assert found is not None
    assert found.kinds[0, 1] == "observes"
    assert found.anti_diamonds == ((0, 1),)
