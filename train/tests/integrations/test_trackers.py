"""TensorBoard, trackio and W&B are told of every update, below the experiment, without a network and without effect."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import struct
import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from safetensors.torch import load_file

import toy_environment as toy
from one_process import in_this_process
from vcrt.cli import main
from vcrt.datasets.agreement import verify_agreement
from vcrt.datasets.freezing import make_dataset
from vcrt.errors import RunError, UnavailableError
from vcrt.replay.config import sampled
from vcrt_train.training.tracking import tracking

# A tracker belongs to its process: what it reads of the environment, what it leaves running.
pytestmark = pytest.mark.processes

TWO_TOYS = {name: toy.THREE_TOYS[name] for name in ("toy-a", "toy-b")}
RUNS = ("vcrt/toy-b/0", "vcrt/toy-b/1")
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def tensorboard_scalars(tracked, run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tracked / run))
    events.Reload()
    updates = {}
    for name in events.Tags()["scalars"]:
        for event in events.Scalars(name):
            updates.setdefault(event.step, {})[name] = event.value
    return updates


def trackio_scalars(tracked, run):
    """By trackio's own reader, which takes its folder from the environment once a process."""
    read = "from trackio.sqlite_storage import SQLiteStorage as S; import json, sys; "
    done = subprocess.run(
        [sys.executable, "-c", read + "print(json.dumps(S.get_logs('vcrt', sys.argv[1])))", run],
        env={**os.environ, "TRACKIO_DIR": str(tracked / "trackio")},
        capture_output=True,
        text=True,
        check=True,
    )
    rows = json.loads(done.stdout.splitlines()[-1])
    return {row["step"]: {k: v for k, v in row.items() if k not in OWN} for row in rows}


def wandb_scalars(tracked, run):
    from wandb.proto.wandb_internal_pb2 import Record

    for path in tracked.glob("wandb/offline-run-*/*.wandb"):
        name, updates = None, {}
        for raw in wandb_records(path.read_bytes()):
            record = Record()
            record.ParseFromString(raw)
            name = record.run.display_name or name
            if record.HasField("history"):
                values = {i.key or i.nested_key[0]: i.value_json for i in record.history.item}
                updates[record.history.step.num] = {
                    key: float(value) for key, value in values.items() if key not in OWN
                }
        if name == run:
            return updates
    raise AssertionError(f"no run {run}")


def wandb_records(data, block=32_768):
    """The records of a ``.wandb`` file: LevelDB's log format after a header of 7 bytes; ``wandb sync`` reads it too."""
    place, record = 7, b""
    while place + 7 <= len(data):
        if place % block > block - 7:
            place += block - place % block
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        record += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield record
            record = b""


