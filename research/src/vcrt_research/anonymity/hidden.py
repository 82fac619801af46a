"""Read a record as the backbone's hidden states: what a policy that starts from the backbone could have read already.

The states of all layers after the prompt in its sorted serialisation, at the last token or averaged over tokens. A
question about an order is put by renaming, as for words, the first place being the first pointer of the pool. Not
covered: states of a trained policy, and of language models, which may read relations in words; the embedded backbones
read opaque names.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from vcrt.records.policy_view import POINTER_TOKENS
from vcrt_research.anonymity.result import HiddenView
from vcrt_research.anonymity.tasks import Task
from vcrt_research.anonymity.views import prompt_words
from vcrt_train.policy.backbone import Backbone
from vcrt_train.policy.tokenizer import token_ids
from vcrt_train.randomness import generator

HIDDEN_VIEWS: tuple[HiddenView, ...] = ("hidden state, last token", "hidden state, mean")

BATCH_SIZE = 256
#: A place in the order that is asked about becomes a pointer that the backbone knows.
_PLACES = {f"q{place}": pointer for place, pointer in enumerate(POINTER_TOKENS)}


def hidden_features(
    task: Task, backbone: Backbone, seed: int
) -> dict[HiddenView, npt.NDArray[np.float64]]:
    """``[n, layers * width]`` for each way of pooling."""
    prompts = []
    for record, question in zip(task.records, task.questions, strict=True):
        draw = generator(seed, "probe", "hidden state", record.record_id)
        words = prompt_words(record, "sorted", question, task.shows_relations, draw)
        prompts.append(token_ids(backbone.tokenizer, [_PLACES.get(word, word) for word in words]))
    last, mean = _pooled_states(backbone, prompts)
    return {HIDDEN_VIEWS[0]: last, HIDDEN_VIEWS[1]: mean}


@torch.no_grad()
def _pooled_states(
    backbone: Backbone, prompts: Sequence[tuple[int, ...]]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    pooled: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    # Prompts of one length go together, so that nothing is padded.
    by_length = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    start = 0
    while start < len(by_length):
        length = len(prompts[by_length[start]])
        batch = [i for i in by_length[start : start + BATCH_SIZE] if len(prompts[i]) == length]
        start += len(batch)
        states = backbone.model(
            input_ids=torch.tensor([prompts[i] for i in batch]),
            output_hidden_states=True,
            use_cache=False,
            logits_to_keep=1,
        ).hidden_states
        layers = torch.cat(states, dim=-1)
        for row, i in enumerate(batch):
            pooled[i] = layers[row, -1], layers[row].mean(0)
    pairs = [pooled[i] for i in range(len(prompts))]
    last, mean = (torch.stack(part).double().numpy() for part in zip(*pairs, strict=True))
    return last, mean
