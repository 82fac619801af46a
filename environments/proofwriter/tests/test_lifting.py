from __future__ import annotations

import dataclasses
import json
from collections import Counter
from itertools import combinations, islice

import pytest

from proofwriter_support import data_file
from vcrt.certificates.episodes import PAPER_PRESET, CertifiedEpisode, certify_episode
from vcrt.environments.contract import Provenance
from vcrt.replay.replay import replay_exhaustively
from vcrt_proofwriter import lift
from vcrt_proofwriter.english import theory_text
from vcrt_proofwriter.environment import ProofWriterEnvironment
from vcrt_proofwriter.files import LabelledTheory, Refused, read_rows, read_theories
from vcrt_proofwriter.lift import LiftedTheory, lift_theories
from vcrt_proofwriter.search import (
    BINDING_SWEEP,
    NAF_SWEEP,
    SCHEMAS,
    enabled_operations,
    episode_of,
    operations_of,
    search_space,
)
from vcrt_proofwriter.theory import Theory, theory_from_json

ENGLISH = "proofwriter_owa_d5_english.jsonl"
STRUCTURED = "proofwriter_meta_sample.jsonl"
GROUND_SCHEMAS = [schema.name for schema in SCHEMAS[:3]]


@pytest.fixture(scope="module")
def env() -> ProofWriterEnvironment:
    return ProofWriterEnvironment()


def sampled_theory(env, schema: str, seed: int) -> Theory:
    return theory_from_json(env.sample(schema, seed).initial)


def english_row(identity: str, theory: Theory) -> str:
    return json.dumps({"id": identity, "theory": theory_text(theory), "questions": []})


def english_file(tmp_path, lines, name="theories.jsonl"):
    path = tmp_path / name
    path.write_text("".join(line + "\n" for line in lines))
    return path


def rows_of(sources):
    for source in sources:
        if isinstance(source, LabelledTheory):
            yield "theories", source
        else:
            yield from ((source.name, row) for row in read_rows(source))


def lifted(sources, schemas=None, limit=None) -> list[LiftedTheory]:
    """The lifted theories, with the episodes of some schemas."""
    found = list(lift_theories(rows_of(sources), limit))
    assert all(isinstance(item, LiftedTheory) for item in found), found
    if schemas is None:
        return found
    return [
        dataclasses.replace(item, episodes=tuple(e for e in item.episodes if e.schema in schemas))
        for item in found
    ]


def labelled(theory: Theory, identity: str = "t") -> LabelledTheory:
    return LabelledTheory(id=identity, where="here", theory=theory, questions=())


def steps(episode) -> frozenset:
    return frozenset(
        (o.payload["operation"], o.payload["rule"], o.payload["binding"])
        for o in episode.operations
    )


def certified_kinds(env, episodes) -> Counter:
    kinds: Counter = Counter()
    for evidence in replay_exhaustively(env, episodes):
        outcome = certify_episode(evidence, env.versions(), PAPER_PRESET)
        if isinstance(outcome, CertifiedEpisode):
            (kind,) = [r.kind for r in outcome.relations if r.kind != "commutes"]
            kinds[evidence.episode.schema, kind] += 1
        else:
            kinds[evidence.episode.schema, outcome.kind] += 1
    return kinds


# --- what is found --------------------------------------------------------------------------------


def relates_an_entity_to_itself(theory: Theory, key) -> bool:
    """Whether a step is about one entity only and yet about a relation: no schema has such a pair."""
    _, number, binding = key
    atoms = [atom.bind(binding or "") for atom in theory.rules[number - 1].atoms()]
    related = any(atom.predicate != "is" for atom in atoms)
    return related and len(set().union(*(atom.entities() for atom in atoms))) == 1


def all_by_replay(env, theory: Theory, schema, kind: str) -> set[frozenset]:
    """Every set of four operations of the schema's kind that some reference order certifies, by replaying all."""
    field = search_space(theory)
    live = set(enabled_operations(schema, field))
    found = set()
    for chosen in combinations(operations_of(schema, field), 4):
        if len(live & {*chosen}) < 3:  # at most one operation waits for another
            continue
        ordered = sorted(chosen, key=lambda key: key not in live)
        if kind == "precedes" and relates_an_entity_to_itself(theory, ordered[-1]):
            continue
        # An operation that waits may still stand last; of a conflict, either order of the pair may be the reference.
        orders = [ordered] if kind == "precedes" else [ordered, ordered[::-1]]
        for keys in orders:
            episode = episode_of(
                schema, theory, keys, Provenance(source="s", generator="g", seed=0)
            )
            if certified_kinds(env, [episode])[schema.name, kind] == 1:
                found.add(steps(episode))
    return found


