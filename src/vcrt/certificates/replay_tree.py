"""Hold the sequences of one episode that its verifier replayed, with shared prefixes, and write them as JSON.

This is the evidence of an episode, whether every order was replayed by itself or not: contexts, certificates and
relations are derived only from it. Not covered: which sequences are replayed (see :mod:`vcrt.replay.lattice_replay`)
and what follows from the answers (see :mod:`vcrt.certificates.lattice`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from vcrt.environments.contract import Episode, Rejected, Replay, some_outputs
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json, canonical_json
from vcrt.limits import MAX_OPERATIONS, MAX_SEQUENCES
from vcrt.orders import Order
from vcrt.partial_orders import PartialOrder

#: SHA-256 in lower-case hexadecimal.
HASH = re.compile("[0-9a-f]{64}")
_FORM = (
    '{"hashes": [SHA-256], "refusals": [text], "nodes": [[parent, operation, answer]]}, each hash and text once and in '
    "order of appearance, nodes by length and then operations"
)


@dataclass(frozen=True, slots=True)
class Reached:
    """The verifier's answer to a sequence: its state hash, or the message that refused its last operation.

    One of the two is None. If a sequence is refused as a whole at its end, this counts as a refusal of its last
    operation; ``end_hash`` is then the hash of the state that it led to. ``output`` is the last operation's output, if
    it has one.
    """

    state_hash: str | None
    rejection: str | None
    end_hash: str | None = None
    output: str | None = None

    def __str__(self) -> str:
        """In words."""
        if self.rejection is not None:
            return f"refused ({self.rejection})"
        gives = "" if self.output is None else f" with the output {self.output[:80]!r}"
        return f"accepted in state {str(self.state_hash)[:8]}{gives}"


def contradiction_text(sequence: Order, one: Reached | None, other: Reached | None) -> str:
    """Say in words how two replays of one sequence differ."""
    said = " in one replay and ".join(str(each or "not asked for") for each in (one, other))
    return f"the sequence {list(sequence)} was {said} in another"


def replay_of(sequence: Order, passed: Sequence[Reached]) -> Replay:
    """Assemble the replay of a sequence from the answers to its prefixes, up to the first that is refused."""
    last = passed[-1]
    accepted = passed if last.state_hash is not None else passed[:-1]
    hashes = [reached.state_hash or "" for reached in accepted]
    outputs = [reached.output for reached in accepted[1:]]
    if last.end_hash is not None:
        hashes.append(last.end_hash)
        outputs.append(last.output)
    rejection = None if last.rejection is None else Rejected(last.rejection)
    return Replay(sequence, tuple(hashes), rejection, some_outputs(outputs))


@dataclass(slots=True)
class Answers:
    """The answers to each sequence so far, and in words where two replays disagreed about one."""

    by_sequence: dict[Order, Reached] = field(default_factory=dict)
    contradiction: str | None = None

    def note(self, sequence: Order, reached: Reached) -> None:
        """Note an answer; the first answer to a sequence is kept."""
        known = self.by_sequence.setdefault(sequence, reached)
        if known != reached and self.contradiction is None:
            self.contradiction = contradiction_text(sequence, known, reached)

    def note_replay(self, replay: Replay) -> None:
        """Note the answers to every prefix of a replay."""
        num_accepted = len(replay.state_hashes) - 1
        refused_whole = num_accepted == len(replay.sequence) and not replay.accepted
        for length, state_hash in enumerate(replay.state_hashes):
            if not (refused_whole and length == num_accepted):
                output = replay.output(length - 1) if length else None
                self.note(replay.sequence[:length], Reached(state_hash, None, output=output))
        if replay.rejection is not None:
            refused_at = num_accepted if refused_whole else num_accepted + 1
            end_hash = replay.state_hashes[-1] if refused_whole else None
            output = replay.output(num_accepted - 1) if refused_whole and num_accepted else None
            refused = Reached(None, replay.rejection.reason, end_hash, output)
            self.note(replay.sequence[:refused_at], refused)

    def tree(self, num_operations: int) -> ReplayTree:
        """Return the tree of all answers."""
        return ReplayTree.of(num_operations, self.by_sequence, self.contradiction)


@dataclass(frozen=True)
class ReplayTree:
    """The verifier's answers by sequence; the tree holds every sequence's prefixes, all of which were accepted.

    ``answers`` is sorted by length, then lexicographically; the empty sequence's answer is the initial state.
    ``contradiction`` says in words where two replays disagreed about a prefix; it is None in evidence that certifies
    something.
    """

    num_operations: int
    answers: Mapping[Order, Reached]
    contradiction: str | None = None

    @classmethod
    def of(
        cls, num_operations: int, answers: Mapping[Order, Reached], contradiction: str | None = None
    ) -> ReplayTree:
        """Build the tree of these answers, given in any order."""
        ordered = sorted(answers.items(), key=lambda item: (len(item[0]), item[0]))
        return cls(num_operations, dict(ordered), contradiction)

    def __len__(self) -> int:
        return len(self.answers)

    @property
    def initial_hash(self) -> str:
        """The hash of the initial state."""
        state_hash = self.answers[()].state_hash
        assert state_hash is not None
        return state_hash

    @cached_property
    def num_refused(self) -> int:
        """The number of sequences that were refused at their last operation."""
        return sum(reached.rejection is not None for reached in self.answers.values())

    def replay(self, sequence: Order) -> Replay:
        """The replay of a sequence, or of any that begins with a refused one; raises ``KeyError`` for others."""
        passed: list[Reached] = []
        for length in range(len(sequence) + 1):
            passed.append(self.answers[sequence[:length]])
            if passed[-1].state_hash is None:
                break
        return replay_of(sequence[: len(passed) - 1], passed)

    def whole(self) -> list[Replay]:
        """Return the replays that are finished (complete orders, and refused sequences), in the tree's order."""
        return [
            self.replay(sequence)
            for sequence, reached in self.answers.items()
            if reached.rejection is not None or len(sequence) == self.num_operations
        ]

    def to_json(self) -> dict[str, Json]:
        """The JSON form; :func:`tree_from_json` reads it.

        A node is a sequence: the number of its prefix's node (0 is the empty sequence, which has no node in the
        list), its last operation, and the answer to that: the place of a state hash, or, below zero, ``-1 - place``
        of the message that refused it. Two places may follow: for a sequence that was refused as a whole, that of
        its state hash; for an operation with an output, that of the output.
        """
        hashes: dict[str, int] = {}
        refusals: dict[str, int] = {}
        outputs: dict[str, int] = {}
        numbers: dict[Order, int] = {}
        nodes: list[Json] = []
        for number, (sequence, reached) in enumerate(self.answers.items()):
            numbers[sequence] = number
            if reached.state_hash is not None:
                answer = hashes.setdefault(reached.state_hash, len(hashes))
            else:
                assert reached.rejection is not None
                answer = -1 - refusals.setdefault(reached.rejection, len(refusals))
            node: list[Json] = [numbers.get(sequence[:-1], 0), *sequence[-1:], answer]
            if reached.end_hash is not None:
                node.append(hashes.setdefault(reached.end_hash, len(hashes)))
            if reached.output is not None:
                node.append(outputs.setdefault(reached.output, len(outputs)))
            if sequence:
                nodes.append(node)
        value: dict[str, Json] = {
            "num_operations": self.num_operations,
            "hashes": list(hashes),
            "refusals": list(refusals),
            "nodes": nodes,
        }
        if outputs:
            value["outputs"] = list(outputs)
        if self.contradiction is not None:
            value["contradiction"] = self.contradiction
        return value


