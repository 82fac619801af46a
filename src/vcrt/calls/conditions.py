"""Learn under which condition on their arguments two calls commute, and test it on contexts from other sources.

A condition joins a few literals: an argument of one call and one of the other are equal, different, or one begins with
the other, as a path or as text; or an argument is a constant. It is learned from contexts in which both orders were
replayed: it has no counterexample among them and covers as many as possible, from more than one source, with few
literals. The setting (a sampled black box, and predicates over the arguments) is from Gehr, Dimitrov and Vechev,
"Learning Commutativity Specifications", CAV 2015. Pure and deterministic. Not covered: conditions on the state, and
values inside of arguments.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from itertools import combinations, product
from typing import Literal, TypeAlias

from vcrt.calls.proportions import NONE, Proportion
from vcrt.hashing import Json, canonical_json, sha256_hex

#: Arguments by name, each as canonical JSON (see :func:`as_arguments`).
Arguments: TypeAlias = Mapping[str, str]
Predicate: TypeAlias = Literal["equal", "path prefix", "text prefix", "constant"]
#: The most literals of a condition, and the most that are tried.
MAX_LITERALS, _TRIED = 3, 48
#: A literal more must cover this part of all commuting contexts more.
_GAIN = 0.05
#: A constant occurs in this part of the contexts, and, as what a condition covers, in so many sources; the most of one
#: argument that are tried.
_OFTEN, _SOURCES, _CONSTANTS = 0.1, 2, 4
#: Into how many parts the sources are dealt to test conditions on each in turn.
FOLDS = 5


@dataclass(frozen=True, slots=True)
class Sample:
    """A context in which two calls were compared: their arguments, whether they commuted, and all its sources."""

    first: Arguments
    second: Arguments
    commuted: bool
    sources: frozenset[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Term:
    """A literal: argument ``left`` of one call fits argument ``right`` of the other (or a JSON constant), or does not.

    An argument that a call lacks equals nothing and begins nothing. ``on`` (``a`` or ``b``) names the call with the
    argument ``left``. Two calls of one tool have no fixed order: ``either`` then says whether the literal must hold
    with ``a`` and ``b`` in one order (True) or in both (False); None for calls of different tools.
    """

    predicate: Predicate
    left: str
    right: str
    positive: bool
    on: Literal["a", "b"] = "a"
    either: bool | None = None

    def holds(self, first: Arguments, second: Arguments) -> bool:
        """Tell whether the literal holds for the arguments of ``a`` and ``b``."""
        one = self._holds(first, second)
        if self.either is None:
            return one
        other = self._holds(second, first)
        return (one or other) if self.either else (one and other)

    def _holds(self, first: Arguments, second: Arguments) -> bool:
        if self.on == "b":
            first, second = second, first
        if self.left not in first:
            return not self.positive
        left = first[self.left]
        if self.predicate == "constant":
            return (left == self.right) == self.positive
        fits = self.right in second and _FITS[self.predicate](left, second[self.right])
        return fits == self.positive

    @property
    def text(self) -> str:
        """As a person reads it.

        >>> Term(predicate="equal", left="path", right="path", positive=False).text
        'a.path != b.path'
        """
        one = self._text("a", "b")
        if self.either is None:
            return one
        return f"({one} {'or' if self.either else 'and'} {self._text('b', 'a')})"

    def _text(self, first: str, second: str) -> str:
        if self.on == "b":
            first, second = second, first
        sign = "=" if self.positive else "!="
        if self.predicate == "constant":
            return f"{first}.{self.left} {sign} {self.right}"
        if self.predicate == "equal":
            return f"{first}.{self.left} {sign} {second}.{self.right}"
        verb = "is a" if self.positive else "is no"
        return f"{first}.{self.left} {verb} {self.predicate} of {second}.{self.right}"

    def to_json(self) -> dict[str, Json]:
        """The JSON form."""
        return asdict(self)

    @property
    def rank(self) -> tuple[object, ...]:
        """The key that sorts equally good terms: the simplest and most usual first."""
        kinds = ("equal", "path prefix", "text prefix", "constant")
        # Calls commute where they differ; of constants, where they have one.
        usual = self.positive == (self.predicate == "constant")
        return (kinds.index(self.predicate), self.left != self.right, not usual, self.text)


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition: all of the terms hold, or any of them; without terms it always holds."""

    terms: tuple[Term, ...] = ()
    joined: Literal["and", "or"] = "and"

    def holds(self, first: Arguments, second: Arguments) -> bool:
        """Tell whether the condition holds for the arguments of two calls."""
        each = (term.holds(first, second) for term in self.terms)
        return all(each) if self.joined == "and" else any(each)

    @property
    def text(self) -> str:
        """As a person reads it."""
        return f" {self.joined} ".join(term.text for term in self.terms) or "always"