@pytest.mark.parametrize("schema", ["attribute_chain", "conjunctive_join", "relational_join"])
def test_all_ground_episodes_are_found_and_no_other(env, schema) -> None:
    total = 0
    for seed in range(40):
        theory = sampled_theory(env, schema, seed)
        if theory.assumption == "CWA" or len(operations_of(SCHEMAS[0], search_space(theory))) > 30:
            continue
        (item,) = lifted([labelled(theory)], schemas=GROUND_SCHEMAS)
        found = [steps(episode) for episode in item.episodes]
        assert len(set(found)) == len(found)
        if len(found) > 40:
            continue
        assert set(found) == all_by_replay(env, theory, SCHEMAS[0], "precedes")
        total += len(found)
        if total > 12:
            break
    assert total > 12


def test_all_binding_sweeps_are_found_and_no_other(env) -> None:
    total = 0
    for seed in range(12):
        theory = sampled_theory(env, "binding_sweep", seed)
        if theory.assumption == "CWA":
            continue
        (item,) = lifted([labelled(theory)], schemas=[BINDING_SWEEP.name])
        found = [steps(episode) for episode in item.episodes]
        assert len(set(found)) == len(found)
        assert set(found) == all_by_replay(env, theory, BINDING_SWEEP, "conflicts")
        total += len(found)
    assert total >= 6


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.name)
def test_lifting_finds_again_what_was_sampled(env, schema) -> None:
    for seed in range(6):
        episode = env.sample(schema.name, seed)
        theory = theory_from_json(episode.initial)
        (item,) = lifted([labelled(theory)], schemas=[schema.name])
        assert steps(episode) in {steps(found) for found in item.episodes}


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.name)
def test_everything_lifted_certifies(env, schema) -> None:
    theories = [labelled(sampled_theory(env, schema.name, seed), f"t{seed}") for seed in range(6)]
    episodes = [e for item in lifted(theories, limit=12) for e in item.episodes]
    kinds = certified_kinds(env, episodes)
    relations = {s.name: s.relation for s in SCHEMAS}
    assert all(relations[name] == kind for name, kind in kinds)
    assert sum(kinds.values()) == len(episodes)
    assert kinds[schema.name, schema.relation] >= 6
    for episode in episodes[::20]:
        assert all(check.agreed == check.checked for check in env.cross_check(episode))


def test_open_worlds_hold_no_naf_sweep(env) -> None:
    worlds = [
        labelled(theory, str(seed))
        for seed in range(20)
        if (theory := sampled_theory(env, "binding_sweep", seed)).assumption == "OWA"
    ]
    assert not any(item.episodes for item in lifted(worlds, schemas=[NAF_SWEEP.name]))


def test_a_rule_that_stands_twice_gives_no_episode_twice(env) -> None:
    theory = sampled_theory(env, "attribute_chain", 1)
    doubled = Theory(
        assumption=theory.assumption, facts=theory.facts, rules=theory.rules + theory.rules
    )
    once, twice = (lifted([labelled(t)])[0].episodes for t in (theory, doubled))
    assert {steps(e) for e in once} == {steps(e) for e in twice}


def test_the_pair_stands_anywhere(env) -> None:
    theories = [labelled(sampled_theory(env, "naf_sweep", s), str(s)) for s in range(25)]
    places: Counter = Counter()
    for evidence in replay_exhaustively(
        env, [e for t in lifted(theories, schemas=[NAF_SWEEP.name]) for e in t.episodes]
    ):
        outcome = certify_episode(evidence, env.versions(), PAPER_PRESET)
        (pair,) = [(r.first, r.second) for r in outcome.relations if r.kind != "commutes"]
        places[pair] += 1
    assert len(places) == 6
    assert max(places.values()) < sum(places.values()) / 3


# --- identity and provenance ----------------------------------------------------------------------


def test_identity_and_provenance(env, tmp_path) -> None:
    rows = [
        english_row(f"AttNeg-{theory.assumption}-D5-{seed}", theory)
        for seed in range(12)
        if (theory := sampled_theory(env, "conjunctive_join", seed))
    ]
    path = english_file(tmp_path, rows, "meta-test.jsonl")
    items = lifted([path])
    assert items == lifted([path])
    assert [item.where for item in items] == [f"{path}, line {n}" for n in range(1, 13)]
    episodes = [episode for item in items for episode in item.episodes]
    assert len({e.episode_id for e in episodes}) == len(episodes)
    assert len({e.content_hash() for e in episodes}) == len(episodes) > 30
    for item in items:
        for episode in item.episodes:
            assert episode.provenance.source == f"meta-test.jsonl#{item.id}"
            assert episode.provenance.generator == f"proofwriter.lift.{episode.schema}"
            assert 0 <= episode.provenance.seed < 2**53
    # An episode is the same one whatever else is lifted with it.
    (alone,) = lifted([english_file(tmp_path, [rows[5]], "meta-test.jsonl")])
    assert alone.episodes == items[5].episodes


