"""What a model wrote: read, judged, certified, and which of its orders are scored."""

from __future__ import annotations

import re
import time
from datetime import date
from functools import partial
from itertools import pairwise, permutations, product
from math import factorial, isclose

import numpy as np
import psutil
import pytest

import vcrt
from kitchen import (
    MIX,
    SOLUTION,
    TAKE_EGG,
    TAKE_MILK,
    TASK,
    FirstLineKitchen,
    ImpatientKitchen,
    Kitchen,
    ThoughtfulKitchen,
)
from letters import Letters
from vcrt.environments.contract import Accepted
from vcrt.environments.written import (
    WrittenEnvironment,
    WrittenStep,
    WrittenTrace,
    answer_span,
    read_call,
)
from vcrt.errors import EnvironmentFailure, MalformedInputError, VerifierFailure
from vcrt.partial_orders import PartialOrder, linear_extensions_up_to
from vcrt.processes.watching import WORKERS_MARK
from vcrt.randomness import generator
from vcrt.replay.completion_judge import CompletionJudge
from vcrt.replay.completions import (
    Looks,
    Segments,
    illegal_orders,
    look_again,
    look_first,
    orders_to_read,
    scored_orders,
    segments_of,
)


def judged(completion, environment=Kitchen, task=TASK, max_steps=16):
    """The judgement of a completion, in this process."""
    work = environment, task, completion
    first = look_first(work, looks := Looks(max_steps, max_illegal=24))
    return first.judgement if first.evidence is None else look_again((work, first), looks)


def texts_of(judgement, max_legal=24):
    """Texts of its legal and of its illegal orders."""
    found = scored_orders(judgement.order, max_legal=max_legal, draw=generator(0, "test"))
    illegal = illegal_orders(judgement.order, copies=judgement.copies, most=24)
    return tuple(
        [judgement.segments.text(order) for order in orders] for orders in (found.legal, illegal)
    )


def test_a_success_stands_for_all_certified_orders_of_its_own_text():
    judgement = judged(SOLUTION)
    assert judgement.success
    assert judgement.order.pairs == ((0, 2), (1, 2))
    legal, illegal = texts_of(judgement)
    assert legal == [SOLUTION, "\n".join([TAKE_MILK, TAKE_EGG, MIX])]
    assert len(illegal) == 4
    for text in legal:
        assert judged(text).success
    for text in illegal:
        assert not judged(text).success


def test_thoughts_move_with_the_step_that_they_lead_to_and_nothing_else_moves():
    text = (
        'Let me think.\nWhat do I need?\n<answer>\nFirst an egg.\n  take(item="egg")\n\n'
        f"Milk, too.\n{TAKE_MILK}\n{MIX}\nDone.</answer> Good."
    )
    judgement = judged(text, ThoughtfulKitchen)
    assert judgement.segments.moved == (
        'First an egg.\n  take(item="egg")',
        f"Milk, too.\n{TAKE_MILK}",
        MIX,
    )
    assert judgement.segments.text((0, 1, 2)) == text
    assert texts_of(judgement)[0][1] == (
        f"Let me think.\nWhat do I need?\n<answer>\nMilk, too.\n{TAKE_MILK}\n\nFirst an egg.\n"
        f'  take(item="egg")\n{MIX}\nDone.</answer> Good.'
    )


@pytest.mark.parametrize(
    ("completion", "reason"),
    [
        ("", "no line is a step"),
        ("I would take an egg.", "no line is a step"),
        (f"{TAKE_EGG}\n{MIX}", "no milk on the table"),
        (f"{TAKE_EGG}\n{TAKE_MILK}", "do not solve the task"),
        ('fry(item="egg")', "no tool 'fry'"),
        ('take(what="egg")', "do not fit"),
        (f"{TAKE_EGG}\n{SOLUTION}", "egg is there already"),
    ],
)
def test_a_failure_says_why_and_is_certified_for_nothing(completion, reason):
    judgement = judged(completion)
    assert not judgement.success
    assert reason in judgement.failure
    assert judgement.order is judgement.exclusion is None


@pytest.mark.parametrize(
    "text", [SOLUTION, f"<answer>{SOLUTION}", f"<answer>{SOLUTION}</answer>" * 2]
)
def test_an_answer_that_is_missing_or_there_twice_is_unreadable(text):
    judgement = judged(text, ThoughtfulKitchen)
    assert "times, not once" in judgement.failure


