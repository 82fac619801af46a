"""The second opinion: the same theories, solved by clingo (Potassco's answer-set solver).

Promised: an engine that shares no reasoning code with ``engine``; only atoms and theories are common. Not covered:
labelling. Unstratified theories have zero, one or many stable models and are refused by ``engine``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib import import_module, metadata
from typing import Any, TypeAlias

from vcrt.environments.proofwriter.theory import VARIABLES, Atom, Polarity, Rule, Theory
from vcrt.errors import UnavailableError, VerifierFailure

#: A rule's number (from 1) and its binding; None runs the rule on every entity.
ClingoStep: TypeAlias = tuple[int, str | None]
_REMEDY = 'python -m pip install "clingo>=5.8,<6"'
_SIGNS: dict[str, Polarity] = {"holds": "+", "denied": "-"}


def clingo_version() -> str:
    """The installed version of clingo; raises :class:`UnavailableError` if it is missing or not 5.8 up to 6."""
    try:
        version = metadata.version("clingo")
    except metadata.PackageNotFoundError as error:
        raise _unavailable("it is not installed") from error
    number = re.match(r"(\d+)\.(\d+)", version)
    if number is None or not (5, 8) <= (int(number[1]), int(number[2])) < (6, 0):
        raise _unavailable(f"version {version}")
    return version


def _clingo() -> Any:
    clingo_version()
    try:
        return import_module("clingo")
    except ImportError as error:
        raise _unavailable(f"it does not import: {error}") from error


def _unavailable(found: str) -> UnavailableError:
    return UnavailableError(
        "clingo, the second ProofWriter engine, is not available",
        where="Python package clingo",
        found=found,
        expected="version 5.8 or later, below 6",
        remedy=_REMEDY,
    )


def model_program(theory: Theory) -> str:
    """The theory as a logic program over ``holds/3``, ``denied/3`` (explicit negation) and ``entity/1``."""
    lines = [*_entities(theory), *(f"{_literal(fact)}." for fact in theory.facts)]
    for rule in theory.rules:
        body = [_literal(condition) for condition in rule.conditions]
        lines.append(f"{_literal(rule.conclusion)} :- {', '.join(body + _domain(rule, None))}.")
    return "\n".join(lines)


def run_program(theory: Theory, steps: Sequence[ClingoStep]) -> str:
    """The run of ``steps`` as a logic program in which each literal has a moment, 0 being the start."""
    lines = [*_entities(theory), *(f"{_literal(fact, 0)}." for fact in theory.facts)]
    for sign in _SIGNS:
        lines.append(f"{sign}(T+1,S,P,O) :- {sign}(T,S,P,O), step(T+1).")
    for moment, (number, binding) in enumerate(steps, 1):
        rule = theory.rules[number - 1]
        body = [_literal(condition, moment - 1) for condition in rule.conditions]
        body += _domain(rule, binding)
        lines.append(f"step({moment}). {_literal(rule.conclusion, moment)} :- {', '.join(body)}.")
    return "\n".join(lines)


def _entities(theory: Theory) -> list[str]:
    return [f"entity({_term(entity)})." for entity in theory.entities()]


def _domain(rule: Rule, binding: str | None) -> list[str]:
    if rule.variable is None:
        return []
    return ["entity(X)"] if binding is None else ["entity(X)", f"X = {_term(binding)}"]


def _literal(atom: Atom, *moment: int) -> str:
    sign = {"+": "holds", "-": "denied", "~": "not holds"}[atom.polarity]
    terms = [*map(str, moment), *(_term(term) for term in atom[:3])]
    return f"{sign}({','.join(terms)})"


def _term(term: str) -> str:
    return "X" if term in VARIABLES else f'"{term}"'


def clingo_model(theory: Theory) -> frozenset[Atom]:
    """The one stable model of a stratified theory.

    Raises :class:`UnavailableError` without clingo and :class:`VerifierFailure` if clingo breaks or does not find
    exactly one model.
    """
    return frozenset(atom for _, atom in _solve(model_program(theory)))


def clingo_run(theory: Theory, steps: Sequence[ClingoStep]) -> list[frozenset[Atom]]:
    """The facts after each step; a step that cannot run leaves them as they are. Raises as :func:`clingo_model`."""
    states: list[set[Atom]] = [set() for _ in range(len(steps) + 1)]
    for moment, atom in _solve(run_program(theory, steps)):
        states[moment].add(atom)
    return [frozenset(state) for state in states[1:]]


def _solve(program: str) -> list[tuple[int, Atom]]:
    """The atoms of the program's only stable model, each with its moment (0 where it has none)."""
    clingo = _clingo()
    models: list[list[tuple[int, Atom]]] = []
    try:
        control = clingo.Control(["--models=2", "--warn=none"])
        control.add("base", [], program)
        control.ground([("base", [])])
        control.solve(on_model=lambda found: models.append(_atoms(found.symbols(atoms=True))))
    except RuntimeError as error:
        raise VerifierFailure("clingo broke on a theory", found=str(error)[:200]) from error
    if len(models) != 1:
        raise VerifierFailure(
            "clingo does not find exactly one stable model",
            found="no model" if not models else "more than one model",
            expected="one model, as for every stratified theory",
        )
    return models[0]


def _atoms(symbols: Iterable[Any]) -> list[tuple[int, Atom]]:
    read = []
    for symbol in symbols:
        if symbol.name in _SIGNS:
            *moment, subject, predicate, obj = symbol.arguments
            atom = Atom(subject.string, predicate.string, obj.string, _SIGNS[symbol.name])
            read.append((moment[0].number if moment else 0, atom))
    return read
