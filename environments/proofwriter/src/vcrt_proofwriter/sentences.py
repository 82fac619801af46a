"""Write atoms, rules and theories as plain English sentences, in the grammar that ``english`` reads back.

Not covered: paraphrases; each atom and rule has one sentence.
"""

from __future__ import annotations

from collections.abc import Mapping

from vcrt_proofwriter.theory import VARIABLES, Atom, Rule, Theory

_SUBJECTS = {"someone": "they", "something": "it"}
_OBJECTS = {"someone": "them", "something": "it"}


def third_person(verb: str) -> str:
    """``like`` -> ``likes``, ``watch`` -> ``watches``, ``carry`` -> ``carries``."""
    if verb.endswith(("s", "sh", "ch", "x", "z", "o")):
        return verb + "es"
    if verb.endswith("y") and verb[-2:-1] not in tuple("aeiou"):
        return verb[:-1] + "ies"
    return verb + "s"


def base_form(verb: str) -> str:
    """The verb of which ``verb`` is the :func:`third_person`."""
    if verb.endswith("ies"):
        return verb[:-3] + "y"
    if verb.endswith(("shes", "ches", "xes", "zzes", "oes", "sses")):
        return verb[:-2]
    return verb.removesuffix("s")


def atom_sentence(atom: Atom) -> str:
    """The atom as one sentence, such as ``Bob does not like the bald eagle.`` in full."""
    return _sentence(_clause(atom))


def rule_sentence(rule: Rule) -> str:
    """The rule as one sentence, such as ``If someone is red then they are kind.`` in full."""
    introduced = False
    clauses = []
    for atom in rule.atoms():
        clauses.append(_clause(atom, pronoun=introduced))
        introduced = introduced or bool(atom.variables())
    *conditions, conclusion = clauses
    return _sentence(f"if {' and '.join(conditions)} then {conclusion}")


def theory_text(theory: Theory) -> str:
    """All facts, then all rules, as sentences."""
    sentences = [atom_sentence(fact) for fact in theory.facts]
    return " ".join(sentences + [rule_sentence(rule) for rule in theory.rules])


def _sentence(clause: str) -> str:
    return clause[0].upper() + clause[1:] + "."


def _clause(atom: Atom, pronoun: bool = False) -> str:
    subject = _noun(atom.subject, _SUBJECTS if pronoun else None)
    plural = subject == "they"
    negated = atom.polarity != "+"
    if atom.predicate == "is":
        return f"{subject} {'are' if plural else 'is'} {'not ' if negated else ''}{atom.object}"
    target = _noun(atom.object, _OBJECTS if pronoun or atom.subject in VARIABLES else None)
    if negated:
        verb = f"{'do' if plural else 'does'} not {base_form(atom.predicate)}"
    else:
        verb = base_form(atom.predicate) if plural else atom.predicate
    return f"{subject} {verb} {target}"


def _noun(term: str, pronouns: Mapping[str, str] | None) -> str:
    if term in VARIABLES:
        return pronouns[term] if pronouns is not None else term
    return term if term[0].isupper() else f"the {term}"
