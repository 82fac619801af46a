"""What is needed of a task to score a policy's relations: each pair's, by replay, and probabilities of all orders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import torch

from vcrt.environments.contract import Environment, Episode, Operation, Provenance, ReplayRequest
from vcrt.orders import all_orders
from vcrt_research.relation_scores import LabelledPair
from vcrt_train.policy.text_scoring import score_texts


def pairs_of(name: str, row: Mapping[str, Any], environment: Environment) -> list[LabelledPair]:
    """Every pair of a task's steps, by a replay of every order."""
    task = row["task"]
    episode = Episode(
        environment=environment.name,
        schema=task["schema"],
        initial=task["initial"],
        operations=tuple(
            Operation(signature=signature, payload=payload)
            for _, payload, signature in task["steps"]
        ),
        provenance=Provenance(source=task["source"], generator="written task", seed=0),
    )
    orders = all_orders(episode.num_operations)
    ends = environment.replay([ReplayRequest(episode, order) for order in orders])
    works = [
        order
        for order, end in zip(orders, ends, strict=True)
        if end.terminal_hash == ends[0].terminal_hash
    ]
    found = []
    for first, second in combinations(range(episode.num_operations), 2):
        sides = {order.index(first) < order.index(second) for order in works}
        found.append(
            LabelledPair(
                episode_id=name,
                source=task["source"],
                first=first,
                second=second,
                kind="commutes" if len(sides) == 2 else "precedes",
                forward=None if len(sides) == 2 else sides.pop(),
            )
        )
    return found


@torch.no_grad()
def probabilities(
    model: Any, tokenizer: Any, rows: Sequence[Mapping[str, Any]]
) -> list[list[float]]:
    """By task, the probability of each order's text, the end token included, by column of ``all_orders``."""
    prompts = tokenizer([row["prompt"] for row in rows])["input_ids"]
    texts = []
    for row in rows:
        steps = [text for text, _, _ in row["task"]["steps"]]
        orders = ["\n".join(steps[place] for place in order) for order in all_orders(len(steps))]
        texts.append([[*ids, tokenizer.eos_token_id] for ids in tokenizer(orders)["input_ids"]])
    found = score_texts(model, prompts, texts, backend="tree")
    totals = [torch.stack([one.log_probs.double().sum() for one in some]) for some in found]
    return [torch.softmax(some, 0).tolist() for some in totals]
