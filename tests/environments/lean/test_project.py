"""The Lean of a user's Lake project: what is found, what is turned away, and what it does where there is one."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

import lean_recording
import vcrt
from command_line import refused as refused_command
from vcrt.environments.lean import toolchain
from vcrt.environments.lean.project import DRIVER, find_project
from vcrt.environments.lean.project_environment import LeanProjectEnvironment
from vcrt.errors import MalformedInputError, UnavailableError

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


def test_windows_are_for_projects_alone(capsys, tmp_path):
    said = refused_command(capsys, "lift", "lean", str(tmp_path / "Mine.lean"), "--steps", "3")
    assert "steps 3 without a project" in said


FILE = Path(lean_recording.__file__).with_name("Mine.lean").read_text(encoding="utf-8")


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
        (found,) = vcrt.lift_lean([file], project=tmp_path, steps=4)
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
        (found,) = vcrt.lift_lean([file], project=tmp_path, steps=2)
        causes = {refusal.theorem: refusal.cause for refusal in found.refused}
        assert causes["hole"] == "assumptions"

    def test_a_file_that_does_not_compile_is_named_by_line(self, tmp_path):
        file = self.made(tmp_path, "theorem t : 1 = 2 := by\n  rfl\n")
        (found,) = vcrt.lift_lean([file], project=tmp_path)
        assert isinstance(found, MalformedInputError)
        assert f"{file}:2" in str(found.where)

    def test_an_import_that_is_not_built_is_named(self, tmp_path):
        file = self.made(tmp_path, "import Mine.Gone\n")
        (found,) = vcrt.lift_lean([file], project=tmp_path)
        assert isinstance(found, MalformedInputError)
        assert "lake build" in str(found.remedy)
