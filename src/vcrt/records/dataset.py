"""Open frozen datasets and read their items. A dataset is a directory with a manifest that commits to all its files.

    manifest.json               what was certified, counts, versions, conformance, digests, the root hash
    audit/ENVIRONMENT.jsonl.gz  the sealed audit view, one file for each environment
    policy/ENVIRONMENT.jsonl.gz the anonymous policy view; its records name no environment
    leaves.jsonl, seal.json     for checks of single certificates (see :mod:`vcrt.records.sealing.seal`)
    agreement.json              written by `vcrt verify`: every replay was repeated and agreed

The root hash commits to the content (configuration, counts, versions, every row) and not to the bytes of the files, so
every version of the file format has the same one. The manifest also holds the files' SHA-256.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vcrt.certificates.episodes import CertifiedEpisode
from vcrt.environments.contract import Episode, Outcome, Versions
from vcrt.errors import DatasetError, TooLargeError
from vcrt.hashing import canonical_json, json_digest
from vcrt.limits import MAX_ENUMERATED
from vcrt.printable import counted
from vcrt.records.anonymise import Anonymised, anonymise, supervise
from vcrt.records.audit import AUDIT_COLUMNS, certified_from_row
from vcrt.records.manifest import (
    AGREEMENT,
    MANIFEST,
    OWN_FILES,
    REMEDY,
    Agreement,
    Damage,
    Manifest,
    altered_file,
    audit_name,
    changed_since,
    foreign_entries,
    full_agreement,
    kinds_of_entries,
    manifest_from_bytes,
    model_bytes,
    model_from_bytes,
    policy_name,
    read_own_file,
)
from vcrt.records.policy_view import PolicyRecord, record_of_json
from vcrt.records.rows import read_digested
from vcrt.records.supervision import PosetRecord, SupervisedRecord
from vcrt.storage import write_file

POLICY_COLUMNS = ("record_id", "record")


@dataclass(frozen=True, slots=True)
class Dataset:
    """A frozen dataset on disk whose files and manifest agree."""

    path: Path
    manifest: Manifest
    #: The environments whose files stay closed; a request for them is refused.
    closed: frozenset[str] = frozenset()

    @property
    def environments(self) -> tuple[str, ...]:
        """The environments in it, sorted."""
        return tuple(sorted(self.manifest.counts))


def policy_row(record: PolicyRecord) -> dict[str, str]:
    """Return one row of the policy view."""
    return {"record_id": record.record_id, "record": canonical_json(record.to_json()).decode()}


def rows_digest(rows: Iterable[dict[str, str]]) -> str:
    """Return the SHA-256 of the digests of all rows, in their order."""
    return json_digest([json_digest(row) for row in rows])


def open_dataset(path: str | Path, *, without: Collection[str] = ()) -> Dataset:
    """Open a dataset and check every file against the manifest, except those of the environments ``without``.

    Raise :class:`DatasetError` naming a file that is missing, altered or unexpected. :func:`require_agreement` checks
    whether the replays agree.
    """
    path = Path(path)
    manifest_path = path / MANIFEST
    if not manifest_path.is_file():
        raise not_a_dataset(path)
    manifest = manifest_from_bytes(read_own_file(manifest_path), manifest_path)
    closed = {part(name) for name in without for part in (audit_name, policy_name)}
    kinds = kinds_of_entries(path)
    wanted = {*manifest.files} - (closed - set(kinds))
    for damage in foreign_entries(kinds, wanted | (set(OWN_FILES) & set(kinds))):
        raise _damaged(path, damage)
    for name in sorted(wanted - closed):
        altered = altered_file(path, name, manifest.files[name])
        if altered is not None:
            raise _damaged(path, altered, f", against {MANIFEST}")
    return Dataset(path, manifest, frozenset(without))


def _damaged(path: Path, damage: Damage, against: str = "") -> DatasetError:
    return DatasetError(
        damage.what,
        where=f"{path / damage.place}{against}",
        found=damage.found,
        expected=damage.expected,
        remedy=REMEDY,
    )


def not_a_dataset(path: Path) -> DatasetError:
    """Return the error about a place without a dataset."""
    found = "a file, not a directory" if path.exists() else "no such directory"
    return DatasetError(
        "not a frozen dataset",
        where=str(path),
        found=f"no {MANIFEST}" if path.is_dir() else found,
        expected="a directory made by `vcrt certify`",
        remedy="make one with `vcrt certify --output DIRECTORY`",
    )


def require_agreement(dataset: Dataset) -> Agreement:
    """Return the agreement record; raise :class:`DatasetError` unless all replays of this dataset agreed."""
    path = dataset.path / AGREEMENT
    remedy = f"run `vcrt verify {dataset.path}` first"
    if not path.is_file():
        raise DatasetError(
            "the dataset was not verified", where=str(path), found="no such file", remedy=remedy
        )
    agreement = model_from_bytes(Agreement, read_own_file(path), path)
    expected = full_agreement(dataset.manifest)
    if agreement.root_hash != dataset.manifest.root_hash:
        raise DatasetError(
            "the agreement record belongs to another dataset",
            where=str(path),
            found=f"root hash {agreement.root_hash}",
            expected=f"root hash {dataset.manifest.root_hash}",
            remedy=remedy,
        )
    if agreement != expected.guarded(agreement.guards):
        raise DatasetError(
            "the dataset's replays do not all agree",
            where=str(path),
            found=_agreed(agreement),
            expected=_agreed(expected),
            remedy=remedy,
        )
    return agreement


def _agreed(agreement: Agreement) -> str:
    return f"{agreement.agreed} of {agreement.replays} replays of {counted(agreement.episodes, 'episode')}"


def write_agreement(dataset: Dataset, agreement: Agreement) -> None:
    """Write the agreement record beside the manifest."""
    write_file(dataset.path / AGREEMENT, model_bytes(agreement))


def read_audit(dataset: Dataset, environment: str) -> list[dict[str, str]]:
    """Return the audit rows of one environment; raise :class:`DatasetError` if they are not the frozen rows."""
    return _read_sealed(dataset, environment, audit_name(environment), AUDIT_COLUMNS)


def read_policy_records(dataset: Dataset, environment: str) -> dict[str, PolicyRecord]:
    """Return the policy records of one environment by identity; raise as :func:`read_audit` does."""
    rows = _read_sealed(dataset, environment, policy_name(environment), POLICY_COLUMNS)
    where = str(dataset.path / policy_name(environment))
    return {row["record_id"]: record_of_json(row["record"], where) for row in rows}


def _read_sealed(
    dataset: Dataset, environment: str, name: str, columns: tuple[str, ...]
) -> list[dict[str, str]]:
    if environment in dataset.closed:
        raise DatasetError(
            "a held-out environment cannot be read yet: it stays closed",
            where=str(dataset.path / name),
            found=f"a request for items of {environment!r}",
            expected="only source environments, until every run is trained",
        )
    digested = list(read_digested(dataset.path / name, columns))
    found = json_digest([digest for digest, _ in digested])
    if found != dataset.manifest.content[name]:
        raise changed_since(dataset.path / name, found, dataset.manifest.content[name])
    return [row for _, row in digested]


@dataclass(frozen=True, kw_only=True, slots=True)
class Unreplayed:
    """What a native verdict on an order needs if the replays do not decide all orders.

    ``slot_of_operation`` maps the episode's operations to the record's slots; an order is legal if it leads to the
    reference order's ``outcome``, under these ``versions``.
    """

    episode: Episode
    slot_of_operation: tuple[int, ...]
    outcome: Outcome
    versions: Versions

    def sequence(self, order: Sequence[int]) -> tuple[int, ...]:
        """Return the episode's operations in an order of slots."""
        return tuple(self.slot_of_operation.index(slot) for slot in order)


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """A supervised record, and what the protocol (never the policy) knows about it.

    ``unreplayed`` is set if the evidence is a sample: then the certified partial order is no verdict on an order.
    """

    supervised: SupervisedRecord | PosetRecord
    environment: str
    episode_id: str
    schema: str
    source: str
    unreplayed: Unreplayed | None = None

    @property
    def all_legal(self) -> bool:
        """Whether every order is legal: the item has no anti-diamond, and no answer to it can be wrong."""
        if isinstance(self.supervised, SupervisedRecord):
            return all(self.supervised.legal)
        return not self.supervised.order.pairs

    @property
    def listed(self) -> SupervisedRecord:
        """The supervision by listed orders; raises :class:`TooLargeError` for too many operations."""
        if isinstance(self.supervised, SupervisedRecord):
            return self.supervised
        if self.supervised.num_operations <= MAX_ENUMERATED:
            return self.supervised.listed()
        raise TooLargeError(
            "the orders of this item are not listed",
            where=f"episode {self.episode_id}",
            found=f"{counted(self.supervised.num_operations, 'operation')}",
            expected=f"at most {MAX_ENUMERATED}",
            remedy="take a dataset of four operations, or in Python the item's partial order, `item.supervised.order`",
        )


