"""Orbits of what the model writes itself: judged, certified and credited while TRL trains."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

pytest.importorskip("trl", reason="TRL is not installed: make test-integrations")


from letters import Letters, Lined, Reversed
from trl_support import (
    ILLEGAL,
    LEGAL,
    Observed,
    load_model,
    log_prob,
    options,
    rows,
    save_model,
    tasks,
    tokenizer,
    train,
)
from vcrt.errors import RunError, VcrtError
from vcrt_train.integrations.trl import OrbitGRPOConfig, OrbitGRPOTrainer
from vcrt_train.integrations.trl.candidate_scoring import tokens_of_trees
from vcrt_train.objective.losses import clipped_loss
from vcrt_train.policy.prefix_tree import token_tree
from vcrt_train.randomness import generator


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model"))


def listed_reward(completions, orbit, **kwargs):
    return [float(text in members) for text, members in zip(completions, orbit, strict=True)]


def test_it_trains_as_on_orbits_that_the_dataset_lists(saved, tmp_path):
    """The same samples, rewards, orbits and so losses, although nobody has told them."""
    changes = options(tmp_path, temperature=2.0, max_steps=6)
    _, listed, _ = train(
        OrbitGRPOTrainer,
        OrbitGRPOConfig(**changes, orbit_alpha=0.0),
        load_model(saved),
        rows(),
        listed_reward,
    )
    _, online, _ = train(
        OrbitGRPOTrainer,
        OrbitGRPOConfig(**changes, orbit_alpha=0.0),
        load_model(saved),
        tasks(),
        None,
        environment=Letters,
    )
    assert [row["loss"] for row in online] == [row["loss"] for row in listed]
    for name in ("orbit/credited", "orbit/mass", "reward"):
        assert [r.get(name) for r in online] == pytest.approx(
            [r.get(name) for r in listed], nan_ok=True
        )
    assert max(row["orbit/credited"] for row in online) > 0
    assert max(row.get("orbit/certifying_s", 0) for row in online) > 0


@pytest.mark.parametrize(
    ("credit", "augmentation"), [(True, 0.0), (False, 0.2)], ids=["orbits", "augmentation"]
)
def test_the_loss_is_the_papers_and_illegal_orders_of_a_success_give_the_margin(
    saved, tmp_path, credit, augmentation
):
    config = OrbitGRPOConfig(
        **options(tmp_path, temperature=2.0),
        orbit_alpha=0.3,
        orbit_credit=credit,
        orbit_augmentation=augmentation,
    )
    trainer, logs, _ = train(
        Observed, config, load_model(saved), tasks(), None, environment=Letters
    )
    known = tokenizer()
    encode = lambda text: (*known(text)["input_ids"], 1)  # noqa: E731
    legal, illegal = ({encode(text) for text in texts} for texts in (LEGAL, ILLEGAL))
    seen = 0
    for model, behaviour, inputs, loss in trainer.seen:
        ratios, margins, likelihoods = [], [], []
        for index, candidates in enumerate(inputs["orbit_candidates"]):
            mask = inputs["completion_mask"][index].bool()
            sample = tuple(inputs["completion_ids"][index][mask].tolist())
            assert bool(candidates.orbit) == (sample in legal)

            def total(model, texts, prompt=candidates.prompt):
                scores = [log_prob(model, prompt, text, config.temperature) for text in texts]
                return torch.stack(scores).logsumexp(0)

            own = [sample]
            if candidates.orbit:
                seen += 1
                assert (set(candidates.orbit), set(candidates.illegal)) == (legal, illegal)
                own = candidates.orbit if credit else own
                each = [log_prob(model, candidates.prompt, text, 2.0) for text in legal]
                likelihoods.append(-torch.stack(each).mean())
                delta = total(model, legal) - total(model, illegal)
                margins.append(0.5 * (config.orbit_margin - delta).clamp(min=0).square())
            else:
                margins.append(torch.zeros(()))
                likelihoods.append(torch.zeros(()))
            ratios.append(total(model, own) - total(behaviour, own))
        expected = (
            clipped_loss(torch.stack(ratios)[None], inputs["advantages"][None], config.epsilon)
            + 0.3 * torch.stack(margins).mean()
            + augmentation * torch.stack(likelihoods).mean()
        )
        assert loss == pytest.approx(float(expected), abs=1e-5)
    assert seen > 0
    assert max(row["orbit/margin_loss"] for row in logs) > 0
    assert (max(row["orbit/credited"] for row in logs) > 0) is credit
    assert ("orbit/augmentation_loss" in logs[0]) is (augmentation > 0)


class Counting(OrbitGRPOTrainer):
    """Keeps what was scored: with gradients or without them, and which completions."""

    def __init__(self, *args, **kwargs):
        self.asked = []
        super().__init__(*args, **kwargs)

    def _by_tree(self, model, pairs, *, entropies):
        completions = [completion for _, completion in pairs]
        self.asked.append((torch.is_grad_enabled(), completions))
        return super()._by_tree(model, pairs, entropies=entropies)


def test_the_behaviour_policy_scores_what_the_loss_scores(saved, tmp_path):
    """One pass, and the same as that of the loss, so that both round alike."""
    config = OrbitGRPOConfig(
        **options(tmp_path, temperature=2.0, num_iterations=2, max_steps=8), orbit_alpha=0.3
    )
    trainer, _, _ = train(Counting, config, load_model(saved), tasks(), None, environment=Letters)
    known = tokenizer()
    legal = {(*known(text)["input_ids"], 1) for text in LEGAL}
    assert [grad for grad, _ in trainer.asked] == [False, True, True] * 4
    seen = [completions for _, completions in trainer.asked]
    for old, first, second in zip(*(seen[k::3] for k in range(3)), strict=True):
        assert old == first == second
        assert legal & set(old[:8]) or len(old) == 8


def test_members_that_do_not_all_fit_are_a_block_with_the_sample(saved, tmp_path):
    config = OrbitGRPOConfig(
        **options(tmp_path, temperature=2.0, per_device_train_batch_size=32, max_steps=24),
        orbit_alpha=0.0,
        orbit_max_members=2,
    )
    trainer, _, _ = train(Observed, config, load_model(saved), tasks(), None, environment=Letters)
    found = [
        (candidates, member)
        for _, _, inputs, _ in trainer.seen
        for candidates, member in zip(
            inputs["orbit_candidates"], inputs["orbit_members"].tolist(), strict=True
        )
        if candidates.orbit
    ]
    assert found
    assert all(len(candidates.orbit) <= 2 and member >= 0 for candidates, member in found)
    assert any(len(candidates.orbit) == 2 for candidates, _ in found)


def written(prompts, trainer):
    """Half of them succeed, by two orders."""
    known, texts = tokenizer(), ["a b c", "b a c", "c a b", "c c c"]
    completions = [[*known(texts[i % 4])["input_ids"], 1] for i in range(len(prompts))]
    ids = known(prompts)["input_ids"]
    return {"prompt_ids": ids, "completion_ids": completions, "logprobs": None}


def test_steps_of_a_generation_add_up_to_one_step(saved, tmp_path):
    gradients = []
    for size, accumulation in ((32, 1), (8, 4)):
        changes = options(
            tmp_path,
            temperature=2.0,
            max_steps=1,
            num_iterations=1,
            per_device_train_batch_size=size,
            gradient_accumulation_steps=accumulation,
        )
        config = OrbitGRPOConfig(**changes, orbit_alpha=0.5, orbit_augmentation=0.1)
        _, logs, found = train(
            OrbitGRPOTrainer,
            config,
            load_model(saved),
            tasks(),
            None,
            environment=Letters,
            rollout_func=written,
        )
        assert logs[0]["orbit/credited"] == 0.5
        gradients.append(found[0])
    assert (gradients[0] - gradients[1]).norm() <= 1e-5 * gradients[0].norm()


ALL_ORDERS = {"orbit_all_orders": True, "orbit_max_members": 2, "scale_rewards": "leave_one_out"}


@pytest.mark.parametrize("orbit", [{}, ALL_ORDERS], ids=["orbits", "all-orders"])
def test_resumed_is_as_uninterrupted(saved, tmp_path, orbit):
    # Within one epoch: TRL draws the order of later ones anew.
    given = tasks(count=96)
    changes = options(tmp_path, temperature=9.0, max_steps=12, num_iterations=1)
    changes |= {"save_strategy": "steps", "save_steps": 6, "per_device_train_batch_size": 32}
    config = OrbitGRPOConfig(**changes | orbit)
    whole, logs, _ = train(
        OrbitGRPOTrainer, config, load_model(saved), given, None, environment=Letters
    )
    assert max(row["orbit/credited"] for row in logs[6:]) > 0
    if orbit:
        assert max(row["orbit/partial"] for row in logs[6:]) > 0
    again = OrbitGRPOTrainer(
        load_model(saved),
        args=config,
        train_dataset=given,
        processing_class=tokenizer(),
        environment=Letters,
    )
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-6"))
    for name, weights in whole.model.named_parameters():
        assert torch.equal(weights, again.model.get_parameter(name)), name


def test_rows_of_several_environments_are_judged_by_their_own(saved, tmp_path):
    """One reward and one set of orbits each: a before b in one, b before a in the other."""
    both = tasks().add_column("environment", ["one", "other"] * 4)
    many = {"per_device_train_batch_size": 32, "max_steps": 24, "temperature": 9.0}
    config = OrbitGRPOConfig(**options(tmp_path, learning_rate=1e-9, **many))
    trainer, _, _ = train(
        Observed,
        config,
        load_model(saved),
        both,
        None,
        environment={"one": Letters, "other": Reversed},
    )
    legal = {(*tokenizer()(text)["input_ids"], 1) for text in LEGAL}
    found = {
        set(candidates.orbit) == legal
        for _, _, inputs, _ in trainer.seen
        for candidates in inputs["orbit_candidates"]
        if candidates.orbit
    }
    assert found == {True, False}


@pytest.mark.parametrize(
    ("names", "match"),
    [(None, "which environment"), (["one", "tow"] * 4, "unknown environment 'tow'")],
)
def test_a_row_must_name_one_of_several_environments(saved, tmp_path, names, match):
    given = tasks() if names is None else tasks().add_column("environment", names)
    config = OrbitGRPOConfig(**options(tmp_path))
    environments = {"one": Letters, "two": Letters}
    with pytest.raises(VcrtError, match=match):
        train(OrbitGRPOTrainer, config, load_model(saved), given, None, environment=environments)


def test_orders_that_are_rewarded_are_not_pushed_away(saved, tmp_path):
    config = OrbitGRPOConfig(**options(tmp_path, temperature=2.0), orbit_alpha=0.5)
    trainer, logs, _ = train(
        Observed,
        config,
        load_model(saved),
        tasks(),
        None,
        environment=Lined,
        rollout_func=written,
    )
    found = [each for _, _, inputs, _ in trainer.seen for each in inputs["orbit_candidates"]]
    assert any(each.orbit for each in found)
    assert not any(each.illegal for each in found)
    # Five other orders of three of four completions.
    assert logs[0]["orbit/other_solutions"] == pytest.approx(5 * 3 / 4)
    assert logs[0]["orbit/margin_loss"] == 0


def test_reasons_are_logged_by_name(saved, tmp_path):
    """Single steps stand for themselves; so does what was cut off, of which no one knows how it would end."""
    short = options(tmp_path, temperature=2.0, max_steps=2)
    _, logs, _ = train(
        OrbitGRPOTrainer,
        OrbitGRPOConfig(**short),
        load_model(saved),
        tasks("a"),
        None,
        environment=Letters,
    )
    assert logs[0]["orbit/missed/single_step"] == logs[0]["orbit/missed"] == logs[0]["reward"] > 0
    assert logs[0]["orbit/credited"] == 0
    cut = {
        **short,
        "max_completion_length": 3,
        "generation_kwargs": {"suppress_tokens": [0, 1, 2, 6, 7]},
    }
    _, logs, _ = train(
        OrbitGRPOTrainer,
        OrbitGRPOConfig(**cut),
        load_model(saved),
        tasks(),
        None,
        environment=Letters,
    )
    assert logs[0]["orbit/missed/cut_off"] == logs[0]["reward"] > 0


def test_a_log_of_several_steps_has_the_means_of_all_of_them(saved, tmp_path):
    """Also of what happened in one of them alone: the second step's completions have no end."""

    def half_cut(prompts, trainer):
        found = written(prompts, trainer)
        if trainer.state.global_step % 2:
            found["completion_ids"] = [ids[:-1] for ids in found["completion_ids"]]
        return found

    def logs_of(steps):
        changes = {"num_iterations": 1, "max_steps": 4, "logging_steps": steps}
        _, logs, _ = train(
            OrbitGRPOTrainer,
            OrbitGRPOConfig(**options(tmp_path, temperature=2.0, **changes), orbit_alpha=0.0),
            load_model(saved),
            tasks(),
            None,
            environment=Letters,
            rollout_func=half_cut,
        )
        return [{n: v for n, v in row.items() if n.startswith("orbit/missed/")} for row in logs], [
            row["orbit/members"] for row in logs
        ]

    single, members = logs_of(1)
    reasons = {name for row in single for name in row}
    assert reasons
    together, mean_members = logs_of(4)
    assert mean_members == [pytest.approx(sum(members) / 4)]
    assert 0 in members
    assert max(members) > 0
    for name in reasons:
        expected = sum(row.get(name, 0.0) for row in single) / 4
        assert together[0][name] == pytest.approx(expected), name
        assert any(name not in row or row[name] == 0 for row in single), name


