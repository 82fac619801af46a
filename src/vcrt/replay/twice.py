"""Replay an episode twice within a time limit; what counts is what both replays gave.

The first replay runs step by step, and contexts of each pair come first (:func:`contexts_in_time`). The second, in
another process, runs the same sequences in the same succession, block by block, each as a whole from a fresh initial
state. So a limit that stops either of them leaves contexts of all pairs rather than all contexts of some.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from vcrt.certificates.certificates import UncertifiedError
from vcrt.certificates.long_episodes import sound_lattice
from vcrt.certificates.probes import probe, require_not_told_apart
from vcrt.certificates.replay_tree import Answers, EpisodeReplays, contradiction_text
from vcrt.environments.apart import apart
from vcrt.environments.contract import Environment, Episode, ReplayRequest, Versions
from vcrt.orders import Order
from vcrt.replay.lattice_replay import Work, contexts_in_time, run_asked
from vcrt.replay.replay import replay_all
from vcrt.replay.shards import late_after, retried_once, unchanged

#: The second replay runs the longest sequences of so many at a time, the last first.
_BLOCK = 64


@dataclass(frozen=True, slots=True)
class Once:
    """The first replay of an episode: the answers as they came, and whether a limit stopped it."""

    episode: Episode
    answers: Answers
    stopped: bool
    versions: Versions

    @property
    def reference(self) -> Order:
        """The reference order."""
        return tuple(range(self.episode.num_operations))

    @property
    def again(self) -> Iterator[Order]:
        """The sequences of the second replay: the reference order, then the longest sequences of each block.

        Before them comes the one that begins with the last steps, while no other order has left anything behind.
        """
        every = list(self.answers.by_sequence)
        yield max(every)
        yield self.reference
        for start in range(0, len(every), _BLOCK):
            block = every[start : start + _BLOCK]
            parts = {sequence[:length] for sequence in block for length in range(len(sequence))}
            yield from (sequence for sequence in reversed(block) if sequence not in parts)

    @property
    def num_calls(self) -> int:
        """How many verifier calls the second replay takes: of each step and state, and for its canonical form."""
        return sum(2 + 2 * len(sequence) for sequence in self.again)


@dataclass(frozen=True, slots=True)
class Twice:
    """What two replays of an episode gave alike; or the reason why it says nothing.

    ``stopped``: a limit stopped one of the two, so that they are only a part of what there is to replay.
    """

    replays: EpisodeReplays
    stopped: bool
    problem: str | None = None


def replay_once(environment: Environment, episode: Episode, within: float) -> Once:
    """Replay an episode ``within`` so many seconds, the reference order in any case."""

    def replayed() -> Once:
        work = Work(episode, complete=False)
        run_asked(environment, [(work, contexts_in_time(work, within))])
        return Once(episode, work.answered, work.stopped, environment.versions())

    with unchanged(episode):
        return retried_once(replayed)


def replay_twice(environment: Environment, once: Once, within: float) -> Twice:
    """Replay an episode again ``within`` so many seconds, the reference order in any case, and compare.

    Further calls tell apart states that only seem equal (:mod:`vcrt.certificates.probes`), ``within`` as many seconds.
    """
    with unchanged(once.episode):
        again, stopped = retried_once(partial(_again, environment, once, within))
        replays = EpisodeReplays(once.episode, again.tree(once.episode.num_operations))
        problem = None
        try:
            if environment.versions() != once.versions:
                raise UncertifiedError("version_disagreement", f"{environment.versions()}")
            # What the second replay did not come to may contradict what it did.
            for answers in (once.answers, again):
                sound_lattice(answers.tree(once.episode.num_operations), allow_idle=True)
            is_late = late_after(within)
            probing = partial(probe, environment, replays, is_late=is_late)
            # What is replayed next meets nothing of this.
            require_not_told_apart(retried_once(partial(apart, environment, once.episode, probing)))
        except UncertifiedError as error:
            problem = error.kind
        return Twice(replays, once.stopped or stopped, problem)


def _again(environment: Environment, once: Once, within: float) -> tuple[Answers, bool]:
    """Return the answers of the second replay, with where they differ from the first, and whether it was stopped."""
    answers, first = Answers(), once.answers.by_sequence
    is_late, stopped = late_after(within), False
    for sequence in once.again:
        if sequence in answers.by_sequence:
            continue
        stopped = bool(answers.by_sequence) and sequence != once.reference and is_late()
        if stopped:
            break
        (replay,) = replay_all(environment, [ReplayRequest(once.episode, sequence)])
        answers.note_replay(replay)
    for sequence, reached in answers.by_sequence.items():
        if answers.contradiction is None and first.get(sequence) != reached:
            answers.contradiction = contradiction_text(sequence, first.get(sequence), reached)
    return answers, stopped
