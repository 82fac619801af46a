"""The preset that holds any episode: which it takes, and what becomes of a dataset of several lengths."""

from __future__ import annotations

import json
from itertools import combinations
from math import factorial

import pytest

import vcrt
from any_environment import BOTH, LENGTHS
from poset_environment import Posets, episode, natural_posets, random_episode
from vcrt.certificates.episodes import (
    ANY_PRESET,
    CertifiedEpisode,
    Exclusion,
    certify_episode,
    preset_named,
)
from vcrt.datasets.examination import from_certified
from vcrt.errors import DatasetError
from vcrt.limits import MAX_ENUMERATED, MAX_EXHAUSTIVE
from vcrt.orders import linear_extensions
from vcrt.records.certificate import document_text, read_certificate
from vcrt.records.dataset import load_items
from vcrt.records.supervision import PosetRecord
from vcrt.replay.lattice_replay import replay_lattices
from vcrt.replay.replay import replay_exhaustively


def outcome(made):
    (found,) = outcomes(made, ANY_PRESET)
    return found


def outcomes(made, *presets):
    """What becomes of an episode that is replayed once, under each preset."""
    environment = Posets()
    replay = replay_exhaustively if made.num_operations <= MAX_EXHAUSTIVE else replay_lattices
    (evidence,) = replay(environment, [made])
    return [certify_episode(evidence, environment.versions(), preset) for preset in presets]


@pytest.mark.parametrize("steps", [2, 3, 4])
@pytest.mark.parametrize("kind", ["needs", "reads"])
def test_every_partial_order_of_a_few_steps_is_taken(steps, kind):
    for pairs in natural_posets(steps):
        found = outcome(episode(steps, **{kind: pairs}))
        assert isinstance(found, CertifiedEpisode), (pairs, found)
        assert sorted(found.order.pairs) == sorted(pairs)
        assert list(found.orbit) == linear_extensions(steps, pairs)


@pytest.mark.parametrize("steps", [5, 7, 24, pytest.param(64, marks=pytest.mark.slow)])
@pytest.mark.parametrize("pairs", ["none", "all", "some"])
def test_long_episodes_without_anti_diamonds_or_with_one_legal_order_are_taken(steps, pairs):
    chain = [(k, k + 1) for k in range(steps - 1)]
    needs = {"none": [], "all": chain, "some": chain[:3]}[pairs]
    found = outcome(episode(steps, needs))
    assert isinstance(found, CertifiedEpisode), found
    counts = {"none": 0, "all": steps * (steps - 1) // 2, "some": 6}
    assert len(found.order.pairs) == counts[pairs]


@pytest.mark.parametrize("steps", [3, 4, 6, 9])
def test_what_a_preset_of_one_length_takes_any_takes_with_the_same_certificate(steps):
    preset = preset_named(f"posets{steps}")
    taken = 0
    for seed in range(4 if steps > MAX_EXHAUSTIVE else 8):
        made = random_episode(steps, seed, relations=3)
        one, other = outcomes(made, preset, ANY_PRESET)
        assert isinstance(other, CertifiedEpisode)
        if isinstance(one, CertifiedEpisode):
            taken += 1
            assert one == other
    assert taken


def test_what_the_relations_do_not_explain_is_left_out_all_the_same():
    idle = episode(3)
    twice = type(idle)(
        environment=idle.environment,
        schema=idle.schema,
        initial=idle.initial,
        operations=(idle.operations[0], idle.operations[1], idle.operations[1]),
        provenance=idle.provenance,
    )
    found = outcome(twice)
    assert isinstance(found, Exclusion)
    assert found.kind == "ambiguous_correspondence"
    cyclic = outcome(episode(3, bars=[(0, 1), (1, 2)]))
    assert isinstance(cyclic, CertifiedEpisode)
    for number in (1, 65):
        made = episode(number)
        environment = Posets()
        found = certify_episode(
            replay_exhaustively(environment, [episode(2)])[0].__class__(made, ()),
            environment.versions(),
            ANY_PRESET,
        )
        assert isinstance(found, Exclusion)
        assert found.detail == f"{number} operations, not 2 to 64"


@pytest.mark.parametrize("steps", [2, 3, 5, 8])
@pytest.mark.parametrize("needs", [[], [(0, 1)]])
def test_a_certificate_of_any_length_is_read_from_its_own_bytes(tmp_path, steps, needs):
    certified = outcome(episode(steps, needs))
    path = tmp_path / "certificate.json"
    path.write_text(document_text(from_certified(certified, ANY_PRESET).document()))
    found = read_certificate(path)
    assert found.certified == certified
    assert found.preset == ANY_PRESET
    value = json.loads(path.read_text())
    for name, other, message in (
        ("num_operations", steps, "changed after it was made"),
        ("orbit_size", 1, r"null, as num_operations is"),
    ):
        path.write_text(json.dumps({**value, name: other}))
        with pytest.raises(DatasetError, match=message):
            read_certificate(path)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    made = vcrt.certify(
        tmp_path_factory.mktemp("any") / "data",
        schemas=["plans/three", "plans/five", "plans/seven", "recipes/mixed"],
        episodes=3,
        preset="any",
        jobs=1,
        environments=BOTH,
    )
    vcrt.verify(made, environments=BOTH, jobs=1)
    return made


def test_one_dataset_has_episodes_of_several_lengths_and_counts_each(dataset):
    assert dataset.manifest.num_operations is None
    assert set(dataset.manifest.lengths) <= {n for some in LENGTHS.values() for n in some}
    assert {3, 5, 7} < set(dataset.manifest.lengths)
    for name in dataset.environments:
        items = load_items(dataset, name)
        for schema, counts in dataset.manifest.counts[name].items():
            some = [item.supervised for item in items if item.schema == schema]
            assert all(isinstance(one, PosetRecord) for one in some)
            assert counts.orders == sum(factorial(one.num_operations) for one in some)
            for length, each in counts.lengths.items():
                of = [one for one in some if one.num_operations == int(length)]
                assert each.episodes == len(of)
                assert each.all_legal == sum(not one.order.pairs for one in of)
            pairs = sum(len(list(combinations(range(one.num_operations), 2))) for one in some)
            assert sum(counts.relations.values()) <= pairs
        for item in items:
            assert item.supervised.record.pool == 32
            assert not [r for r in item.supervised.record.relations if r.kind == "commutes"]
            if item.supervised.num_operations <= MAX_ENUMERATED:
                orders = linear_extensions(
                    item.supervised.num_operations, item.supervised.order.pairs
                )
                assert sum(item.listed.legal) == len(orders)
    free, episodes = dataset.manifest.num_all_legal(dataset.environments)
    assert (free > 0, episodes) == (True, 12)
