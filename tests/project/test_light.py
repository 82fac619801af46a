"""``pip install .`` is the certifier alone: small, and enough for tool calls and environments of one's own."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
import venv

import pytest

from documentation import ROOT, text_of
from reading import offline, read
from vcrt.plugins import COMMANDS, ENVIRONMENTS, FOLDERS, LIFTERS

#: What it may bring, by the names of distributions, pip's own and what the direct dependencies need included.
LIGHT = {
    *("annotated-types", "cloudpickle", "docstring-parser", "markdown-it-py", "mdurl"),
    *("packaging", "pip", "psutil", "pydantic", "pydantic-core", "pygments", "rich"),
    *("securesystemslib", "setuptools", "typeguard", "typing-extensions", "typing-inspection"),
    *("tyro", "vcrt", "wheel"),
}
#: The largest installation, in millions of bytes, pip and setuptools left out.
MAX_MEGABYTES = 45


@pytest.fixture(scope="module")
def light(tmp_path_factory):
    """A virtual environment into which the certifier alone was installed, as a user does it."""
    folder = tmp_path_factory.mktemp("light") / "environment"
    venv.create(folder, with_pip=True, symlinks=True)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet"]
    subprocess.run(
        [*pip, "--disable-pip-version-check", "-c", ROOT / "constraints.txt", str(ROOT)], check=True
    )
    # The page on own environments builds one, without an index.
    subprocess.run([*pip, "--disable-pip-version-check", "wheel"], check=True)
    return folder


def run(environment, *command):
    return subprocess.run(
        [environment / "bin" / command[0], *command[1:]], capture_output=True, text=True
    )


def test_it_has_eight_direct_dependencies_at_most():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert len(project["dependencies"]) <= 8


@pytest.mark.slow
def test_it_brings_nothing_large(light):
    listed = run(light, "python", "-m", "pip", "list", "--format", "json")
    names = {one["name"].lower().replace("_", "-") for one in json.loads(listed.stdout)}
    assert names <= LIGHT
    (site,) = light.glob("lib/python*/site-packages")
    size = sum(
        path.stat().st_size
        for path in site.rglob("*")
        if path.is_file() and path.relative_to(site).parts[0] not in ("pip", "setuptools")
    )
    print(f"{size / 1e6:.0f} MB", file=sys.stderr)
    assert size < MAX_MEGABYTES * 1e6


@pytest.mark.slow
def test_what_is_not_installed_is_named_with_the_command_that_installs_it(light):
    groups = {COMMANDS: (), LIFTERS: ("lift",)}
    for folder, brought in FOLDERS.items():
        for group, words in groups.items():
            for name in brought.get(group, ()):
                done = run(light, "vcrt", *words, name, "x")
                assert done.returncode == 3, (name, done.stderr)
                assert f"pip install ./{folder}\n" in done.stderr
        for name in brought.get(ENVIRONMENTS, ()):
            done = run(light, "vcrt", "environments", "validate", name)
            assert done.returncode == 3, (name, done.stderr)
            assert f"pip install ./{folder}\n" in done.stderr


@pytest.mark.slow
def test_its_doctor_finds_nothing_broken(light):
    done = run(light, "vcrt", "doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "pip install ./train" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "until"),
    [
        ("tools.md", "## 5. "),
        pytest.param(
            "your-environment.md", "vcrt certify --preset posets6", marks=pytest.mark.nightly
        ),
    ],
)
def test_pages_on_tool_calls_and_own_environments_run_with_it_alone(light, page, until, tmp_path):
    text, found, _ = text_of(page).partition(until)
    assert found
    if until.startswith("vcrt"):
        text = text[: text.rindex("```bash")]
    read({page: text}, tmp_path, offline(light))
