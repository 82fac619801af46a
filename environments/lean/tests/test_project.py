"""The Lean of a user's Lake project: what is found, what is turned away, and what it does where there is one."""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
from pathlib import Path

import pytest

import lean_recording
import vcrt_lean
from command_line import refused as refused_command
from command_line import run
from vcrt.errors import MalformedInputError, UnavailableError
from vcrt_lean import toolchain
from vcrt_lean.project import DRIVER, find_project
from vcrt_lean.project_environment import LeanProjectEnvironment

LAKEFILE = 'name = "mine"\n[[lean_lib]]\nname = "Mine"\n'
needs_lake = pytest.mark.skipif(
    shutil.which("lake") is None, reason="no Lean toolchain: no lake on PATH (install elan)"
)


@pytest.fixture
def project(tmp_path):
    (tmp_path / "lakefile.toml").write_text(LAKEFILE, encoding="utf-8")
    return tmp_path


@pytest.fixture
def programs(tmp_path_factory, monkeypatch):
    """A folder on PATH in which tests put programs."""
    folder = tmp_path_factory.mktemp("programs")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")
    return folder


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def lake(programs, lean='"$@"'):
    """A Lake that sets its environment and runs a command, with the embedded Lean (without library) as its own."""
    command = " ".join(f"'{part}'" for part in toolchain.embedded_toolchain().command)
    executable(programs / "root" / "bin" / "lean", lean.replace('"$@"', f'exec {command} "$@"\n'))
    executable(
        programs / "lake",
        f"shift\nLEAN_SYSROOT='{programs}/root' LEAN_PATH=build/lib:/elsewhere exec \"$@\"\n",
    )


@pytest.mark.parametrize(("name", "found"), [("", "no lakefile.toml and"), ("gone", "no such")])
def test_a_folder_without_a_lakefile_is_no_project(tmp_path, name, found):
    with pytest.raises(MalformedInputError, match="not a Lake project") as caught:
        find_project(tmp_path / name)
    assert found in str(caught.value.found)


def test_without_lake_there_is_no_toolchain(project, programs):
    with pytest.raises(UnavailableError, match="no Lean toolchain") as caught:
        find_project(project)
    assert "elan" in str(caught.value.remedy)


def test_lakes_own_message_is_shown(project, programs):
    executable(programs / "lake", "echo 'error: no such package' >&2; exit 1\n")
    with pytest.raises(UnavailableError, match="no such package"):
        find_project(project)


def test_a_lake_without_a_lean_is_named(project, programs):
    executable(programs / "lake", 'shift; exec "$@"\n')
    with pytest.raises(UnavailableError, match="does not tell where its Lean is"):
        find_project(project)


def test_a_lean_that_is_too_old_is_turned_away(project, programs):
    lake(programs, lean="echo 'Lean (version 4.8.0, x86_64)'\n")
    with pytest.raises(UnavailableError, match="too old") as caught:
        find_project(project)
    assert caught.value.expected == "Lean 4.9 or later"


def test_the_folders_of_a_project_are_found_by_lake(project, programs):
    lake(programs)
    found = find_project(project)
    assert found.version == "4.35.0"
    assert found.search_path == (str(project / "build/lib"), "/elsewhere")
    assert found.command[-2:] == ("--run", str(DRIVER))


def test_a_lean_without_its_library_does_not_judge(project, programs):
    """The embedded Lean has no ``.olean`` files and cannot run the driver, which is said before anything is judged."""
    lake(programs)
    file = project / "Mine.lean"
    file.write_text("theorem t : True := by\n  trivial\n", encoding="utf-8")
    environment = LeanProjectEnvironment(find_project(project))
    with pytest.raises(UnavailableError, match="does not judge as it should") as caught:
        environment.theorems(file)
    assert "unknown module prefix" in str(caught.value.found)
    environment.close()


def test_the_command_names_what_is_missing(capsys, tmp_path):
    said = refused_command(capsys, "lift", "lean", "Mine.lean", "--project", str(tmp_path))
    assert "not a Lake project" in said


def test_without_a_project_one_line_says_what_is_needed(capsys):
    said = refused_command(capsys, "lift", "lean", "Mine.lean", "--steps", "3")
    assert said.strip().splitlines() == [
        "error: lift lean needs a Lake project with a Lean toolchain: name its folder with --project"
    ]


FILE = Path(lean_recording.__file__).with_name("Mine.lean").read_text(encoding="utf-8")


