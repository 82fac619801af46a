"""Choose which environments of a frozen dataset are exported."""

from __future__ import annotations

from collections.abc import Sequence

from vcrt.errors import DatasetError, UnknownNameError
from vcrt.records.dataset import Dataset


def chosen_environments(
    dataset: Dataset, environments: Sequence[str] | None, held_out: str | None
) -> list[str]:
    """``environments`` (all by default) without ``held_out``.

    Raises :class:`UnknownNameError` for one that the dataset does not have, and :class:`DatasetError` if none is left.
    """
    chosen = list(dataset.environments if environments is None else environments)
    for name in [*chosen, *([] if held_out is None else [held_out])]:
        if name not in dataset.environments:
            raise UnknownNameError.of("environment of the dataset", name, dataset.environments)
    kept = [name for name in chosen if name != held_out]
    if not kept:
        raise DatasetError(
            "nothing is left to export",
            where=str(dataset.path),
            found=f"{', '.join(chosen) or 'no environment'}, without {held_out}",
            expected="at least one environment",
            remedy=f"choose from {', '.join(dataset.environments)}",
        )
    return kept
