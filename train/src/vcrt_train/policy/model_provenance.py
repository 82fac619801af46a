"""Write and read a backbone's provenance, the file of its trainings that ``vcrt export-model`` puts beside weights.

A model that vcrt trained from another such model lists both trainings. The file holds its own digest and those of the
exported weights; ``config.json`` holds that digest too, so that nobody can remove or exchange the file without a change
there. A person who changes both cannot be detected: the model's training then counts as unknown, or as the forger
states it. This module does not lock the file, which is hashed with the others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from vcrt.documents import read_limited, strict_json
from vcrt.errors import BackboneError
from vcrt.forms import ClosedModel, in_a_line
from vcrt.hashing import Json, file_digest, json_digest
from vcrt.printable import printable
from vcrt.storage import write_file

FORMAT = "vcrt-model-provenance/1"
PROVENANCE_FILE = "vcrt-provenance.json"
#: The key of config.json that holds the digest of the provenance.
CONFIG_KEY = "vcrt_provenance"
_CONFIG = "config.json"


class Training(ClosedModel):
    """One training by vcrt: the run, its data, and its backbone."""

    #: METHOD/HELD-OUT/SEED, the update after which the model was exported, and the digest of that checkpoint.
    run: str
    update: int
    checkpoint: str
    plan_hash: str
    #: The plan's hash of the source code.
    code: str
    #: The root hash of the dataset, and the versions of each environment of the training.
    dataset: str
    environments: dict[str, dict[str, str]]
    backbone: str
    backbone_digest: str


class ModelProvenance(ClosedModel):
    """All known trainings of a model, the first one first, and what came before them."""

    #: The training data of the first backbone, in words; None if unknown.
    origin: str | None = None
    trainings: tuple[Training, ...] = ()
    #: Whether the weights differ from those that were exported after the last training.
    changed_since: bool = False

    @property
    def is_known(self) -> bool:
        """Whether all training data of the model is stated."""
        return self.origin is not None and not self.changed_since

    def followed_by(self, training: Training) -> ModelProvenance:
        """Return the provenance of a model that was trained from this one."""
        return self.model_copy(update={"trainings": (*self.trainings, training)})

    def in_words(self) -> str:
        """Return what is known, as the continuation of a model's name."""
        parts = ["of unknown training" if self.origin is None else self.origin]
        parts += [
            f"trained on {', '.join(sorted(one.environments))} by {one.run} of plan {one.plan_hash[:12]} "
            f"(update {one.update}, dataset {one.dataset[:12]})"
            for one in self.trainings
        ]
        if self.changed_since:
            parts.append("changed since in a way that is not known")
        # The text may come from a file that anyone wrote.
        return printable(", then ".join(parts))


UNKNOWN = ModelProvenance()
#: The backbones that come with the package (each has a card of its own).
EMBEDDED_PROVENANCE = ModelProvenance(
    origin="pretrained by this project on synthetic look-ups, which do not show what is legal"
)


def write_provenance(provenance: ModelProvenance, folder: Path) -> None:
    """Write the provenance beside the weights in ``folder``, and its digest into ``config.json`` if that exists."""
    weights = {path.name: file_digest(path) for path in sorted(folder.glob("*.safetensors"))}
    content: dict[str, Json] = {
        "provenance": provenance.model_dump(mode="json"),
        "weights": dict(weights),
    }
    digest = json_digest(content)
    _write_json(folder / PROVENANCE_FILE, {"format": FORMAT, **content, "digest": digest})
    config = folder / _CONFIG
    if config.is_file():
        _write_json(config, {**json.loads(read_limited(config)), CONFIG_KEY: digest})


def _write_json(path: Path, value: Json) -> None:
    write_file(path, (json.dumps(value, indent=2) + "\n").encode())


def read_provenance(folder: Path, files: Mapping[str, str]) -> ModelProvenance:
    """Return the provenance of the model in ``folder`` with locked ``files`` (SHA-256 by name), or ``UNKNOWN``.

    Raises :class:`BackboneError` if it cannot be read, was altered, or is not the one that ``config.json`` names.
    """
    path = folder / PROVENANCE_FILE
    named = _named_digest(folder / _CONFIG)
    if PROVENANCE_FILE not in files:
        if named is not None:
            raise _untrusted(path, "the provenance of the model is gone", "no such file", named)
        return UNKNOWN
    try:
        value = strict_json(read_limited(path))
        if value["format"] != FORMAT:
            raise ValueError(f"format {value['format']!r:.80}")
        provenance = ModelProvenance.model_validate(value["provenance"])
        weights, given = dict(value["weights"]), value["digest"]
        digest = json_digest({"provenance": value["provenance"], "weights": weights})
    except (OSError, ValueError, KeyError, TypeError) as error:
        found = f"{type(error).__name__}: {in_a_line(error)[:300]}"
        raise _untrusted(path, "the provenance of the model cannot be read", found) from error
    if digest != given or (named is not None and named != digest):
        what = "the provenance of the model was changed after it was exported"
        raise _untrusted(path, what, f"digest {digest}", named or f"{given!s:.80}")
    if weights != {name: sha for name, sha in files.items() if name.endswith(".safetensors")}:
        return provenance.model_copy(update={"changed_since": True})
    return provenance


def _named_digest(config: Path) -> str | None:
    try:
        # The strict reader is not used, because the library itself writes Infinity for some architectures.
        found = json.loads(read_limited(config)).get(CONFIG_KEY)
    except (OSError, ValueError, AttributeError, RecursionError):
        # The loader of this file reports its faults.
        return None
    return None if found is None else str(found)[:80]


def _untrusted(path: Path, what: str, found: str, digest: str | None = None) -> BackboneError:
    return BackboneError(
        what,
        where=str(path),
        found=found,
        expected=f"a file of format {FORMAT}" if digest is None else f"digest {digest}",
        remedy="restore it from the folder that `vcrt export-model` made, or export the model again",
    )
