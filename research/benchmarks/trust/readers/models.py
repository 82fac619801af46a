"""Readers of model folders and checkpoints, with valid inputs of each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from fuzz_watch import Target
from transformers import Qwen3Config

from readers.forms import dumped
from vcrt.hashing import file_digest, json_digest, sha256_hex
from vcrt_train.config import RunConfig
from vcrt_train.policy.backbone import EMBEDDED_DIRECTORY, blank_model, verify_lock
from vcrt_train.policy.language_model import _require_plain_weights
from vcrt_train.policy.locking import INDEX, Lock, model_files, read_lock
from vcrt_train.policy.model_provenance import (
    PROVENANCE_FILE,
    ModelProvenance,
    Training,
    read_provenance,
    write_provenance,
)
from vcrt_train.training.checkpoint import (
    HEAD,
    METRICS,
    TRAINER,
    WEIGHTS,
    load_checkpoint,
    save_checkpoint,
)
from vcrt_train.training.update import new_state


def model_readers(place: Path) -> Iterator[Target]:
    folder = place / "model"
    folder.mkdir()
    lock_file = folder / "vcrt-lock.json"
    lock = Lock(
        name="model", revision=None, files={"config.json": "0" * 64, "tokenizer.json": "1" * 64}
    )

    def resealed(value: Any) -> Any:
        return {**value, "digest": json_digest(value["files"])}

    def read_locked(data: bytes) -> object:
        lock_file.write_bytes(data)
        found = read_lock(lock_file)
        return [(folder / name).is_file() for name in found.files]

    def read_index(data: bytes) -> object:
        (folder / INDEX).write_bytes(data)
        return model_files(folder)

    def read_config(data: bytes) -> object:
        (folder / "config.json").write_bytes(data)
        return _require_plain_weights(folder)

    for name in ("config.json", "tokenizer.json", "a.safetensors", "b.safetensors"):
        (folder / name).write_bytes(b"{}")
    yield Target(
        name="backbone lock",
        form="JSON",
        seeds=dumped(lock.to_json()),
        read=read_locked,
        weight=8,
        is_json=True,
        reseal=resealed,
    )
    index = {
        "metadata": {"total_size": 8},
        "weight_map": {"w": "a.safetensors", "v": "b.safetensors"},
    }
    yield Target(
        name="weight index",
        form="JSON",
        seeds=dumped(index),
        read=read_index,
        weight=8,
        is_json=True,
    )
    yield Target(
        name="model configuration",
        form="JSON",
        seeds=dumped({"model_type": "qwen3", "text_config": {"hidden_size": 8}}),
        read=read_config,
        weight=8,
        is_json=True,
    )
    yield _provenance(place / "exported")
    embedded = place / "embedded"
    embedded.mkdir()
    lock_data = (EMBEDDED_DIRECTORY / "lock.json").read_bytes()
    for source in EMBEDDED_DIRECTORY.iterdir():
        if source.is_file():
            (embedded / source.name).symlink_to(source)
    (embedded / "lock.json").unlink()

    def read_embedded(data: bytes) -> object:
        (embedded / "lock.json").write_bytes(data)
        return verify_lock(embedded)

    yield Target(
        name="embedded lock",
        form="JSON",
        seeds=(lock_data,),
        read=read_embedded,
        weight=4,
        is_json=True,
        reseal=resealed,
    )
    yield from _checkpoints(place)


def _provenance(folder: Path) -> Target:
    folder.mkdir()
    (folder / "a.safetensors").write_bytes(b"{}")
    training = Training(
        run="vcrt/lean/7",
        update=2,
        checkpoint="0" * 64,
        plan_hash="1" * 64,
        code="2" * 64,
        dataset="3" * 64,
        environments={"clrs": {"schema": "1", "verifier": "2"}},
        backbone="somewhere",
        backbone_digest="4" * 64,
    )
    write_provenance(ModelProvenance(origin="somewhere", trainings=(training,)), folder)
    path = folder / PROVENANCE_FILE

    def read(data: bytes) -> object:
        path.write_bytes(data)
        files = {file.name: file_digest(file) for file in folder.iterdir()}
        return read_provenance(folder, files).in_words()

    def resealed(value: Any) -> Any:
        content = {"provenance": value["provenance"], "weights": value["weights"]}
        return {**value, "digest": json_digest(content)}

    return Target(
        name="provenance of a model",
        form="JSON",
        seeds=(path.read_bytes(),),
        read=read,
        weight=8,
        is_json=True,
        reseal=resealed,
    )


def _checkpoints(place: Path) -> Iterator[Target]:
    config = Qwen3Config(
        vocab_size=20, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
        num_key_value_heads=1, head_dim=8, max_position_embeddings=16, tie_word_embeddings=True,
    )  # fmt: skip
    state = new_state(blank_model(config), RunConfig().resolved(), seed=0)
    loss = state.model(input_ids=torch.tensor([[1, 2, 3]])).logits.sum()
    loss.backward()
    state.optimizer.step()
    folder = place / "update-000001"
    save_checkpoint(state, folder, [{"update": 1, "loss": 0.5}])
    files = {name: (folder / name).read_bytes() for name in (WEIGHTS, TRAINER, METRICS, HEAD)}

    def load(name: str) -> Callable[[bytes], object]:
        """One changed file, in a checkpoint whose digests agree with it."""

        def read(data: bytes) -> object:
            (folder / name).write_bytes(data)
            if name != HEAD:
                head = json.loads(files[HEAD])
                head["files"][name] = sha256_hex(data)
                (folder / HEAD).write_bytes(json.dumps(head).encode())
            try:
                return load_checkpoint(state, folder)
            finally:
                (folder / name).write_bytes(files[name])
                (folder / HEAD).write_bytes(files[HEAD])

        return read

    for name, is_json, weight in (
        (HEAD, True, 3),
        (METRICS, True, 2),
        (WEIGHTS, False, 2),
        (TRAINER, False, 2),
    ):
        yield Target(
            name=f"checkpoint {name}",
            form="JSON" if is_json else "safetensors",
            seeds=(files[name],),
            read=load(name),
            weight=weight,
            is_json=is_json,
        )
