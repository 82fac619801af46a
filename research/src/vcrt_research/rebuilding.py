"""Pretrain the embedded backbones again."""

from __future__ import annotations

from pathlib import Path

from vcrt.errors import BackboneError, UnknownNameError, VcrtError
from vcrt.progress import SILENT, Progress
from vcrt.storage import require_new
from vcrt_research.pretraining import pretrain as pretrain_into
from vcrt_research.pretraining_recipes import RECIPES
from vcrt_train.config import EMBEDDED_NAME, EMBEDDED_NAMES
from vcrt_train.policy.backbone import EMBEDDED_DIRECTORIES, verify_lock


def pretrain(
    output: str | Path,
    name: str = EMBEDDED_NAME,
    *,
    seed: int | None = None,
    steps: int | None = None,
    progress: Progress = SILENT,
) -> tuple[str, bool]:
    """Pretrain an embedded backbone into a new directory: ``vcrt pretrain``.

    Returns the backbone's digest, and whether the shipped backbone has the same. By default, ``seed`` and ``steps`` are
    those of the shipped one. Raises :class:`vcrt.errors.UnknownNameError` for any other backbone.
    """
    if name not in EMBEDDED_NAMES:
        raise UnknownNameError.of("embedded backbone", name, EMBEDDED_NAMES)
    if steps is not None and steps < 1:
        raise VcrtError("too few steps", found=f"{steps} steps", expected="at least 1")
    require_new(Path(output), BackboneError)
    num_steps = RECIPES[name].steps if steps is None else steps
    task = progress.task(f"pretrain the backbone {name}", num_steps, "steps")
    digest = pretrain_into(
        Path(output),
        recipe=RECIPES[name],
        seed=seed,
        steps=num_steps,
        progress=lambda step, total, loss: task.advance(),
    )
    return digest, digest == verify_lock(EMBEDDED_DIRECTORIES[name])
