"""Reading a dataset's manifest, leaves, seal and agreement record, and telling which of them was altered.

The seal holds the manifest in full and a digest of every file, the manifest holds a hash of itself, and the leaves have
a digest and Merkle roots in the seal: for each of these files, two others say what is in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from vcrt.documents import in_a_line, read_limited, strict_json
from vcrt.hashing import Json, canonical_json, sha256_hex
from vcrt.records.differences import first_difference
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
from vcrt.records.rows import SUFFIX
from vcrt.records.sealing.dsse import Envelope, envelope_from_bytes
from vcrt.records.sealing.leaves import Leaf, leaves_from_bytes
from vcrt.records.sealing.row_damage import Damage
from vcrt.records.sealing.statement import PAYLOAD_TYPE, Statement, statement_of, trees_of

_SEAL = "the seal was altered"
_MANIFEST = "the manifest was altered"
_LEAVES = "the list of leaves was altered"
_AGREEMENT = "the agreement record was altered"
_WHAT = {MANIFEST: _MANIFEST, LEAVES: _LEAVES, SEAL: _SEAL, AGREEMENT: _AGREEMENT}


@dataclass(kw_only=True, slots=True)
class Sealed:
    """What could be read and trusted of a dataset's own files, and the damage to them.

    ``committed`` is the manifest that the seal holds, or that of its own file if the seal is damaged and the file is
    not. ``leaves`` are those of their file, if they can be read; ``leaves_hold`` says whether they are those that were
    sealed.
    """

    #: The bytes of ``manifest.json``, whatever they are.
    manifest: bytes | None = None
    envelope: Envelope | None = None
    committed: Manifest | None = None
    leaves: tuple[Leaf, ...] | None = None
    leaves_hold: bool = False
    damage: list[Damage] = field(default_factory=list)


def read_sealed(path: Path) -> Sealed:
    """Read the dataset's own files and compare them with one another; what is missing is left to others to name."""
    sealed = Sealed()
    manifest, leaves_data, seal, agreement = (
        _read(path, name, what, sealed.damage) for name, what in _WHAT.items()
    )
    sealed.manifest = manifest
    statement = None
    if seal is not None:
        try:
            sealed.envelope, statement = sealed_statement(seal)
        except ValueError as error:
            sealed.damage.append(Damage(what=_SEAL, place=SEAL, found=str(error)))
    own = _own_manifest(manifest)
    held = None if statement is None else held_manifest(statement)
    sealed.committed = held or own
    leaves = _own_leaves(leaves_data)
    if statement is not None:
        sealed.damage += _seal_damage(statement, held, own, leaves, leaves_data)
    if manifest is not None and (held is not None or own is None):
        sealed.damage += _manifest_damage(manifest, held)
    if leaves_data is not None:
        sealed.damage += _leaves_damage(leaves_data, leaves, statement)
    if isinstance(leaves, tuple):
        sealed.leaves = leaves
        sealed.leaves_hold = not any(one.place.startswith(LEAVES) for one in sealed.damage)
    if agreement is not None and sealed.committed is not None:
        sealed.damage += _agreement_damage(agreement, sealed.committed)
    return sealed


def _read(path: Path, name: str, what: str, damage: list[Damage]) -> bytes | None:
    """A file's bytes; None if there is no such file, or if it is too large to be one of a dataset: that is damage."""
    file = path / name
    if not file.is_file() or file.is_symlink():
        return None
    try:
        return read_limited(file, MAX_BYTES[name])
    except ValueError as error:
        damage.append(Damage(what=what, place=name, found=str(error)))
        return None


@lru_cache(maxsize=4)
def _own_manifest(data: bytes | None) -> Manifest | None:
    """The manifest that a text is, if that is in itself consistent and in the form in which it is written."""
    if data is None:
        return None
    try:
        manifest = Manifest.model_validate(strict_json(data))
        whole = model_bytes(manifest) == data and _is_consistent(manifest)
    # A number that is not finite is written and read, but has no hash.
    except ValueError:
        return None
    return manifest if whole else None


def _is_consistent(manifest: Manifest) -> bool:
    environments = sorted(manifest.counts)
    files = sorted(
        f"{view}/{name}{SUFFIX}" for view in ("audit", "policy") for name in environments
    )
    return (
        manifest.format == FORMAT
        and manifest.computed_root_hash() == manifest.root_hash
        and sorted(manifest.files) == sorted(manifest.content) == files
        and not any("/" in name or name.startswith(".") for name in environments)
    )


def _own_leaves(data: bytes | None) -> tuple[Leaf, ...] | ValueError | None:
    if data is None:
        return None
    try:
        return leaves_from_bytes(data)
    except ValueError as error:
        return error


def sealed_statement(data: bytes) -> tuple[Envelope, dict[str, Any]]:
    """The envelope of a seal and the statement in it; raises ``ValueError`` for what is not of the documented form."""
    envelope = envelope_from_bytes(data)
    if envelope.payload_type != PAYLOAD_TYPE:
        raise ValueError(f"payloadType {envelope.payload_type}, and not {PAYLOAD_TYPE}")
    return envelope, _statement_value(envelope.payload)


def _statement_value(payload: bytes) -> dict[str, Any]:
    """The statement that a payload holds; raises ``ValueError`` with the field that is not of the documented form."""
    try:
        value: dict[str, Any] = strict_json(payload)
        if canonical_json(value) != payload:
            raise ValueError("not canonical JSON")
        Statement.model_validate(value)
    except ValidationError as error:
        raise ValueError(f"payload, {in_a_line(error)}") from error
    except ValueError as error:
        raise ValueError(f"payload: {error}") from error
    return value


