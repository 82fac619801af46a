"""List the environments that can be chosen, and validate one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vcrt.api.certifying import Environments
from vcrt.environments.conformance import Finding
from vcrt.environments.isolation import Description, describe
from vcrt.environments.registry import FromFile, Registered, environment_names, named_factory
from vcrt.errors import VcrtError
from vcrt.progress import SILENT, Progress
from vcrt.replay.validation import Cost, look_in_a_process, not_looked_at

NUM_EPISODES = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Validation:
    """The findings about an environment, the cost of its long episodes, and, in words, what a quick check left out."""

    findings: Sequence[Finding]
    costs: Sequence[Cost]
    left_out: str | None


def list_environments() -> dict[str, Description | VcrtError]:
    """List the registered environments: each with its own description, or with the reason why it is not available.

    Example: vcrt environments list

    Examples:
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
    """Run the conformance kit on an environment, and certify a few episodes of each schema.

    Example: vcrt environments validate clrs

    Args:
        name: The environment to validate: a registered name, or FILE.py:CLASS (in Python, one of `environments` too).
        quick: Check only one episode of each schema and a few of its orders: for slow verifiers, and for a first try.
        environments: Environments that are not registered: each name with a class, or with a function that makes one.

    Returns:
        The findings. A check that failed is a finding, never an exception.

    Raises:
        UnknownNameError: There is no environment of that name.
        VerifierFailure: The environment ends its process, or runs over its time limit.
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
