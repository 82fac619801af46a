"""Define how each embedded backbone is made: its architecture, what it reads, for how long, and what its card says.

Not covered: the pretraining itself (:mod:`vcrt_research.pretraining`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from transformers import Qwen3Config

from vcrt.hashing import Json
from vcrt.records.policy_view import LARGEST_POOL, POINTER_POOL
from vcrt_research.backbone_card import measure_backbone
from vcrt_research.long_backbone_card import measure_long_backbone
from vcrt_research.pretraining_data import Example, random_batch
from vcrt_research.pretraining_long_data import TOKENS_PER_BATCH, long_batch
from vcrt_train.config import EMBEDDED_LONG_NAME, EMBEDDED_NAME

QUESTION_SHARE = 0.8

#: Draws a batch of a size, with a ``question_share``, at a ``share`` (0 to 1) of the pretraining.
DrawBatch: TypeAlias = Callable[..., list[Example]]
#: Measures a model with its tokenizer for its card, from a ``seed``, on ``num_records`` a cell.
Measure: TypeAlias = Callable[..., dict[str, Json]]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All that a pretraining depends on, but library versions."""

    name: str
    #: Chosen by look-up accuracy alone.
    seed: int
    steps: int
    #: What ``batch_size`` counts, and how the card calls it.
    batch_unit: str
    batch_size: int
    learning_rate: float
    #: Weight of a record's own tokens in the loss; answers weigh 1.
    record_weight: float
    num_pointers: int
    #: The architecture, for a size of the vocabulary.
    config: Callable[[int], Qwen3Config]
    batch: DrawBatch
    measure: Measure
    #: Fresh records in each cell of the card.
    num_card_records: int


def embedded_config(
    vocabulary_size: int, *, hidden_size: int = 64, max_position_embeddings: int = 512
) -> Qwen3Config:
    """The architecture of the embedded backbones: about 150,000 parameters at a width of 64.

    Heads are wide and rotate slowly, because a look-up has to match two pointers at any distance.
    """
    return Qwen3Config(
        vocab_size=vocabulary_size,
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=max_position_embeddings,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=None,
    )


#: Records of up to six operations. Seed 0 answers 85% of one question about shuffled records, seed 1 all.
SHORT = Recipe(
    name=EMBEDDED_NAME,
    seed=1,
    steps=3500,
    batch_unit="batch_size",
    batch_size=32,
    learning_rate=4e-3,
    record_weight=0.1,
    num_pointers=POINTER_POOL,
    config=embedded_config,
    batch=random_batch,
    measure=measure_backbone,
    num_card_records=400,
)
#: Records of up to 64 operations.
LONG = Recipe(
    name=EMBEDDED_LONG_NAME,
    seed=0,
    steps=8000,
    batch_unit="tokens_per_batch",
    batch_size=TOKENS_PER_BATCH,
    learning_rate=4e-3,
    record_weight=0.03,
    num_pointers=LARGEST_POOL,
    config=partial(embedded_config, max_position_embeddings=1024),
    batch=long_batch,
    measure=measure_long_backbone,
    num_card_records=200,
)
RECIPES: Mapping[str, Recipe] = {recipe.name: recipe for recipe in (SHORT, LONG)}
