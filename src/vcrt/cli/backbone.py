"""What ``vcrt backbone`` does: check the embedded backbone, or make one by pretraining."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from vcrt.errors import BackboneError
from vcrt.storage import refuse_existing


def check_backbone(console: Console) -> None:
    """Check the embedded backbone's files against their lock; raises :class:`BackboneError` if one differs."""
    from vcrt.policy.backbone import EMBEDDED_DIRECTORY, LOCKED_FILES, verify_lock

    digest = verify_lock(EMBEDDED_DIRECTORY)
    console.print(f"{len(LOCKED_FILES)} files as locked, digest {digest}", highlight=False)


def pretrain_backbone(
    console: Console, output: Path, *, seed: int | None, steps: int | None
) -> None:
    """Pretrain a backbone into a new directory."""
    from vcrt.policy import pretraining

    refuse_existing(output, BackboneError)
    raise NotImplementedError(pretraining)