def load_items(
    dataset: Dataset, environment: str, *, only: Collection[str] | None = None
) -> list[Item]:
    """Load the supervised records of one environment, in the dataset's order; open no other environment's files.

    Records of more than ``vcrt.limits.MAX_ENUMERATED`` operations, and all records of a dataset with any number of
    them, are :class:`vcrt.records.supervision.PosetRecord`. Relations and orbits are derived from the sealed replays,
    never taken as text. ``only`` selects episodes by name.
    """
    records = read_policy_records(dataset, environment)
    preset = dataset.manifest.preset
    items = []
    for row in read_audit(dataset, environment):
        if only is not None and row["episode_id"] not in only:
            continue
        certified = certified_from_row(row, preset)
        anonymised = anonymise(certified, dataset.manifest.seed, dataset.manifest.record_form)
        found = records.get(anonymised.record.record_id)
        if found is not None and found.steps:
            # The environment's texts are no evidence: `vcrt verify` asks for them again.
            record = replace(anonymised.record, task=found.task, steps=found.steps)
            anonymised = replace(anonymised, record=record)
        if found != anonymised.record or bool(found.steps) != dataset.manifest.record_form.is_text:
            raise DatasetError(
                "an episode's policy record is not the one that its evidence gives",
                where=f"{dataset.path / policy_name(environment)}, record {anonymised.record.record_id}",
                remedy="make the dataset again with `vcrt certify`",
            )
        items.append(
            Item(
                supervised=supervise(certified, anonymised, listed=not preset.is_any),
                environment=environment,
                episode_id=row["episode_id"],
                schema=row["schema"],
                source=row["source"],
                unreplayed=_unreplayed(certified, anonymised),
            )
        )
    return items


def _unreplayed(certified: CertifiedEpisode, anonymised: Anonymised) -> Unreplayed | None:
    if certified.complete:
        return None
    outcome = certified.tree.replay(tuple(range(certified.episode.num_operations))).outcome
    assert outcome is not None
    return Unreplayed(
        episode=certified.episode,
        slot_of_operation=anonymised.slot_of_operation,
        outcome=outcome,
        versions=certified.versions,
    )
