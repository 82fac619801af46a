"""Write and read ProofWriter's English, theories and questions, by a small grammar.

    theory    := sentence+                     each ends with a full stop
    sentence  := clause | "If" condition ("and" condition)* "then" clause | ["All"] word ("," word)* KIND tail
    condition := clause | ["not"] word         the word says more of the subject before it
    clause    := NOUN tail
    tail      := ("is" | "are") ["not"] word | VERB NOUN | ("does" | "do") "not" VERB NOUN
    NOUN      := Name | "the" word+ | "someone" | "something" | "they" | "them" | "it"
    KIND      := "people" | "things"

Each atom and rule is written as one sentence. Verbs and attributes are open: any word of letters will do. Promised: a
theory, or one :class:`MalformedInputError` that quotes the sentence. Not covered: paraphrases (texts of ProofWriter's
NatLang and birds-electricity).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vcrt.errors import MalformedInputError
from vcrt_proofwriter.theory import VARIABLES, Assumption, Atom, Polarity, Rule, Theory

_KINDS = {"people": "someone", "things": "something"}
_PRONOUNS = {"they": "someone", "them": "someone", "it": "something"}
_SUBJECTS = {"someone": "they", "something": "it"}
_OBJECTS = {"someone": "them", "something": "it"}
_RESERVED = frozenset(
    {"if", "then", "and", "not", "is", "are", "does", "do", "the", "all", ","}
    | VARIABLES
    | set(_KINDS)
    | set(_PRONOUNS)
)


def third_person(verb: str) -> str:
    """Return the third person: ``like`` -> ``likes``, ``watch`` -> ``watches``, ``carry`` -> ``carries``."""
    if verb.endswith(("s", "sh", "ch", "x", "z", "o")):
        return verb + "es"
    if verb.endswith("y") and verb[-2:-1] not in tuple("aeiou"):
        return verb[:-1] + "ies"
    return verb + "s"


def base_form(verb: str) -> str:
    """Return the verb whose :func:`third_person` is ``verb``."""
    if verb.endswith("ies"):
        return verb[:-3] + "y"
    if verb.endswith(("shes", "ches", "xes", "zzes", "oes", "sses")):
        return verb[:-2]
    return verb.removesuffix("s")


def atom_sentence(atom: Atom) -> str:
    """Return the atom as one sentence, such as ``Bob does not like the bald eagle.``."""
    return _sentence(_clause(atom))


def rule_sentence(rule: Rule) -> str:
    """Return the rule as one sentence, such as ``If someone is red then they are kind.``."""
    introduced = False
    clauses = []
    for atom in rule.atoms():
        clauses.append(_clause(atom, pronoun=introduced))
        introduced = introduced or bool(atom.variables())
    *conditions, conclusion = clauses
    return _sentence(f"if {' and '.join(conditions)} then {conclusion}")


def theory_text(theory: Theory) -> str:
    """Return all facts, then all rules, as sentences."""
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


def parse_theory(text: str, *, assumption: Assumption, where: str = "text") -> Theory:
    """Return the facts and rules of an English theory; raise :class:`MalformedInputError` for another text."""
    sentences = text.strip().split(".")
    if sentences.pop() or not sentences:
        raise MalformedInputError(
            "not an English theory",
            where=where,
            found=repr(text[-80:]),
            expected="one or more sentences, each with a full stop at its end",
        )
    negation: Polarity = "~" if assumption == "CWA" else "-"
    facts, rules = [], []
    for number, sentence in enumerate(sentences, 1):
        read = _Sentence(sentence, f"{where}, sentence {number}", negation).parse()
        if isinstance(read, Rule):
            rules.append(read)
        else:
            facts.append(read)
    try:
        return Theory(assumption=assumption, facts=tuple(facts), rules=tuple(rules))
    except MalformedInputError as error:
        raise error.within(where) from error


def parse_question(text: str, where: str = "text") -> Atom:
    """Return a question such as ``Bob is not red.`` as an atom; raise :class:`MalformedInputError` for others."""
    sentence = _Sentence(text.strip().removesuffix("."), where, "-")
    atom = sentence.parse()
    if isinstance(atom, Rule) or atom.variables():
        raise sentence.fault("a statement about named entities")
    return atom


class _Sentence:
    """The words of one sentence and the variable that it has introduced so far."""

    def __init__(self, text: str, where: str, negation: Polarity) -> None:
        self._text = text
        self._where = where
        self._negation = negation
        self._variable: str | None = None
        self._words = text.replace(",", " , ").split()

    def fault(self, expected: str) -> MalformedInputError:
        """Return the error about this sentence."""
        return MalformedInputError(
            "a sentence outside the grammar of ProofWriter's English",
            where=self._where,
            found=repr(self._text.strip()[:160]),
            expected=expected,
            remedy="write it as in 'Bob is not red.', 'The cat likes Bob.' or"
            " 'If someone is red and not big then they are kind.'",
        )

    def parse(self) -> Rule | Atom:
        """Return the sentence as a rule or as an atom."""
        if not all(word == "," or word.isalpha() for word in self._words):
            raise self.fault("words of letters, with commas between adjectives only")
        if self._words[:1] == ["If"]:
            return self._conditional(self._words[1:])
        kinds = [i for i, word in enumerate(self._words) if word in _KINDS]
        if kinds:
            return self._generalisation(kinds[0])
        return self._clause(self._words, "-")

    def _conditional(self, words: list[str]) -> Rule:
        if words.count("then") != 1:
            raise self.fault("one 'then' after 'If'")
        then = words.index("then")
        conditions: list[Atom] = []
        for part in _split(words[:then], "and"):
            conditions.append(self._condition(part, conditions))
        return Rule(conditions=tuple(conditions), conclusion=self._clause(words[then + 1 :], "-"))

    def _condition(self, words: list[str], before: Sequence[Atom]) -> Atom:
        bare = words[1:] if words[:1] == ["not"] else words
        if len(bare) != 1:
            return self._clause(words, self._negation)
        if not before:
            raise self.fault("a first condition with a subject")
        polarity = "+" if bare is words else self._negation
        return Atom(before[-1].subject, "is", self._word(bare[0]), polarity)

    def _generalisation(self, kind: int) -> Rule:
        first, *others = self._words[:kind] or [""]
        adjectives = others if first == "All" else [first.lower(), *others]
        parts = _split(adjectives, ",")
        if any(len(part) != 1 for part in parts):
            raise self.fault("adjectives with commas between them before 'people' or 'things'")
        self._variable = _KINDS[self._words[kind]]
        conditions = tuple(Atom(self._variable, "is", self._word(part[0])) for part in parts)
        conclusion = self._tail(self._variable, True, self._words[kind + 1 :], "-")
        return Rule(conditions=conditions, conclusion=conclusion)

    def _clause(self, words: list[str], negation: Polarity) -> Atom:
        copula = next((i for i, w in enumerate(words) if w in ("is", "are", "does", "do")), None)
        if copula is None:
            # "VERB NOUN" at the end: the noun begins at the last "the", or is the last word.
            articles = [i for i, word in enumerate(words) if word == "the" and i > 0]
            copula = (articles[-1] if articles else len(words) - 1) - 1
        if copula < 1:
            raise self.fault("a subject and what is said of it")
        subject = self._noun(words[:copula])
        return self._tail(subject, words[0] == "they", words[copula:], negation)

    def _tail(self, subject: str, plural: bool, words: list[str], negation: Polarity) -> Atom:
        match words:
            case ["is" | "are", "not", word]:
                return Atom(subject, "is", self._word(word), negation)
            case ["is" | "are", word]:
                return Atom(subject, "is", self._word(word))
            case ["does" | "do", "not", verb, *noun]:
                predicate = third_person(self._word(verb))
                return Atom(subject, predicate, self._noun(noun), negation)
            case [verb, *noun]:
                word = self._word(verb)
                return Atom(subject, third_person(word) if plural else word, self._noun(noun))
        raise self.fault("a verb after the subject")

    def _noun(self, words: list[str]) -> str:
        match [word.lower() if i == 0 else word for i, word in enumerate(words)]:
            case ["the", *noun] if noun:
                return " ".join(self._word(word) for word in noun)
            case ["someone" | "something" as variable]:
                self._variable = variable
                return variable
            case ["they" | "them" | "it" as pronoun] if self._variable == _PRONOUNS[pronoun]:
                return self._variable
            case [lowered] if lowered not in _RESERVED and words[0][0].isupper():
                return words[0]
        raise self.fault("a name, 'the' and a noun, or one variable and its pronoun, for an entity")

    def _word(self, word: str) -> str:
        if not word.islower() or word in _RESERVED:
            raise self.fault("a word in small letters for an attribute, a verb or a noun")
        return word


def _split(words: list[str], separator: str) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word == separator:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts
