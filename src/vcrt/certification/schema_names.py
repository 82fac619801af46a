"""Find the schemas of each environment by the names that a user gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from vcrt.environments.contract import ANY, Schema
from vcrt.environments.isolation import Description, describe
from vcrt.environments.registry import PAPER_ENVIRONMENTS, Registered
from vcrt.errors import VcrtError


def select_schemas(
    names: Iterable[str] = (),
    preset: str = "paper",
    *,
    load: Callable[[str], Description] = lambda name: describe(Registered(name)),
) -> dict[str, tuple[str, ...]]:
    """Schemas by environment, from names like ``clrs`` or ``clrs/mst_kruskal``; those of the paper for no names.

    An environment by itself stands for its default schemas of the preset; the preset ``any`` takes those of every one.

    Raises :class:`vcrt.errors.UnknownNameError` for a name that is not registered, and :class:`vcrt.errors.VcrtError`
    for one that has nothing of the preset.
    """
    chosen: dict[str, list[str]] = {}
    for name in tuple(names) or PAPER_ENVIRONMENTS:
        environment_name, _, schema = name.partition("/")
        environment = load(environment_name)
        wanted = [s.name for s in environment.schemas if s.default and preset in (s.preset, ANY)]
        if schema:
            _require(environment.schema(schema), name, preset)
            wanted = [schema]
        if not wanted:
            raise _nothing(environment, preset)
        listed = chosen.setdefault(environment_name, [])
        listed += [one for one in wanted if one not in listed]
    return {name: tuple(listed) for name, listed in sorted(chosen.items())}


def _require(schema: Schema, name: str, preset: str) -> None:
    if preset not in (schema.preset, ANY):
        raise VcrtError(
            "a schema that was made for another preset",
            found=f"{name}, for preset {schema.preset!r}",
            expected=f"schemas for preset {preset!r}",
            remedy=f"add --preset {schema.preset} (or --preset {ANY}), or leave the schema out",
        )


def _nothing(environment: Description, preset: str) -> VcrtError:
    presets = dict.fromkeys(schema.preset for schema in environment.schemas)
    return VcrtError(
        "an environment without a schema for this preset",
        found=f"environment {environment.name!r}, preset {preset!r}",
        expected=f"one of its presets: {', '.join(presets)}",
        remedy="choose one of these, or give an environment of your own a schema for it",
    )
