"""Write and read checkpoints, from which a run resumes bit for bit: directories of safetensors and JSON.

A checkpoint is written beside its place, flushed to disk and then renamed, so a directory of its name is always
complete. Nothing is pickled. This module does not store frozen parameters (they belong to the backbone, which its own
hash locks), and does not decide where and when checkpoints are written.

Files: ``weights.safetensors`` (trainable parameters by name), ``trainer.safetensors`` (AdamW moments and step counters
as ``parameter/field``, and the generator's state), ``metrics.json``, and ``checkpoint.json``, which holds the rest and
the SHA-256 of the other three.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import BaseModel, ConfigDict, Field
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from vcrt.documents import read_limited, strict_json
from vcrt.errors import RunError
from vcrt.forms import in_a_line
from vcrt.hashing import Json, canonical_json, sha256_hex
from vcrt.storage import publish_directory
from vcrt_train.policy.causal_model import CausalModel
from vcrt_train.training.process_group import ALONE, ProcessGroup, in_shards_of, whole
from vcrt_train.training.update import TrainerState, trainable_parameters

FORMAT = 1
WEIGHTS, TRAINER, METRICS, HEAD = (
    "weights.safetensors",
    "trainer.safetensors",
    "metrics.json",
    "checkpoint.json",
)
FILES = (WEIGHTS, TRAINER, METRICS)
#: The largest files that are read, in bytes: the head has a dual for each constraint, and the metrics a line for each
#: update; tensors are as large as the model.
_MAX_BYTES = {HEAD: 2**20, METRICS: 256 * 2**20}
_MAX_TENSORS = 2**46
GENERATOR = "generator"
#: The optimiser settings that a resumed run must share with its checkpoint.
HYPERPARAMETERS = ("lr", "betas", "eps", "weight_decay", "amsgrad", "maximize")


class _Head(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    format: Any
    identity: str
    update_index: Annotated[int, Field(ge=0)]
    duals: dict[str, float]
    optimizer: Any
    files: dict[str, str]


def save_checkpoint(
    state: TrainerState,
    directory: Path,
    metrics: Sequence[Mapping[str, Json]],
    *,
    identity: str = "",
    group: ProcessGroup = ALONE,
) -> str:
    """Write ``state`` and the metrics so far to a new directory; return the checkpoint's digest.

    ``identity`` names the run of the checkpoint; :func:`load_checkpoint` requires the same name. All processes of
    ``group`` call this together; the first one writes. The files do not depend on the number of processes or on shards.

    The digest is the SHA-256 of ``checkpoint.json`` and so covers every file; equal states and metrics have equal
    digests. Raises :class:`RunError` if the directory exists.
    """
    files = {
        WEIGHTS: save_tensors(_weights(state)),
        TRAINER: save_tensors(_trainer_tensors(state)),
        METRICS: canonical_json(list(metrics)),
    }
    head = canonical_json(
        {
            "format": FORMAT,
            "identity": identity,
            "update_index": state.update_index,
            "duals": state.duals,
            "optimizer": _hyperparameters(state.optimizer),
            "files": {name: sha256_hex(data) for name, data in files.items()},
        }
    )

    def fill(partial: Path) -> None:
        for name, data in {**files, HEAD: head}.items():
            (partial / name).write_bytes(data)

    if group.rank == 0:
        publish_directory(directory, fill, RunError)
    group.wait()
    return sha256_hex(head)


def load_checkpoint(
    state: TrainerState,
    directory: Path,
    *,
    identity: str = "",
    expected_digest: str | None = None,
) -> list[dict[str, Json]]:
    """Load a checkpoint into ``state``, which ``new_state`` made on the same backbone; return its metrics.

    All files are read and checked before ``state`` changes. Raises :class:`RunError` if a file is missing or altered,
    if the digest is not the expected one, or if the checkpoint belongs to another run, model or optimiser setting.
    """
    head, files = _read_checked(directory, identity, expected_digest, FILES)
    weights, trainer = (
        _parse_tensors(directory / name, files[name]) for name in (WEIGHTS, TRAINER)
    )
    _require_same_model(state.model, weights, directory)
    _require_same_optimizer(state.optimizer, head["optimizer"], directory)
    _require_trainer_of(state, trainer, directory)
    metrics = _parse_metrics(directory / METRICS, files[METRICS])

    _put_weights(state.model, weights)
    state.generator.set_state(trainer.pop(GENERATOR))
    _load_optimizer(state, trainer)
    state.duals = {name: float(dual) for name, dual in head["duals"].items()}
    state.update_index = int(head["update_index"])
    return metrics


def load_weights(
    model: CausalModel,
    directory: Path,
    *,
    identity: str = "",
    expected_digest: str | None = None,
) -> None:
    """Load only a checkpoint's weights into ``model``, for use instead of training.

    Read and check ``checkpoint.json`` and the weights. The other files, among them moments twice as large as the
    weights, may be altered or missing. Raises as :func:`load_checkpoint`, before ``model`` changes.
    """
    _, files = _read_checked(directory, identity, expected_digest, (WEIGHTS,))
    weights = _parse_tensors(directory / WEIGHTS, files[WEIGHTS])
    _require_same_model(model, weights, directory)
    _put_weights(model, weights)


def read_metrics(
    directory: Path, *, identity: str = "", expected_digest: str | None = None
) -> list[dict[str, Json]]:
    """Return the metrics in a checkpoint, after a check of every file; raises as :func:`load_checkpoint`."""
    _, files = _read_checked(directory, identity, expected_digest, FILES)
    return _parse_metrics(directory / METRICS, files[METRICS])


def _read_checked(
    directory: Path, identity: str, expected_digest: str | None, names: Sequence[str]
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the head, and the files ``names``, checked against the digests in the head."""
    head_bytes = _read(directory / HEAD)
    if expected_digest is not None:
        _require_digest(directory / HEAD, head_bytes, expected_digest)
    head = _parse_head(directory / HEAD, head_bytes)
    if head["identity"] != identity:
        raise RunError(
            "the checkpoint belongs to another run",
            where=str(directory),
            found=head["identity"][:200],
            expected=identity,
            remedy="put the run's own checkpoint back, or remove this one and start the run again",
        )
    files = {name: _read(directory / name) for name in names}
    for name, data in files.items():
        _require_digest(directory / name, data, head["files"][name])
    return head, files


