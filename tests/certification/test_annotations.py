"""Annotations of tools: what is counted is what an independent run of the same calls gives, each case once."""

from __future__ import annotations

import copy
import json
from collections import Counter
from dataclasses import replace
from itertools import permutations

import pytest

from cells import ENVIRONMENT as CELLS
from cells import episode as cells_episode
from file_store import TOOLS, Files, run, sampled
from vcrt import CallRefused
from vcrt.calls.annotations import AfterRefusals, Evidence
from vcrt.calls.proportions import Proportion
from vcrt.calls.retries import after_refusals
from vcrt.certificates.replay_tree import Reached, ReplayTree
from vcrt.environments.tool_calls import Call, Tool, episode_of_calls, operations_of
from vcrt.replay.lattice_replay import replay_lattices
from vcrt.replay.shards import replays_of
from vcrt.words.annotation_words import annotation_document, declared_lines, summary_lines

NUM_EPISODES = 80


def evidence_of(episodes):
    found = Evidence()
    for replays in replays_of(Files(), episodes):
        left = after_refusals(Files(), replays)
        found.add(replays.episode, replays.tree, after_refusals=left)
    return found


def annotated(episodes, *, risk=0.1):
    return evidence_of(episodes).annotations("files", Files().tools(), risk=risk)


@pytest.fixture(scope="module")
def episodes():
    return [sampled(seed) for seed in range(NUM_EPISODES)]


@pytest.fixture(scope="module")
def found(episodes):
    return annotated(episodes)


def tool(annotations, name):
    (one,) = (tool for tool in annotations.tools if tool.name == name)
    return one


def pair(annotations, *names):
    (one,) = (pair for pair in annotations.pairs if pair.tools == tuple(sorted(names)))
    return one


def text(value):
    return json.dumps(value, sort_keys=True)


def answer(state, call):
    """The state after a call and its output; None if it is refused."""
    after = copy.deepcopy(state)
    try:
        return after, run(after, call["name"], call["arguments"])
    except CallRefused:
        return None


def by_hand(episodes):
    """Calls in states and pairs of calls in states, from all orders of each episode, with what they show."""
    calls, pairs = {}, {}
    for episode in episodes:
        payloads = [operation.payload for operation in episode.operations]
        states = {}
        for order in permutations(range(len(payloads))):
            state = dict(episode.initial["state"])
            for length, operation in enumerate(order):
                states[frozenset(order[:length]), text(state)] = state
                reached = answer(state, payloads[operation])
                if reached is None:
                    break
                state = reached[0]
        for (done, name), state in states.items():
            left = [k for k in range(len(payloads)) if k not in done]
            for k in left:
                calls[name, text(payloads[k])] = answer(state, payloads[k])
            for j in left:
                for k in left:
                    if j < k:
                        one, other = sorted((payloads[j], payloads[k]), key=text)
                        pairs[name, text(one), text(other)] = verdict(state, one, other)
    return calls, pairs


def verdict(state, one, other):
    ends = []
    for first, second in ((one, other), (other, one)):
        reached = answer(state, first)
        again = None if reached is None else answer(reached[0], second)
        ends.append(None if again is None else (again[0], reached[1], again[1]))
    forward, reverse = ends
    if forward is None or reverse is None:
        if forward is not reverse:
            return "precedes"
        alone = [answer(state, call) is not None for call in (one, other)]
        return "excludes" if all(alone) and text(one) != text(other) else "vacuous"
    if forward[0] != reverse[0]:
        return "conflicts"
    return "diamond" if forward[1:] == (reverse[2], reverse[1]) else "observes"


def test_counts_are_those_of_the_same_calls_run_by_hand(episodes, found):
    calls, pairs = by_hand(episodes)
    for name in TOOLS:
        own = {key: value for key, value in calls.items() if json.loads(key[1])["name"] == name}
        accepted = [(key[0], value[0]) for key, value in own.items() if value is not None]
        changed = sum(text(after) != before for before, after in accepted)
        assert tool(found, name).changed == Proportion(changed, len(accepted))
        assert tool(found, name).refused == Proportion(len(own) - len(accepted), len(own))
    by_tools: dict[tuple[str, str], Counter[str]] = {}
    for (_, one, other), shown in pairs.items():
        names = tuple(sorted(json.loads(call)["name"] for call in (one, other)))
        by_tools.setdefault(names, Counter())[shown] += 1
    assert {pair.tools: Counter(pair.verdicts) for pair in found.pairs} == by_tools


