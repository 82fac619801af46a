"""The locks name every package that is needed by version and hash, and two builds of the wheel have the same bytes."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "supply_chain"))

import lock  # noqa: E402
import wheel  # noqa: E402

LOCKS = sorted((ROOT / "supply_chain").glob("*/*.txt"))


def packages(path):
    found = {}
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            matched = re.fullmatch(r"([a-z0-9.-]+)==(\S+) --hash=sha256:[0-9a-f]{64}", line)
            assert matched, f"{path}: {line}"
            found[matched[1]] = matched[2]
    return found


def test_there_is_a_lock_for_every_set():
    assert {path.stem for path in LOCKS} == set(lock.SETS)


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_a_lock_has_the_versions_of_the_constraints(path):
    constraints = dict(
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    )
    for name, version in packages(path).items():
        assert constraints.get(name, version) == version, name


def test_the_lock_has_every_dependency_of_the_project_but_pytorch():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {"dev": ["dev", "sign"], "clusters": ["ray", "dask"], "bench": ["bench"]}
    extras["integrations"] = ["trl", "verifiers"]
    extras["pages"] = ["browser", "docs"]
    for path in LOCKS:
        if path.stem == "release":
            continue
        needed = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
        for extra in extras[path.stem]:
            needed += project["optional-dependencies"][extra]
        names = {re.match(r"[A-Za-z0-9_.-]+", one)[0].lower().replace("_", "-") for one in needed}
        assert names - set(packages(path)) == {"torch"}
        assert "dm-clrs" in packages(path)


@pytest.mark.slow
def test_two_builds_of_the_wheel_have_the_same_bytes(tmp_path):
    built = wheel.build_twice(tmp_path)
    assert built.name.endswith("-py3-none-any.whl")


@pytest.mark.slow
def test_a_build_that_depends_on_its_surroundings_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(wheel, "_disturb", lambda tree, n: (tree / "NOTICE").write_text(f"{n}"))
    with pytest.raises(SystemExit, match="differ"):
        wheel.build_twice(tmp_path)