def _put_weights(model: CausalModel, weights: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, parameter in trainable_parameters(model).items():
            parameter.copy_(in_shards_of(weights[name], parameter))


def _weights(state: TrainerState) -> dict[str, Tensor]:
    return {
        name: whole(parameter).cpu().contiguous()
        for name, parameter in trainable_parameters(state.model).items()
    }


def _trainer_tensors(state: TrainerState) -> dict[str, Tensor]:
    tensors = {GENERATOR: state.generator.get_state()}
    for name, parameter in trainable_parameters(state.model).items():
        for field, value in state.optimizer.state.get(parameter, {}).items():
            tensors[f"{name}/{field}"] = whole(value).cpu().contiguous()
    return tensors


def _load_optimizer(state: TrainerState, tensors: Mapping[str, Tensor]) -> None:
    """Restore AdamW's moments; its own loader moves them to the parameters' devices."""
    parameters = trainable_parameters(state.model)
    names = {parameter: name for name, parameter in parameters.items()}
    fields: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        name, _, field = key.rpartition("/")
        fields.setdefault(name, {})[field] = in_shards_of(tensor, parameters[name])
    in_order = [
        names[parameter] for group in state.optimizer.param_groups for parameter in group["params"]
    ]
    state.optimizer.load_state_dict(
        {
            "state": {i: fields[name] for i, name in enumerate(in_order) if name in fields},
            "param_groups": state.optimizer.state_dict()["param_groups"],
        }
    )


def _hyperparameters(optimizer: torch.optim.AdamW) -> list[dict[str, Json]]:
    """Return the optimiser's initial settings for each group; the schedule changes the groups' own learning rates."""
    made_with = {key: _plain(optimizer.defaults[key]) for key in HYPERPARAMETERS}
    return [made_with for _ in optimizer.param_groups]


def _plain(value: Any) -> Json:
    return list(value) if isinstance(value, tuple) else value


def _read(path: Path) -> bytes:
    try:
        return read_limited(path, _MAX_BYTES.get(path.name, _MAX_TENSORS))
    except (OSError, ValueError) as error:
        raise _damaged(path, found=f"{type(error).__name__}: {error}") from error


def _require_digest(path: Path, data: bytes, expected: str) -> None:
    if sha256_hex(data) != expected:
        raise _damaged(path, found=f"SHA-256 {sha256_hex(data)}", expected=f"SHA-256 {expected}")


def _parse_head(path: Path, data: bytes) -> dict[str, Any]:
    try:
        head = _Head.model_validate(strict_json(data)).model_dump()
        if set(head["files"]) != set(FILES):
            raise ValueError("unexpected fields")
    except (ValueError, TypeError) as error:
        raise _damaged(path, found=f"{type(error).__name__}: {in_a_line(error)[:300]}") from error
    if head["format"] != FORMAT:
        raise RunError(
            "a checkpoint of another format",
            where=str(path),
            found=f"format {head['format']!r:.80}",
            expected=f"format {FORMAT}",
            remedy="load it with the version of vcrt that wrote it",
        )
    return head


def _parse_tensors(path: Path, data: bytes) -> dict[str, Tensor]:
    try:
        return load_tensors(data)
    # safetensors raises its own class for most faults, and a class of Python for a type that torch does not have.
    except (
        SafetensorError,
        ValueError,
        TypeError,
        KeyError,
        RuntimeError,
        AttributeError,
    ) as error:
        found = f"{type(error).__name__}: {str(error)[:300]}"
        raise _damaged(path, found=found, expected="safetensors") from error


def _parse_metrics(path: Path, data: bytes) -> list[dict[str, Json]]:
    try:
        # The strict reader is not used here, because metrics may not be finite.
        metrics: list[dict[str, Json]] = json.loads(data)
        if not isinstance(metrics, list) or not all(isinstance(line, dict) for line in metrics):
            raise ValueError("no list of objects")
    except (ValueError, RecursionError) as error:
        raise _damaged(path, found=f"{type(error).__name__}: {str(error)[:300]}") from error
    return metrics


def _require_trainer_of(
    state: TrainerState, trainer: Mapping[str, Tensor], directory: Path
) -> None:
    """Raise unless the tensors are the generator's state and, for each parameter, all fields of AdamW or none."""
    parameters = trainable_parameters(state.model)
    expected = {GENERATOR: state.generator.get_state()}
    for name in {key.rpartition("/")[0] for key in trainer} & set(parameters):
        moment = parameters[name]
        expected |= {f"{name}/step": torch.tensor(0.0)}
        expected |= {f"{name}/{field}": moment for field in ("exp_avg", "exp_avg_sq")}
    try:
        for key in sorted({*expected, *trainer}):
            found, right = trainer[key], expected[key]
            if (tuple(found.shape), found.dtype) != (tuple(right.shape), right.dtype):
                raise ValueError(f"{key}: {tuple(found.shape)} of {found.dtype}")
        torch.Generator().set_state(trainer[GENERATOR])
    except (KeyError, ValueError, TypeError, RuntimeError) as error:
        raise _damaged(
            directory / TRAINER,
            found=f"{type(error).__name__}: {str(error)[:300]}",
            expected="the state of the run's generator, and of AdamW for the model's parameters",
        ) from error


def _require_same_model(model: CausalModel, weights: Mapping[str, Tensor], directory: Path) -> None:
    found = {name: (tuple(t.shape), t.dtype) for name, t in weights.items()}
    expected = {name: (tuple(p.shape), p.dtype) for name, p in trainable_parameters(model).items()}
    if found != expected:
        differing = sorted(
            name for name in {*found, *expected} if found.get(name) != expected.get(name)
        )
        raise RunError(
            "the checkpoint belongs to another model",
            where=str(directory / WEIGHTS),
            found=f"{differing[0]}: {found.get(differing[0], 'absent')}",
            expected=f"{differing[0]}: {expected.get(differing[0], 'absent')}",
            remedy="build the model from the backbone and settings that the run was started with",
        )


def _require_same_optimizer(optimizer: torch.optim.AdamW, saved: object, directory: Path) -> None:
    ours = _hyperparameters(optimizer)
    if saved != ours:
        raise RunError(
            "the checkpoint belongs to a run with another optimiser setting",
            where=str(directory / HEAD),
            found=str(saved),
            expected=str(ours),
            remedy="resume with the settings that the run was started with",
        )


def _damaged(path: Path, *, found: str, expected: str | None = None) -> RunError:
    return RunError(
        "a checkpoint file is missing or damaged",
        where=str(path),
        found=found,
        expected=expected,
        remedy="resume from an earlier checkpoint, or start the run again",
    )
