"""From names of schemas on the command line to the schemas of each environment."""

from __future__ import annotations

from vcrt.environments.registry import load_environment, own_environment_names


def select_schemas(names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Schemas by environment, from names like ``clrs`` or ``clrs/mst_kruskal``; vcrt's own environments for no names.

    An environment by itself stands for its default schemas.

    Raises :class:`vcrt.errors.UnknownNameError` for a name that is not registered.
    """
    chosen: dict[str, list[str]] = {}
    for name in names or own_environment_names():
        environment_name, _, schema = name.partition("/")
        environment = load_environment(environment_name)
        known = [s.name for s in environment.schemas if s.default]
        wanted = [environment.schema(schema).name] if schema else known
        listed = chosen.setdefault(environment_name, [])
        listed += [one for one in wanted if one not in listed]
    return {name: tuple(listed) for name, listed in sorted(chosen.items())}
