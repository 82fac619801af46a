"""The frozen suites of long episodes: every environment has them at every size, with one to six anti-diamonds."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from long_graphs import certified_relations
from vcrt.certificates.episodes import PRESETS
from vcrt.environments.contract import Accepted
from vcrt.environments.posets import SIZES, below_of
from vcrt.environments.registry import load_environment
from vcrt.environments.relation_search import walked_relations
from vcrt.errors import MalformedInputError
from vcrt.randomness import generator
from vcrt.replay.config import select_schemas

NAMES = ("clrs", "lean", "proofwriter")
SUITES = [(name, size) for name in NAMES for size in SIZES]
#: How many seeds of each size are sampled here, and of how many the relations are looked at.
SAMPLED = {6: 16, 8: 8, 12: 4, 16: 4}
CERTIFIED = {"clrs": 16, "lean": 2, "proofwriter": 16}
GOLDEN: dict[tuple[str, int], str] = {
    ("clrs", 6): "4394ce94e5d5b8deb864122374141dbe4d2108c0a74a3abf18fdc3c350d4790f",
    ("clrs", 8): "fd4bd79b2c1b338ecce4b03bf0835c61f8f687e390890ff955a5b34046ee9b5d",
    ("clrs", 12): "8034aec95285be4425fc2e64d863a82dd67e0f8e27f6bb03bf7326a5a5a76a5c",
    ("clrs", 16): "cdd51d1eaf0160d14ae90bb34f3aeaef3d1af07ed2f5824e63b71d73d6c93521",
    ("lean", 6): "f881ac836405a13dacc0373075d51f572b8042bbd9b8e35e8e1fdafc3c1f84d5",
    ("lean", 8): "254ab7e8d33a2d20f0fd183f96a04797d6010dd365b3a10212d4f8fe96b66fb5",
    ("lean", 12): "240c0602b393b1875c2de81f69bfae4bc8b02098b4b03a6fd0908cbb5cedec04",
    ("lean", 16): "28da571beba41f2d040e38f3cae9aae2252da19adfc3a7a6f75f751a6843083a",
    ("proofwriter", 6): "0e357bcb08843d8a5ec1ffd290fc7c6266c73a498db35bb2a86bea196eab3fe5",
    ("proofwriter", 8): "b85cee8fe135f35374c6da35699e0c557a354604bce2b80a03fd0091f252c9f3",
    ("proofwriter", 12): "44258231b6b23e57e4d75d94444c7087eefad5559520c0c0485bdc5fefef1149",
    ("proofwriter", 16): "aec0756a1b832648c65abe9edfc157ec33447197b4937498021ffb27262ad6ab",
}


@cache
def environment(name):
    return load_environment(name)


@cache
def sampled(name, size):
    return [environment(name).sample(f"posets{size}", seed) for seed in range(SAMPLED[size])]


def walked(name, episode):
    """The relations that random walks over single steps show."""
    env = environment(name)

    def take(state, step):
        answer = env.step(state, episode.operations[step])
        return answer.state if isinstance(answer, Accepted) else None

    below = below_of(generator(episode.provenance.seed, "walks of a test"))
    start = env.initial_state(episode)
    return walked_relations(episode.num_operations, start, take, env.canonical, below)


def test_a_preset_stands_for_one_schema_of_each_environment() -> None:
    for size in SIZES:
        chosen = select_schemas(preset=f"posets{size}")
        assert chosen == dict.fromkeys(NAMES, (f"posets{size}",))
        assert PRESETS[f"posets{size}"].num_operations == size
        assert PRESETS[f"posets{size}"].orbit_size is None
    for preset, number in (("paper", 5), ("several", 2)):
        default = select_schemas(preset=preset)
        assert [len(schemas) for schemas in default.values()] == [number] * 3
        assert not any(name.startswith("posets") for each in default.values() for name in each)


@pytest.mark.parametrize(("name", "size"), SUITES)
def test_episodes_are_distinct_of_their_size_and_made_again_from_their_seed(name, size) -> None:
    episodes = sampled(name, size)
    assert {episode.num_operations for episode in episodes} == {size}
    assert len({episode.content_hash() for episode in episodes}) == len(episodes)
    assert len({episode.provenance.source for episode in episodes}) == len(episodes)
    assert load_environment(name).sample(f"posets{size}", 3) == episodes[3]
    assert episodes[3].content_hash() == GOLDEN[name, size]


@pytest.mark.parametrize("size", [6, 8])
@pytest.mark.parametrize("name", ["clrs", "proofwriter"])
def test_most_have_one_to_six_anti_diamonds_of_both_kinds_in_every_context(name, size) -> None:
    numbers, kinds = Counter(), Counter()
    episodes = sampled(name, size)[: CERTIFIED[name]]
    for episode in episodes:
        found, _ = certified_relations(environment(name), episode)
        if found is not None and found.few:
            numbers[len(found.anti_diamonds)] += 1
            kinds.update(found.kinds[pair] for pair in found.anti_diamonds)
    assert sum(numbers.values()) == len(episodes)
    assert len(numbers) >= 4, numbers
    assert min(kinds["precedes"], kinds["conflicts"]) >= 1


@pytest.mark.parametrize("size", [12, 16])
@pytest.mark.parametrize("name", ["clrs", "proofwriter"])
def test_other_walks_than_the_samplers_show_the_same(name, size) -> None:
    episodes = sampled(name, size)[:4]
    found = [walked(name, episode) for episode in episodes]
    assert sum(each is not None and each.few for each in found) >= 0.7 * len(episodes)
    assert len({len(each.anti_diamonds) for each in found if each is not None}) > 1


@pytest.mark.parametrize(
    ("name", "size"),
    [
        pytest.param(*suite, marks=pytest.mark.slow if suite[0] == "lean" and suite[1] > 6 else [])
        for suite in SUITES
    ],
)
def test_second_opinions_agree_on_a_bounded_number_of_orders(name, size) -> None:
    episodes = sampled(name, size)[:1]
    for checks in environment(name).cross_check_all(episodes):
        assert checks
        assert all(check.agreed == check.checked for check in checks), checks
        assert 0 < checks[0].checked < 1000


def test_runs_of_several_algorithms_are_there_and_say_which_they_are() -> None:
    found = Counter(episode.initial["algorithm"] for episode in sampled("clrs", 6))
    assert set(found) == {"bellman_ford", "matrix_chain_order", "heapsort"}
    assert min(found.values()) > 1
    (episode, *_) = sampled("clrs", 6)
    for wrong in ({**episode.initial, "algorithm": "bogosort"}, {"d": []}):
        made = type(episode)(
            environment="clrs",
            schema="posets6",
            initial=wrong,
            operations=episode.operations,
            provenance=episode.provenance,
        )
        with pytest.raises(MalformedInputError, match="algorithm"):
            environment("clrs").initial_state(made)


def test_deductions_are_sweeps_or_about_single_entities() -> None:
    kinds = Counter(e.operations[0].payload["operation"] for e in sampled("proofwriter", 6))
    assert set(kinds) == {"ground", "sweep"}


def test_lean_steps_are_declarations_or_facts_and_goals_of_one_proof() -> None:
    words = Counter()
    for episode in [environment("lean").sample("posets16", seed) for seed in range(8)]:
        texts = [str(operation.payload) for operation in episode.operations]
        words[episode.initial["form"]] += 1
        words.update({"have", "case", "theorem", "noncomputable"} & {t.split()[0] for t in texts})
    assert set(words) == {"declarations", "tactics", "have", "case", "theorem", "noncomputable"}


def test_lean_episodes_are_certified_by_their_contexts() -> None:
    for episode in sampled("lean", 6)[: CERTIFIED["lean"]]:
        found, _ = certified_relations(environment("lean"), episode)
        assert found is not None
        assert found.few


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_most_of_many_episodes_are_certified_by_their_contexts(name) -> None:
    for size, number in ((6, 8), (8, 3)) if name == "lean" else ((6, 40), (8, 30)):
        numbers = Counter()
        for seed in range(100, 100 + number):
            episode = environment(name).sample(f"posets{size}", seed)
            found, _ = certified_relations(environment(name), episode)
            numbers[len(found.anti_diamonds) if found and found.few else 0] += 1
        assert numbers[0] <= 0.1 * number
        assert set(numbers) >= {1, 2, 3, 4, 5, 6} or name == "lean"
