"""Make a frozen dataset: certify, write both views one row at a time, publish the directory by one rename.

A dataset is whole or absent. Until it is published, a folder beside it, with ``.shards`` after the dataset's
name, holds what was certified before an interruption.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from math import factorial
from pathlib import Path

from vcrt.certificates.certificates import directed
from vcrt.environments.isolation import ask
from vcrt.errors import UncertifiableError, VcrtError
from vcrt.hashing import json_digest
from vcrt.limits import MAX_EXHAUSTIVE
from vcrt.processes import Backend
from vcrt.progress import SILENT, Progress
from vcrt.records.anonymise import NO_TEXTS, StepTexts, anonymise, step_texts
from vcrt.records.audit import audit_row
from vcrt.records.dataset import Dataset, open_dataset, policy_row, rows_digest
from vcrt.records.manifest import (
    FORMAT,
    MANIFEST,
    CheckCounts,
    EvidenceCounts,
    LengthCounts,
    Manifest,
    SchemaCounts,
    audit_name,
    file_entry,
    model_bytes,
    policy_name,
)
from vcrt.records.record_form import PLAIN_FORM, RecordForm, usual_form
from vcrt.records.rows import write_rows
from vcrt.records.sealing.seal import write_seal
from vcrt.records.sealing.statement import Leaf, leaf_of
from vcrt.replay.config import CertificationConfig
from vcrt.replay.evidence import CertifiedTexts, total
from vcrt.replay.run import CertifiedSchema, certify
from vcrt.replay.shards import EnvironmentFactory, factory_of
from vcrt.replay.store import LOCK, is_empty_store, read_identity, refuse_foreign, remove_store
from vcrt.storage import (
    make_directory,
    publish_directory,
    remove_partial,
    require_new,
    sole_user,
    write_file,
)

#: Of how many episodes an environment is asked for its texts at once.
_AT_ONCE = 256


def make_dataset(
    config: CertificationConfig,
    path: Path,
    *,
    jobs: int,
    backend: Backend = "local",
    progress: Progress = SILENT,
    factories: Mapping[str, EnvironmentFactory] | None = None,
    form: RecordForm | None = None,
) -> Dataset:
    """Certify a configuration and freeze it as a new dataset, going on where an interrupted call stopped.

    ``form`` says how the records state the relations; by default it depends on the number of operations. Work from
    before an interruption serves any form.

    Raises :class:`VcrtError` if ``path`` exists or if unfinished work of another configuration is in the way,
    :class:`UncertifiableError` if too little was certified, and what :func:`vcrt.replay.run.certify` raises.
    """
    shards = unfinished_path(path)
    form = form or usual_form(config.preset.num_operations)
    discard_work_of_finished(config, path, form)
    require_new(path, VcrtError)
    refuse_foreign(shards)
    make_directory(shards)
    try:
        with sole_user(shards / LOCK, "this dataset", VcrtError):
            remove_partial(path.parent, path.name)
            try:
                certified = certify(
                    config,
                    shards,
                    jobs=jobs,
                    backend=backend,
                    progress=progress,
                    factories=factories,
                )
                dataset = freeze(config, certified, path, form, factories)
            except UncertifiableError:
                # Only this error: under any other the finished shards are still of use.
                remove_store(shards)
                raise
            remove_store(shards)
    finally:
        if shards.is_dir() and is_empty_store(shards):
            shutil.rmtree(shards)
    return dataset


def discard_work_of_finished(
    config: CertificationConfig, path: Path, form: RecordForm = PLAIN_FORM
) -> None:
    """Remove the unfinished work beside a dataset if a killed call published the dataset but did not remove it."""
    shards = unfinished_path(path)
    if _is_finished(path, shards, config, form):
        remove_store(shards)


def _is_finished(path: Path, shards: Path, config: CertificationConfig, form: RecordForm) -> bool:
    """Tell whether the dataset of this configuration was published and only its unfinished work was not removed."""
    if not (path / MANIFEST).is_file() or not shards.is_dir():
        return False
    if is_empty_store(shards):
        return True
    manifest = open_dataset(path).manifest
    frozen = [manifest.seed, manifest.num_operations, manifest.orbit_size, manifest.series]
    asked = config.to_json()
    known = read_identity(shards).get("config") == asked
    names = ("seed", "num_operations", "orbit_size", "series")
    known = known and manifest.sampled == config.preset.samples
    return known and manifest.record_form == form and frozen == [asked[name] for name in names]


def unfinished_path(path: Path) -> Path:
    """Return the folder of a dataset's unfinished work."""
    return path.with_name(f"{path.name}.shards")


def freeze(
    config: CertificationConfig,
    certified: Sequence[CertifiedSchema],
    path: Path,
    form: RecordForm = PLAIN_FORM,
    factories: Mapping[str, EnvironmentFactory] | None = None,
) -> Dataset:
    """Write a new dataset directory and publish it by one rename; raises :class:`VcrtError` if it exists."""
    fill = partial(_fill, config=config, certified=certified, form=form, factories=factories)
    publish_directory(path, fill, VcrtError)
    return open_dataset(path)


@dataclass(slots=True)
class _Written:
    """What has been written for one environment: a leaf for each audit row, its policy rows, counts by schema."""

    leaves: list[Leaf] = field(default_factory=list)
    policy: list[dict[str, str]] = field(default_factory=list)
    counts: dict[str, SchemaCounts] = field(default_factory=dict)


