"""Declarations left to Lean's kernel against their elaboration: the same replays, to the last word."""

from __future__ import annotations

import itertools

import pytest

from vcrt.environments.contract import Episode, Operation, Provenance, ReplayRequest
from vcrt.environments.lean.environment import LeanEnvironment
from vcrt.environments.lean.inprocess import Elaborators
from vcrt.environments.lean.judging import Job, Limits
from vcrt.environments.lean.program import read_program
from vcrt.environments.lean.sharing import judge_shared
from vcrt.environments.lean.toolchain import find_toolchain
from vcrt.hashing import Json

SEQUENCES = tuple(s for n in range(5) for s in itertools.permutations(range(4), n))
PLAIN: Json = {"form": "declarations", "setup": [], "probes": []}
GOOD = "theorem a1 (p : Prop) (x : p) : And p p := And.intro x x"
CITING = "theorem b1 (p : Prop) (x : p) : And p p := a1 p x"
NUMBER = "noncomputable def c1 : N := N.s N.z"
ABOUT = "theorem d1 : Exists (fun n : N => Eq n (N.s N.z)) := Exists.intro c1 (Eq.refl c1)"


class Recording(Elaborators):
    """Notes which requests were answered, and which of them had no answer."""

    decided: list[bool]

    def run(self, request, read, *, cost, seconds):
        found = super().run(request, read, cost=cost, seconds=seconds)
        self.decided.append("kernel" in request and found)
        return found


@pytest.fixture(scope="module")
def toolchain():
    return find_toolchain()


@pytest.fixture(scope="module")
def elaborators(toolchain):
    made = Recording(toolchain.libraries, max_heartbeats=20_000, max_memory_mb=1500.0)
    made.decided = []
    yield made
    made.close()


def jobs_of(sample: Episode, sequences) -> list[Job]:
    program = read_program(sample, max_chars=2000)
    return [Job(label=sample.episode_id, program=program, sequence=tuple(s)) for s in sequences]


def by_hand(*payloads: str, initial: Json = PLAIN) -> Episode:
    names = [text.removeprefix("noncomputable ").split()[1] for text in payloads]
    return Episode(
        environment="lean",
        schema="by_hand",
        initial=initial,
        operations=tuple(
            Operation(signature=name, payload=text)
            for name, text in zip(names, payloads, strict=True)
        ),
        provenance=Provenance(source="lean.by_hand/0", generator="lean.by_hand", seed=0),
    )


def both(toolchain, elaborators, jobs):
    """The replays by elaboration and by the kernel, and whether the kernel decided."""
    elaborated = judge_shared(toolchain, elaborators, jobs, Limits())
    elaborators.decided.clear()
    found = judge_shared(toolchain, elaborators, jobs, Limits(), kernel=True)
    return elaborated, found, elaborators.decided == [True]


@pytest.mark.parametrize("schema", ["cite", "defn"])
@pytest.mark.parametrize(
    "seeds", [range(200, 215), pytest.param(range(300, 400), marks=pytest.mark.slow)]
)
def test_sampled_episodes(toolchain, elaborators, schema, seeds):
    env = LeanEnvironment()
    for seed in seeds:
        jobs = jobs_of(env.sample(schema, seed), SEQUENCES)
        elaborated, found, decided = both(toolchain, elaborators, jobs)
        assert found == elaborated
        assert decided
        assert sum(replay.accepted for replay in found[-24:]) == 12


def test_steps_that_need_several_others(toolchain, elaborators):
    sample = by_hand(
        GOOD,
        CITING,
        "theorem e1 (p : Prop) (x : p) : And (And p p) (And p p) := And.intro (a1 p x) (b1 p x)",
        NUMBER,
        ABOUT,
    )
    sequences = [s for n in (1, 3, 5) for s in itertools.permutations(range(5), n)]
    elaborated, found, decided = both(toolchain, elaborators, jobs_of(sample, sequences))
    assert found == elaborated
    assert decided
    reasons = {replay.rejection.reason for replay in found if replay.rejection is not None}
    assert reasons == {f"Unknown identifier `{name}`" for name in ("a1", "b1", "c1")}


def test_repeated_steps(toolchain, elaborators):
    jobs = jobs_of(by_hand(GOOD, CITING), [(0, 0), (0, 1, 0), (0, 1, 1), (1, 0), (1, 1)])
    elaborated, found, decided = both(toolchain, elaborators, jobs)
    assert found == elaborated
    assert decided
    assert "already been declared" in found[0].rejection.reason


@pytest.mark.parametrize(
    "payloads",
    [
        # What the text speaks of is not in what it elaborates to: the kernel alone would accept it too early.
        (NUMBER, "theorem b1 (p : Prop) (x : p) : p := (x : (fun (q : N) => p) c1)"),
        # A variable with the name of a step.
        (GOOD, "theorem b1 (p : Prop) (a1 : p) : p := a1"),
        # A step that is never accepted.
        (GOOD, "theorem b1 (p : Prop) (x : p) : And p p := a1 x x"),
        # One that speaks of a step that no sequence has, or of itself.
        (CITING, NUMBER),
        (GOOD, "noncomputable def b1 : N := b1"),
        # Two that speak of each other.
        ("noncomputable def b1 : N := c1", "noncomputable def c1 : N := b1"),
        # A type of its own, and what is made of it.
        ("inductive e1 : Type where | c1 | c2", "theorem b1 : Eq e1.c1 e1.c1 := Eq.refl e1.c1"),
        # A step without an end.
        (GOOD, "theorem b1 (p : Prop) : p :=  fun x =>"),
    ],
)
def test_what_the_kernel_does_not_decide_is_elaborated(toolchain, elaborators, payloads):
    jobs = jobs_of(by_hand(*payloads), [(), (0,), (1,), (0, 1), (1, 0)])
    elaborated, found, decided = both(toolchain, elaborators, jobs)
    assert found == elaborated
    assert not decided


def test_instances_are_elaborated(toolchain, elaborators):
    env = LeanEnvironment()
    elaborated, found, decided = both(
        toolchain, elaborators, jobs_of(env.sample("instances", 7), SEQUENCES)
    )
    assert found == elaborated
    assert not decided


def test_the_environment_offers_it():
    plain, fast = LeanEnvironment(), LeanEnvironment(kernel=True)
    sample = plain.sample("cite", 11)
    requests = [ReplayRequest(sample, order) for order in SEQUENCES]
    assert fast.replay(requests) == plain.replay(requests)
    assert fast.versions().verifier.endswith(", elaborator and kernel in process")
    assert fast.versions() != plain.versions()
    assert fast.cross_check(sample)[0].agreed == 24
