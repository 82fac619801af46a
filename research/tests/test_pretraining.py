from collections import Counter
from statistics import mean

import numpy as np
import pytest
import torch

from vcrt.records.policy_view import ANSWER, POINTER_TOKENS, RELATION_TOKENS
from vcrt_research.backbone_card import one_anti_diamond_record
from vcrt_research.pretraining import pretrain
from vcrt_research.pretraining_data import (
    OPERATION_COUNT_SHARES,
    draw_operation_count,
    order_example,
    printed_statements,
    question_example,
    random_batch,
    random_record,
)
from vcrt_train.policy.backbone import load_backbone_directory
from vcrt_train.policy.tokenizer import QUESTION
from vcrt_train.randomness import generator

SERIALISATIONS = ("sorted", "shuffled")


def records(num_operations, count, name):
    draw = generator(7, name)
    return [random_record(draw, num_operations) for _ in range(count)], draw


def answers_of(example):
    """The words that stand before and in each run of answers."""
    runs, asked = [], 0
    for position, is_answer in enumerate(example.is_answer):
        if is_answer and not example.is_answer[position - 1]:
            asked = position
        ends = position + 1 == len(example.words) or not example.is_answer[position + 1]
        if is_answer and ends:
            runs.append((example.words[:asked], example.words[asked : position + 1]))
    return runs


def assert_half(outcomes):
    """A fair coin: within four standard deviations."""
    assert len(outcomes) > 1000
    assert abs(mean(outcomes) - 0.5) < 4 * 0.5 / len(outcomes) ** 0.5


@pytest.mark.parametrize("serialisation", SERIALISATIONS)
@pytest.mark.parametrize("num_operations", [2, 4, 6])
def test_completions_are_independent_of_every_kind_of_relation(serialisation, num_operations):
    drawn, draw = records(num_operations, 6000, f"independence {num_operations}")
    # What is printed alike is one kind here.
    respected = {kind: [] for kind in RELATION_TOKENS if kind != "observes"}
    by_pointer = []
    for record in drawn:
        example = order_example(record, serialisation, draw)
        order = example.words[example.words.index(ANSWER) + 1 :]
        assert sorted(order) == [POINTER_TOKENS[p] for p in record.pointers]
        by_pointer.append(order.index(POINTER_TOKENS[record.pointers[0]]) < num_operations / 2)
        if record.relations:
            # One relation a record, so that outcomes are independent.
            relation = record.relations[draw.integers(len(record.relations))]
            first, second = (
                POINTER_TOKENS[record.pointers[s]] for s in (relation.first, relation.second)
            )
            respected[relation.kind].append(order.index(first) < order.index(second))
    for outcomes in respected.values():
        assert_half(outcomes)
    assert_half(by_pointer)


@pytest.mark.parametrize("serialisation", SERIALISATIONS)
def test_every_order_is_as_probable_whatever_the_record_says(serialisation):
    draw = generator(3, "uniform", serialisation)
    counts = Counter()
    for _ in range(6000):
        record, _ = one_anti_diamond_record("precedes", draw)
        words = order_example(record, serialisation, draw).words
        slots = {POINTER_TOKENS[p]: slot for slot, p in enumerate(record.pointers)}
        counts[tuple(slots[word] for word in words[words.index(ANSWER) + 1 :])] += 1
    assert len(counts) == 24
    # Chi-squared with 23 degrees of freedom exceeds 59 with probability 5e-5.
    assert sum((count - 250) ** 2 / 250 for count in counts.values()) < 59


