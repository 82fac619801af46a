"""Write and read a single certificate: a JSON document with an episode, its verifier's answers and what they certify.

A document may come from anywhere, so reading one trusts nothing: it checks size, depth, types and digest, derives
everything that follows from the replays again, and requires equality. It does not check whether a verifier gives these
replays (see :mod:`vcrt.datasets.examination`); no replay can tell where the episode came from.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import FailFast, Field, ValidationError

from vcrt.certificates.episodes import CertifiedEpisode, Exclusion, Preset, certify_episode
from vcrt.documents import MAX_BYTES, read_limited, strict_json
from vcrt.environments.contract import Versions
from vcrt.errors import DatasetError, MalformedInputError
from vcrt.forms import Strict, first_error
from vcrt.hashing import Json, canonical_json, json_digest
from vcrt.limits import MAX_EXHAUSTIVE, MAX_OPERATIONS
from vcrt.records.audit import CrossCheckForm, EpisodeForm, ReplayForm, VersionsForm, evidence_of
from vcrt.replay.evidence import (
    Evidence,
    certified_documents,
    cross_checks_from_json,
    episode_from_json,
)

FORMAT = "vcrt-certificate/1"
#: The format for an episode of too many operations for a replay of every order.
LONG_FORMAT = "vcrt-long-certificate/1"
EXCLUSION_FORMAT = "vcrt-exclusion/1"
_REMEDY = "get the original again, or make a new one with `vcrt show EPISODE --json`"


class _AnyDocument(Strict):
    """The types of a document's given fields; the fields that follow from them are compared one by one.

    ``num_operations`` is None if any number was allowed.
    """

    format: str
    sampled: bool = False
    orbit_size: Annotated[int, Field(ge=1)] | None
    episode: EpisodeForm
    versions: VersionsForm
    relations: list[Any]
    cross_checks: Annotated[list[CrossCheckForm], FailFast()]
    sha256: str


class _Document(_AnyDocument):
    """A document of an episode of which every order was replayed."""

    num_operations: Annotated[int, Field(ge=2, le=MAX_EXHAUSTIVE)] | None
    replays: Annotated[list[ReplayForm], FailFast()]
    certificates: list[Any]
    orbit: list[Any]


class _LongDocument(_AnyDocument):
    """A document of a long episode; the tree of its replays has a reader of its own."""

    num_operations: Annotated[int, Field(gt=MAX_EXHAUSTIVE, le=MAX_OPERATIONS)] | None
    replays: dict[str, Any]
    certificates: dict[str, Any]
    orbit: dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class SealedCertificate:
    """A document that was read: the certified episode, the preset that it meets, and the document's digest."""

    certified: CertifiedEpisode
    preset: Preset
    sha256: str


def certificate_document(certified: CertifiedEpisode, preset: Preset) -> dict[str, Json]:
    """Return the document of a certified episode; ``sha256`` is of the canonical JSON of all other fields."""
    return _sealed(
        {
            "format": format_of(certified.episode.num_operations),
            **_preset_json(preset),
            **certified_documents(certified),
        },
    )


def format_of(num_operations: int) -> str:
    """Return the format of a certificate's document, by its episode's number of operations."""
    return LONG_FORMAT if num_operations > MAX_EXHAUSTIVE else FORMAT


def exclusion_document(
    exclusion: Exclusion, evidence: Evidence, versions: Versions, preset: Preset
) -> dict[str, Json]:
    """Return the replays of an excluded episode and the reason for its exclusion; this is no certificate."""
    why: dict[str, Json] = {"kind": exclusion.kind, "detail": exclusion.detail}
    return _sealed(
        {
            "format": EXCLUSION_FORMAT,
            **_preset_json(preset),
            "exclusion": why,
            "versions": versions.to_json(),
            **evidence.to_json(),
        }
    )


def document_text(document: Mapping[str, Json]) -> str:
    """Return indented JSON in ASCII, equal for equal content; white space does not enter the digest."""
    return json.dumps(document, indent=2, sort_keys=True)


def read_certificate(path: Path) -> SealedCertificate:
    """Read a document and derive what it certifies; raise :class:`DatasetError` naming a field that is wrong.

    It accepts every replay as it stands, without asking the verifier.
    """
    return certificate_of(_read_json(path), path)


def certificate_of(value: dict[str, Any], path: Path) -> SealedCertificate:
    """Check the JSON ``value`` as :func:`read_certificate` does; errors name its place as ``path``."""
    _require_form(value, path)
    found = str(value["sha256"])
    expected = json_digest({name: part for name, part in value.items() if name != "sha256"})
    if found != expected:
        raise DatasetError(
            "the certificate was changed after it was made",
            where=f"{path}, field sha256",
            found=short(found),
            expected=f"{expected}, the digest of its other fields",
            remedy=_REMEDY,
        )
    try:
        replays = evidence_of(episode_from_json(value["episode"]), value["replays"])
    except MalformedInputError as error:
        field = error.where if error.where and "." in error.where else "replays"
        found = error.found or error.what
        raise _malformed(path, field, found, error.expected) from error
    preset = Preset(
        num_operations=value["num_operations"],
        orbit_size=value["orbit_size"],
        sampled=value.get("sampled", False),
    )
    versions = Versions(**value["versions"])
    cross_checks = cross_checks_from_json(value["cross_checks"])
    outcome = certify_episode(replays, versions, preset, cross_checks)
    if isinstance(outcome, Exclusion):
        raise DatasetError(
            "the certificate's replays do not certify its episode",
            where=f"{path}, field replays",
            found=f"{outcome.kind}: {outcome.detail}",
            expected=preset.text,
            remedy=_REMEDY,
        )
    derived = certificate_document(outcome, preset)
    difference = first_difference(value, derived)
    if difference is not None:
        raise DatasetError(
            "the certificate says other things than its own replays give",
            where=f"{path}, field {difference.name}{_which(difference, derived)}",
            found=difference.found,
            expected=difference.expected,
            remedy=_REMEDY,
        )
    return SealedCertificate(certified=outcome, preset=preset, sha256=found)