def test_a_limit_takes_the_first_of_all(env) -> None:
    theory = labelled(sampled_theory(env, "attribute_chain", 5))
    (whole,) = lifted([theory])
    counts = Counter(episode.schema for episode in whole.episodes)
    assert whole.limited == ()
    assert counts["attribute_chain"] > 4
    (part,) = lifted([theory], limit=4)
    assert set(part.limited) == {name for name, number in counts.items() if number > 4}
    for name, number in counts.items():
        first = [e for e in whole.episodes if e.schema == name][:4]
        assert [e for e in part.episodes if e.schema == name] == first
        assert len(first) == min(4, number)
    (none,) = lifted([theory], limit=0)
    assert none.episodes == ()


def test_episodes_whose_hashes_collide_get_other_seeds(env, monkeypatch) -> None:
    monkeypatch.setattr(lift, "_SEEDS", 50)
    theories = [labelled(sampled_theory(env, "naf_sweep", s), str(s)) for s in range(25)]
    episodes = [
        e for item in lifted(theories, schemas=[NAF_SWEEP.name], limit=1) for e in item.episodes
    ]
    assert len(episodes) == 25
    assert len({e.episode_id for e in episodes}) == 25
    assert max(e.provenance.seed for e in episodes) < 50


# --- what cannot be used --------------------------------------------------------------------------


def test_lines_that_cannot_be_used_are_reported_and_stop_nothing(env, tmp_path) -> None:
    good, other = (sampled_theory(env, "naf_sweep", seed) for seed in (1, 2))
    path = english_file(
        tmp_path,
        [
            english_row("A-CWA-1", good),
            "{",
            json.dumps({"id": "A-CWA-2", "theory": "Colourless green ideas.", "questions": []}),
            json.dumps({"id": "A-CWA-3", "theory": "Bob is big.", "questions": {}}),
            json.dumps(
                {
                    "id": "A-CWA-4",
                    "theory": "Bob is big. If someone is not red then they are red.",
                    "questions": [],
                }
            ),
            json.dumps({"id": "A-OWA-5", "theory": "Bob is big. Bob is not big.", "questions": []}),
            english_row("A-CWA-6", good),
            "",
            english_row("A-CWA-7", other),
        ],
    )
    found = list(lift_theories(rows_of([path, tmp_path / "absent.jsonl"])))
    reasons = {
        item.where: (item.id, item.error.what) for item in found if isinstance(item, Refused)
    }
    at = [f"{path}, line {number}" for number in range(10)]
    assert reasons == {
        at[2]: (None, "not a JSON line"),
        at[3]: ("A-CWA-2", "a sentence outside the grammar of ProofWriter's English"),
        at[4]: ("A-CWA-3", "the field 'questions' of a row is missing or malformed"),
        at[5]: (
            "A-CWA-4",
            "the theory is not stratified: negation as failure runs in a circle",
        ),
        at[6]: ("A-OWA-5", "the theory contradicts itself"),
        at[7]: ("A-CWA-6", "the same theory stood before"),
        at[8]: (None, "empty line"),
        str(tmp_path / "absent.jsonl"): (None, "cannot read the file"),
    }
    assert all(
        str(item.error.where).startswith(item.where) for item in found if isinstance(item, Refused)
    )
    lifted_items = [item for item in found if isinstance(item, LiftedTheory)]
    assert [item.id for item in lifted_items] == ["A-CWA-1", "A-CWA-7"]
    assert all(item.episodes for item in lifted_items)
    assert at[1] in str(next(i for i in found if i.where == at[7]).error)


# --- real theories --------------------------------------------------------------------------------


def test_real_structured_theories_are_lifted() -> None:
    items = lifted([data_file(STRUCTURED)])
    assert [item.id.split("-")[1] for item in items] == ["CWA", "CWA", "OWA"]
    for item in items:
        assert {e.provenance.source for e in item.episodes} <= {f"{STRUCTURED}#{item.id}"}


@pytest.mark.slow
def test_real_theories_hold_episodes_that_certify(env) -> None:
    rows = list(islice(read_theories(data_file(ENGLISH)), 0, None, 25))
    items = lifted(rows)
    episodes = [e for item in items for e in item.episodes]
    assert 5000 < 1000 * len(episodes) / len(rows) < 12000
    kinds = certified_kinds(env, episodes)
    relations = {s.name: s.relation for s in SCHEMAS}
    assert all(relations[name] == kind for name, kind in kinds)


@pytest.mark.slow
@pytest.mark.nightly
def test_all_real_theories(env) -> None:
    items = lifted([data_file(ENGLISH)])
    assert len(items) == 2500
    counts = Counter(e.schema for item in items for e in item.episodes)
    assert counts == {
        "attribute_chain": 10753,
        "conjunctive_join": 6121,
        "relational_join": 2669,
        "binding_sweep": 490,
    }
    relations = {s.name: s.relation for s in SCHEMAS}
    # Replay takes nearly all of the time: one theory in five is 500.
    for item in items[::5]:
        kinds = certified_kinds(env, item.episodes)
        assert all(relations[name] == kind for name, kind in kinds)
