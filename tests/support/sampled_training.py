"""Train a tiny model on records whose legal orders are drawn, not listed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from configs import resolved as config
from tabular_policy import random_order
from training_fixtures import ENCODE, tiny_model, update_pairs
from vcrt.records.policy_view import PointerRelation, PolicyRecord
from vcrt.records.supervision import PosetRecord
from vcrt_train.config import EstimatorConfig
from vcrt_train.training.items import encode_items
from vcrt_train.training.methods import method
from vcrt_train.training.orbit_masses import orbit_log_masses
from vcrt_train.training.update import new_state

EXACT = EstimatorConfig(max_legal_prefixes=100_000)


SAMPLED = EstimatorConfig(max_legal_prefixes=0, num_paths=16)


def poset_record(number, num_operations=6, share=0.2):
    """A record with the directed relations of a random partial order, and that order."""
    order = random_order(num_operations, number, share)
    draw = np.random.default_rng(number)
    pointers = tuple(sorted(int(p) for p in draw.permutation(8)[:num_operations]))
    relations = tuple(
        sorted(
            PointerRelation(a, b, str(draw.choice(["precedes", "conflicts"])))
            for a, b in order.pairs
        )
    )
    record = PolicyRecord(record_id=f"record {number}", pointers=pointers, relations=relations)
    return PosetRecord(record=record, order=order)


def records(count=4, **how):
    return [poset_record(number, **how) for number in range(count)]


def train(name, updates, *, estimate=EXACT, seed=0, rate=1e-3, some=None, **settings):
    chosen, model = method(name), tiny_model()
    items = encode_items(some or records(), chosen, seed=0, encode=ENCODE)
    frozen = orbit_log_masses(model, items, interface="pointers", config=estimate, seed=0)
    asked = replace(config(learning_rate=rate, **settings), estimator=estimate)
    state = new_state(model, asked, seed=seed)
    return state, update_pairs(state, items, frozen, updates, method=chosen, config=asked)
