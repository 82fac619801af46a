"""Dependencies point one way: members import the engine, and each folder imports from those to its left."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "vcrt"
TRAIN = ROOT / "train" / "src" / "vcrt_train"
ENVIRONMENTS = {
    path.parents[1].name: path for path in sorted(ROOT.glob("environments/*/src/vcrt_*"))
}
#: Every package, by its top-level name.
PACKAGES = {path.name: path for path in (SOURCE, TRAIN, *ENVIRONMENTS.values())}
#: The folders of the engine and of training, from left to right.
FLOWS = {
    "vcrt": (
        *("environments", "frameworks", "certificates", "replay", "records", "calls"),
        *("datasets", "words", "api", "testing", "cli"),
    ),
    "vcrt_train": (
        "policy",
        "objective",
        "training",
        "integrations",
        "protocol",
        "report",
        "api",
        "cli",
    ),
}
FOUNDATIONS = {
    "vcrt": {
        *(
            "documents",
            "forms",
            "errors",
            "hashing",
            "lazy",
            "limits",
            "memory",
            "orders",
        ),
        *("partial_orders", "plugins", "printable", "processes", "progress"),
        *("randomness", "storage"),
    },
    "vcrt_train": {"config", "config_files", "randomness"},
}
#: What stands beside the folders and puts them together.
TOPS = {"__init__", "__main__", "diagnosis"}
#: Pure rooms: functions on values and arrays, without files, processes or clocks.
PURE = (
    SOURCE / "orders.py",
    SOURCE / "certificates",
    *(SOURCE / "calls" / f"{name}.py" for name in ("annotations", "conditions", "proportions")),
    *(
        TRAIN / name
        for name in (
            "objective",
            "integrations/orbit_credit.py",
            "integrations/orbit_rows.py",
            "integrations/text.py",
            "protocol/crossed.py",
            "protocol/statistics.py",
        )
    ),
)
EFFECTS = {"os", "subprocess", "pathlib", "shutil", "tempfile", "time", "random", "socket"}


def files():
    """Every module of every package."""
    found = [path for package in PACKAGES.values() for path in sorted(package.rglob("*.py"))]
    assert len(found) > 300
    return found


#: What runs code that comes with data, whatever it is called there.
RUNS_CODE = {"eval", "exec", "compile", "__import__", "execfile"}
LOADERS = {"load", "load_module", "read_pickle", "unsafe_load"}
OPTIONS = {"trust_remote_code", "allow_pickle", "shell", "use_safetensors"}


class Module(NamedTuple):
    """What the tests ask of one file, which is parsed once."""

    text: str
    docstring: str | None
    imports: tuple[str, ...]
    runs_code: tuple[int, ...]
    calls: tuple[ast.Call, ...]


@cache
def read(path):
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    names, runs_code, calls = [], [], []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Name) and node.id in RUNS_CODE:
            runs_code.append(node.lineno)
        elif isinstance(node, ast.Call):
            loads = isinstance(node.func, ast.Attribute) and node.func.attr in LOADERS
            if loads or any(option.arg in OPTIONS for option in node.keywords):
                calls.append(node)
    return Module(text, ast.get_docstring(tree), tuple(names), tuple(runs_code), tuple(calls))


def imports(path):
    """Every module that a file imports, inside functions too."""
    return read(path).imports


def test_every_import_points_to_the_left():
    for package, flow in FLOWS.items():
        source, foundations = PACKAGES[package], FOUNDATIONS[package]
        for path in sorted(source.rglob("*.py")):
            room = path.relative_to(source).parts[0].removesuffix(".py")
            if room in TOPS:
                continue
            assert room in flow or room in foundations, f"{path}: neither a room nor a foundation"
            for name in imports(path):
                top, _, rest = name.partition(".")
                other = rest.partition(".")[0]
                if top != package or other in ("", "__version__"):
                    continue
                if room in foundations:
                    assert other in foundations, f"{path}: a foundation imports {other}"
                else:
                    is_left = other in flow and flow.index(other) <= flow.index(room)
                    assert other in foundations or is_left, f"{path} imports {other}"


#: Which modules of the layer for processes each of them imports, as its docstring says.
OF_PROCESSES = {
    "__init__": {"work"},
    "work": {"Backend", "watching", "workers"},
    "workers": {"watching"},
    "copies": {"watching", "workers"},
    "watching": set(),
    "programs": {"confinement"},
    "confinement": {"system_calls", "watching"},
    "system_calls": set(),
}


def test_the_layer_for_processes_is_called_from_the_top():
    """And it starts all processes; what a confined one imports needs no other package."""
    found, starters = {}, set()
    for path in sorted((SOURCE / "processes").glob("*.py")):
        ours = [name.split(".") for name in imports(path) if name.startswith("vcrt.")]
        found[path.stem] = {part for _, room, part, *_ in ours if room == "processes"}
        if path.stem in ("watching", "confinement", "system_calls"):
            # psutil only in functions that look at other processes.
            allowed = sys.stdlib_module_names | {"vcrt", *["psutil"] * (path.stem == "watching")}
            assert {name.split(".")[0] for name in imports(path)} <= allowed, path
            assert all(room == "processes" for _, room, *_ in ours), path
    assert found == OF_PROCESSES
    for path in files():
        if re.search(
            r"\b(Popen|check_output|os\.system)\(|subprocess\.(run|call)\b", read(path).text
        ):
            starters.add(path)
    assert starters == {SOURCE / "processes" / f"{name}.py" for name in ("programs", "workers")}


def test_the_engine_imports_no_member():
    for path in SOURCE.rglob("*.py"):
        found = [name for name in imports(path) if name.partition(".")[0].startswith("vcrt_")]
        assert not found, f"{path} imports {found}"


def test_members_import_the_engine_and_themselves():
    assert {*ENVIRONMENTS} == {"clrs", "django", "lean", "proofwriter", "rocq", "toolbench"}
    for package, folder in PACKAGES.items():
        for path in folder.rglob("*.py"):
            for name in imports(path):
                top, *rest = name.split(".")
                if not re.fullmatch(r"vcrt(_\w+)?", top) or top == package:
                    continue
                assert top == "vcrt", f"{path} imports {name}"
                assert not any(part[:1] == "_" and part[:2] != "__" for part in rest), (
                    f"{path} imports {name}, which is private"
                )


#: Verifiers, packages of them, and what they judge.
VERIFIERS = re.compile(
    r"\b(agentdojo|bfcl|clingo|clrs|coq|django|lean|proofwriter|rocq|toolbench)\b", re.IGNORECASE
)


def test_no_verifier_is_named_in_the_engine():
    """Not by an import, and in no text that is printed: words about an environment stand in that one's folder."""
    for path in sorted(SOURCE.rglob("*.py")):
        if path == SOURCE / "plugins.py":
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        said = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and ast.get_docstring(node) is not None
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named = id(node) not in said and VERIFIERS.search(node.value)
                assert not named, f"{path}:{node.lineno}: {node.value!r}"


