"""Slow verifiers: what a command will cost is said, shown as it goes on, and no more is asked than is needed.

Most run a toy whose calls take 20 ms each, by the command in a process of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from importlib import util
from pathlib import Path

import pytest

import toy_environment as toy
import vcrt
from command_line import ran
from long_graphs import LongGraphs
from terminals import in_a_terminal
from vcrt.certificates.episodes import CertifiedEpisode, Exclusion
from vcrt.certificates.pairs import report_orders
from vcrt.environments.conformance import validate
from vcrt.environments.conformance_checks import CHECKS
from vcrt.environments.contract import Accepted, Rejected
from vcrt.environments.guarding import guarded
from vcrt.environments.isolation import describe
from vcrt.errors import MalformedInputError
from vcrt.progress import Calls, observing
from vcrt.replay import run
from vcrt.replay.config import SHARD_SIZE, sampled, shard_size
from vcrt.replay.evidence import FirstReplay, Repeated, SecondReplay
from vcrt.replay.lattice_replay import replay_lattices, replay_merged
from vcrt.replay.replay import replay_exhaustively
from vcrt.replay.run import certify
from vcrt.replay.shards import replay_first
from vcrt.replay.validation import look_at, rehearsed_calls

VCRT = [sys.executable, "-m", "vcrt"]
SLOW = """
import os, time
from dataclasses import replace
import toy_environment as toy

class Slow(toy.ToyEnvironment):
    name = "slow"

    def wait(self):
        time.sleep(float(os.environ.get("SECONDS_A_CALL", "0.02")))
        with open(os.environ["CALLS"], "ab") as file:
            file.write(b".")

    def sample(self, schema, seed):
        return replace(super().sample(schema, seed), environment="slow")

    def initial_state(self, episode):
        self.wait()
        return super().initial_state(episode)

    def step(self, state, operation):
        self.wait()
        return super().step(state, operation)

    def canonical(self, state):
        self.wait()
        return super().canonical(state)
