"""The same dataset from local processes, from a Ray cluster and from a Dask cluster."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

from cluster_runs import CONFIG
from vcrt.datasets.freezing import make_dataset

pytestmark = [pytest.mark.nightly, pytest.mark.processes]
SCRIPT = """
from pathlib import Path
from cluster_runs import CONFIG
from vcrt.datasets.freezing import make_dataset

if __name__ == "__main__":
    print(make_dataset(CONFIG, Path(sys.argv[1]), jobs=2, backend=sys.argv[2]).manifest.root_hash)
"""


@pytest.fixture(scope="module")
def root_hash(tmp_path_factory):
    path = tmp_path_factory.mktemp("cluster") / "data"
    return make_dataset(CONFIG, path, jobs=2).manifest.root_hash


@pytest.mark.parametrize("backend", ["ray", "dask"])
def test_a_local_cluster_of_two_workers_gives_the_same_root_hash(tmp_path, root_hash, backend):
    if find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    # In a process of its own, so that the cluster ends with it.
    script = tmp_path / "certify.py"
    script.write_text(f"import sys\nsys.path[:0] = {sys.path!r}\n{SCRIPT}")
    command = [sys.executable, str(script), str(tmp_path / "data"), backend]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == root_hash
