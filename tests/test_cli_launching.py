"""Processes that share work end together, whatever ends one of them, and one message says why."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import toy_environment as toy
from language_models import byte_level_tokenizer, save_model
from vcrt.certification.config import sampled
from vcrt.cli import main
from vcrt.cli.launching import run_together
from vcrt.datasets.agreement import verify_agreement
from vcrt.datasets.freezing import make_dataset
from vcrt.errors import OutOfMemory, RunError, VcrtError

IMPORTS = "import json, os, signal, sys, time\n"
#: Each rank leaves its process id; `told` stands for what vcrt's own processes say.
RANK = """
rank, launcher = int(os.environ["RANK"]), os.environ.pop("VCRT_LAUNCHER")
def told(code, text):
    os.write(int(launcher.split(":")[1]), json.dumps({"exit_code": code, "text": text}).encode())
with open(f"{rank}.new", "w") as file:
    file.write(str(os.getpid()))
os.rename(f"{rank}.new", f"{rank}.pid")
while not all(os.path.exists(f"{r}.pid") for r in range(int(os.environ["WORLD_SIZE"]))):
    time.sleep(0.01)
"""
STUBBORN = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
WAIT = "time.sleep(100)\n"


def together(script, processes=3, grace_s=10.0, first=""):
    run_together(
        [sys.executable, "-S", "-c", IMPORTS + first + RANK + script],
        processes,
        environment=os.environ,
        remedy="add --resume",
        grace_s=grace_s,
    )


def is_alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def alive(folder):
    return [path.name for path in folder.glob("*.pid") if is_alive(path.read_text())]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert len(list(tmp_path.glob("*.pid"))) == 3
    assert alive(tmp_path) == []


def test_all_are_told_their_place_and_the_first_alone_has_the_terminal(place, capfd):
    names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE"
    together(f"print(*(os.environ[name] for name in '{names}'.split()), sys.stdin.read())")
    assert capfd.readouterr() == ("0 0 3 3 \n", "")


def test_the_named_error_of_one_is_raised_once_with_its_code(place, capfd):
    fails = "if rank == 1:\n  told(5, 'no memory\\n  where: here'); sys.exit(5)\n"
    with pytest.raises(VcrtError) as raised:
        together(fails + WAIT)
    assert str(raised.value) == "no memory\n  where: here"
    assert raised.value.exit_code == OutOfMemory.exit_code == 5
    assert capfd.readouterr() == ("", "")


def test_the_cause_is_told_from_what_it_has_caused(place, capfd, monkeypatch):
    # All end between two looks at them: one lost the other, one aborted, one says why.
    monkeypatch.setattr("vcrt.cli.launching._LOOK_S", 3.0)
    ends = "time.sleep(0.3)\n"
    ends += "if rank == 0: told(1, 'Traceback'); os._exit(1)\n"
    ends += "if rank == 1: os.kill(os.getpid(), signal.SIGABRT)\n"
    with pytest.raises(VcrtError, match="diverged"):
        together(ends + "told(2, 'diverged'); os._exit(2)\n")
    assert capfd.readouterr() == ("", "")


def test_what_another_than_the_first_printed_is_shown_if_it_failed(place, capfd):
    with pytest.raises(SystemExit) as left:
        together("print('noise')\nif rank == 2: sys.exit('it broke')\n" + WAIT)
    assert left.value.code == 1
    out, err = capfd.readouterr()
    # The first was ended before it wrote what it had buffered, or wrote it.
    assert out in ("", "noise\n")
    assert "process 2 of 3 printed:\n" in err
    assert "it broke" in err
    assert err.count("noise") == 1


def test_what_the_first_printed_is_not_shown_again(place, capfd):
    with pytest.raises(SystemExit) as left:
        together("if rank == 0: sys.exit('it broke')\n" + WAIT)
    assert left.value.code == 1
    assert capfd.readouterr() == ("", "it broke\n")


def test_a_traceback_is_shown_as_it_is(place, capfd):
    with pytest.raises(SystemExit) as left:
        together("if rank == 1: told(1, 'Traceback\\nKeyError\\n'); sys.exit(1)\n" + WAIT)
    assert left.value.code == 1
    assert capfd.readouterr() == ("", "process 1 of 3 failed:\nTraceback\nKeyError\n")


def test_a_signal_is_named_and_who_does_not_end_is_killed(place, capfd):
    began = time.monotonic()
    with pytest.raises(RunError) as raised:
        # All are stubborn before one of them is ready, so before one is killed.
        together(
            "if rank == 2: os.kill(os.getpid(), signal.SIGKILL)\n" + WAIT,
            grace_s=0.5,
            first=STUBBORN,
        )
    assert 0.5 < time.monotonic() - began < 20
    for words in ("process 2 of 3", "SIGKILL", "rank 2", "signal 9", "add --resume"):
        assert words in str(raised.value)
    assert raised.value.exit_code == 2
    assert capfd.readouterr() == ("", "")


def test_an_interrupted_process_interrupts_all(place):
    with pytest.raises(KeyboardInterrupt):
        together("if rank == 1: sys.exit(130)\n" + WAIT)


LAUNCHER = """
import os, signal, sys
from vcrt.cli.launching import run_together
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.default_int_handler)
command = [sys.executable, "-S", "-c", sys.argv[1]]
try:
    run_together(command, 3, environment=os.environ, remedy="", grace_s=60)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize("sent", [("SIGTERM",), ("to all", "SIGINT"), ("SIGINT", "SIGINT")])
