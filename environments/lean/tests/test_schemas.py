"""The generators of Lean episodes: what is the default, how varied they are, and that all of them certify."""

from __future__ import annotations

import itertools
import re

import pytest

from vcrt.certificates.episodes import PAPER_PRESET, CertifiedEpisode, certify_episode
from vcrt.environments.contract import Episode
from vcrt.hashing import canonical_json
from vcrt.replay.replay import replay_exhaustively
from vcrt_lean.environment import LeanEnvironment
from vcrt_lean.schemas import SCHEMAS, sample_episode
from vcrt_lean.terms import MAX_CONSTRUCTORS

NAMES = tuple(schema.name for schema in SCHEMAS)
GENERATED = re.compile(r"\b[a-z]{2}\d+\b")


def texts(episode: Episode) -> list[str]:
    return [str(operation.payload) for operation in episode.operations]


def without_names(episode: Episode) -> str:
    """The whole content with its names numbered in the order of their appearance."""
    numbers: dict[str, str] = {}
    content = canonical_json([episode.initial, *texts(episode)]).decode()
    return GENERATED.sub(lambda match: numbers.setdefault(match[0], f"#{len(numbers)}"), content)


def dependent_pair(episode: Episode) -> tuple[int, int]:
    """The two steps of which the later one speaks of the earlier one's name."""
    ((a, b),) = (
        (a, b)
        for a, b in itertools.permutations(range(episode.num_operations), 2)
        if re.search(rf"\b{episode.operations[a].signature}\b", texts(episode)[b])
    )
    return a, b


def test_five_schemas_of_both_kinds_are_the_default():
    assert [(s.name, s.relation) for s in SCHEMAS if s.default] == [
        ("cite", "precedes"),
        ("defn", "precedes"),
        ("inductive", "precedes"),
        ("tactic_siblings", "precedes"),
        ("instances", "conflicts"),
    ]
    assert [s.name for s in SCHEMAS if not s.default] == ["have", "shadow"]


@pytest.mark.parametrize("schema", NAMES)
def test_every_episode_is_another_one_even_without_its_names(schema):
    assert len({without_names(sample_episode(schema, seed)) for seed in range(600)}) == 600


@pytest.mark.parametrize("schema", NAMES)
def test_names_are_all_of_one_kind(schema):
    """So that no name tells which part its step plays."""
    for seed in range(60):
        for operation in sample_episode(schema, seed).operations:
            assert GENERATED.fullmatch(operation.signature)


@pytest.mark.parametrize("schema", ["cite", "defn", "inductive"])
def test_the_dependent_pair_stands_anywhere(schema):
    places = {dependent_pair(sample_episode(schema, seed)) for seed in range(120)}
    assert places == set(itertools.combinations(range(4), 2))


def test_definitions_are_of_many_shapes():
    shapes = set()
    for seed in range(200):
        episode = sample_episode("defn", seed)
        first, second = (texts(episode)[i] for i in dependent_pair(episode))
        assert first.startswith("noncomputable def ")
        assert second.startswith("theorem ")
        kind = re.fullmatch(r"noncomputable def \S+ (?:\(.*\) )?: (.*) := .*", first)
        assert kind is not None
        shapes.add((kind[1], "(n : " in first, second.split(" : ")[-1].split(" ")[0]))
    assert {kind for kind, _, _ in shapes} == {"N", "Bool", "N → N", "Prop"}
    assert len(shapes) > 20


def test_inductive_types_have_one_to_five_constructors_and_uses_of_both_kinds():
    counts, uses, kinds = set(), set(), set()
    for seed in range(200):
        episode = sample_episode("inductive", seed)
        first, second = (texts(episode)[i] for i in dependent_pair(episode))
        assert first.startswith("inductive ")
        counts.add(first.count(" | "))
        uses.add(second.removeprefix("noncomputable ").split(" ")[0])
        rest = set(texts(episode)) - {first, second}
        kinds |= {text.removeprefix("noncomputable ").split(" ")[0] for text in rest}
    assert counts == set(range(1, MAX_CONSTRUCTORS + 1))
    assert uses == {"theorem", "def"}
    assert kinds == {"theorem", "def", "inductive"}


def certify(schema: str, seeds: range) -> None:
    environment = LeanEnvironment()
    versions = environment.versions()
    wanted = environment.schema(schema).relation
    for evidence in replay_exhaustively(
        environment, [environment.sample(schema, s) for s in seeds]
    ):
        outcome = certify_episode(evidence, versions, PAPER_PRESET)
        assert isinstance(outcome, CertifiedEpisode), outcome
        kinds = [relation.kind for relation in outcome.relations]
        assert sorted(kinds) == sorted(["commutes"] * 5 + [wanted])


@pytest.mark.parametrize("schema", NAMES)
def test_every_sampled_episode_certifies(schema):
    certify(schema, range(1000, 1006))


@pytest.mark.slow
@pytest.mark.parametrize("schema", NAMES)
def test_every_one_of_many_sampled_episodes_certifies(schema):
    certify(schema, range(2000, 2060))


def test_binders_that_lean_names_itself_do_not_depend_on_the_place_in_a_batch():
    environment = LeanEnvironment()
    # Case analysis without a motive of its own: Lean makes one up, with a binder named after the place in the text.
    episode = environment.sample("inductive", 1426595800)
    assert any(".rec" in str(operation.payload) for operation in episode.operations)
    ((check,),) = environment.cross_check_all([environment.sample("cite", 0), episode])[1:]
    assert (check.checked, check.agreed) == (24, 24)