def _fill(
    directory: Path,
    config: CertificationConfig,
    certified: Sequence[CertifiedSchema],
    form: RecordForm,
    factories: Mapping[str, EnvironmentFactory] | None,
) -> None:
    if not any(schema.num_episodes for schema in certified):
        kinds = Counter(exclusion.kind for schema in certified for exclusion in schema.exclusions)
        raise UncertifiableError(
            "no episode was certified, so there is nothing to freeze",
            found=", ".join(f"{kind}: {count}" for kind, count in kinds.items()),
            expected="at least one certified episode",
        )
    (directory / "audit").mkdir()
    (directory / "policy").mkdir()
    content = {}
    counts = {}
    leaves: list[Leaf] = []
    for environment in sorted({schema.environment for schema in certified}):
        written = _Written()
        schemas = [schema for schema in certified if schema.environment == environment]
        audit, policy = audit_name(environment), policy_name(environment)
        factory = factory_of(environment, factories)
        write_rows(_audit_rows(config, schemas, written, form, factory), directory / audit)
        # By digest, so that the order of the rows says nothing.
        written.policy.sort(key=lambda row: row["record_id"])
        write_rows(written.policy, directory / policy)
        content[audit] = json_digest([leaf.audit for leaf in written.leaves])
        content[policy] = rows_digest(written.policy)
        counts[environment] = written.counts
        leaves += written.leaves
    manifest = Manifest(
        format=FORMAT,
        seed=config.seed,
        record_form=form,
        num_operations=config.preset.num_operations,
        orbit_size=config.preset.orbit_size,
        sampled=config.preset.samples,
        series=[series.to_json() for series in config.series],
        counts=counts,
        conformance=_conformance_counts(certified),
        versions={schema.environment: schema.versions.to_json() for schema in certified},
        content=dict(sorted(content.items())),
        root_hash="",
        files={name: file_entry(directory / name) for name in sorted(content)},
    )
    sealed = manifest.model_copy(update={"root_hash": manifest.computed_root_hash()})
    write_file(directory / MANIFEST, model_bytes(sealed))
    write_seal(directory, sealed, leaves)


def _audit_rows(
    config: CertificationConfig,
    schemas: Sequence[CertifiedSchema],
    written: _Written,
    form: RecordForm,
    factory: EnvironmentFactory,
) -> Iterator[dict[str, str]]:
    """Give the audit rows one at a time; collect in ``written`` what else the dataset needs of them."""
    for schema in schemas:
        relations: Counter[str] = Counter()
        is_long = config.preset.is_long and not config.preset.is_any
        evidence: list[Mapping[str, int | None]] = []
        # By number of steps, for each episode: how many orders are legal, and whether all are.
        lengths: dict[int, list[tuple[int | None, bool]]] = {}
        for one, texts in _with_texts(schema.texts(), factory, form, config.seed):
            anonymised = anonymise(one, config.seed, form, texts)
            relations.update(relation.kind for relation in one.relations)
            steps = one.episode.num_operations
            lengths.setdefault(steps, []).append((one.num_legal, not directed(one.relations)))
            is_long |= steps > MAX_EXHAUSTIVE
            if one.replayed is not None:
                evidence.append(one.replayed)
            row, policy = audit_row(one.columns, anonymised), policy_row(anonymised.record)
            written.policy.append(policy)
            digests = {"policy": json_digest(policy), "audit": json_digest(row)}
            written.leaves.append(leaf_of(schema.environment, row, config.preset, **digests))
            yield row
        exclusions = Counter(exclusion.kind for exclusion in schema.exclusions)
        written.counts[schema.schema] = SchemaCounts(
            candidates=schema.num_candidates,
            episodes=schema.num_episodes,
            orders=sum(factorial(steps) * len(some) for steps, some in lengths.items()),
            legal_orders=total([number for some in lengths.values() for number, _ in some]),
            relations=dict(sorted(relations.items())),
            exclusions=dict(sorted(exclusions.items())),
            evidence=_all_counts(evidence) if is_long else None,
            lengths={
                str(steps): LengthCounts(
                    episodes=len(some),
                    legal_orders=total([number for number, _ in some]),
                    all_legal=sum(all_legal for _, all_legal in some),
                )
                for steps, some in sorted(lengths.items())
            }
            if config.preset.is_any
            else None,
        )


def _with_texts(
    episodes: Iterator[CertifiedTexts], factory: EnvironmentFactory, form: RecordForm, seed: int
) -> Iterator[tuple[CertifiedTexts, StepTexts]]:
    """Give each episode with the text of its steps, if it has any; the environment is asked for many at once."""
    while some := list(islice(episodes, _AT_ONCE)):
        texts = [NO_TEXTS for _ in some]
        if form.is_text:
            own = [one.episode for one in some]
            texts = ask(factory, partial(step_texts, episodes=own, view=form.view, seed=seed))
        yield from zip(some, texts, strict=True)


def _all_counts(evidence: Sequence[Mapping[str, int | None]]) -> EvidenceCounts:
    sums = {name: total([one[name] for one in evidence]) for name in EvidenceCounts.model_fields}
    return EvidenceCounts.model_validate(sums)


def _conformance_counts(certified: Sequence[CertifiedSchema]) -> dict[str, dict[str, CheckCounts]]:
    """Count what each second opinion compared, by environment and checker."""
    totals: dict[str, dict[str, Counter[str]]] = {}
    for schema in certified:
        checkers = totals.setdefault(schema.environment, {})
        for checker, opinion in schema.second_opinions.items():
            checkers.setdefault(checker, Counter()).update(opinion)
    return {
        environment: {
            checker: CheckCounts(
                **counts,
                disagreement_rate=(counts["checked"] - counts["agreed"])
                / max(counts["checked"], 1),
            )
            for checker, counts in sorted(checkers.items())
        }
        for environment, checkers in totals.items()
    }
