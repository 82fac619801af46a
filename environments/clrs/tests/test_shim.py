"""The import of dm-clrs without TensorFlow, JAX and chex: what it leaves behind, refuses and samples."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import os
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import vcrt
import vcrt_clrs
from vcrt.errors import MalformedInputError, UnavailableError
from vcrt_clrs import shim
from vcrt_clrs.environment import ClrsEnvironment
from vcrt_clrs.shim import load_dm_clrs
from vcrt_clrs.trace import Instance, Trace, genuine_trace

SITE = Path(sysconfig.get_path("purelib"))
OWN = [Path(str(package.__file__)).parent for package in (vcrt, vcrt_clrs)]
COMMAND = "pip install --no-deps dm-clrs==2.0.3"
HEAVY = ("tensorflow", "jax", "chex")


def run(code: str, *paths: Path) -> str:
    """The output of ``code`` in a fresh interpreter that sees ``paths`` and no other packages."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def bare_site(tmp_path: Path) -> Path:
    """A packages folder with what the shim promises to be enough, but without dm-clrs."""
    site = tmp_path / "site"
    site.mkdir()
    needed = [SITE / name for name in ("numpy", "numpy.libs", "attr", "attrs", "absl")]
    for package in [*OWN, *needed]:
        if package.exists():
            (site / package.name).symlink_to(package)
    return site


@pytest.fixture
def clrs_site(bare_site: Path) -> Path:
    """The same with dm-clrs."""
    for name in ("clrs", "dm_clrs-2.0.3.dist-info"):
        (bare_site / name).symlink_to(SITE / name)
    return bare_site


LOAD = """
    import sys
    from vcrt_clrs.shim import load_dm_clrs
    from vcrt_clrs.trace import Instance, genuine_trace
    library = load_dm_clrs()
    trace = genuine_trace(
        Instance(algorithm="mst_kruskal", length=6, edge_probability=0.9, seed=1)
    )
    probing = library["clrs._src.probing"]
"""
REFUSED = """
    from vcrt_clrs.environment import ClrsEnvironment
    from vcrt.errors import UnavailableError
    try:
        ClrsEnvironment().versions()
    except UnavailableError as error:
        print(error.found, error.expected, error.remedy, sep="|")
"""


def test_numpy_attrs_and_absl_are_enough_and_nothing_is_left_behind(clrs_site: Path) -> None:
    code = LOAD + "    print(trace.num_rows, [n for n in sys.modules if n.split('.')[0] in "
    code += "('tensorflow', 'jax', 'chex', 'clrs')])"
    rows, left = run(code, clrs_site).split(" ", 1)
    assert int(rows) > 1
    assert left == "[]"


def test_a_later_import_of_clrs_is_the_genuine_one(clrs_site: Path) -> None:
    code = """
    try:
        import clrs
    except ModuleNotFoundError as error:
        before = str(error)
    """
    code += LOAD.replace("import sys", "")
    code += """
    try:
        import clrs
    except ModuleNotFoundError as error:
        print(before == str(error), before, genuine_trace(Instance.parse(
            "clrs.bellman_ford/length=6/p=0.9/seed=1")).num_rows > 1, sep="|")
    """
    same, message, still_samples = run(code, clrs_site).split("|")
    assert (same, still_samples) == ("True", "True")
    assert message.startswith("No module named")


def test_modules_of_an_imported_clrs_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = {"clrs": ModuleType("clrs"), "clrs._src": ModuleType("clrs._src")}
    for name, module in theirs.items():
        monkeypatch.setitem(sys.modules, name, module)
    load_dm_clrs.cache_clear()
    assert load_dm_clrs()["clrs._src.samplers"].SAMPLERS
    assert {n: m for n, m in sys.modules.items() if n.split(".")[0] == "clrs"} == theirs


STUBS = {
    "tensorflow/__init__.py": "class Tensor: pass\n",
    "chex/__init__.py": "calls = 0\ndef assert_rank(x, rank):\n    global calls\n    calls += 1\n",
    "jax/__init__.py": "from jax import numpy, tree_util\nclass Array: pass\n",
    "jax/numpy.py": "from numpy import ndarray\ndef vectorize(f, signature): return f\n",
    "jax/tree_util.py": """
calls = 0
def register_pytree_node_class(cls): return cls
def tree_map(f, *trees):
    from vcrt_clrs.shim import tree_map
    global calls
    calls += 1
    return tree_map(f, *trees)
""",
}