def test_what_was_seen_twice_counts_once(episodes, found):
    again = [
        replace(
            episode,
            provenance=replace(
                episode.provenance, source=f"copy of {episode.provenance.source}", seed=1_000 + n
            ),
        )
        for n, episode in enumerate(episodes)
    ]
    twice = annotated([*episodes, *again])
    assert [replace(t, num_sources=0) for t in twice.tools] == [
        replace(t, num_sources=0) for t in found.tools
    ]
    assert [replace(pair, num_sources=0, tested=None) for pair in twice.pairs] == [
        replace(pair, num_sources=0, tested=None) for pair in found.pairs
    ]
    assert twice.num_episodes == 2 * NUM_EPISODES


def test_the_conditions_are_those_that_are_known(found):
    by_path = [name for name in TOOLS if name != "list"]
    for place, one in enumerate(by_path):
        for other in by_path[place:]:
            condition = pair(found, one, other).condition
            # Two reads commute always; a file that both delete is refused to the second in both orders.
            always = one == other in ("read", "delete")
            expected = ["always"] if always else ["a.path != b.path"]
            if one == other in ("write", "append"):
                # Two calls that are alike commute, too.
                expected.append("a.path != b.path or a.text = b.text")
            assert condition.text in expected, (one, other)
    for name in ("write", "append", "delete"):
        pairs = pair(found, "list", name)
        on = "a" if pairs.tools[0] == "list" else "b"
        other = "b" if on == "a" else "a"
        # A write into a folder is not seen if the file was there.
        assert f"{on}.folder is no path prefix of {other}.path" in pairs.condition.text
    assert found.num_disputed == 0
    assert found.tested.right.total > 300
    assert found.tested.right.count / found.tested.right.total > 0.98
    assert found.tested.commuted.count / found.tested.commuted.total < 0.9


def test_hints_say_what_the_evidence_bears(found):
    assert tool(found, "read").hints(0.1) == {"readOnlyHint": True, "destructiveHint": False}
    assert tool(found, "read").hints(1e-6) == {}
    assert tool(found, "append").hints(0.1) == {"readOnlyHint": False, "idempotentHint": False}
    write = tool(found, "write")
    assert (write.changed_again.count, write.same_output) == (
        0,
        Proportion(write.changed_again.total, write.changed_again.total),
    )
    assert write.changed_again.total > 3
    assert write.hints(0.1).get("idempotentHint") is (
        True if write.changed_again.bound <= 0.1 else None
    )
    assert write.hints(1.0) == {"readOnlyHint": False, "idempotentHint": True}
    delete = tool(found, "delete")
    assert delete.refused_again > 0
    assert delete.changed_again.total == 0
    assert delete.hints(0.1) == {"readOnlyHint": False}


def test_declared_hints_are_compared(found):
    standing = {(hint.tool, hint.hint): hint.standing for hint in found.declared}
    assert standing == {
        ("append", "readOnlyHint"): "not contradicted",
        ("append", "idempotentHint"): "contradicted",
        ("list", "readOnlyHint"): "unsupported",
        ("read", "readOnlyHint"): "not contradicted",
        ("read", "idempotentHint"): "not tested",
        ("write", "readOnlyHint"): "contradicted",
        ("write", "idempotentHint"): "not contradicted",
    }
    lines = "\n".join(declared_lines(found))
    assert "write: readOnlyHint true is contradicted: changed the state in" in lines
    assert "list: readOnlyHint false is not contradicted, but it never changed the state" in lines
    assert (
        "7 declared hints: 2 contradicted, 3 not contradicted, 1 not tested, 1 unsupported" in lines
    )


def test_witnesses_show_what_they_are_for(episodes, found):
    by_id = {episode.episode_id: episode for episode in episodes}
    witness = tool(found, "write").change
    episode, state = by_id[witness.episode_id], None
    state = dict(episode.initial["state"])
    for operation in witness.context:
        state, _ = answer(state, episode.operations[operation].payload)
    (operation,) = witness.operations
    assert episode.operations[operation].signature == witness.calls[0]
    assert answer(state, episode.operations[operation].payload)[0] != state
    against = pair(found, "write", "read").against
    assert len(against.operations) == 2


def test_the_order_of_episodes_says_nothing(episodes, found):
    def counted(annotations):
        document = annotation_document(annotations)
        for one in (*document["tools"], *document["pairs"], *document["declared"]):
            for name in ("witness", "against"):
                one.pop(name, None)
            for name in ("change", "second_change"):
                one.get("_meta", {"vcrt": {}})["vcrt"].pop(name, None)
        return document

    assert counted(annotated(episodes[::-1])) == counted(found)
    assert annotation_document(annotated(episodes)) == annotation_document(found)