#: What runs a verifier or waits for one that runs: what lies in files is read and derived without any.
RUNNERS = (
    *("replay.run", "replay.shards", "replay.store"),
    *("environments.guarding", "environments.isolation", "environments.registry"),
    *("processes", "progress"),
)


def test_records_run_no_verifier():
    refused = tuple(f"vcrt.{name}." for name in RUNNERS)
    for path in (SOURCE / "records").rglob("*.py"):
        found = [name for name in imports(path) if f"{name}.".startswith(refused)]
        assert not found, f"{path} imports {found}"
    # The rule sees those that do.
    seen = {name for path in (SOURCE / "datasets").rglob("*.py") for name in imports(path)}
    assert any(name.startswith(refused) for name in seen)


def test_pure_rooms_have_no_effects():
    for place in PURE:
        for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
            found = {name.split(".")[0] for name in imports(path)} & EFFECTS
            assert not found, f"{path} imports {found}"


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
    for path in files():
        module = read(path)
        found = {name.split(".")[0] for name in module.imports} & UNPICKLERS
        # It compares what marshal writes, and reads nothing back.
        if path.name == "outside_states.py":
            assert set(re.findall(r"marshal\.\w+", module.text)) == {"marshal.dumps"}
            found -= {"marshal"}
        # Workers are sent functions; what they send back is read from a pipe to a process of one's own.
        if path == SOURCE / "processes" / "workers.py":
            used = set(re.findall(r"cloudpickle\.\w+", module.text))
            assert used == {"cloudpickle.dumps"}
            found -= {"cloudpickle"}
        assert not found, path
        assert not module.runs_code, f"{path}:{module.runs_code}"
        for node in module.calls:
            called = ast.unparse(node.func)
            assert called not in ("torch.load", "joblib.load", "np.load", "numpy.load"), path
            assert not called.endswith((".load_module", ".read_pickle", ".unsafe_load")), path
            for option in node.keywords:
                if option.arg in ("trust_remote_code", "allow_pickle", "shell"):
                    assert ast.unparse(option.value) == "False", f"{path}:{node.lineno}"
                if option.arg == "use_safetensors":
                    assert ast.unparse(option.value) == "True", f"{path}:{node.lineno}"
        assert "torch.load" not in module.text, path
        if "from_pretrained(" in module.text and "peft" not in module.text:
            told = "trust_remote_code=False" in module.text
            assert told or "def from_pretrained" in module.text, path


def test_the_rule_against_code_sees_an_offender(tmp_path, monkeypatch):
    offences = (
        *("import pickle", "from dill import load", "x = eval('1')", "f(trust_remote_code=True)"),
        *("load = torch.load", "numpy.load(p)", "open(p).unsafe_load()", "f(use_safetensors=None)"),
    )
    for number, offence in enumerate(offences):
        path = tmp_path / f"module_{number}.py"
        path.write_text(offence)
        monkeypatch.setitem(globals(), "files", lambda path=path: [path])
        try:
            test_no_file_brings_code()
        except AssertionError:
            continue
        raise AssertionError(offence)


#: Words with which a sentence does not say what a module does.
NO_VERBS = {"A", "An", "Every", "How", "It", "One", "That", "The", "These", "What", "Which"}


def test_modules_say_first_what_they_do():
    for path in files():
        said = read(path).docstring or "The"
        assert said.split()[0] not in NO_VERBS, f"{path}: {said[:60]}"


def test_no_two_modules_of_training_have_one_name():
    """But a command that is called as what it runs, and the contents of the command line."""
    names = Counter(path.stem for path in TRAIN.rglob("*.py") if path.stem != "__init__")
    twice = {name for name, number in names.items() if number > 1}
    assert twice == {"backbone", "contents", "plan"}
