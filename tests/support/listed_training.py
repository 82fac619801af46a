"""Train a tiny model on records of four operations."""

from __future__ import annotations

from configs import resolved as config
from training_fixtures import (
    ENCODE,
    supervised_records,
    tiny_model,
    update_pairs,
)
from vcrt_train.training.items import encode_items
from vcrt_train.training.methods import method
from vcrt_train.training.orbit_masses import orbit_log_masses
from vcrt_train.training.update import (
    new_state,
)


def train(name, updates, *, seed=0, rate=1e-3, records=None, model=None, chosen=None, **settings):
    """``updates`` updates on pairs of records; returns the state and the metrics."""
    chosen = chosen or method(name)
    model = model or tiny_model()
    items = encode_items(records or supervised_records(6), chosen, seed=seed, encode=ENCODE)
    frozen = orbit_log_masses(model, items, interface=chosen.interface)
    asked = config(learning_rate=rate, **settings)
    state = new_state(model, asked, seed=seed)
    return state, update_pairs(state, items, frozen, updates, method=chosen, config=asked)
