"""Replay orders of steps in one session, each prefix once, and check the result of a complete proof.

A complete proof is closed, checked by the kernel (``Qed``) and queried for its assumptions, as every declaration is: an
axiom, a hole or an omitted check refuses the whole.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from vcrt.environments.contract import Rejected, Replay
from vcrt.errors import MalformedInputError, VerifierFailure
from vcrt.hashing import json_digest
from vcrt_rocq import grammar
from vcrt_rocq.program import Declarations, Proof
from vcrt_rocq.protocol import Goals, Refusal
from vcrt_rocq.session import Session

CLOSED = "Closed under the global context"
_SECTION = re.compile(r"Section Variables:.*", re.DOTALL)
_HEADER = re.compile(r"\b(?:Axioms|Theory|Opaque constants|Transparent constants):")
_IDENTIFIER = re.compile(r"[A-Za-z_][\w'.]*")
#: The spellings of different versions.
_LIST_CLASSES = ("Print Typeclasses.", "Print TypeClasses.")
#: Brackets and bound names in the list of classes, which has "NAME@{UNIVERSES} : TYPE" for each.
_BRACKETED = re.compile(r"\([^(){}]*\)|@?\{[^(){}]*\}")
_BOUND = re.compile(r"\bforall\b[^,]*,")
_CLASS = re.compile(r"(\S+) :(?= |$)")
#: The prover's report if it makes all of its checks.
_CHECKED = "check_guarded: true check_positive: true check_universes: true"
_RECURSION = frozenset(["fix", "cofix"])
#: The prover's answer about a word without meaning; it has none for a keyword, which a notation may make a name.
_NO_NAME = "The reference"
#: The keywords of printed terms.
_KEYWORDS = frozenset(
    ["forall", "fun", "match", "with", "end", "let", "in", "return", "as", "Type", "Prop", "Set"]
)
_Order = tuple[int, ...]


class Judge:
    """A judge of the orders of one program at a time; raises :class:`vcrt.errors.VerifierFailure` without a verdict."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._closed: dict[tuple[str, ...], dict[str, bool]] = {}
        self._classes: dict[tuple[str, ...], frozenset[str]] = {}

    def replays(
        self, program: Proof | Declarations, sequences: Sequence[_Order], *, where: str
    ) -> list[Replay]:
        """Return the answers to each sequence; raise :class:`MalformedInputError` for a start that is refused."""
        refused = self._session.go_to(program.start, where=where)
        if refused is not None:
            place, refusal = refused
            raise MalformedInputError(
                "Rocq refuses what stands before the steps of an episode",
                where=where,
                found=f"{_within(program.start[:place])}{program.start[place][:200]} {refusal.text}",
                expected=f"a text that {self._session.label} accepts",
            )
        reached: dict[_Order, str | Rejected] = {(): self._state(program, (), where)}
        ends = dict[_Order, Rejected | None]()
        for sequence in sorted(set(sequences)):
            for length in range(1, len(sequence) + 1):
                prefix = sequence[:length]
                if prefix not in reached:
                    reached[prefix] = self._after(program, prefix, where)
                if isinstance(reached[prefix], Rejected):
                    break
            else:
                if len(sequence) == len(program.steps):
                    ends[sequence] = self._end(program, sequence, where)
        return [_replay(sequence, reached, ends) for sequence in sequences]

    def _after(self, program: Proof | Declarations, done: _Order, where: str) -> str | Rejected:
        """Return the digest of the state after these steps, of which the last is new, or its refusal."""
        path = path_of(program, done[:-1])
        sentences = program.steps[done[-1]]
        goals = self._session.step(path, sentences, where=where)
        if isinstance(goals, tuple):
            place, refusal = goals
            several = f"sentence {place + 1}, " if len(sentences) > 1 else ""
            return Rejected(f"{several}{refusal.text}")
        if isinstance(program, Declarations):
            if goals is not None:
                return Rejected("a declaration that leaves a proof open")
            return self._state(program, done, where)
        if goals is None:
            return Rejected("a step that ends the proof")
        if goals.given_up:
            return Rejected("a goal is given up")
        return self._digest(program, goals, done, where)

    def _digest(self, program: Proof, goals: Goals, done: _Order, where: str) -> str:
        classes = self._classes.get(program.before)
        if classes is None:
            at = len(program.before)
            told = self._session.ask(program.start, _LIST_CLASSES, where=where, at=at)
            said = [one for one in told if isinstance(one, str)]
            if not said:
                raise VerifierFailure(
                    "Rocq does not tell its classes",
                    where=where,
                    found=str(told),
                    expected="a list",
                )
            classes = self._classes[program.before] = classes_in(said[0])
        return json_digest(program.state(goals, _bullets(program, done), classes))

    def _state(self, program: Proof | Declarations, done: _Order, where: str) -> str:
        path = path_of(program, done)
        if isinstance(program, Declarations):
            said = self._session.ask(path, program.queries(done), where=where)
            return json_digest([one.text if isinstance(one, Refusal) else one for one in said])
        goals = self._session.goals(path, where=where)
        if goals is None:
            raise MalformedInputError("a start without a proof in progress", where=where)
        return self._digest(program, goals, done, where)

    def _end(self, program: Proof | Declarations, sequence: _Order, where: str) -> Rejected | None:
        path = path_of(program, sequence)
        if isinstance(program, Declarations):
            names = [program.declared[step].name for step in sequence]
        else:
            names = [program.statement.name]
            rest = (*program.closing, "Qed.")
            goals = self._session.step(path, rest, where=where)
            if isinstance(goals, tuple):
                place, refusal = goals
                return Rejected(f"at the end, sentence {place + 1}, {refusal.text}")
            path = (*path, *rest)
        return self._assumed(program, path, names, where)

    def _assumed(
        self, program: Proof | Declarations, path: Sequence[str], names: Sequence[str], where: str
    ) -> Rejected | None:
        """Return the refusal of the first name that rests on more than the kernel, None if there is none.

        Skip the query for a term in ASCII, without recursion or attributes, if all of its names that are known before
        the episode rest on nothing; its other names are queried by themselves.
        """
        flags, *terms = self._session.ask(
            path, ["Print Typing Flags.", *(f"Print {name}." for name in names)], where=where
        )
        if isinstance(flags, Refusal) or not flags.startswith(_CHECKED):
            return Rejected(f"a proof that rests on what is not proved: {flags}")
        bare = not any(sentence.startswith("#") for sentence in path[len(program.before) :])
        for name, term in zip(names, terms, strict=True):
            if isinstance(term, Refusal):
                return Rejected(f"{name} is not there: {term.message}")
            words = frozenset(_IDENTIFIER.findall(term)) - _KEYWORDS
            # Names in other letters would not be found.
            plain = bare and term.isascii() and term.startswith(f"{name} = ")
            plain = plain and words.isdisjoint(_RECURSION)
            if plain and self._all_closed(program, path, words, where):
                continue
            (said,) = self._session.ask(path, [f"Print Assumptions {name}."], where=where)
            text = said.text if isinstance(said, Refusal) else said
            if not is_closed(text):
                return Rejected(f"{name} rests on what is not proved: {text}")
        return None

    def _all_closed(
        self,
        program: Proof | Declarations,
        path: Sequence[str],
        names: frozenset[str],
        where: str,
    ) -> bool:
        known = self._closed.setdefault(program.before, {})
        new = sorted(names - known.keys())
        said = self._session.ask(
            path,
            [f"Print Assumptions {name}." for name in new],
            where=where,
            at=len(program.before),
        )
        for name, answer in zip(new, said, strict=True):
            known[name] = (
                is_closed(answer)
                if isinstance(answer, str)
                else answer.message.startswith(_NO_NAME)
            )
        return all(known[name] for name in names)


