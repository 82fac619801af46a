"""Replay a whole frozen dataset again in fresh processes and demand that everything agrees: the agreement gate.

Each episode is read from its own bytes, replayed as before (in all orders, or all that its evidence has), certified and
anonymised anew; the rows that come out must be the rows that were frozen. Training refuses a dataset without this.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from vcrt.certificates.episodes import Exclusion, Preset
from vcrt.environments.contract import Episode, Guards
from vcrt.environments.guarding import make_guarded
from vcrt.environments.isolation import Description, describe
from vcrt.errors import DatasetError, DisagreementError
from vcrt.printable import counted
from vcrt.processes import in_fresh_processes
from vcrt.progress import SILENT, Progress, call_progress
from vcrt.records.anonymise import NO_TEXTS, anonymise, step_texts
from vcrt.records.audit import AUDIT_COLUMNS, audit_row, episode_of_json
from vcrt.records.dataset import (
    Dataset,
    policy_row,
    read_audit,
    read_policy_records,
    write_agreement,
)
from vcrt.records.manifest import Agreement, GuardsOf, full_agreement, policy_name
from vcrt.records.policy_view import PolicyRecord
from vcrt.records.record_form import RecordForm
from vcrt.replay.config import shard_size
from vcrt.replay.evidence import num_replayed, own_columns
from vcrt.replay.shards import EnvironmentFactory, certify_again, factory_of


@dataclass(frozen=True, slots=True)
class _Shard:
    factory: EnvironmentFactory
    episodes: tuple[Episode, ...]
    preset: Preset
    seed: int
    form: RecordForm


#: What one episode gives this time: its audit row and its policy row, or why it gives none.
_Again: TypeAlias = tuple[dict[str, str], dict[str, str]] | str


def verify_agreement(
    dataset: Dataset,
    *,
    jobs: int,
    progress: Progress = SILENT,
    factories: Mapping[str, EnvironmentFactory] | None = None,
) -> Agreement:
    """Replay and compare everything, and write the agreement record beside the manifest.

    Raises :class:`DisagreementError` naming every episode that does not agree, and the columns of the first;
    :class:`DatasetError` for versions that differ from those that certified the dataset.
    """
    made = {name: factory_of(name, factories) for name in dataset.environments}
    present = {name: require_versions(dataset, name, made[name]) for name in made}
    manifest = dataset.manifest
    preset = manifest.preset
    total = sum(c.episodes for some in manifest.counts.values() for c in some.values())
    task = progress.task("verify: replay everything in fresh processes", total, "episodes")
    num_episodes = num_records = num_replays = 0
    disagreeing: dict[str, DatasetError] = {}
    guards: dict[str, GuardsOf] = {}
    with call_progress() as calls:
        for name in made:
            number = sum(c.episodes for c in manifest.counts[name].values())
            expected = present[name].calls_for_all_orders(preset.num_operations, sharing=False)
            calls.expect(name, task, number, expected)
        # One environment after the other, so that only its rows are in memory.
        for name, factory in made.items():
            records = read_policy_records(dataset, name)
            rows = read_audit(dataset, name)
            size = shard_size(len(rows))
            parts = [rows[start : start + size] for start in range(0, len(rows), size)]
            results = in_fresh_processes(
                calls.counted(_replay_again),
                (
                    _Shard(
                        factory,
                        tuple(map(_episode, part)),
                        preset,
                        manifest.seed,
                        manifest.record_form,
                    )
                    for part in parts
                ),
                jobs=jobs,
                on_wait=calls.show,
                narrow=_only_episode,
            )
            for part, result in zip(parts, results, strict=True):
                again, found_guards = calls.done(name, len(part), result)
                guards[name] = _joined(guards.get(name), found_guards)
                for row, found in zip(part, again, strict=True):
                    error = _difference(dataset, name, row, records, found)
                    if error is not None:
                        disagreeing[row["episode_id"]] = error
                    else:
                        num_replays += num_replayed(json.loads(row["replays"]))
            num_episodes += len(rows)
            num_records += len(records)
    if disagreeing:
        raise DisagreementError.of(disagreeing)
    if num_episodes != num_records:
        raise DatasetError(
            "the policy view has records without evidence",
            where=str(dataset.path / "policy"),
            found=f"{counted(num_records, 'record')}",
            expected=f"{num_episodes}, one for each certified episode",
            remedy="make the dataset again with `vcrt certify`",
        )
    agreement = full_agreement(dataset.manifest).model_copy(
        update={"replays": num_replays, "agreed": num_replays, "episodes": num_episodes}
    )
    agreement = agreement.guarded(
        {name: found for name, found in guards.items() if found != _joined(None, Guards())}
    )
    write_agreement(dataset, agreement)
    return agreement


def _episode(row: Mapping[str, str]) -> Episode:
    return episode_of_json(row["episode"], f"episode {row['episode_id'][:200]}")


def require_versions(dataset: Dataset, name: str, factory: EnvironmentFactory) -> Description:
    """Make the environment ``name``; raises :class:`DatasetError` unless its versions certified the dataset."""
    sealed = dataset.manifest.versions[name]
    description = describe(factory)
    present = description.versions().to_json()
    if present != sealed:
        keys = [key for key in sealed if sealed[key] != present.get(key)]
        raise DatasetError(
            f"the dataset was certified under other versions of {name!r}",
            where=str(dataset.path),
            found="; ".join(f"{key} {present.get(key)}" for key in keys),
            expected="; ".join(f"{key} {sealed[key]}" for key in keys),
            remedy="install the versions that certified it, or make a new dataset with `vcrt certify`",
        )
    return description


def _joined(so_far: GuardsOf | None, more: Guards) -> GuardsOf:
    """Join the guards of all shards: a guard that was absent once is absent, and counts are added."""
    absent = {**(so_far.absent if so_far else {}), **more.absent}
    in_force = {**(so_far.in_force if so_far else {}), **more.in_force}
    counts = Counter(so_far.checked_again if so_far else {})
    counts.update(more.checked_again)
    return GuardsOf(
        in_force={name: means for name, means in in_force.items() if name not in absent},
        absent=absent,
        checked_again=dict(counts),
    )


def _replay_again(shard: _Shard) -> tuple[list[_Again], Guards]:
    outcomes, guards = certify_again(shard.factory, shard.episodes, shard.preset)
    texts = [NO_TEXTS for _ in shard.episodes]
    if shard.form.is_text:
        environment = make_guarded(shard.factory)
        texts = step_texts(environment, shard.episodes, shard.form.view, shard.seed)
    again: list[_Again] = []
    for outcome, own in zip(outcomes, texts, strict=True):
        if isinstance(outcome, Exclusion):
            again.append(f"{outcome.kind}: {outcome.detail}")
        else:
            anonymised = anonymise(outcome, shard.seed, shard.form, own)
            row = audit_row(own_columns(outcome), anonymised)
            again.append((row, policy_row(anonymised.record)))
    return again, guards


def _only_episode(shard: _Shard, episode: str) -> _Shard | None:
    own = tuple(one for one in shard.episodes if one.episode_id == episode)
    return replace(shard, episodes=own) if own and len(shard.episodes) > 1 else None


def _difference(
    dataset: Dataset,
    environment: str,
    sealed: dict[str, str],
    records: Mapping[str, PolicyRecord],
    found: _Again,
) -> DatasetError | None:
    """Say why an episode does not agree with its own replay; None if it agrees."""
    row, policy = ({}, {}) if isinstance(found, str) else found
    if row != sealed:
        differing = ", ".join(name for name in AUDIT_COLUMNS if row.get(name) != sealed[name])
        return DatasetError(
            "an episode does not replay as it was certified",
            where=f"{dataset.path}, episode {sealed['episode_id']}",
            found=found if isinstance(found, str) else f"other values in {differing}",
            expected="the sealed evidence, replay by replay",
            remedy="if the verifier is deterministic, the dataset was altered: make it again with `vcrt certify`",
        )
    record = records.get(sealed["record_id"])
    if record is None or policy_row(record) != policy:
        return DatasetError(
            "a policy record is not the one that its evidence gives",
            where=f"{dataset.path / policy_name(environment)}, record {sealed['record_id'][:80]}",
            remedy="make the dataset again with `vcrt certify`",
        )
    return None