def in_words(context: Iterable[int]) -> str:
    """Return the steps that ran before, in order, as ``nothing``, ``0`` or ``0 2``."""
    return " ".join(map(str, context)) or "nothing"


def after(context: Collection[int]) -> str:
    """Say when: ``at the start``, ``after 0`` or ``after 0 2``."""
    return f"after {in_words(context)}" if context else "at the start"


def _which(difference: Difference, derived: Mapping[str, Any]) -> str:
    """Return the pair and context of a certificate, in words."""
    match difference.field:
        case ("certificates", int(index), *_) if index < len(derived["certificates"]):
            certificate = derived["certificates"][index]
            one, other = certificate["forward"]["operations"]
            return f" (steps {one} and {other} {after(certificate['context'])})"
    return ""


def _preset_json(preset: Preset) -> dict[str, Json]:
    value: dict[str, Json] = {
        "num_operations": preset.num_operations,
        "orbit_size": preset.orbit_size,
    }
    return {**value, "sampled": True} if preset.samples else value


def _sealed(document: dict[str, Json]) -> dict[str, Json]:
    return {**document, "sha256": json_digest(document)}


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = strict_json(read_limited(path, MAX_BYTES, may_be_pipe=True))
    except ValueError as error:
        raise _malformed(path, "(root)", str(error)) from error
    if not isinstance(value, dict):
        raise _malformed(path, "(root)", f"JSON, but a {type(value).__name__} and no object")
    return value


def _require_form(value: dict[str, Any], path: Path) -> None:
    if value.get("format") == EXCLUSION_FORMAT:
        raise DatasetError(
            "not a certificate: the episode was left out of certification",
            where=str(path),
            found=EXCLUSION_FORMAT,
            expected=FORMAT,
            remedy="`vcrt show` with the episode's name says why",
        )
    form = _LongDocument if value.get("format") == LONG_FORMAT else _Document
    try:
        form.model_validate(value)
    except ValidationError as error:
        field, message = first_error(error)
        raise _malformed(path, field, message) from error
    if value["num_operations"] is None and value["orbit_size"] is not None:
        raise _malformed(
            path, "orbit_size", short(value["orbit_size"]), "null, as num_operations is"
        )
    if value["format"] not in (FORMAT, LONG_FORMAT):
        raise _malformed(path, "format", short(value["format"]), FORMAT)


def _malformed(path: Path, field: str, found: str, expected: str | None = None) -> DatasetError:
    return DatasetError(
        "the certificate does not have the documented form",
        where=f"{path}, field {field}",
        found=found,
        expected=expected or f"a document of format {FORMAT}",
        remedy=_REMEDY,
    )


@dataclass(frozen=True, slots=True)
class Difference:
    """The first field in which two JSON values differ, and both values as short text."""

    field: tuple[str | int, ...]
    found: str
    expected: str

    @property
    def name(self) -> str:
        """The field as ``replays[3].rejection``."""
        text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.field)
        return text.removeprefix(".")


def first_difference(
    found: Json, expected: Json, field: tuple[str | int, ...] = ()
) -> Difference | None:
    """Return the first field, in the order of ``expected``, in which two JSON values differ; None if they are equal."""
    ours, theirs = children(found), children(expected)
    if (
        ours is None
        or theirs is None
        or isinstance(found, Mapping) != isinstance(expected, Mapping)
    ):
        # Compare bytes: in Python, True and 1.0 equal 1.
        if canonical_json(found) == canonical_json(expected):
            return None
        return Difference(field, short(found), short(expected))
    for name in dict.fromkeys((*theirs, *ours)):
        inner = (*field, name)
        if name not in ours:
            return Difference(inner, "nothing", short(theirs[name]))
        if name not in theirs:
            return Difference(inner, short(ours[name]), "nothing")
        difference = first_difference(ours[name], theirs[name], inner)
        if difference is not None:
            return difference
    return None


def short(value: Json) -> str:
    """Return a value as canonical JSON, cut to 160 characters."""
    text = canonical_json(value).decode()
    return text if len(text) <= 160 else f"{text[:160]}..."


def children(value: Json) -> dict[str | int, Json] | None:
    """Return the values in a list or an object, by place or name; None for any other value."""
    if not isinstance(value, (Mapping, list, tuple)):
        return None
    items: Iterable[tuple[str | int, Json]]
    items = value.items() if isinstance(value, Mapping) else enumerate(value)
    return dict(items)