def path_of(program: Proof | Declarations, done: _Order) -> tuple[str, ...]:
    """Return the sentences up to the state after these steps."""
    return (*program.start, *(sentence for step in done for sentence in program.steps[step]))


def is_closed(said: str) -> bool:
    """Return whether only variables of a section are assumed, which become arguments at its end."""
    return said == CLOSED or (_SECTION.fullmatch(said) is not None and not _HEADER.search(said))


def classes_in(said: str) -> frozenset[str]:
    """Return the names of the classes in the prover's list of them."""
    bare = ""
    while bare != said:
        bare, said = said, _BRACKETED.sub("", said)
    return frozenset(_CLASS.findall(_BOUND.sub("", bare)))


def _within(before: Sequence[str]) -> str:
    """Return the theorem whose proof contains the sentence after these; empty if there is none."""
    for text in reversed(before):
        if text.startswith(grammar.PROOF_ENDS):
            break
        if grammar.command_of(text) in grammar.PROVED:
            return f"{' '.join(grammar.without_prefixes(text).split()[:2]).rstrip(':')}: "
    return ""


def _bullets(program: Proof, done: _Order) -> list[str]:
    return [text for step in done for text in program.steps[step] if grammar.is_bullet(text)]


def _replay(
    sequence: _Order, reached: dict[_Order, str | Rejected], ends: dict[_Order, Rejected | None]
) -> Replay:
    hashes = list[str]()
    for length in range(len(sequence) + 1):
        answer = reached[sequence[:length]]
        if isinstance(answer, Rejected):
            return Replay(sequence, tuple(hashes), answer)
        hashes.append(answer)
    return Replay(sequence, tuple(hashes), ends.get(sequence))
