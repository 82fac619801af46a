"""The two routes to Lean against each other, and the worker of the in-process one when it breaks."""

from __future__ import annotations

import itertools
import os
import signal
import stat
import sys
import threading

import pytest

from vcrt.environments.contract import (
    CrossCheck,
    Episode,
    Operation,
    Provenance,
    Rejected,
    Replay,
    ReplayRequest,
)
from vcrt.errors import MalformedInputError, VerifierFailure
from vcrt.hashing import Json
from vcrt.processes import programs
from vcrt.processes.programs import resident_mb
from vcrt_lean import inprocess
from vcrt_lean.environment import LeanEnvironment
from vcrt_lean.inprocess import Elaborators, judge_shared
from vcrt_lean.judging import Job, Limits, judge
from vcrt_lean.program import read_program
from vcrt_lean.toolchain import VARIABLE, Toolchain, find_toolchain

SCHEMAS = tuple(
    schema.name for schema in LeanEnvironment.schemas if not schema.preset.startswith("posets")
)
SEQUENCES = tuple(s for n in range(5) for s in itertools.permutations(range(4), n))
PLAIN: Json = {"form": "declarations", "setup": [], "probes": []}
FACTS: Json = {
    "form": "tactics",
    "statement": "theorem t1 (p q : Prop) (x : p) (y : p → q) : p",
    "opening": None,
    "closing": "exact x",
}
SIBLINGS: Json = {
    "form": "tactics",
    "statement": "theorem t1 (p q : Prop) (x : p) (y : p → q) : And p (And q p)",
    "opening": "refine And.intro ?a1 (And.intro ?b1 ?c1)",
    "closing": None,
}
INSTANCES: Json = {
    "form": "declarations",
    "setup": ["class K1 (α : Type) where v1 : α"],
    "probes": ["K1 N", "K1 Bool"],
}
GOOD = "theorem a1 (p : Prop) (x : p) : And p p := And.intro x x"
CITING = "theorem b1 (p : Prop) (x : p) : And p p := a1 p x"
#: Episodes whose steps are wrong in one way or another, with the sequences to run.
HOSTILE: dict[str, tuple[Json, tuple[str, ...]]] = {
    "a term without an end": (PLAIN, ("theorem a1 (p : Prop) : p :=  fun x =>", CITING)),
    "a type without an end": (PLAIN, ("theorem a1 (p : Prop) (x : p) : And p p → := x", CITING)),
    "wrong terms": (
        PLAIN,
        (
            "theorem a1 (p : Prop) (x : k9 p) : And p p := And.intro x p",
            "theorem b1 : Exists (fun n : N => Eq n (N.s n)) := Exists.intro _ (Eq.refl _)",
            "theorem c1 (p : Prop) (x : p) : And p p := And.intro (x x) p",
        ),
    ),
    "a body that cites what is not there": (PLAIN, (CITING, "def c1 : N := c1", GOOD)),
    "types of their own": (
        PLAIN,
        (
            "inductive a1 : Type where | c1 | c2",
            "noncomputable def b1 : a1 := a1.c1",
            "theorem d1 : Eq b1 a1.c1 := Eq.refl b1",
        ),
    ),
    "instances": (
        INSTANCES,
        (
            "instance a1 : K1 N := ⟨N.z⟩",
            "instance b1 : K1 N := ⟨N.s N.z⟩",
            "def c1 : N := K1.v1",
            "theorem d1 : Eq (K1.v1 : N) N.z := Eq.refl _",
        ),
    ),
    "a proof of something else": (
        {**FACTS, "closing": "exact y"},  # type: ignore[dict-item]
        ("have a1 : q := y x", "have b1 : p := x"),
    ),
    "a step without an end": (FACTS, ("have a1 : q := y x", "have b1 : p → p := fun z =>")),
    "facts that need each other": (
        FACTS,
        ("have a1 : q := y x", "have b1 : q := a1", "have a1 : p := x"),
    ),
    "wrong cases": (
        SIBLINGS,
        ("case a1 => exact x", "case b1 => exact x", "case c1 => exact x", "case d1 => exact x"),
    ),
    "a goal left open": (SIBLINGS, ("case a1 => exact x", "case b1 => exact y x")),
    "a case that fails inside": (
        SIBLINGS,
        ("case a1 => exact y x x", "case b1 => exact k9", "case c1 => exact x"),
    ),
}
linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing tells the memory")