@dataclass(frozen=True, slots=True)
class EpisodeReplays:
    """An episode and the sequences of it that were replayed.

    If each of the ``n!`` orders was replayed by itself, ``replays`` has them in lexicographic order; for an episode
    with too many orders it is empty. ``settled`` is the order of which all contexts were replayed, where one was
    looked for, but for contexts that differ in nothing but ``reads``: operations that leave the state as it is;
    ``stopped_after`` are the seconds after which a time limit stopped that.
    """

    episode: Episode
    tree: ReplayTree
    replays: tuple[Replay, ...] = ()
    reads: int = 0
    settled: PartialOrder | None = None
    stopped_after: float | None = None

    @classmethod
    def of_every_order(cls, episode: Episode, replays: Sequence[Replay]) -> EpisodeReplays:
        """Make the evidence from the replays of all orders."""
        answers = Answers()
        for replay in replays:
            answers.note_replay(replay)
        return cls(episode, answers.tree(episode.num_operations), tuple(replays))

    @property
    def exhaustive(self) -> bool:
        """Whether every order was replayed by itself."""
        return bool(self.replays)


def tree_from_json(value: Any) -> ReplayTree:
    """Read a tree from anywhere; raises :class:`MalformedInputError` for anything that ``to_json`` does not write."""
    try:
        known = {"num_operations", "hashes", "refusals", "nodes", "outputs", "contradiction"}
        if not isinstance(value, dict) or not set(value) <= known:
            raise ValueError(f"{type(value).__name__} with other fields")
        num_operations = _number(value["num_operations"], "num_operations", 1, MAX_OPERATIONS)
        hashes = _texts(value["hashes"], "hashes")
        refusals = _texts(value["refusals"], "refusals")
        outputs = _texts(value.get("outputs", []), "outputs")
        if not hashes or not all(map(HASH.fullmatch, hashes)):
            raise ValueError("hashes that are not SHA-256 in lower-case hexadecimal")
        answers = _answers(num_operations, value["nodes"], hashes, refusals, outputs)
        contradiction = value.get("contradiction")
        if not isinstance(contradiction, str | None):
            raise ValueError("a contradiction that is no text")
        tree = ReplayTree(num_operations, answers, contradiction)
        # Numbering and succession follow from the content: whatever has others was not written by vcrt.
        if canonical_json(tree.to_json()) != canonical_json(value):
            raise ValueError("hashes, texts or nodes in another order, or some that are not used")
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedInputError(
            "not a tree of replays",
            found=f"{type(error).__name__}: {str(error)[:300]}",
            expected=_FORM,
        ) from error
    return tree


