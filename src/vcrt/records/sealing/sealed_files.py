"""Read a dataset's manifest, leaves, seal and agreement record, and tell which of them was altered.

The seal holds the manifest in full and a digest of every file, the manifest holds a hash of itself, and the leaves have
a digest and Merkle roots in the seal: for each of these files, two others say what is in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from vcrt.documents import in_a_line, read_limited, strict_json
from vcrt.hashing import Json, canonical_json
from vcrt.records.dataset import foreign_names
from vcrt.records.differences import first_difference
from vcrt.records.folder import Damage
from vcrt.records.manifest import (
    AGREEMENT,
    FORMAT,
    LEAVES,
    MANIFEST,
    MAX_BYTES,
    SEAL,
    Agreement,
    Manifest,
    full_agreement,
    model_bytes,
)
from vcrt.records.sealing.dsse import Envelope, envelope_from_bytes
from vcrt.records.sealing.leaves import Leaf, leaves_from_bytes
from vcrt.records.sealing.statement import PAYLOAD_TYPE, Statement, statement_of

_WHAT = {
    MANIFEST: "the manifest was altered",
    LEAVES: "the list of leaves was altered",
    SEAL: "the seal was altered",
    AGREEMENT: "the agreement record was altered",
}


@dataclass(kw_only=True, slots=True)
class Sealed:
    """What could be read and trusted of a dataset's own files, and the damage to them.

    ``manifest`` is what ``manifest.json`` holds, whatever that is. ``committed`` is the manifest that the seal holds,
    or that of its own file if the seal is damaged and the file is not. ``leaves`` are those of their file, if they can
    be read.
    """

    manifest: bytes | None = None
    envelope: Envelope | None = None
    committed: Manifest | None = None
    leaves: tuple[Leaf, ...] | None = None
    damage: list[Damage] = field(default_factory=list)

    @property
    def leaves_hold(self) -> bool:
        """Whether the leaves are those that were sealed."""
        return self.leaves is not None and not any(
            one.place.startswith(LEAVES) for one in self.damage
        )


def read_sealed(path: Path) -> Sealed:
    """Read the dataset's own files and compare them with one another; what is missing is left to others to name."""
    sealed = Sealed()
    data = {name: _read(path, name, sealed.damage) for name in _WHAT}
    sealed.manifest = data[MANIFEST]
    statement = None
    if (seal := data[SEAL]) is not None:
        try:
            sealed.envelope, statement = sealed_statement(seal)
        except ValueError as error:
            sealed.damage.append(_damage(SEAL, str(error)))
    own = _own_manifest(sealed.manifest)
    held = None if statement is None else held_manifest(statement)
    sealed.committed = held or own
    if (leaves := data[LEAVES]) is not None:
        try:
            sealed.leaves = leaves_from_bytes(leaves)
        except ValueError as error:
            line = str(error).partition(":")[0]
            sealed.damage.append(_damage(LEAVES, str(error), place=f"{LEAVES}, {line}"))
    if statement is not None:
        sealed.damage += _statement_damage(statement, sealed)
    if sealed.manifest is not None and own is None and held is None:
        sealed.damage.append(_damage(MANIFEST, "a manifest that contradicts itself"))
    if sealed.manifest is not None and held is not None:
        sealed.damage += _differs(MANIFEST, sealed.manifest, model_bytes(held))
    if (agreement := data[AGREEMENT]) is not None and sealed.committed is not None:
        expected = full_agreement(sealed.committed)
        with suppress(ValueError):
            expected = expected.guarded(Agreement.model_validate(strict_json(agreement)).guards)
        sealed.damage += _differs(AGREEMENT, agreement, model_bytes(expected))
    return sealed


def _read(path: Path, name: str, damage: list[Damage]) -> bytes | None:
    """A file's bytes; None if there is no such file, or if it is too large to be one of a dataset: that is damage."""
    file = path / name
    if not file.is_file() or file.is_symlink():
        return None
    try:
        return read_limited(file, MAX_BYTES[name])
    except ValueError as error:
        damage.append(_damage(name, str(error)))
        return None


@lru_cache(maxsize=4)
def _own_manifest(data: bytes | None) -> Manifest | None:
    """The manifest that a text is, if that is in itself consistent and in the form in which it is written."""
    if data is None:
        return None
    try:
        manifest = Manifest.model_validate(strict_json(data))
        whole = (
            model_bytes(manifest) == data
            and manifest.format == FORMAT
            and manifest.computed_root_hash() == manifest.root_hash
            and not foreign_names(manifest)
        )
    # A number that is not finite is written and read, but has no hash.
    except ValueError:
        return None
    return manifest if whole else None


