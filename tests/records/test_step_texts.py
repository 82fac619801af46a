"""Records that show steps as text, or what steps declare, in place of relations."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import toy_environment as toy
import vcrt
from vcrt.certificates.episodes import certify_episode, preset_named
from vcrt.datasets.agreement import verify_agreement
from vcrt.datasets.freezing import make_dataset
from vcrt.environments.contract import Environment, Footprint
from vcrt.environments.registry import load_environment
from vcrt.errors import (
    DisagreementError,
    EnvironmentFailure,
    MalformedInputError,
    TooLargeError,
    VcrtError,
)
from vcrt.randomness import generator
from vcrt.records.anonymise import step_texts
from vcrt.records.dataset import load_items, read_audit, read_policy_records
from vcrt.records.policy_view import (
    MAX_TEXT,
    PointerRelation,
    PolicyRecord,
    printed_slots,
    record_from_json,
    render,
)
from vcrt.records.record_form import RecordForm
from vcrt.replay.config import sampled
from vcrt.replay.replay import replay_exhaustively
from vcrt_research.anonymity.material import read_probed_records
from vcrt_train.report.task import native_words

CONFIG = sampled({"toy": ["needs", "overwrite"]}, 6, seed=4)


class TellingToy(toy.ToyEnvironment):
    """The toy with a task, and footprints by the variables that its steps name."""

    def describe(self, operation):
        return f"do {operation.signature}"

    def task(self, episode):
        return f"a toy of {episode.num_operations} steps"

    def footprint(self, episode, operation):
        return Footprint(reads=("all",), writes=(operation.signature[:1], "all"))


class OtherWords(TellingToy):
    def describe(self, operation):
        return f"please do {operation.signature}"


class NoText(TellingToy):
    def task(self, episode):
        return 7


class LettersForNames(TellingToy):
    def footprint(self, episode, operation):
        return Footprint(reads="cart", writes=())


class NoFootprint(TellingToy):
    def footprint(self, episode, operation):
        return ["x"]


def dataset(path, view, kind=TellingToy):
    form = RecordForm(view=view)
    return make_dataset(CONFIG, path / view, jobs=1, factories={"toy": kind}, form=form)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("views")
    return {view: dataset(path, view) for view in ("relations", "steps", "footprints")}


def test_the_view_changes_what_is_shown_and_nothing_else(made):
    plain, steps = made["relations"], made["steps"]
    assert read_audit(plain, "toy") == read_audit(steps, "toy")
    assert "view" not in plain.manifest.model_dump().get("record_form", {})
    shown = read_policy_records(plain, "toy")
    rows = {row["record_id"]: row for row in read_audit(steps, "toy")}
    for name, record in read_policy_records(steps, "toy").items():
        assert record.pointers == shown[name].pointers
        assert record.relations == ()
        assert record.task == "a toy of 4 steps"
        operations = json.loads(rows[name]["episode"])["operations"]
        slots = json.loads(rows[name]["slot_of_operation"])
        texts = [f"do {operation['signature']}" for operation in operations]
        assert [record.steps[slot] for slot in slots] == texts
    for one, other in zip(load_items(plain, "toy"), load_items(steps, "toy"), strict=True):
        assert one.supervised.legal == other.supervised.legal
        assert one.supervised.histories == other.supervised.histories


def test_slots_say_nothing_of_the_order(made):
    slots = [
        tuple(json.loads(row["slot_of_operation"])) for row in read_audit(made["steps"], "toy")
    ]
    assert len(set(slots)) > len(slots) / 2


def test_verified_against_the_environment_and_not_against_itself(made):
    for view in ("steps", "footprints"):
        agreement = verify_agreement(made[view], jobs=1, factories={"toy": TellingToy})
        assert agreement.agreed == agreement.replays > 0
    with pytest.raises(DisagreementError, match="policy record"):
        verify_agreement(made["steps"], jobs=1, factories={"toy": OtherWords})


def test_texts_are_no_part_of_what_is_probed(made):
    for record in read_probed_records(made["steps"]):
        assert "do " not in record.text
        assert record.record.steps == ()


@pytest.mark.parametrize(
    ("kind", "view", "message"),
    [
        (NoText, "steps", "no text"),
        (NoFootprint, "footprints", "no footprint"),
        (LettersForNames, "footprints", "a footprint of no names"),
    ],
)
def test_an_environment_that_tells_nonsense_is_named(tmp_path, kind, view, message):
    with pytest.raises(EnvironmentFailure, match=message):
        dataset(tmp_path, view, kind)
    assert not (tmp_path / view).exists()


def test_footprints_that_nobody_declares_are_refused_before_anything_is_certified(tmp_path):
    with pytest.raises(VcrtError, match="does not declare what its steps read"):
        vcrt.certify(
            tmp_path / "d",
            schemas=["toy"],
            episodes=1,
            view="footprints",
            environments={"toy": toy.ToyEnvironment},
        )
    assert not list(tmp_path.iterdir())
    with pytest.raises(MalformedInputError, match="does not declare"):
        step_texts(toy.ToyEnvironment(), [toy.ToyEnvironment().sample("needs", 1)], "footprints", 0)


@pytest.mark.parametrize(
    "given", [{"relations": "reduced"}, {"distractors": 1}, {"commutations": "shown"}]
)
def test_forms_of_relations_do_not_go_with_a_view_without_relations(tmp_path, given):
    with pytest.raises(VcrtError, match="records of steps have no relations"):
        vcrt.certify(tmp_path / "d", schemas=["clrs"], view="steps", **given)


# --- footprints -----------------------------------------------------------------------------------


class Three(Environment):
    """Says what it is told to of three steps."""

    def __init__(self, *footprints):
        self.footprints = footprints

    def footprint(self, episode, operation):
        return self.footprints[episode.operations.index(operation)]

    def versions(self): ...
    def sample(self, schema, seed): ...
    def replay(self, requests): ...


def test_footprints_keep_who_shares_what_and_hide_what_it_is():
    episode = toy.ToyEnvironment().sample("needs", 1)
    episode = replace(episode, operations=episode.operations[:3])
    told = Three(
        Footprint(reads=("file", "alone"), writes=("mail",)),
        Footprint(reads=("mail", "read by all"), writes=("mail", "file")),
        Footprint(reads=("read by all",), writes=("mine",)),
    )
    texts = {step_texts(told, [episode], "footprints", seed)[0].steps for seed in range(20)}
    # Two resources are shared, and which is called how is drawn.
    assert texts == {
        ("reads x0, writes x1", "reads x1, writes x0 x1", "shares nothing"),
        ("reads x1, writes x0", "reads x0, writes x0 x1", "shares nothing"),
    }


def shares(one, other):
    return bool(
        set(one.writes) & {*other.reads, *other.writes}
        or set(other.writes) & {*one.reads, *one.writes}
    )


SCHEMAS = [
    (environment.name, schema)
    for environment in map(load_environment, ("clrs", "proofwriter", "lean"))
    for schema in environment.schemas
    if schema.preset in ("paper", "several")
]


@pytest.mark.parametrize(("name", "schema"), SCHEMAS, ids=lambda part: getattr(part, "name", part))
def test_steps_whose_footprints_are_apart_were_certified_to_commute(name, schema):
    """What own environments declare leaves out no dependency: a policy can find all of them."""
    environment = load_environment(name)
    episodes = [environment.sample(schema.name, seed) for seed in range(3)]
    preset, versions = preset_named(schema.preset), environment.versions()
    outcomes = [
        certify_episode(evidence, versions, preset)
        for evidence in replay_exhaustively(environment, episodes)
    ]
    certified = [one for one in outcomes if hasattr(one, "relations")]
    pairs = 0
    for one in certified:
        found = [environment.footprint(one.episode, o) for o in one.episode.operations]
        for relation in one.relations:
            if relation.kind != "commutes":
                pairs += 1
                assert shares(found[relation.first], found[relation.second]), relation
    assert pairs >= len(certified) > 0


# --- records --------------------------------------------------------------------------------------

RECORD = PolicyRecord(record_id="r", pointers=(1, 4), relations=(), task="t", steps=("a", "b"))


def test_a_record_of_steps_survives_its_json_and_is_printed_in_any_order():
    assert record_from_json(RECORD.to_json()) == RECORD
    assert printed_slots(RECORD, "sorted", generator(0)) == (0, 1)
    drawn = {printed_slots(RECORD, "shuffled", generator(seed)) for seed in range(20)}
    assert drawn == {(0, 1), (1, 0)}


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"steps": ("a",)}, MalformedInputError),
        ({"steps": ("a", " ")}, MalformedInputError),
        ({"steps": ()}, MalformedInputError),
        ({"relations": (PointerRelation(0, 1, "precedes"),)}, MalformedInputError),
        ({"steps": ("a", "b" * (MAX_TEXT + 1))}, TooLargeError),
    ],
)
def test_records_that_cannot_be_are_refused(changes, error):
    with pytest.raises(error):
        replace(RECORD, **changes)


def test_only_a_language_model_reads_text():
    with pytest.raises(MalformedInputError, match="--backbone smollm2-135m"):
        render(RECORD, "sorted", generator(0))


# --- what reports say -----------------------------------------------------------------------------


def test_reports_say_which_words_give_the_environment_away(made):
    assert native_words(made["relations"]) == ()
    (sentence,) = native_words(made["steps"])
    assert sentence.startswith("Of 12 records of toy, 12 name it and 12 hold a word of it alone: ")
    (sentence,) = native_words(made["footprints"])
    assert "0 name it" in sentence
