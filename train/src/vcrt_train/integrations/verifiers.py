"""Turn a frozen dataset into an environment of ``verifiers``: one task for each record, scored by its orbit.

The answer to a task is the pointers of an order, separated by spaces. It gets 1 if the order is in the certified orbit,
and otherwise 0; a malformed answer gets 0, and the metric ``malformed`` is 1. ``verifiers`` finds the taskset by the
name ``vcrt-orders``, also in its own commands: ``vf-eval vcrt-orders --env.taskset.dataset runs/data
--env.agent.harness.id null --env.agent.runtime.type subprocess``. A rollout needs the requirements of that harness: a
model's endpoint, and ``uv`` on the path. Scoring needs neither.

Not covered: models that write their reasoning before the answer, unless the harness removes it from the last reply.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vcrt.errors import DatasetError, UnavailableError
from vcrt.plugins import installing_extra
from vcrt.records.dataset import Dataset, Item, load_items, open_dataset
from vcrt.records.policy_view import Serialisation
from vcrt.records.supervision import PosetRecord
from vcrt_train.integrations.text import (
    Form,
    Rendering,
    answers,
    chosen_environments,
    is_certified,
    prompt_text,
    read_answer,
)

try:
    import verifiers.v1 as vf
except ImportError as error:
    raise UnavailableError(
        "the package verifiers is not installed",
        found=str(error),
        remedy=installing_extra("verifiers", "vcrt-train"),
    ) from error

#: The name of the taskset; ``verifiers`` looks for it in the top-level package ``vcrt_orders``.
TASKSET = "vcrt-orders"


class OrderData(vf.TaskData):  # type: ignore[misc]
    """The data of a task; ``id`` is that of the record."""

    #: The pointer of each slot.
    pointers: list[int]
    #: The certified orbit, as answers; None if there are too many to list.
    orbit: list[str] | None
    #: The pairs of the certified partial order, in slots, if the orbit is not listed.
    partial_order: list[tuple[int, int]] | None = None


class OrdersConfig(vf.TasksetConfig):  # type: ignore[misc]
    """Which records become tasks, and how they are written."""

    id: str = TASKSET
    #: A directory made by ``vcrt certify``.
    dataset: Path | None = None
    #: The environments; all by default.
    environments: list[str] | None = None
    #: An environment to leave out; its files stay unopened.
    held_out: str | None = None
    form: Form = "words"
    serialisation: Serialisation = "sorted"
    seed: int = 0


class OrderTask(vf.Task[OrderData]):  # type: ignore[misc]
    """One record: put its pointers into an order of its certified orbit."""

    @vf.reward  # type: ignore[untyped-decorator]
    async def certified(self, trace: Any) -> float:
        """Return 1 if the last reply is in the certified orbit, else 0."""
        return score_answer(
            self.data.pointers, self.data.orbit, trace.last_reply, self.data.partial_order
        )

    @vf.metric  # type: ignore[untyped-decorator]
    async def malformed(self, trace: Any) -> float:
        """Return 1 if the last reply is not an order of the task's pointers, else 0."""
        return float(read_answer(self.data.pointers, trace.last_reply) is None)

    async def validate(self, runtime: Any) -> bool:
        """Return whether the orbit has answers, all well-formed and different; or, without it, a partial order."""
        if self.data.orbit is None:
            return self.data.partial_order is not None
        answers = [read_answer(self.data.pointers, answer) for answer in self.data.orbit]
        return None not in answers and len(set(answers)) == len(answers) > 0


class OrdersTaskset(vf.Taskset[OrderTask, OrdersConfig]):  # type: ignore[misc]
    """The tasks of a frozen dataset, in its order."""

    def load(self) -> Iterable[OrderTask]:
        """Yield one task for each record of the chosen environments."""
        dataset, names = _chosen(self.config)
        for name in names:
            for item in load_items(dataset, name):
                yield OrderTask(_task_data(item, self.config), self.config.task)


def score_answer(
    pointers: Sequence[int],
    orbit: Sequence[str] | None,
    answer: str,
    partial_order: Sequence[tuple[int, int]] | None = None,
) -> float:
    """Return 1.0 if ``answer`` gives an order of the orbit (for any white space); 0.0 for other or malformed answers.

    Without a listed orbit, return 1.0 for an order that keeps the pairs of ``partial_order``.
    """
    return float(is_certified(answer, orbit, partial_order or (), pointers))


def load_environment(
    dataset_path: str | Path,
    *,
    environments: Sequence[str] | None = None,
    held_out: str | None = None,
    rendering: Rendering = Rendering(),  # noqa: B008 - frozen
) -> Any:
    """Make a single-agent environment of ``verifiers`` over a frozen dataset; each task has one reply and no tools.

    Raises :class:`vcrt.errors.DatasetError` at once, not in a rollout, if the dataset is missing or changed.
    """
    config = OrdersConfig(
        dataset=Path(dataset_path),
        environments=None if environments is None else list(environments),
        held_out=held_out,
        **asdict(rendering),
    )
    _chosen(config)
    agent = {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}, "max_turns": 1}
    return vf.load_environment(vf.SingleAgentEnvConfig(taskset=config, agent=agent))


def _chosen(config: OrdersConfig) -> tuple[Dataset, list[str]]:
    if config.dataset is None:
        raise DatasetError(
            "no dataset was named",
            where=f"taskset {TASKSET}",
            expected="a directory made by `vcrt certify`",
            remedy="give --env.taskset.dataset DIRECTORY",
        )
    held_out = config.held_out
    dataset = open_dataset(config.dataset, without=[] if held_out is None else [held_out])
    return dataset, chosen_environments(dataset, config.environments, held_out)


def _task_data(item: Item, config: OrdersConfig) -> OrderData:
    supervised, record = item.supervised, item.supervised.record
    rendering = Rendering(form=config.form, serialisation=config.serialisation, seed=config.seed)
    return OrderData(
        id=record.record_id,
        prompt=prompt_text(record, rendering),
        pointers=list(record.pointers),
        orbit=None if isinstance(supervised, PosetRecord) else answers(supervised)[0],
        partial_order=list(supervised.order.pairs) if isinstance(supervised, PosetRecord) else None,
    )
