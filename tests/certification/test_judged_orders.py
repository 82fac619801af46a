"""What all orders of a completion's steps would earn: each judged by itself, of failures too."""

from __future__ import annotations

from itertools import permutations, product

import pytest

import vcrt
from letters import Bag, Letters, Lined
from vcrt.environments.contract import Accepted, Versions
from vcrt.environments.written import UnreadableCompletion
from vcrt.errors import EnvironmentFailure, MalformedInputError
from vcrt.replay.completion_judge import CompletionJudge
from vcrt.replay.completions import Looks, look_again, look_first

TASK = {"letters": "abc"}


def look(completion, environment=Letters, task=TASK, **changes):
    """The judgement of a completion, in this process."""
    looks = Looks(**{"max_steps": 10, "certified": False, "max_judged": 24} | changes)
    work = environment, task, completion
    first = look_first(work, looks)
    return first.judgement if first.is_last else look_again((work, first), looks)


def solves(letters, wanted="abc"):
    """The rule of :class:`letters.Letters`, written anew."""
    once = len(set(letters)) == len(letters)
    early = "b" in letters and "a" not in letters[: letters.index("b")]
    return once and not early and set(letters) == set(wanted)


def test_each_order_of_each_answer_has_its_own_verdict():
    for number in (2, 3, 4):
        for letters in product("abcd", repeat=number):
            found = look(" ".join(letters))
            assert found.success == solves(letters)
            assert found.unjudged is None
            assert found.judged[0] == (tuple(range(number)), found.success)
            assert dict(found.judged) == {
                order: solves([letters[step] for step in order])
                for order in permutations(range(number))
            }


def test_solutions_of_another_end_count_as_what_they_are():
    """No two of these orders end alike, so nothing would be certified beside the written one."""
    found = look("c b a", Lined)
    assert all(solved for _, solved in found.judged)
    assert len(found.judged) == 6


@pytest.mark.parametrize("most", [1, 2, 6, 23])
def test_beyond_the_limit_blocks_are_a_partition(most):
    letters = "abcd" if most < 24 else "abcde"
    for draw in range(5):
        blocks = {}
        for written in permutations(letters):
            found = look(" ".join(written), max_judged=most, draw=draw)
            assert 1 <= len(found.judged) <= most
            blocks[written] = {
                tuple(written[step] for step in order): solved for order, solved in found.judged
            }
        for written, block in blocks.items():
            assert written in block
            for member, solved in block.items():
                assert blocks[member] == block
                assert solved == solves(member)
    assert len({len(block) for block in blocks.values()}) == 1


def test_free_text_moves_with_its_step():
    found = look("a e b", Bag, {"letters": "ab"})
    assert found.segments.moved == ("a", "e b")
    assert found.judged == (((0, 1), True), ((1, 0), True))


class Unsteady(Letters):
    """One in which the second judgement of a text differs, if it begins with c."""

    seen: frozenset[str] = frozenset()

    def solved(self, task, state):
        return super().solved(task, state) and self.steady

    def initial_state(self, episode):
        text = "".join(each.payload for each in episode.operations)
        self.steady = not text.startswith("c") or text not in Unsteady.seen
        Unsteady.seen |= {text}
        return super().initial_state(episode)


class Sighted(Letters):
    """One that reads nothing if c comes first."""

    def parse(self, task, completion):
        if completion.startswith("c"):
            raise UnreadableCompletion("c first")
        return super().parse(task, completion)


class Merging(Letters):
    """One that reads a c behind an a as a step of its own kind."""

    def parse(self, task, completion):
        found = super().parse(task, completion)
        if "a c" not in completion:
            return found
        return type(found)(initial="c behind a", steps=found.steps)


