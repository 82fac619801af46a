"""Find whether a dataset is what was sealed, and if not, which certificate, file or field of the manifest is altered.

Nothing is replayed and no signature is checked here. Files, manifest, leaves and seal say many things twice; what
disagrees with all the others is what was altered. Somebody who alters all of them alike leaves no trace but another
root hash: against that there are signatures (:mod:`vcrt.records.sealing.signing`) and the replay
(:mod:`vcrt.datasets.agreement`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vcrt.errors import AlteredError, DatasetError
from vcrt.records.audit import AUDIT_COLUMNS
from vcrt.records.dataset import POLICY_COLUMNS, audit_name, not_a_dataset, policy_name
from vcrt.records.folder import Damage, altered_file, foreign_entries, kinds_of_entries
from vcrt.records.manifest import (
    AGREEMENT,
    LEAVES,
    MANIFEST,
    SEAL,
    Manifest,
    require_known_format,
)
from vcrt.records.sealing.dsse import Envelope
from vcrt.records.sealing.leaves import Leaf, by_environment, derived_leaves
from vcrt.records.sealing.row_damage import damaged_rows
from vcrt.records.sealing.sealed_files import Sealed, read_sealed

#: How many altered places an error names.
NAMED = 12
REMEDY = "restore the original, or make the dataset again with `vcrt certify`"


@dataclass(frozen=True, kw_only=True, slots=True)
class Integrity:
    """What was found: all damage, and the seal as far as it could be read."""

    damage: tuple[Damage, ...]
    envelope: Envelope | None
    manifest: Manifest | None
    leaves: tuple[Leaf, ...]


def examine_integrity(path: Path) -> Integrity:
    """Compare all there is in a dataset's folder; raises :class:`DatasetError` if there is no dataset."""
    if not (path / MANIFEST).is_file() and not (path / SEAL).is_file():
        raise not_a_dataset(path)
    kinds = kinds_of_entries(path)
    sealed = read_sealed(path)
    if sealed.committed is None and sealed.manifest is not None:
        require_known_format(sealed.manifest, path / MANIFEST)
    damage = [*_entries(kinds, sealed.committed), *sealed.damage]
    if sealed.committed is not None:
        damage += _files(path, kinds, sealed, sealed.committed)
        # The rows are worth reading if all else holds, or if they can tell which leaf was altered.
        if sealed.leaves is not None and all(one.place.startswith(LEAVES) for one in damage):
            damage += _rows(path, sealed.leaves, sealed.committed)
    return Integrity(
        damage=tuple(damage),
        envelope=sealed.envelope,
        manifest=sealed.committed,
        leaves=sealed.leaves or (),
    )


def require_integrity(path: Path) -> Integrity:
    """What :func:`examine_integrity` finds; raises :class:`AlteredError` naming what was altered, if anything was."""
    found = examine_integrity(path)
    if not found.damage:
        return found
    first, *others = found.damage
    where = f"{path / first.place}"
    if others:
        named = "; ".join(one.place for one in others[: NAMED - 1])
        where += f"; and {len(others)} more: {named}" + "; ..." * (len(others) >= NAMED)
    raise AlteredError(
        first.what, where=where, found=first.found, expected=first.expected, remedy=_remedy(first)
    )


def _remedy(first: Damage) -> str:
    if first.place == SEAL and first.found is None:
        return "if the dataset is older than its seal, or you trust it otherwise, run `vcrt seal DATASET`"
    if first.place.startswith(AGREEMENT):
        return f"remove {AGREEMENT}, and run `vcrt verify` again"
    if first.place.startswith((SEAL, LEAVES)):
        return f"restore the original; {SEAL} and {LEAVES} follow from the rest: without them, run `vcrt seal DATASET`"
    return REMEDY


def _entries(kinds: dict[str, str], committed: Manifest | None) -> Iterator[Damage]:
    own = {MANIFEST, LEAVES, SEAL} | ({AGREEMENT} & set(kinds))
    if committed is not None:
        yield from foreign_entries(kinds, {*own, *files_of(committed)})


def files_of(manifest: Manifest) -> dict[str, tuple[str, tuple[str, ...]]]:
    """The files that a manifest's environments have: each one's environment and columns."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for name in sorted(manifest.counts):
        found[audit_name(name)] = (name, AUDIT_COLUMNS)
        found[policy_name(name)] = (name, POLICY_COLUMNS)
    return found


def _files(
    path: Path, kinds: dict[str, str], sealed: Sealed, committed: Manifest
) -> Iterator[Damage]:
    leaves = by_environment(sealed.leaves or ()) if sealed.leaves_hold else None
    for name, (environment, columns) in files_of(committed).items():
        if kinds.get(name) != "file":
            continue
        altered = altered_file(path, name, committed.files[name])
        if altered is None:
            continue
        rows: list[Damage] = []
        if leaves is not None:
            rows += damaged_rows(path / name, name, columns, leaves.get(environment, ()))
        yield from rows or (altered,)


def _rows(path: Path, leaves: Sequence[Leaf], committed: Manifest) -> Iterator[Damage]:
    """Where every file is the one that was frozen: whether manifest and leaves follow from the rows in them."""
    place = 0
    for environment in sorted(committed.counts):
        try:
            derived = derived_leaves(path, environment, committed.preset)
        except DatasetError as error:
            yield Damage(what=error.what, place=error.where or environment, found=error.found)
            return
        for name, digest in derived.content.items():
            if committed.content[name] != digest:
                yield Damage(
                    what="the manifest says another content than the file's rows have",
                    place=f"{MANIFEST}, field content.{name}",
                    found=committed.content[name],
                    expected=digest,
                )
        for leaf in derived.leaves:
            if place >= len(leaves) or leaves[place] != leaf:
                yield Damage(
                    what="a sealed leaf is not that of its certificate",
                    place=f"{LEAVES}, line {place + 1}, episode {leaf.episode}",
                    expected=leaf.data().decode(),
                )
            place += 1
    if place < len(leaves):
        yield Damage(
            what="there are more sealed leaves than certificates",
            place=f"{LEAVES}, line {place + 1}",
            found=str(len(leaves)),
            expected=str(place),
        )
