"""Register the trainer ``orbit_sync`` with verl: its synchronous trainer, whose actor learns from the rows of orbits.

Only the update of the actor differs: this trainer takes samples from the TransferQueue and expands them, the actor's
workers score members that were not drawn, and the rows return to the queue only for the update. Advantages, metrics and
everything else remain those of samples. verl imports this module if
``VERL_USE_EXTERNAL_MODULES=vcrt_train.integrations.verl.trainer`` is set.

A dataset's ``extra_info`` holds the certified responses of its prompt under ``orbit``, as texts or lists of token ids.
A sample is credited if its score is above 0 and its tokens are those of a member. Not covered: verl's asynchronous
trainers, tools, images, and old log-probabilities from the rollout (``bypass_mode``).

Source: verl's ``register_trainer`` and ``PPOTrainer._update_actor``, as of version 0.9.1.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from vcrt.errors import RunError, UnavailableError
from vcrt_train.integrations.orbit_credit import TokenIds, encode_completions, padded_tokens
from vcrt_train.integrations.verl.orbit_batch import GROUP, expand, sampled_members

try:
    import transfer_queue
    from verl.protocol import DataProto
    from verl.trainer.ppo.v1.trainer_base import register_trainer
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
    from verl.utils.model import compute_position_id_with_mask
    from verl.utils.tensordict_utils import list_of_dict_to_tensordict
    from verl.workers.utils.padding import response_from_nested
except ImportError as error:
    raise UnavailableError(
        "what verl's trainers import is not installed",
        found=str(error),
        expected="verl 0.9.1 with TransferQueue",
        remedy="install verl as its own documentation says, such as verl[vllm]",
    ) from error

#: The value of ``trainer.v1.trainer_mode`` for this trainer.
TRAINER = "orbit_sync"
ORBIT = "orbit"
#: The values of each token that are read from a sample; every sample has all but the last.
_OF_TOKENS = ("response_mask", "old_log_probs", "advantages", "rollout_is_weights")


@register_trainer(TRAINER)
class OrbitTrainer(PPOTrainerSync):  # type: ignore[misc]
    """verl's synchronous trainer, with the rows of orbits in each update of the actor."""

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        actor = self.config.actor_rollout_ref.actor
        given, repeats = actor.ppo_mini_batch_size, self.config.actor_rollout_ref.rollout.n
        # The optimiser makes as many steps as for the samples.
        num_steps = max(1, len(batch) // (given * repeats))
        expanded = self._expanded(batch, metrics, num_steps * self._rows_at_a_time(repeats))
        rows = self._put(expanded, batch)
        actor.ppo_mini_batch_size = len(rows) // (num_steps * repeats)
        try:
            super()._update_actor(rows, metrics)
        finally:
            actor.ppo_mini_batch_size = given
            transfer_queue.kv_clear(keys=rows.keys, partition_id=rows.partition_id)
        return batch

    def _rows_at_a_time(self, repeats: int) -> int:
        """Return a divisor of the number of rows of a step, because verl divides it by all of these factors."""
        actor = self.config.actor_rollout_ref.actor
        # The balancing of the batch filled this in.
        processes = max(self.actor_rollout_wg._dispatch_info["actor"]) + 1
        fixed = 1 if actor.use_dynamic_bsz else actor.ppo_micro_batch_size_per_gpu
        return math.lcm(repeats, processes * fixed)

    def _expanded(self, batch: Any, metrics: dict[str, Any], multiple_of: int) -> Any:
        if self.config.algorithm.get("rollout_correction", {}).get("bypass_mode", False):
            raise RunError(
                "the rollout gives no old log-probabilities for members of an orbit that were not drawn",
                found="algorithm.rollout_correction.bypass_mode=True",
                remedy="set algorithm.rollout_correction.bypass_mode=False",
            )
        tagged = zip(batch.keys, batch.tags, strict=True)
        keys = [key for key, tag in tagged if not tag.get("is_padding")]
        data = transfer_queue.kv_batch_get(keys=keys, partition_id=batch.partition_id)
        orbits = [self._encoded(extra) for extra in data["extra_info"]]
        longest = max((len(member) for orbit in orbits for member in orbit), default=1)
        samples = padded_samples(data, self.tokenizer.pad_token_id, longest)
        scores = torch.stack([row.sum() for row in data["rm_scores"].unbind()])
        successes = (scores > 0).cpu()
        members = sampled_members(samples, orbits).cpu()
        metrics["orbit/credited"] = float((successes & members).float().mean())
        metrics["orbit/missed"] = float((successes & ~members).float().mean())
        return expand(
            samples,
            orbits,
            successes & members,
            score=lambda rows: self._score(rows, batch),
            padding=self.tokenizer.pad_token_id,
            multiple_of=multiple_of,
        )

    def _encoded(self, extra: Mapping[str, Any]) -> tuple[TokenIds, ...]:
        return encode_completions(
            extra.get(ORBIT),
            column=f"extra_info.{ORBIT}",
            encode=lambda text: self.tokenizer(text, add_special_tokens=False)["input_ids"],
            end=self.tokenizer.eos_token_id,
            max_length=self.config.data.max_response_length,
        )

    def _score(self, rows: Any, batch: Any) -> Tensor:
        """Return ``[M, T]``: the rows' log-probabilities by the actor's workers, as verl computes the old ones."""
        asked = self._put(rows, batch)
        asked.extra_info.update(
            calculate_entropy=False,
            compute_loss=False,
            temperature=self.config.actor_rollout_ref.rollout.temperature,
        )
        try:
            self.actor_rollout_wg.compute_log_prob(asked)
            data = transfer_queue.kv_batch_get(
                keys=asked.keys,
                partition_id=asked.partition_id,
                select_fields=["log_probs", "response_mask"],
            )
        finally:
            transfer_queue.kv_clear(keys=asked.keys, partition_id=asked.partition_id)
        found = response_from_nested(data["log_probs"], data["response_mask"])
        return padded_tokens(found.unbind(), rows.batch["responses"].shape[1])

    def _put(self, rows: Any, batch: Any) -> Any:
        """Put rows into the TransferQueue under their own keys, beside the batch that they stand for."""
        fields, tags = row_fields(rows)
        mark = uuid.uuid4().hex
        keys = [f"orbit{mark}_{number}_0" for number in range(len(fields))]
        transfer_queue.kv_batch_put(
            keys=keys,
            partition_id=batch.partition_id,
            fields=list_of_dict_to_tensordict(fields),
            tags=tags,
        )
        return type(batch)(
            keys=keys,
            tags=tags,
            partition_id=batch.partition_id,
            extra_info=dict(batch.extra_info),
        )


def padded_samples(data: Any, padding: int, longest: int) -> Any:
    """Return samples of the TransferQueue as a ``DataProto`` that has room for rows of at least ``longest`` tokens."""
    prompts, responses = data["prompts"].unbind(), data["responses"].unbind()
    before = max(len(prompt) for prompt in prompts)
    width = max(longest, *(len(response) for response in responses))
    left = pad_sequence(list(prompts), batch_first=True, padding_value=padding, padding_side="left")
    right = padded_tokens(responses, width, padding)
    attention = torch.cat(
        [
            torch.tensor([[0] * (before - len(p)) + [1] * len(p) for p in prompts]),
            torch.tensor([[1] * len(r) + [0] * (width - len(r)) for r in responses]),
        ],
        dim=1,
    ).to(left)
    whole = {
        name: padded_tokens(data[name].unbind(), width)
        for name in _OF_TOKENS
        if name in data.keys()  # noqa: SIM118 - a TensorDict
    }
    return DataProto.from_dict(
        tensors={
            "prompts": left,
            "responses": right,
            "input_ids": torch.cat([left, right], dim=1),
            "attention_mask": attention,
            "position_ids": compute_position_id_with_mask(attention),
            **whole,
        },
        non_tensors={GROUP: np.array(list(data[GROUP]), dtype=object)},
    )


def row_fields(rows: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return fields and tags of the rows of a ``DataProto``, in the form of verl's agent loops; metrics ignore them."""
    tensors, fields, tags = rows.batch, [], []
    before = tensors["prompts"].shape[1]
    for row, group in enumerate(rows.non_tensor_batch[GROUP].tolist()):
        kept = tensors["attention_mask"][row].bool()
        first, second = kept[:before], kept[before:]
        field = {
            "prompts": tensors["prompts"][row][first],
            "responses": tensors["responses"][row][second],
            "input_ids": tensors["input_ids"][row][kept],
            "position_ids": tensors["position_ids"][row][kept],
            "response_mask": tensors["response_mask"][row][second],
            "loss_mask": tensors["response_mask"][row][second],
            "multi_modal_inputs": {},
            GROUP: group,
        }
        for name in ("old_log_probs", "advantages"):
            if name in tensors:
                field[name] = tensors[name][row][second]
        fields.append(field)
        sizes = {"prompt_len": int(first.sum()), "response_len": int(second.sum())}
        tags.append({"is_padding": True, **sizes, "seq_len": sum(sizes.values())})
    return fields, tags