def episode(initial: Json, *payloads: str) -> Episode:
    """A hand-made episode; each step is named by its place."""
    return Episode(
        environment="lean",
        schema="by_hand",
        initial=initial,
        operations=tuple(
            Operation(signature=signature(k, text), payload=text) for k, text in enumerate(payloads)
        ),
        provenance=Provenance(source="lean.by_hand/0", generator="lean.by_hand", seed=0),
    )


def signature(place: int, text: str) -> str:
    words = text.removeprefix("noncomputable ").split()
    return f"step{place}" if words[0] in ("have", "case") else words[1]


def jobs_of(sample: Episode, sequences: list[tuple[int, ...]]) -> list[Job]:
    program = read_program(sample)
    return [Job(label=sample.episode_id, program=program, sequence=s) for s in sequences]


def sequences_of(sample: Episode) -> list[tuple[int, ...]]:
    """Every sequence of distinct steps, complete or not, and two with a step that comes twice."""
    steps = range(sample.num_operations)
    distinct = [s for n in range(len(steps) + 1) for s in itertools.permutations(steps, n)]
    return [*distinct, (0, 0), (0, 1, 0)]


@pytest.fixture(scope="module")
def toolchain() -> Toolchain:
    return find_toolchain()


@pytest.fixture
def elaborators(toolchain):
    made = Elaborators(toolchain, Limits(max_heartbeats=20_000, max_memory_mb=1500.0))
    yield made
    made.close()


@pytest.fixture(scope="module")
def pair() -> list[Job]:
    return jobs_of(episode(PLAIN, GOOD, CITING), [(0, 1), (1, 0), (0,)])


@pytest.fixture(scope="module")
def expected(toolchain, pair) -> list[Replay]:
    return judge(toolchain, pair, Limits())


class TestEquality:
    @pytest.mark.parametrize("schema", SCHEMAS)
    @pytest.mark.parametrize("seed", [101, pytest.param(102, marks=pytest.mark.slow)])
    def test_sampled_episodes(self, toolchain, elaborators, schema, seed):
        sample = LeanEnvironment().sample(schema, seed)
        jobs = jobs_of(sample, list(SEQUENCES))
        found = judge_shared(elaborators, jobs)
        assert found == judge(toolchain, jobs, Limits())
        assert any(not replay.accepted for replay in found) or schema in ("instances", "shadow")

    @pytest.mark.parametrize("name", HOSTILE)
    def test_wrong_steps(self, toolchain, elaborators, name):
        initial, payloads = HOSTILE[name]
        sample = episode(initial, *payloads)
        jobs = jobs_of(sample, sequences_of(sample))
        found = judge_shared(elaborators, jobs)
        assert found == judge(toolchain, jobs, Limits())
        assert any(replay.rejection is not None for replay in found)

    @pytest.mark.parametrize(
        "initial",
        [
            {**FACTS, "statement": "theorem t1 (x : p) : p"},  # type: ignore[dict-item]
            {**FACTS, "opening": "refine And.intro ?a1 ?b1"},  # type: ignore[dict-item]
            {**SIBLINGS, "opening": "refine And.intro ?a1"},  # type: ignore[dict-item]
        ],
    )
    def test_wrong_starts_are_the_episodes_fault_on_both(self, toolchain, elaborators, initial):
        jobs = jobs_of(episode(initial, "have a1 : q := y x"), [(0,)])
        with pytest.raises(MalformedInputError) as shared:
            judge_shared(elaborators, jobs)
        with pytest.raises(MalformedInputError) as by_command:
            judge(toolchain, jobs, Limits())
        assert str(shared.value) == str(by_command.value)

    def test_limits_are_failures_on_both(self, toolchain, elaborators):
        """Lean's own limits, and one on its work that only shows in a long search."""
        deep = jobs_of(episode(PLAIN, "def a1 : N := " + "N.s (" * 320 + "N.z" + ")" * 320), [(0,)])
        for run in (
            lambda: judge_shared(elaborators, deep),
            lambda: judge(toolchain, deep, Limits()),
        ):
            with pytest.raises(VerifierFailure, match="recursion depth"):
                run()

    def test_a_step_named_like_a_limit_is_judged(self, toolchain, elaborators):
        text = "theorem interrupted1 (p : Prop) (x : p) : And p p := And.intro x x"
        wrong = text.replace("interrupted1", "interrupted2").replace("x x", "x p")
        jobs = jobs_of(episode(PLAIN, text, wrong), [(0,), (1,)])
        found = judge_shared(elaborators, jobs)
        assert [replay.accepted for replay in found] == [True, False]
        assert found == judge(toolchain, jobs, Limits())