"""


@pytest.fixture
def slow(tmp_path, monkeypatch):
    """A folder in which the slow toy is installed; each of its calls is a byte of ``calls``."""
    (tmp_path / "slow_toy.py").write_text(SLOW)
    metadata = tmp_path / "slow-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: slow\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[vcrt.environments]\nslow = slow_toy:Slow\n")
    paths = (str(tmp_path), str(Path(__file__).parents[1] / "support"), *sys.path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return tmp_path


def command(*arguments):
    return subprocess.run([*VCRT, *map(str, arguments)], capture_output=True, text=True, check=True)


# --- what commands say ------------------------------------------------------------------------------


@pytest.mark.processes
def test_validation_says_what_it_will_cost_long_before_it_ends(slow):
    with subprocess.Popen(
        [*VCRT, "environments", "validate", "slow"], stdout=subprocess.PIPE, text=True
    ) as process:
        line = process.stdout.readline()
        made = (slow / "calls").stat().st_size
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
    assert process.returncode == 130
    words = line.partition("; with --quick ")
    assert words[0].startswith("validate slow: about 5,906 verifier calls at 0.0")
    assert words[2].startswith("362 calls: ")
    assert made < 1000


@pytest.mark.slow
def test_a_quick_validation_makes_a_fraction_of_the_calls_and_says_what_it_left_out(slow):
    done = command("environments", "validate", "slow", "--quick")
    assert 200 < (slow / "calls").stat().st_size <= 410
    assert "A quick look: 1 of 3 episodes of each schema" in done.stdout
    assert "`vcrt certify` replays everything twice" in done.stdout
    for check in CHECKS:
        assert check in done.stdout
    assert "certifies 12 legal orders" in done.stdout


@pytest.mark.slow
def test_two_episodes_are_two_candidates_and_json_stands_alone(slow):
    data = slow / "data"
    options = ("--schemas", "slow/needs", "--episodes", "2", "--jobs", "1", "--json")
    done = command("certify", "--output", data, *options)
    counts = json.loads(done.stdout)["counts"]["slow"]["needs"]
    assert (counts["candidates"], counts["episodes"]) == (2, 2)
    # Each prefix once and all orders afresh, of two candidates; refused orders end earlier.
    assert 2 * (70 + 140) < (slow / "calls").stat().st_size <= 2 * (130 + 240)
    first = "certify slow: every order of each: about 260 verifier calls at 0.0"
    assert first in done.stderr
    assert "; then about 480 again, in fresh processes" in done.stderr
    assert "replay again in fresh processes: about 480 verifier calls" in done.stderr

    verified = command("verify", data, "--jobs", "1", "--json")
    assert json.loads(verified.stdout)["agreed"] == 48
    assert "about 480 verifier calls at 0.0" in verified.stderr


@pytest.mark.slow
def test_what_is_shown_on_the_spot_and_checked_alone_says_its_cost_too(slow, tmp_path):
    shown = command("show", "slow/needs/3", "--json")
    again = "replay slow/needs/3 again, each sequence afresh: about 240 verifier calls at 0.0"
    assert again in shown.stderr
    certificate = tmp_path / "certificate.json"
    certificate.write_text(shown.stdout)
    before = (slow / "calls").stat().st_size
    checked = command("verify", "--certificate", certificate)
    assert "verifier calls" not in checked.stdout
    assert again in checked.stderr
    # No prefix is shared: 24 initial states and as many canonical forms of them, and more.
    assert (slow / "calls").stat().st_size - before > 130


@pytest.mark.slow
def test_a_terminal_shows_calls_and_their_rate(slow):
    written = in_a_terminal("show", "slow/needs/3", CALLS=str(slow / "calls"), COLUMNS="160")
    assert "of about 240 calls" in written
    assert "/s" in written


def test_fast_verifiers_are_not_talked_about():
    done = ran("show", "clrs/bellman_ford/7")
    assert done.returncode == 0
    assert "calls" not in done.stdout + done.stderr


class SlowToy(toy.ToyEnvironment):
    def step(self, state, operation):
        time.sleep(0.02)
        return super().step(state, operation)


class Noted:
    """Progress that keeps what it is told."""

    def __init__(self):
        self.said = []

    def task(self, description, total, unit):
        return self

    def advance(self, units=1):
        self.said.append(units)

    def calls(self, done, seconds, expected, note=""):
        self.said.append((done, expected))


@pytest.mark.slow
@pytest.mark.processes
def test_workers_tell_of_calls_inside_a_shard(tmp_path):
    noted = Noted()
    config = sampled({"toy": ("needs",)}, 1)
    certify(config, tmp_path / "store", jobs=1, factories={"toy": SlowToy}, progress=noted)
    inside = noted.said[: noted.said.index(2)]
    assert len({done for done, _ in inside}) >= 3
    assert {expected for _, expected in inside} == {260}


# --- how many candidates ----------------------------------------------------------------------------


class Uneven(toy.ToyEnvironment):
    """Two of three candidates are left out."""

    def sample(self, schema, seed):
        episode = super().sample(schema, seed)
        return episode if seed % 3 == 0 else replace(episode, operations=episode.operations[:3])


def marks(columns):
    return [columns[name] for name in ("content_hash", "replays", "episode_id")]


def selected(kind, wanted, size, monkeypatch):
    """What is selected when shards have ``size`` candidates: numbers of the accepted ones, and those left out."""
    monkeypatch.setattr(run, "shard_size", lambda _: size)
    config = sampled({"toy": ("needs",)}, wanted, seed=3)
    made = run.Selection(series=config.series[0], versions=kind().versions(), config=config)
    while not made.complete:
        made.refuse_if_hopeless()
        for piece in made.next_pieces(kind):
            first = FirstReplay.from_json(json.loads(replay_first(piece.shard)))
            unchanged = [
                one if isinstance(one, Exclusion) else Repeated(marks(one.columns), (), None)
                for one in first.outcomes
            ]
            second = SecondReplay(versions=first.versions, outcomes=tuple(unchanged), of="")
            made.take(piece.name("first"), second)
    numbers = sorted(
        int(Path(name).name.partition("-")[0]) + place
        for name, some in made.accepted.items()
        for place in some
    )
    return numbers, made.exclusions, made.num_candidates


@pytest.mark.parametrize("wanted", [2, 5, 30])
def test_the_selection_is_the_same_whatever_the_size_of_shards(monkeypatch, wanted):
    one, three, ten = (selected(Uneven, wanted, size, monkeypatch) for size in (1, 3, SHARD_SIZE))
    assert one == three == ten
    assert len(one[0]) == wanted
    assert one[1]


def test_the_number_of_candidates_has_an_end_whatever_the_size_of_shards(monkeypatch):
    for size in (1, 3, SHARD_SIZE):
        with pytest.raises(MalformedInputError, match="0 of 20 candidates"):
            selected(toy.AlwaysRejects, 2, size, monkeypatch)


def test_few_episodes_are_cut_into_small_shards():
    assert [shard_size(n) for n in (1, 2, 4, 5, 12, 37, 500)] == [2, 2, 2, 2, 3, 10, 10]


# --- prefixes and snapshots -------------------------------------------------------------------------


class InPlace(toy.ToyEnvironment):
    """A state is a dictionary that every step changes; a snapshot is a copy of it."""

    def step(self, state, operation):
        answer = super().step(state, operation)
        if isinstance(answer, Rejected):
            state["spoilt"] = True
            return answer
        state.update(answer.state)
        return Accepted(state)

    def snapshot(self, state):
        return dict(state)

    def restore(self, snapshot):
        return dict(snapshot)


class ForgetsOnRestoring(InPlace):
    def restore(self, snapshot):
        return {"start": snapshot["start"]}


class KeepsTheStateItself(InPlace):
    """The snapshot is changed by what runs after it."""

    def snapshot(self, state):
        return state

    def restore(self, snapshot):
        return snapshot


class Half(toy.ToyEnvironment):
    def snapshot(self, state):
        return state


class LongInPlace(LongGraphs):
    """The same, of many steps."""

    def initial_state(self, episode):
        return [super().initial_state(episode)]

    def step(self, state, operation):
        answer = super().step(state[0], operation)
        if isinstance(answer, Rejected):
            state[0] = None
            return answer
        state[0] = answer.state
        return Accepted(state)

    def canonical(self, state):
        return super().canonical(state[0])

    def snapshot(self, state):
        return state[0]

    def restore(self, snapshot):
        return [snapshot]


def calls_of(work):
    calls = Calls()
    with observing(lambda name, number, seconds: calls.add(number, seconds)):
        result = work()
    return calls.number, result


@pytest.mark.parametrize("kind", [toy.ToyEnvironment, InPlace, toy.InBatches])
@pytest.mark.parametrize("schema", ["needs", "overwrite"])
def test_sharing_prefixes_gives_what_fresh_starts_give_in_the_calls_that_are_foretold(kind, schema):
    episodes = [kind().sample(schema, seed) for seed in range(3)]
    fresh_calls, fresh = calls_of(lambda: replay_exhaustively(guarded(kind()), episodes))
    calls, shared = calls_of(lambda: replay_exhaustively(guarded(kind()), episodes, sharing=True))
    assert shared == fresh
    assert replay_merged(kind(), episodes) == fresh
    expected = [3 * describe(kind).calls_for_all_orders(4, sharing=s) for s in (False, True)]
    exact = schema == "overwrite"  # where nothing is refused
    assert (fresh_calls, calls) == tuple(expected) if exact else calls <= expected[1]


def test_long_episodes_share_prefixes_by_snapshots_too():
    environment = LongGraphs()
    schema = environment.schemas[0].name
    episodes = [environment.sample(schema, seed) for seed in range(2)]
    plain = replay_lattices(environment, episodes)
    assert replay_lattices(LongInPlace(), episodes) == plain
    assert replay_lattices(LongInPlace(), episodes, backwards=True) == plain


def test_an_environment_with_snapshots_conforms_and_certifies():
    assert [finding for finding in validate(InPlace()) if not finding.passed] == []
    episode = InPlace().sample("overwrite", 1)
    certified = vcrt.certify_episode(InPlace, episode)
    assert isinstance(certified, CertifiedEpisode)
    assert certified.replays == vcrt.certify_episode(toy.ToyEnvironment, episode).replays


@pytest.mark.parametrize("mutant", [ForgetsOnRestoring, KeepsTheStateItself])
def test_a_snapshot_that_is_wrong_certifies_nothing_and_the_kit_says_so(mutant):
    for quick in (False, True):
        failed = {f.check for f in validate(mutant(), quick=quick) if not f.passed}
        assert "single steps agree with replays" in failed
    outcome = vcrt.certify_episode(mutant, mutant().sample("overwrite", 1))
    assert isinstance(outcome, Exclusion)


def test_a_wrong_snapshot_that_contradicts_nothing_by_itself_is_found_by_the_fresh_replay():
    """Every order that goes on from one snapshot is wrong alike: only a fresh start tells."""

    class Wrong(InPlace):
        def restore(self, snapshot):
            return {**snapshot, "start": -1} if len(snapshot) > 1 else dict(snapshot)

        def snapshot(self, state):
            return {**state, "start": -1} if len(state) > 1 else dict(state)

    outcome = vcrt.certify_episode(Wrong, Wrong().sample("overwrite", 1))
    assert isinstance(outcome, Exclusion)


def test_one_method_of_two_is_named():
    with pytest.raises(MalformedInputError, match="one of snapshot and restore"):
        replay_exhaustively(Half(), [Half().sample("needs", 0)], sharing=True)


def test_the_rehearsal_foretells_the_calls_of_what_accepts_everything():
    class Accepts(toy.AlwaysAccepts):
        def cross_check(self, episode):
            return ()

    for quick in (False, True):
        look = partial(look_at, guarded(Accepts()), range(3), quick=quick)
        calls, _ = calls_of(look)
        assert rehearsed_calls(Accepts(), range(3), quick=quick) == calls


# --- a real one -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("git") is None, reason="the example asks git")
def test_the_example_with_git_conforms_and_agrees_with_fresh_starts():
    path = Path(__file__).parents[2] / "examples" / "git_commands.py"
    spec = util.spec_from_file_location("git_commands", path)
    example = util.module_from_spec(spec)
    spec.loader.exec_module(example)
    git = example.Git()
    assert [f for f in validate(git, range(2), quick=True) if not f.passed] == []
    for schema, kind in (("rename", "precedes"), ("commit", "conflicts")):
        episode = git.sample(schema, 7)
        shared_calls, shared = calls_of(
            lambda e=episode: replay_exhaustively(guarded(example.Git()), [e], sharing=True)
        )
        fresh_calls, fresh = calls_of(
            lambda e=episode: replay_exhaustively(guarded(example.Git()), [e])
        )
        assert shared == fresh
        assert shared_calls < 0.8 * fresh_calls
        (report,) = map(report_orders, fresh)
        assert sorted(pair.relation for pair in report.pairs) == ["commutes"] * 5 + [kind]