@pytest.mark.parametrize("installed", [HEAVY, ("tensorflow",), ("jax",), ("chex",)])
def test_installed_libraries_are_not_stood_in_for(
    clrs_site: Path, tmp_path: Path, installed: tuple[str, ...]
) -> None:
    stubs = tmp_path / "stubs"
    for name, text in STUBS.items():
        if name.split("/")[0] in installed:
            (stubs / name).parent.mkdir(parents=True, exist_ok=True)
            (stubs / name).write_text(text)
    code = (
        LOAD
        + """
    graphs = library["clrs._src.algorithms.graphs"]
    bound = {"tensorflow": probing.tf, "jax": probing.jax, "chex": graphs.chex}
    for name, module in bound.items():
        print(name, hasattr(module, "__file__"), sys.modules.get(name) is module)
    calls = [getattr(m, "calls", None) for m in (graphs.chex, probing.jax.tree_util)]
    print(calls)
    """
    )
    *bound, calls = run(code, clrs_site, stubs).splitlines()
    assert bound == [f"{name} {name in installed} {name in installed}" for name in HEAVY]
    used = ["1" if "chex" in installed else "None", "3" if "jax" in installed else "None"]
    assert calls == f"[{used[0]}, {used[1]}]"


def test_a_library_that_is_kept_from_import_is_stood_in_for_and_stays_so(clrs_site: Path) -> None:
    code = "    import sys; sys.modules['tensorflow'] = None" + LOAD
    code += "    print(trace.num_rows > 1, sys.modules['tensorflow'])"
    assert run(code, clrs_site) == "True None"


def test_missing_dm_clrs_names_the_command(bare_site: Path) -> None:
    assert run(REFUSED, bare_site) == f"no such distribution|dm-clrs 2.0.3|{COMMAND}"


def test_another_version_names_both_versions_and_the_command(
    bare_site: Path, tmp_path: Path
) -> None:
    (bare_site / "clrs").symlink_to(SITE / "clrs")
    metadata = bare_site / "dm_clrs-2.0.1.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: dm-clrs\nVersion: 2.0.1\n")
    assert run(REFUSED, bare_site) == f"dm-clrs 2.0.1|dm-clrs 2.0.3|{COMMAND}"


def test_metadata_without_the_package_is_refused(bare_site: Path) -> None:
    info = "dm_clrs-2.0.3.dist-info"
    (bare_site / info).symlink_to(SITE / info)
    assert run(REFUSED, bare_site) == f"no package 'clrs'|dm-clrs 2.0.3|{COMMAND}"


def test_a_missing_light_dependency_is_named(clrs_site: Path) -> None:
    (clrs_site / "absl").unlink()
    assert (
        run(REFUSED, clrs_site)
        == "No module named 'absl'|dm-clrs 2.0.3|pip install numpy attrs absl-py"
    )


def test_a_refusal_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    load_dm_clrs.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(importlib.metadata, "version", lambda _: "1.0.0")
        with pytest.raises(UnavailableError, match=r"dm-clrs 1\.0\.0") as caught:
            load_dm_clrs()
    assert caught.value.remedy == COMMAND
    assert load_dm_clrs()


def test_replay_needs_no_dm_clrs(bare_site: Path) -> None:
    code = """
    from vcrt_clrs.environment import ClrsEnvironment
    from vcrt.environments.contract import Operation
    from vcrt_clrs.environment import ALGORITHMS
    initial = {"adjacency": [[0, 1], [1, 0]], "d": [0, 0], "pi": [0, 1], "msk": [1, 0]}
    state = ALGORITHMS["bellman_ford"].read_state(initial)
    step = ClrsEnvironment().step(state, Operation(signature="s", payload={"edge": [0, 1]}))
    print(step.state.distances)
    """
    assert run(code, bare_site) == "(0.0, 1.0)"


def test_source_digests_are_those_of_the_published_distribution() -> None:
    """The wheel's own RECORD is the independent witness."""
    record = {
        file.as_posix(): base64.urlsafe_b64decode(f"{file.hash.value}=").hex()
        for file in importlib.metadata.files("dm-clrs") or ()
        if file.hash is not None
    }
    versions = ClrsEnvironment().versions()
    assert set(versions.libraries) == {
        "clrs/_src/algorithms/dynamic_programming.py",
        "clrs/_src/algorithms/graphs.py",
        "clrs/_src/algorithms/sorting.py",
        "clrs/_src/probing.py",
        "clrs/_src/samplers.py",
        "clrs/_src/specs.py",
    }
    assert versions.libraries == {name: record[name] for name in versions.libraries}
    assert (versions.adapter, versions.canonicalizer) == ("2", "2")
    assert versions.verifier == "dm-clrs 2.0.3"


