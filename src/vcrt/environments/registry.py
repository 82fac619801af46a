"""Environments by name, as plug-ins of the entry-point group ``vcrt.environments``."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import entry_points

from vcrt.environments.contract import Environment
from vcrt.errors import UnavailableError, UnknownNameError

GROUP = "vcrt.environments"


def environment_names() -> tuple[str, ...]:
    """The names of all registered environments, sorted.

    >>> {"clrs", "lean", "proofwriter"} <= set(environment_names())
    True
    """
    return tuple(sorted({point.name for point in entry_points(group=GROUP)}))


def own_environment_names() -> tuple[str, ...]:
    """The names of the environments that come with vcrt itself, sorted."""
    points = entry_points(group=GROUP)
    return tuple(sorted({p.name for p in points if p.dist is not None and p.dist.name == "vcrt"}))


def load_environment(name: str) -> Environment:
    """Make the environment of that name.

    Raises :class:`UnknownNameError` for an unknown name and :class:`UnavailableError` when the plug-in does not give
    an :class:`Environment`.
    """
    for point in entry_points(group=GROUP):
        if point.name == name:
            try:
                made = point.load()()
            except (ImportError, AttributeError) as error:
                raise UnavailableError(
                    f"environment {name!r} cannot be loaded",
                    where=f"entry point {point.value!r} of group {GROUP!r}",
                    found=f"{type(error).__name__}: {error}",
                    remedy="mend or uninstall its package, or name other environments",
                ) from error
            if not isinstance(made, Environment):
                raise UnavailableError(
                    f"the plug-in for environment {name!r} is not an Environment",
                    where=f"entry point {point.value!r} of group {GROUP!r}",
                    found=type(made).__name__,
                    expected="a callable without arguments that returns a vcrt.environments.contract.Environment",
                )
            return made
    raise UnknownNameError.of("environment", name, environment_names())


@dataclass(frozen=True, slots=True)
class Registered:
    """Makes the registered environment of a name; two of one name are equal, also in another process."""

    name: str

    def __call__(self) -> Environment:
        """Make it; raises what :func:`load_environment` raises."""
        return load_environment(self.name)
