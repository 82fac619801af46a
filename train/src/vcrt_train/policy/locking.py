"""Lock a language model: its revision, and the SHA-256 of each of its files that is ever read.

Only locked files are loaded (:mod:`vcrt_train.policy.language_model`), so a file that is added later has no effect.
Weights are safetensors; pickled weights are never read. Locking a hub name may download the model; everything else
reads only the local hub cache. Embedded backbones have other locks (:mod:`vcrt_train.policy.backbone`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vcrt.documents import is_plain_name, read_limited, strict_json
from vcrt.errors import BackboneError
from vcrt.hashing import Json, file_digest, json_digest
from vcrt.storage import make_directory, write_file
from vcrt_train.policy.model_provenance import PROVENANCE_FILE, read_provenance
from vcrt_train.policy.reference import CATALOGUE, BackboneReference, fetch_remedy

FORMAT = "vcrt-backbone-lock/1"
CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
#: The files from which the library may build a tokenizer and its chat template.
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
    "spiece.model",
    "chat_template.jinja",
)
_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_FROM_THE_HUB = (CONFIG, "*.safetensors", INDEX, *TOKENIZER_FILES, PROVENANCE_FILE)
#: The largest index that is read, in bytes; it has one line for each tensor.
_MAX_INDEX = 64 * 2**20
_CHANGED = "restore the file, or remove the lock, lock the backbone anew and make a new plan"


@dataclass(frozen=True, kw_only=True, slots=True)
class Lock:
    """The contents of a lock file."""

    name: str
    #: The hub's commit, or the user's note on a folder; None if nothing is known.
    revision: str | None
    #: SHA-256 by file name, relative to the model's folder.
    files: Mapping[str, str]

    @property
    def digest(self) -> str:
        """The digest of all files."""
        return json_digest(dict(self.files))

    def to_json(self) -> dict[str, Json]:
        """Return the form in which a lock is written."""
        return {
            "format": FORMAT,
            "name": self.name,
            "revision": self.revision,
            "files": dict(self.files),
            "digest": self.digest,
        }


def make_lock(reference: BackboneReference, *, revision: str | None = None) -> Lock:
    """Lock a folder's files or a hub model's, and write the lock file; missing files of the hub are downloaded.

    ``revision`` is a branch, tag or commit of the hub, or a note on a folder's origin. Raises :class:`BackboneError` if
    there is no safetensors model, if the hub cannot be reached, if another lock exists, or if the model's provenance is
    missing or altered.
    """
    if reference.lock is None:
        raise AssertionError("the embedded backbone has a lock of its own")
    if reference.folder is None:
        folder = hub_folder(reference.name, revision, download=True)
        revision = folder.name
    else:
        folder = Path(reference.folder)
    files = {name: file_digest(folder / name) for name in model_files(folder)}
    read_provenance(folder, files)
    lock = Lock(name=reference.name, revision=revision, files=files)
    path = Path(reference.lock)
    if path.exists():
        found = read_lock(path)
        if (found.files, found.revision) != (lock.files, lock.revision):
            raise BackboneError(
                "there is another lock already, and it is not overwritten",
                where=str(path),
                found=f"digest {found.digest}, revision {found.revision}",
                expected=f"digest {lock.digest}, revision {lock.revision}",
                remedy="remove it if the files were meant to change: plans made with it will refuse them",
            )
    else:
        _write(lock, path)
    return lock


def _write(lock: Lock, path: Path) -> None:
    try:
        make_directory(path.parent)
        write_file(path, (json.dumps(lock.to_json(), indent=2) + "\n").encode())
    except OSError as error:
        raise BackboneError(
            "the lock cannot be written",
            where=str(path),
            found=error.strerror or str(error),
            remedy="give a place that can be written to with --lock FILE",
        ) from error


def model_files(folder: Path) -> tuple[str, ...]:
    """Return the names of the files of a model's folder that are loaded, and of its provenance if it has one, sorted.

    Raises :class:`BackboneError` if the folder has no configuration, no safetensors weights or no tokenizer.
    """
    if not (folder / CONFIG).is_file():
        raise BackboneError(
            "not a folder of a language model",
            where=str(folder),
            found=f"no {CONFIG}",
            expected="what `save_pretrained` of transformers writes",
        )
    tokenizer = [name for name in TOKENIZER_FILES if (folder / name).is_file()]
    if not tokenizer:
        raise BackboneError(
            "the backbone has no tokenizer",
            where=str(folder),
            expected=f"one of {', '.join(TOKENIZER_FILES)}",
            remedy="save the model's tokenizer into the same folder with `save_pretrained`",
        )
    provenance = [PROVENANCE_FILE] if (folder / PROVENANCE_FILE).is_file() else []
    return tuple(sorted((CONFIG, *_weight_files(folder), *tokenizer, *provenance)))


def _weight_files(folder: Path) -> tuple[str, ...]:
    if (folder / WEIGHTS).is_file():
        return (WEIGHTS,)
    if (folder / INDEX).is_file():
        try:
            index = strict_json(read_limited(folder / INDEX, _MAX_INDEX))
            shards = sorted(set(index["weight_map"].values()))
            if not shards or not all(map(is_plain_name, shards)):
                raise ValueError("not names of files beside it")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise BackboneError(
                "the index of the weights cannot be read",
                where=str(folder / INDEX),
                found=f"{type(error).__name__}: {str(error)[:300]}",
            ) from error
        missing = [name for name in shards if not (folder / name).is_file()]
        if missing or not all(name.endswith(".safetensors") for name in shards):
            raise BackboneError(
                "the weights are not whole",
                where=str(folder),
                found=f"no {missing[0]}" if missing else ", ".join(shards),
                expected=f"every file that {INDEX} names, in safetensors",
                remedy="download or copy the missing files",
            )
        return (INDEX, *shards)
    pickled = sorted(path.name for pattern in _PICKLED for path in folder.glob(pattern))
    raise BackboneError(
        "the backbone has no safetensors weights",
        where=str(folder),
        found=f"{pickled[0]}, which is pickled and is never read" if pickled else "no weights",
        expected=f"{WEIGHTS}, or {INDEX} with its shards",
        remedy="where the weights are trusted, load them with transformers and `save_pretrained` them again: it writes "
        "safetensors",
    )


def read_lock(path: Path) -> Lock:
    """Read a lock; raises :class:`BackboneError` if it is missing, malformed or contradicts itself."""
    try:
        value = strict_json(read_limited(path))
        if value["format"] != FORMAT:
            raise ValueError(f"format {value['format']!r:.80}")
        lock = Lock(
            name=str(value["name"]),
            revision=None if value["revision"] is None else str(value["revision"]),
            files={str(name): str(digest) for name, digest in value["files"].items()},
        )
        if value["digest"] != lock.digest or not all(map(is_plain_name, lock.files)):
            raise ValueError("its digest is not that of its files, or they are not beside it")
    except FileNotFoundError as error:
        raise BackboneError(
            "the backbone is not locked",
            where=str(path),
            found="no such file",
            expected="a lock with the SHA-256 of each of the backbone's files",
            remedy="look at where the files are from, then run `vcrt backbone lock FOLDER_OR_NAME` "
            "(with --lock FILE if the lock is not to lie in the folder)",
        ) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BackboneError(
            "the lock of a backbone cannot be read",
            where=str(path),
            found=f"{type(error).__name__}: {str(error)[:300]}",
            expected=f"a file of format {FORMAT}, as `vcrt backbone lock` writes it",
            remedy="restore it, or remove it and lock the backbone anew",
        ) from error
    return lock


def verified(reference: BackboneReference) -> tuple[Lock, Path]:
    """Hash every file of a language model, and return its lock and the folder of its files.

    Raises :class:`BackboneError`, which names the first file that differs from the lock; for a hub name, also if the
    locked revision is not in the local cache.
    """
    if reference.lock is None:
        raise AssertionError("the embedded backbone has a lock of its own")
    if reference.folder is not None and not Path(reference.folder).is_dir():
        raise BackboneError(
            "the folder of the backbone is gone",
            where=reference.folder,
            found="no such folder",
            remedy=fetch_remedy(reference.name)
            if reference.name in CATALOGUE
            else "put it back where it was, or beside the experiment if both were moved together",
        )
    lock = read_lock(Path(reference.lock))
    if reference.folder is None:
        if lock.name != reference.name:
            raise BackboneError(
                "the lock is another backbone's",
                where=reference.lock,
                found=lock.name,
                expected=reference.name,
                remedy="give the lock of this backbone with --lock",
            )
        folder = hub_folder(reference.name, lock.revision, download=False)
    else:
        folder = Path(reference.folder)
    changed = _CHANGED
    if reference.name in CATALOGUE:
        changed = f"remove that folder and fetch the backbone again: {fetch_remedy(reference.name)}"
    require_locked_files(folder, lock.files, changed)
    return lock, folder


def require_locked_files(folder: Path, files: Mapping[str, str], remedy: str) -> None:
    """Raise :class:`BackboneError`, which names the first of ``files`` (SHA-256 by name) that is not as locked."""
    for name, digest in sorted(files.items()):
        path = folder / name
        found = f"SHA-256 {file_digest(path)}" if path.is_file() else "no such file"
        if found != f"SHA-256 {digest}":
            raise BackboneError(
                f"backbone file {name} is not the one that was locked",
                where=str(path),
                found=found,
                expected=f"SHA-256 {digest}",
                remedy=remedy,
            )


def hub_folder(name: str, revision: str | None, *, download: bool) -> Path:
    """Return the folder of a hub model's revision in the local cache; the folder's own name is the commit.

    With ``download``, missing files are fetched first. Raises :class:`BackboneError` if the revision cannot be read.
    """
    from huggingface_hub import constants, snapshot_download

    try:
        return Path(
            snapshot_download(
                name,
                revision=revision,
                local_files_only=not download,
                allow_patterns=list(_FROM_THE_HUB),
            )
        )
    # The library raises errors of many classes here, including those of its network client.
    except Exception as error:
        offline = constants.HF_HUB_OFFLINE
        reason = "offline (HF_HUB_OFFLINE is set)" if offline else "not in the local cache"
        option = "" if revision is None else f" --revision {revision}"
        raise BackboneError(
            f"the hub's model {name} cannot be read",
            where=f"revision {revision or 'main'}",
            found=f"{reason}; {type(error).__name__}: {str(error).strip().splitlines()[0]}",
            expected="the revision in the local hub cache, or a hub that answers",
            remedy=f"where there is a network: `hf download {name}{option}`, "
            "then copy the cache here (HF_HOME); or copy the model's files into a folder and give that folder",
        ) from error
