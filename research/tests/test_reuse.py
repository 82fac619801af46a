"""The keys of the cache benchmark, against searches of all swaps in small random worlds."""

from __future__ import annotations

import importlib.util
from itertools import permutations
from pathlib import Path

import vcrt
from vcrt.environments.contract import Provenance
from vcrt.environments.tool_calls import Call, episode_of_calls, operations_of
from vcrt.randomness import generator

PLACE = Path(__file__).parents[1] / "benchmarks" / "reuse" / "cache.py"


def loaded():
    import sys

    spec = importlib.util.spec_from_file_location("reuse_cache", PLACE)
    module = sys.modules["reuse_cache"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class World(vcrt.CallEnvironment):
    """A world of three states; what each call does in each is drawn, refusals among it."""

    name = "world"

    def __init__(self, seed=0):
        draw = generator(seed, "world")
        self.table = [[[draw.integers(3) for _ in "abc"] for _ in range(3)] for _ in range(3)]

    def reset(self, initial):
        return {"at": 0}

    def call(self, state, name, arguments):
        state["at"], output, refuses = self.table[int(name)][state["at"]]
        if refuses == 2:
            raise vcrt.CallRefused(f"no {output}")
        return output


def swapped(caller, start, word):
    """All that swaps of neighbours make of a word, each of which commutes where it stands."""
    found, rest = {word}, [word]
    while rest:
        word = rest.pop()
        at = start
        for k in range(len(word) - 1):
            if caller.commute(at, word[k], word[k + 1]):
                other = (*word[:k], word[k + 1], word[k], *word[k + 2 :])
                rest += [other] * (other not in found)
                found.add(other)
            at = caller.made(at, word[k]).after
    return found


def test_a_class_is_what_swaps_lead_to_and_no_served_answer_is_wrong():
    cache, equal, served = loaded(), 0, []
    for seed in range(60):
        caller, draw, runs = cache.Caller(World(seed)), generator(seed, "log"), []
        names = [str(draw.integers(3)) for _ in range(4)]
        for order in sorted(set(permutations(names))):
            operations = operations_of([Call(name, {}) for name in order])
            origin = Provenance(source="test", generator="log", seed=seed)
            runs.append(caller.run(episode_of_calls("world", "log", None, operations, origin)))
        start, words = runs[0][0].before, [tuple(one.call for one in run) for run in runs]
        for word in words:
            reached = swapped(caller, start, word)
            normal = caller.normal(start, word)
            assert {each for each in words if caller.normal(start, each) == normal} == reached
            equal += len(reached) > 1
        keys = (cache.by_history, cache.by_class(caller), cache.by_state)
        found = [cache.saved(runs, key) for key in keys]
        assert all(each.wrong == 0 for each in found)
        served.append([each.served for each in found])
    assert all(sorted(row) == row for row in served)
    assert any(len(set(row)) == 3 for row in served)
    assert equal > 20
