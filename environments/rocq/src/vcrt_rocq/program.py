"""Read episodes as programs, and write their states: the goals of a proof, or the results of declarations.

A program is a proof whose steps are tactics, or a sequence of declarations. Its texts have passed
:mod:`vcrt_rocq.grammar`. A state consists of the prover's output, never of its input.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

from vcrt.environments.contract import Episode
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json
from vcrt_rocq import grammar
from vcrt_rocq.grammar import Declared
from vcrt_rocq.protocol import Goal, Goals

_PROOF_FIELDS = {"form", "before", "statement", "opening", "closing"}
_DECLARATION_FIELDS = {"form", "before", "probes"}
#: A name that is no keyword of terms.
_APPLIED = re.compile(r"@?(?!(?:let|match|fun|fix|cofix|if)\b)([^\W\d][\w'.]*)")
_HYPOTHESIS = re.compile(r"([^:]*?) (:=? .*)", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Proof:
    """A theorem whose steps are tactics: the text before it, its beginning, and its end."""

    before: tuple[str, ...]
    statement: Declared
    opening: tuple[str, ...]
    closing: tuple[str, ...]
    steps: tuple[tuple[str, ...], ...]
    goals_named: bool
    """Whether every step names its goal, so that the order of goals does not matter."""
    hypotheses_named: bool
    """Whether no step depends on the order of hypotheses."""

    @property
    def start(self) -> tuple[str, ...]:
        """The sentences before the first step."""
        return (*self.before, *self.statement.sentences, *self.opening)

    def state(self, goals: Goals, bullets: Sequence[str], classes: Collection[str]) -> Json:
        """Return the goals, with the bullets that led to them.

        The order of hypotheses that may be instances of ``classes`` always counts: the search for an instance depends
        on it.
        """

        def forms(some: Iterable[Goal], *, sort: bool = self.goals_named) -> list[Json]:
            found: list[Json] = [self._goal(goal, classes) for goal in some]
            return sorted(found, key=repr) if sort else found

        return {
            "focused": forms(goals.focused),
            "background": [[forms(side) for side in pair] for pair in goals.background],
            "shelved": forms(goals.shelved, sort=True),
            "bullets": list(bullets),
        }

    def _goal(self, goal: Goal, classes: Collection[str]) -> Json:
        hypotheses = list(chain.from_iterable(map(_one_a_name, goal.hypotheses)))
        if not self.hypotheses_named:
            return [goal.name, hypotheses, goal.conclusion]
        defined = {one.split()[0] for one in hypotheses if " := " in one}
        suspect = {"", *defined, *classes}
        instances: list[Json] = [one for one in hypotheses if not suspect.isdisjoint(_heads(one))]
        several = [instances] if len(instances) > 1 else []
        return [goal.name, sorted(hypotheses), goal.conclusion, *several]


@dataclass(frozen=True, kw_only=True, slots=True)
class Declarations:
    """Declarations as steps, the text before them, and terms whose types show their other effects."""

    before: tuple[str, ...]
    probes: tuple[str, ...]
    declared: tuple[Declared, ...]

    @property
    def start(self) -> tuple[str, ...]:
        """The sentences before the first step."""
        return self.before

    @property
    def steps(self) -> tuple[tuple[str, ...], ...]:
        """The sentences of each step."""
        return tuple(one.sentences for one in self.declared)

    def queries(self, done: Iterable[int]) -> tuple[str, ...]:
        """Return the queries for the state after some steps: each declared name, sorted, and the probes."""
        declared = sorted((self.declared[step] for step in done), key=lambda one: one.name)
        return (*map(shows, declared), *(f"Check ({probe})." for probe in self.probes))


def shows(declared: Declared) -> str:
    """Return the query for a declaration's result; the proof of a theorem is opaque."""
    return f"{'About' if declared.proved else 'Print'} {declared.name}."


def read_program(episode: Episode) -> Proof | Declarations:
    """Return the program of an episode; raise :class:`MalformedInputError` for a text that may not reach the prover."""
    where = episode.episode_id
    initial = episode.initial
    if not isinstance(initial, Mapping) or episode.environment != "rocq":
        raise _malformed(where, initial, "an episode of rocq")
    payloads = [_text(o.payload, f"{where}, step {o.signature!r}") for o in episode.operations]
    if initial.get("form") == "declarations" and set(initial) == _DECLARATION_FIELDS:
        declared = tuple(grammar.read_declaration(text, where=where) for text in payloads)
        return Declarations(
            before=grammar.read_before(_texts(initial["before"], where), where=where),
            probes=tuple(_probe(text, where) for text in _texts(initial["probes"], where)),
            declared=declared,
        )
    if initial.get("form") != "proof" or set(initial) != _PROOF_FIELDS:
        raise _malformed(where, sorted(initial), f"{sorted(_PROOF_FIELDS)} and form proof")
    steps = tuple(grammar.read_tactic(text, where=where) for text in payloads)
    closing = _tactics(initial["closing"], where)
    tactics = [text for text in chain(*steps, closing) if not grammar.is_bullet(text)]
    before = grammar.read_before(_texts(initial["before"], where), where=where)
    return Proof(
        before=before,
        statement=grammar.read_statement(_text(initial["statement"], where), where=where),
        opening=_tactics(initial["opening"], where),
        closing=closing,
        steps=steps,
        goals_named=all(map(grammar.is_named, tactics)),
        hypotheses_named=all(map(grammar.is_orderless, tactics))
        and not any(map(grammar.reorders, before)),
    )


@lru_cache(maxsize=1 << 12)
def _one_a_name(hypothesis: str) -> tuple[str, ...]:
    match = _HYPOTHESIS.fullmatch(hypothesis)
    if match is None:
        return (hypothesis,)
    return tuple(f"{name} {match[2]}" for name in match[1].split(", "))


@lru_cache(maxsize=1 << 12)
def _heads(hypothesis: str) -> frozenset[str]:
    """Return the possible heads of a hypothesis's type; with a body, the type may begin after any colon."""
    name, *types = hypothesis.split(" : ")
    found = {_head(" : ".join(types[place:])) for place in range(len(types))}
    return frozenset(found - {""} if " := " in name else {_head(" : ".join(types))})


def _head(text: str) -> str:
    """Return the head of a printed type after its ``forall``s; empty if that is no name."""
    while text.startswith("forall "):
        depth = 0
        for place, character in enumerate(text):
            depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(character, 0)
            if character == "," and depth == 0:
                text = text[place + 1 :].lstrip()
                break
        else:
            return ""
    match = _APPLIED.match(text)
    return match[1] if match is not None else ""


def _tactics(value: object, where: str) -> tuple[str, ...]:
    texts = _texts(value, where)
    return tuple(chain.from_iterable(grammar.read_tactic(text, where=where) for text in texts))


def _probe(text: str, where: str) -> str:
    """Return a probe, which must be one term: a text that would close the brackets around it is refused."""
    depth = 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth < 0:
            break
    if depth or len(grammar.read_tactic(f"exact ({text}).", where=where)) != 1:
        raise _malformed(where, text, "a term")
    return text


def _texts(value: Any, where: str) -> list[str]:
    if not isinstance(value, list):
        raise _malformed(where, value, "a list of texts")
    return [_text(one, where) for one in value]


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise _malformed(where, value, "text")
    return value


def _malformed(where: str, found: object, expected: str) -> MalformedInputError:
    return MalformedInputError(
        "a malformed episode of Rocq", where=where, found=repr(found)[:120], expected=expected
    )
