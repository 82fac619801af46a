"""Hold what a probe found: one result each, the report of a dataset, its file and its verdict.

Not covered: how it was measured (:mod:`vcrt_research.anonymity.probe`).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import ConfigDict, FailFast, TypeAdapter, ValidationError

from vcrt.documents import read_limited
from vcrt.errors import DatasetError
from vcrt.forms import FieldError, first_error

Target: TypeAlias = Literal[
    "environment", "schema", "legal order", "relation types", "legal order, given relations"
]
WordView: TypeAlias = Literal[
    "prompt, sorted",
    "prompt, shuffled",
    "prompt in words, sorted",
    "prompt in words, shuffled",
    "file row",
]
#: Those of prompts in which relations are plain sentences.
IN_WORDS: tuple[WordView, ...] = ("prompt in words, sorted", "prompt in words, shuffled")
HiddenView: TypeAlias = Literal["hidden state, last token", "hidden state, mean"]
View: TypeAlias = WordView | HiddenView | Literal["row order"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeResult:
    """One probe: the AUC of guessing ``target`` from ``view``, its simultaneous interval, and the verdict.

    With several classes AUC is that of one against the others, averaged. ``at_chance`` says that 0.5 is within the
    interval or, once in a while, above it: guesses that are wrong more often than not come from held-out records that
    differ by accident from those fitted to, and give nothing away.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    target: Target
    view: View
    num_records: int
    num_classes: int
    auc: float
    low: float
    high: float
    p_value: float
    at_chance: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Unmeasured:
    """A probe that the dataset does not allow, and why."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    target: Target
    view: View | None
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class AnonymityReport:
    """All probes of a dataset. ``results`` must be at chance and ``controls`` must not; ``findings`` must be empty."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    root_hash: str
    backbone_digest: str
    seed: int
    level: float
    results: Annotated[tuple[ProbeResult, ...], FailFast()]
    controls: Annotated[tuple[ProbeResult, ...], FailFast()]
    unmeasured: Annotated[tuple[Unmeasured, ...], FailFast()]
    findings: Annotated[tuple[str, ...], FailFast()]

    @property
    def leaks(self) -> tuple[ProbeResult, ...]:
        """The probes that are not at chance."""
        return tuple(result for result in self.results if not result.at_chance)

    @property
    def blind(self) -> tuple[ProbeResult, ...]:
        """The controls that guess no better than chance: what they cannot see, their view cannot acquit."""
        return tuple(control for control in self.controls if control.at_chance)


def report_bytes(report: AnonymityReport) -> bytes:
    """Indented JSON, for people to read as well."""
    return (json.dumps(asdict(report), indent=2, ensure_ascii=False) + "\n").encode()


def read_report(path: Path) -> AnonymityReport:
    """Read what :func:`report_bytes` wrote; raises :class:`DatasetError` naming the field that is wrong."""
    try:
        return TypeAdapter(AnonymityReport).validate_python(json.loads(read_limited(path)))
    except (ValueError, RecursionError) as error:
        field, message = (
            first_error(error)
            if isinstance(error, ValidationError)
            else FieldError("(root)", str(error))
        )
        raise DatasetError(
            "not a report of `vcrt probe`",
            where=f"{path}, field {field}",
            found=message,
            remedy="make it again with `vcrt probe DATASET --output FILE`",
        ) from error


def require_anonymous(report: AnonymityReport, where: str) -> None:
    """Raise :class:`DatasetError` unless all probes are at chance, no control is blind and no finding is left."""
    problems = [
        *(f"{r.target} from {r.view}: AUC {r.auc:.3f}" for r in report.leaks),
        *(f"control {c.target} from {c.view}: AUC {c.auc:.3f}" for c in report.blind),
        *report.findings,
    ]
    if problems:
        raise DatasetError(
            "the policy view is not shown to be anonymous",
            where=where,
            found="; ".join(problems),
            expected="probes at chance, controls above it, and files in the documented form",
            remedy="a control at chance asks for more records; a leak is a defect of the records",
        )
