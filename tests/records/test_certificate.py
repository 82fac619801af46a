"""A certificate by itself: what is written is verified, and whatever is changed in it is found."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import toy_environment as toy
from vcrt.certificates.episodes import PAPER_PRESET, CertifiedEpisode, certify_episode
from vcrt.certificates.replay_tree import EpisodeReplays
from vcrt.datasets.examination import examine, verify_certificate
from vcrt.environments.contract import CrossCheck, Rejected
from vcrt.environments.registry import load_environment
from vcrt.errors import DatasetError, UnavailableError, UnknownNameError, VerifierFailure
from vcrt.hashing import json_digest
from vcrt.records import certificate as module
from vcrt.records.certificate import (
    certificate_document,
    document_text,
    first_difference,
    read_certificate,
)
from vcrt.replay.replay import replay_exhaustively

TOY = {"toy": toy.ToyEnvironment}


def certified_by(environment, schema="needs", seed=3, *, change=lambda episode: episode):
    episode = change(environment.sample(schema, seed))
    (evidence,) = replay_exhaustively(environment, [episode])
    checks = environment.cross_check(episode)
    outcome = certify_episode(evidence, environment.versions(), PAPER_PRESET, checks)
    assert isinstance(outcome, CertifiedEpisode), outcome
    return outcome


def document_by(environment, *arguments, **options):
    return certificate_document(certified_by(environment, *arguments, **options), PAPER_PRESET)


DOCUMENT = json.loads(document_text(document_by(toy.ToyEnvironment())))


def sealed(document):
    """The document with the digest that it should have, as a careful forger makes it."""
    rest = {name: value for name, value in document.items() if name != "sha256"}
    return {**rest, "sha256": json_digest(rest)}


@pytest.fixture
def write(tmp_path):
    def written(document):
        path = tmp_path / "certificate.json"
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return path

    return written


def refused(path, factories=TOY):
    """The error of a certificate that must be found wrong."""
    with pytest.raises(DatasetError) as caught:
        verify_certificate(path, factories=factories)
    error = caught.value
    assert str(path) in error.where
    assert error.found
    return error


@pytest.mark.parametrize(
    ("environment", "schema"),
    [
        ("clrs", "bellman_ford"),
        ("clrs", "mst_kruskal"),
        ("proofwriter", "attribute_chain"),
        ("proofwriter", "naf_sweep"),
        ("lean", "have"),
    ],
)
def test_what_a_real_verifier_certifies_is_verified_from_the_bytes_alone(
    environment, schema, write
):
    made = load_environment(environment)
    document = document_by(made, schema, 7)
    path = write(document)
    check = verify_certificate(path)
    assert check.certificate.certified == certified_by(made, schema, 7)
    assert check.replays == 24
    assert check.hashes == sum(len(replay["state_hashes"]) for replay in document["replays"])
    assert check.messages == (12 if "precedes" in str(document["relations"]) else 0)


def test_verification_asks_the_environment_and_only_the_bytes(write):
    path = write(DOCUMENT)
    check = verify_certificate(path, factories=TOY)
    assert check.certificate.sha256 == DOCUMENT["sha256"]
    assert certificate_document(check.certificate.certified, PAPER_PRESET) == DOCUMENT


def test_examined_on_the_spot_is_the_same_document():
    episode = toy.ToyEnvironment().sample("needs", 3)
    examined = examine(toy.ToyEnvironment, episode, PAPER_PRESET)
    assert document_text(examined.document()) == document_text(DOCUMENT)


def test_white_space_and_the_order_of_fields_mean_nothing(write):
    shuffled = dict(reversed(DOCUMENT.items()))
    for text in (
        json.dumps(shuffled, indent=7),
        "\n\t " + json.dumps(DOCUMENT, separators=(" , ", " : ")) + "\n",
        json.dumps(DOCUMENT, ensure_ascii=False),
    ):
        assert read_certificate(write(text)).sha256 == DOCUMENT["sha256"]


def leaves(value, path=()):
    """The paths of all values that hold no other values."""
    children = value.items() if isinstance(value, dict) else enumerate(value)
    for name, child in children:
        if isinstance(child, (dict, list)) and child:
            yield from leaves(child, (*path, name))
        else:
            yield (*path, name)


def at(document, path):
    for name in path:
        document = document[name]
    return document


def changed_at(document, path, value):
    document = deepcopy(document)
    at(document, path[:-1])[path[-1]] = value
    return document


LEAVES = list(leaves(DOCUMENT))
#: One path of each kind of field, indices aside.
KINDS = {tuple(name for name in path if isinstance(name, str)): path for path in LEAVES}


def others(value):
    """Values that a leaf might be changed into: of its own type and of every other."""
    own = []
    if isinstance(value, bool):
        own = [not value]
    elif isinstance(value, int):
        own = [value + 1, value - 1, float(value), -value - 1, str(value)]
    elif isinstance(value, str):
        flipped = ("0" if value[:1] != "0" else "1") + value[1:]
        own = [flipped, value + " ", value[:-1], value.upper() + "A", "\u001b[2J", "0" * 64]
    return [other for other in (*own, None, True, 0, [], {}, "x") if not same(other, value)]


def same(one, other):
    return json.dumps(one) == json.dumps(other)


changes = st.sampled_from(LEAVES).flatmap(
    lambda path: st.tuples(st.just(path), st.sampled_from(others(at(DOCUMENT, path))))
)
quickly = settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@quickly
@given(change=changes)
def test_any_changed_leaf_is_found(change, write):
    with pytest.raises(DatasetError):
        read_certificate(write(changed_at(DOCUMENT, *change)))


@quickly
@given(change=changes)
def test_any_changed_leaf_is_found_even_with_a_digest_that_fits(change, write):
    path, _ = change
    document = sealed(changed_at(DOCUMENT, *change))
    if path == ("sha256",):
        assert document == DOCUMENT
        return
    # Second opinions are not derived from the replays: they are compared when they are repeated.
    assume(path[0] != "cross_checks")
    with pytest.raises(DatasetError):
        read_certificate(write(document))


@pytest.mark.parametrize("path", KINDS.values(), ids=lambda path: ".".join(map(str, path)))
def test_every_kind_of_field_is_guarded_with_and_without_a_fitting_digest(path, write):
    for value in others(at(DOCUMENT, path)):
        document = changed_at(DOCUMENT, path, value)
        for forged in [document] if path == ("sha256",) else [document, sealed(document)]:
            with pytest.raises(DatasetError):
                read_certificate(write(forged))


def containers(value, path=()):
    if isinstance(value, (dict, list)):
        yield path
        for name, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from containers(child, (*path, name))


#: Second opinions are not derived from the replays: that one is missing shows when they are repeated.
DERIVED = [path for path in containers(DOCUMENT) if path[:1] != ("cross_checks",)]


@quickly
@given(path=st.sampled_from(DERIVED), data=st.data())
def test_any_part_that_is_added_removed_or_repeated_is_found(path, data, write):
    document = deepcopy(DOCUMENT)
    part = at(document, path)
    if isinstance(part, dict):
        if part and data.draw(st.booleans()):
            del part[data.draw(st.sampled_from(sorted(part)))]
        else:
            part["more"] = 1
    elif part and data.draw(st.booleans()):
        place = data.draw(st.sampled_from(range(len(part))))
        part[place : place + 1] = data.draw(st.sampled_from([[], [part[place]] * 2]))
    else:
        part.append(0)
    if "sha256" in document:
        document = sealed(document)
    with pytest.raises(DatasetError):
        read_certificate(write(document))


def test_the_error_names_the_field_the_pair_and_the_context(write):
    index, certificate = next(
        (i, c) for i, c in enumerate(DOCUMENT["certificates"]) if c["verdict"] == "precedes"
    )
    document = changed_at(DOCUMENT, ("certificates", index, "verdict"), "diamond")
    assert "field sha256" in refused(write(document)).where
    error = refused(write(sealed(document)))
    one, other = certificate["forward"]["operations"]
    assert f"certificates[{index}].verdict (steps {one} and {other} at the start)" in error.where
    assert (error.found, error.expected) == ('"diamond"', '"precedes"')
    assert "vcrt show" in error.remedy


class OtherMessage(toy.ToyEnvironment):
    """Refuses in other words."""

    def step(self, state, operation):
        answer = super().step(state, operation)
        return Rejected("no such name") if isinstance(answer, Rejected) else answer


class OtherStates(toy.ToyEnvironment):
    """Knows its states by other bytes."""

    def canonical(self, state):
        return super().canonical(state) + (b" " if "start" in state and len(state) == 3 else b"")


class OtherOpinion(toy.ToyEnvironment):
    def cross_check(self, episode):
        return (CrossCheck("toy twice", 2, 2),)


@pytest.mark.parametrize(
    ("forger", "field"),
    [
        (OtherMessage, r"replays\[\d+\]\.rejection \(step \d then \d (after [\d ]+|at the start)"),
        (OtherStates, r"replays\[0\]\.state_hashes\[2\] \(step 1 then 2 after 0\)"),
        (OtherOpinion, r"cross_checks\[0\]\[1\]"),
    ],
)
def test_a_forgery_that_agrees_with_itself_is_found_by_replaying(forger, field, write):
    path = write(document_by(forger()))
    read_certificate(path)
    with pytest.raises(DatasetError, match="does not replay as it says") as caught:
        verify_certificate(path, factories=TOY)
    assert re.search(field, caught.value.where), caught.value.where
    assert str(path) in caught.value.where
    assert caught.value.found != caught.value.expected


def test_an_illegal_order_made_legal_throughout_is_found_by_replaying(write):
    """Every state and every verdict says that the needed step is not needed; only the verifier disagrees."""
    certified = certified_by(toy.ToyEnvironment(), "overwrite")
    conflict = next(r for r in certified.relations if r.kind == "conflicts")
    swapped = {conflict.first: conflict.second, conflict.second: conflict.first}
    replays = {replay.sequence: replay for replay in certified.replays}
    forged = tuple(
        replace(
            replay,
            state_hashes=replays[tuple(swapped.get(i, i) for i in replay.sequence)].state_hashes,
        )
        for replay in certified.replays
    )
    outcome = certify_episode(
        EpisodeReplays.of_every_order(certified.episode, forged),
        certified.versions,
        PAPER_PRESET,
        certified.cross_checks,
    )
    assert isinstance(outcome, CertifiedEpisode)
    error = refused(write(certificate_document(outcome, PAPER_PRESET)))
    assert "does not replay as it says" in error.what


def test_other_versions_say_what_was_checked_and_what_could_not_be(write):
    certified = certified_by(toy.ToyEnvironment())
    for change in ({"verifier": "toy 0"}, {"adapter": "0"}, {"libraries": {"libtoy": "0"}}):
        versions = replace(certified.versions, **change)
        document = certificate_document(replace(certified, versions=versions), PAPER_PRESET)
        error = refused(write(document))
        assert "other versions of 'toy'" in error.what
        assert f"versions.{next(iter(change))}" in error.where
        assert "digest holds" in error.remedy
        assert "no replay could be repeated" in error.remedy
    # Versions that change from one process to the next are never those of the certificate.
    refused(write(DOCUMENT), {"toy": toy.ChangingVersions})


class Missing(toy.ToyEnvironment):
    def versions(self):
        raise UnavailableError("toy is not installed", remedy="install it")


def test_a_missing_verifier_says_what_was_checked(write):
    with pytest.raises(UnavailableError, match="toy is not installed") as caught:
        verify_certificate(write(DOCUMENT), factories={"toy": Missing})
    assert caught.value.remedy.startswith("install it; its digest holds")


def test_an_environment_that_is_not_registered_is_an_unknown_name(write):
    with pytest.raises(UnknownNameError, match="unknown environment 'toy'"):
        verify_certificate(write(DOCUMENT))


@pytest.mark.parametrize(
    "broken",
    [
        toy.DyingVerifier,
        pytest.param(toy.KilledProcess, marks=pytest.mark.processes),
        toy.SkipsAnswers,
    ],
)
def test_a_verifier_that_breaks_is_an_error_and_no_verdict(broken, write):
    with pytest.raises(VerifierFailure):
        verify_certificate(write(DOCUMENT), factories={"toy": broken})


def test_a_step_that_the_environment_cannot_read_is_the_files_fault(write):
    """Consistent in itself, but with payloads of another environment."""
    certified = certified_by(toy.ToyEnvironment())
    foreign = tuple(replace(o, payload="rm -rf /") for o in certified.episode.operations)
    episode = replace(certified.episode, operations=foreign)
    document = certificate_document(
        replace(certified, evidence=replace(certified.evidence, episode=episode)), PAPER_PRESET
    )
    assert "cannot read the certificate's episode" in refused(write(document)).what


def test_another_environments_name_does_not_make_its_verifier_run_foreign_steps(write):
    certified = certified_by(toy.ToyEnvironment())
    clrs = load_environment("clrs")
    episode = replace(certified.episode, environment="clrs", schema="bellman_ford")
    evidence = replace(certified.evidence, episode=episode)
    forged = replace(certified, evidence=evidence, versions=clrs.versions())
    error = refused(write(certificate_document(forged, PAPER_PRESET)), factories=None)
    assert "refuses the certificate's episode" in error.what
    assert "initial.adjacency" in error.where


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "Expecting value"),
        ("{", "Expecting property name"),
        ("[]", "a list and no object"),
        ('"certificate"', "a str and no object"),
        ("{}", "Field required"),
        ("[" * 100_000, "recursion"),
        ('{"a": ' + "[" * 70 + "]" * 70 + "}", "more than 64 deep"),
        ('{"format": "a", "format": "b"}', "a field twice"),
        ('{"format": NaN}', "NaN"),
        ('{"format": 1e999}', "not JSON compliant"),
        ('{"format": "\\ud800"}', "surrogates not allowed"),
        ('{"format": ' + "9" * 5000 + "}", "integer string"),
        ("\ufffe", "Expecting value"),
    ],
)
def test_what_is_no_document_is_refused_by_its_form(text, found, write):
    error = refused(write(text))
    assert "documented form" in error.what
    assert found in error.found


def test_a_document_has_a_largest_size(write, monkeypatch):
    size = len(json.dumps(DOCUMENT))
    monkeypatch.setattr(module, "MAX_BYTES", size)
    read_certificate(write(DOCUMENT))
    monkeypatch.setattr(module, "MAX_BYTES", size - 1)
    assert f"more than {size - 1:,} bytes" in refused(write(DOCUMENT)).found


def test_too_many_operations_are_refused_before_their_orders_are_counted(write):
    document = deepcopy(DOCUMENT)
    document["episode"]["operations"] *= 5
    assert "episode.operations" in refused(write(sealed(document))).where


def test_the_largest_episode_still_fits(write):
    """All orders of as many operations as a document may have, in a file of the permitted size."""
    size = len(document_text(DOCUMENT))
    orders, hashes = 5040, 8
    per_replay = len(json.dumps(DOCUMENT["replays"][0], indent=2)) * hashes / 5
    contexts = sum(21 * count for count in (1, 5, 20, 60, 120, 120))
    per_certificate = len(json.dumps(DOCUMENT["certificates"][0], indent=4))
    assert size + orders * per_replay + contexts * per_certificate < module.MAX_BYTES


def test_an_exclusion_is_no_certificate(write):
    episode = toy.AlwaysAccepts().sample("needs", 3)
    examined = examine(toy.AlwaysAccepts, episode, PAPER_PRESET)
    document = examined.document()
    assert document["format"] == "vcrt-exclusion/1"
    assert document["exclusion"]["kind"] == "outside_schema"
    assert "left out" in refused(write(document)).what
    pretended = sealed({**document, "format": "vcrt-certificate/1"})
    assert "documented form" in refused(write(pretended)).what


def test_differences_are_found_by_their_bytes():
    assert first_difference({"a": [1, 2]}, {"a": [1, 2]}) is None
    for found, expected, name in (
        ({"a": [1, True]}, {"a": [1, 1]}, "a[1]"),
        ({"a": [1.0]}, {"a": [1]}, "a[0]"),
        ({"a": []}, {"a": {}}, "a"),
        ({"a": [1]}, {"a": [1, 2]}, "a[1]"),
        ({"a": 1, "b": 2}, {"a": 1}, "b"),
    ):
        difference = first_difference(found, expected)
        assert difference.name == name
        assert difference.found != difference.expected