@pytest.mark.parametrize(
    ("completion", "task", "kind"),
    [
        ('take(item="egg")', None, "single_step"),
        ("\n".join(f'take(item="{i}")' for i in range(17)), None, "too_many_steps"),
        ("count()\ncount()\nflicker()", None, "nondeterministic"),
    ],
)
def test_a_success_that_certifies_nothing_stands_for_itself(completion, task, kind):
    judgement = judged(completion, task=task)
    assert judgement.success
    assert judgement.exclusion == kind
    assert judgement.order is None


def test_a_reading_that_depends_on_places_certifies_nothing():
    judgement = judged(f"{TAKE_EGG}\n{TAKE_MILK}", FirstLineKitchen, task=None)
    assert judgement.exclusion == "reading"


class Merging(Letters):
    """One that reads an a before a b as a single step."""

    def step(self, state, operation):
        return Accepted(state | {operation.payload})

    def parse(self, task, completion):
        found = re.finditer(r"ab|[a-e]", completion)
        steps = tuple(WrittenStep(*each.span(), each[0]) for each in found)
        return WrittenTrace(initial=None, steps=steps)


@pytest.mark.parametrize("text", ["acb", "acdeb", "acdbe"])
def test_steps_that_merge_beside_each_other_certify_nothing(text):
    """Neither as written nor the other way round do they stand side by side."""
    judgement = judged(text, Merging, {"letters": sorted(set(text))})
    assert judgement.success
    assert judgement.exclusion == "reading"


@pytest.mark.parametrize("number", [2, 3, 4, 5, 6, 7, 8, 15, 16])
def test_reading_is_tried_at_every_place_and_beside_every_step(number):
    orders = orders_to_read(number)
    assert all(sorted(order) == list(range(number)) for order in orders)
    assert {each for order in orders for each in enumerate(order)} == set(
        product(range(number), repeat=2)
    )
    assert {each for order in orders for each in pairwise(order)} == set(
        permutations(range(number), 2)
    )


class Counter(Kitchen):
    """A kitchen that gives numbers out."""

    def reset(self, task):
        return {"next": 0, "taken": []}

    def call(self, state, name, arguments):
        if name == "number":
            state["next"] += 1
        if name in ("number", "look"):
            return state["next"]
        state["taken"] = sorted([*state["taken"], arguments["item"]])
        return None

    def solved(self, task, state):
        return True


def test_orders_that_only_tell_copies_apart_are_not_illegal():
    """Legal beyond the block, and legal as it is read again, whose thoughts alone are others."""
    takes = [f'take(item="{each}")' for each in "abc"]
    judgement = judged("\n".join(["number()", *takes, "number()"]), Counter)
    assert (0, 4) in judgement.order.pairs
    assert texts_of(judgement)[1] == []
    judgement = judged("One.\nnumber()\nTwo.\nnumber()", Counter)
    assert judgement.order.pairs == ((0, 1),)
    assert texts_of(judgement)[1] == []
    judgement = judged(f"number()\n{TAKE_EGG}\nAgain.\nnumber()\nlook()", Counter)
    assert judgement.copies == (0, 1, 0, 3)
    assert texts_of(judgement)[1]
    assert not any(
        text.rindex("number()") < text.index("look()") for text in texts_of(judgement)[1]
    )


class Notes(WrittenEnvironment):
    """Notes are kept in the order in which they come; the task is to have them all, the first before the last."""

    name = "notes"

    def reset(self, task):
        return []

    def call(self, state, name, arguments):
        state.append(arguments["item"])

    def solved(self, task, state):
        return set(state) == set(task) and state.index(task[0]) < state.index(task[-1])


def test_an_illegal_order_is_failing_only_if_it_does_not_solve_the_task():
    judgement = judged("\n".join(f'note(item="{each}")' for each in "abc"), Notes, ["a", "b", "c"])
    # Each order leaves other notes, so none but the written one is certified.
    assert set(judgement.order.pairs) >= {(0, 1), (1, 2)}
    assert set(judgement.failing) == {(1, 2, 0), (2, 0, 1), (2, 1, 0)}
    assert judgement.other_solutions == 2
    for each in judgement.failing:
        assert not judged(judgement.segments.text(each), Notes, ["a", "b", "c"]).success


class Halves(Notes):
    """One that gives shares, as reward functions do."""

    def solved(self, task, state):
        return len(state) / 3


class Worded(Notes):
    """One that gives no answer."""

    def solved(self, task, state):
        pass


@pytest.mark.parametrize(("kind", "found"), [(Halves, "0.333"), (Worded, "None")])
def test_an_answer_that_is_neither_yes_nor_no_is_no_reward(kind, found):
    with CompletionJudge(kind) as judge:
        judge.begin([["a"]], ['note(item="a")'])
        with pytest.raises(EnvironmentFailure, match=f"(?s)question whether it is solved.*{found}"):
            judge.finish()


