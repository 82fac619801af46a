"""What an environment does wrong is one named error with environment, episode and step, in every command."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys

import pytest

import environment_faults as faults
import toy_environment as toy
import vcrt
from vcrt.certificates.episodes import Exclusion
from vcrt.environments.contract import MAX_REASON, Rejected
from vcrt.errors import EnvironmentFailure, VcrtError, VerifierFailure

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return faults.made_with_dataset(tmp_path_factory.mktemp("faulty") / "plug-in")


def met(place, command, fault, **options):
    """How a command ended that met a fault; what it left behind is removed."""
    for left in [*place.glob("new*")]:
        shutil.rmtree(left)
    if "--certificate" in command and not (place / "certificate.json").exists():
        faults.add_certificate(place)
    before = (place / "data" / "agreement.json").read_bytes()
    done = faults.run(place, *faults.COMMANDS[command], fault=fault, **options)
    assert faults.flaw(command, fault, done) is None, done.stdout + done.stderr
    assert faults.left_over(place) == []
    assert not (place / "new").exists()
    assert (place / "data" / "agreement.json").read_bytes() == before
    return done


@pytest.mark.slow
@pytest.mark.parametrize("command", faults.COMMANDS)
def test_a_plug_in_that_exits_when_it_is_imported_is_no_success(place, command):
    met(place, command, "import:exit")


@pytest.mark.parametrize(
    "command",
    ["verify", *(pytest.param(name, marks=pytest.mark.slow) for name in ("certify", "show"))],
)
def test_a_step_that_exits_is_no_success(place, command):
    done = met(place, command, "step:exit")
    assert done.returncode == EnvironmentFailure.exit_code
    assert "SystemExit: 0" in done.stderr


def test_a_step_that_hangs_is_ended_named_and_leaves_nothing(place):
    done = met(place, "verify", "step:hang", timeout_s=1)
    assert "no answer after 1 s" in done.stderr
    assert "again when it was tried alone" in done.stderr


def test_what_a_verifier_prints_is_no_part_of_a_document(place):
    done = faults.run(place, "show", "faulty/needs/7", "--json", fault="step:print")
    assert done.returncode == 0, done.stderr
    json.loads(done.stdout)
    assert "what does not belong there" in done.stderr
    assert "nor this" in done.stderr


# Every fault in every command, in steps and in batches: research/benchmarks/trust/environments.py.


@pytest.mark.slow
@pytest.mark.parametrize("command", faults.COMMANDS)
def test_no_command_takes_an_ended_process_for_success(place, command):
    places = faults.PLACES[command]
    met(place, command, f"{'step' if 'step' in places else places[-1]}:end")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["interrupt", "stop", "deep", "base", "picky", "kill"])
def test_whatever_is_raised_is_named(place, kind):
    met(place, "show", f"step:{kind}", form="batches")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "fault"),
    [
        *(("certify", "step:spin"), ("verify --certificate", "step:hang")),
        *(("validate", "step:orphan"), ("doctor", "versions:hang"), ("certify", "make:hang")),
    ],
)
def test_what_never_ends_is_ended(place, command, fault):
    met(place, command, fault, timeout_s=5)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["step:fork", "step:child", "step:daemon", "versions:daemon"])
def test_children_of_a_worker_end_with_it(place, fault):
    for left in [*place.glob("new*")]:
        shutil.rmtree(left)
    done = faults.run(place, *faults.COMMANDS["certify"], fault=fault)
    assert done.returncode == 0, done.stderr
    assert faults.left_over(place) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "fault"),
    [
        *(("certify", "payload:nan"), ("certify", "reason:surrogate"), ("show", "initial:bytes")),
        *(("validate", "initial:surrogate"), ("validate", "reason:none")),
    ],
)
def test_what_is_no_json_and_no_text_is_named(place, command, fault):
    met(place, command, fault)


@pytest.mark.slow
def test_versions_and_descriptions_that_are_no_text_are_named(place):
    met(place, "certify", "versions:surrogate")
    for kind in ("surrogate", "none"):
        met(place, "show", f"describe:{kind}")


class Exits(toy.ToyEnvironment):
    def step(self, state, operation):
        sys.exit(0)


class Interrupts(toy.ToyEnvironment):
    def canonical(self, state):
        raise KeyboardInterrupt


class NotANumber(toy.ToyEnvironment):
    def cross_check(self, episode):
        raise StopIteration


@pytest.mark.parametrize("kind", [Exits, Interrupts, NotANumber])
def test_one_episode_in_python_is_named_too(kind):
    episode = toy.ToyEnvironment().sample("needs", 1)
    with pytest.raises(EnvironmentFailure, match="environment 'toy', toy/needs/1"):
        vcrt.certify_episode(kind, episode)


def test_an_episode_that_is_no_json_is_named_with_its_step():
    episode = toy.ToyEnvironment().sample("needs", 1)
    operations = list(episode.operations)
    operations[2] = vcrt.Operation(signature="step 2", payload={"value": float("nan")})
    given = vcrt.Episode(
        environment="toy",
        schema="needs",
        initial={},
        operations=tuple(operations),
        provenance=episode.provenance,
    )
    with pytest.raises(EnvironmentFailure, match=r"(?s)step 2 .*Out of range float"):
        vcrt.certify_episode(toy.ToyEnvironment, given)


class Verbose(toy.ToyEnvironment):
    def step(self, state, operation):
        answer = super().step(state, operation)
        return Rejected(f"{answer.reason} " * 200_000) if isinstance(answer, Rejected) else answer


@pytest.mark.slow
def test_a_refusal_of_megabytes_is_kept_as_its_beginning_length_and_hash(tmp_path):
    data = vcrt.certify(
        tmp_path / "data", schemas=["toy/needs"], episodes=2, environments={"toy": Verbose}
    )
    assert vcrt.verify(data, environments={"toy": Verbose}).agreed
    assert (
        sum(file.stat().st_size for file in (tmp_path / "data").rglob("*") if file.is_file())
        < 2**20
    )
    certified = vcrt.certify_episode(Verbose, Verbose().sample("needs", 1))
    assert not isinstance(certified, Exclusion)
    reasons = {r.rejection.reason for r in certified.replays if r.rejection is not None}
    assert reasons
    assert all(len(reason) < MAX_REASON for reason in reasons)
    assert all("characters in all, SHA-256 " in reason for reason in reasons)


def test_two_long_refusals_that_differ_at_their_end_stay_different():
    one, other = (Rejected("no " * 10_000 + end).reason for end in "ab")
    assert one != other
    assert Rejected(one).reason == one
    assert Rejected("x" * MAX_REASON).reason == "x" * MAX_REASON


@pytest.mark.parametrize("bad", ["0", "-1", "nan", "inf", "soon"])
def test_a_time_limit_that_is_none_is_refused(bad, monkeypatch):
    monkeypatch.setenv("VCRT_VERIFIER_TIMEOUT", bad)
    with pytest.raises(VcrtError, match="not a number of seconds"):
        vcrt.certify_episode(toy.ToyEnvironment, toy.ToyEnvironment().sample("needs", 1))


class Slow(toy.ToyEnvironment):
    call_timeout_s = 0.5

    def versions(self):
        import time

        time.sleep(30)
        return super().versions()


def test_the_limit_of_the_class_holds():
    with pytest.raises(VerifierFailure, match=r"(?s)'toy', versions.*no answer after 0.5 s"):
        vcrt.certify_episode(Slow, toy.ToyEnvironment().sample("needs", 1))


@pytest.mark.slow
def test_the_shard_goes_on_if_what_hung_once_answers_alone(tmp_path):
    """A worker that overran once costs time and nothing else."""
    marker = tmp_path / "hung"

    class Once(toy.ToyEnvironment):
        call_timeout_s = 2.0
        path = str(marker)

        def step(self, state, operation):
            import os
            import time

            with contextlib.suppress(FileExistsError):
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL))
                time.sleep(60)
            return super().step(state, operation)

    data = vcrt.certify(tmp_path / "data", schemas=["toy"], episodes=2, environments={"toy": Once})
    usual = vcrt.certify(
        tmp_path / "usual", schemas=["toy"], episodes=2, environments={"toy": toy.ToyEnvironment}
    )
    assert marker.exists()
    assert data.manifest.root_hash == usual.manifest.root_hash