def test_an_interrupted_launcher_ends_all(place, sent):
    twice = sent == ("SIGINT", "SIGINT")
    script = IMPORTS + (STUBBORN if twice else "") + RANK + WAIT
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, script],
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while len(list(place.glob("*.pid"))) < 3:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    # Past the wait of each for the others.
    time.sleep(0.3)
    if sent[0] == "to all":
        # As a terminal does; the ranks are deaf to it, and none prints a traceback.
        os.killpg(process.pid, signal.SIGINT)
    else:
        for name in sent:
            process.send_signal(getattr(signal, name))
            time.sleep(0.5)
    assert process.wait(timeout=30) == 130
    assert process.stderr.read() == b""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A dataset of two toys, a locked Qwen3.5, and a plan of 400 updates."""
    path = tmp_path_factory.mktemp("launching")
    toys = {name: toy.THREE_TOYS[name] for name in ("toy-a", "toy-b")}
    config = sampled(dict.fromkeys(toys, ("needs", "overwrite")), 8)
    frozen = make_dataset(config, path / "data", jobs=1, factories=toys)
    verify_agreement(frozen, jobs=1, factories=toys)
    save_model(path / "qwen", "qwen3_5", tokenizer=byte_level_tokenizer(chat=True))
    main(["backbone", "lock", str(path / "qwen"), "--revision", "made by a test"])
    main(
        [
            *("plan", str(path / "data"), "--output", str(path / "planned"), "--runs", "1"),
            *("--backbone", str(path / "qwen"), "--held-out", "toy-b", "--methods", "vcrt"),
            *("--updates", "400", "--lora-rank", "2"),
        ]
    )
    return path


@pytest.fixture
def experiment(folder):
    """As it was planned, beside what it was planned with."""
    path = folder / "experiment"
    shutil.copytree(folder / "planned", path)
    yield path
    shutil.rmtree(path)


def started(experiment, *options, launcher=(sys.executable, "-m", "vcrt")):
    command = [*launcher, "train", str(experiment), "--num-processes", "2", *options]
    return subprocess.Popen(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def refused(experiment, *options):
    """The one message of a training that must not begin."""
    process = started(experiment, *options)
    out, err = process.communicate(timeout=100)
    assert out == ""
    assert err.count("error:") == 1
    assert "Traceback" not in err
    return process.returncode, err


def said(err):
    """What comes after the warnings of libraries in the first process, which has the terminal."""
    lines = err.splitlines(keepends=True)
    begins = ("error:", "interrupted", "process ")
    first = next((i for i, line in enumerate(lines) if line.startswith(begins)), None)
    assert first is not None, err
    assert "Traceback" not in "".join(lines[:first])
    return "".join(lines[first:])


def log_of(experiment):
    return experiment / "runs" / "vcrt" / "toy-b" / "0" / "progress.jsonl"


def training(experiment, *options, **launcher):
    """A launcher whose processes are in the midst of training, and their ids by rank."""
    log = log_of(experiment)
    # A resumed run goes back to its last checkpoint, and so does its log.
    before = log.stat().st_mtime_ns if log.exists() else 0
    process = started(experiment, *options, **launcher)
    deadline = time.monotonic() + 400
    while not (log.is_file() and log.stat().st_size and log.stat().st_mtime_ns > before):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return process, ranks_of(process.pid)


def ranks_of(parent):
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "stat").read_text().rsplit(")", 1)[1].split()
            variables = (
                (path / "environ").read_bytes().split(b"\0") if words[1] == str(parent) else []
            )
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        found |= {int(v[5:]): int(path.name) for v in variables if v.startswith(b"RANK=")}
    assert sorted(found) == [0, 1]
    return found


def assert_ended(ranks):
    deadline = time.monotonic() + 5
    while any(map(is_alive, ranks.values())):
        assert time.monotonic() < deadline, "a process is left behind"
        time.sleep(0.05)


@pytest.mark.parametrize("number", ["0", "-1"])
def test_too_few_processes_are_refused(tmp_path, capsys, number):
    with pytest.raises(SystemExit) as left:
        main(["train", str(tmp_path), "--num-processes", number])
    assert left.value.code == 2
    assert f"found: --num-processes {number}" in capsys.readouterr().err


def test_what_each_process_would_refuse_is_refused_once(folder, experiment, capsys, monkeypatch):
    def nothing_starts(*arguments, **options):
        raise AssertionError("something was launched")

    monkeypatch.setattr("vcrt.cli.launching.launch", nothing_starts)

    def refusal(*options):
        with pytest.raises(SystemExit) as left:
            main(["train", str(experiment), "--num-processes", "2", *options])
        out, err = capsys.readouterr()
        assert (out, err.count("error:")) == ("", 1)
        return left.value.code, err

    code, message = refusal("--trackers", "comet_ml")
    assert (code, "pip install comet_ml" in message) == (3, True)
    weights = folder / "qwen" / "model.safetensors"
    content = weights.read_bytes()
    try:
        weights.write_bytes(content[:-1] + b"?")
        code, message = refusal()
        assert (code, "not the one that was locked" in message) == (2, True)
    finally:
        weights.write_bytes(content)
    (folder / "data").rename(folder / "elsewhere")
    try:
        code, message = refusal()
        assert (code, "not where it was" in message) == (2, True)
    finally:
        (folder / "elsewhere").rename(folder / "data")


@pytest.mark.slow
def test_a_removed_model_is_one_message(folder, experiment):
    weights = folder / "qwen" / "model.safetensors"
    weights.rename(folder / "away")
    try:
        code, message = refused(experiment)
    finally:
        (folder / "away").rename(weights)
    assert code == 2
    assert "model.safetensors is not the one that was locked" in message
    assert "no such file" in message


@pytest.mark.slow
def test_a_training_ends_as_a_whole_and_goes_on(experiment):
    process, ranks = training(experiment)
    os.kill(ranks[1], signal.SIGKILL)
    err = said(process.communicate(timeout=60)[1])
    assert process.returncode == 2
    assert_ended(ranks)
    assert err.startswith("error: process 1 of 2 was ended by SIGKILL\n")
    assert err.endswith(f"`vcrt train {experiment} --num-processes 2`\n")
    assert err.count("\n") == 4

    process, ranks = training(experiment)
    process.kill()
    process.communicate(timeout=60)
    assert_ended(ranks)

    process, ranks = training(experiment)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert_ended(ranks)
    assert process.returncode == 130
    goes_on = f"`vcrt train {experiment} --num-processes 2`"
    assert said(err) == f"interrupted; go on from the last checkpoints with {goes_on}\n"
    assert "at the last update" not in out


#: Found by Python itself before a program begins: after an update, some ranks fail.
FAILS = """
import os
if "RANK" in os.environ:
    import vcrt.errors
    import vcrt.protocol.planned_training as module
    original = module.train_run
    def train_run(*args, group, on_update, **options):
        def breaks(*of):
            on_update(*of)
            if str(group.rank) in os.environ["FAILING"]:
                raise {error}
        return original(*args, group=group, on_update=breaks, **options)
    module.train_run = train_run
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failing", "error", "code", "begin"),
    [
        ("1", "vcrt.errors.OutOfMemory('no memory is left')", 5, "error: no memory is left\n"),
        ("1", "KeyError('unforeseen')", 1, "process 1 of 2 failed:\nTraceback "),
    ],
)
def test_an_error_amid_training_is_one_message_with_its_code(
    experiment, tmp_path, monkeypatch, failing, error, code, begin
):
    (tmp_path / "sitecustomize.py").write_text(FAILS.format(error=error))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("FAILING", failing)
    process = started(experiment)
    err = said(process.communicate(timeout=200)[1])
    assert process.returncode == code
    assert err.startswith(begin)
    assert err.count("Traceback") == (code == 1)
    assert err.count("\n") == 1 or code == 1
    assert "Connection" not in err


@pytest.mark.slow
def test_no_process_of_torchrun_stays_behind_it(experiment):
    """Nor of `accelerate launch`, which starts them by the same library."""
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    process, ranks = training(experiment, launcher=(sys.executable, *torchrun, "-m", "vcrt"))
    process.kill()
    process.communicate(timeout=60)
    assert_ended(ranks)
