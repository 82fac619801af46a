"""Dependencies point one way: each folder imports from those to its left and from the common foundations."""

from __future__ import annotations

import ast
import re
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "vcrt"
FLOW = (
    "environments",
    "certification",
    "records",
    "datasets",
    "policy",
    "objective",
    "training",
    "integrations",
    "protocol",
    "report",
    "api",
    "cli",
)
FOUNDATIONS = {
    *("call_record", "workers"),
    *(
        "config",
        "config_files",
        "documents",
        "errors",
        "hashing",
        "jobs",
        "limits",
        "memory",
        "orders",
        "partial_orders",
    ),
    *("printable", "process_marks", "processes", "progress", "randomness", "storage"),
}
#: Pure rooms: functions on values and arrays, without files, processes or clocks.
PURE = (
    "orders.py",
    "objective",
    "integrations/orbit_credit.py",
    "integrations/orbit_rows.py",
    "integrations/text.py",
    "protocol/crossed.py",
    "protocol/statistics.py",
    "certification/annotations.py",
    "certification/certificates.py",
    "certification/conditions.py",
    "certification/lattice.py",
    "certification/long_episodes.py",
    "certification/pairs.py",
    "certification/proportions.py",
    "certification/reduction.py",
    "certification/replay_tree.py",
    "certification/sampling.py",
)
EFFECTS = {"os", "subprocess", "pathlib", "shutil", "tempfile", "time", "random", "socket"}


def imports(path):
    """Every module that a file imports, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def rooms(path):
    """The rooms of this package that a file imports from."""
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "vcrt" and len(parts) > 1:
            yield parts[1]


def test_every_import_points_to_the_left():
    files = sorted(SOURCE.rglob("*.py"))
    assert len(files) > 80
    for path in files:
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for other in rooms(path):
            if room in FOUNDATIONS:
                assert other in FOUNDATIONS, f"{path}: a foundation imports {other}"
            elif room in FLOW and other in FLOW:
                assert FLOW.index(other) <= FLOW.index(room), f"{path} imports {other}"
            else:
                assert (
                    other in FOUNDATIONS
                    or other == "__version__"
                    or room in ("__init__", "__main__")
                )


#: What runs a verifier or waits for one that runs: what lies in files is read and derived without any.
RUNNERS = (
    *(
        "certification.run",
        "certification.shards",
        "certification.store",
        "certification.call_progress",
    ),
    *("environments.guarding", "environments.isolation", "environments.registry"),
    *("processes", "progress", "workers"),
)


def test_records_run_no_verifier():
    refused = tuple(f"vcrt.{name}." for name in RUNNERS)
    for path in (SOURCE / "records").rglob("*.py"):
        found = [name for name in imports(path) if f"{name}.".startswith(refused)]
        assert not found, f"{path} imports {found}"
    # The rule sees those that do.
    seen = {name for path in (SOURCE / "datasets").rglob("*.py") for name in imports(path)}
    assert any(name.startswith(refused) for name in seen)


def test_environments_do_not_know_each_other():
    folder = SOURCE / "environments"
    names = {path.name for path in folder.iterdir() if path.is_dir()} - {"__pycache__"}
    assert names == {"agentdojo", "bfcl", "clrs", "django", "lean", "proofwriter", "rocq"}
    for name in names:
        for path in (folder / name).rglob("*.py"):
            for imported in imports(path):
                parts = imported.split(".")
                assert parts[:2] != ["vcrt", "environments"] or parts[2] not in names - {name}


def test_pure_rooms_have_no_effects():
    for room in PURE:
        place = SOURCE / room
        for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
            found = {name.split(".")[0] for name in imports(path)} & EFFECTS
            assert not found, f"{path} imports {found}"


def test_nothing_unpickles_or_evaluates():
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {
            n.func.id
            for n in ast.walk(tree)
            if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
        }
        assert not names & {"eval", "exec"}, path
        assert not any(name.split(".")[0] in ("pickle", "dill") for name in imports(path)), path
        assert "torch.load" not in path.read_text(encoding="utf-8"), path


#: What runs code that comes with data, whatever it is called there.
RUNS_CODE = {"eval", "exec", "compile", "__import__", "execfile"}
UNPICKLERS = {
    "pickle",
    "cPickle",
    "_pickle",
    "dill",
    "cloudpickle",
    "shelve",
    "marshal",
    "yaml",
    "runpy",
    "code",
}


def test_no_file_brings_code():
    """No unpickling, no code from text, no code of a model's folder, in calls and in options."""
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found = {name.split(".")[0] for name in imports(path)} & UNPICKLERS
        # It compares what marshal writes, and reads nothing back.
        if path.name == "outside_states.py":
            assert set(re.findall(r"marshal\.\w+", path.read_text(encoding="utf-8"))) == {
                "marshal.dumps"
            }
            found -= {"marshal"}
        assert not found, path
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                assert node.id not in RUNS_CODE, f"{path}:{node.lineno}"
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            assert called not in ("torch.load", "joblib.load", "np.load", "numpy.load"), path
            assert not called.endswith((".load_module", ".read_pickle", ".unsafe_load")), path
            for option in node.keywords:
                if option.arg in ("trust_remote_code", "allow_pickle", "shell"):
                    assert ast.unparse(option.value) == "False", f"{path}:{node.lineno}"
                if option.arg == "use_safetensors":
                    assert ast.unparse(option.value) == "True", f"{path}:{node.lineno}"
        text = path.read_text(encoding="utf-8")
        if "from_pretrained(" in text and "peft" not in text:
            assert "trust_remote_code=False" in text or "def from_pretrained" in text, path


def test_the_rule_against_code_sees_an_offender(tmp_path, monkeypatch):
    for offence in ("import pickle", "x = eval('1')", "f(trust_remote_code=True)", "torch.load(p)"):
        (tmp_path / "module.py").write_text(offence)
        monkeypatch.setitem(globals(), "SOURCE", tmp_path)
        try:
            test_no_file_brings_code()
        except AssertionError:
            continue
        raise AssertionError(offence)


#: Words with which a sentence does not say what a module does.
NO_VERBS = {"A", "An", "Every", "How", "It", "One", "That", "The", "These", "What", "Which"}


def test_modules_say_first_what_they_do():
    for path in SOURCE.rglob("*.py"):
        said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "The"
        assert said.split()[0] not in NO_VERBS, f"{path}: {said[:60]}"
