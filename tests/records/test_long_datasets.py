"""Long episodes from end to end: certified, frozen, sealed, verified, shown, and loaded for training."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

import poset_environment as posets
from explorer_support import without_processes
from long_datasets import FACTORIES, made
from vcrt.api.certifying import certify
from vcrt.api.datasets import show
from vcrt.certificates.episodes import PRESETS, Preset, preset_named
from vcrt.certificates.replay_tree import ReplayTree, tree_from_json
from vcrt.cli.certificate_view import say_shown
from vcrt.cli.certify import print_counts
from vcrt.cli.verify import check_lines
from vcrt.datasets.agreement import verify_agreement
from vcrt.datasets.examination import verify_certificate
from vcrt.datasets.freezing import make_dataset
from vcrt.environments.contract import Schema
from vcrt.errors import DatasetError, DisagreementError, UnknownNameError, VcrtError
from vcrt.records.audit import certified_from_row
from vcrt.records.certificate import certificate_document, document_text, read_certificate
from vcrt.records.dataset import load_items, open_dataset, read_audit, require_agreement
from vcrt.records.policy_view import LARGE_POOL
from vcrt.records.record_form import PLAIN_FORM
from vcrt.records.sealing.integrity import require_integrity
from vcrt.records.supervision import PosetRecord
from vcrt.replay.config import given
from vcrt.replay.evidence import Evidence, replays_for_second_opinions
from vcrt.replay.lattice_replay import replay_lattices
from vcrt.replay.shards import certify_again
from vcrt.words.certificate_words import relation_lines
from vcrt.words.evidence_words import evidence_sentences, is_sampled


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("long")
    return {preset: made(folder / preset, preset) for preset in ("posets6", "posets12")}


@pytest.fixture(params=["posets6", "posets12"])
def dataset(request, datasets):
    return datasets[request.param]


def printed(action, *arguments, **options):
    console = Console(width=100, file=StringIO())
    action(console, *arguments, **options)
    return console.file.getvalue()


def test_presets_of_long_episodes_are_named():
    assert {name: preset.num_operations for name, preset in PRESETS.items()} == {
        **{"paper": 4, "several": 4, "any": None},
        **{f"posets{n}": n for n in range(3, 65)},
    }
    meant = {"posets2": "any", "posets65": None, "posets06": "posets6", "poset6": "posets6"}
    for name, near in meant.items():
        with pytest.raises(UnknownNameError) as caught:
            preset_named(name)
        assert "posetsN for 3 to 64 operations" in caught.value.expected
        assert caught.value.remedy == (near and f"did you mean {near!r}?")


def test_what_is_frozen_verifies_and_loads_as_partial_orders(dataset):
    number = dataset.manifest.num_operations
    require_integrity(dataset.path)
    with without_processes():
        agreement = verify_agreement(dataset, jobs=1, factories=FACTORIES)
    counts = dataset.manifest.counts["posets"][f"posets{number}"]
    assert agreement.agreed == agreement.replays == counts.evidence.sequences
    assert require_agreement(dataset) == agreement
    items = load_items(dataset, "posets")
    assert len(items) == 2
    for item in items:
        supervised = item.supervised
        assert isinstance(supervised, PosetRecord)
        assert supervised.order.num_operations == number
        assert max(supervised.record.pointers) < LARGE_POOL
        shown = {(r.first, r.second) for r in supervised.record.relations}
        assert shown
        assert shown <= set(supervised.order.pairs)
        assert "commutes" not in {r.kind for r in supervised.record.relations}
        with pytest.raises(VcrtError, match="not listed"):
            item.listed  # noqa: B018


def test_slots_keep_the_order_of_their_operations(dataset):
    rows = {row["episode_id"]: row for row in read_audit(dataset, "posets")}
    for item in load_items(dataset, "posets"):
        row = rows[item.episode_id]
        slots = json.loads(row["slot_of_operation"])
        orbit = json.loads(row["orbit"])
        assert {(slots[a], slots[b]) for a, b in orbit["pairs"]} == set(item.supervised.order.pairs)


def test_sampled_evidence_is_never_called_complete(datasets):
    for preset, dataset in datasets.items():
        complete = preset == "posets6"
        evidence = dataset.manifest.counts["posets"][preset].evidence
        assert evidence.complete == (2 if complete else 0)
        assert (evidence.replayed == evidence.contexts) == complete
        sentence = " ".join(evidence_sentences(dataset.manifest.model_dump()["counts"]))
        table = printed(print_counts, dataset.manifest)
        (name, *_) = [row["episode_id"] for row in read_audit(dataset, "posets")]
        view = printed(say_shown, show(name, dataset, environments=FACTORIES))
        for text in (sentence, table, view):
            assert ("sampled, not complete" in " ".join(text.split())) == (not complete)
        assert ("orders keep the certified relations" in " ".join(view.split())) == (not complete)
        for row in read_audit(dataset, "posets"):
            found = json.loads(row["certificates"])
            assert found["complete"] == complete
            for pair in found["pairs"]:
                assert pair["complete"] == complete
                assert pair["replayed"] <= pair["contexts"]


def test_a_pair_that_commutes_has_one_line_unless_it_is_asked_for(dataset):
    row, *_ = read_audit(dataset, "posets")
    certified = certified_from_row(row, dataset.manifest.preset)
    related = {
        (min(r.first, r.second), max(r.first, r.second))
        for r in certified.relations
        if r.kind != "commutes"
    }
    view = printed(say_shown, show(row["episode_id"], dataset, environments=FACTORIES))
    whole, _, brief = view.partition("Pairs that commute")
    lines = {line.split("  ")[1]: line for line in brief.splitlines() if line.startswith("  ")}
    one, other = next(c.pair for c in certified.pairs if c.pair not in related)
    asked = show(row["episode_id"], dataset, environments=FACTORIES)
    one_pair = printed(say_shown, asked, pair=(one, other))
    assert f"Steps {one} and {other}: a diamond, they commute" in one_pair
    assert "Pairs that commute" not in one_pair
    for contexts in certified.pairs:
        one, other = contexts.pair
        assert (f"Steps {one} and {other}: an anti-diamond" in whole) == (contexts.pair in related)
        assert (f"{one} {other}" in lines) == (contexts.pair not in related)
        if contexts.pair not in related:
            line = lines[f"{one} {other}"]
            assert f"{contexts.replayed:,} of {contexts.contexts:,}" in line
            assert f"{contexts.verdicts['diamond']:,} diamond" in line
            assert ("(sampled)" in line) == (not contexts.complete)


def test_few_contexts_can_be_sampled_too(tmp_path):
    dataset = made(tmp_path / "sampled", "posets6", sampled=True)
    assert dataset.manifest.sampled
    assert dataset.manifest.counts["posets"]["posets6"].evidence.complete == 0
    with without_processes():
        verify_agreement(dataset, jobs=1, factories=FACTORIES)
    for row in read_audit(dataset, "posets"):
        assert not certified_from_row(row, dataset.manifest.preset).complete
    require_integrity(dataset.path)


def test_a_form_that_is_asked_for_is_kept(tmp_path):
    dataset = made(tmp_path / "plain", "posets6", form=PLAIN_FORM)
    item, _ = load_items(dataset, "posets")
    assert "commutes" in {r.kind for r in item.supervised.record.relations}


def test_the_result_does_not_depend_on_how_it_was_made(datasets, tmp_path):
    again = made(tmp_path / "again", "posets12")
    assert again.path != datasets["posets12"].path
    assert again.manifest.root_hash == datasets["posets12"].manifest.root_hash


def test_an_altered_answer_is_a_disagreement(datasets):
    dataset = datasets["posets6"]

    class Other(posets.Posets):
        def canonical(self, state):
            return super().canonical(state) + b"!" * (state[1] == 0b110)

    with without_processes(), pytest.raises(DisagreementError):
        verify_agreement(dataset, jobs=1, factories={"posets": Other})


@pytest.mark.parametrize("number", [pytest.param(6, marks=pytest.mark.slow), 12])
def test_a_certificate_stands_alone(number, tmp_path):
    episode = posets.random_episode(number, 0, schema=f"posets{number}")
    preset = Preset(num_operations=number, orbit_size=None)
    ((outcome,), _) = certify_again(posets.Posets, [episode], preset)
    file = tmp_path / "certificate.json"
    file.write_text(document_text(certificate_document(outcome, preset)))
    assert read_certificate(file).certified == outcome
    text = "\n".join(check_lines(verify_certificate(file, factories=FACTORIES)))
    word = "complete" if number == 6 else "sampled, not complete"
    assert f"sequences ({word}) again in a fresh process" in text


def test_every_pair_is_told_also_one_that_follows_from_others(tmp_path):
    episode = posets.episode(6, needs=[(0, 1), (1, 2)])
    preset = Preset(num_operations=6, orbit_size=None)
    ((outcome,), _) = certify_again(posets.Posets, [episode], preset)
    *told, commuting, implied = relation_lines(outcome)
    assert len(told) == 2
    assert commuting == "12 other pairs commute"
    assert implied.startswith("1 pair (0 and 2) follows from other relations")
    any_preset = Preset(num_operations=None, orbit_size=None)
    ((free,), _) = certify_again(posets.Posets, [posets.episode(6, needs=[])], any_preset)
    assert relation_lines(free) == ["15 pairs commute"]
    with without_processes():
        dataset = make_dataset(
            given([episode], preset=preset), tmp_path / "data", jobs=1, factories=FACTORIES
        )
    text = printed(print_counts, dataset.manifest)
    assert "1 implied" in " ".join(text.split())
    assert "16.67% of 720" in text


def altered(document, change):
    value = json.loads(json.dumps(document))
    change(value)
    from vcrt.hashing import json_digest

    value["sha256"] = json_digest({k: v for k, v in value.items() if k != "sha256"})
    return value


CHANGES = {
    "complete": lambda v: v["certificates"].update(complete=True),
    "replayed": lambda v: v["certificates"]["pairs"][0].update(replayed=10**6),
    "classes": lambda v: v["certificates"].update(classes=1),
    "orbit": lambda v: v["orbit"].update(linear_extensions=2),
    "relations": lambda v: v["relations"].pop(),
    "tree": lambda v: v["replays"].update(nodes=v["replays"]["nodes"][:40]),
    "answer": lambda v: v["replays"]["nodes"][20].__setitem__(2, 0),
    "size": lambda v: v["replays"].update(num_operations=13),
    "few": lambda v: v.update(num_operations=5),
    "sampled": lambda v: v.update(sampled=True),
    "none": lambda v: v.update(replays=[]),
    "list": lambda v: v.update(format="vcrt-certificate/1"),
    "many": lambda v: v["episode"].update(operations=v["episode"]["operations"] * 6),
}


def certificate(number):
    preset = Preset(num_operations=number, orbit_size=None)
    episode = posets.random_episode(number, 0, schema=f"posets{number}")
    ((outcome,), _) = certify_again(posets.Posets, [episode], preset)
    return certificate_document(outcome, preset)


@pytest.fixture(scope="module")
def twelve():
    return certificate(12)


@pytest.mark.slow
def test_evidence_that_was_taken_away_is_found_by_replay(tmp_path, twelve):
    """What is left may certify the same by itself, where another sequence of the same context shows as much."""
    file = tmp_path / "certificate.json"
    tree = tree_from_json(twelve["replays"])
    begun = {sequence[:-1] for sequence in tree.answers}
    for leaf in [sequence for sequence in tree.answers if sequence not in begun]:
        rest = {s: reached for s, reached in tree.answers.items() if s != leaf}
        less = ReplayTree.of(12, rest).to_json()
        file.write_text(json.dumps(altered(twelve, lambda v, less=less: v.update(replays=less))))
        try:
            read_certificate(file)
        except DatasetError:
            continue
        break
    else:
        pytest.fail("every sequence is needed for what the certificate says")
    with pytest.raises(DatasetError, match="does not replay as it says") as caught:
        verify_certificate(file, factories=FACTORIES)
    assert "field replays.nodes" in caught.value.where


@pytest.mark.parametrize("name", CHANGES)
def test_a_certificate_that_says_other_things_is_refused(name, tmp_path, twelve):
    file = tmp_path / "certificate.json"
    file.write_text(json.dumps(altered(twelve, CHANGES[name])))
    with pytest.raises(DatasetError) as caught:
        read_certificate(file)
    assert str(file) in caught.value.where


def test_second_opinions_are_asked_about_some_replays():
    for number in (6, 12):
        (evidence,) = replay_lattices(posets.Posets(), [posets.random_episode(number, 0)])
        shown = replays_for_second_opinions(evidence)
        assert 2 <= len(shown) <= 24
        assert shown[0].sequence == tuple(range(number))
        assert all(r.rejection or len(r.sequence) == number for r in shown)
        assert replays_for_second_opinions(evidence) == shown
        assert Evidence(evidence).to_json()["cross_checks"] == []


def test_a_preset_without_schemas_is_named(tmp_path):
    class Bare(posets.Posets):
        schemas = posets.Posets.schemas[:1]

    with pytest.raises(VcrtError, match="without a schema for this preset") as caught:
        certify(
            tmp_path / "none", schemas=("posets",), preset="posets8", environments={"posets": Bare}
        )
    assert "posets6" in caught.value.expected


@pytest.mark.parametrize("number", [3, 5, 7, 11, pytest.param(24, marks=pytest.mark.slow)])
def test_a_schema_may_have_any_number_of_steps(tmp_path, number):
    """Few ones are replayed in every order, more in every context, and many in a sample of contexts."""
    kind = f"posets{number}"

    class Some(posets.Posets):
        schemas = (Schema(name=kind, summary="random", relation="either", preset=kind),)

        def sample(self, schema, seed):
            if number > 3:
                return super().sample(schema, seed)
            return posets.episode(3, [(0, 1), (0, 2)], seed=seed, schema=schema)

    with without_processes():
        dataset = certify(
            tmp_path / "some",
            schemas=("posets",),
            preset=kind,
            episodes=2,
            jobs=1,
            environments={"posets": Some},
        )
        agreement = verify_agreement(dataset, jobs=1, factories={"posets": Some})
    assert agreement.agreed == agreement.replays > 0
    counts = dataset.manifest.counts["posets"][kind]
    assert counts.episodes == 2
    assert (counts.evidence is None) == (number <= 5)
    assert is_sampled(dataset.manifest.model_dump()["counts"]) == (number > 10)
    for item in load_items(dataset, "posets"):
        assert item.supervised.record.num_operations == number


def test_an_open_dataset_has_the_counts_it_was_made_with(dataset):
    again = open_dataset(dataset.path)
    assert again.manifest == dataset.manifest
    preset = again.manifest.preset
    assert preset == replace(PRESETS[f"posets{preset.num_operations}"])
