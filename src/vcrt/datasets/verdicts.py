"""Judge whether orders are legal from the native verifier's replays, made now or stored in the dataset.

If every reachable context of an episode was replayed, these replays decide about any order; the agreement gate has
repeated them. If a sample of the contexts was replayed, the order itself is replayed, once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from vcrt.datasets.agreement import require_versions
from vcrt.environments.contract import Environment, ReplayRequest
from vcrt.environments.guarding import make_guarded
from vcrt.errors import DatasetError, UnavailableError, UnknownNameError
from vcrt.orders import Order
from vcrt.records.dataset import Dataset, Item
from vcrt.replay.replay import replay_all
from vcrt.replay.shards import factory_of


class KnownOrders(Protocol):
    """An item that knows from its replays which of its orders are legal."""

    def is_legal(self, order: Order, /) -> bool:
        """Whether an order of slots is legal."""


def passes(
    items: Sequence[Item], known: Iterable[KnownOrders], orders: Sequence[Order | None]
) -> str:
    """Give for each item ``1`` if its order is legal, else ``0`` (also for None: no order at all).

    Raises :class:`UnavailableError` if an order must be replayed and its environment is not
    available, :class:`DatasetError` if the environment's versions are not those of the dataset, and
    :class:`vcrt.errors.VerifierFailure` if its verifier breaks.
    """
    verdicts = [
        order is not None and one.is_legal(order) for one, order in zip(known, orders, strict=True)
    ]
    asked: dict[str, list[int]] = {}
    for number, (item, order) in enumerate(zip(items, orders, strict=True)):
        if item.unreplayed is not None and order is not None:
            asked.setdefault(item.environment, []).append(number)
    for name, numbers in asked.items():
        for number, verdict in zip(numbers, _replayed(name, items, orders, numbers), strict=True):
            verdicts[number] = verdict
    return "".join("1" if verdict else "0" for verdict in verdicts)


def require_verifiers(dataset: Dataset, environments: Iterable[str]) -> None:
    """Raise as :func:`passes` would, before anything is opened, for items that need replays."""
    for name in environments:
        counts = dataset.manifest.counts[name].values()
        if any(one.evidence and one.evidence.complete < one.episodes for one in counts):
            _environment(name)
            require_versions(dataset, name, factory_of(name))


def _environment(name: str) -> Environment:
    try:
        return make_guarded(factory_of(name))
    except UnknownNameError as error:
        raise UnavailableError(
            "orders of this dataset must be replayed, but their environment is not registered here",
            where=f"environment {name!r}",
            found=error.what,
            expected="a registered environment, because the dataset holds only a sample of the replays",
            remedy="install the package that registers it",
        ) from error


def _replayed(
    name: str, items: Sequence[Item], orders: Sequence[Order | None], numbers: Sequence[int]
) -> list[bool]:
    environment = _environment(name)
    present = environment.versions()
    requests, references = [], []
    for number in numbers:
        known, order = items[number].unreplayed, orders[number]
        assert known is not None
        assert order is not None
        requests.append(ReplayRequest(known.episode, known.sequence(order)))
        references.append(known.outcome)
        if known.versions != present:
            raise DatasetError(
                f"an order cannot be replayed under other versions of {name!r}",
                where=items[number].episode_id,
                found=str(present),
                expected=str(known.versions),
                remedy="install the versions that certified the dataset",
            )
    answers = replay_all(environment, requests)
    return [
        answer.is_legal(reference) for answer, reference in zip(answers, references, strict=True)
    ]
