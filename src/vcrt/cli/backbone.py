"""Run the command backbone: lock a language model, check one against its lock, or pretrain an embedded one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.console import Console

import vcrt
from vcrt.cli.options import plain_console, say
from vcrt.cli.progress import showing_progress
from vcrt.config import EMBEDDED_NAME
from vcrt.errors import VcrtError
from vcrt.printable import counted

if TYPE_CHECKING:
    from vcrt.api.models import LockedBackbone


def backbone(
    action: Annotated[Literal["check", "lock", "pretrain"], tyro.conf.Positional] = "check",
    name: Annotated[str | None, tyro.conf.Positional] = None,
    revision: str | None = None,
    lock: Path | None = None,
    output: Path | None = None,
    seed: int | None = None,
    steps: int | None = None,
) -> None:
    """Lock a language model, check a backbone against its lock, or rebuild an embedded one by pretraining.

    A lock names the revision and the SHA-256 of each file that is loaded: configuration, safetensors weights and
    tokenizer. Plans, searches and training refuse a backbone that is not locked or has changed since. Only `lock` may
    download, and only for a hub name; everything else reads the local hub cache.

    Example: vcrt backbone lock models/granite
    Example: vcrt backbone lock Qwen/Qwen3.5-2B --revision main --lock qwen.lock.json
    Example: vcrt backbone check models/granite
    Example: vcrt backbone pretrain embedded-long --output DIRECTORY

    Args:
        action: What to do.
        name: A folder of a causal language model, a hub name as OWNER/MODEL, or `embedded` (the default) or
            `embedded-long`, which alone can be pretrained.
        revision: Branch, tag or commit of the hub, by default main; for a folder, a note on where its files are from.
        lock: The lock file, by default vcrt-lock.json in the folder; a hub name needs one.
        output: Where pretraining writes the new backbone.
        seed: Seed of the pretraining; the shipped backbone's by default.
        steps: Steps of the pretraining; the shipped backbone's by default.
    """
    console = plain_console()
    if action == "pretrain":
        if output is None:
            raise VcrtError("where to?", expected="--output DIRECTORY")
        with showing_progress(console) as progress:
            digest, is_shipped = vcrt.pretrain_backbone(
                output, name or EMBEDDED_NAME, seed=seed, steps=steps, progress=progress
            )
        same = "the shipped one" if is_shipped else "not the shipped one"
        say(console, f"{output}", f"digest {digest}: {same}")
        return
    if action == "check":
        _print_locked(console, vcrt.check_backbone(name or EMBEDDED_NAME, lock=lock))
        return
    if name is None:
        raise VcrtError("which backbone?", expected="vcrt backbone lock FOLDER_OR_NAME")
    locked = vcrt.lock_backbone(name, revision=revision, lock=lock)
    assert locked.lock is not None
    say(console, *(f"{digest}  {file}" for file, digest in sorted(locked.lock.files.items())))
    _print_locked(console, locked)
    given = "" if lock is None else f" --lock {lock}"
    say(
        console,
        f"lock {locked.reference.lock}",
        f"next: vcrt plan DATASET --output EXPERIMENT --backbone {name}{given}",
    )


def _print_locked(console: Console, found: LockedBackbone) -> None:
    of = "" if found.revision is None else f" of revision {found.revision}"
    files = counted(found.num_files, "file")
    say(console, f"{files}{of} as locked, digest {found.digest}", found.provenance.in_words())
