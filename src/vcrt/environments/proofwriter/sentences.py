"""Atoms, rules and theories as plain English sentences, in the grammar that ``english`` reads back.

Not covered: paraphrases; each atom and rule has one sentence.
"""

from __future__ import annotations

from vcrt.environments.proofwriter.theory import VARIABLES, Atom, Rule, Theory

_PRONOUNS = {"someone": "they", "something": "it"}


def third_person(verb: str) -> str:
    """``like`` -> ``likes``, ``watch`` -> ``watches``, ``carry`` -> ``carries``."""
    if verb.endswith(("s", "sh", "ch", "x", "z", "o")):
        return verb + "es"
    if verb.endswith("y") and verb[-2:-1] not in tuple("aeiou"):
        return verb[:-1] + "ies"
    return verb + "s"


def base_form(verb: str) -> str:
    """A verb whose :func:`third_person` is ``verb``."""
    if verb.endswith("ies"):
        return verb[:-3] + "y"
    for candidate in (verb[:-1], verb[:-2]):
        if candidate and third_person(candidate) == verb:
            return candidate
    return verb


def atom_sentence(atom: Atom) -> str:
    """The atom as one sentence, for example ``Bob does not like the bald eagle.``"""
    return _sentence(_clause(atom))


def rule_sentence(rule: Rule) -> str:
    """The rule as one sentence, for example ``If someone is red then they are kind.``"""
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
    subject = _noun(atom.subject, pronoun)
    plural = subject == "they"
    negated = atom.polarity != "+"
    if atom.predicate == "is":
        return f"{subject} {'are' if plural else 'is'} {'not ' if negated else ''}{atom.object}"
    target = _noun(atom.object, pronoun or atom.subject in VARIABLES)
    if negated:
        verb = f"{'do' if plural else 'does'} not {base_form(atom.predicate)}"
    else:
        verb = base_form(atom.predicate) if plural else atom.predicate
    return f"{subject} {verb} {target}"


def _noun(term: str, pronoun: bool) -> str:
    if term in VARIABLES:
        return _PRONOUNS[term] if pronoun else term
    return term if term[0].isupper() else f"the {term}"
