"""Solve the same theories with clingo (Potassco's answer-set solver), as a second opinion.

It shares no reasoning code with ``engine``, only atoms and theories. It labels no theories. Unstratified theories have
zero, one or many stable models; ``engine`` refuses them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from importlib import import_module, metadata
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

from vcrt.errors import UnavailableError, VerifierFailure
from vcrt_proofwriter.engine import Facts
from vcrt_proofwriter.theory import VARIABLES, Atom, Rule, Theory

#: A rule's number (from 1) and its binding; None runs the rule on every entity.
ClingoStep: TypeAlias = tuple[int, str | None]
_REMEDY = 'python -m pip install "clingo>=5.8,<6"'
_BETWEEN_TERMS, _SPACED = '","', '" "'


def clingo_version() -> str:
    """Return clingo's version; raise :class:`UnavailableError` unless it is at least 5.8 and below 6."""
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


class ClingoAnswers(NamedTuple):
    """Clingo's results for a theory: all facts that hold, and for each run the facts after each of its steps."""

    model: Facts
    runs: tuple[tuple[Facts, ...], ...]


def clingo_answers(theory: Theory, runs: Sequence[Sequence[ClingoStep]] = ()) -> ClingoAnswers:
    """Return the one stable model of a stratified theory, and the outcome of runs of its rules, all solved at once.

    A step that cannot run leaves the facts unchanged. Raise :class:`UnavailableError` without clingo, and
    :class:`VerifierFailure` if clingo breaks or does not find exactly one model.
    """
    facts = frozenset(fact.text for fact in theory.facts)
    derived: set[str] = set()
    added: dict[tuple[int, int], set[str]] = defaultdict(set)
    for symbol in _solve(program_of(theory, runs)):
        name, _, arguments = symbol.removesuffix(")").partition("(")
        if name == "derived":
            derived.add(_text(arguments))
        else:
            run, moment, atom = arguments.split(",", 2)
            added[int(run), int(moment)].add(_text(atom))
    return ClingoAnswers(
        facts | derived,
        tuple(
            tuple(
                accumulate(
                    (added[number, moment] for moment in range(1, len(run) + 1)),
                    frozenset.union,
                    initial=facts,
                )
            )[1:]
            for number, run in enumerate(runs)
        ),
    )


def program_of(theory: Theory, runs: Sequence[Sequence[ClingoStep]]) -> str:
    """Return the theory over ``holds/4``, and each run over ``holds/6``, led by its number and moment (0: start)."""
    lines = [f"entity({_term(entity)})." for entity in theory.entities()]
    lines += [f"fact({_arguments(fact)})." for fact in theory.facts]
    lines += [
        "holds(S,P,O,N) :- fact(S,P,O,N).",
        "derived(S,P,O,N) :- holds(S,P,O,N), not fact(S,P,O,N).",
        "#show derived/4. #show added/6.",
    ]
    for rule in theory.rules:
        body = [_literal(condition) for condition in rule.conditions] + _domain(rule, None)
        lines.append(f"holds({_arguments(rule.conclusion)}) :- {', '.join(body)}.")
    for number, run in enumerate(runs):
        lines.append(f"holds({number},0,S,P,O,N) :- fact(S,P,O,N).")
        for moment, (rule_number, binding) in enumerate(run, 1):
            before, after = f"{number},{moment - 1}", f"{number},{moment}"
            rule = theory.rules[rule_number - 1]
            body = [_literal(condition, before) for condition in rule.conditions]
            body += [f"not holds({before},{_arguments(rule.conclusion)})", *_domain(rule, binding)]
            lines += [
                f"added({after},{_arguments(rule.conclusion)}) :- {', '.join(body)}.",
                f"holds({after},S,P,O,N) :- holds({before},S,P,O,N).",
                f"holds({after},S,P,O,N) :- added({after},S,P,O,N).",
            ]
    return "\n".join(lines)


def _domain(rule: Rule, binding: str | None) -> list[str]:
    if rule.variable is None:
        return []
    return ["entity(X)"] if binding is None else ["entity(X)", f"X = {_term(binding)}"]


def _literal(atom: Atom, *moment: str) -> str:
    negation = "not " if atom.polarity == "~" else ""
    return f"{negation}holds({','.join((*moment, _arguments(atom)))})"


def _arguments(atom: Atom) -> str:
    subject, predicate, obj, polarity = atom
    sign = "-" if polarity == "-" else "+"
    return f'{_term(subject)},"{predicate}",{_term(obj)},"{sign}"'


def _term(term: str) -> str:
    return "X" if term in VARIABLES else f'"{term}"'


def _text(arguments: str) -> str:
    # No term holds a quotation mark, so clingo's and ProofWriter's texts of an atom differ in this alone.
    return f"({arguments.replace(_BETWEEN_TERMS, _SPACED)})"


def _solve(program: str) -> list[str]:
    """Return the shown atoms of the program's only stable model, as clingo writes them."""
    clingo = _clingo()
    models: list[list[str]] = []
    try:
        control = clingo.Control(["--models=2", "--warn=none"])
        control.add("base", [], program)
        control.ground([("base", [])])
        control.solve(
            on_model=lambda found: models.append([str(s) for s in found.symbols(shown=True)])
        )
    except RuntimeError as error:
        raise VerifierFailure("clingo broke on a theory", found=str(error)[:200]) from error
    if len(models) != 1:
        raise VerifierFailure(
            "clingo does not find exactly one stable model",
            found="no model" if not models else "more than one model",
            expected="one model, as for every stratified theory",
        )
    return models[0]