def sealed_statement(data: bytes) -> tuple[Envelope, dict[str, Any]]:
    """The envelope of a seal and the statement in it; raises ``ValueError`` for what is not of the documented form."""
    envelope = envelope_from_bytes(data)
    if envelope.payload_type != PAYLOAD_TYPE:
        raise ValueError(f"payloadType {envelope.payload_type}, and not {PAYLOAD_TYPE}")
    try:
        value: dict[str, Any] = strict_json(envelope.payload)
        if canonical_json(value) != envelope.payload:
            raise ValueError("not canonical JSON")
        Statement.model_validate(value)
    except ValidationError as error:
        raise ValueError(f"payload, {in_a_line(error)}") from error
    except ValueError as error:
        raise ValueError(f"payload: {error}") from error
    return envelope, value


def held_manifest(statement: Mapping[str, Any]) -> Manifest | None:
    """The manifest that the statement holds, if all that the statement says of it agrees with it."""
    held = _own_manifest(statement["predicate"]["manifest"].encode())
    if held is None:
        return None
    said, right = (_without_leaves(one) for one in (statement, statement_of(held, ())))
    return held if canonical_json(said) == canonical_json(right) else None


def _without_leaves(statement: Mapping[str, Any]) -> dict[str, Any]:
    """What a statement says, but for what it says of the leaves; its manifest as JSON, so that its fields have names.

    What that hides, spaces in the manifest, stands beside it.
    """
    predicate = {name: v for name, v in statement["predicate"].items() if name != "merkle"}
    with suppress(ValueError):
        text = predicate["manifest"]
        predicate |= {"manifest": strict_json(text), "(text)": text}
    subject = [one for one in statement["subject"] if one["name"] != LEAVES]
    return {**statement, "subject": subject, "predicate": predicate}


def _statement_damage(statement: Mapping[str, Any], sealed: Sealed) -> Iterator[Damage]:
    """Where the statement contradicts itself, or alone contradicts all others; and whether the leaves contradict it."""
    if sealed.committed is None:
        yield _damage(SEAL, "a statement that contradicts itself")
        return
    leaves = sealed.leaves
    expected = statement_of(sealed.committed, leaves or ())
    found, right = _of_leaves(statement), _of_leaves(expected)
    wrong = [] if leaves is None else [name for name in right if found[name] != right[name]]
    if len(wrong) == len(right):
        # Digest and roots are both those of other leaves: the seal is not what was altered.
        name = "subject"
        yield _damage(LEAVES, f"SHA-256 {right[name]}", f"SHA-256 {found[name]}")
    elif wrong:
        yield from _differ(SEAL, found, right)
    without, right_without = _without_leaves(statement), _without_leaves(expected)
    if canonical_json(without) != canonical_json(right_without):
        yield from _differ(SEAL, without, right_without)
    elif leaves is not None and not wrong and statement != expected:
        yield _damage(SEAL, "the same content in another order")


def _of_leaves(statement: Mapping[str, Any]) -> dict[str, Any]:
    """The two things that a statement says of the leaves: the digest of their file, and their Merkle trees."""
    digests = [one["digest"]["sha256"] for one in statement["subject"] if one["name"] == LEAVES]
    return {
        "subject": ", ".join(digests),
        "predicate": {"merkle": statement["predicate"]["merkle"]},
    }


def _differs(name: str, found: bytes, expected: bytes) -> Iterator[Damage]:
    """The first field in which two JSON texts differ, or that only their bytes do."""
    if found == expected:
        return
    try:
        value = strict_json(found)
    except ValueError as error:
        yield _damage(name, f"not JSON: {error}")
        return
    yield from _differ(name, value, strict_json(expected))


def _differ(name: str, found: Json, expected: Json) -> Iterator[Damage]:
    difference = first_difference(found, expected)
    if difference is None:
        yield _damage(name, "the same content in other bytes")
    else:
        place = f"{name}, field {difference.name}"
        yield _damage(name, difference.found, difference.expected, place=place)


def _damage(
    name: str, found: str, expected: str | None = None, *, place: str | None = None
) -> Damage:
    return Damage(what=_WHAT[name], place=place or name, found=found, expected=expected)