@pytest.mark.parametrize("serialisation", SERIALISATIONS)
def test_answers_are_read_off_the_record_and_pairs_name_no_direction(serialisation):
    drawn, draw = records(4, 3000, "questions")
    named_first = []
    for record in drawn:
        if not record.relations:
            continue
        example = question_example(record, serialisation, draw)
        statements = printed_statements(example.words[: example.words.index(QUESTION)])
        relations = Counter(relation for _, relation, _ in statements)
        for context, answer in answers_of(example):
            if len(answer) == 1:
                assert (context[-2], answer[0], context[-1]) in statements
                assert context[-3] == QUESTION
            else:
                assert context[-2] == QUESTION
                assert relations[context[-1]] == 1
                matches = [s for s in statements if s[1] == context[-1]]
                assert sorted(answer) == sorted(matches[0][0::2])
                named_first.append(answer[0] == matches[0][0])
    # Questions about one statement may repeat within a record; their answers are drawn afresh.
    assert_half(named_first)


def test_the_record_printed_in_an_example_is_the_record():
    drawn, draw = records(5, 200, "faithful")
    for record in drawn:
        words = order_example(record, "sorted", draw).words
        tokens = {POINTER_TOKENS[p]: slot for slot, p in enumerate(record.pointers)}
        found = set()
        for left, relation, right in printed_statements(words[: words.index(ANSWER) + 1]):
            kind = next(k for k, (forward, _) in RELATION_TOKENS.items() if forward == relation)
            found.add((frozenset((tokens[left], tokens[right])), kind))
            if kind != "commutes":
                assert (tokens[left], tokens[right]) in {
                    (r.first, r.second) for r in record.relations
                }
        assert found == {(frozenset((r.first, r.second)), r.kind) for r in record.relations}


def test_records_are_of_all_sizes_with_no_or_many_directed_relations():
    draw = generator(0, "sizes")
    assert {draw_operation_count(draw) for _ in range(300)} == set(OPERATION_COUNT_SHARES)
    assert set(OPERATION_COUNT_SHARES) == {2, 3, 4, 5, 6}
    drawn, _ = records(4, 1000, "many")
    directed = Counter(sum(r.kind != "commutes" for r in record.relations) for record in drawn)
    assert set(directed) == set(range(7))
    assert {len(record.relations) for record in drawn} == set(range(7))


def test_a_batch_has_one_size_and_both_kinds_of_example():
    examples = random_batch(generator(0, "batch"), 64, question_share=0.5)
    assert (
        len(
            {
                example.words[1 : example.words.index("<relations>")].__len__()
                for example in examples
            }
        )
        == 1
    )
    assert 10 < sum(QUESTION in example.words for example in examples) < 54


def tiny_pretrain(directory, seed=1):
    return pretrain(directory, seed=seed, steps=4, batch_size=4, num_card_records=20)


def test_pretraining_twice_gives_the_same_bytes(tmp_path):
    first, second = tiny_pretrain(tmp_path / "a"), tiny_pretrain(tmp_path / "b")
    assert first == second
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["card.json", "config.json", "lock.json", "model.safetensors", "tokenizer.json"]
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_another_seed_gives_other_weights_and_what_is_written_loads(tmp_path):
    first, second = tiny_pretrain(tmp_path / "a"), tiny_pretrain(tmp_path / "b", seed=2)
    assert first != second
    one, other = (load_backbone_directory(tmp_path / d, name=d) for d in "ab")
    assert one.digest == first
    weights = [b.model.get_input_embeddings().weight for b in (one, other)]
    assert not torch.equal(*weights)


def test_pretraining_uses_and_changes_no_global_state(tmp_path):
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 - the global generator is what is under test
    threads = torch.get_num_threads()
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    first = tiny_pretrain(tmp_path / "a")
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002
    assert torch.get_num_threads() == threads
    torch.manual_seed(99)
    assert tiny_pretrain(tmp_path / "b") == first


def test_progress_is_reported_for_each_step(tmp_path):
    seen = []
    pretrain(
        tmp_path / "a",
        steps=3,
        batch_size=2,
        num_card_records=5,
        progress=lambda *args: seen.append(args),
    )
    assert [(step, steps) for step, steps, _ in seen] == [(1, 3), (2, 3), (3, 3)]
    assert all(0 < loss < 10 for _, _, loss in seen)
