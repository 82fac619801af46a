"""Say what to certify: series of candidate episodes, sampled by schema or given one by one, and schemas by name.

Equal configurations under equal versions give equal datasets. Not covered: how the work is done and by how many.
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
    """Candidates in one shard where so many episodes are asked for: few at a time for few, so that none is in vain.

    Two at least: what one episode leaves behind for the next shows when they are replayed in another succession. It
    depends on nothing else: an interrupted certification finds its shards again.
    """
    return min(SHARD_SIZE, max(2, -(-num_episodes // 4)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """The candidates of one schema.

    Sampled until ``wanted`` are certified; or, if ``wanted`` is None, the given ``episodes``, as many as certify.
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
        """What the series asks for: a number of sampled episodes, or a digest of the given ones."""
        asked: dict[str, Json] = {"environment": self.environment, "schema": self.schema}
        if self.wanted is not None:
            return {**asked, "sampled": self.wanted}
        digest = json_digest([[e.episode_id, e.content_hash()] for e in self.episodes])
        return {**asked, "given": len(self.episodes), "sha256": digest}


@dataclass(frozen=True, kw_only=True, slots=True)
class CertificationConfig:
    """What to certify, from which seed every candidate's own seed is derived, and what a frozen episode looks like.

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
                "a schema stands twice in what is to be certified",
                found=", ".join(repeated),
                expected="one series for each schema of an environment",
            )

    @property
    def environments(self) -> tuple[str, ...]:
        """The environments of the series, in order of first appearance."""
        return tuple(dict.fromkeys(series.environment for series in self.series))

    def to_json(self) -> dict[str, Json]:
        """The JSON form, as manifests hold it."""
        return {
            "seed": self.seed,
            "num_operations": self.preset.num_operations,
            "orbit_size": self.preset.orbit_size,
            **({"sampled": True} if self.preset.samples else {}),
            "series": [series.to_json() for series in self.series],
        }

    def candidate_seed(self, series: Series, number: int) -> int:
        """The seed of a sampled series' candidate."""
        return derive_seed(self.seed, series.environment, series.schema, number) % 2**31


def sampled(
    schemas: Mapping[str, Sequence[str]],
    episodes: int | Mapping[str, int],
    *,
    seed: int = 0,
    preset: Preset = PAPER_PRESET,
) -> CertificationConfig:
    """Sampled series: ``schemas`` by environment, ``episodes`` for each schema (or by environment)."""
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
    """Series of given episodes, one for each environment and schema, in the order of the episodes."""
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
