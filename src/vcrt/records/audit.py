"""Make and read rows of the sealed audit view: everything that was executed, as rows of JSON columns.

A row holds an episode in its native form, the versions that judged it, every replay, every certificate, the relation
graph and the orbit, and the link to its policy record. Certificates are checked from it; no policy ever sees it. If an
episode has too many operations for a replay of every order, ``replays`` is the tree of replays, ``certificates`` gives
for each pair the number of contexts in which it was compared, with examples, and ``orbit`` holds the certified order's
pairs and the number of legal orders.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, TypeAlias

from pydantic import Field, TypeAdapter
from pydantic import Strict as StrictOf

from vcrt.certificates.episodes import CertifiedEpisode, Exclusion, Preset, certify_episode
from vcrt.certificates.replay_tree import EpisodeReplays, tree_from_json
from vcrt.environments.contract import Episode, Versions
from vcrt.errors import DatasetError, MalformedInputError
from vcrt.forms import Count, Digest, Strict, in_a_line
from vcrt.hashing import json_text
from vcrt.limits import MAX_EXHAUSTIVE, MAX_OPERATIONS
from vcrt.orders import all_orders
from vcrt.printable import counted
from vcrt.records.anonymise import Anonymised
from vcrt.replay.evidence import cross_checks_from_json, episode_from_json
from vcrt.replay.replay import replay_from_json


class OperationForm(Strict):
    """An operation."""

    signature: str
    payload: Any


class ProvenanceForm(Strict):
    """The origin of an episode."""

    source: str
    generator: str
    seed: int


class EpisodeForm(Strict):
    """An episode in its native form."""

    environment: str
    schema_name: str = Field(alias="schema")
    initial: Any
    operations: Annotated[list[OperationForm], Field(min_length=2, max_length=MAX_OPERATIONS)]
    provenance: ProvenanceForm


class VersionsForm(Strict):
    """The versions that judged an episode."""

    environment: str
    adapter: str
    canonicalizer: str
    verifier: str
    libraries: dict[str, str]


class ReplayForm(Strict):
    """A verifier's answers along one order."""

    order: list[int]
    state_hashes: Annotated[list[Digest], Field(min_length=1)]
    rejection: str | None
    #: Left out if no step has one.
    outputs: list[str | None] = Field(default_factory=list)


#: ``[checker, checked, agreed]``, written as a JSON list.
CrossCheckForm: TypeAlias = Annotated[tuple[str, Count, Count], StrictOf(strict=False)]


_EPISODE: TypeAdapter[Any] = TypeAdapter(EpisodeForm)
_REPLAYS: TypeAdapter[Any] = TypeAdapter(list[ReplayForm])
_VERSIONS: TypeAdapter[Any] = TypeAdapter(VersionsForm)
_CROSS_CHECKS: TypeAdapter[Any] = TypeAdapter(list[CrossCheckForm])
#: The columns of an audit file, in their order. All are UTF-8 strings; those after ``record_id`` hold canonical JSON.
AUDIT_COLUMNS = (
    "episode_id",
    "schema",
    "source",
    "content_hash",
    "record_id",
    "slot_of_operation",
    "episode",
    "versions",
    "replays",
    "certificates",
    "relations",
    "orbit",
    "cross_checks",
)


def audit_row(own: Mapping[str, str], anonymised: Anonymised) -> dict[str, str]:
    """Return one row of the audit view from an episode's ``own`` columns (:func:`vcrt.replay.evidence.own_columns`)."""
    slots = json_text(list(anonymised.slot_of_operation))
    return {**own, "record_id": anonymised.record.record_id, "slot_of_operation": slots}


