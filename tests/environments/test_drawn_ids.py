"""Ids that tools draw: each call draws its own, a log's are replaced, and nothing that differs becomes equal."""

from __future__ import annotations

import json
import os
import random
import secrets
import uuid
from os import urandom

import pytest

import vcrt
from vcrt.environments.drawn_ids import own_draws, own_ids, replaced
from vcrt.environments.mcp import _LONG_ID
from vcrt.errors import MalformedInputError

IDS = {"create": "id"}


class Calendar:
    def __init__(self, events=None):
        self.events = dict(events or {})

    def draw(self):
        return f"ev-{uuid.uuid4().hex[:8]}"

    def create(self, title):
        event = self.draw()
        self.events[event] = {"title": title, "guests": []}
        return {"id": event}

    def invite(self, event, guest):
        if event not in self.events:
            raise vcrt.CallRefused("no such event")
        self.events[event]["guests"].append(guest)
        return f"{guest} comes to {event}"

    def titles(self):
        return sorted(event["title"] for event in self.events.values())


class Late(Calendar):
    """Each event gets the id that the call before it drew: whose event has which id depends on the order."""

    def __init__(self, events=None):
        super().__init__(events)
        self.last = "ev-00000000"

    def draw(self):
        given, self.last = self.last, super().draw()
        return given


class Counting(Calendar):
    def draw(self):
        return f"ev-{1001 + len(self.events)}"


class Unseen(Calendar):
    def draw(self):
        return f"ev-{urandom(4).hex()}"


class Chance(Calendar):
    def draw(self):
        return f"ev-{secrets.token_hex(4)}{random.randrange(10**6):06}"


def log_of(path, *calls, initial=None):
    file = path / "log.jsonl"
    lines = [] if initial is None else [{"initial": initial}]
    for name, arguments, *output in calls:
        lines.append({"name": name, "arguments": arguments})
        if output:
            lines[-1]["output"] = output[0]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def scheduled(kind, file, ids=IDS):
    (found,) = vcrt.schedule(file, environment=vcrt.tools_environment(kind, ids=ids))
    return found


CALLS = [
    ("create", {"title": "standup"}, {"id": "ev-7f3a11aa"}),
    ("create", {"title": "lunch"}, {"id": "ev-0b1c22bb"}),
    ("invite", {"event": "ev-7f3a11aa", "guest": "ann"}, "ann comes to ev-7f3a11aa"),
    ("invite", {"event": "ev-0b1c22bb", "guest": "bob"}, "bob comes to ev-0b1c22bb"),
]


@pytest.mark.parametrize("kind", [Calendar, Chance])
def test_ids_of_the_log_are_those_that_replay_drew(kind, tmp_path):
    found = scheduled(kind, log_of(tmp_path, *CALLS))
    assert found.problem is None, found.problem
    assert not found.left_out
    assert found.schedule.waves == ((0, 1), (2, 3))
    assert [(e.first, e.second) for e in found.schedule.edges] == [(0, 2), (1, 3)]


def test_without_ids_the_log_is_of_another_environment(tmp_path):
    with pytest.raises(vcrt.VcrtError, match="random identifier"):
        scheduled(Calendar, log_of(tmp_path, *CALLS), ids=None)


@pytest.mark.parametrize("kind", [Late, Counting])
def test_ids_that_two_records_exchange_are_seen(kind, tmp_path):
    calls = [call[:2] for call in CALLS[:2]]
    found = scheduled(kind, log_of(tmp_path, *calls))
    assert found.schedule.waves == ((0,), (1,))


def test_a_call_made_again_draws_another_id(tmp_path):
    calls = [("create", {"title": "standup"})] * 2 + [("titles", {}, ["standup", "standup"])]
    found = scheduled(Calendar, log_of(tmp_path, *calls))
    assert found.problem is None, found.problem
    assert not found.left_out


def test_another_id_of_a_call_made_again_is_no_other_answer_in_one_state(tmp_path):
    calls = [("create", {"title": "standup"})] * 2 + [("titles", {})]
    environment = vcrt.tools_environment(Calendar, ids=IDS)
    assert vcrt.annotate([log_of(tmp_path, *calls)], environment=environment).num_disputed == 0


def test_a_certificate_is_replayed_with_the_same_ids(tmp_path):
    environment = vcrt.tools_environment(Calendar, ids=IDS, name="calendar")
    # Windows: the calls before one have drawn as they do in the whole trace.
    calls = [("create", {"title": "standup"})] * 2 + list(CALLS[1:2]) + list(CALLS[3:])
    log, output = log_of(tmp_path, *calls), tmp_path / "certified"
    lifted = vcrt.lift_log([log], environment=environment, window=2, output=output)
    assert not lifted.left_out
    turns = [
        operation.payload["turn"] for operation in lifted.traces[0].windows[1].episode.operations
    ]
    assert turns == [1, 0]
    assert vcrt.verify(output, environments={"calendar": environment}, jobs=1).agreed > 0


def test_another_difference_is_none_of_an_id(tmp_path):
    calls = [*CALLS[:2], ("titles", {}, ["lunch"])]
    found = scheduled(Calendar, log_of(tmp_path, *calls))
    (left,) = found.left_out
    assert left.departure.place == 2


