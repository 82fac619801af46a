"""Hold what the two passes over a shard give, and write it as the JSON that lies in a store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from vcrt.certification.certificates import ExclusionKind
from vcrt.certification.episodes import Exclusion
from vcrt.certification.evidence import (
    Evidence,
    cross_checks_from_json,
    cross_checks_to_json,
    evidence_from_json,
)
from vcrt.environments.contract import Versions
from vcrt.errors import DatasetError
from vcrt.hashing import Json


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstReplay:
    """What a shard's candidates gave; ``process`` names the process in which they were replayed."""

    versions: tuple[Versions, ...]
    outcomes: tuple[Evidence | Exclusion, ...]
    process: str

    def to_json(self) -> Json:
        """The JSON form."""
        return {
            "versions": [versions.to_json() for versions in self.versions],
            "outcomes": [
                _exclusion_to_json(outcome) if isinstance(outcome, Exclusion) else outcome.to_json()
                for outcome in self.outcomes
            ],
            "process": self.process,
        }

    @classmethod
    def from_json(cls, value: Any) -> FirstReplay:
        """Read the JSON form."""
        with _in_due_form():
            return cls(
                versions=tuple(Versions(**versions) for versions in value["versions"]),
                outcomes=tuple(
                    _exclusion_from_json(outcome)
                    if "exclusion" in outcome
                    else evidence_from_json(outcome)
                    for outcome in value["outcomes"]
                ),
                process=value["process"],
            )

    def evidence(self) -> tuple[Evidence, ...]:
        """The evidence of the candidates that were certified."""
        return tuple(outcome for outcome in self.outcomes if isinstance(outcome, Evidence))


@dataclass(frozen=True, kw_only=True, slots=True)
class SecondReplay:
    """How the second replay of each certified candidate differs from the first, None where it does not.

    ``of`` is the digest of the first replay that it was compared with.
    """

    versions: tuple[Versions, ...]
    differences: tuple[str | None, ...]
    of: str

    def to_json(self) -> Json:
        """The JSON form."""
        return {
            "versions": [versions.to_json() for versions in self.versions],
            "differences": list(self.differences),
            "of": self.of,
        }

    @classmethod
    def from_json(cls, value: Any) -> SecondReplay:
        """Read the JSON form."""
        with _in_due_form():
            return cls(
                versions=tuple(Versions(**versions) for versions in value["versions"]),
                differences=tuple(value["differences"]),
                of=value["of"],
            )


@contextmanager
def _in_due_form() -> Iterator[None]:
    """A piece that is whole by its digest may still come from elsewhere."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DatasetError(
            "a piece of an unfinished certification does not have the documented form",
            found=f"{type(error).__name__}: {str(error)[:300]}",
            remedy="remove the folder of unfinished work (the output with .shards after its name) and certify again",
        ) from error


def _exclusion_to_json(exclusion: Exclusion) -> dict[str, Json]:
    return {
        "exclusion": exclusion.kind,
        "episode_id": exclusion.episode_id,
        "detail": exclusion.detail,
        "cross_checks": cross_checks_to_json(exclusion.cross_checks),
    }


def _exclusion_from_json(value: Any) -> Exclusion:
    return Exclusion(
        value["episode_id"],
        cast(ExclusionKind, value["exclusion"]),
        value["detail"],
        cross_checks_from_json(value["cross_checks"]),
    )
