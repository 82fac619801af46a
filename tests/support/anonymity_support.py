"""Policy records by the thousand without any replay: certified episodes with drawn relations, anonymised for real."""

from __future__ import annotations

import json
from dataclasses import replace

from vcrt.certificates.certificates import OperationRelation
from vcrt.certificates.episodes import CertifiedEpisode
from vcrt.certificates.replay_tree import EpisodeReplays, ReplayTree
from vcrt.environments.contract import Episode, Operation, Provenance, Versions
from vcrt.orders import all_orders
from vcrt.records.anonymise import anonymise
from vcrt.records.dataset import policy_row
from vcrt.records.policy_view import PointerRelation, PolicyRecord
from vcrt_research.anonymity.auc import cross_validated_auc
from vcrt_research.anonymity.hidden import HIDDEN_VIEWS, hidden_features
from vcrt_research.anonymity.material import ProbedRecord
from vcrt_research.anonymity.probe import penalty
from vcrt_research.anonymity.tasks import make_task
from vcrt_research.anonymity.views import row_order_features, word_features
from vcrt_train.randomness import generator

VERSIONS = Versions(environment="made", adapter="1", canonicalizer="1", verifier="made 1")
KINDS = ("precedes", "conflicts")


def made_episode(environment, number, seed, *, schemas_per_kind=2):
    """A certified episode whose one anti-diamond joins two drawn steps."""
    draw = generator(seed, "made", environment, number)
    kind = KINDS[number % 2]
    first, second = sorted(int(i) for i in draw.permutation(4)[:2])
    episode = Episode(
        environment=environment,
        schema=f"{kind} {number // 2 % schemas_per_kind}",
        initial=number,
        operations=tuple(Operation(signature=f"step {i}", payload=None) for i in range(4)),
        provenance=Provenance(source=f"{environment}/{number}", generator="made", seed=number),
    )
    pairs = [(a, b) for a in range(4) for b in range(a + 1, 4)]
    relations = tuple(
        OperationRelation(a, b, kind if (a, b) == (first, second) else "commutes") for a, b in pairs
    )
    return CertifiedEpisode(
        evidence=EpisodeReplays(episode, ReplayTree(4, {})),
        versions=VERSIONS,
        certificates=(),
        relations=relations,
        orbit=(),
    )


def made_records(num_each, seed, environments=("a", "b", "c")):
    """``num_each`` records of each environment as they would stand in its file."""
    records = []
    for environment in environments:
        made = [made_episode(environment, number, seed) for number in range(num_each)]
        of_file = sorted(
            ((anonymise(episode, seed).record, episode.episode) for episode in made),
            key=lambda pair: pair[0].record_id,
        )
        for row, (record, episode) in enumerate(of_file):
            records.append(
                ProbedRecord(
                    file=f"policy/{environment}.jsonl.gz",
                    row=row,
                    num_rows=num_each,
                    record_id=record.record_id,
                    text=policy_row(record)["record"],
                    record=record,
                    environment=environment,
                    schema=episode.schema,
                    source=episode.provenance.source,
                    legal=legal_orders(record),
                )
            )
    return records


def legal_orders(record):
    anti = anti_relation(record)
    return tuple(o.index(anti.first) < o.index(anti.second) for o in all_orders(4))


def anti_relation(record):
    (found,) = [r for r in record.relations if r.kind != "commutes"]
    return found


def rewritten(probed, record):
    """The same row with another record in it."""
    return replace(
        probed,
        record_id=record.record_id,
        record=record,
        text=policy_row(record)["record"],
        legal=legal_orders(record),
    )


def with_pointers(record, pointers):
    return PolicyRecord(
        record_id=record.record_id, pointers=tuple(sorted(pointers)), relations=record.relations
    )


def with_anti(record, first, second):
    """The record whose anti-diamond joins two given slots."""
    kind = anti_relation(record).kind
    others = [(a, b) for a in range(4) for b in range(a + 1, 4) if {a, b} != {first, second}]
    relations = [PointerRelation(a, b, "commutes") for a, b in others]
    relations.append(PointerRelation(first, second, kind))
    return PolicyRecord(
        record_id=record.record_id, pointers=record.pointers, relations=tuple(sorted(relations))
    )


def dumped(record, relations):
    """The text of a record with its relations in a given sequence."""
    value = {**record.to_json(), "relations": [[r.first, r.second, r.kind] for r in relations]}
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def guess(records, target, view, *, backbone=None, seed=0, num_permutations=60):
    """The AUC of one probe."""
    task = make_task(target, records, seed, by_file=view == "row order")
    if view == "row order":
        features = row_order_features(task)
    elif view in HIDDEN_VIEWS:
        features = _hidden_features(task, records, backbone, seed)[view]
    else:
        features = word_features(task, view, seed)
    draw = generator(seed, "permutations")
    return cross_validated_auc(
        features, task.design, draw, penalty=penalty(view), num_permutations=num_permutations
    )


class _LastStates:
    """The hidden states of the last task: both ways of pooling come from one pass."""

    records = backbone = asked = features = None


def _hidden_features(task, records, backbone, seed):
    last, asked = _LastStates, (task.target, seed)
    if not (records is last.records and backbone is last.backbone and asked == last.asked):
        last.features = hidden_features(task, backbone, seed)
        last.records, last.backbone, last.asked = records, backbone, asked
    return last.features