@pytest.mark.parametrize("step", [(0, 4, {}, 7), (0.0, 4, {}, None), ("0", 4, {}, None)])
def test_a_step_that_is_none_is_named(step):
    class Odd(Notes):
        def parse(self, task, completion):
            return WrittenTrace(initial={"state": task}, steps=(WrittenStep(*step),))

    with CompletionJudge(Odd) as judge:
        judge.begin([["a"]], ["odd!"])
        with pytest.raises(EnvironmentFailure, match=r"(?s)reading of 'odd!'.*WrittenStep"):
            judge.finish()


class Stocked(Notes):
    """One that is made with something, and says how many of it there are in its process."""

    made = 0

    def __init__(self, stock):
        type(self).made += 1
        self.stock = stock

    def call(self, state, name, arguments):
        state.append(type(self).made)

    def solved(self, task, state):
        return state == [1] * len(state)


@pytest.mark.processes
@pytest.mark.parametrize("factory", [partial(Stocked, "flour"), lambda: Stocked("flour")])
def test_an_environment_that_a_function_makes_is_made_once_in_a_process(factory):
    with CompletionJudge(factory) as judge:
        for turn in range(3):
            judge.begin([turn] * 4, [f"note({key}=1)" for key in "abcd"])
            assert all(one.success for one in judge.finish())


class Sharing(Kitchen):
    """One whose state is the task itself."""

    def reset(self, task):
        return task

    def call(self, state, name, arguments):
        state["table"].append(arguments["item"])

    def solved(self, task, state):
        return True


def test_an_environment_may_take_its_task_for_its_state():
    task = {"table": []}
    judgement = judged(f"{TAKE_EGG}\n{TAKE_MILK}", Sharing, task)
    assert judgement.order.pairs == ((0, 1),)
    assert task == {"table": []}


def test_repeated_steps_are_numbered_and_what_looks_is_a_step():
    judgement = judged(f"count()\n{TAKE_EGG}\ncount()", task=None)
    assert judgement.order.pairs == ((0, 1), (0, 2), (1, 2))


def test_steps_of_five_hundred_tokens_and_sixty_four_of_them_are_read():
    long = "\n".join(f'take(item="{str(i) * 900}")' for i in range(3))
    assert judged(long, task=None).order.pairs == ()
    many = "\n".join(f'take(item="{i}")' for i in range(64))
    judgement = judged(many, task=None, max_steps=8)
    assert (judgement.num_steps, judgement.exclusion) == (64, "too_many_steps")
    judgement = judged(f'{many}\ntake(item="64")', task=None, max_steps=100)
    assert (judgement.num_steps, judgement.exclusion) == (65, "too_many_steps")


def test_an_environment_that_gives_no_spans_in_order_is_named():
    class Overlapping(Kitchen):
        def parse(self, task, completion):
            trace = super().parse(task, completion)
            return type(trace)(initial=trace.initial, steps=trace.steps[::-1])

    with pytest.raises(MalformedInputError, match="do not follow each other"):
        judged(SOLUTION, Overlapping)
    with pytest.raises(MalformedInputError, match="does not read what a model writes"):
        judged(SOLUTION, lambda: vcrt.load_environment("clrs"))


@pytest.mark.parametrize(
    ("line", "call"),
    [
        ("a()", ("a", {})),
        ('  a(x=1, y=[1, {"b": "(,=)"}]) ', ("a", {"x": 1, "y": [1, {"b": "(,=)"}]})),
        ("a(x=1, x=2)", None),
        ("a(1)", None),
        ("a(x=1 y=2)", None),
        ("a(x=)", None),
        ("a(x=1) b", None),
        ("then a(x=1)", None),
        # What JSON in UTF-8 cannot hold, or Python cannot copy.
        ("a(x=NaN)", None),
        ("a(x=[-Infinity, 1e999])", None),
        ('a(x="\\ud800")', None),
        ('a(x={"\\udfff": 1})', None),
        (f"a(x={'[' * 900}{']' * 900})", None),
        (f"a(x={'[' * 65}{']' * 65})", None),
        ("a(x=[[[[1]]]])", ("a", {"x": [[[[1]]]]})),
    ],
)
def test_lines_are_read_as_calls(line, call):
    assert read_call(line) == call


def test_markers_in_the_wrong_order_are_refused():
    with pytest.raises(vcrt.UnreadableCompletion, match="before"):
        answer_span("</a> <a>", ("<a>", "</a>"))


# What is scored.


