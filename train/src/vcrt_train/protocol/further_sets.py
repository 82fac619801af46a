"""Name further frozen datasets on whose held-out environments a plan's runs are scored: of other lengths, say.

A run that holds out an environment is scored on that environment's items of each of them. They are opened once,
together with the plan's own fold. Not covered: the scoring (:mod:`vcrt_train.protocol.evaluation`) and the ledgers
beside the datasets (:mod:`vcrt_train.protocol.openings`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vcrt.documents import is_plain_name
from vcrt.errors import BackboneError, RunError
from vcrt.forms import ClosedModel
from vcrt.limits import MAX_ENUMERATED
from vcrt.printable import counted
from vcrt.records.dataset import Dataset
from vcrt.records.manifest import Manifest
from vcrt_train.training.methods import method

#: What reports call the plan's own dataset among them.
OWN = "own"


class TestSet(ClosedModel):
    """One of them: what it is called (as its folder), where it lies, and what it must be."""

    __test__ = False

    name: str
    dataset: str
    root_hash: str


def possible_test_sets(
    own: Dataset, others: Sequence[Dataset], methods: Sequence[str], folds: Sequence[str]
) -> tuple[TestSet, ...]:
    """The datasets as a plan names them, if every method can be scored on every fold of each.

    Raises :class:`RunError` for two of one name, for one that is the plan's own, for a fold that one does not have, and
    for methods that answer in tokens where there are too many operations.
    """
    found: list[TestSet] = []
    known = {own.manifest.root_hash: own.path}
    for dataset in others:
        path, root_hash = dataset.path.resolve(), dataset.manifest.root_hash
        if root_hash in known:
            raise RunError(
                "a test set that is there already",
                where=str(dataset.path),
                found=f"root hash {root_hash}, as {known[root_hash]}",
                expected="other datasets than the plan's own, each one once",
                remedy="leave it out: the plan's own held-out folds are scored in any case",
            )
        _require_name(path, [one.name for one in found])
        _require_folds(dataset, folds)
        require_pointers_interface(dataset, methods)
        known[root_hash] = dataset.path
        found.append(TestSet(name=path.name, dataset=str(path), root_hash=root_hash))
    return tuple(found)


def _require_name(path: Path, taken: Sequence[str]) -> None:
    if path.name in taken:
        raise RunError(
            "two test sets of one name",
            where=str(path),
            found=f"a second {path.name!r}",
            expected="folders of different names: reports call them so",
            remedy="rename one, with the files beside it",
        )
    if not is_plain_name(path.name) or path.name == OWN:
        raise RunError(
            "a test set of an odd name",
            where=str(path),
            expected=f"a folder whose name is printable, does not begin with a dot, and is not {OWN!r}",
            remedy="rename it, with the files beside it",
        )


def _require_folds(dataset: Dataset, folds: Sequence[str]) -> None:
    missing = [fold for fold in folds if fold not in dataset.environments]
    if missing:
        raise RunError(
            "a test set without an environment that is held out",
            where=str(dataset.path),
            found=f"environments {', '.join(dataset.environments)}",
            expected=", ".join(folds),
            remedy=f"certify {', '.join(missing)} for it too, or name the folds with --held-out",
        )


def require_pointers_interface(dataset: Dataset, methods: Sequence[str]) -> None:
    """Raise :class:`RunError` for methods that answer in tokens where there are too many operations for that."""
    manifest = dataset.manifest
    others = [name for name in methods if method(name).interface != "pointers"]
    if others and (manifest.preset.is_any or max(manifest.lengths) > MAX_ENUMERATED):
        count = (
            "any number of operations"
            if manifest.preset.is_any
            else f"{max(manifest.lengths)} operations"
        )
        raise RunError(
            "a method that answers in tokens cannot be trained or scored on so many operations",
            where=str(dataset.path),
            found=f"{', '.join(others)}, {count}",
            expected=f"at most {MAX_ENUMERATED} operations, or methods with the interface pointers",
            remedy=f"leave out {', '.join(others)}, or this dataset",
        )


def require_readable(manifest: Manifest, num_pointers: int | None, *, where: Path) -> None:
    """Raise :class:`BackboneError` if a backbone that knows ``num_pointers`` (None: enough) cannot read the records.

    A backbone that knows a number of pointers knows nothing else: it is an embedded one.
    """
    if num_pointers is not None and manifest.record_form.is_text:
        raise BackboneError(
            "the backbone cannot read: records of steps are text",
            where=str(where),
            found=f"records of {manifest.record_form.view}",
            expected="records of relations",
            remedy="plan with a language model, such as --backbone smollm2-135m",
        )
    most = max(manifest.lengths)
    needed = manifest.record_form.pool_of(most)
    if num_pointers is not None and num_pointers < needed:
        raise BackboneError(
            "the backbone does not know the pointers of so many operations",
            where=str(where),
            found=f"{counted(num_pointers, 'pointer')}",
            expected=f"{needed}, from which records of {counted(most, 'operation')} draw here",
            remedy="plan with --backbone embedded-long, or with a language model",
        )
