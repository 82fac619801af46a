"""What the GPU benchmark trains on: certified CLRS records as text, or random tokens of such lengths."""

from __future__ import annotations

import tempfile
from itertools import permutations
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from vcrt.orders import all_orders
from vcrt_train.policy.causal_model import Prompt
from vcrt_train.policy.record_text import ASK, INSTRUCTION, TextEncoder, TextForm, choose_pointers
from vcrt_train.training.items import EncodedItem, OrderList, encode_items
from vcrt_train.training.methods import method

OPERATIONS = 4


def certified_items(count: int, vocabulary: int) -> list[EncodedItem]:
    """Records of CLRS, certified now, as text for a tokenizer made on the spot."""
    # A machine lent for its GPU may not have what environments need.
    from vcrt.datasets.freezing import make_dataset
    from vcrt.records.dataset import load_items
    from vcrt.replay.config import sampled, select_schemas

    form = TextForm(tokenizer=byte_level_tokenizer(), style="plain")
    encode = TextEncoder(
        form=form, pointers=choose_pointers(form), num_embeddings=vocabulary, max_length=None
    )
    schemas = {name: some[:count] for name, some in select_schemas(("clrs",)).items()}
    each = {name: -(-count // len(some)) for name, some in schemas.items()}
    with tempfile.TemporaryDirectory() as folder:
        dataset = make_dataset(sampled(schemas, each, seed=0), Path(folder) / "dataset", jobs=1)
        records = [item.supervised for item in load_items(dataset, "clrs")]
    return encode_items(records[:count], method("vcrt"), seed=0, encode=encode)


def byte_level_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE that knows the fixed words of a record, and spaced letters, as real tokenizers do."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    lines = [INSTRUCTION, f"Steps: Relations: {ASK}", " r0; r1; r2; r3; r4;"] * 50
    lines += [f" {letter}" for letter in "ABCDEFGHIJKLMNOP"] * 50
    tokenizer.train_from_iterator(lines, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>")


def random_items(count: int, vocabulary: int, lengths: list[int]) -> list[EncodedItem]:
    """Random tokens of these lengths, turn by turn; one step precedes another and all else commutes."""
    draw = torch.Generator().manual_seed(0)
    legal = torch.tensor([o.index(0) < o.index(1) for o in all_orders(OPERATIONS)])
    swaps = tuple(
        (ab, ab[::-1])
        for ab in permutations(range(OPERATIONS), 2)
        if ab[0] < ab[1] and ab != (0, 1) and 1 not in ab
    )
    orbit = OrderList(members=legal, swaps=swaps)
    return [
        EncodedItem(
            record_id=f"random-{index}",
            prompt=Prompt(
                token_ids=tuple(
                    torch.randint(
                        10, vocabulary, (lengths[index % len(lengths)],), generator=draw
                    ).tolist()
                ),
                pointer_ids=tuple(range(2, 2 + OPERATIONS)),
            ),
            orbit=orbit,
            credit=orbit,
        )
        for index in range(count)
    ]