class Renewed(Letters):
    """One that has another version each time it is asked."""

    number = 0

    def versions(self):
        Renewed.number += 1
        return Versions(
            environment=self.name,
            adapter="1",
            canonicalizer="1",
            verifier=f"{Renewed.number}",
        )


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Unsteady, "nondeterministic"),
        (Sighted, "reading"),
        (Merging, "reading"),
        (Renewed, "version_disagreement"),
    ],
)
def test_where_one_order_cannot_be_judged_no_order_of_the_steps_is(kind, reason):
    """Else a success would stand for itself, and a failure of its steps for that success, too."""
    for written in permutations("abc"):
        kind.seen = frozenset()
        found = look(" ".join(written), kind)
        if found.failure is not None and found.failure.startswith("unreadable"):
            assert (found.judged, found.num_steps) == ((), 0)
        else:
            assert (found.judged, found.unjudged) == ((), reason)


@pytest.mark.parametrize(
    ("text", "steps", "reason"), [("a", 10, "single_step"), ("a b c d", 3, "too_many_steps")]
)
@pytest.mark.parametrize("certified", [False, True])
def test_answers_of_one_step_and_of_too_many_are_told(text, steps, reason, certified):
    found = look(text, max_steps=steps, certified=certified)
    assert (found.judged, found.unjudged, found.exclusion) == ((), reason, None)
    solved = look("a", task={"letters": "a"}, max_steps=steps, certified=certified)
    assert solved.unjudged == "single_step"
    assert solved.exclusion == ("single_step" if certified else None)


def test_what_is_no_answer_has_no_orders():
    found = look("x")
    assert (found.judged, found.unjudged) == ((), None)
    assert found.failure.startswith("unreadable")


def test_nothing_is_judged_unless_it_is_asked_for():
    found = look("c b a", max_judged=0)
    assert (found.judged, found.unjudged) == ((), None)


@pytest.mark.parametrize("number", [-1, 1.5, "3", True, None])
def test_a_number_of_orders_that_is_none_is_refused(number):
    with pytest.raises(MalformedInputError, match="not a valid number of orders"):
        vcrt.certify_completion(Letters, TASK, "a b c", max_judged=number)


class Counted(Bag):
    """One that counts the texts that it judges."""

    judged = 0

    def solved(self, task, state):
        Counted.judged += 1
        return super().solved(task, state)


def test_orders_of_one_text_are_judged_once():
    Counted.judged = 0
    found = look("c c c c", Counted, {"letters": "c"})
    assert len(found.judged) == 24
    assert all(solved for _, solved in found.judged)
    assert Counted.judged == 3  # the text that was written, and its only order twice


def test_a_success_is_certified_only_where_that_is_asked_for():
    found = look("a b c", certified=True, max_illegal=24)
    assert found.order.pairs == ((0, 1),)
    assert len(found.failing) == 3
    assert len(found.judged) == 6
    alone = look("a b c")
    assert alone.order is None
    assert alone.exclusion is None
    assert alone.judged == found.judged


@pytest.mark.processes
def test_workers_judge_the_same():
    texts = [" ".join(order) for order in permutations("abcd")] + ["x", "a"]
    task = {"letters": "abcd"}
    for jobs in (1, 2):
        with CompletionJudge(Letters, jobs=jobs, max_judged=6, certified=False) as judge:
            for draw in (0, 7):
                judge.begin([task] * len(texts), texts, draw=draw)
                for text, found in zip(texts, judge.finish(), strict=True):
                    own = look(text, task=task, max_judged=6, draw=draw)
                    assert (found.judged, found.unjudged) == (own.judged, own.unjudged)


@pytest.mark.processes
def test_the_interface_judges_failures_too():
    found = vcrt.certify_completion(Letters, TASK, "b a c", max_judged=6)
    assert found.failure.endswith("b is too early or there")
    assert sum(solved for _, solved in found.judged) == 3
    assert vcrt.certify_completion(Letters, TASK, "b a c").judged == ()


def test_an_environment_that_fails_is_no_verdict():
    class Failing(Letters):
        def step(self, state, operation):
            if operation.payload == "c" and not state:
                raise OSError("the disk is full")
            return Accepted(state | {operation.payload})

    with pytest.raises(EnvironmentFailure, match="disk is full"):
        look("a b c", Failing)