def certified_from_row(row: Mapping[str, str], preset: Preset) -> CertifiedEpisode:
    """Certify a row's replays again; raise :class:`DatasetError` if they give no certified episode.

    Derive certificates, relations and orbit from the replays, never from the row's text.
    """
    name = f"episode {row['episode_id'][:200]}"
    episode = episode_of_json(row["episode"], name)
    with _in_due_form(name):
        long = episode.num_operations > MAX_EXHAUSTIVE
        text = row["replays"]
        evidence = evidence_of(episode, json.loads(text) if long else _of(_REPLAYS, text))
        versions = Versions(**_of(_VERSIONS, row["versions"]))
        cross_checks = cross_checks_from_json(_of(_CROSS_CHECKS, row["cross_checks"]))
    outcome = certify_episode(evidence, versions, preset, cross_checks)
    if isinstance(outcome, Exclusion):
        raise DatasetError(
            "an episode's replays do not certify it",
            where=f"episode {row['episode_id']}",
            found=f"{outcome.kind}: {outcome.detail}",
            remedy="make the dataset again with `vcrt certify`",
        )
    return outcome


def evidence_of(episode: Episode, value: Any) -> EpisodeReplays:
    """Read the replays of an episode from JSON.

    Raise :class:`MalformedInputError`, naming the field, if they are not the replays of every order or, for a long
    episode, not a tree for its number of operations.
    """
    num_operations = episode.num_operations
    if isinstance(value, Mapping) != (num_operations > MAX_EXHAUSTIVE):
        raise MalformedInputError(
            "the replays do not have the form for this number of operations",
            where="episode.operations",
            found=f"{counted(num_operations, 'operation')}",
            expected=f"a replay of every order up to {MAX_EXHAUSTIVE} operations, and a tree above",
        )
    if isinstance(value, Mapping):
        tree = tree_from_json(value)
        if tree.num_operations != num_operations:
            raise MalformedInputError(
                "a tree of replays of another episode",
                where=episode.episode_id[:200],
                found=f"{counted(tree.num_operations, 'operation')}",
                expected=str(num_operations),
            )
        return EpisodeReplays(episode, tree)
    replays = [replay_from_json(each) for each in value]
    orders = all_orders(num_operations)
    if len(replays) != len(orders):
        raise MalformedInputError(
            "not the replays of all orders",
            where="replays",
            found=f"{counted(len(replays), 'replay')}",
            expected=f"all {counted(len(orders), 'order')}",
        )
    for index, (replay, order) in enumerate(zip(replays, orders, strict=True)):
        if replay.sequence != order:
            raise MalformedInputError(
                "the replay of another order",
                where=f"replays[{index}].order",
                found=str(list(replay.sequence))[:160],
                expected=str(list(order)),
            )
        missing = len(order) + 1 - len(replay.state_hashes)
        if missing < 0 or (missing > 0 and replay.accepted):
            raise MalformedInputError(
                "a replay that does not end as it says",
                where=f"replays[{index}].state_hashes",
                found=f"{counted(len(replay.state_hashes), 'hash', 'hashes')}",
                expected=f"{len(order) + 1}, or fewer and the message that refused a step",
            )
    return EpisodeReplays.of_every_order(episode, replays)


def episode_of_json(text: str, where: str) -> Episode:
    """Return the episode in an audit row's text; raise :class:`DatasetError` if it is malformed."""
    with _in_due_form(where):
        episode = episode_from_json(_of(_EPISODE, text))
        episode.content_hash()
    return episode


def _of(form: TypeAdapter[Any], text: str) -> Any:
    form.validate_json(text)
    return json.loads(text)


@contextmanager
def _in_due_form(where: str) -> Iterator[None]:
    """Turn every fault in a row's JSON into one named error."""
    try:
        yield
    except (ValueError, RecursionError) as error:
        found = f"{type(error).__name__}: {in_a_line(error)[:300]}"
        if isinstance(error, MalformedInputError):
            found = ": ".join(filter(None, (error.what, error.where, error.found)))[:300]
        raise DatasetError(
            "an audit row does not have the documented form",
            where=where,
            found=found,
            remedy="restore the original, or make the dataset again with `vcrt certify`",
        ) from error