def digest(trace: Trace) -> str:
    summed = hashlib.sha256()
    for part in (trace.inputs, trace.hints, trace.outputs):
        for name in sorted(part):
            summed.update(name.encode() + np.ascontiguousarray(part[name], "<f8").tobytes())
    return summed.hexdigest()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "clrs.bellman_ford/length=16/p=0.4/seed=7",
            "bc73614e6091eb55f54f60d84241a29a16e52d0c018b37596b957891b696eb89",
        ),
        (
            "clrs.mst_kruskal/length=12/p=0.65/seed=7",
            "bb2cc1b37d6fe39e6531ad1142134eeeec7079486d80cf08c1bccd66a027e020",
        ),
        (
            "clrs.matrix_chain_order/length=9/seed=7",
            "20988e478b31fdd26b4eaac48fc13d0337508ca229350c05679d1315856aa863",
        ),
        (
            "clrs.heapsort/length=16/seed=7",
            "b62cfa04fa870e413cdc1e57d3fd5db1ad17967ac8d9339b23ffbfdcb22f8936",
        ),
        (
            "clrs.bubble_sort/length=12/seed=7",
            "c17ef0e6e5eeaff95e2d40ce6b0956015f40c5e40bf00dea136e3ce0a4fffe11",
        ),
    ],
)
def test_sampling_is_fixed_by_the_seed_and_leaves_global_random_state_alone(
    source: str, expected: str
) -> None:
    instance = Instance.parse(source)
    np.random.seed(1)  # noqa: NPY002
    before = np.random.get_state()  # noqa: NPY002
    first = digest(genuine_trace(instance))
    after = np.random.get_state()  # noqa: NPY002
    np.random.seed(2)  # noqa: NPY002
    assert digest(genuine_trace(instance)) == first == expected
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    other = Instance.parse(source.replace("seed=7", "seed=8"))
    assert digest(genuine_trace(other)) != first


def test_an_instance_is_the_name_of_its_source() -> None:
    instance = Instance(algorithm="mst_kruskal", length=12, edge_probability=0.65, seed=2**32 - 1)
    assert instance.source == "clrs.mst_kruskal/length=12/p=0.65/seed=4294967295"
    assert Instance.parse(instance.source) == instance
    instance = Instance(algorithm="heapsort", length=2, seed=0)
    assert instance.source == "clrs.heapsort/length=2/seed=0"
    assert Instance.parse(instance.source) == instance


@pytest.mark.parametrize(
    "source",
    [
        "",
        "clrs.mst_kruskal/length=12/p=/seed=3",
        "clrs.mst_kruskal/length=12/p=None/seed=3",
        "clrs.mst_kruskal/length=1/p=0.65/seed=3",
        "clrs.mst_kruskal/length=257/p=0.65/seed=3",
        "clrs.mst_kruskal/length=12/p=0.65/seed=4294967296",
        "clrs.mst_kruskal/length=9999/p=0.65/seed=3",
        "clrs.mst_kruskal/length=012/p=0.65/seed=3",
        "clrs.mst_kruskal/length=12/p=1.5/seed=3",
        "clrs.mst_kruskal/length=12/p=0.65/seed=3/more",
    ],
)
def test_a_malformed_source_is_refused(source: str) -> None:
    with pytest.raises(MalformedInputError, match=r"provenance\.source"):
        Instance.parse(source)


def test_the_stand_ins_do_what_dm_clrs_needs_of_the_originals() -> None:
    point = load_dm_clrs()["clrs._src.probing"].DataPoint
    trees = [[point("a", "node", "scalar", x), [x]] for x in (1, 2)]
    mapped = shim.tree_map(lambda a, b: a + b, *trees)
    assert (mapped[0].name, mapped[0].data, mapped[1]) == ("a", 3, [3])
    with pytest.raises(ValueError, match="shorter"):
        shim.tree_map(max, [1, 2], [1])
    shim.assert_rank([np.zeros((2, 2)), np.ones((1, 1))], 2)
    with pytest.raises(AssertionError, match="expected rank 1, found 2"):
        shim.assert_rank(np.zeros((2, 2)), 1)


def test_what_needs_jax_says_so() -> None:
    probing = load_dm_clrs()["clrs._src.probing"]
    if hasattr(probing.jax, "__file__"):
        pytest.skip("JAX is installed here")
    with pytest.raises(RuntimeError, match="of dm-clrs needs JAX"):
        probing.predecessor_pointers_to_permutation_matrix(np.arange(3))