@dataclass(frozen=True, kw_only=True, slots=True)
class Tested:
    """The results of conditions on contexts of sources that they were not learned from.

    ``commuted`` counts the unseen contexts in which the calls commuted. ``always`` counts the same among the contexts
    of conditions without terms, and ``conditional`` among contexts in which another condition held.
    """

    commuted: Proportion = NONE
    always: Proportion = NONE
    conditional: Proportion = NONE

    @property
    def right(self) -> Proportion:
        """The contexts in which the calls commuted, of those in which a condition held."""
        return self.always + self.conditional

    @property
    def covered(self) -> Proportion:
        """The contexts in which a condition held, of those in which the calls commuted."""
        return Proportion(self.right.count, self.commuted.count)

    def __add__(self, other: Tested) -> Tested:
        return Tested(
            commuted=self.commuted + other.commuted,
            always=self.always + other.always,
            conditional=self.conditional + other.conditional,
        )


def as_arguments(arguments: Mapping[str, Json]) -> Arguments:
    """Return the arguments of a call in the form that conditions take."""
    return {name: as_text(value) for name, value in arguments.items()}


def as_text(value: Json) -> str:
    """Return canonical JSON as text."""
    return canonical_json(value).decode(errors="surrogatepass")


def learn(samples: Sequence[Sample], *, one_tool: bool) -> Condition | None:
    """Learn a condition under which the calls commute and that no sample contradicts; None if no condition fits.

    ``one_tool``: both calls are of one tool, so the condition must not depend on which call is first.
    """
    good = sum(1 << number for number, sample in enumerate(samples) if sample.commuted)
    everything = (1 << len(samples)) - 1
    if not good:
        return None
    if good == everything:
        return Condition()
    held = _holding(samples)
    masks: dict[int, Term] = {}
    for term in sorted(_terms(samples, one_tool), key=lambda term: term.rank):
        # Two that no sample tells apart are one here, and what holds of all or none says nothing.
        mask = held(term)
        if mask & good and mask != everything:
            masks.setdefault(mask, term)
    return _search(list(masks.items())[:_TRIED], good, everything & ~good, _by_source(samples))


def _holding(samples: Sequence[Sample]) -> Callable[[Term], int]:
    """Return the samples for which a term holds, as bits; samples of the same arguments are evaluated once."""
    alike: dict[object, tuple[Sample, int]] = {}
    for number, sample in enumerate(samples):
        key = (*sorted(sample.first.items()), None, *sorted(sample.second.items()))
        first, mask = alike.get(key, (sample, 0))
        alike[key] = first, mask | 1 << number
    return lambda term: sum(
        mask for sample, mask in alike.values() if term.holds(sample.first, sample.second)
    )


def cross_test(samples: Sequence[Sample], *, one_tool: bool) -> Tested:
    """Learn without each part of the sources in turn, and test on the contexts that only this part has.

    Each context is tested at most once, by a condition that was learned from none of its sources.
    """
    names = sorted(
        {source for sample in samples for source in sample.sources},
        key=lambda name: sha256_hex(name.encode(errors="surrogatepass")),
    )
    part = {name: number % FOLDS for number, name in enumerate(names)}
    parts = [frozenset(part[source] for source in sample.sources) for sample in samples]
    tested = Tested()
    for number in sorted(set(part.values())):
        # Of a context that other parts have too, these saw it.
        unseen = [s for s, within in zip(samples, parts, strict=True) if within == {number}]
        seen = [s for s, within in zip(samples, parts, strict=True) if within != {number}]
        if not seen or not unseen:
            continue
        kept = [
            replace(s, sources=frozenset(name for name in s.sources if part[name] != number))
            for s in seen
        ]
        condition = learn(kept, one_tool=one_tool)
        held = [s for s in unseen if condition is not None and condition.holds(s.first, s.second)]
        right = _commuted(held)
        is_always = condition is not None and not condition.terms
        tested += Tested(
            commuted=_commuted(unseen),
            always=right if is_always else NONE,
            conditional=NONE if is_always else right,
        )
    return tested


def _commuted(samples: Sequence[Sample]) -> Proportion:
    return Proportion(sum(sample.commuted for sample in samples), len(samples))


def _by_source(samples: Sequence[Sample]) -> Sequence[int]:
    """The samples of each source, as bits."""
    found: dict[str, int] = {}
    for number, sample in enumerate(samples):
        for source in sample.sources:
            found[source] = found.get(source, 0) | 1 << number
    return list(found.values())