def test_what_a_call_does_not_draw_from_python_is_no_verdict(tmp_path):
    with pytest.raises(vcrt.VcrtError, match="random identifier"):
        scheduled(Unseen, log_of(tmp_path, *CALLS))


class Raffle(Calendar):
    def winner(self, names):
        return random.choice(names)


def test_a_tool_that_is_not_named_still_may_not_draw(tmp_path):
    calls = [CALLS[0], ("winner", {"names": ["ann", "bob"]}), ("winner", {"names": ["cyd", "dan"]})]
    with pytest.raises(vcrt.VcrtError, match="random"):
        scheduled(Raffle, log_of(tmp_path, *calls))


@pytest.mark.parametrize(
    ("calls", "initial"),
    [
        ([("create", {"title": "a"}, {"id": 7}), CALLS[1]], None),
        ([("create", {"title": "a"}, {"id": "new"}), CALLS[1]], None),
        ([("create", {"title": "see ev-7f3a11aa"}, {"id": "ev-7f3a11aa"}), CALLS[1]], None),
        ([CALLS[0], ("create", {"title": "lunch"}, {"id": "ev-7f3a11aa"})], None),
        (CALLS, {"ev-7f3a11aa": {"title": "old", "guests": []}}),
    ],
)
def test_an_id_that_may_be_something_else_is_refused(calls, initial, tmp_path):
    with pytest.raises(MalformedInputError, match="may stand for something else"):
        scheduled(Calendar, log_of(tmp_path, *calls, initial=initial))


def test_an_id_of_replay_that_means_another_in_the_log_is_refused(tmp_path):
    # Counted from one later: the lunch's id in the log would be the standup's in replay.
    calls = [
        CALLS[0][:2],
        ("create", {"title": "standup 2"}, {"id": "ev-1001"}),
        ("create", {"title": "lunch"}),
        ("invite", {"event": "ev-1002", "guest": "bob"}),
    ]
    with pytest.raises(MalformedInputError, match="stands nowhere in the log"):
        scheduled(Counting, log_of(tmp_path, *calls))


def test_such_a_call_that_is_made_again_makes_another_record(tmp_path):
    calls = [*CALLS, ("titles", {}, ["lunch", "standup"])]
    environment = vcrt.tools_environment(Calendar, ids=IDS)
    (found,) = vcrt.retry(log_of(tmp_path, *calls), environment=environment)
    assert [each.answer for each in found.calls] == ["other state"] * 4 + ["safe"]
    # The second record has an id of its own, and is not written over the first.
    (place,) = [each for each in found.calls[0].difference if each.call is None]
    assert place.where == "state.events"
    assert '"ev-' in place.reverse
    assert place.forward.count('"title"') < place.reverse.count('"title"')


def test_numbers_follow_from_the_seed_and_those_of_the_process_go_on():
    def some():
        return uuid.uuid4(), os.urandom(40), secrets.token_hex(8), random.random()

    random.seed(5)
    expected = random.random()
    random.seed(5)
    with own_draws("a"):
        first = some()
    assert random.random() == expected
    with own_draws("a"):
        assert some() == first
    with own_draws("b"):
        assert not set(some()) & set(first)
    assert uuid.uuid4() != uuid.uuid4()
    assert os.urandom(8) != os.urandom(8)


def test_whole_words_are_replaced_and_one_id_is_one():
    text = "ev-1001 ev-10011 (ev-1001) xev-1001 ev-1001-note"
    assert replaced(text, {"ev-1001": "ev-9"}) == "ev-9 ev-10011 (ev-9) xev-1001 ev-9-note"
    # Exchanged in one step.
    assert replaced(["a1b2", "b2a1"], {"a1b2": "b2a1", "b2a1": "a1b2"}) == ["b2a1", "a1b2"]
    with pytest.raises(MalformedInputError, match="one id in replay for each id"):
        own_ids(["ev-1001", "ev-1002"], ["ev-2001", "ev-2001"], before=[], log=[], where="1")


@pytest.mark.parametrize("text", ["2026-02-01", "12:30:00", "1.10", "1001", "tea", "a b1c2", "x1"])
def test_what_is_no_id(text):
    for pair in ((text, "ev-2001"), ("ev-2001", text)):
        with pytest.raises(MalformedInputError, match="a text of letters and digits"):
            own_ids(*([each] for each in pair), before=[], log=[], where="1")


@pytest.mark.parametrize(
    ("letters", "length"),
    [("0123456789abcdef", 8), ("0123456789abcdefghijklmnopqrstuvwxyz", 8), ("0123456789", 12)],
)
def test_no_id_that_a_server_draws_is_refused_by_chance(letters, length):
    """Of eight hexadecimal digits, one in forty has no letter; of eight in base 36, one in fourteen no digit."""
    draw = random.Random(0)
    assert all(_LONG_ID.fullmatch("".join(draw.choices(letters, k=length))) for _ in range(1000))
    for text in ("7", "short", "two words", "1767225600.25", "a\nb-c-d-e-f"):
        assert not _LONG_ID.fullmatch(text)
