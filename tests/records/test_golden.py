"""The same dataset on every machine: root hashes of the real environments, at a small and at the paper's scale.

A root hash commits to the versions of the verifiers too, so a value holds under the versions of constraints.txt. Under
others the test says which differ, and skips; in CI (CI=true), which has those of constraints.txt, it fails. It changes
only when the content of a dataset changes: then renew it with `python tests/records/test_golden.py`, and say so in the
changelog.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from vcrt.datasets.freezing import make_dataset
from vcrt.replay.config import sampled, select_schemas

GOLDEN = Path(__file__).parents[1] / "support" / "golden.json"
#: Episodes of each schema: quick enough for every test run, two for every run of CI, and the paper's.
SMALL, LARGE = 2, (4, 10, 500)


def frozen(path, episodes):
    return make_dataset(sampled(select_schemas(()), episodes), path, jobs=2).manifest


def expected(manifest, episodes):
    golden = json.loads(GOLDEN.read_text())
    known = golden["versions"]
    other = [
        f"{name}: {differing(versions, known.get(name, {}))}"
        for name, versions in sorted(manifest.versions.items())
        if versions != known.get(name)
    ]
    if other:
        message = "the golden values belong to other versions: " + "; ".join(other)
        in_ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
        (pytest.fail if in_ci else pytest.skip)(message)
    return golden["root_hash"][str(episodes)]


def differing(found, known):
    found, known = ({**each, **each.get("libraries", {})} for each in (found, known))
    names = [name for name in found | known if name != "libraries"]
    return ", ".join(
        f"{name} {found.get(name)} for {known.get(name)}"
        for name in names
        if found.get(name) != known.get(name)
    )


@pytest.mark.parametrize(("ci", "outcome"), [("true", "Failed"), ("", "Skipped")])
def test_other_versions_fail_in_ci_and_are_named(monkeypatch, ci, outcome):
    monkeypatch.setenv("CI", ci)
    versions = json.loads(GOLDEN.read_text())["versions"]
    assert len(expected(SimpleNamespace(versions=versions), SMALL)) == 64
    versions["proofwriter"]["libraries"]["clingo"] = "5.7.0"
    with pytest.raises(BaseException, match=r"proofwriter: clingo 5\.7\.0 for 5\.8\.3") as raised:
        expected(SimpleNamespace(versions=versions), SMALL)
    assert type(raised.value).__name__ == outcome


def test_the_small_dataset(tmp_path):
    manifest = frozen(tmp_path / "data", SMALL)
    assert manifest.root_hash == expected(manifest, SMALL)


@pytest.mark.parametrize(
    "episodes",
    [
        pytest.param(LARGE[0], marks=pytest.mark.slow),
        pytest.param(LARGE[1], marks=pytest.mark.nightly),
        pytest.param(LARGE[-1], marks=pytest.mark.paper_scale),
    ],
)
def test_a_large_dataset(tmp_path, episodes):
    manifest = frozen(tmp_path / "data", episodes)
    counts = [counts for schemas in manifest.counts.values() for counts in schemas.values()]
    assert len(counts) == 15
    assert all(c.episodes == episodes and c.legal_orders == 12 * episodes for c in counts)
    assert all(sorted(c.relations.values()) == [episodes, 5 * episodes] for c in counts)
    assert all(
        check.disagreement_rate == 0.0
        for checks in manifest.conformance.values()
        for check in checks.values()
    )
    assert manifest.root_hash == expected(manifest, episodes)


def renew():
    """Write the golden values of this machine's versions."""
    with tempfile.TemporaryDirectory() as folder:
        manifests = {n: frozen(Path(folder) / str(n), n) for n in (SMALL, *LARGE)}
    value = {
        "versions": dict(manifests[SMALL].versions),
        "root_hash": {str(n): manifest.root_hash for n, manifest in manifests.items()},
    }
    GOLDEN.write_text(json.dumps(value, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(renew())
