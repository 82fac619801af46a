"""How records state relations: the plain form as ever, and what the harder forms leave out and add."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2_contingency, chisquare

import toy_environment as toy
from anonymity_support import made_episode
from graph_environment import SEVERAL, SeveralGraphs, episode
from preset_outcomes import outcome
from vcrt.certificates.certificates import OperationRelation
from vcrt.certificates.episodes import SEVERAL_PRESET
from vcrt.datasets.agreement import verify_agreement
from vcrt.datasets.freezing import make_dataset
from vcrt.errors import DatasetError, MalformedInputError
from vcrt.hashing import canonical_json
from vcrt.orders import linear_extensions, transitive_closure
from vcrt.randomness import generator
from vcrt.records.anonymise import anonymise, supervise
from vcrt.records.dataset import load_items, open_dataset, read_policy_records
from vcrt.records.policy_view import (
    PointerRelation,
    PolicyRecord,
    record_from_json,
    render,
)
from vcrt.records.record_form import PLAIN_FORM, RecordForm
from vcrt.replay.config import sampled
from vcrt_research.anonymity.material import ProbedRecord, read_probed_records
from vcrt_research.anonymity.views import prompt_words, row_words

HARD = RecordForm(relations="reduced", commutations="omitted", distractors=2)
FORMS = st.builds(
    RecordForm,
    relations=st.sampled_from(["all", "reduced"]),
    commutations=st.sampled_from(["shown", "omitted"]),
    distractors=st.integers(0, 4),
)


@cache
def certified(graph):
    """Steps that leave a trace if they come too early, so that every pair of the graph is a relation."""
    return outcome(episode((), graph))


def legal_by(record):
    """The orders that a record's own relations allow."""
    directed = [(r.first, r.second) for r in record.relations if r.kind != "commutes"]
    return linear_extensions(record.num_operations, directed)


# --- what is stated -------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.sampled_from(SEVERAL), FORMS, st.integers(0, 2**31))
def test_every_form_allows_exactly_the_certified_orders(graph, form, seed) -> None:
    found = certified(graph)
    anonymised = anonymise(found, seed, form)
    supervised = supervise(found, anonymised)
    assert len(legal_by(anonymised.record)) == sum(supervised.legal) == len(found.orbit)
    plain = anonymise(found, seed)
    assert supervise(found, plain).legal == supervised.legal
    assert supervise(found, plain).histories == supervised.histories
    assert anonymised.slot_of_operation == plain.slot_of_operation
    assert set(anonymised.record.relations) <= set(plain.record.relations)


def test_the_reduced_form_leaves_out_what_follows() -> None:
    found = certified(frozenset({(0, 1), (1, 2), (0, 2)}))
    stated = RecordForm(relations="reduced").kept(found.relations)
    assert [(r.first, r.second) for r in stated if r.kind != "commutes"] == [(0, 1), (1, 2)]
    assert len(stated) == len(found.relations) - 1
    bare = RecordForm(relations="reduced", commutations="omitted").kept(found.relations)
    assert [(r.first, r.second) for r in bare] == [(0, 1), (1, 2)]
    assert RecordForm(commutations="omitted").kept(found.relations) == [
        r for r in found.relations if r.kind != "commutes"
    ]
    assert PLAIN_FORM.kept(found.relations) == list(found.relations)


def test_a_form_in_words() -> None:
    assert PLAIN_FORM.text == ""
    assert HARD.text == (
        "only relations that do not follow from others, no commuting pairs, "
        "2 relations among operations that do not occur"
    )


# --- distractors ----------------------------------------------------------------------------------


@given(st.sampled_from(SEVERAL), FORMS, st.integers(0, 2**31))
@settings(deadline=None)
def test_distractors_join_pointers_of_no_operation_and_never_run_in_a_circle(graph, form, seed):
    record = anonymise(certified(graph), seed, form).record
    assert len(record.distractors) == form.distractors
    ends = {end for d in record.distractors for end in (d.first, d.second)}
    assert not ends & set(record.pointers)
    assert len({frozenset((d.first, d.second)) for d in record.distractors}) == form.distractors
    directed = [(d.first, d.second) for d in record.distractors if d.kind != "commutes"]
    assert all(a != b for a, b in transitive_closure(directed))
    if form.commutations == "omitted":
        assert all(d.kind != "commutes" for d in record.distractors)


def test_distractors_are_a_function_of_pointers_and_a_draw_of_their_own_name() -> None:
    found = certified(SEVERAL[0])
    record = anonymise(found, 5, HARD).record
    draw = generator(5, "distractors", found.episode.content_hash())
    assert record.distractors == HARD.draw_distractors(record.pointers, draw)
    # Pointers and relations are those of the form without distractors.
    without = anonymise(found, 5, RecordForm(relations="reduced", commutations="omitted")).record
    assert (record.pointers, record.relations) == (without.pointers, without.relations)


