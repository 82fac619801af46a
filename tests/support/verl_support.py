"""Batches of verl's around a tiny model: its own nested tensors, its own loss, and the exact loss beside them."""

from itertools import permutations

import numpy as np
import torch
from verl.protocol import DataProto
from verl.trainer.ppo.core_algos import compute_rloo_outcome_advantage
from verl.utils import tensordict_utils
from verl.utils.model import compute_position_id_with_mask
from verl.workers.config import ActorConfig, PolicyLossConfig
from verl.workers.utils.losses import ppo_loss
from verl.workers.utils.padding import left_right_2_no_padding

from small_models import make_model
from vcrt_train.objective.losses import clipped_loss

# Models this small gain nothing from threads.
torch.set_num_threads(1)

PAD, END = 0, 8
PROMPTS = ((3, 5, 7), (6, 2, 4, 5, 7, 3), (7, 7, 2, 5))
#: Orders of three letters with 1 before 2; some end by themselves, so that rows are of several lengths.
ORBIT = tuple(order for order in permutations((1, 2, 3)) if order.index(1) < order.index(2))
ENDED = (*((*order, END) for order in ORBIT), (4, END))
OTHER = ((2, 1, 3), (3, 2, 1, END), (5, 5), (6,))
#: (prompt, response, its orbit): an orbit twice, one member of it twice, one orbit alone, and failures.
SAMPLES = (
    *((0, ORBIT[0], ORBIT), (0, ORBIT[1], ORBIT), (0, ORBIT[1], ORBIT), (0, OTHER[0], None)),
    *((1, ENDED[3], ENDED), (1, OTHER[1], None), (1, OTHER[2], None), (1, OTHER[3], None)),
    *((2, OTHER[0], None), (2, OTHER[1], None), (2, OTHER[2], None), (2, OTHER[2], None)),
)
WIDTH, LONGEST = 5, 6
SUCCESSES = torch.tensor([orbit is not None for _, _, orbit in SAMPLES])
ORBITS = [orbit for _, _, orbit in SAMPLES]


def actor_config(**changes):
    """verl's configuration of the actor, with our loss and no second clip."""
    return ActorConfig(
        **{
            "strategy": "fsdp",
            "rollout_n": 4,
            "ppo_micro_batch_size_per_gpu": 4,
            "loss_agg_mode": "seq-mean-token-mean",
            "clip_ratio_c": 1e9,
            "policy_loss": PolicyLossConfig(loss_mode="orbit_grpo"),
            **changes,
        }
    )


def log_probs(model, prompt, response):
    """``[len(response)]``, of one row by itself."""
    ids = torch.tensor([[*prompt, *response]])
    logits = model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1]
    return logits.log_softmax(-1).gather(-1, torch.tensor(response)[:, None])[:, 0]


def total(model, prompt, response):
    return log_probs(model, prompt, response).sum()


def rewards():
    """Varied among failures, so that groups without a success have a gradient too."""
    return torch.tensor(
        [1.0 if success else -0.1 * i for i, success in enumerate(SUCCESSES)]
    ).double()