def posets(count, number, seed):
    draw = generator(seed, "posets")
    for _ in range(count):
        pairs = [(a, b) for a in range(number) for b in range(a + 1, number) if draw.random() < 0.3]
        yield PartialOrder.of(number, pairs)


@pytest.mark.parametrize("number", [2, 3, 4, 5, 6])
def test_extensions_are_those_that_permutations_give(number):
    for order in posets(5, number, number):
        expected = [p for p in permutations(range(number)) if order.allows(p)]
        assert linear_extensions_up_to(order, len(expected)) == expected
        assert linear_extensions_up_to(order, len(expected) - 1) is None


@pytest.mark.parametrize("number", [3, 4, 5, 6])
def test_legal_and_illegal_orders_are_what_they_say(number):
    for order in posets(8, number, number):
        found = scored_orders(order, max_legal=6, draw=generator(0, "a"))
        written = tuple(range(number))
        assert found.legal[0] == written
        assert len(set(found.legal)) == len(found.legal) <= 6
        assert all(order.allows(each) for each in found.legal)
        extensions = [p for p in permutations(range(number)) if order.allows(p)]
        assert found.whole_orbit == (len(extensions) <= 6)
        others = factorial(number) - len(extensions)
        for most in (0, 1, 5, 24, 200):
            illegal = illegal_orders(order, most=most)
            assert len(set(illegal)) == len(illegal) <= most
            assert not any(order.allows(each) for each in illegal)
            if others <= most:
                assert len(illegal) == others
                continue
            assert bool(illegal) == (most > 0)
            for each in illegal:
                # Legal but for one pair of neighbours.
                swapped = [
                    (*each[:k], each[k + 1], each[k], *each[k + 2 :]) for k in range(number - 1)
                ]
                assert any(order.allows(other) for other in swapped)


def renamed(order, by):
    """The partial order of steps that are numbered as ``by`` has them: number k is step ``by[k]``."""
    place = {step: number for number, step in enumerate(by)}
    pairs = [(place[a], place[b]) for a, b in order.pairs]
    return PartialOrder.of(order.num_operations, pairs)


@pytest.mark.parametrize("max_legal", [1, 2, 6])
def test_the_ratio_of_a_block_is_unbiased_for_that_of_the_orbit(max_legal):
    """Exactly, over all texts that the behaviour policy may have drawn from the orbit, for every place of a window."""
    (order,) = posets(1, 5, 3)
    orbit = [p for p in permutations(range(5)) if order.allows(p)]
    assert len(orbit) > 6
    draw = np.random.default_rng(0)
    old = dict(zip(orbit, draw.dirichlet(np.ones(len(orbit))) * 0.3, strict=True))
    new = dict(zip(orbit, draw.dirichlet(np.ones(len(orbit))) * 0.2, strict=True))
    places = set()
    for seed in range(6):
        mean = 0.0
        for written in orbit:
            found = scored_orders(
                renamed(order, written),
                max_legal=max_legal,
                draw=generator(seed, "window"),
            )
            block = [tuple(written[number] for number in each) for each in found.legal]
            places.add(tuple(sorted(block)))
            share = sum(new[each] for each in block) / sum(old[each] for each in block)
            mean += old[written] / sum(old.values()) * share
        assert isclose(mean, sum(new.values()) / sum(old.values()), rel_tol=1e-12)
    assert len(places) >= len(orbit) / max_legal


# Workers.


def test_workers_give_what_one_process_gives_and_equal_completions_are_judged_once():
    completions = [SOLUTION, "nothing", SOLUTION, f"{TAKE_MILK}\n{TAKE_EGG}\n{MIX}"]
    with CompletionJudge(Kitchen, jobs=2) as judge:
        judge.begin([TASK] * 4, completions)
        found = judge.finish()
        again = judge.finish()
    assert found == again
    assert found[0] is found[2]
    for judgement, completion in zip(found, completions, strict=True):
        expected = judged(completion)
        for name in ("failure", "num_steps", "segments", "order", "exclusion"):
            assert getattr(judgement, name) == getattr(expected, name)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("line", "environment", "words"),
    [("die()", Kitchen, "died twice"), ("stall()", ImpatientKitchen, "ran over its time limit")],
)
def test_an_environment_that_breaks_is_an_error_and_never_a_verdict(line, environment, words):
    with CompletionJudge(environment) as judge:
        judge.begin([None, TASK], [line, SOLUTION])
        with pytest.raises(VerifierFailure, match=words):
            judge.finish()
        # The next completions are judged as if nothing had happened.
        judge.begin([TASK], [SOLUTION])
        assert judge.finish()[0].order is not None


