"""Each package of environments passes its own quick tests with the certifier and what it declares alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from functools import cache
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from documentation import ROOT

#: The packages, and what their users install without its dependencies (the Makefile says why).
MEMBERS = {
    "clrs": ("dm-clrs==2.0.3",),
    "django": (),
    "lean": (),
    "proofwriter": (),
    "rocq": (),
    "toolbench": ("bfcl-eval==2026.3.23", "agentdojo==0.1.35"),
}
QUICK = "not slow and not nightly and not browser and not paper_scale"


def test_every_package_of_environments_is_here():
    folders = {path.parent.name for path in ROOT.glob("environments/*/pyproject.toml")}
    assert folders == {*MEMBERS}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build a package's wheel, each once."""

    @cache
    def built(folder):
        place = tmp_path_factory.mktemp("wheel")
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", place]
        subprocess.run(build, cwd=folder, check=True, capture_output=True)
        (found,) = place.iterdir()
        return found

    return built


def needed(requirements):
    """Names of installed distributions that these bring, and the requirements of those that are not installed."""
    found, missing, seen = set(), [], set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        one = waiting.pop()
        if canonicalize_name(one.name) == "vcrt" or str(one) in seen:
            continue
        seen.add(str(one))
        try:
            distribution = metadata.distribution(one.name)
        except metadata.PackageNotFoundError:
            missing.append(str(one))
            continue
        assert one.specifier.contains(distribution.version, prereleases=True), one
        found.add(canonicalize_name(one.name))
        waiting += wanted(map(Requirement, distribution.requires or ()), one.extras)
    return found, missing


def wanted(requirements, extras):
    """Those whose marker holds, with these extras or none."""
    for one in requirements:
        if one.marker is None or any(one.marker.evaluate({"extra": e}) for e in ("", *extras)):
            one.marker = None
            yield one


def place(name, site):
    """Lay the files of an installed distribution into another environment, as links: nothing is downloaded."""
    for file in metadata.distribution(name).files:
        if ".." not in file.parts:
            target = site / file
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(file.locate(), target)
            except OSError:
                shutil.copy2(file.locate(), target)


@pytest.mark.slow
@pytest.mark.parametrize(
    "member",
    [
        # These take minutes each; the others show the same of the certifier.
        each if each == "toolbench" else pytest.param(each, marks=pytest.mark.nightly)
        for each in MEMBERS
    ],
)
def test_its_quick_tests_pass_with_what_it_declares_alone(member, wheel, tmp_path):
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False, symlinks=True)
    (site,) = environment.glob("lib/python*/site-packages")
    requirements = []
    for folder in (ROOT, ROOT / "environments" / member):
        with zipfile.ZipFile(wheel(folder)) as archive:
            archive.extractall(site)
    extras = ("dev", "django") if member == "django" else ("dev",)
    for name, chosen in (("vcrt", ()), (f"vcrt-{member}", extras)):
        (found,) = metadata.distributions(name=name, path=[str(site)])
        requirements += map(str, wanted(map(Requirement, found.requires), chosen))
    names, missing = needed(requirements)
    for name in sorted(names):
        place(name, site)
    for pinned in MEMBERS[member]:
        place(pinned.partition("==")[0], site)
    if missing:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        constraints = ["-c", ROOT / "constraints.txt"]
        subprocess.run([*pip, *constraints, "--target", site, *missing], check=True)
    names = {one.name.lower() for one in metadata.distributions(path=[str(site)])}
    others = {f"vcrt-{other}" for other in (*MEMBERS, "train", "research") if other != member}
    assert {"vcrt", f"vcrt-{member}"} <= names
    assert not names & {"torch", *others}
    python = environment / "bin" / "python"
    pytest_alone = [python, "-m", "pytest", "-p", "no:cacheprovider", "-m", QUICK]
    done = subprocess.run(
        [*pytest_alone, f"environments/{member}/tests"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