@pytest.mark.parametrize("window", [None, 4], ids=["trees", "rows"])
def test_tokens_are_those_that_the_pass_of_the_loss_reads(tmp_path, window):
    model = load_model(save_model(tmp_path / "model", window=window))
    config = OrbitGRPOConfig(**options(tmp_path, max_steps=2), orbit_alpha=0.0)
    trainer, logs, _ = train(
        Observed, config, model, tasks(), None, environment=Letters, rollout_func=written
    )
    for (_, _, inputs, _), row in zip(trainer.seen, logs, strict=True):
        candidates = inputs["orbit_candidates"]
        prompts = {each.prompt for each in candidates}
        orbits = {(each.prompt, text) for each in candidates for text in each.orbit}
        known = tokenizer()
        samples = [(*known(text)["input_ids"], 1) for text in ("a b c", "b a c", "c a b", "c c c")]
        if window is None:
            read = 0
            for prompt in prompts:
                texts = {*samples, *(text for own, text in orbits if own == prompt)}
                read += len(prompt) + token_tree(sorted(texts)).num_rows - 1
        else:
            read = sum(map(len, (prompt + text for prompt, text in orbits)))
            read += 8 * (max(map(len, prompts)) + 4)
        assert row["orbit/tokens"] == pytest.approx(read / 8)


