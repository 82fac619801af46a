"""The backbone for many operations: what it is taught, that it reads, and that it knows no rule."""

import json
from collections import Counter
from math import comb
from statistics import mean

import numpy as np
import pytest
import torch

from vcrt.orders import linear_extensions
from vcrt.records.policy_view import ANSWER, LARGEST_POOL, POINTER_TOKENS, render
from vcrt_research.long_backbone_card import look_ups, random_poset, untrained_passes
from vcrt_research.pretraining import pretrain
from vcrt_research.pretraining_data import order_example, printed_statements
from vcrt_research.pretraining_long_data import (
    BLANKS,
    MAX_COMMUTING,
    SIZE_SHARES,
    Shape,
    blank_example,
    draw_shape,
    long_batch,
    long_record,
    named_alone,
)
from vcrt_research.pretraining_recipes import LONG
from vcrt_train.config import EMBEDDED_LONG_NAME
from vcrt_train.policy.backbone import EMBEDDED_DIRECTORIES, load_backbone, verify_lock
from vcrt_train.policy.prefix_tree import prefix_tree
from vcrt_train.policy.reference import backbone_reference
from vcrt_train.policy.scoring import greedy_orders, score_prefixes
from vcrt_train.policy.tokenizer import QUESTION, embedded_tokenizer
from vcrt_train.randomness import generator

SERIALISATIONS = ("sorted", "shuffled")
FEW = Shape(num_operations=12, num_relations=5, has_commuting=False)


@pytest.fixture(scope="module")
def backbone():
    return load_backbone(EMBEDDED_LONG_NAME)


# --- what is taught ---------------------------------------------------------------------------------


def test_records_grow_and_then_have_every_size():
    draw = generator(0, "shapes")
    early = [draw_shape(draw, 0.01) for _ in range(200)]
    assert {shape.num_operations for shape in early} <= {2, 3, 4}
    assert max(shape.num_relations for shape in early) == 3
    late = [draw_shape(draw, 1.0) for _ in range(4000)]
    sizes = Counter(shape.num_operations for shape in late)
    assert set(sizes) == set(range(2, 65))
    for (low, high), share in SIZE_SHARES.items():
        found = sum(sizes[n] for n in range(low, high + 1)) / len(late)
        assert abs(found - share) < 4 * (share * (1 - share) / len(late)) ** 0.5
    for shape in late:
        assert 1 <= shape.num_relations <= comb(shape.num_operations, 2)
        assert not shape.has_commuting or shape.num_operations <= MAX_COMMUTING
    assert max(s.num_relations for s in late if s.num_operations == 16) > 60
    assert any(s.has_commuting for s in late)


@pytest.mark.parametrize("has_commuting", [False, True])
def test_a_record_has_the_relations_of_its_shape(has_commuting):
    shape = Shape(num_operations=8, num_relations=5, has_commuting=has_commuting)
    draw, kinds, forward = generator(1, "records"), Counter(), []
    for _ in range(400):
        record = long_record(draw, shape)
        directed = [r for r in record.relations if r.kind != "commutes"]
        assert len(directed) == 5
        assert len(record.relations) == (28 if has_commuting else 5)
        assert len({frozenset((r.first, r.second)) for r in record.relations}) == len(
            record.relations
        )
        assert record.pointers[-1] < 32
        kinds.update(r.kind for r in directed)
        forward += [r.first < r.second for r in directed]
    assert abs(kinds["precedes"] / 2000 - 0.5) < 4 * 0.5 / 2000**0.5
    assert abs(mean(forward) - 0.5) < 4 * 0.5 / 2000**0.5


def test_relations_are_drawn_without_regard_to_whether_an_order_keeps_them():
    draw, satisfiable = generator(2, "contradictions"), []
    for _ in range(300):
        record = long_record(draw, Shape(num_operations=4, num_relations=6, has_commuting=False))
        try:
            linear_extensions(4, [(r.first, r.second) for r in record.relations])
            satisfiable.append(True)
        except ValueError:
            satisfiable.append(False)
    # 24 of the 64 tournaments of four have no cycle.
    assert abs(mean(satisfiable) - 24 / 64) < 4 * (0.375 * 0.625 / 300) ** 0.5