class TestTheCommand:
    """With a toolchain whose Lean plays back what Lean 4.28 answered to the driver (see ``lean_recording.py``)."""

    @pytest.fixture
    def lifted(self, project, programs, capsys):
        play = f"exec '{sys.executable}' '{lean_recording.__file__}'"
        version = "echo 'Lean (version 4.28.0, x86_64)'"
        lake(programs, lean=f'if [ "$1" = --version ]; then {version}; else {play}; fi\n')
        for name in ("Mine.lean", "Wrong.lean", "Gone.lean"):
            (project / name).write_text(FILE, encoding="utf-8")
        (project / "Binary.lean").write_bytes(b"theorem \xff")

        def lift(*names, options=()):
            files = [project / name for name in names]
            return run(capsys, "lift", "lean", *files, "--project", project, *options)

        return lift

    def test_what_it_prints_for_people(self, lifted):
        code, out, err = lifted("Mine.lean")
        assert (code, err) == (0, "")
        assert "Mine.lean:4 facts" in out
        assert "4. have h3 : a + 1 < c + 1 := by simpa using h1  (7:2-9:18)" in out
        assert "12 of 24 orders are legal" in out
        assert "Unknown identifier `h1`" in out
        assert "merged replay" in out
        assert "Mine.lean:12 short (short)" in out
        assert "1 window judged; 2 refused (2 short)" in out

    def test_what_it_prints_for_machines(self, lifted):
        code, out, _ = lifted("Mine.lean", options=["--json"])
        (report,) = json.loads(out)
        (theorem,) = report["theorems"]
        assert (code, report["replay"]) == (0, "merged")
        assert (theorem["name"], theorem["line"]) == ("facts", 4)
        assert (theorem["orders"], theorem["legal_orders"]) == (24, 12)
        relations = {(p["first"], p["second"]): p["relation"] for p in theorem["pairs"]}
        assert relations.pop((0, 3)) == "precedes"
        assert set(relations.values()) == {"commutes"}
        assert [refusal["cause"] for refusal in report["refused"]] == ["short", "short"]

    def test_a_bad_file_does_not_stop_the_others(self, lifted):
        names = ("Absent.lean", "Binary.lean", "Mine.lean", "Wrong.lean", "Gone.lean")
        code, out, err = lifted(*names)
        assert code == 2
        assert "12 of 24 orders are legal" in out
        assert "4 of 5 files could not be read" in err
        code, out, _ = lifted(*names, options=["--json"])
        absent, binary, mine, wrong, gone = json.loads(out)
        assert code == 2
        assert absent["error"]["found"] == "No such file or directory"
        assert "can't decode" in binary["error"]["found"]
        assert [theorem["legal_orders"] for theorem in mine["theorems"]] == [12]
        assert "does not compile" in wrong["error"]["what"]
        assert "imports" in gone["error"]["what"]

    def test_a_file_without_a_window_is_an_error(self, lifted):
        code, out, err = lifted("Mine.lean", options=["--steps", 8])
        assert code == 2
        assert "8 or more" in out
        assert "nothing in these files could be judged" in err


@needs_lake
@pytest.mark.slow
class TestWithAToolchain:
    """What a user's own Lean says; nothing of it has been tried where no toolchain is."""

    def made(self, folder, text=FILE):
        (folder / "lakefile.toml").write_text(LAKEFILE, encoding="utf-8")
        file = folder / "Mine.lean"
        file.write_text(text, encoding="utf-8")
        return file

    def test_windows_are_judged_with_ranges_and_reasons(self, tmp_path):
        file = self.made(tmp_path)
        (found,) = vcrt_lean.lift_lean([file], project=tmp_path, steps=4)
        assert not isinstance(found, MalformedInputError)
        (window,) = found.theorems
        assert window.lifted.theorem == "facts"
        assert window.lifted.steps[0].span == "4:2-4:29"
        assert window.orders.num_legal == 12
        pairs = {(pair.first, pair.second): pair for pair in window.orders.pairs}
        assert pairs[0, 3].relation == "precedes"
        assert "h1" in pairs[0, 3].reason
        assert pairs[0, 1].relation == "commutes"
        assert {refusal.cause for refusal in found.refused} == {"short"}

    def test_a_hole_is_an_assumption(self, tmp_path):
        file = self.made(tmp_path)
        (found,) = vcrt_lean.lift_lean([file], project=tmp_path, steps=2)
        causes = {refusal.theorem: refusal.cause for refusal in found.refused}
        assert causes["hole"] == "assumptions"

    def test_a_file_that_does_not_compile_is_named_by_line(self, tmp_path):
        file = self.made(tmp_path, "theorem t : 1 = 2 := by\n  rfl\n")
        (found,) = vcrt_lean.lift_lean([file], project=tmp_path)
        assert isinstance(found, MalformedInputError)
        assert f"{file}:2" in str(found.where)

    def test_an_import_that_is_not_built_is_named(self, tmp_path):
        file = self.made(tmp_path, "import Mine.Gone\n")
        (found,) = vcrt_lean.lift_lean([file], project=tmp_path)
        assert isinstance(found, MalformedInputError)
        assert "lake build" in str(found.remedy)
