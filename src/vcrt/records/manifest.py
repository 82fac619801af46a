"""Define, hash and read the manifest and the agreement record of a frozen dataset, and compare its folder with them.

:mod:`vcrt.records.dataset` reads the files that a manifest commits to.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, FailFast, Field, ValidationError, model_validator

from vcrt.certificates.episodes import PRESETS, Preset
from vcrt.documents import is_plain_name, read_limited, strict_json
from vcrt.errors import DatasetError
from vcrt.forms import ClosedModel, first_error
from vcrt.hashing import Json, file_digest, json_digest
from vcrt.records.record_form import PLAIN_FORM, RecordForm
from vcrt.records.rows import SUFFIX

FORMAT = "vcrt-dataset/3"
#: The format with Parquet rows. The root hash keeps its format and file names, since it covers the content alone.
_PARQUET_FORMAT, _PARQUET = "vcrt-dataset/2", ".parquet"
MANIFEST, AGREEMENT = "manifest.json", "agreement.json"
#: Files that follow from the manifest and the rows: their leaves, and the sealed statement about everything.
LEAVES, SEAL = "leaves.jsonl", "seal.json"
#: The files of every dataset besides its rows.
OWN_FILES = (MANIFEST, LEAVES, SEAL, AGREEMENT)
#: The most bytes of each that are read: many times those of a dataset of 75,000 episodes. A leaf has about 300 bytes;
#: the others grow with the schemas alone, and the seal holds the manifest twice, in base64.
MAX_BYTES = {MANIFEST: 4 * 2**20, LEAVES: 128 * 2**20, SEAL: 16 * 2**20, AGREEMENT: 2**20}

_Model = TypeVar("_Model", bound=BaseModel)
REMEDY = "restore the original, or make the dataset again with `vcrt certify`"


def audit_name(environment: str) -> str:
    """Return the path of an environment's audit file within a dataset."""
    return f"audit/{environment}{SUFFIX}"


def policy_name(environment: str) -> str:
    """Return the path of an environment's policy file within a dataset."""
    return f"policy/{environment}{SUFFIX}"


class EvidenceCounts(ClosedModel):
    """The replays of episodes with too many operations for a replay of every order.

    ``sequences`` were replayed. In ``complete`` of the episodes, these cover every reachable context. Over all pairs of
    steps, ``contexts`` counts the contexts that legal orders reach, and ``replayed`` those in which the pair was
    compared; ``contexts`` is None if they are not counted. Where contexts were sampled, ``classes`` counts the classes
    of orders with one representative replayed as a whole.
    """

    sequences: int
    complete: int
    replayed: int
    contexts: int | None
    classes: int


def legal_share(counts: Iterable[tuple[int | None, int]]) -> float | None:
    """Return the share of legal orders among all, from pairs of both numbers: the pass rate of a random order.

    Return None if a number of legal orders is unknown, or if there is no order.
    """
    known = list(counts)
    orders = sum(total for _, total in known)
    legal = [number for number, _ in known if number is not None]
    return sum(legal) / orders if orders and len(legal) == len(known) else None


class LengthCounts(ClosedModel):
    """The episodes of one number of operations, where a dataset has several.

    ``legal_orders`` is their total, None if they are not counted; ``all_legal`` counts the episodes without an
    anti-diamond, in which every order is legal.
    """

    episodes: int
    legal_orders: int | None
    all_legal: int


class SchemaCounts(ClosedModel):
    """The results of one schema's candidates. ``orders`` is the number of orders of its episodes.

    All of them were replayed, unless there is ``evidence``, which counts the replays. Then ``legal_orders`` are the
    orders that keep every certified relation, None if they are not counted.
    """

    left_out = ("evidence", "lengths")

    candidates: int
    episodes: int
    orders: int
    legal_orders: int | None
    relations: dict[str, int]
    exclusions: dict[str, int]
    evidence: EvidenceCounts | None = None
    lengths: dict[str, LengthCounts] | None = None
    """By number of operations; None where the dataset has only one."""

    @property
    def replays(self) -> int:
        """The number of replayed sequences (orders, for episodes with few operations)."""
        return self.orders if self.evidence is None else self.evidence.sequences


class CheckCounts(ClosedModel):
    """The comparisons of a second opinion, over all candidates, excluded ones too."""

    episodes: int
    disagreeing_episodes: int
    checked: int
    agreed: int
    disagreement_rate: float
    """The share of comparisons in which checker and verifier disagree; 0 if there were none."""


class FileEntry(ClosedModel):
    """A file's size in bytes and SHA-256."""

    size: int
    sha256: str