class TestLimits:
    def test_the_limit_on_lean_s_work_holds_for_each_order_by_itself(self, toolchain):
        """All orders of an episode take many times the work of the longest one."""
        sample = LeanEnvironment().sample("have", 5)
        jobs = jobs_of(sample, list(itertools.permutations(range(4))))
        answers = []
        for heartbeats in (20_000, 100):
            elaborators = Elaborators(
                toolchain, Limits(max_heartbeats=heartbeats, max_memory_mb=1500.0)
            )
            try:
                answers.append(judge_shared(elaborators, jobs))
            finally:
                elaborators.close()
        assert answers[0] == answers[1]

    def test_too_little_work_allowed_is_a_failure(self, toolchain, elaborators):
        two = "def c2 (α : Type) (u : α → α) (x : α) : α := u (u x)"
        four = "def c4 (α : Type) (u : α → α) (x : α) : α := c2 (α → α) (c2 α) u x"
        many = "def c5 (α : Type) (u : α → α) (x : α) : α := c4 (α → α) (c4 α) (c4 α (c4 α u)) x"
        claim = "theorem e1 : Eq (c5 N N.s N.z) (N.s (c5 N N.s N.z)) := Eq.refl (c5 N N.s N.z)"
        jobs = jobs_of(episode(PLAIN, two, four, many, claim), [(0, 1, 2), (0, 1, 2, 3)])
        weak = Elaborators(toolchain, Limits(max_heartbeats=300, max_memory_mb=1500.0))
        try:
            assert judge_shared(weak, jobs[:1])[0].accepted
            with pytest.raises(VerifierFailure, match="ran into a limit"):
                judge_shared(weak, jobs)
        finally:
            weak.close()

    def test_the_wall_clock_ends_a_worker(self, elaborators, toolchain, pair):
        judge_shared(elaborators, pair)
        # A limit that has passed already: an answer that is there at once still counts, so ask for many.
        many = [pair[0]] * 100
        elaborators.limits = Limits(lone_seconds=-1.0)
        with pytest.raises(VerifierFailure, match="no answer after"):
            [judge_shared(elaborators, [job]) for job in many]

    @linux
    def test_memory_over_the_limit_ends_a_worker(self, toolchain, pair, monkeypatch):
        monkeypatch.setattr(programs, "SECONDS_BETWEEN_LOOKS", 0.0)
        small = Elaborators(toolchain, Limits(max_heartbeats=20_000, max_memory_mb=5.0))
        with pytest.raises(VerifierFailure, match="MB in use, over the limit"):
            judge_shared(small, pair)

    @linux
    def test_memory_over_the_limit_ends_a_command(self, toolchain, pair, monkeypatch):
        monkeypatch.setattr(programs, "SECONDS_BETWEEN_LOOKS", 0.001)
        with pytest.raises(VerifierFailure, match="MB in use, over the limit"):
            judge(toolchain, pair, Limits(max_memory_mb=50.0))

    def test_looking_at_the_memory_takes_nothing_from_the_text(
        self, toolchain, pair, expected, monkeypatch
    ):
        """A process that has not read its input yet when it is first looked at."""
        monkeypatch.setattr(programs, "SECONDS_BETWEEN_LOOKS", 0.001)
        assert judge(toolchain, pair * 40, Limits(batch_seconds=60)) == expected * 40

    @linux
    @pytest.mark.slow
    def test_memory_stays_flat(self, toolchain, elaborators):
        """About 0.05 MB of growth an order would show as 5 MB."""
        sample = LeanEnvironment().sample("tactic_siblings", 7)
        jobs = jobs_of(sample, list(itertools.permutations(range(4))))

        def work() -> float:
            for _ in range(4):
                judge_shared(elaborators, jobs)
            return resident_mb(elaborators.process)

        work()
        before = work()
        assert before > 50
        assert work() - before < 4