#: What trackers add by themselves.
OWN = ("step", "timestamp", "_step", "_timestamp", "_runtime")
READERS = {"tensorboard": tensorboard_scalars, "trackio": trackio_scalars, "wandb": wandb_scalars}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A dataset, and the results of an untracked experiment."""
    if not any(importlib.util.find_spec(name) for name in READERS):
        pytest.skip("no tracker is installed: make test-integrations")
    path = tmp_path_factory.mktemp("trackers")
    config = sampled(dict.fromkeys(TWO_TOYS, ("needs", "overwrite")), 8)
    frozen = make_dataset(config, path / "data", jobs=1, factories=TWO_TOYS)
    verify_agreement(frozen, jobs=1, factories=TWO_TOYS)
    with in_this_process():
        main(["train", str(planned(path, "untracked")), "--jobs", "1"])
    return path


def planned(folder, name):
    experiment = folder / name
    main(
        [
            *("plan", str(folder / "data"), "--output", str(experiment), "--runs", "2"),
            *("--held-out", "toy-b", "--methods", "vcrt", "--updates", "3"),
        ]
    )
    return experiment


def trained(experiment, run):
    last = experiment / "runs" / run / "update-000003"
    return load_file(last / "weights.safetensors"), json.loads((last / "metrics.json").read_text())


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A home, a folder for temporary files and a working directory; a proxy that hears every attempt to connect.

    The user has accounts, which is no reason to use them.
    """
    for name in [*os.environ]:
        if name.startswith(("WANDB_", "TRACKIO_", "XDG_", "HF_")) or name.lower() == "no_proxy":
            monkeypatch.delenv(name)
    for name in ("home", "tmp", "cwd"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.setblocking(False)
        for name in PROXIES:
            address = f"http://127.0.0.1:{proxy.getsockname()[1]}"
            monkeypatch.setenv(name, address)
            monkeypatch.setenv(name.lower(), address)
        yield tmp_path
        with pytest.raises(BlockingIOError):
            proxy.accept()


@pytest.mark.parametrize(
    "name",
    [
        "tensorboard",
        # Libraries that start servers of their own: what they are told is tested below.
        pytest.param("trackio", marks=pytest.mark.nightly),
        pytest.param("wandb", marks=pytest.mark.nightly),
    ],
)
def test_a_tracker_is_told_of_every_update_and_changes_nothing(folder, elsewhere, name):
    pytest.importorskip(name, reason=f"{name} is not installed: make test-integrations")
    experiment = planned(folder, name)
    # TensorBoard writes files; the others set their process up.
    with in_this_process() if name == "tensorboard" else nullcontext():
        main(["train", str(experiment), "--jobs", "1", "--trackers", name])
    assert [path for path in elsewhere.rglob("*") if not path.is_dir()] == []
    for run in RUNS:
        weights, lines = trained(experiment, run)
        untracked, same_lines = trained(folder / "untracked", run)
        assert all(weights[key].equal(untracked[key]) for key in untracked)
        assert lines == same_lines
        assert {"source_pass_rate", "flagged"} <= lines[-1].keys()
        updates = READERS[name](experiment / "tracking", run)
        assert sorted(updates) == [1, 2, 3]
        for line in lines:
            told = updates[line["update"]]
            assert told.pop("tokens_per_second") > 0
            # TensorBoard keeps 32 bits.
            assert told == pytest.approx(line, rel=1e-6 if name == "tensorboard" else 1e-12)


class Recorded:
    """Stands for trackio or W&B: what each run of it is told, and what the environment is when it begins."""

    def __init__(self, spec):
        self.__spec__ = spec
        self.begun, self.told, self.variables, self.finished = [], [], {}, 0
        self.run = self.config = self

    def init(self, **options):
        self.begun.append(options)
        self.variables = {
            name: value
            for name, value in os.environ.items()
            if name.startswith(("WANDB_", "TRACKIO_")) and name != "WANDB_API_KEY"
        }
        return self

    def update(self, settings, **options):
        self.settings = settings

    def log(self, values, step=None, **options):
        self.told.append((values, step))

    def finish(self):
        self.finished += 1


@pytest.mark.parametrize("name", ["trackio", "wandb"])
def test_what_a_tracker_is_told_and_where_it_writes(folder, elsewhere, monkeypatch, name):
    # An import takes a second, and trackio keeps the folder that it finds then.
    spec = importlib.util.find_spec(name)
    if spec is None:
        pytest.skip(f"{name} is not installed: make test-integrations")
    library = Recorded(spec)
    monkeypatch.setitem(sys.modules, name, library)
    monkeypatch.delitem(sys.modules, "trackio.utils", raising=False)
    before = dict(os.environ)
    experiment = planned(folder, f"recorded-{name}")
    with in_this_process():
        main(["train", str(experiment), "--jobs", "1", "--trackers", name])
    assert dict(os.environ) == before
    assert [each["project"] for each in library.begun] == ["vcrt"] * 2
    assert [each["name"] for each in library.begun] == list(RUNS)
    assert library.finished == 2
    assert library.settings
    place = str((experiment / "tracking").resolve())
    folders = {key: value for key, value in library.variables.items() if value.startswith("/")}
    assert folders
    assert all(value.startswith(place) for value in folders.values())
    if name == "wandb":
        assert library.variables["WANDB_MODE"] == "offline"
        assert library.variables["WANDB_DIR"] == place
    else:
        assert folders == {"TRACKIO_DIR": f"{place}/trackio"}
    lines = [line for run in RUNS for line in trained(experiment, run)[1]]
    assert len(library.told) == len(lines) == 6
    for line, (values, step) in zip(lines, library.told, strict=True):
        assert values.pop("tokens_per_second") > 0
        assert values == line
        assert step == line["update"]


def test_a_tracker_that_does_not_start_is_named(elsewhere, monkeypatch):
    pytest.importorskip("wandb", reason="wandb is not installed: make test-integrations")
    monkeypatch.setenv("WANDB_MODE", "sometimes")
    with (
        pytest.raises(UnavailableError, match="leave WANDB_MODE unset"),
        tracking(["wandb"], elsewhere / "tracking", "a run", {}),
    ):
        pass
    assert "WANDB_DIR" not in os.environ


def test_a_folder_that_the_user_has_chosen_is_kept(tmp_path, monkeypatch):
    """And trackio, which knows one folder a process, is not used with a second one."""
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "mine"))
    loaded = SimpleNamespace(TRACKIO_DIR=tmp_path / "other")
    monkeypatch.setitem(sys.modules, "trackio.utils", loaded)
    with (
        pytest.raises(RunError, match=str(tmp_path / "mine")),
        tracking(["trackio"], tmp_path / "tracking", "a run", {}),
    ):
        pass
    assert os.environ["TRACKIO_DIR"] == str(tmp_path / "mine")
    assert not (tmp_path / "tracking").exists()
