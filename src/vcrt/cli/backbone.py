"""What ``vcrt backbone`` does: lock a backbone, check one against its lock, or make an embedded one by pretraining."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from vcrt.cli.progress import showing_progress
from vcrt.errors import BackboneError, UnknownNameError, VcrtError
from vcrt.policy.reference import (
    EMBEDDED_NAME,
    EMBEDDED_NAMES,
    BackboneReference,
    backbone_reference,
)
from vcrt.printable import counted
from vcrt.storage import require_new

if TYPE_CHECKING:
    from vcrt.policy.model_provenance import ModelProvenance


def lock_backbone(
    console: Console, name: str | None, *, revision: str | None, lock: Path | None
) -> None:
    """Write the lock of a folder or hub model; raises :class:`BackboneError` if it has no files that may be loaded."""
    from vcrt.policy.locking import make_lock, verified
    from vcrt.policy.model_provenance import read_provenance

    if name is None:
        raise VcrtError("which backbone?", expected="vcrt backbone lock FOLDER_OR_NAME")
    reference = backbone_reference(name, lock=lock)
    if reference.is_embedded:
        raise VcrtError("an embedded backbone is locked as it comes", expected="a folder or name")
    made = make_lock(reference, revision=revision)
    for file, digest in sorted(made.files.items()):
        console.print(f"{digest}  {file}", highlight=False, soft_wrap=True)
    _print_summary(console, len(made.files), made.revision, made.digest)
    loaded_from = Path(reference.folder) if reference.folder else verified(reference)[1]
    _print_training(console, read_provenance(loaded_from, made.files))
    given = "" if lock is None else f" --lock {lock}"
    console.print(
        f"lock {reference.lock}\nnext: vcrt plan DATASET --output EXPERIMENT --backbone {name}{given}",
        highlight=False,
        soft_wrap=True,
    )


def check_backbone(console: Console, name: str | None, *, lock: Path | None) -> None:
    """Check a backbone's files against their lock; raises :class:`BackboneError` that names the first that differs."""
    from vcrt.policy.model_provenance import EMBEDDED_PROVENANCE, read_provenance

    reference = BackboneReference() if name is None else backbone_reference(name, lock=lock)
    if reference.is_embedded:
        from vcrt.policy.backbone import EMBEDDED_DIRECTORIES, LOCKED_FILES, verify_lock

        digest = verify_lock(EMBEDDED_DIRECTORIES[reference.name])
        _print_summary(console, len(LOCKED_FILES), None, digest)
        _print_training(console, EMBEDDED_PROVENANCE)
    else:
        from vcrt.policy.locking import verified

        found, folder = verified(reference)
        _print_summary(console, len(found.files), found.revision, found.digest)
        _print_training(console, read_provenance(folder, found.files))


def _print_summary(console: Console, count: int, revision: str | None, digest: str) -> None:
    of = "" if revision is None else f" of revision {revision}"
    console.print(
        f"{counted(count, 'file')}{of} as locked, digest {digest}", highlight=False, soft_wrap=True
    )


def _print_training(console: Console, provenance: ModelProvenance) -> None:
    console.print(provenance.in_words(), highlight=False, markup=False, soft_wrap=True)


def pretrain_backbone(
    console: Console, name: str | None, output: Path, *, seed: int | None, steps: int | None
) -> None:
    """Pretrain an embedded backbone into a new directory, and say whether it equals the shipped one.

    Raises :class:`UnknownNameError` for the name of any other backbone.
    """
    name = EMBEDDED_NAME if name is None else name
    if name not in EMBEDDED_NAMES:
        raise UnknownNameError.of("embedded backbone", name, EMBEDDED_NAMES)
    require_new(output, BackboneError)
    from vcrt.policy.backbone import EMBEDDED_DIRECTORIES, verify_lock
    from vcrt.policy.pretraining import pretrain
    from vcrt.policy.pretraining_recipes import RECIPES

    recipe = RECIPES[name]
    num_steps = recipe.steps if steps is None else steps
    with showing_progress(console) as progress:
        task = progress.task(f"pretrain the backbone {name}", num_steps, "steps")
        digest = pretrain(
            output,
            recipe=recipe,
            seed=seed,
            steps=num_steps,
            progress=lambda step, total, loss: task.advance(),
        )
    shipped = verify_lock(EMBEDDED_DIRECTORIES[name])
    same = "the shipped one" if digest == shipped else "not the shipped one"
    console.print(f"{output}\ndigest {digest}: {same}", highlight=False, soft_wrap=True)