def _search(
    found: Sequence[tuple[int, Term]], good: int, bad: int, sources: Sequence[int]
) -> Condition | None:
    """Find the best condition of these terms; each term comes with the samples for which it holds, as bits.

    The condition must cover samples of at least two sources, if there are two, because one source may be chance.
    """
    enough = min(_SOURCES, len(sources))
    best, covered = None, 0
    gain = max(1, round(_GAIN * good.bit_count()))
    for length in range(1, MAX_LITERALS + 1):
        least = covered + (gain if best else 1)
        for joined in ("and", "or")[: 2 if length > 1 else 1]:
            for terms, held in _joined(found, length, joined == "and", good, bad, least):
                number = (held & good).bit_count()
                if number < least or number <= covered:
                    continue
                if sum(bool(held & good & source) for source in sources) >= enough:
                    best = Condition(terms, "and" if joined == "and" else "or")
                    covered = number
    return best


def _joined(
    found: Sequence[tuple[int, Term]],
    length: int,
    conjunction: bool,
    good: int,
    bad: int,
    least: int,
) -> Iterator[tuple[tuple[Term, ...], int]]:
    """Give the sound conditions of ``length`` terms, in the order of the terms, that can cover ``least`` samples."""
    if conjunction:
        usable = [item for item in found if (item[0] & good).bit_count() >= least]
    else:
        usable = [item for item in found if not item[0] & bad]
    for items in combinations(usable, length):
        held = items[0][0]
        for mask, _ in items[1:]:
            held = held & mask if conjunction else held | mask
        if not held & bad:
            yield tuple(term for _, term in items), held


def _terms(samples: Sequence[Sample], one_tool: bool) -> Iterator[Term]:
    """All terms over the arguments of these samples."""
    first = sorted({name for sample in samples for name in sample.first})
    second = sorted({name for sample in samples for name in sample.second})
    if one_tool:
        first = second = sorted({*first, *second})
    ways = (True, False) if one_tool else (None,)
    kinds: tuple[Predicate, ...] = ("path prefix", "text prefix")
    for left, right, positive in product(first, second, (True, False)):
        term = partial(Term, left=left, right=right, positive=positive)
        if not one_tool or left <= right:
            for either in ways if left != right else (None,):
                yield term(predicate="equal", either=either)
        for kind, either in product(kinds, ways):
            yield term(predicate=kind, either=either)
            if not one_tool:
                yield Term(predicate=kind, left=right, right=left, positive=positive, on="b")
    for on, left, value in _constants(samples, one_tool):
        term = partial(Term, predicate="constant", left=left, right=value, on=on)
        for positive, either in product((True, False), ways):
            yield term(positive=positive, either=either)


def _constants(
    samples: Sequence[Sample], one_tool: bool
) -> Iterator[tuple[Literal["a", "b"], str, str]]:
    """Return the values that arguments often have, in more than one source."""
    contexts: Counter[tuple[Literal["a", "b"], str, str]] = Counter()
    sources: dict[tuple[Literal["a", "b"], str, str], set[str]] = {}
    for sample in samples:
        calls: tuple[tuple[Literal["a", "b"], Arguments], ...]
        calls = (("a", sample.first), ("a" if one_tool else "b", sample.second))
        keys = {(on, name, value) for on, call in calls for name, value in call.items()}
        for key in keys:
            contexts[key] += 1
            sources.setdefault(key, set()).update(sample.sources)
    tried: Counter[tuple[str, str]] = Counter()
    for key, number in sorted(contexts.items(), key=lambda item: (-item[1], item[0])):
        if number >= _OFTEN * len(samples) and len(sources[key]) >= _SOURCES:
            tried[key[:2]] += 1
            if tried[key[:2]] <= _CONSTANTS:
                yield key


def begins_path(left: str, right: str) -> bool:
    """Tell whether a path begins with another or equals it; both as JSON."""
    one, other = _parts(left), _parts(right)
    return one is not None and other is not None and other[: len(one)] == one


@lru_cache(maxsize=4096)
def _parts(path: str) -> tuple[str, ...] | None:
    """Return the parts of a path that is written as JSON, and its start; None if the value is no text."""
    value = json.loads(path)
    if not isinstance(value, str):
        return None
    start = "/" if value.startswith("/") else "."
    return (start, *(part for part in value.split("/") if part not in ("", ".")))


def begins_text(left: str, right: str) -> bool:
    """Tell whether a text begins with another or equals it; both as JSON."""
    is_text = left.startswith('"') and right.startswith('"')
    return is_text and bool(json.loads(right).startswith(json.loads(left)))


_FITS: Mapping[str, Callable[[str, str], bool]] = {
    "equal": str.__eq__,
    "path prefix": begins_path,
    "text prefix": begins_text,
}
