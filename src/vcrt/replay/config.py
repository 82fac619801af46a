"""Describe what to certify: series of candidate episodes, sampled by schema or given one by one, and schemas by name.

Equal configurations under equal versions give equal datasets, whatever the number of processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from vcrt.certificates.episodes import PAPER_PRESET, Preset
from vcrt.environments.contract import ANY, Episode
from vcrt.environments.isolation import Description, describe
from vcrt.environments.registry import Registered
from vcrt.errors import MalformedInputError, VcrtError
from vcrt.hashing import Json, json_digest
from vcrt.plugins import PAPER_ENVIRONMENTS
from vcrt.randomness import derive_seed

#: The most candidates in one shard.
SHARD_SIZE = 10


def shard_size(num_episodes: int) -> int:
    """Return the candidates of one shard for so many requested episodes: few for few, so that none is wasted.

    A shard has at least two: replays in another succession show what one episode leaves behind for the next. The size
    depends on nothing else, so an interrupted certification finds its shards again.
    """
    return min(SHARD_SIZE, max(2, -(-num_episodes // 4)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """The candidates of one schema.

    They are sampled until ``wanted`` are certified; if ``wanted`` is None, they are the given ``episodes``.
    """

    environment: str
    schema: str
    wanted: int | None
    episodes: tuple[Episode, ...] = ()

    @property
    def name(self) -> str:
        """``environment/schema``."""
        return f"{self.environment}/{self.schema}"

    def to_json(self) -> dict[str, Json]:
        """Return the request: a number of sampled episodes, or a digest of the given ones."""
        asked: dict[str, Json] = {"environment": self.environment, "schema": self.schema}
        if self.wanted is not None:
            return {**asked, "sampled": self.wanted}
        digest = json_digest([[e.episode_id, e.content_hash()] for e in self.episodes])
        return {**asked, "given": len(self.episodes), "sha256": digest}


@dataclass(frozen=True, kw_only=True, slots=True)
class CertificationConfig:
    """What to certify, the seed from which every candidate's seed is derived, and the requirements on episodes.

    Raises :class:`MalformedInputError` if two series have one name.
    """

    series: tuple[Series, ...]
    seed: int = 0
    preset: Preset = PAPER_PRESET

    def __post_init__(self) -> None:
        names = [series.name for series in self.series]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise MalformedInputError(
                "a schema was named twice",
                found=", ".join(repeated),
                expected="one series for each schema of an environment",
            )

    @property
    def environments(self) -> tuple[str, ...]:
        """The environments of the series, in order of first appearance."""
        return tuple(dict.fromkeys(series.environment for series in self.series))

    def to_json(self) -> dict[str, Json]:
        """Return the JSON form, as manifests hold it."""
        return {
            "seed": self.seed,
            "num_operations": self.preset.num_operations,
            "orbit_size": self.preset.orbit_size,
            **({"sampled": True} if self.preset.samples else {}),
            "series": [series.to_json() for series in self.series],
        }

    def candidate_seed(self, series: Series, number: int) -> int:
        """Return the seed of a sampled series' candidate."""
        return derive_seed(self.seed, series.environment, series.schema, number) % 2**31


def sampled(
    schemas: Mapping[str, Sequence[str]],
    episodes: int | Mapping[str, int],
    *,
    seed: int = 0,
    preset: Preset = PAPER_PRESET,
) -> CertificationConfig:
    """Return sampled series: ``schemas`` by environment, ``episodes`` for each schema (or by environment)."""
    return CertificationConfig(
        series=tuple(
            Series(
                environment=environment,
                schema=schema,
                wanted=episodes if isinstance(episodes, int) else episodes[environment],
            )
            for environment, names in schemas.items()
            for schema in names
        ),
        seed=seed,
        preset=preset,
    )


def given(episodes: Sequence[Episode], *, preset: Preset = PAPER_PRESET) -> CertificationConfig:
    """Return series of given episodes, one for each environment and schema, sorted; episodes keep their order."""
    grouped: dict[tuple[str, str], list[Episode]] = {}
    for episode in episodes:
        grouped.setdefault((episode.environment, episode.schema), []).append(episode)
    return CertificationConfig(
        series=tuple(
            Series(environment=environment, schema=schema, wanted=None, episodes=tuple(some))
            for (environment, schema), some in sorted(grouped.items())
        ),
        preset=preset,
    )


def select_schemas(
    names: Iterable[str] = (),
    preset: str = "paper",
    *,
    load: Callable[[str], Description] = lambda name: describe(Registered(name)),
) -> dict[str, tuple[str, ...]]:
    """Return schemas by environment, from names like ``clrs`` or ``clrs/mst_kruskal``; the paper's for no names.

    An environment without a schema stands for its default schemas of the preset, or of every preset if that is ``any``.

    Raise :class:`vcrt.errors.UnknownNameError` for an unknown name, and :class:`vcrt.errors.VcrtError` for one that has
    nothing of the preset.
    """
    chosen: dict[str, list[str]] = {}
    for name in tuple(names) or PAPER_ENVIRONMENTS:
        environment_name, _, schema = name.partition("/")
        environment = load(environment_name)
        wanted = [s.name for s in environment.schemas if s.default and preset in (s.preset, ANY)]
        if schema:
            own = environment.schema(schema).preset
            if preset not in (own, ANY):
                raise VcrtError(
                    "a schema that was made for another preset",
                    found=f"{name}, for preset {own!r}",
                    expected=f"schemas for preset {preset!r}",
                    remedy=f"add --preset {own} (or --preset {ANY}), or leave the schema out",
                )
            wanted = [schema]
        if not wanted:
            presets = dict.fromkeys(one.preset for one in environment.schemas)
            raise VcrtError(
                "an environment without a schema for this preset",
                found=f"environment {environment.name!r}, preset {preset!r}",
                expected=f"one of its presets: {', '.join(presets)}",
                remedy="choose one of these, or give an environment of your own a schema for it",
            )
        listed = chosen.setdefault(environment_name, [])
        listed += [one for one in wanted if one not in listed]
    return {name: tuple(listed) for name, listed in sorted(chosen.items())}