def test_distractors_are_uniform_and_tell_nothing_of_the_steps() -> None:
    form = RecordForm(distractors=1)
    kinds, places, table = Counter(), Counter(), np.zeros((3, 2))
    names = ["commutes", "conflicts", "precedes"]
    for number in range(6000):
        made = made_episode("ab"[number % 2], number, 3)
        record = anonymise(made, 3, form).record
        (found,) = record.distractors
        others = [p for p in range(8) if p not in record.pointers]
        kinds[found.kind] += 1
        places[tuple(sorted((others.index(found.first), others.index(found.second))))] += 1
        own = any(r.kind == "conflicts" for r in record.relations)
        table[names.index(found.kind), int(own)] += 1
    assert 0.001 < chisquare([kinds[name] for name in names]).pvalue < 0.999
    assert len(places) == 6
    assert 0.001 < chisquare(list(places.values())).pvalue < 0.999
    assert 0.001 < chi2_contingency(table).pvalue < 0.999


def test_too_few_pointers_for_distractors_is_an_error() -> None:
    with pytest.raises(MalformedInputError, match="at most 1"):
        RecordForm(distractors=2).draw_distractors(range(30), generator(0, "any"))


# --- JSON and tokens ------------------------------------------------------------------------------


@given(st.sampled_from(SEVERAL), FORMS, st.integers(0, 2**31))
@settings(deadline=None)
def test_json_there_and_back(graph, form, seed) -> None:
    record = anonymise(certified(graph), seed, form).record
    value = record.to_json()
    assert ("distractors" in value) == bool(form.distractors)
    assert record_from_json(json.loads(canonical_json(value))) == record


GOOD = {"record_id": "a", "pointers": [0, 2], "relations": [[0, 1, "precedes"]]}


@pytest.mark.parametrize(
    ("distractors", "message"),
    [
        ([], "at least 1 item"),
        ({}, "should be a valid list"),
        ([[1, 2, "precedes"]], "not the record's own"),
        ([[1, 1, "precedes"]], "not the record's own"),
        ([[1, 8, "precedes"]], "not the record's own"),
        ([[1, 3, "before"]], "unknown relation type"),
        ([[1, 3]], "not a policy record"),
        ([[1, 3, "precedes"], [3, 1, "conflicts"]], "two for one pair"),
        ([[1, k, "precedes"] for k in (3, 4, 5, 6, 7)], "too many distractors"),
    ],
)
def test_bad_distractors_are_named(distractors, message) -> None:
    assert record_from_json({**GOOD, "distractors": [[1, 3, "precedes"]]}).distractors
    with pytest.raises(MalformedInputError, match=message):
        record_from_json({**GOOD, "distractors": distractors})


RECORD = PolicyRecord(
    record_id="09af",
    pointers=(1, 3, 4, 6),
    relations=(PointerRelation(0, 3, "precedes"), PointerRelation(2, 1, "conflicts")),
    distractors=(PointerRelation(5, 2, "conflicts"), PointerRelation(7, 0, "precedes")),
)


def test_distractors_are_printed_among_the_relations() -> None:
    words = render(RECORD, "sorted", generator(0, "any"))
    assert words == [
        *("<s>", "<pointers>", "p1", "p3", "p4", "p6", "<relations>"),
        *("p1", "r1", "p6", ";", "p4", "r3", "p3", ";"),
        *("p5", "r3", "p2", ";", "p7", "r1", "p0", ";", "<order>"),
    ]
    shuffled = render(RECORD, "shuffled", generator(0, "other"))
    assert sorted(w for w in shuffled if w[0] == "p") == sorted(w for w in words if w[0] == "p")


def test_what_the_probe_reads_without_relations_keeps_the_distractors_and_nothing_else() -> None:
    text = canonical_json(RECORD.to_json()).decode()
    probed = ProbedRecord(
        file="f",
        row=0,
        num_rows=1,
        record_id="09af",
        text=text,
        record=RECORD,
        environment="e",
        schema="s",
        source="x",
        legal=(),
    )
    question = (3, 0, 1, 2)
    words = prompt_words(probed, "shuffled", question, False, generator(0, "any"))
    body = words[words.index("<relations>") + 1 : -1]
    assert sorted(w for w in body if w[0] == "q") == ["q4", "q5", "q6", "q7"]
    row = "".join(row_words(probed, question, False))
    assert '"distractors":[[5,2,"conflicts"],[7,0,"precedes"]]' in row
    assert row.endswith('"relations":}')
    assert '"relations":[[q1,q0,"precedes"],[q3,q2,"conflicts"]]' in "".join(
        row_words(probed, question, True)
    )


# --- datasets -------------------------------------------------------------------------------------

TOY = {"toy": toy.ToyEnvironment}
CONFIG = sampled({"toy": ["needs", "overwrite"]}, 12, seed=4)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return make_dataset(CONFIG, tmp_path_factory.mktemp("plain") / "d", jobs=1, factories=TOY)


@pytest.fixture(scope="module")
def hard(tmp_path_factory):
    path = tmp_path_factory.mktemp("hard") / "d"
    return make_dataset(CONFIG, path, jobs=1, factories=TOY, form=HARD)


