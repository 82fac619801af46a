"""Define the named errors of vcrt.

Every error that a user can cause or mend is a :class:`VcrtError`: it says what went wrong, where, what was found,
what was expected and how to mend it. The command line prints it as one message and exits with ``exit_code``; all of
them with their codes stand in ``docs/errors.md``.
A verifier's refusal of a step is *not* an error: it is :class:`vcrt.environments.contract.Rejected`, a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from difflib import get_close_matches
from typing import Any, Self

from vcrt.printable import counted


class VcrtError(ValueError):
    """Base class of all errors that the user has to mend."""

    exit_code = 2

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        found: str | None = None,
        expected: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.what = what
        self.where = where
        self.found = found
        self.expected = expected
        self.remedy = remedy
        super().__init__(what)

    def __reduce__(self) -> tuple[Any, ...]:
        """Unpickle without calling ``__init__``, because a user's subclass may give it other arguments."""
        return self.__class__.__new__, (self.__class__, *self.args), vars(self)

    def __str__(self) -> str:
        """The whole message, one labelled line for each part that is known."""
        parts = [
            ("where", self.where),
            ("found", self.found),
            ("expected", self.expected),
            ("to mend", self.remedy),
        ]
        lines = [self.what, *(f"  {label}: {text}" for label, text in parts if text is not None)]
        return "\n".join(lines)

    def within(self, where: str, separator: str = ", ") -> Self:
        """Return the same error with a wider place put before its own."""
        return self.at(separator.join(filter(None, (where, self.where))))

    def at(self, where: str | None) -> Self:
        """Return the same error with another place."""
        moved = copy(self)
        moved.where = where
        return moved


class UnknownNameError(VcrtError):
    """A schema, method, environment or other registered name that does not exist."""

    @classmethod
    def of(
        cls, kind: str, name: str, known: Iterable[str], *, where: str | None = None
    ) -> UnknownNameError:
        """The error for an unknown ``kind`` called ``name``; suggests the nearest of the ``known`` names."""
        names = sorted(known)
        near = get_close_matches(name, names, n=1)
        return cls(
            f"unknown {kind} {name!r}",
            where=where,
            expected=f"one of {', '.join(names)}" if names else f"no {kind} is registered",
            remedy=f"did you mean {near[0]!r}?" if near else None,
        )


class UnavailableError(VcrtError):
    """A verifier or library that is missing, or present in a version that is not supported."""

    exit_code = 3


class MalformedInputError(VcrtError):
    """A file or text from outside that does not have the documented form."""


class ConfigError(VcrtError):
    """A setting that is not possible, or two sources of settings that disagree."""


class TooLargeError(VcrtError):
    """A computation that is exact only for fewer operations, or a tree of orders that would not fit into memory."""


class VerifierFailure(VcrtError):
    """A verifier that broke (died, timed out, answered nonsense). Never a verdict: retried, then reported."""

    exit_code = 5


class EnvironmentFailure(VerifierFailure):
    """An environment whose own code raised, exited or gave what cannot be an answer; the step is named."""


class DatasetError(VcrtError):
    """A frozen dataset that is incomplete, altered, unverified or of other versions."""

    exit_code = 4


class AlteredError(DatasetError):
    """A dataset whose files, manifest or seal are not what was sealed: changed, added, removed or moved."""


class SignatureError(DatasetError):
    """A seal without the signature that was asked for, or with one that does not hold."""


class DisagreementError(DatasetError):
    """Sealed evidence that the verifier does not reproduce; ``episodes`` names every episode that is affected."""

    episodes: tuple[str, ...] = ()

    @classmethod
    def of(cls, disagreeing: Mapping[str, DatasetError]) -> DisagreementError:
        """Return the error of the first episode, with the names of all episodes."""
        first, *others = disagreeing
        error = disagreeing[first]
        more = (
            f"; {counted(len(others), 'more episode')} without agreement: {', '.join(others[:5])}"
        )
        found = f"{error.found or 'another record'}{more if others else ''}"
        found += ", ..." if others[5:] else ""
        made = cls(error.what, where=error.where, expected=error.expected, remedy=error.remedy)
        made.found = found
        made.episodes = (first, *others)
        return made


class RunError(VcrtError):
    """A training or evaluation run whose directory, plan or ledger does not allow what was asked."""


class DivergedError(RunError):
    """A training run whose loss or gradient is no longer a finite number."""


class OutOfMemory(VcrtError):
    """Work that needs more memory than there is, on the processor or on a GPU."""

    exit_code = 5


class BackboneError(VcrtError):
    """Backbone weights or a tokenizer that are missing, altered or unsuitable."""


class UncertifiableError(MalformedInputError):
    """Too few of the requested episodes can be certified to make a dataset, now or on another try."""