@pytest.mark.parametrize("seed", range(20))
def test_tokens_of_trees_are_counted_as_trees_have_them(seed):
    draw = generator(seed, "texts")
    texts = [
        tuple(draw.integers(0, 3, size=draw.integers(1, 6)).tolist())
        for _ in range(draw.integers(1, 30))
    ]
    pairs = [((9,) * (place % 3 + 1), text) for place, text in enumerate(texts)]
    expected = 0
    for prompt in {prompt for prompt, _ in pairs}:
        own = [text for other, text in pairs if other == prompt]
        expected += len(prompt) + token_tree(own).num_rows - 1
    assert tokens_of_trees(pairs) == expected
    assert tokens_of_trees([((5, 6), ())]) == 2


def test_other_rewards_stand_behind_the_environments(saved, tmp_path):
    config = OrbitGRPOConfig(
        **options(tmp_path, temperature=2.0, max_steps=1), reward_weights=[1.0, 0.5]
    )
    _, logs, _ = train(
        OrbitGRPOTrainer,
        config,
        load_model(saved),
        tasks(),
        lambda completions, **_: [2.0] * len(completions),
        environment=Letters,
    )
    assert logs[0]["reward"] == pytest.approx(logs[0]["rewards/solved/mean"] + 1.0)


def test_weights_and_tokenizers_of_rewards_stand_behind_the_environments(saved, tmp_path):
    config = OrbitGRPOConfig(**options(tmp_path, max_steps=1), reward_weights=[1.0])

    def trained(config, **kwargs):
        other = lambda completions, **_: [2.0] * len(completions)  # noqa: E731
        model = load_model(saved)
        train(OrbitGRPOTrainer, config, model, tasks(), [other], environment=Letters, **kwargs)

    with pytest.raises(RunError, match="environment's own reward first"):
        trained(config)
    config = OrbitGRPOConfig(**options(tmp_path, max_steps=1))
    trained(config, reward_processing_classes=[None])


