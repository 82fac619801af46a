"""A tiny random language model and synthetic supervised records, for the tests of training."""

from functools import cache, partial
from itertools import permutations

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from vcrt.orders import all_orders
from vcrt.records.policy_view import PointerRelation, PolicyRecord
from vcrt.records.supervision import SupervisedRecord
from vcrt_train.policy.tokenizer import embedded_tokenizer, encode_record
from vcrt_train.randomness import generator
from vcrt_train.training.update import update

# Models this small gain nothing from threads, and threads that wait for a busy core cost a factor of 30.
torch.set_num_threads(1)

TOKENIZER = embedded_tokenizer()
ENCODE = partial(encode_record, TOKENIZER)


def tiny_model(*, seed=0, width=32, dropout=0.0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(
            Qwen3Config(
                vocab_size=len(TOKENIZER),
                hidden_size=width,
                intermediate_size=2 * width,
                num_hidden_layers=2,
                num_attention_heads=2,
                num_key_value_heads=1,
                head_dim=width // 2,
                max_position_embeddings=128,
                tie_word_embeddings=True,
                attention_dropout=dropout,
                attn_implementation="sdpa",
            )
        )
    return model.eval()


@cache
def _answering_weights():
    """Weights after a short fit to emit any of the first four pointers, whatever the prompt says."""
    model = tiny_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    draw = torch.Generator().manual_seed(0)
    prompts = [
        ENCODE(record.record, "shuffled", generator(0, "fit", index))
        for index, record in enumerate(supervised_records(8))
    ]
    token_ids = torch.tensor([prompt.token_ids for prompt in prompts])
    pointer_ids = torch.tensor(prompts[0].pointer_ids)
    for _ in range(50):
        answers = pointer_ids[torch.rand(8, 4, generator=draw).argsort()]
        sequences = torch.cat([token_ids, answers], dim=1)
        logits = model(input_ids=sequences, use_cache=False).logits[:, -5:-1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), answers.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def answering_model(**settings):
    """A tiny model that has a chance of a well-formed answer in the tokens interface."""
    model = tiny_model(**settings)
    model.load_state_dict(_answering_weights())
    return model


def supervised_record(index, *, n=4):
    """Slot a precedes slot b, every other pair commutes; the orbit is every order with a before b."""
    draw = generator(0, "synthetic", index)
    a, b = (int(slot) for slot in draw.permutation(n)[:2])
    # The same pointers in all records: a tiny model learns in a moment which tokens an answer is made of.
    pointers = tuple(range(n))
    relations = [
        PointerRelation(i, j, "commutes")
        for i in range(n)
        for j in range(i + 1, n)
        if {i, j} != {a, b}
    ]
    histories = tuple(
        (ab, (*ab[:-2], ab[-1], ab[-2]))
        for length in range(2, n - 1)
        for ab in permutations(range(n), length)
        if ab[-2] < ab[-1] and (b not in ab or a in ab[:-2])
    )
    return SupervisedRecord(
        record=PolicyRecord(
            record_id=f"synthetic-{index}",
            pointers=pointers,
            relations=tuple(sorted([*relations, PointerRelation(a, b, "precedes")])),
        ),
        legal=tuple(order.index(a) < order.index(b) for order in all_orders(n)),
        histories=histories,
    )


def supervised_records(count, *, n=4):
    return [supervised_record(index, n=n) for index in range(count)]


def update_pairs(state, items, frozen, updates, *, method, config):
    """The metrics of that many updates, on two items each, in turn."""
    metrics = []
    for index in range(updates):
        pick = [(2 * index) % len(items), (2 * index + 1) % len(items)]
        metrics.append(
            update(
                state,
                [items[i] for i in pick],
                frozen[pick],
                method=method,
                config=config,
            )
        )
    return metrics


def weights(model):
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def same_tensors(left, right):
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)