class Manifest(ClosedModel):
    """The manifest of a frozen dataset."""

    left_out = ("record_form", "sampled")

    format: str
    seed: int
    record_form: RecordForm = PLAIN_FORM
    """The form in which records state the relations; left out of the file if they state all of them."""
    num_operations: int | None
    """None if it varies; then the schemas' counts give the number of episodes of each length."""
    orbit_size: int | None
    """None if episodes have several anti-diamonds, or any number of them."""
    sampled: bool = False
    """Whether contexts were sampled although all could be replayed; left out of the file if not."""
    series: Annotated[list[dict[str, Any]], FailFast()]
    counts: dict[str, dict[str, SchemaCounts]]
    conformance: dict[str, dict[str, CheckCounts]]
    versions: dict[str, dict[str, Any]]
    content: dict[str, str]
    root_hash: str
    files: dict[str, FileEntry]

    @model_validator(mode="after")
    def _without_a_size_of_any_length(self) -> Manifest:
        if self.num_operations is None and self.orbit_size is not None:
            raise ValueError("orbit_size is null where num_operations is")
        return self

    @property
    def preset(self) -> Preset:
        """The preset that the dataset's episodes meet."""
        return Preset(
            num_operations=self.num_operations, orbit_size=self.orbit_size, sampled=self.sampled
        )

    @property
    def lengths(self) -> tuple[int, ...]:
        """The numbers of operations of its episodes, ascending."""
        if self.num_operations is not None:
            return (self.num_operations,)
        schemas = [some for by_schema in self.counts.values() for some in by_schema.values()]
        return tuple(sorted({int(n) for schema in schemas for n in schema.lengths or ()}))

    def num_all_legal(self, environments: Sequence[str]) -> tuple[int, int]:
        """Return in how many episodes of these environments every order is legal, and the number of episodes."""
        schemas = [some for name in environments for some in self.counts[name].values()]
        lengths = [some for schema in schemas for some in (schema.lengths or {}).values()]
        return sum(some.all_legal for some in lengths), sum(s.episodes for s in schemas)

    def computed_root_hash(self) -> str:
        """Return the root hash of everything in the manifest except the files' own names, sizes and digests."""
        value = self.model_dump(exclude={"root_hash", "files"})
        value["format"] = value["format"].replace(FORMAT, _PARQUET_FORMAT)
        value["content"] = {
            name.replace(SUFFIX, _PARQUET): digest for name, digest in self.content.items()
        }
        return json_digest(value)


class GuardsOf(ClosedModel):
    """The guards behind an environment's answers (see :class:`vcrt.environments.contract.Guards`)."""

    in_force: dict[str, str]
    absent: dict[str, str]
    checked_again: dict[str, int]


class Agreement(ClosedModel):
    """The outcome of replaying a whole dataset again in fresh processes, and its guards, by environment."""

    root_hash: str
    replays: int
    agreed: int
    episodes: int
    guards: dict[str, GuardsOf] = Field(default_factory=dict)
    #: SHA-256 of ``guards``, which were in force on one machine and follow from no other field.
    guards_digest: str

    def guarded(self, guards: dict[str, GuardsOf]) -> Agreement:
        """Return the same outcome behind these guards."""
        return self.model_copy(update={"guards": guards, "guards_digest": _digest_of(guards)})


def _digest_of(guards: dict[str, GuardsOf]) -> str:
    return json_digest({name: each.model_dump() for name, each in guards.items()})


def full_agreement(manifest: Manifest) -> Agreement:
    """Return the agreement record of this dataset if every replay agreed, without guards."""
    counts = [some for schemas in manifest.counts.values() for some in schemas.values()]
    total = sum(some.replays for some in counts)
    return Agreement(
        root_hash=manifest.root_hash,
        replays=total,
        agreed=total,
        episodes=sum(some.episodes for some in counts),
        guards_digest=_digest_of({}),
    )


def changed_since(where: Path, found: str, expected: str) -> DatasetError:
    """Return the error about something that changed after it was frozen, by the SHA-256 of both."""
    return DatasetError(
        "the dataset was changed after it was frozen",
        where=str(where),
        found=f"SHA-256 {found}",
        expected=f"SHA-256 {expected}",
        remedy=REMEDY,
    )


def manifest_from_bytes(data: bytes, where: Path) -> Manifest:
    """Read a manifest; raise :class:`DatasetError` if it contradicts itself or has another format.

    It must have the root hash of its own content, and name exactly two files for each environment, in their places.
    """
    manifest = model_from_bytes(Manifest, data, where)
    require_format(manifest, where)
    try:
        root_hash = manifest.computed_root_hash()
    # A number that is not finite can be written and read, but not hashed.
    except ValueError as error:
        raise _not_of_form(where, "(root)", str(error)) from error
    if root_hash != manifest.root_hash:
        raise changed_since(where, root_hash, manifest.root_hash[:200])
    odd = [name for name in manifest.counts if not is_plain_name(name)]
    own = {part(name) for name in manifest.counts for part in (audit_name, policy_name)}
    if foreign := odd or sorted((set(manifest.files) ^ own) | (set(manifest.content) ^ own)):
        raise DatasetError(
            "the manifest names files that no dataset has",
            where=str(where),
            found=", ".join(map(repr, foreign))[:500],
            expected=f"audit/ENVIRONMENT{SUFFIX} and policy/ENVIRONMENT{SUFFIX} for each environment that it counts",
            remedy=REMEDY,
        )
    return manifest