def workers():
    return [
        each
        for each in psutil.Process().children(recursive=True)
        if WORKERS_MARK in each.environ() and "resource_tracker" not in " ".join(each.cmdline())
    ]


@pytest.mark.processes
def test_workers_that_are_killed_while_idle_are_replaced():
    with CompletionJudge(Kitchen) as judge:
        judge.begin([TASK], [SOLUTION])
        assert judge.finish()[0].success
        for each in (killed := workers()):
            each.kill()
        psutil.wait_procs(killed)
        assert killed
        time.sleep(1.0)  # until their pool has seen it
        judge.begin([TASK] * 2, [SOLUTION, "nothing"])
        assert [each.success for each in judge.finish()] == [True, False]


def test_what_is_handed_out_in_place_of_other_work_is_judged(caplog):
    with CompletionJudge(Kitchen) as judge:
        judge.begin([TASK], ["nothing"])
        judge.finish()
        judge.begin([TASK] * 30, [f"{SOLUTION}\n{number}" for number in range(30)])
        judge.begin([TASK] * 2, [SOLUTION, "nothing"])
        assert [each.order is not None for each in judge.finish()] == [True, False]
        judge.begin([TASK], [SOLUTION])
        judge.end()
        assert judge.finish()[0].order is not None
    assert caplog.records == []


class Broken(Kitchen):
    """One whose own code is wrong."""

    def call(self, state, name, arguments):
        raise KeyError(name)


def test_an_environments_own_error_is_named():
    with CompletionJudge(Broken) as judge:
        judge.begin([TASK], [SOLUTION])
        with pytest.raises(EnvironmentFailure, match="KeyError"):
            judge.finish()


def test_segments_hold_the_whole_text():
    class Odd(WrittenEnvironment):
        name = "odd"

        def reset(self, task):
            return []

        def call(self, state, name, arguments):
            state.append(name)

    text = "\n\n a()\n\t\nb()  \n tail"
    segments = segments_of(Odd().parse(None, text), text)
    assert segments == Segments(fixed=("\n\n ", "\n\t\n", "  \n tail"), moved=("a()", "b()"))
    assert segments.text((0, 1)) == text


class Forgetful(Kitchen):
    """One that keeps what matters outside of the state, and says that no call sees it."""

    ignored = frozenset({"first"})

    def reset(self, task):
        self.first = None
        return super().reset(task)

    def call(self, state, name, arguments):
        self.first = self.first or arguments.get("item")
        return super().call(state, name, arguments)

    def solved(self, task, state):
        return self.first == "egg"


def test_a_certified_order_that_fails_by_itself_certifies_nothing():
    judgement = judged(f"{TAKE_EGG}\n{TAKE_MILK}", Forgetful, task=None)
    assert judgement.success
    assert judgement.exclusion == "contradicted"
    assert "do not solve the task" in judgement.detail


class Silent(Kitchen):
    """One that reads no steps and says nothing of it."""

    def parse(self, task, completion):
        trace = super().parse(task, completion)
        return type(trace)(initial=trace.initial, steps=())


def test_no_steps_are_a_failure_whoever_reads_them():
    assert judged(TAKE_EGG, Silent, task=None).failure == "unreadable: no steps"


@pytest.mark.parametrize(
    "line",
    ["take(item='egg')", 'take("egg")', 'take(item="egg"', f"- {TAKE_EGG}", f"{TAKE_EGG} # so"],
)
def test_a_line_that_is_nearly_a_step_is_unreadable(line):
    assert "no step" in judged(f"{SOLUTION}\n{line}").failure


def test_free_text_with_brackets_is_free_text():
    assert judged(f"Now (first) the egg:\n{SOLUTION}").order is not None


def test_an_answer_may_go_up_to_the_end():
    text = "<think>take(</think>\ngo"
    assert text[slice(*answer_span(text, ("</think>", None)))] == "\ngo"
    assert text[slice(*answer_span(text, (None, "</think>")))] == "<think>take("


def test_certificates_of_more_steps_than_are_replayed_completely_say_so():
    many = "\n".join(f'take(item="{i}")' for i in range(11))
    judgement = judged(many, task=None)
    assert (judgement.complete, judgement.order.pairs) == (False, ())
    with CompletionJudge(Kitchen) as judge:
        judge.begin([None], [many])
        assert judge.finish()[0].exclusion == "too_many_steps"


@pytest.mark.parametrize("task", [{"when": date(2026, 1, 1)}, {"x": float("nan")}, b"x"])
def test_a_task_that_json_does_not_hold_is_named(task):
    with CompletionJudge(Kitchen) as judge, pytest.raises(MalformedInputError, match="cannot hold"):
        judge.begin([task], [SOLUTION])