def test_no_more_is_scored_at_a_time_than_trl_scores(saved, tmp_path):
    changes = {"gradient_accumulation_steps": 4, "num_iterations": 2, "max_steps": 2, "beta": 0.1}
    config = OrbitGRPOConfig(**options(tmp_path, temperature=2.0, **changes))
    # No completion is long enough to solve its task, so samples alone are scored: of the 32 of a generation, eight.
    given = tasks("abcde")
    trainer, logs, _ = train(Counting, config, load_model(saved), given, None, environment=Letters)
    assert {row.get("reward", 0) for row in logs} == {0}
    assert {len(completions) for _, completions in trainer.asked} == {8}


def test_a_model_in_float32_is_trained_in_autocast(saved, tmp_path):
    config = OrbitGRPOConfig(**options(tmp_path, temperature=2.0, max_steps=2, bf16=True))
    _, logs, _ = train(
        OrbitGRPOTrainer, config, load_model(saved), tasks("a"), None, environment=Letters
    )
    assert logs[0]["loss"] == pytest.approx(0, abs=1e-3)


def test_a_task_may_be_a_column_of_its_own(saved, tmp_path):
    dataset = rows(count=8).remove_columns(["orbit", "illegal"])
    dataset = dataset.add_column("task", [{"letters": ["a"]}] * 8)
    config = OrbitGRPOConfig(**options(tmp_path, temperature=2.0, max_steps=1))
    _, logs, _ = train(
        OrbitGRPOTrainer, config, load_model(saved), dataset, None, environment=Letters
    )
    assert logs[0]["reward"] > 0


