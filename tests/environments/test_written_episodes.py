"""Episodes of the environments as tasks whose steps a model writes: their certified orders are the episode's."""

from __future__ import annotations

import json
from itertools import permutations

import pytest

import vcrt
from cells import Cells, legal_by_hand
from vcrt.environments import written_episodes
from vcrt.environments.contract import Episode, Operation, Provenance
from vcrt.environments.written import episode_of, failure_of
from vcrt.environments.written_episodes import WrittenEpisodes, written_task, written_tasks
from vcrt.errors import MalformedInputError
from vcrt.randomness import generator
from vcrt.replay.completions import Looks, look_again, look_first


def judged(factory, task, completion):
    work = factory, json.loads(json.dumps(task)), completion
    first = look_first(work, looks := Looks(16))
    return first.judgement if first.evidence is None else look_again((work, first), looks)


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("proofwriter", None),
        ("clrs", "bellman_ford"),
        pytest.param("lean", None, marks=pytest.mark.slow),
        pytest.param("bfcl", None, marks=pytest.mark.slow),
    ],
)
def test_the_orbit_of_a_written_trace_is_the_episodes(name, schema):
    environment = vcrt.load_environment(name)
    schema = schema or environment.schemas[0].name
    episode = environment.sample(schema, seed=3)
    found = written_task(environment, episode, generator(0, "tasks"))
    lines = found.completion.split("\n")
    assert sorted(found.prompt.split("Steps:\n")[1].split("\n")[: len(lines)]) == sorted(lines)
    judgement = judged(WrittenEpisodes(name), found.task, found.completion)
    certified = vcrt.certify_episode(name, episode)
    assert judgement.success
    assert judgement.order == certified.order
    assert judged(WrittenEpisodes(name), json.dumps(found.task), found.completion).success
    # The other way round it fails, or ends elsewhere.
    turned = "\n".join(["A thought.", *lines[::-1]])
    assert not judged(WrittenEpisodes(name), found.task, turned).success
    assert not judged(WrittenEpisodes(name), found.task, "\n".join(lines[:-1])).success
    twice = "\n".join([*lines, lines[0]])
    assert "twice" in judged(WrittenEpisodes(name), found.task, twice).failure
    assert "no line" in judged(WrittenEpisodes(name), found.task, "nothing").failure
    thought = f"first think\n{found.completion}\nand stop"
    assert judged(WrittenEpisodes(name), found.task, thought).success
    strict = WrittenEpisodes(name, free_text=False)
    assert judged(strict, found.task, f"\n{found.completion}\n").success
    assert "a line is no step" in judged(strict, found.task, thought).failure


def test_prompts_do_not_tell_the_order_and_are_drawn_by_name():
    episode = vcrt.load_environment("proofwriter").sample("conjunctive_join", seed=1)
    one, again, other = (
        written_tasks("proofwriter", [episode] * 3, generator(seed, "tasks")) for seed in (0, 0, 1)
    )
    assert one == again
    assert len({task.prompt for task in (*one, *other)}) > 1


def test_an_episode_whose_own_order_is_refused_makes_no_task():
    environment = vcrt.load_environment("clrs")
    episode = environment.sample("bellman_ford", seed=3)
    turned = Episode(
        environment=episode.environment,
        schema=episode.schema,
        initial=episode.initial,
        operations=episode.operations[::-1],
        provenance=Provenance(source="s", generator="g", seed=0),
    )
    with pytest.raises(MalformedInputError, match="its order is refused"):
        written_task(environment, turned, generator(0, "tasks"))
    twice = Episode(
        environment=episode.environment,
        schema=episode.schema,
        initial=episode.initial,
        operations=(
            episode.operations[0],
            Operation(signature=episode.operations[0].signature, payload=None),
        ),
        provenance=Provenance(source="s", generator="g", seed=0),
    )
    with pytest.raises((MalformedInputError, vcrt.VcrtError)):
        written_task(environment, twice, generator(0, "tasks"))


def test_an_order_solves_its_task_if_it_is_legal_outputs_included(monkeypatch):
    """On random episodes of reads, writes and refusals: each order by itself, and as brute force has it."""
    monkeypatch.setattr(written_episodes, "load_environment", lambda name: Cells())
    environment, observed = WrittenEpisodes("cells")(), 0
    for seed in range(40):
        episode = Cells().sample("cells", seed, 4)
        legal = legal_by_hand(episode)
        if not legal:
            continue
        found = written_task(environment, episode, generator(0, "tasks"))
        lines = found.completion.split("\n")
        solving = []
        for order in permutations(range(4)):
            text = "\n".join(lines[k] for k in order)
            one = episode_of(environment, found.task, environment.parse(found.task, text), text)
            if failure_of(environment, found.task, one) is None:
                solving.append(order)
        assert solving == legal
        older = {key: part for key, part in found.task.items() if key != "outputs"}
        assert failure_of(environment, older, one) in (
            None,
            failure_of(environment, found.task, one),
        )
        observed += older != found.task
    assert observed >= 10
