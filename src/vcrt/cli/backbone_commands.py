"""The command about language models: lock, check, and pretrain an embedded one.

Each loads what it needs when it runs, so that ``vcrt --help`` is quick.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro

from vcrt.cli.options import plain_console
from vcrt.errors import VcrtError


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
    from vcrt.cli.backbone import check_backbone, lock_backbone, pretrain_backbone

    console = plain_console()
    if action == "lock":
        lock_backbone(console, name, revision=revision, lock=lock)
    elif action == "check":
        check_backbone(console, name, lock=lock)
    elif output is None:
        raise VcrtError("where to?", expected="--output DIRECTORY")
    elif steps is not None and steps < 1:
        raise VcrtError("too few steps", found=f"--steps {steps}", expected="at least 1")
    else:
        pretrain_backbone(console, name, output, seed=seed, steps=steps)