def test_numbers_of_orders_and_workers_are_checked(tmp_path):
    with pytest.raises(RunError, match="orbit_max_members of 1 or more"):
        OrbitGRPOConfig(**options(tmp_path), orbit_max_members=0)


def test_a_merging_tokenizer_is_scored_as_it_would_write():
    """The tokens of another order are what the tokenizer makes of the whole text, across the edges of steps."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    from kitchen import Kitchen
    from vcrt.replay.completion_judge import CompletionJudge
    from vcrt_train.integrations.written_orbits import OrbitLimits, written_orbit
    from vcrt_train.randomness import generator

    text = 'count()\ntake(item="egg")'
    vocabulary = {"<end>": 0, "t)": 1}
    for letter in sorted(set(text)):
        vocabulary.setdefault(letter, len(vocabulary))
    vocabulary['")'], vocabulary["()\n"] = len(vocabulary), len(vocabulary) + 1
    vocabulary["()"] = len(vocabulary)
    raw = Tokenizer(
        models.BPE(vocab=vocabulary, merges=[("(", ")"), ("()", "\n"), ('"', ")")], unk_token=None)
    )
    known = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<end>")

    def encode(text):
        return known(text, add_special_tokens=False)["input_ids"]

    with CompletionJudge(Kitchen) as judge:
        judge.begin([None], [text])
        (judgement,) = judge.finish()
    # Counting sees what was taken: two orders, of which the other is illegal; let it fail.
    judgement = replace(judgement, failing=((1, 0),))
    limits = OrbitLimits(max_length=99)
    own = (*encode(text), 0)
    found = written_orbit(
        (1,), own, judgement, encode=encode, ends=[0], limits=limits, draw=generator(0, "x")
    )
    assert found.candidates.orbit == (own,)
    assert found.candidates.illegal == ((*encode('take(item="egg")\ncount()'), 0),)
    assert vocabulary["()\n"] in own
    assert vocabulary["()"] in found.candidates.illegal[0]
    # Tokens that the tokenizer would not make of the text: which other orders they stand for is not known.
    apart = own.index(vocabulary["()\n"])
    odd = (*own[:apart], vocabulary["()"], vocabulary["\n"], *own[apart + 1 :])
    found = written_orbit(
        (1,), odd, judgement, encode=encode, ends=[0], limits=limits, draw=generator(0, "x")
    )
    assert (found.missed, found.candidates.orbit) == ("tokens", ())


def test_a_tokenizer_that_does_not_write_what_was_sampled_is_told_of_once(tmp_path, recwarn):
    from vcrt_train.integrations.trl.online import OnlineOrbits

    online = OnlineOrbits(Letters, OrbitGRPOConfig(**options(tmp_path)))
    recwarn.clear()
    for succeeded, missed in ((8, 8), (8, 0)):
        online._warn_of_tokens(succeeded, missed)
    assert not recwarn
    online._warn_of_tokens(1, 1)
    (warning,) = recwarn
    assert str(warning.message).startswith("9 of 17 successes stand for themselves")
    online._warn_of_tokens(8, 8)
    assert len(recwarn) == 1


def test_tasks_are_what_json_holds():
    from vcrt_train.integrations.trl.online import task_of

    assert task_of({"prompt": "p", "letters": "ab"}) == {"letters": "ab"}
    assert task_of({"prompt": "p", "task": {"x": 1}, "y": 2}) == {"x": 1}
    json.dumps(task_of({"prompt": "p"}))
