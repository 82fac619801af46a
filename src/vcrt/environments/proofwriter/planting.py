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
from vcrt.environments.proofwriter.generator import Planted, TheoryDraft, completed, theme
from vcrt.environments.proofwriter.operations import SWEEP
from vcrt.environments.proofwriter.theory import Atom, Rule
from vcrt.environments.proofwriter.vocabulary import Words, draw_atom

#: Draws of one word before the theory is given up.
_TRIES = 100
#: What a rule does with the link of an earlier one: it cannot run without, runs on more entities, or on fewer.
Reading: TypeAlias = Literal["needs", "finds", "lacks"]


def planted_sweeps(
    draws: Draws, words: Words, num_steps: int, pairs: Collection[tuple[int, int]]
) -> Planted | None:
    """Sweeps of which each reads the links of those that ``pairs`` (before, after) put before it.

    Every rule runs on all entities; one entity is there for each thing that must show.
    """
    absence = words.assumption == "CWA" and words.negation
    readings: tuple[Reading, ...] = ("needs", "finds", "lacks") if absence else ("needs", "finds")
    drawn = {pair: draws.one(readings) for pair in sorted(pairs)}
    atoms = planted_atoms(draws, words, num_steps, drawn)
    if atoms is None:
        return None
    needed = _steps_by_entity(atoms)
    if len(needed) > len(words.entities):
        return None
    draft = TheoryDraft(words=words)
    rules = []
    for step, link in enumerate(atoms.links):
        conditions = [
            atoms.links[other].with_polarity("~" if atoms.readings[other, step] == "lacks" else "+")
            for other in atoms.before(step)
        ]
        rules.append(
            Rule(
                conditions=tuple(draws.shuffled([*conditions, atoms.causes[step]])), conclusion=link
            )
        )
    for entity, acting in zip(draws.some(words.entities, len(needed)), needed, strict=True):
        given = _given(atoms, acting)
        draft.forbid(
            *(atoms.links[step].bind(entity) for step in range(num_steps) if step not in given)
        )
        draft.forbid(*(atoms.causes[s].bind(entity) for s in range(num_steps) if s not in acting))
        facts = [*(atoms.causes[s] for s in acting), *(atoms.links[s] for s in given)]
        if not draft.add_facts(fact.bind(entity) for fact in facts):
            return None
    return completed(draws, draft, rules, [(SWEEP, None)] * num_steps, num_steps)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlantedAtoms:
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


def planted_atoms(
    draws: Draws, words: Words, num_steps: int, readings: Mapping[tuple[int, int], Reading]
) -> PlantedAtoms | None:
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
            return PlantedAtoms(
                readings=readings,
                causes=tuple(draws.shuffled(ranked[:num_steps])),
                links=tuple(ranked[num_steps:]),
            )
    return None


def _steps_by_entity(atoms: PlantedAtoms) -> list[frozenset[int]]:
    """For each entity that is needed, the steps that can act on it.

    All act on the first. A step that finds, or lacks, links acts on one entity where it need not wait for them, and,
    if there are several, on one for each, where it waits for this link alone.
    """
    found = [frozenset(range(len(atoms.links)))]
    for step in range(len(atoms.links)):
        loose = [*atoms.read_as(step, "finds"), *atoms.read_as(step, "lacks")]
        if loose:
            found.append(_with_needed(atoms, [step]))
        if len(loose) > 1:
            found += [_with_needed(atoms, [step, other]) for other in loose]
    return list(dict.fromkeys(found))


def _with_needed(atoms: PlantedAtoms, steps: Collection[int]) -> frozenset[int]:
    """The steps and all that they cannot run without."""
    acting: set[int] = set()
    waiting = list(steps)
    while waiting:
        step = waiting.pop()
        if step not in acting:
            acting.add(step)
            waiting += atoms.read_as(step, "needs")
    return frozenset(acting)


def _given(atoms: PlantedAtoms, acting: Collection[int]) -> set[int]:
    """The steps whose links are facts for an entity: those that an acting step finds and that do not act themselves."""
    return {found for step in acting for found in atoms.read_as(step, "finds")} - set(acting)
