"""Check whether a dataset is as it was sealed, and if not, find the altered file, and the altered row in it.

This replays nothing and checks no signature. The seal holds the manifest in full and digests of every file, the
manifest holds a hash of itself, and the leaves have a digest and Merkle roots in the seal: whatever disagrees with the
others was altered. Consistent changes to all of them leave no trace but another root hash; signatures
(:mod:`vcrt.records.sealing.envelopes`) and the replay (:mod:`vcrt.datasets.agreement`) protect against them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

from securesystemslib.dsse import Envelope

from vcrt.documents import read_limited, strict_json
from vcrt.errors import AlteredError, DatasetError
from vcrt.forms import in_a_line
from vcrt.hashing import sha256_hex
from vcrt.records.audit import AUDIT_COLUMNS
from vcrt.records.dataset import POLICY_COLUMNS, not_a_dataset
from vcrt.records.manifest import (
    AGREEMENT,
    LEAVES,
    MANIFEST,
    MAX_BYTES,
    REMEDY,
    SEAL,
    Agreement,
    Damage,
    Manifest,
    altered_file,
    audit_name,
    foreign_entries,
    full_agreement,
    kinds_of_entries,
    manifest_from_bytes,
    model_bytes,
    policy_name,
    require_format,
)
from vcrt.records.rows import read_lines, row_of
from vcrt.records.sealing.envelopes import envelope_from_bytes
from vcrt.records.sealing.statement import (
    Leaf,
    Statement,
    by_environment,
    derived_leaves,
    leaves_from_bytes,
    statement_from_bytes,
    statement_of,
)

#: The most altered places that an error names.
NAMED = 12
_WHAT = {
    MANIFEST: "the manifest was altered",
    LEAVES: "the list of leaves was altered",
    SEAL: "the seal was altered",
    AGREEMENT: "the agreement record was altered",
}
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Sealed:
    """The readable and trusted parts of a dataset's own files, and the damage that was found.

    ``manifest`` is the one in the seal, or the one in its own file if the seal is damaged. ``leaves`` are those of
    their file; None if they are not the sealed ones.
    """

    manifest: Manifest | None
    envelope: Envelope | None
    leaves: tuple[Leaf, ...] | None
    damage: tuple[Damage, ...]


def examine_integrity(path: Path) -> Sealed:
    """Compare everything in a dataset's folder.

    Raise :class:`DatasetError` if there is no dataset, or one of another format.
    """
    if not (path / MANIFEST).is_file() and not (path / SEAL).is_file():
        raise not_a_dataset(path)
    kinds = kinds_of_entries(path)
    sealed = read_sealed(path)
    if sealed.manifest is None:
        return replace(sealed, damage=(*foreign_entries(kinds, kinds), *sealed.damage))
    files = _files_of(sealed.manifest)
    own = {MANIFEST, LEAVES, SEAL} | ({AGREEMENT} & set(kinds))
    damage = [*foreign_entries(kinds, own | set(files)), *sealed.damage]
    leaves = by_environment(sealed.leaves or ())
    for name, (environment, columns) in files.items():
        if kinds.get(name) != "file":
            continue
        altered = altered_file(path, name, sealed.manifest.files[name])
        if altered is not None:
            rows: list[Damage] = []
            if sealed.leaves is not None:
                rows += damaged_rows(path / name, name, columns, leaves.get(environment, ()))
            damage += rows or [altered]
    if not damage and sealed.leaves is not None:
        damage += _underived(path, sealed.leaves, sealed.manifest)
    return replace(sealed, damage=tuple(damage))


def require_integrity(path: Path) -> tuple[Envelope, tuple[Leaf, ...]]:
    """Return the seal's envelope and the leaves; raise :class:`AlteredError` naming the altered parts, if any."""
    found = examine_integrity(path)
    if not found.damage:
        # A missing or unreadable file is damage.
        assert found.envelope is not None
        assert found.leaves is not None
        return found.envelope, found.leaves
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


def read_sealed(path: Path) -> Sealed:
    """Read the dataset's own files and compare them with one another; do not report missing files.

    Raise :class:`DatasetError` for a manifest of another format that no seal contradicts.
    """
    damage: list[Damage] = []

    def read(name: str, parse: Callable[[bytes], _T]) -> _T | None:
        """Return a file's content; None if it is missing or damaged."""
        file = path / name
        if not file.is_file() or file.is_symlink():
            return None
        try:
            return parse(read_limited(file, MAX_BYTES[name]))
        except ValueError as error:
            damage.append(Damage(what=_WHAT[name], place=name, found=in_a_line(error)))
            return None

    envelope = statement = manifest = None
    if (seal := read(SEAL, partial(open_seal, where=path / SEAL))) is not None:
        envelope, statement = seal
        manifest = statement.manifest
        read(MANIFEST, partial(_require_sha256, expected=sha256_hex(model_bytes(manifest))))
    elif (value := read(MANIFEST, strict_json)) is not None:
        _require_format_if_any(value, path / MANIFEST)
        manifest = read(MANIFEST, partial(manifest_from_bytes, where=path / MANIFEST))
    leaves = read(LEAVES, leaves_from_bytes)
    if leaves is not None and statement is not None:
        contradiction = _contradiction(statement, leaves)
        damage += contradiction
        leaves = None if any(one.place == LEAVES for one in contradiction) else leaves
    read(AGREEMENT, partial(_require_full_agreement, manifest))
    return Sealed(manifest=manifest, envelope=envelope, leaves=leaves, damage=tuple(damage))