def sampled_batch(model, samples=SAMPLES):
    """A batch as verl's trainer has it before the update, with leave-one-out advantages by verl."""
    size = len(samples)
    prompts = torch.full((size, LONGEST), PAD)
    responses = torch.full((size, WIDTH), PAD)
    attention = torch.zeros(size, LONGEST + WIDTH, dtype=torch.long)
    old = torch.zeros(size, WIDTH, dtype=torch.float64)
    for row, (prompt, response, _) in enumerate(samples):
        tokens = PROMPTS[prompt]
        prompts[row, LONGEST - len(tokens) :] = torch.tensor(tokens)
        responses[row, : len(response)] = torch.tensor(response)
        attention[row, LONGEST - len(tokens) : LONGEST + len(response)] = 1
        with torch.no_grad():
            old[row, : len(response)] = log_probs(model, tokens, response)
    mask = attention[:, LONGEST:].clone()
    groups = np.array([f"group {prompt}" for prompt, _, _ in samples], dtype=object)
    scores = torch.zeros(size, WIDTH, dtype=torch.float64)
    scores[:, 0] = rewards()[:size]
    advantages, _ = compute_rloo_outcome_advantage(scores.clone(), mask, groups)
    return DataProto.from_dict(
        tensors={
            "prompts": prompts,
            "responses": responses,
            "input_ids": torch.cat([prompts, responses], dim=1),
            "attention_mask": attention,
            "position_ids": compute_position_id_with_mask(attention),
            "response_mask": mask,
            "old_log_probs": old,
            "advantages": advantages,
            "token_level_scores": scores,
        },
        non_tensors={"uid": groups},
        meta_info={"temperature": 1.0},
    )


def scorer(model, asked=None):
    """What the actor's worker does for a trainer; ``asked`` collects the sizes of what it is asked for."""

    def score(rows):
        if asked is not None:
            asked.append(len(rows))
        found = torch.zeros(len(rows), WIDTH, dtype=torch.float64)
        for row, (prompt, response) in enumerate(texts(rows)):
            with torch.no_grad():
                found[row, : len(response)] = log_probs(model, prompt, response)
        return found

    return score


def texts(batch):
    """(prompt, response) of each row, as tokens."""
    ids, attention = batch.batch["input_ids"], batch.batch["attention_mask"].bool()
    return [
        (row[:LONGEST][kept[:LONGEST]].tolist(), row[LONGEST:][kept[LONGEST:]].tolist())
        for row, kept in zip(ids, attention, strict=True)
    ]


def loss_by_verl(model, batch, config, *, micro_batch=None):
    """The loss of verl's worker: its nested tensors, its ``ppo_loss``, a micro-batch at a time; and its metrics."""
    size, losses, metrics = len(batch), [], {}
    for start in range(0, size, micro_batch or size):
        part = batch.select_idxs(torch.arange(start, min(start + (micro_batch or size), size)))
        data = left_right_2_no_padding(part.to_tensordict())
        tensordict_utils.assign_non_tensor(
            data, dp_size=1, batch_num_tokens=None, global_batch_size=size
        )
        ids = data["input_ids"]
        values = []
        for row in ids.unbind():
            logits = model(input_ids=row[None], use_cache=False).logits[0, :-1]
            chosen = logits.log_softmax(-1).gather(-1, row[1:, None])[:, 0]
            values.append(torch.cat([chosen, chosen.new_zeros(1)]))
        nested = torch.nested.nested_tensor_from_jagged(torch.cat(values), ids.offsets())
        loss, metrics = ppo_loss(config, {"log_probs": nested}, data)
        losses.append(loss)
    return sum(losses), metrics


def exact_loss(model, old_model, samples=SAMPLES, *, clip=0.2):
    """The paper's loss: a success's ratio is that of its whole orbit's probability."""
    log_ratios = []
    for prompt, response, orbit in samples:
        members = orbit or (response,)
        new, old = (
            torch.stack([total(m, PROMPTS[prompt], member) for member in members]).logsumexp(0)
            for m in (model, old_model)
        )
        log_ratios.append(new - old.detach())
    values = rewards()[: len(samples)].view(-1, 4)
    advantages = values - (values.sum(1, keepdim=True) - values) / 3
    return clipped_loss(torch.stack(log_ratios).view(-1, 4), advantages, clip)


def gradient(model, loss):
    found = torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad])
    return torch.cat([g.flatten() for g in found])


def moved_model(model, size, seed=5):
    """Another policy: every parameter moved by noise of this size."""
    other = make_model()
    other.load_state_dict(model.state_dict())
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in other.parameters():
            p.add_(size * torch.randn(p.shape, generator=draw, dtype=p.dtype))
    return other