def test_the_plain_form_leaves_the_manifest_as_it_was(plain) -> None:
    assert "record_form" not in json.loads((plain.path / "manifest.json").read_text())
    assert "record_form" not in plain.manifest.model_dump()
    assert plain.manifest.record_form == PLAIN_FORM


def test_a_form_is_in_the_manifest_and_in_every_record(plain, hard) -> None:
    said = json.loads((hard.path / "manifest.json").read_text())["record_form"]
    assert said == {"relations": "reduced", "commutations": "omitted", "distractors": 2}
    assert hard.manifest.root_hash != plain.manifest.root_hash
    assert (
        hard.manifest.content["audit/toy.jsonl.gz"] == plain.manifest.content["audit/toy.jsonl.gz"]
    )
    easy = read_policy_records(plain, "toy")
    for identity, record in read_policy_records(hard, "toy").items():
        assert record.pointers == easy[identity].pointers
        assert set(record.relations) == {
            r for r in easy[identity].relations if r.kind != "commutes"
        }
        assert len(record.distractors) == 2


def test_supervision_does_not_depend_on_the_form(plain, hard) -> None:
    for one, other in zip(load_items(plain, "toy"), load_items(hard, "toy"), strict=True):
        assert one.supervised.legal == other.supervised.legal
        assert one.supervised.histories == other.supervised.histories


def test_a_dataset_of_another_form_verifies_and_can_be_probed(hard) -> None:
    agreement = verify_agreement(hard, jobs=1, factories=TOY)
    assert agreement.agreed == agreement.replays == 24 * 24
    probed = read_probed_records(hard)
    assert len(probed) == 24
    assert len({record.relation_graph for record in probed}) == 2


def test_a_manifest_with_another_form_is_refused(hard, tmp_path) -> None:
    path = tmp_path / "copy"
    path.mkdir()
    for name in ("audit", "policy"):
        (path / name).symlink_to(hard.path / name)
    value = json.loads((hard.path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**value, "record_form": {"distractors": 5}}))
    with pytest.raises(DatasetError, match=r"record_form\.distractors"):
        open_dataset(path)
    (path / "manifest.json").write_text(json.dumps({**value, "record_form": {"distractors": 1}}))
    with pytest.raises(DatasetError, match="changed after it was frozen"):
        open_dataset(path)


def test_several_anti_diamonds_in_a_dataset(tmp_path) -> None:
    config = sampled({"graphs": ["graph"]}, 6, preset=SEVERAL_PRESET)
    made = {"graphs": SeveralGraphs}
    dataset = make_dataset(config, tmp_path / "d", jobs=1, factories=made, form=HARD)
    assert dataset.manifest.orbit_size is None
    assert dataset.manifest.preset == SEVERAL_PRESET
    (counts,) = dataset.manifest.counts["graphs"].values()
    assert counts.episodes == 6
    assert counts.legal_orders < 6 * 8 + 1
    items = load_items(dataset, "graphs")
    assert all(len(legal_by(i.supervised.record)) == sum(i.supervised.legal) for i in items)
    verify_agreement(dataset, jobs=1, factories=made)


def test_a_relation_that_commutes_is_stated_whatever_is_reduced() -> None:
    relations = (OperationRelation(0, 1, "commutes"), OperationRelation(1, 2, "precedes"))
    assert RecordForm(relations="reduced").kept(relations) == list(relations)


# --- the pool -----------------------------------------------------------------------------------------


def test_the_usual_pool_is_not_written_and_a_large_one_is() -> None:
    assert "pool" not in RecordForm(distractors=1).model_dump()
    large = RecordForm(pool="large")
    assert RecordForm.model_validate(large.model_dump()) == large
    assert large.text == "pointers drawn from 32 or more"
    assert [large.pool_of(n) for n in (2, 4, 5, 32, 33)] == [32, 32, 32, 32, 64]


def test_records_of_few_steps_may_draw_from_the_pool_of_many() -> None:
    pointers = {
        pointer
        for seed in range(60)
        for pointer in anonymise(
            certified(SEVERAL[0]), seed, RecordForm(pool="large")
        ).record.pointers
    }
    assert pointers == set(range(32))
    record = anonymise(certified(SEVERAL[0]), 0, RecordForm(pool="large", distractors=2)).record
    value = record.to_json()
    assert value["pool"] == record.pool == 32
    assert record_from_json(value) == record
    assert "pool" not in anonymise(certified(SEVERAL[0]), 0).record.to_json()


@pytest.mark.parametrize("pool", [7, 8, 16, 33, 128, True, "32"])
def test_a_pool_that_a_record_cannot_have_is_refused(pool: object) -> None:
    value = {"record_id": "r", "pointers": [0, 1, 2, 3, 4], "relations": [], "pool": pool}
    with pytest.raises(MalformedInputError):
        record_from_json(value)
    with pytest.raises(MalformedInputError, match="not a policy record"):
        record_from_json({**value, "pool": 32})