@pytest.mark.parametrize("serialisation", SERIALISATIONS)
def test_every_question_is_about_a_printed_statement_and_has_one_answer(serialisation):
    draw = generator(3, "questions", serialisation)
    blanks = Counter()
    for number in range(300):
        shape = Shape(num_operations=7, num_relations=1 + number % 21, has_commuting=False)
        words = blank_example(long_record(draw, shape), serialisation, draw)
        start = words.words.index(QUESTION)
        statements = printed_statements(words.words[:start])
        assert not any(words.is_answer[:start])
        asked = words.words[start:]
        assert len(asked) % 4 == 0
        assert words.is_answer[start:] == (False, False, False, True) * (len(asked) // 4)
        questions = list(zip(asked[0::4], asked[1::4], asked[2::4], asked[3::4], strict=True))
        assert len(set(questions)) == len(questions)
        for mark, first, second, answer in questions:
            assert mark == QUESTION
            whole = {
                "left": (answer, first, second),
                "relation": (first, answer, second),
                "right": (first, second, answer),
            }
            blank = "relation"
            if first not in POINTER_TOKENS:
                blank = "left"
            elif second not in POINTER_TOKENS:
                blank = "right"
            blanks[blank] += 1
            place = BLANKS[blank]
            matching = [
                s
                for s in statements
                if [w for i, w in enumerate(s) if i != place] == [first, second]
            ]
            assert matching == [whole[blank]]
    assert min(blanks.values()) > 300


def test_a_statement_that_is_not_named_alone_is_not_asked_about():
    statements = [("p0", "r1", "p1"), ("p0", "r1", "p2"), ("p3", "r4", "p2")]
    assert named_alone(statements, "right") == [("p3", "r4", "p2")]
    assert named_alone(statements, "left") == [
        ("r1", "p1", "p0"),
        ("r1", "p2", "p0"),
        ("r4", "p2", "p3"),
    ]
    assert len(named_alone(statements, "relation")) == 3


@pytest.mark.parametrize("serialisation", SERIALISATIONS)
def test_completions_of_long_records_are_independent_of_their_relations(serialisation):
    draw = generator(4, "independence", serialisation)
    kept = []
    for _ in range(3000):
        record = long_record(draw, FEW)
        words = order_example(record, serialisation, draw).words
        order = words[words.index(ANSWER) + 1 :]
        assert sorted(order) == sorted(POINTER_TOKENS[p] for p in record.pointers)
        relation = record.relations[draw.integers(len(record.relations))]
        first, second = (
            POINTER_TOKENS[record.pointers[s]] for s in (relation.first, relation.second)
        )
        kept.append(order.index(first) < order.index(second))
    assert abs(mean(kept) - 0.5) < 4 * 0.5 / 3000**0.5


def test_a_batch_has_one_shape_both_kinds_of_example_and_its_number_of_tokens():
    sizes = []
    for number in range(60):
        examples = long_batch(generator(number, "batch"), 3072, question_share=0.8, share=1.0)
        assert len({e.words.index("<relations>") for e in examples}) == 1
        sizes.append(len(examples) * max(len(e.words) for e in examples))
    assert 2000 < mean(sizes) < 4200
    asks = [QUESTION in e.words for e in examples]
    assert 0 < sum(asks) <= len(asks)


# --- how it is made ---------------------------------------------------------------------------------


def test_two_short_pretrainings_give_the_same_bytes_and_a_card(tmp_path):
    made = [
        pretrain(tmp_path / name, recipe=LONG, steps=2, batch_size=200, num_card_records=2)
        for name in "ab"
    ]
    assert made[0] == made[1]
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
    card = json.loads((tmp_path / "a" / "card.json").read_text())
    assert (card["steps"], card["tokens_per_batch"], card["seed"]) == (2, 200, LONG.seed)


# --- what is shipped --------------------------------------------------------------------------------


def test_the_backbone_for_many_operations_is_named_locked_and_small(backbone):
    assert backbone_reference("embedded-long").is_embedded
    assert backbone.name == "embedded-long"
    directory = EMBEDDED_DIRECTORIES["embedded-long"]
    assert backbone.digest == verify_lock(directory) != load_backbone().digest
    assert {p.dtype for p in backbone.model.parameters()} == {torch.float32}
    count = sum(p.numel() for p in backbone.model.parameters())
    card = json.loads((directory / "card.json").read_text())
    assert count == card["parameters"] < 400_000
    assert sum(path.stat().st_size for path in directory.iterdir()) < 2_000_000
    assert backbone.num_pointers == LARGEST_POOL
    assert load_backbone().num_pointers == 8
    assert backbone.tokenizer.get_vocab() == embedded_tokenizer(LARGEST_POOL).get_vocab()


@pytest.mark.parametrize("num_operations", [4, 8, 16])
@pytest.mark.parametrize("serialisation", SERIALISATIONS)
def test_it_reads_records_that_it_has_never_seen(backbone, num_operations, serialisation):
    found = look_ups(
        backbone.model,
        backbone.tokenizer,
        num_operations=num_operations,
        every_pair=False,
        serialisation=serialisation,
        num_records=64,
        draw=generator(20, "fresh records", num_operations, serialisation),
    )
    # Guessing a pointer of the record is right once in `num_operations` times; the card says 0.94 to 1.
    assert mean(found.values()) > 0.87


def test_its_greedy_answers_are_orders_and_as_often_legal_as_random_ones(backbone):
    found = untrained_passes(
        backbone.model,
        backbone.tokenizer,
        num_operations=8,
        num_relations=1,
        num_records=200,
        draw=generator(21, "chance"),
    )
    assert found["orders"] == 1.0
    assert found["chance"] == 0.5
    # Four standard deviations of a fair coin, and the leaning that a backbone may have by chance.
    assert abs(found["pass_rate"] - 0.5) < 4 * 0.5 / 200**0.5 + 0.06


def test_a_random_poset_states_what_its_order_keeps():
    draw = generator(5, "posets")
    for _ in range(50):
        case = random_poset(draw, 6, 4)
        pairs = {(r.first, r.second) for r in case.record.relations}
        assert len(pairs) == 4
        extensions = linear_extensions(6, pairs)
        assert case.chance == pytest.approx(len(extensions) / 720)
        assert all(case.order.allows(order) for order in extensions)


# --- scoring ----------------------------------------------------------------------------------------


def cases(backbone, num_operations, count):
    draw = generator(6, "scored", num_operations)
    made = [random_poset(draw, num_operations, 3) for _ in range(count)]
    return [backbone.encode(case.record, "shuffled", draw) for case in made]


@pytest.mark.parametrize("interface", ["pointers", "tokens"])
def test_the_tree_of_six_operations_gives_what_naive_scoring_gives(backbone, interface):
    prompts = cases(backbone, 6, 2)
    draw = generator(7, "prefixes")
    trees = [
        prefix_tree(6, [tuple(draw.permutation(6)[:4].tolist()) for _ in range(count)])
        for count in (5, 9)
    ]
    tree, naive = (
        score_prefixes(backbone.model, prompts, trees, interface=interface, backend=backend)
        for backend in ("tree", "naive")
    )
    for row, part in enumerate(trees):
        rows = part.num_rows
        free = ~tree.used[row, :rows]
        found, expected = (s.choice_log_probs[row, :rows][free] for s in (tree, naive))
        assert torch.isfinite(expected).all()
        assert (found - expected).abs().max() < 1e-4


@pytest.mark.parametrize("num_operations", [6, 16])
def test_greedy_orders_follow_the_most_probable_pointer(backbone, num_operations):
    prompts = cases(backbone, num_operations, 3)
    for prompt, order in zip(
        prompts, greedy_orders(backbone.model, prompts, interface="pointers"), strict=True
    ):
        left = list(range(num_operations))
        for slot in order:
            ids = [*prompt.token_ids]
            ids += [prompt.pointer_ids[s] for s in order[: num_operations - len(left)]]
            with torch.no_grad():
                logits = backbone.model(input_ids=torch.tensor([ids])).logits[0, -1]
            best = logits[[prompt.pointer_ids[s] for s in left]]
            assert best.max() - best[left.index(slot)] < 1e-4
            left.remove(slot)
        assert not left


def test_a_record_of_sixty_four_operations_is_answered(backbone):
    draw = generator(8, "longest")
    case = random_poset(draw, 64, 6)
    prompt = backbone.encode(case.record, "sorted", draw)
    assert len(render(case.record, "sorted", np.random.default_rng(0))) == len(prompt.token_ids)
    (order,) = greedy_orders(backbone.model, [prompt], interface="pointers")
    assert sorted(order) == list(range(64))
