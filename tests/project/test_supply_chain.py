"""The locks name every package that is needed by version and hash, and two builds of the wheel have the same bytes."""

from __future__ import annotations

import re
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "supply_chain"))

import distributions  # noqa: E402
import lock  # noqa: E402

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
    files = [ROOT / "pyproject.toml", *(ROOT / name / "pyproject.toml" for name in lock.MEMBERS)]
    projects = [tomllib.loads(file.read_text())["project"] for file in files]
    extras = {"dev": ["dev", "sign"], "clusters": ["ray", "dask"], "bench": ["bench"]}
    extras["integrations"] = ["trl", "verifiers", "mcp", "django"]
    extras["pages"] = ["browser", "docs"]
    for path in LOCKS:
        if path.stem == "release":
            continue
        needed = [one for project in projects for one in project["dependencies"]]
        for extra in ["dev", *extras[path.stem]]:
            found = [
                p["optional-dependencies"].get(extra, [])
                for p in projects
                if "optional-dependencies" in p
            ]
            assert any(found), extra
            needed += [one for some in found for one in some]
        names = {re.match(r"[A-Za-z0-9_.-]+", one)[0].lower().replace("_", "-") for one in needed}
        assert names - set(packages(path)) == {"torch", "vcrt"}
        assert {"agentdojo", "bfcl-eval", "dm-clrs"} <= set(packages(path))


@pytest.mark.nightly
def test_two_builds_of_the_package_have_the_same_bytes(tmp_path):
    wheel, sdist, train, *others = distributions.build_twice(tmp_path)
    assert len(others) == 2 * len(lock.MEMBERS) - 1
    assert wheel.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "vcrt/py.typed" in names
    assert {name.split("/")[-1] for name in names} >= {"LICENSE", "NOTICE"}
    names = zipfile.ZipFile(train).namelist()
    assert "vcrt_train/report/page.html.jinja" in names
    assert {name.split("/")[-1] for name in names} >= {"LICENSE", "NOTICE", "model.safetensors"}
    with tarfile.open(sdist) as archive:
        inside = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {"pyproject.toml", "LICENSE", "NOTICE", "CITATION.cff", "src/vcrt/py.typed"} <= inside
    assert not any(name.startswith(("tests", "benchmarks", ".ci")) for name in inside)


@pytest.mark.nightly
def test_a_build_that_depends_on_its_surroundings_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(
        distributions, "_disturb", lambda tree, n: (tree / "NOTICE").write_text(f"{n}")
    )
    with pytest.raises(SystemExit, match="differ"):
        distributions.build_twice(tmp_path)
