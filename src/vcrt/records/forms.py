"""Define the types of what audit rows and certificates hold, for reading those that come from anywhere.

Not covered: what the values mean to a verifier, and what follows from them.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field
from pydantic import Strict as StrictOf

from vcrt.limits import MAX_OPERATIONS

Digest: TypeAlias = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Count: TypeAlias = Annotated[int, Field(ge=0)]


class Strict(BaseModel):
    """Every field, of its own type, and no other."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class OperationForm(Strict):
    """An operation."""

    signature: str
    payload: Any


class ProvenanceForm(Strict):
    """Where an episode is from."""

    source: str
    generator: str
    seed: int


class EpisodeForm(Strict):
    """An episode in its native form."""

    environment: str
    schema_name: str = Field(alias="schema")
    initial: Any
    operations: Annotated[list[OperationForm], Field(min_length=2, max_length=MAX_OPERATIONS)]
    provenance: ProvenanceForm


class VersionsForm(Strict):
    """What judged an episode."""

    environment: str
    adapter: str
    canonicalizer: str
    verifier: str
    libraries: dict[str, str]


class ReplayForm(Strict):
    """A verifier's answers along one order."""

    order: list[int]
    state_hashes: Annotated[list[Digest], Field(min_length=1)]
    rejection: str | None
    #: Left out where no step has one.
    outputs: list[str | None] = []


#: ``[checker, checked, agreed]``; JSON has lists alone.
CrossCheckForm: TypeAlias = Annotated[tuple[str, Count, Count], StrictOf(strict=False)]
