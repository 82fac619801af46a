"""Two toy environments, and what a run trained on them has left."""

from __future__ import annotations

import json

from safetensors.torch import load_file

import toy_environment as toy

TWO_TOYS = {name: toy.THREE_TOYS[name] for name in ("toy-a", "toy-b")}


def trained(experiment):
    last = experiment / "runs" / "vcrt" / "toy-b" / "0" / "update-000003"
    return load_file(last / "weights.safetensors"), json.loads((last / "metrics.json").read_text())
