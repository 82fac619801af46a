"""Two replays within a time limit: what counts was replayed twice, and without a limit nothing is missing."""

from __future__ import annotations

import sys

import pytest

from file_store import CountedFiles, Files, sampled
from vcrt.calls.annotations import Evidence
from vcrt.calls.retries import after_refusals
from vcrt.certificates.lattice import Lattice
from vcrt.environments.guarding import make_guarded
from vcrt.replay import shards
from vcrt.replay.lattice_replay import replay_lattices
from vcrt.replay.shards import replays_of
from vcrt.replay.twice import replay_once, replay_twice

LONG = 1e6


def twice_of(episode, *, first=LONG, second=LONG):
    once = replay_once(Files(), episode, first)
    return once, replay_twice(Files(), once, second)


def evidence(replays, *, cut=False):
    found = Evidence()
    found.add(replays.episode, replays.tree, cut=cut)
    return found.annotations("files", (), risk=0.1)


@pytest.mark.parametrize(("num_calls", "seeds"), [(2, 6), (4, 6), (6, 2)])
def test_without_a_limit_the_evidence_is_that_of_all_contexts(num_calls, seeds):
    for seed in range(seeds):
        episode = sampled(seed, num_calls)
        once, twice = twice_of(episode)
        (every,) = replays_of(Files(), [episode])
        assert (twice.stopped, twice.problem) == (False, None)
        assert twice.replays.tree.answers.keys() == once.answers.by_sequence.keys()
        of_tree, of_every = Lattice.of(twice.replays.tree), Lattice.of(every.tree)
        assert {(c.done, c.state_hash) for c in of_tree.contexts} == {
            (c.done, c.state_hash) for c in of_every.contexts
        }
        known, wanted = evidence(twice.replays), evidence(every)
        assert [(t.name, t.changed, t.refused, t.changed_again) for t in known.tools] == [
            (t.name, t.changed, t.refused, t.changed_again) for t in wanted.tools
        ]
        assert [(p.tools, p.verdicts, p.condition) for p in known.pairs] == [
            (p.tools, p.verdicts, p.condition) for p in wanted.pairs
        ]


def test_of_many_calls_contexts_are_sampled_as_they_were():
    episode = sampled(3, 11)
    _, twice = twice_of(episode)
    (every,) = replay_lattices(Files(), [episode])
    assert not twice.stopped
    assert twice.replays.tree.answers == every.tree.answers


def test_what_was_replayed_once_does_not_count(monkeypatch):
    episode = sampled(1, 6)
    (every,) = replays_of(Files(), [episode])
    number = {}
    for left in (0, 3, 40):
        # The second replay is late after so many sequences.
        clock = iter([False] * left + [True] * 10**6)
        monkeypatch.setattr(
            sys.modules["vcrt.replay.twice"], "late_after", lambda within, c=clock: lambda: next(c)
        )
        once, twice = twice_of(episode)
        assert not once.stopped
        assert twice.stopped
        answers = twice.replays.tree.answers
        assert answers.items() <= once.answers.by_sequence.items()
        assert tuple(range(6)) in answers
        assert all(sequence[:-1] in answers for sequence in answers)
        number[left] = len(answers)
    # The order that begins with the last steps, and the reference order, are replayed in any case.
    assert number[0] == 13 < number[3] < number[40] < len(every.tree.answers)


def test_a_first_replay_that_is_stopped_has_the_reference_order_and_says_so():
    once, twice = twice_of(sampled(1, 6), first=1e-9)
    assert once.stopped
    assert twice.stopped
    assert tuple(range(6)) in twice.replays.tree.answers
    assert len(twice.replays.tree.answers) == 7


def test_replays_that_differ_say_nothing():
    CountedFiles.made.number = 0
    environment = make_guarded(CountedFiles)
    once = replay_once(environment, sampled(1), LONG)
    CountedFiles.made.number = 5
    assert replay_twice(environment, once, LONG).problem == "nondeterministic"


def test_a_source_that_is_cut_counts_as_one_that_shows_the_opposite():
    found = {cut: Evidence() for cut in (0, 1)}
    for replays in replays_of(Files(), [sampled(seed) for seed in range(0, 120, 2)]):
        for cut, one in found.items():
            is_first = replays.episode.provenance.source in ("trace 0", "trace 1", "trace 2")
            left = after_refusals(Files(), replays)
            one.add(replays.episode, replays.tree, cut=bool(cut and is_first), after_refusals=left)
    whole, part = (one.annotations("files", (), risk=0.1) for one in found.values())
    assert part.cut == ("trace 0", "trace 1", "trace 2")
    for one, other in zip(whole.tools, part.tools, strict=True):
        assert (one.changed, one.change) == (other.changed, other.change)
        assert other.changed_in.count >= one.changed_in.count
        assert other.changed_in.bound >= one.changed_in.bound
    for one, other in zip(whole.pairs, part.pairs, strict=True):
        assert (one.verdicts, one.against, one.condition) == (
            other.verdicts,
            other.against,
            other.condition,
        )
        assert other.not_commuted_in.bound >= one.not_commuted_in.bound
    read, cut_read = (next(t for t in one.tools if t.name == "read") for one in (whole, part))
    assert read.hints(0.1) == {"readOnlyHint": True, "destructiveHint": False}
    assert cut_read.changed_in.count > 0 == read.changed_in.count
    assert cut_read.hints(0.1) == {}


def test_late_is_after_so_many_seconds():
    assert not shards.late_after(None)()
    assert not shards.late_after(LONG)()
    assert shards.late_after(-1)()
