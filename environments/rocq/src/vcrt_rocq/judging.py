"""Replay orders of steps in one session, each prefix once, and check what is proved at the end.

A proof that is complete is closed, checked by the kernel (``Qed``) and asked for its assumptions, as every declaration
is: an axiom, a hole or a check that was left out refuses the whole. Not covered: reading episodes.
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
#: As the versions spell it.
_LIST_CLASSES = ("Print Typeclasses.", "Print TypeClasses.")
#: What is in brackets, or bound, in the list of classes, which is "NAME@{UNIVERSES} : TYPE" for each.
_BRACKETED = re.compile(r"\([^(){}]*\)|@?\{[^(){}]*\}")
_BOUND = re.compile(r"\bforall\b[^,]*,")
_CLASS = re.compile(r"(\S+) :(?= |$)")
#: What the prover says of its checks while it makes all of them.
_CHECKED = "check_guarded: true check_positive: true check_universes: true"
_RECURSION = frozenset(["fix", "cofix"])
#: What the prover says of a word that names nothing; of a keyword it says nothing: a notation may have made a name one.
_NO_NAME = "The reference"
#: The keywords of printed terms.
_KEYWORDS = frozenset(
    ["forall", "fun", "match", "with", "end", "let", "in", "return", "as", "Type", "Prop", "Set"]
)
_Order = tuple[int, ...]


class Judge:
    """Answers the orders of one program at a time; raises :class:`vcrt.errors.VerifierFailure` without a verdict."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._closed: dict[tuple[str, ...], dict[str, bool]] = {}
        self._classes: dict[tuple[str, ...], frozenset[str]] = {}

    def replays(
        self, program: Proof | Declarations, sequences: Sequence[_Order], *, where: str
    ) -> list[Replay]:
        """The answers to each sequence; raises :class:`MalformedInputError` for a start that is refused."""
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
        """The digest of the state after these steps, of which the last one is new; or why that is refused."""
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
        """The refusal of names that rest on more than the kernel.

        Nothing more is asked of a term in ASCII, without recursion or attributes, all of whose names, as they are known
        before the episode, rest on nothing: of its other names each is asked about here.
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
            # Of a name in other letters nobody would ask.
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
    """The sentences up to the state after these steps."""
    return (*program.start, *(sentence for step in done for sentence in program.steps[step]))


def is_closed(said: str) -> bool:
    """Whether nothing is assumed but variables of a section, which its end turns into arguments."""
    return said == CLOSED or (_SECTION.fullmatch(said) is not None and not _HEADER.search(said))


def classes_in(said: str) -> frozenset[str]:
    """The names of the classes in what the prover prints of them."""
    bare = ""
    while bare != said:
        bare, said = said, _BRACKETED.sub("", said)
    return frozenset(_CLASS.findall(_BOUND.sub("", bare)))


def _within(before: Sequence[str]) -> str:
    """The theorem in whose proof the sentence behind these stands, or none."""
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
