"""Plant rules that need, or change, what others derive, and the facts that steer them.

Each rule concludes its own *link*, and reads the links of the rules that come before it. For ground steps a missing
link is a missing condition. A sweep is steered by entities: on some a rule finds its links as facts, on others it has
to wait for them, or finds them absent too early. Rules and facts that have nothing to do with it are added. Not
covered: whether the relations come out, which is for the sampler to check.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from vcrt.environments.proofwriter.draws import Draws
from vcrt.environments.proofwriter.generator import Plot, completed, theme
from vcrt.environments.proofwriter.operations import SWEEP, ActionKey
from vcrt.environments.proofwriter.theory import Atom, Rule, Theory
from vcrt.environments.proofwriter.vocabulary import Words, draw_atom

#: Draws of one word before the theory is given up.
_TRIES = 100
#: What a rule does with the link of an earlier one: it cannot run without, runs on more entities, or on fewer.
Reading: TypeAlias = Literal["needs", "finds", "lacks"]
#: A theory, and the operations on it that were planted, by step.
Planted: TypeAlias = tuple[Theory, list[ActionKey]]


def planted_sweeps(
    draws: Draws, words: Words, num_steps: int, pairs: Collection[tuple[int, int]]
) -> Planted | None:
    """Sweeps of which each reads the links of those that ``pairs`` (before, after) put before it.

    Every rule runs on all entities; one entity is there for each thing that must show.
    """
    absence = words.assumption == "CWA" and words.negation
    readings: tuple[Reading, ...] = ("needs", "finds", "lacks") if absence else ("needs", "finds")
    drawn = {pair: draws.one(readings) for pair in sorted(pairs)}
    cast = cast_of(draws, words, num_steps, drawn)
    if cast is None:
        return None
    casting = _casting(cast)
    if len(casting) > len(words.entities):
        return None
    plot = Plot(words=words)
    rules = []
    for step, link in enumerate(cast.links):
        conditions = [
            cast.links[other].with_polarity("~" if cast.readings[other, step] == "lacks" else "+")
            for other in cast.before(step)
        ]
        rules.append(
            Rule(
                conditions=tuple(draws.shuffled([*conditions, cast.causes[step]])), conclusion=link
            )
        )
    for entity, acting in zip(draws.some(words.entities, len(casting)), casting, strict=True):
        given = _given(cast, acting)
        plot.forbid(
            *(cast.links[step].bind(entity) for step in range(num_steps) if step not in given)
        )
        plot.forbid(*(cast.causes[s].bind(entity) for s in range(num_steps) if s not in acting))
        facts = [*(cast.causes[s] for s in acting), *(cast.links[s] for s in given)]
        if not plot.add_facts(fact.bind(entity) for fact in facts):
            return None
    return told(draws, plot, rules, [(SWEEP, None)] * num_steps)


@dataclass(frozen=True, kw_only=True, slots=True)
class Cast:
    """The atoms of the planted rules: what each concludes, what else it needs, and how it reads the links before it."""

    links: tuple[Atom, ...]
    causes: tuple[Atom, ...]
    readings: Mapping[tuple[int, int], Reading]

    def before(self, step: int) -> list[int]:
        """The steps whose links a step reads."""
        return sorted(a for a, b in self.readings if b == step)

    def read_as(self, step: int, reading: Reading) -> list[int]:
        """The steps whose links a step reads in that way."""
        return [a for a in self.before(step) if self.readings[a, step] == reading]


def cast_of(
    draws: Draws, words: Words, num_steps: int, readings: Mapping[tuple[int, int], Reading]
) -> Cast | None:
    """Atoms about different things; links rank in the order of the steps, so that negation finds a stratum."""
    found: list[Atom] = []
    themes = set()
    for _ in range(_TRIES):
        atom = draw_atom(draws, words, words.variable)
        if theme(atom) not in themes:
            themes.add(theme(atom))
            found.append(atom)
        if len(found) == 2 * num_steps:
            ranked = sorted(found, key=words.rank)
            # Causes lowest: nothing that a rule concludes is below what it needs.
            return Cast(
                readings=readings,
                causes=tuple(draws.shuffled(ranked[:num_steps])),
                links=tuple(ranked[num_steps:]),
            )
    return None


def _casting(cast: Cast) -> list[frozenset[int]]:
    """For each entity that is needed, the steps that can act on it.

    All act on the first. A step that finds, or lacks, links acts on one entity where it need not wait for them, and,
    if there are several, on one for each, where it waits for this link alone.
    """
    casting = [frozenset(range(len(cast.links)))]
    for step in range(len(cast.links)):
        loose = [*cast.read_as(step, "finds"), *cast.read_as(step, "lacks")]
        if loose:
            casting.append(_with_needed(cast, [step]))
        if len(loose) > 1:
            casting += [_with_needed(cast, [step, other]) for other in loose]
    return list(dict.fromkeys(casting))


def _with_needed(cast: Cast, steps: Collection[int]) -> frozenset[int]:
    """The steps and all that they cannot run without."""
    acting: set[int] = set()
    waiting = list(steps)
    while waiting:
        step = waiting.pop()
        if step not in acting:
            acting.add(step)
            waiting += cast.read_as(step, "needs")
    return frozenset(acting)


def _given(cast: Cast, acting: Collection[int]) -> set[int]:
    """The steps whose links are facts for an entity: those that an acting step finds and that do not act themselves."""
    return {found for step in acting for found in cast.read_as(step, "finds")} - set(acting)


def told(
    draws: Draws, plot: Plot, rules: list[Rule], actions: list[tuple[str, str | None]]
) -> Planted:
    """The planted rules and facts among others."""
    theory = completed(draws, plot, rules, len(actions))
    keys = [
        (kind, theory.rules.index(rule) + 1, entity)
        for rule, (kind, entity) in zip(rules, actions, strict=True)
    ]
    return theory, keys