def test_the_document_is_json_in_the_form_of_mcp(found):
    document = json.loads(json.dumps(annotation_document(found)))
    (listed,) = (one for one in document["tools"] if one["name"] == "list")
    assert listed["annotations"] == {"readOnlyHint": True, "destructiveHint": False}
    assert listed["_meta"]["vcrt"]["changed"]["count"] == 0
    (files,) = (one for one in document["pairs"] if (one["a"], one["b"]) == ("read", "write"))
    assert files["condition"]["text"] == "a.path != b.path"
    assert files["tested"]["right"]["total"] >= files["tested"]["right"]["count"] > 0
    assert document["conditions"]["right"]["count"] == found.tested.right.count


def test_replays_that_contradict_each_other_are_left_out(episodes):
    evidence = Evidence()
    (replays,) = replays_of(Files(), episodes[:1])
    evidence.add(replays.episode, replace(replays.tree, contradiction="two answers"))
    answers = dict(replays.tree.answers)
    last = max(answers, key=len)
    answers[last] = Reached("0" * 64, None, output='"other"')
    evidence.add(replays.episode, ReplayTree.of(replays.tree.num_operations, answers))
    assert evidence.left_out == {"nondeterministic": 1, "unequal_futures": 1}
    assert not evidence.answers


def test_states_of_one_hash_that_are_not_equal_are_told(episodes):
    evidence = Evidence()
    (replays,) = replays_of(Files(), episodes[:1])
    evidence.add(replays.episode, replays.tree)
    answers = {
        sequence: replace(reached, output="odd") if reached.output else reached
        for sequence, reached in replays.tree.answers.items()
    }
    evidence.add(replays.episode, ReplayTree.of(replays.tree.num_operations, answers))
    found = evidence.annotations("files", (), risk=0.1)
    assert found.num_disputed > 0
    assert "no count here can be relied on" in "\n".join(summary_lines(found))


def test_steps_that_are_no_calls_are_refused():
    made = cells_episode([["get", 0, 1], ["set", 0, 2]])
    (replays,) = replay_lattices(CELLS, [made])
    with pytest.raises(ValueError, match="the environment's steps are no calls"):
        Evidence().add(made, replays.tree)


def test_a_refusal_of_the_trace_itself_is_a_refusal():
    calls = [
        Call("delete", {"path": "a"}),
        Call("delete", {"path": "a"}),
        Call("list", {"folder": "a"}),
    ]
    provenance = replace(sampled(0).provenance, source="log")
    operations = operations_of(calls, fails=[1])
    made = episode_of_calls("files", "calls", {"a": "text"}, operations, provenance)
    found = annotated([made])
    # Accepted where the file is there, refused where it is not.
    assert tool(found, "delete").refused == Proportion(1, 2)
    assert tool(found, "delete").changed == Proportion(1, 1)
    assert tool(found, "delete").refused_again == 1
    assert "conditions were not tested" in "\n".join(summary_lines(found))


def test_without_hints_or_pairs_it_says_so():
    made = episode_of_calls(
        "files",
        "calls",
        {},
        operations_of([Call("read", {"path": p}) for p in "ab"]),
        sampled(0).provenance,
    )
    evidence = evidence_of([made])
    found = evidence.annotations("files", [Tool(name="read")], risk=0.1, undeclared=None)
    assert found.pairs[0].commuted == Proportion(0, 0)
    assert "nothing is known of pairs" in "\n".join(summary_lines(found))
    assert declared_lines(found) == [
        "no hint on these tools is declared that replay could contradict"
    ]


def test_refusals_that_were_not_all_made_again_are_no_error_and_count_as_cut(episodes):
    whole, part = Evidence(), Evidence()
    for replays in replays_of(Files(), episodes):
        left = after_refusals(Files(), replays)
        assert left.complete
        whole.add(replays.episode, replays.tree, after_refusals=left)
        none = after_refusals(Files(), replays, within=0)
        assert (dict(none.calls), none.complete) == ({}, not left.calls)
        # As if each refused call had changed the state, and only the first been made.
        first = dict.fromkeys(left.calls, ("f" * 64, None))
        some = AfterRefusals(calls=first, pairs={}, complete=False)
        part.add(replays.episode, replays.tree, after_refusals=some)
    one, other = (each.annotations("files", (), risk=0.1) for each in (whole, part))
    assert len(other.cut) == other.num_sources
    assert not one.cut
    assert tool(one, "delete").changed.count < tool(other, "delete").changed.count
