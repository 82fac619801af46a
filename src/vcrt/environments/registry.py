"""Find environments by name, as plug-ins of the entry-point group ``vcrt.environments``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points

from vcrt.call_record import current_record
from vcrt.environments.contract import Environment
from vcrt.errors import UnavailableError, UnknownNameError, VcrtError

GROUP = "vcrt.environments"
#: The environments of the paper, which are certified when none is named.
PAPER_ENVIRONMENTS = ("clrs", "lean", "proofwriter")


def environment_names() -> tuple[str, ...]:
    """The names of all registered environments, sorted.

    >>> {"clrs", "lean", "proofwriter"} <= set(environment_names())
    True
    """
    return tuple(sorted({point.name for point in entry_points(group=GROUP)}))


@cache
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
            where = f"entry point {point.value!r} of group {GROUP!r}"
            return make_environment(name, partial(_loaded, point), where)
    raise UnknownNameError.of("environment", name, environment_names())


def _loaded(point: EntryPoint) -> object:
    return point.load()()


def make_environment(
    name: str, factory: Callable[[], object], where: str | None = None
) -> Environment:
    """What a class, or another callable without arguments, makes; raises :class:`UnavailableError` if it does not.

    Whatever somebody's class raises is named here, but for errors that are named already.
    """
    if isinstance(factory, Environment):
        raise UnavailableError(
            f"environment {name!r} is given by an instance",
            where=where,
            found=f"an object of {type(factory).__name__}",
            expected="its class: processes make environments of their own",
        )
    try:
        made = factory()
    except VcrtError:
        raise
    # An import that exits, too: it must not end the command as if that had done its work.
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and current_record() is None:
            raise  # whoever sits before this process
        raise UnavailableError(
            f"environment {name!r} cannot be loaded",
            where=where,
            found=f"{type(error).__name__}: {error}",
            expected="a class that can be made without arguments, with every method of the contract",
            remedy="mend or uninstall its package, or name other environments",
        ) from error
    if not isinstance(made, Environment):
        raise UnavailableError(
            f"the plug-in for environment {name!r} is not an Environment",
            where=where,
            found=type(made).__name__,
            expected="a callable without arguments that returns a vcrt.environments.contract.Environment",
        )
    return made


@dataclass(frozen=True, slots=True)
class Registered:
    """Makes the registered environment of a name; two of one name are equal, also in another process."""

    name: str

    def __call__(self) -> Environment:
        """Make it; raises what :func:`load_environment` raises."""
        return load_environment(self.name)
