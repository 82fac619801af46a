"""`vcrt doctor`: what is there is said, what is not is named with what mends it."""

from __future__ import annotations

import builtins
import json
import shlex
import subprocess
import sys
from importlib import metadata

import pytest
import torch
from packaging.requirements import Requirement

from command_line import refused, run
from documentation import ROOT
from vcrt.api import doctor
from vcrt.environments import registry
from vcrt.errors import UnavailableError
from vcrt_train import diagnosis


def test_where_all_is_well(capsys):
    code, out, _ = run(capsys, "doctor")
    assert code == 0
    for subject in ("vcrt", "packages", "PyTorch", "clrs", "lean", "proofwriter", "backbone"):
        assert any(line.split()[:2] == ["ok", subject] for line in out.splitlines()), subject
    assert "Lean 4" in out


def test_for_machines(capsys):
    document = json.loads(run(capsys, "doctor", "--json")[1])
    by_subject = {finding["subject"]: finding for finding in document["findings"]}
    assert by_subject["packages"]["status"] == "ok"
    assert set(by_subject["vcrt"]) == {"subject", "found", "status", "remedy"}


def without(name):
    real = metadata.version

    def version(asked):
        if asked == name:
            raise metadata.PackageNotFoundError(asked)
        return real(asked)

    return version


def test_a_package_that_is_missing_is_broken(capsys, monkeypatch):
    monkeypatch.setattr(doctor.metadata, "version", without("clingo"))
    assert "packages" in refused(capsys, "doctor", code=UnavailableError.exit_code)
    (found,) = doctor._attempt("packages", doctor._required)
    assert (found.status, found.found) == ("broken", "clingo is not installed")
    assert found.remedy == "pip install 'clingo<6,>=5.8'"


def test_an_extra_that_is_missing_is_no_error(monkeypatch):
    monkeypatch.setattr(doctor.metadata, "version", without("cryptography"))
    found = {one.subject: one for one in doctor._extras()}["vcrt[sign]"]
    assert (found.status, found.remedy) == ("absent", "pip install 'cryptography>=42'")


def test_what_is_installed_is_not_called_absent():
    """Each package of this repository is here."""
    found = [one for one in doctor.doctor() if one.found == "not installed"]
    assert found == []


def remedies():
    """What mends each package that could be missing."""
    yield from (
        doctor._argument(r) for d in doctor._distributions() for r in doctor._requirements(d)
    )
    for distribution in doctor._distributions():
        for extra in doctor.metadata.metadata(distribution).get_all("Provides-Extra") or []:
            command = doctor.plugins.installing_extra(extra, distribution)
            program, verb, *arguments = shlex.split(command)
            assert (program, verb, bool(arguments)) == ("pip", "install", True), command
            yield from arguments


def test_no_mend_installs_this_project_from_an_index():
    for one in {*remedies()}:
        if one.startswith("."):
            assert (ROOT / one / "pyproject.toml").exists(), one
        else:
            assert not Requirement(one.strip("'")).name.startswith("vcrt"), one


@pytest.mark.nightly
def test_each_mend_is_to_be_had():
    """pip finds a version of each package that a mend names; nothing is installed."""
    wanted = sorted({one.strip("'") for one in remedies() if not one.startswith(".")})
    assert len(wanted) > 20
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--quiet"]
    done = subprocess.run(
        [*command, "--disable-pip-version-check", *wanted],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (wanted, done.stderr)


def test_a_version_out_of_range_is_named(monkeypatch):
    monkeypatch.setattr(doctor.metadata, "version", lambda name: "0.0.1")
    (found,) = doctor._attempt("packages", doctor._required)
    assert "numpy 0.0.1 is not >=1.26" in found.found


def no_driver():
    raise RuntimeError("The NVIDIA driver on your system is too old (found version 11040).\nMore")


@pytest.fixture
def card(monkeypatch):
    """An NVIDIA card, as NVML sees it, that PyTorch cannot use, because the driver is too old for it."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(diagnosis.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: no_driver())
    monkeypatch.setattr(torch.cuda, "init", no_driver)


def test_a_driver_that_is_too_old_is_named(card, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    ok, found = doctor._attempt("PyTorch", diagnosis._devices)
    assert (ok.status, ok.found) == (
        "ok",
        f"{torch.__version__}, no usable GPU: models run on the CPU",
    )
    assert found.status == "absent"
    assert found.found.endswith(
        "The NVIDIA driver on your system is too old (found version 11040)."
    )
    assert "update NVIDIA's driver to one for CUDA 13.0" in found.remedy


def test_a_build_for_the_cpu_beside_a_card_is_named(card, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    _, found = doctor._attempt("PyTorch", diagnosis._devices)
    assert (found.status, "build of PyTorch without CUDA" in found.found) == ("absent", True)
    assert "pip install --force-reinstall torch" in found.remedy


def test_a_card_that_is_hidden_or_not_there_needs_no_remedy(card, monkeypatch, tmp_path):
    monkeypatch.setattr(torch.version, "cuda", None)
    for hidden in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert [one.status for one in diagnosis._devices()] == ["ok"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(diagnosis.shutil, "which", lambda name: None)
    driver = tmp_path / "version"
    assert not diagnosis._has_card(driver)
    driver.touch()
    assert diagnosis._has_card(driver)


def test_a_card_that_works_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: f"card {number}")
    (found,) = diagnosis._devices()
    assert found.found == f"{torch.__version__}, card 0, card 1"


@pytest.mark.parametrize("error", [UnavailableError("no verifier", remedy="install it"), OSError()])
def test_an_environment_that_breaks_keeps_nothing_else_from_being_looked_at(monkeypatch, error):
    real = registry.load_environment

    def load(name):
        if name == "clrs":
            raise error
        return real(name)

    monkeypatch.setattr(registry, "load_environment", load)
    found = {one.subject: one for one in doctor.doctor()}
    assert found["clrs"].status == "broken"
    assert found["clrs"].remedy
    assert found["proofwriter"].status == "ok"


@pytest.mark.parametrize("package", ["torch", "packaging"])
def test_a_package_that_breaks_when_imported_is_a_finding(monkeypatch, package):
    real = builtins.__import__

    def breaks(name, *rest):
        if name.partition(".")[0] == package:
            raise OSError(f"lib{package}.so: cannot open shared object file")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", breaks)
    found = {one.subject: one for one in doctor.doctor()}
    assert "broken" in {one.status for one in found.values()}
    assert found["proofwriter"].status == "ok"
