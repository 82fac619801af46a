"""False certificates in a copy of a dataset, as a forger would plant them who recomputes every digest.

All but those of kind ``orbit count`` follow from their own false replays, so that nothing but asking the verifier
again can tell them from true ones.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from vcrt.certificates.certificates import directed
from vcrt.certificates.episodes import CertifiedEpisode, Exclusion, certify_episode
from vcrt.certificates.replay_tree import EpisodeReplays
from vcrt.environments.contract import Rejected, Replay
from vcrt.hashing import canonical_json, file_digest, json_digest, sha256_hex
from vcrt.orders import Order
from vcrt.records.anonymise import anonymise
from vcrt.records.audit import AUDIT_COLUMNS, audit_row, certified_from_row
from vcrt.records.dataset import (
    Dataset,
    open_dataset,
    policy_row,
    rows_digest,
)
from vcrt.records.manifest import MANIFEST, Manifest, audit_name, policy_name
from vcrt.records.rows import read_rows, write_rows
from vcrt.replay.evidence import own_columns

Replays = tuple[Replay, ...]


def flipped_verdict(certified: CertifiedEpisode) -> Replays:
    """The other verdict: what was refused is accepted with another state, what was accepted so is refused."""
    ((before, after),) = directed(certified.relations)
    kind = next(r.kind for r in certified.relations if r.kind != "commutes")
    return tuple(
        _invented(r.sequence, before, after, refuse=kind == "conflicts") for r in certified.replays
    )


def swapped_final_digest(certified: CertifiedEpisode) -> Replays:
    """The certified final state is another one, in every order that reaches it."""
    final = certified.replays[0].state_hashes[-1]
    other = sha256_hex(b"canary" + final.encode())
    return tuple(_with_hash(replay, final, other) for replay in certified.replays)


def swapped_inner_digest(certified: CertifiedEpisode) -> Replays:
    """The state after the first step is another one."""
    inner = certified.replays[0].state_hashes[1]
    other = sha256_hex(b"canary" + inner.encode())
    return tuple(_with_hash(replay, inner, other) for replay in certified.replays)


def wrong_pair(certified: CertifiedEpisode) -> Replays:
    """Another pair of operations is the one that must not be swapped: all replays, with the operations renamed."""
    ((before, after),) = directed(certified.relations)
    others = [i for i in range(certified.episode.num_operations) if i not in (before, after)]
    renamed = {before: others[0], others[0]: before, after: others[1], others[1]: after}
    # A reference order that is legal stays legal only if the renamed pair stands as it must.
    if others[0] > others[1]:
        renamed = {before: others[1], others[1]: before, after: others[0], others[0]: after}
    by_sequence = {replay.sequence: replay for replay in certified.replays}
    return tuple(
        replace(by_sequence[tuple(renamed[i] for i in replay.sequence)], sequence=replay.sequence)
        for replay in certified.replays
    )


def reversed_pair(certified: CertifiedEpisode) -> Replays:
    """The pair the other way round, where the reference order allows it: else as :func:`flipped_verdict`."""
    ((before, after),) = directed(certified.relations)
    shifted = {before: after, after: before}
    by_sequence = {replay.sequence: replay for replay in certified.replays}
    return tuple(
        replace(
            by_sequence[tuple(shifted.get(i, i) for i in replay.sequence)], sequence=replay.sequence
        )
        for replay in certified.replays
    )


#: What is planted. A change that certifies nothing in itself would be found without a verifier, and is not planted.
KINDS: Mapping[str, Callable[[CertifiedEpisode], Replays] | None] = {
    "flipped verdict": flipped_verdict,
    "final digest": swapped_final_digest,
    "inner digest": swapped_inner_digest,
    "wrong pair": wrong_pair,
    "reversed pair": reversed_pair,
    "orbit count": None,
}


def _with_hash(replay: Replay, old: str, new: str) -> Replay:
    return replace(replay, state_hashes=tuple(new if h == old else h for h in replay.state_hashes))


def _invented(sequence: Order, before: int, after: int, *, refuse: bool) -> Replay:
    """A verifier that was never asked: a state is the set of what ran, and whether the pair ran the wrong way."""
    hashes = [_state(sequence[:0], inverted=False)]
    for length in range(1, len(sequence) + 1):
        done = sequence[:length]
        inverted = after in done and (before not in done or done.index(after) < done.index(before))
        if inverted and refuse:
            return Replay(sequence, tuple(hashes), Rejected("not possible yet"))
        hashes.append(_state(done, inverted=inverted))
    return Replay(sequence, tuple(hashes))


def _state(done: Order, *, inverted: bool) -> str:
    return json_digest(["canary", sorted(done), inverted])


def planted(dataset: Dataset, path: Path, every: int = 2) -> tuple[Dataset, dict[str, str]]:
    """A copy of ``dataset`` at ``path`` with a false certificate in each ``every``-th episode.

    Returns it, opened, and what was planted by episode.
    """
    shutil.copytree(dataset.path, path)
    found: dict[str, str] = {}
    number = 0
    for name in dataset.environments:
        rows = read_rows(path / audit_name(name), AUDIT_COLUMNS)
        for place in range(0, len(rows), every):
            for kind in _kinds_from(number):
                forged = _forged(dataset, rows[place], kind)
                if forged is not None:
                    rows[place] = forged
                    found[forged["episode_id"]] = kind
                    number += 1
                    break
        _seal(dataset, path, name, rows)
    return open_dataset(path), found


def _kinds_from(number: int) -> Sequence[str]:
    names = list(KINDS)
    start = number % len(names)
    return names[start:] + names[:start]


def _forged(dataset: Dataset, row: dict[str, str], kind: str) -> dict[str, str] | None:
    preset = dataset.manifest.preset
    certified = certified_from_row(row, preset)
    change = KINDS[kind]
    if change is None:
        orbit = json.loads(row["orbit"])
        return {**row, "orbit": canonical_json(orbit[:-1]).decode()}
    replays = change(certified)
    if replays == certified.replays:
        return None
    false = certify_episode(
        EpisodeReplays.of_every_order(certified.episode, replays),
        certified.versions,
        preset,
        certified.cross_checks,
    )
    if isinstance(false, Exclusion):
        return None
    anonymised = anonymise(false, dataset.manifest.seed, dataset.manifest.record_form)
    return audit_row(own_columns(false), anonymised)


def _seal(dataset: Dataset, path: Path, name: str, rows: list[dict[str, str]]) -> None:
    """Both files of an environment, its counts and every digest, as freezing would write them."""
    manifest = dataset.manifest
    value = json.loads((path / MANIFEST).read_bytes())
    policy = []
    relations: dict[str, Counter[str]] = {}
    for row in rows:
        certified = certified_from_row(row, manifest.preset)
        record = anonymise(certified, manifest.seed, manifest.record_form).record
        policy.append(policy_row(record))
        counted = relations.setdefault(row["schema"], Counter())
        counted.update(relation.kind for relation in certified.relations)
    policy.sort(key=lambda row: row["record_id"])
    for schema, counted in relations.items():
        value["counts"][name][schema]["relations"] = dict(sorted(counted.items()))
    for file, some in ((audit_name(name), rows), (policy_name(name), policy)):
        write_rows(some, path / file)
        value["content"][file] = rows_digest(some)
        size = (path / file).stat().st_size
        value["files"][file] = {"size": size, "sha256": file_digest(path / file)}
    value["root_hash"] = Manifest.model_validate(value).computed_root_hash()
    (path / MANIFEST).write_text(json.dumps(value), encoding="utf-8")
