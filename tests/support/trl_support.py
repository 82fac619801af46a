"""A tiny model with a tokenizer that knows an end token, a dataset with orbits, and trainers over them."""

import copy
from itertools import permutations

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM, TrainerCallback

from vcrt_train.integrations.trl import OrbitGRPOTrainer

torch.set_num_threads(1)

WORDS = ("<pad>", "<end>", "<go>", "a", "b", "c", "d", "e")
#: Orders of three letters: those with a before b are the orbit.
ORDERS = [" ".join(order) for order in permutations("abc")]
LEGAL = [order for order in ORDERS if order.index("a") < order.index("b")]
ILLEGAL = [order for order in ORDERS if order not in LEGAL]


def tokenizer():
    raw = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<pad>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", eos_token="<end>", padding_side="left"
    )


def save_model(folder, *, seed=0, window=None):
    """A model with spread-out probabilities, saved so that TRL can load its reference from there.

    With a ``window``, its layers see so many tokens back.
    """
    windows = {} if window is None else {"use_sliding_window": True, "sliding_window": window}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(
            Qwen3Config(
                vocab_size=len(WORDS),
                hidden_size=16,
                intermediate_size=32,
                num_hidden_layers=2,
                num_attention_heads=2,
                num_key_value_heads=1,
                head_dim=8,
                max_position_embeddings=64,
                initializer_range=0.3,
                eos_token_id=1,
                pad_token_id=0,
                max_window_layers=0,
                **windows,
            )
        )
    model.save_pretrained(folder)
    return str(folder)


def load_model(folder):
    return Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32)


def rows(orbit=LEGAL, illegal=ILLEGAL, count=8):
    """Prompts of two lengths, so that padding occurs."""
    prompts = ["<go> a b c", "<go> c b a d e", "<go> b c a", "<go> d a b c e"]
    return Dataset.from_list(
        [
            {"prompt": prompts[i % 4] + f" {'abcde'[i % 5]}", "orbit": orbit, "illegal": illegal}
            for i in range(count)
        ]
    )


def reward(completions, orbit, **kwargs):
    return [float(text in members) for text, members in zip(completions, orbit, strict=True)]


def settings(folder, **changes):
    """Arguments for TRL's configuration and ours: two optimiser passes over each sample, everything on the CPU."""
    return {
        "output_dir": str(folder),
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "num_iterations": 2,
        "max_completion_length": 3,
        "max_steps": 4,
        "learning_rate": 1e-2,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 1e9,
        "beta": 0.0,
        "loss_type": "grpo",
        "scale_rewards": "none",
        "disable_dropout": True,
        # Only the letters of the orders, so that tiny models hit them often. It shapes samples, not log-probabilities.
        "generation_kwargs": {"suppress_tokens": [0, 2, 6, 7]},
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        **changes,
    }


def tasks(letters="abc", count=8):
    """Tasks of :class:`letters.Letters` in place of orbits."""
    return (
        rows(count=count)
        .remove_columns(["orbit", "illegal"])
        .add_column("letters", [letters] * count)
    )


def options(tmp_path, **changes):
    """Settings for what the model writes: three letters and an end."""
    return settings(
        tmp_path,
        generation_kwargs={"suppress_tokens": [0, 2, 6, 7]},
        max_completion_length=4,
        **changes,
    )


class Recorder(TrainerCallback):
    """The gradients before each optimiser step, in float64."""

    def __init__(self):
        self.gradients = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.gradients.append(
            torch.cat([p.grad.double().flatten() for p in model.parameters() if p.requires_grad])
        )


def train(trainer_class, config, model, dataset, rewards=reward, **kwargs):
    """Train; returns the trainer, its logs step by step, and the gradients of every step."""
    recorder = Recorder()
    trainer = trainer_class(
        model=model,
        reward_funcs=rewards,
        args=config,
        train_dataset=dataset,
        processing_class=tokenizer(),
        callbacks=[recorder],
        **kwargs,
    )
    trainer.train()
    logs = [row for row in trainer.state.log_history if "loss" in row]
    return trainer, logs, recorder.gradients


class Observed(OrbitGRPOTrainer):
    """Keeps, of every loss, the weights it was computed at, its inputs, and the weights the samples came from."""

    def _generate_and_score_completions(self, inputs):
        self.behaviour = snapshot(self.model)
        return super()._generate_and_score_completions(inputs)

    def _compute_loss(self, model, inputs):
        loss = super()._compute_loss(model, inputs)
        self.seen = [
            *getattr(self, "seen", []),
            (snapshot(self.model), self.behaviour, inputs, loss.item()),
        ]
        return loss


def snapshot(model):
    copied = copy.deepcopy(model)
    # TRL's fused head is bound to the model that it was added to.
    copied.forward = type(copied).forward.__get__(copied)
    return copied


def log_prob(model, prompt, completion, temperature):
    """The log-probability of one completion by itself, unpadded, from the model's plain logits."""
    ids = torch.tensor([[*prompt, *completion]])
    logits = model(input_ids=ids).logits[0, len(prompt) - 1 : -1].float() / temperature
    chosen = logits.log_softmax(-1).gather(-1, torch.tensor(completion)[:, None])
    return chosen.sum()