def open_seal(data: bytes, where: Path) -> tuple[Envelope, Statement]:
    """Return the envelope of a seal and its statement; raise as the readers of both do."""
    envelope = envelope_from_bytes(data)
    return envelope, statement_from_bytes(envelope.payload, where)


def _require_format_if_any(value: object, where: Path) -> None:
    try:
        manifest = Manifest.model_validate(value)
    except ValueError:
        return
    require_format(manifest, where)


def _require_sha256(data: bytes, expected: str) -> None:
    if sha256_hex(data) != expected:
        raise ValueError(f"SHA-256 {sha256_hex(data)}, and not {expected}")


def _require_full_agreement(manifest: Manifest | None, data: bytes) -> None:
    if manifest is None:
        return
    guards = Agreement.model_validate(strict_json(data)).guards
    _require_sha256(data, sha256_hex(model_bytes(full_agreement(manifest).guarded(guards))))


def _contradiction(statement: Statement, leaves: Sequence[Leaf]) -> list[Damage]:
    """Return what the leaves show to be altered: the leaves, if digest and trees both differ, or else the seal."""
    right = statement_of(statement.manifest, leaves)
    same = (right.leaves_sha256 == statement.leaves_sha256, right.trees == statement.trees)
    if all(same):
        return []
    name = SEAL if any(same) else LEAVES
    found, expected = f"SHA-256 {right.leaves_sha256}", f"SHA-256 {statement.leaves_sha256}"
    if name == SEAL:
        found, expected = "Merkle roots and a digest of different leaves", "those of one list"
    return [Damage(what=_WHAT[name], place=name, found=found, expected=expected)]


def _files_of(manifest: Manifest) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return the files of a manifest's environments, with the environment and columns of each."""
    return {
        part(name): (name, columns)
        for name in sorted(manifest.counts)
        for part, columns in ((audit_name, AUDIT_COLUMNS), (policy_name, POLICY_COLUMNS))
    }


def _underived(path: Path, leaves: Sequence[Leaf], manifest: Manifest) -> Iterator[Damage]:
    """Yield the differences between the leaves and those derived from the unaltered files' rows."""
    try:
        derived = derived_leaves(path, manifest)
    except DatasetError as error:
        yield Damage(what=error.what, place=error.where or MANIFEST, found=error.found)
        return
    for place, (right, found) in enumerate(zip_longest(derived, leaves), start=1):
        if right != found:
            episode = (right or leaves[place - 1]).episode
            yield Damage(
                what="a sealed leaf is not that of its certificate",
                place=f"{LEAVES}, line {place}, episode {episode}",
                found=None if found is None else found.data().decode(),
                expected="no leaf" if right is None else right.data().decode(),
            )


def damaged_rows(
    path: Path, name: str, columns: tuple[str, ...], leaves: Sequence[Leaf]
) -> list[Damage]:
    """Return the differences between the rows of file ``name`` at ``path`` and its environment's sealed ``leaves``.

    The file is known to be wrong, and is read as far as possible. Digests identify rows: the place names a row that was
    not sealed or is repeated, the episode a missing one.
    """
    is_audit = columns[0] == "episode_id"
    sealed = {leaf.audit if is_audit else leaf.policy: leaf.episode for leaf in leaves}
    # By place; the rows of a policy file have another order.
    in_place = list(sealed) if is_audit else []
    missing = dict(sealed)
    found: list[Damage] = []
    rows: list[tuple[str, str]] = []
    try:
        for place, line in enumerate(read_lines(path)):
            digest = sha256_hex(line)
            rows.append((_label(line, columns), digest))
            if missing.pop(digest, None) is None:
                expected = next(iter(in_place[place : place + 1]), "of a sealed row, each once")
                found.append(
                    Damage(
                        what="a row of the dataset was altered, added or repeated",
                        place=f"{name}, row {place}, {rows[-1][0]}",
                        found=f"SHA-256 {digest}",
                        expected=f"SHA-256 {expected}",
                    )
                )
    except DatasetError as error:
        place_of_it = f"{name}, row {len(rows)} and what follows"
        return [*found, Damage(what=error.what, place=place_of_it, found=error.found)]
    found += [
        Damage(
            what="a row of the dataset is missing, or was altered",
            place=f"{name}, the row of episode {episode}",
            expected=f"SHA-256 {digest}",
        )
        for digest, episode in missing.items()
    ]
    if found:
        return found
    expected_order = in_place or [digest for _, digest in sorted(rows)]
    places = {digest: place for place, digest in enumerate(expected_order)}
    return [
        Damage(
            what="a row of the dataset is not in its place",
            place=f"{name}, row {place}, {label}",
            expected=f"row {places[digest]}",
        )
        for place, (label, digest) in enumerate(rows)
        if places[digest] != place
    ]


def _label(line: bytes, columns: tuple[str, ...]) -> str:
    """Return a line's own name."""
    try:
        name = row_of(line, columns)[columns[0]][:200]
    except ValueError:
        return "no row"
    return f"{'episode' if columns[0] == 'episode_id' else 'record'} {name}"