def require_format(manifest: Manifest, where: Path) -> None:
    """Raise :class:`DatasetError` for a dataset of another format, with the command that makes it anew."""
    if manifest.format != FORMAT:
        is_older = manifest.format == _PARQUET_FORMAT
        raise DatasetError(
            "a dataset of an older format, whose rows lie in Parquet"
            if is_older
            else "a dataset of another format",
            where=str(where),
            found=manifest.format[:200],
            expected=FORMAT,
            remedy=f"make it anew, with the same root hash: `{_made_by(manifest)}`"
            if is_older
            else "read it with the version of vcrt that made it",
        )


def _made_by(manifest: Manifest) -> str:
    """Return the command that makes a dataset like this one; for given episodes, only the command's name."""
    if not all(isinstance(series.get("sampled"), int) for series in manifest.series):
        return "vcrt lift"
    asked = replace(manifest.preset, sampled=False)
    options = {
        "schemas": " ".join(f"{s.get('environment')}/{s.get('schema')}" for s in manifest.series),
        "episodes": max((series["sampled"] for series in manifest.series), default=0),
        "seed": manifest.seed,
        "preset": next((name for name, preset in PRESETS.items() if preset == asked), "paper"),
        **manifest.record_form.model_dump(),
    }
    text = " ".join(f"--{name} {value}" for name, value in options.items())
    return f"vcrt certify --output NEW {text}{' --sampled' * manifest.sampled}"


def model_bytes(model: BaseModel) -> bytes:
    """Return indented JSON, which people can read too."""
    value: Json = model.model_dump()
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def read_own_file(path: Path) -> bytes:
    """Return the bytes of one of a dataset's own files; raise :class:`DatasetError` for too many."""
    try:
        return read_limited(path, MAX_BYTES[path.name])
    except ValueError as error:
        raise _not_of_form(path, "(root)", str(error)) from error


def model_from_bytes(kind: type[_Model], data: bytes, where: Path) -> _Model:
    """Read the output of :func:`model_bytes`; raise :class:`DatasetError` naming a field that is wrong."""
    try:
        return kind.model_validate(strict_json(data))
    except ValidationError as error:
        raise _not_of_form(where, *first_error(error)) from error
    except ValueError as error:
        raise _not_of_form(where, "(root)", str(error)) from error


def _not_of_form(path: Path, field: str, found: str) -> DatasetError:
    return DatasetError(
        "a file of the dataset does not have the documented form",
        where=f"{path}, field {field}",
        found=found,
        remedy=REMEDY,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Damage:
    """One departure from the sealed content; ``place`` is a path within the dataset, and a place in the file."""

    what: str
    place: str
    found: str | None = None
    expected: str | None = None


def kinds_of_entries(path: Path) -> dict[str, str]:
    """Return the kind of every entry below ``path``, by its name within it.

    A kind is ``file``, ``directory``, ``symbolic link`` or ``special file``. Follow no link. Skip what an interrupted
    write of one of a dataset's own files left; nothing ever reads it.
    """
    unfinished = tuple(f".{own}.unfinished-" for own in OWN_FILES)
    found = {}
    # Not recursive: the folder may be nested deeper than Python's recursion limit.
    folders = [os.fspath(path)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                name = Path(entry.path).relative_to(path).as_posix()
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                if name.startswith(unfinished):
                    continue
                if entry.is_symlink():
                    found[name] = "symbolic link"
                elif entry.is_dir():
                    found[name] = "directory"
                else:
                    found[name] = "file" if entry.is_file() else "special file"
    return dict(sorted(found.items()))


def foreign_entries(kinds: dict[str, str], expected: Iterable[str]) -> Iterator[Damage]:
    """Yield the entries that do not belong there, and the missing files; no ``expected`` file may be a link."""
    wanted = dict.fromkeys(expected, "file")
    folders = {Path(name).parent.as_posix(): "directory" for name in wanted if "/" in name}
    for name, kind in kinds.items():
        if (wanted | folders).get(name) != kind:
            yield Damage(
                what=f"a {kind} in the dataset's directory that does not belong there",
                place=name,
                found=kind,
                expected="plain files, and only those that manifest.json lists",
            )
    for name in sorted(wanted.keys() - kinds.keys()):
        yield Damage(what="a file of the dataset is missing", place=name)


def file_entry(path: Path) -> FileEntry:
    """Return the manifest's entry for the file at ``path``."""
    return FileEntry(size=path.stat().st_size, sha256=file_digest(path))


def altered_file(path: Path, name: str, entry: FileEntry) -> Damage | None:
    """Return the damage to a file whose size or digest differs from the manifest; None if neither differs."""
    found = file_entry(path / name)
    if found == entry:
        return None
    return Damage(
        what="a file of the dataset is not the one that was frozen",
        place=name,
        found=f"{found.size} bytes with SHA-256 {found.sha256}",
        expected=f"{entry.size} bytes with SHA-256 {entry.sha256}",
    )
