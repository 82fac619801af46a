"""Ask an environment in a process of its own, so that this process survives whatever it does, and can name it.

Registered environments of ``vcrt.plugins.IN_PROCESS`` are asked in this process. Certification does not use this
module: its workers are processes of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import factorial, perm
from typing import TypeVar

from vcrt import processes
from vcrt.environments.contract import (
    Environment,
    Guards,
    Schema,
    StepEnvironment,
    Versions,
    schema_named,
)
from vcrt.environments.guarding import make_guarded
from vcrt.environments.registry import Registered, in_process_names
from vcrt.environments.shared_prefixes import offers_snapshots, shares_prefixes
from vcrt.errors import VcrtError
from vcrt.limits import MAX_EXHAUSTIVE

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True, slots=True)
class Description:
    """An environment's description of itself; ``unavailable`` is the error if it has no versions here.

    ``shares_prefixes`` and ``offers_snapshots`` say how :mod:`vcrt.environments.shared_prefixes` can replay it,
    ``declares_footprints`` whether it declares what its steps read and write.
    """

    name: str
    schemas: tuple[Schema, ...]
    guards: Guards
    present: Versions | None
    unavailable: VcrtError | None = None
    shares_prefixes: bool = False
    offers_snapshots: bool = False
    declares_footprints: bool = False

    def versions(self) -> Versions:
        """Return its versions; raise the environment's error if it has none."""
        if self.unavailable is not None:
            raise self.unavailable
        assert self.present is not None
        return self.present

    def schema(self, name: str) -> Schema:
        """Return the schema of that name; raise :class:`vcrt.errors.UnknownNameError` if there is none."""
        return schema_named(self.name, self.schemas, name)

    def calls_for_all_orders(self, num_operations: int | None, *, sharing: bool) -> int | None:
        """Return how many calls it takes to replay every order of one episode, if all calls are accepted.

        Return None if not every order is replayed, or if the number of operations varies. With ``sharing``, each prefix
        runs once, where the environment allows it; otherwise each order starts afresh.
        """
        n = num_operations
        if n is None or n > MAX_EXHAUSTIVE:
            return None
        if not self.shares_prefixes:
            return factorial(n)
        if not sharing:
            return factorial(n) * (2 + 2 * n)
        calls = 2 * sum(perm(n, length) for length in range(n + 1))
        if self.offers_snapshots:
            # A snapshot of each prefix that two or more operations may follow; a restoration for each of these but one.
            calls += sum(perm(n, length) * (n - length) for length in range(n - 1))
        return calls


def ask(
    factory: Callable[[], Environment],
    question: Callable[[Environment], Result],
    *,
    on_wait: Callable[[], None] = lambda: None,
) -> Result:
    """Ask a guarded environment a question that can be sent to another process, and return the answer.

    Raise :class:`VcrtError`: the environment's own, or :class:`VerifierFailure` if the environment ends its process or
    exceeds its time limit twice.
    """
    (answer,) = ask_all(factory, [question], on_wait=on_wait)
    return answer


def ask_all(
    factory: Callable[[], Environment],
    questions: Sequence[Callable[[Environment], Result]],
    *,
    jobs: int = 1,
    on_wait: Callable[[], None] = lambda: None,
    first: bool = False,
) -> list[Result]:
    """Ask each question as :func:`ask` does, in up to ``jobs`` processes at once.

    One question alone is asked in a kept process, if two are kept: with ``first``, in the one that replays first.
    """
    if _is_asked_here(factory):
        return [question(make_guarded(factory)) for question in questions]
    kept = processes.kept_now()
    answers = processes.in_fresh_processes(
        _answer,
        [(factory, question) for question in questions],
        jobs=jobs,
        on_wait=on_wait,
        kept=(kept.first if first else kept.again) if kept else None,
    )
    return list(answers)


def ask_ahead(
    factory: Callable[[], Environment],
    question: Callable[[Environment], Result],
    *,
    on_wait: Callable[[], None] = lambda: None,
) -> Callable[[], Result]:
    """Begin a question in the kept process that replays first, if one is kept; return what awaits the answer."""
    kept = processes.kept_now()
    if kept is None or _is_asked_here(factory):
        return partial(ask, factory, question, on_wait=on_wait)
    return partial(kept.first.begin(_answer, (factory, question)), on_wait)


def prepare_again(factory: Callable[[], Environment], module: str) -> None:
    """Start the kept process that replays again, if one is kept, and have it import a module meanwhile."""
    kept = processes.kept_now()
    if kept is not None and not _is_asked_here(factory):
        kept.again.prepare(module)


def _is_asked_here(factory: Callable[[], Environment]) -> bool:
    return isinstance(factory, Registered) and factory.name in in_process_names()


def describe(factory: Callable[[], Environment]) -> Description:
    """Return an environment's description of itself; raise :class:`VcrtError` if it cannot be made."""
    return ask(factory, _description)


def _answer(
    work: tuple[Callable[[], Environment], Callable[[Environment], Result]],
) -> Result:
    factory, question = work
    return question(make_guarded(factory))


def _description(environment: Environment) -> Description:
    present, unavailable, guards = None, None, Guards()
    try:
        present = environment.versions()
        guards = environment.guards()
    except VcrtError as error:
        unavailable = error
    steps = environment if isinstance(environment, StepEnvironment) else None
    return Description(
        shares_prefixes=shares_prefixes(environment),
        offers_snapshots=steps is not None and offers_snapshots(steps),
        declares_footprints=type(environment).footprint is not Environment.footprint,
        name=environment.name,
        schemas=environment.schemas,
        guards=guards,
        present=present,
        unavailable=unavailable,
    )