def _answers(
    num_operations: int, nodes: Any, hashes: list[str], refusals: list[str], outputs: list[str]
) -> dict[Order, Reached]:
    if not isinstance(nodes, list) or len(nodes) >= MAX_SEQUENCES:
        raise ValueError(f"nodes: a list of fewer than {MAX_SEQUENCES:,} nodes is expected")
    answers: dict[Order, Reached] = {(): Reached(hashes[0], None)}
    sequences: list[Order | None] = [()]
    before: tuple[int, Order] = (0, ())
    for number, node in enumerate(nodes, start=1):
        where = f"nodes[{number - 1}]"
        if not isinstance(node, list) or not 3 <= len(node) <= 5:
            raise ValueError(f"{where}: a parent, an operation and an answer are expected")
        prefix = sequences[_number(node[0], f"{where}, parent", 0, number - 1)]
        operation = _number(node[1], f"{where}, operation", 0, num_operations - 1)
        answer = _number(node[2], f"{where}, answer", -len(refusals), len(hashes) - 1)
        if prefix is None or operation in prefix:
            raise ValueError(f"{where}: operation {operation} cannot follow there")
        sequence = (*prefix, operation)
        place = (len(sequence), sequence)
        if place <= before:
            raise ValueError(f"{where}: not in its place")
        before = place
        sequences.append(sequence if answer >= 0 else None)
        given = node[4:] if answer < 0 else node[3:]
        if len(given) > 1:
            raise ValueError(f"{where}: accepted, and refused as a whole")
        said = [outputs[_number(each, f"{where}, output", 0, len(outputs) - 1)] for each in given]
        output = said[0] if said else None
        if answer >= 0:
            answers[sequence] = Reached(hashes[answer], None, output=output)
        else:
            ends = [hashes[_number(end, f"{where}, end", 0, len(hashes) - 1)] for end in node[3:4]]
            end_hash = ends[0] if ends else None
            answers[sequence] = Reached(None, refusals[-1 - answer], end_hash, output)
    return answers


def _texts(value: Any, where: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(text, str) and text for text in value):
        raise ValueError(f"{where}: a list of texts is expected")
    if len(set(value)) != len(value):
        raise ValueError(f"{where}: one of them stands there twice")
    return value


def _number(value: Any, where: str, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"{where}: {value!r:.40} is not a whole number from {least} to {most}")
    return value
