"""What ``vcrt backbone`` does: check the embedded backbone, or make one by pretraining."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from vcrt.cli.progress import showing_progress
from vcrt.errors import BackboneError
from vcrt.storage import require_new


def check_backbone(console: Console) -> None:
    """Check the embedded backbone's files against their lock; raises :class:`BackboneError` if one differs."""
    from vcrt.policy.backbone import EMBEDDED_DIRECTORY, LOCKED_FILES, verify_lock

    digest = verify_lock(EMBEDDED_DIRECTORY)
    console.print(f"{len(LOCKED_FILES)} files as locked, digest {digest}", highlight=False)


def pretrain_backbone(
    console: Console, output: Path, *, seed: int | None, steps: int | None
) -> None:
    """Pretrain a backbone into a new directory, and say whether it equals the shipped one."""
    require_new(output, BackboneError)
    from vcrt.policy.backbone import EMBEDDED_DIRECTORY, verify_lock
    from vcrt.policy.pretraining import DEFAULT_SEED, DEFAULT_STEPS, pretrain

    num_steps = DEFAULT_STEPS if steps is None else steps
    with showing_progress(console) as progress:
        task = progress.task("pretrain the embedded backbone", num_steps, "steps")
        digest = pretrain(
            output,
            seed=DEFAULT_SEED if seed is None else seed,
            steps=num_steps,
            progress=lambda step, total, loss: task.advance(),
        )
    same = "the shipped one" if digest == verify_lock(EMBEDDED_DIRECTORY) else "not the shipped one"
    console.print(f"{output}\ndigest {digest}: {same}", highlight=False, soft_wrap=True)
