"""Find whether a dataset is what was sealed, and if not, which certificate, file or field of the manifest is altered.

Nothing is replayed and no signature is checked here. Files, manifest, leaves and seal say many things twice; what
disagrees with all the others is what was altered. Somebody who alters all of them alike leaves no trace but another
root hash: against that there are signatures (:mod:`vcrt.records.sealing.signing`) and the replay
(:mod:`vcrt.datasets.agreement`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from vcrt.errors import AlteredError, DatasetError
from vcrt.hashing import sha256_hex
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
from vcrt.records.rows import read_lines, row_of
from vcrt.records.sealing.leaves import Leaf, by_environment, derived_leaves
from vcrt.records.sealing.sealed_files import Sealed, read_sealed

#: How many altered places an error names.
NAMED = 12
REMEDY = "restore the original, or make the dataset again with `vcrt certify`"


def examine_integrity(path: Path) -> Sealed:
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
    return replace(sealed, damage=damage)


def require_integrity(path: Path) -> Sealed:
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


def damaged_rows(
    path: Path, name: str, columns: tuple[str, ...], leaves: Sequence[Leaf]
) -> Iterator[Damage]:
    """What differs between the rows of file ``name`` at ``path`` and the sealed ``leaves`` of its environment.

    The file is known to be wrong, and is read as far as it can be.
    """
    is_audit = columns[0] == "episode_id"
    if is_audit:
        sealed = {leaf.audit: f"episode {leaf.episode}" for leaf in leaves}
    else:
        sealed = {leaf.policy: f"the record of episode {leaf.episode}" for leaf in leaves}
    # By place; the rows of a policy file stand in another order.
    episodes = list(sealed.values()) if is_audit else []
    labels: list[str] = []
    digests: list[str] = []
    broken: DatasetError | None = None
    try:
        for place, line in enumerate(read_lines(path)):
            digests.append(sha256_hex(line))
            labels.append(_label(line, columns) or next(iter(episodes[place:]), "no row"))
    except DatasetError as error:
        broken = error
    found = list(_altered(name, labels, digests, sealed))
    if broken is not None:
        reached = [f"row {len(digests)}", *episodes[len(digests) : len(digests) + 1]]
        place_of_it = f"{name}, {', '.join(reached)} and what follows"
        found.append(Damage(what=broken.what, place=place_of_it, found=broken.found))
    else:
        found += _missing(name, labels, digests, sealed)
    expected = (
        list(sealed) if is_audit else [d for _, d in sorted(zip(labels, digests, strict=True))]
    )
    yield from found or _moved(name, labels, digests, expected)


def _label(line: bytes, columns: tuple[str, ...]) -> str | None:
    """What a line calls itself; None if it is no row."""
    try:
        row = row_of(line, columns)
    except ValueError:
        return None
    return f"{'episode' if columns[0] == 'episode_id' else 'record'} {row[columns[0]][:200]}"


def _altered(
    name: str, labels: Sequence[str], digests: Sequence[str], sealed: Mapping[str, str]
) -> Iterator[Damage]:
    """Rows that were not sealed, and those that stand there twice; ``sealed`` are the labels by digest."""
    by_label = {label: digest for digest, label in sealed.items()}
    first_place: dict[str, int] = {}
    for place, (label, digest) in enumerate(zip(labels, digests, strict=True)):
        where = f"{name}, row {place}, {label}"
        if digest in first_place:
            yield Damage(
                what="a row of the dataset stands there twice",
                place=where,
                found=f"the same as row {first_place[digest]}",
            )
        elif digest not in sealed:
            original = by_label.get(label)
            yield Damage(
                what=f"a row of the dataset was altered{' or added' * (original is None)}",
                place=where,
                found=f"SHA-256 {digest}",
                expected=f"SHA-256 {original}" if original else "one of the rows that were sealed",
            )
        first_place.setdefault(digest, place)


def _missing(
    name: str, labels: Sequence[str], digests: Sequence[str], sealed: Mapping[str, str]
) -> Iterator[Damage]:
    there = {*labels, *(sealed[digest] for digest in digests if digest in sealed)}
    for digest, label in sealed.items():
        if label not in there:
            yield Damage(
                what="a row of the dataset is missing",
                place=f"{name}, {label}",
                expected=f"a row with SHA-256 {digest}",
            )


def _moved(
    name: str, labels: Sequence[str], digests: Sequence[str], expected: Sequence[str]
) -> Iterator[Damage]:
    """Rows that are all there, but not in the order of the seal; policy rows are sorted by their record."""
    places = {digest: place for place, digest in enumerate(expected)}
    for place, digest in enumerate(digests):
        if expected[place] != digest:
            yield Damage(
                what="a row of the dataset is not in its place",
                place=f"{name}, row {place}, {labels[place]}",
                expected=f"row {places[digest]}",
            )
