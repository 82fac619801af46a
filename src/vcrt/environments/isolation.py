"""Ask an environment in a process of its own: what it does to that process, this one survives and can name.

Environments that register for it (:mod:`vcrt.plugins`) are asked here: a process for each would be wasted. Not covered:
certification, whose workers are processes of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import factorial, perm
from typing import TypeVar

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
from vcrt.errors import VcrtError, VerifierFailure
from vcrt.limits import MAX_EXHAUSTIVE
from vcrt.processes import in_fresh_processes, kept_now

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True, slots=True)
class Description:
    """What an environment says of itself; ``unavailable`` is why it has no versions here, if so.

    ``shares_prefixes`` and ``offers_snapshots`` are what :mod:`vcrt.environments.shared_prefixes` makes of it,
    ``declares_footprints`` whether it says what its steps read and write.
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
        """Its versions; raises what the environment raised instead."""
        if self.unavailable is not None:
            raise self.unavailable
        assert self.present is not None
        return self.present

    def schema(self, name: str) -> Schema:
        """The schema of that name; raises :class:`vcrt.errors.UnknownNameError`."""
        return schema_named(self.name, self.schemas, name)

    def calls_for_all_orders(self, num_operations: int | None, *, sharing: bool) -> int | None:
        """The calls that replaying every order of one episode takes if all are accepted.

        None if not every order is replayed, or if lengths differ. With ``sharing``, each prefix is run once, where the
        environment allows it; otherwise each order starts afresh.
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
            # Of every prefix that more than one operation may follow, and again for each of these but the first.
            calls += sum(perm(n, length) * (n - length) for length in range(n - 1))
        return calls


def ask(
    factory: Callable[[], Environment],
    question: Callable[[Environment], Result],
    *,
    on_wait: Callable[[], None] = lambda: None,
) -> Result:
    """The answer of an environment to a question that can be sent to another process, behind a guard.

    Raises :class:`VcrtError`: what the environment raises, or :class:`VerifierFailure` when it ends its process or
    runs over its time limit, twice.
    """
    if isinstance(factory, Registered) and factory.name in in_process_names():
        return question(make_guarded(factory))
    kept = kept_now()
    (answer,) = in_fresh_processes(
        _answer,
        [(factory, question)],
        jobs=1,
        error=VerifierFailure,
        on_wait=on_wait,
        kept=kept.again if kept else None,
    )
    return answer


def describe(factory: Callable[[], Environment]) -> Description:
    """What an environment says of itself; raises :class:`VcrtError` if it cannot even be made."""
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