class Killer:
    """Kills the workers of ``elaborators`` with signal 9, up to ``times`` of them, each in the middle of its work."""

    def __init__(self, elaborators: Elaborators, times: int) -> None:
        self.killed: list[int] = []
        self._elaborators = elaborators
        self._times = times
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Killer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while len(self.killed) < self._times and not self._done.wait(0.05):
            process = self._elaborators.process
            if process is not None and process not in self.killed:
                self.killed.append(process)
                os.kill(process, signal.SIGKILL)


class TestBrokenWorkers:
    @pytest.fixture
    def work(self) -> list[Job]:
        """About a second of work in one request."""
        steps = [f"theorem a{k} (p q : Prop) (x : p) : Or p q := Or.inl x" for k in range(6)]
        return jobs_of(episode(PLAIN, *steps), list(itertools.permutations(range(6), 5)))

    def test_a_worker_killed_in_the_middle(self, toolchain, elaborators, work, pair, expected):
        assert judge_shared(elaborators, pair) == expected
        with Killer(elaborators, 1) as killer:
            found = judge_shared(elaborators, work)
        assert len(killer.killed) == 1
        assert elaborators.process not in (None, *killer.killed)
        assert all(replay.accepted for replay in found)
        assert len({replay.terminal_hash for replay in found}) == 6
        assert judge_shared(elaborators, pair) == expected

    def test_a_worker_killed_twice_is_a_failure_and_no_verdict(
        self, toolchain, elaborators, work, pair, expected
    ):
        with (
            Killer(elaborators, 2) as killer,
            pytest.raises(VerifierFailure, match="exit status -9"),
        ):
            judge_shared(elaborators, work)
        assert len(killer.killed) == 2
        assert judge_shared(elaborators, pair) == expected

    def test_recycling_changes_no_answer(self, toolchain, pair, expected):
        elaborators = Elaborators(
            toolchain, Limits(max_heartbeats=20_000, max_memory_mb=1500.0), budget=5
        )
        processes = set()
        for _ in range(4):
            assert judge_shared(elaborators, pair) == expected
            processes.add(elaborators.process)
        elaborators.close()
        assert len(processes) == 4

    @pytest.mark.parametrize(
        ("program", "found"),
        [
            ("print('nonsense', flush=True); input()", "not an answer"),
            ("print('[', flush=True); input()", "not an answer"),
            (
                "[print('[]', flush=True) for _ in iter(input, '')]",
                "not an answer to what was asked",
            ),
            (
                "input(); print('[]', flush=True); input(); print('[[], [[]]]', flush=True); input()",
                "not an answer to what was asked",
            ),
            (
                "input(); print('[]', flush=True); input(); print('[[[1, 2, 3]], []]', flush=True)",
                "not an answer to what was asked",
            ),
            ('input(); print(\'[[1, "error", "no"]]\', flush=True); input()', "not accepted"),
            ("raise SystemExit('a fault')", "exit status 1: a fault"),
            ("import os; os.close(1); input(); input()", "exit status|did not end"),
            ("import os; os.abort()", "exit status -6"),
        ],
    )
    def test_garbage_is_a_failure_and_no_verdict(
        self, toolchain, elaborators, pair, monkeypatch, program, found
    ):
        command = [sys.executable, "-I", "-S", "-c", program]
        monkeypatch.setattr(inprocess, "started_by", lambda *_: command)
        monkeypatch.setattr(programs, "SECONDS_TO_DIE", 0.5)
        with pytest.raises(VerifierFailure, match=found):
            judge_shared(elaborators, pair)


