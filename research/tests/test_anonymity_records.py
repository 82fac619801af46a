"""What the bytes of a policy record and of a policy file depend on: relations and a draw, and nothing else."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import fields, replace
from itertools import combinations, permutations
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2_contingency, chisquare

from anonymity_support import anti_relation, made_episode
from vcrt.certificates.certificates import OperationRelation
from vcrt.certificates.episodes import CertifiedEpisode
from vcrt.certificates.replay_tree import EpisodeReplays
from vcrt.environments.contract import (
    CrossCheck,
    Episode,
    Operation,
    Provenance,
    Rejected,
    Replay,
    Versions,
)
from vcrt.hashing import canonical_json, sha256_hex
from vcrt.records.anonymise import anonymise
from vcrt.records.dataset import Dataset, policy_row
from vcrt.records.manifest import policy_name
from vcrt.records.rows import write_rows
from vcrt_research.anonymity.files import file_findings
from vcrt_train.randomness import generator

words = st.text(min_size=1, max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=2),
    max_leaves=4,
)
KINDS = st.sampled_from(["commutes", "precedes", "conflicts"])


@st.composite
def relation_graphs(draw, num_operations=4):
    pairs = combinations(range(num_operations), 2)
    kinds = [(pair, draw(KINDS), draw(st.booleans())) for pair in pairs]
    return tuple(
        sorted(
            OperationRelation(*(pair if forward or kind == "commutes" else pair[::-1]), kind)
            for pair, kind, forward in kinds
        )
    )


@st.composite
def contents(draw):
    """What is replayed: environment, schema, initial state, signatures and payloads."""
    operations = draw(st.lists(st.tuples(words, json_values), min_size=4, max_size=4))
    return Episode(
        environment=draw(words),
        schema=draw(words),
        initial=draw(json_values),
        operations=tuple(Operation(signature=s, payload=p) for s, p in operations),
        provenance=Provenance(source="source", generator="generator", seed=0),
    )


@st.composite
def evidence(draw):
    """Everything else in the audit view: provenance, versions, replays with messages, certificates, second opinions."""
    provenance = Provenance(
        source=draw(words), generator=draw(words), seed=draw(st.integers(0, 2**31))
    )
    versions = Versions(
        environment=draw(words),
        adapter=draw(words),
        canonicalizer=draw(words),
        verifier=draw(words),
        libraries=draw(st.dictionaries(words, words, max_size=2)),
    )
    orders = list(permutations(range(4)))
    replays = tuple(
        Replay(order, tuple(draw(st.lists(words, max_size=3))), Rejected(draw(words)))
        for order in draw(st.lists(st.sampled_from(orders), max_size=3))
    )
    return {
        "provenance": provenance,
        "versions": versions,
        "replays": replays,
        # Of any form: nothing may look at them.
        "certificates": tuple(draw(st.lists(words, max_size=3))),
        "orbit": tuple(draw(st.lists(st.sampled_from(orders), max_size=3))),
        "cross_checks": (CrossCheck(draw(words), 1, draw(st.integers(0, 1))),),
        "tree": draw(st.none() | words),
        "pairs": tuple(draw(st.lists(words, max_size=3))),
        "complete": draw(st.booleans()),
        "classes": draw(st.none() | st.integers(1, 9)),
    }


def certified(content, relations, found):
    own = ("provenance", "replays", "tree")
    rest = {k: v for k, v in found.items() if k not in own}
    episode = replace(content, provenance=found["provenance"])
    return CertifiedEpisode(
        evidence=EpisodeReplays(episode, found["tree"], found["replays"]),
        relations=relations,
        **rest,
    )


def expected_bytes(relations, permutation, identity):
    """The record as a function of relations and draws: nothing else is in scope here."""
    slots = {op: sorted(permutation[:4]).index(p) for op, p in enumerate(permutation[:4])}
    triples = []
    for relation in relations:
        ends = [slots[relation.first], slots[relation.second]]
        triples.append([*(sorted(ends) if relation.kind == "commutes" else ends), relation.kind])
    record = {
        "pointers": sorted(permutation[:4]),
        "record_id": identity,
        "relations": sorted(triples),
    }
    return {
        "record_id": identity,
        "record": json.dumps(record, sort_keys=True, separators=(",", ":")),
    }


def test_every_audit_field_is_varied_below():
    """A new field must be put into ``contents`` or ``evidence``, or this test says so."""
    assert {f.name for f in fields(CertifiedEpisode)} == {
        "evidence",
        "versions",
        "certificates",
        "relations",
        "orbit",
        "cross_checks",
        "pairs",
        "complete",
        "classes",
    }
    # Only the schedule of a log has the last three; nothing that is certified does.
    of_schedules = {"reads", "settled", "stopped_after"}
    assert {f.name for f in fields(EpisodeReplays)} - of_schedules == {"episode", "tree", "replays"}
    assert {f.name for f in fields(Episode)} == {
        "environment",
        "schema",
        "initial",
        "operations",
        "provenance",
    }


@settings(max_examples=150, deadline=None)
@given(contents(), relation_graphs(), evidence(), evidence(), st.integers(0, 2**31))
def test_bytes_depend_on_relations_and_the_draw_of_the_content_hash_alone(
    content, relations, found, other, seed
):
    """``bytes = f(relations, draw(seed, H), identity(seed, H))`` with ``H`` the digest of what is replayed.

    Provenance, versions, replays, verifier messages, orbit and second opinions do not enter at all. Environment,
    schema, initial state, signatures and payloads enter through ``H`` only: as the seed of a draw and in a digest.
    """
    row = policy_row(anonymise(certified(content, relations, found), seed).record)
    assert row == policy_row(anonymise(certified(content, relations, other), seed).record)
    digest = content.content_hash()
    permutation = [int(p) for p in generator(seed, "pointers", digest).permutation(8)]
    identity = sha256_hex(canonical_json(["vcrt record", seed, digest]))[:16]
    assert row == expected_bytes(relations, permutation, identity)


@settings(max_examples=50, deadline=None)
@given(contents(), contents(), relation_graphs(), evidence())
def test_equal_draws_give_equal_bytes_whatever_the_content(one, other, relations, found):
    """With the content hash held fixed, no part of the content is left in the record."""

    class SameHash(Episode):
        def content_hash(self):
            return "0" * 64

    def with_same_hash(content):
        values = {f.name: getattr(content, f.name) for f in fields(Episode)}
        return SameHash(**values)

    rows = [
        policy_row(anonymise(certified(with_same_hash(content), relations, found), 7).record)
        for content in (one, other)
    ]
    assert rows[0] == rows[1]


# The draws. Fixed seeds; a p-value below 0.001 or above 0.999 would say that they are not uniform, or too even.

NUM_DRAWS = 12_000


@pytest.fixture(scope="module")
def draws():
    return [
        anonymise(made_episode("ab"[number % 2], number, 11), 11) for number in range(NUM_DRAWS)
    ]


def uniform(values, support):
    counts = Counter(values)
    assert set(counts) <= set(support)
    return float(chisquare([counts[value] for value in support]).pvalue)


def test_the_chi_square_test_can_fail():
    biased = [int(v) for v in np.random.default_rng(0).integers(0, 24, NUM_DRAWS)]
    assert uniform(biased, range(24)) > 0.001
    assert uniform([v if i % 8 else 0 for i, v in enumerate(biased)], range(24)) < 1e-6


def test_pointers_and_slots_are_uniform(draws):
    sets = list(combinations(range(8), 4))
    assert 0.001 < uniform([d.record.pointers for d in draws], sets) < 0.999
    slots = list(permutations(range(4)))
    assert 0.001 < uniform([d.slot_of_operation for d in draws], slots) < 0.999
    both = [(d.record.pointers, d.slot_of_operation) for d in draws]
    assert 0.001 < uniform(both, [(a, b) for a in sets for b in slots]) < 0.999


def test_directions_are_uniform_although_steps_are_written_in_a_legal_order(draws):
    ends = [(anti_relation(d.record).first, anti_relation(d.record).second) for d in draws]
    assert 0.001 < uniform(ends, list(permutations(range(4), 2))) < 0.999


def test_identities_are_uniform_and_independent_of_the_pointers(draws):
    for position in range(16):
        digits = [d.record.record_id[position] for d in draws]
        assert 0.0001 < uniform(digits, "0123456789abcdef") < 0.9999, position
    assert len({d.record.record_id for d in draws}) == NUM_DRAWS
    table = np.zeros((16, 24))
    slots = list(permutations(range(4)))
    for d in draws:
        table[int(d.record.record_id[0], 16), slots.index(d.slot_of_operation)] += 1
    assert 0.001 < chi2_contingency(table).pvalue < 0.999


def test_draws_of_one_content_under_two_seeds_are_independent(draws):
    slots = list(permutations(range(4)))
    table = np.zeros((24, 24))
    # Half of them are ten to a cell.
    for number, drawn in enumerate(draws[: NUM_DRAWS // 2]):
        again = anonymise(made_episode("ab"[number % 2], number, 11), 12)
        assert again.record.record_id != drawn.record.record_id
        table[slots.index(drawn.slot_of_operation), slots.index(again.slot_of_operation)] += 1
    assert 0.001 < chi2_contingency(table).pvalue < 0.999


# The files.


class OneEnvironment:
    """The part of a manifest that the check of files reads."""

    counts: ClassVar = {"made": {}}


@pytest.fixture
def policy_file(tmp_path, draws):
    rows = sorted((policy_row(d.record) for d in draws[:600]), key=lambda row: row["record_id"])
    path = tmp_path / policy_name("made")
    path.parent.mkdir()
    write_rows(rows, path)
    return Dataset(tmp_path, OneEnvironment()), path, rows


def test_the_files_form_is_checked(policy_file):
    dataset, path, rows = policy_file
    assert file_findings(dataset) == ()

    def finding(changed):
        write_rows(changed, path)
        (found,) = file_findings(dataset)
        return found

    assert "do not ascend" in finding([*rows[1:], rows[0]])
    assert "do not ascend" in finding([rows[0], *rows])
    spaced = [{**rows[0], "record": rows[0]["record"].replace(",", ", ", 1)}, *rows[1:]]
    assert "canonical form" in finding(spaced)
    foreign = [{**row, "record_id": f"{i:015d}"} for i, row in enumerate(rows[:1])]
    write_rows([*foreign, *rows[1:]], path)
    assert any("16 hexadecimal digits" in found for found in file_findings(dataset))


def test_metadata_in_a_file_is_found(policy_file):
    dataset, path, _ = policy_file
    data = path.read_bytes()
    named = data[:3] + b"\x08" + data[4:10] + b"made\0" + data[10:]
    for changed, finding in {
        named: "metadata before its rows",
        data + gzip.compress(b"", mtime=0): "something behind its rows",
    }.items():
        path.write_bytes(changed)
        (found,) = file_findings(dataset)
        assert finding in found


def test_a_files_bytes_are_a_function_of_its_rows(policy_file, tmp_path):
    _, path, rows = policy_file
    again = tmp_path / "another name"
    write_rows(rows, again)
    assert again.read_bytes() == path.read_bytes()
