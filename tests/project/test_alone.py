"""Each package of environments passes its own quick tests with the certifier and what it declares alone."""

from __future__ import annotations

import json
import subprocess
import venv

import pytest

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


@pytest.mark.slow
@pytest.mark.parametrize("member", MEMBERS)
def test_its_quick_tests_pass_with_what_it_declares_alone(member, tmp_path):
    venv.create(tmp_path / "environment", with_pip=True, symlinks=True)
    python = tmp_path / "environment" / "bin" / "python"
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    own = f"{ROOT}/environments/{member}[{'dev,django' if member == 'django' else 'dev'}]"
    install = [*pip, "install", "--quiet"]
    subprocess.run([*install, "-c", ROOT / "constraints.txt", ROOT, own], check=True)
    if MEMBERS[member]:
        subprocess.run([*install, "--no-deps", *MEMBERS[member]], check=True)
    listed = subprocess.run([*pip, "list", "--format", "json"], capture_output=True, check=True)
    names = {one["name"].lower() for one in json.loads(listed.stdout)}
    others = {f"vcrt-{other}" for other in (*MEMBERS, "train", "research") if other != member}
    assert not names & {"torch", *others}
    pytest_alone = [python, "-m", "pytest", "-p", "no:cacheprovider", "-m", QUICK]
    done = subprocess.run(
        [*pytest_alone, f"environments/{member}/tests"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