class TestChoiceOfTheRoute:
    @pytest.fixture
    def fresh(self, monkeypatch):
        """No route chosen yet, and none of this test's left behind."""
        monkeypatch.delenv(VARIABLE, raising=False)
        inprocess.runs_in_process.cache_clear()
        yield
        inprocess.runs_in_process.cache_clear()

    def test_the_route_stands_in_the_versions(self, fresh):
        assert LeanEnvironment().versions().verifier.endswith("), elaborator in process")

    def test_another_commit_is_driven_by_its_command_line(self, fresh, monkeypatch):
        monkeypatch.setattr(inprocess, "COMMIT", "0" * 40)
        env = LeanEnvironment()
        assert env.versions().verifier.endswith(")")
        sample = env.sample("cite", 3)
        assert env.replay([ReplayRequest(sample, (0, 1, 2, 3))])[0].accepted
        assert env.cross_check(sample) == ()

    def test_a_worker_that_fails_the_self_test_is_not_used(self, fresh, monkeypatch):
        """Here Lean's words about a failed term would be read from the wrong place."""
        monkeypatch.setattr(inprocess, "shared_elaborators", _broken_elaborators)
        env = LeanEnvironment()
        assert env.versions().verifier.endswith(")")

    def test_a_lean_of_ones_own_is_driven_by_its_command_line(self, fresh, monkeypatch, tmp_path):
        command = " ".join(f"'{part}'" for part in find_toolchain().command)
        path = tmp_path / "lean"
        path.write_text(f'#!/bin/sh\n{command} "$@"\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv(VARIABLE, str(path))
        env = LeanEnvironment()
        assert env.versions().verifier.endswith(")")
        assert env.cross_check_all([env.sample("cite", 3)]) == [()]


def _broken_elaborators(toolchain: Toolchain, limits: Limits) -> Elaborators:
    class Mute(Elaborators):
        def _attempt(self, request, read, cost):
            return super()._attempt(request, lambda answer: read(_without_errors(answer)), cost)

    return Mute(toolchain, limits)


def _without_errors(answer):
    if isinstance(answer, list):
        return [_without_errors(a) for a in answer if not (isinstance(a, list) and "error" in a)]
    if isinstance(answer, dict):
        return {key: _without_errors(value) for key, value in answer.items()}
    return answer


class TestSecondOpinion:
    def test_every_order_is_compared(self):
        env = LeanEnvironment()
        episodes = [env.sample(schema, 55) for schema in ("cite", "have")]
        assert env.cross_check_all(episodes) == [(CrossCheck("lean command line", 24, 24),)] * 2
        assert env.cross_check(episodes[0]) == (CrossCheck("lean command line", 24, 24),)

    def test_differences_are_counted(self):
        """Against the replays that are given, so that these are what the second opinion is about."""
        env = LeanEnvironment()
        one, other = env.sample("cite", 56), env.sample("cite", 57)
        orders = list(itertools.permutations(range(4)))
        replays = env.replay([ReplayRequest(one, order) for order in orders])
        ((check,),) = env.cross_check_all([one], [replays])
        assert check.agreed == 24
        ((check,),) = env.cross_check_all([other], [replays])
        assert check == CrossCheck("lean command line", 24, 0)

    def test_a_wrong_refusal_or_acceptance_is_noticed(self):
        """Though an order is asked about only up to the step that is said to be refused."""
        env = LeanEnvironment()
        for schema in ("cite", "tactic_siblings"):
            sample = env.sample(schema, 58)
            orders = list(itertools.permutations(range(4)))
            replays = env.replay([ReplayRequest(sample, order) for order in orders])
            refused = next(replay for replay in replays if replay.rejection is not None)
            accepted = next(replay for replay in replays if replay.accepted)
            wrong = {
                refused: Replay(refused.sequence, accepted.state_hashes),
                accepted: Replay(
                    accepted.sequence, accepted.state_hashes[:2], Rejected("it should not be")
                ),
            }
            ((check,),) = env.cross_check_all([sample], [[wrong.get(r, r) for r in replays]])
            assert check == CrossCheck("lean command line", 24, 22)
