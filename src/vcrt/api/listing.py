"""List the environments that can be chosen, and validate one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vcrt.api.certifying import Environments
from vcrt.certification.rehearsal import look_in_a_process
from vcrt.certification.validation import Cost, not_looked_at
from vcrt.environments.conformance import Finding
from vcrt.environments.isolation import Description, describe
from vcrt.environments.registry import FromFile, Registered, environment_names, named_factory
from vcrt.errors import VcrtError
from vcrt.progress import SILENT, Progress

NUM_EPISODES = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Validation:
    """What was found of an environment, what its long episodes cost, and what a quick look has left out, in words."""

    findings: Sequence[Finding]
    costs: Sequence[Cost]
    left_out: str | None


def list_environments() -> dict[str, Description | VcrtError]:
    """What each registered environment says of itself, or why it is not available: ``vcrt environments``.

    >>> [schema.name for schema in list_environments()["clrs"].schemas][0]
    'bellman_ford'
    """
    found = dict[str, Description | VcrtError]()
    for name in environment_names():
        try:
            found[name] = environment = describe(Registered(name))
            environment.versions()
        except VcrtError as error:
            found[name] = error
    return found


def validate_environment(
    name: str,
    *,
    quick: bool = False,
    environments: Environments | None = None,
    progress: Progress = SILENT,
) -> Validation:
    """Run the conformance kit, and certify a few episodes of each schema: ``vcrt environments validate``.

    ``name`` is registered, one of ``environments``, or ``FILE.py:CLASS``. ``quick`` looks at a part of it. A check that
    failed is a finding, never an exception. Raises
    :class:`vcrt.errors.UnknownNameError` for a name that is neither registered nor among ``environments``, and
    :class:`vcrt.errors.VerifierFailure` for one that ends its process or runs over its time limit.
    """
    factory = (environments or {}).get(name) or named_factory(name)
    environment = describe(factory)
    wrong = not isinstance(factory, FromFile) and environment.name != name
    named = f"its class says {environment.name!r}" if wrong else None
    own = Finding("registered under its own name", name, named, "give both the same name")
    findings, costs = look_in_a_process(factory, range(NUM_EPISODES), progress, quick=quick)
    return Validation(
        findings=(own, *findings),
        costs=costs,
        left_out=not_looked_at(environment, NUM_EPISODES) if quick else None,
    )