def held_manifest(statement: Mapping[str, Any]) -> Manifest | None:
    """The manifest that the statement holds, if all that the statement says of it agrees with it."""
    held = _own_manifest(statement["predicate"]["manifest"].encode())
    if held is None or _without_leaves(statement) != _without_leaves(statement_of(held, ())):
        return None
    return held


def _without_leaves(statement: Mapping[str, Any]) -> bytes:
    """What a statement says, apart from what it says of the leaves, as bytes."""
    subject = [one for one in statement["subject"] if one["name"] != LEAVES]
    predicate = {name: v for name, v in statement["predicate"].items() if name != "merkle"}
    return canonical_json({**statement, "subject": subject, "predicate": predicate})


def _seal_damage(
    statement: Mapping[str, Any],
    held: Manifest | None,
    own: Manifest | None,
    leaves: tuple[Leaf, ...] | ValueError | None,
    leaves_data: bytes | None,
) -> Iterator[Damage]:
    """Where the statement contradicts itself, or alone contradicts all others."""
    true = held or own
    if true is None:
        yield Damage(what=_SEAL, place=SEAL, found="a statement that contradicts itself")
        return
    known = leaves if isinstance(leaves, tuple) else ()
    expected = _plain(statement_of(true, known))
    found = _plain(statement)
    if not _leaves_fault_is_the_seals(found, expected, leaves, leaves_data):
        # What it says of the leaves is right, or they are wrong: either way no fault of the seal.
        expected["subject"] = {**expected["subject"], LEAVES: found["subject"].get(LEAVES)}
        expected["predicate"] = {
            **expected["predicate"],
            "merkle": found["predicate"]["merkle"],
        }
    if canonical_json(found) != canonical_json(expected):
        yield _first_damage(_SEAL, SEAL, found, expected)


def _plain(statement: Mapping[str, Any]) -> dict[str, Any]:
    """A statement with its subjects by name and its manifest as JSON, if it is some, so that a difference has a name.

    What this hides (repeated subjects, spaces in the manifest) stands beside it, last.
    """
    names = [one["name"] for one in statement["subject"]]
    subject: dict[str, Json] = {
        one["name"]: {"digest": one["digest"]["sha256"], "place": index}
        for index, one in enumerate(statement["subject"])
    }
    predicate = statement["predicate"]
    text = predicate["manifest"]
    try:
        manifest: Json = strict_json(text.encode())
    except ValueError:
        manifest = text
    return {
        **statement,
        "subject": {**subject, "(names)": names},
        "predicate": {**predicate, "manifest": manifest, "(text)": text},
    }


def _leaves_fault_is_the_seals(
    found: Mapping[str, Any],
    expected: Mapping[str, Any],
    leaves: tuple[Leaf, ...] | ValueError | None,
    leaves_data: bytes | None,
) -> bool:
    """Whether digest and roots of the leaves are not both wrong: then one of the two was altered in the seal."""
    if not isinstance(leaves, tuple) or leaves_data is None:
        return False
    entry = found["subject"].get(LEAVES) or {}
    digest_holds = entry.get("digest") == sha256_hex(leaves_data)
    return digest_holds or found["predicate"]["merkle"] == expected["predicate"]["merkle"]


def _manifest_damage(data: bytes, held: Manifest | None) -> Iterator[Damage]:
    if held is not None and data == model_bytes(held):
        return
    try:
        value: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        yield Damage(what=_MANIFEST, place=MANIFEST, found=f"not JSON: {error}")
        return
    if held is None:
        yield Damage(what=_MANIFEST, place=MANIFEST, found="a manifest that contradicts itself")
        return
    try:
        yield _first_damage(_MANIFEST, MANIFEST, value, json.loads(model_bytes(held)))
    except ValueError as error:
        yield Damage(what=_MANIFEST, place=MANIFEST, found=str(error))


def _leaves_damage(
    data: bytes,
    leaves: tuple[Leaf, ...] | ValueError | None,
    statement: Mapping[str, Any] | None,
) -> Iterator[Damage]:
    if isinstance(leaves, ValueError):
        line = str(leaves).partition(":")[0]
        yield Damage(what=_LEAVES, place=f"{LEAVES}, {line}", found=str(leaves))
    elif statement is not None and leaves is not None:
        digest = (_plain(statement)["subject"].get(LEAVES) or {}).get("digest")
        wrong_roots = statement["predicate"]["merkle"] != trees_of(leaves)
        if wrong_roots and digest != sha256_hex(data):
            found, expected = f"SHA-256 {sha256_hex(data)}", f"SHA-256 {digest}"
            yield Damage(what=_LEAVES, place=LEAVES, found=found, expected=expected)


def _agreement_damage(data: bytes, committed: Manifest) -> Iterator[Damage]:
    expected = full_agreement(committed)
    try:
        found = strict_json(data)
        with suppress(ValidationError):
            expected = expected.guarded(Agreement.model_validate(found).guards)
        if data == model_bytes(expected):
            return
        yield _first_damage(_AGREEMENT, AGREEMENT, found, expected.model_dump())
    except (ValueError, RecursionError) as error:
        yield Damage(what=_AGREEMENT, place=AGREEMENT, found=f"not JSON: {error}")


def _first_damage(what: str, name: str, found: Any, expected: Any) -> Damage:
    """The first field that differs between two values, or that only their bytes do."""
    difference = first_difference(found, expected)
    if difference is None:
        return Damage(what=what, place=name, found="the same content in other bytes")
    return Damage(
        what=what,
        place=f"{name}, field {difference.name}",
        found=difference.found,
        expected=difference.expected,
    )
