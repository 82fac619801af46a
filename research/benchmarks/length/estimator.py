"""The estimate of orbit mass against the exact one: bias and spread of masses and gradients, by operations and paths.

    python research/benchmarks/length/estimator.py --output research/benchmarks/results/estimator.json

Policies are random tables of logits after each *set* of operations, so that their exact masses are known for any
number of operations by dynamic programming, to which ``strength`` adds a preference for legal moves: 0 is an untrained
policy, 2 a half-trained one, 6 a trained one.
"""

from __future__ import annotations

import argparse
import json
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vcrt.orders import Order
from vcrt.partial_orders import PartialOrder, num_linear_extensions
from vcrt_train.config import Scheme
from vcrt_train.objective.orbit_mass import Masses, Paths, estimate_masses, path_terms
from vcrt_train.policy.order_sampling import Draw, sample_orders
from vcrt_train.training.legal_trees import moves_after

STRENGTHS = {"untrained": 0.0, "half-trained": 2.0, "trained": 6.0}
SCHEMES: tuple[Scheme, ...] = ("independent", "systematic")


@dataclass(frozen=True)
class SetPolicy:
    """Logits ``[2^n, n]`` of the next operation after each set of operations, and the legal moves there."""

    order: PartialOrder
    logits: Tensor
    used: Tensor
    legal: Tensor

    @property
    def choices(self) -> Tensor:
        """``[2^n, n]``: log-probabilities, ``-inf`` for operations that have run."""
        kept = self.logits.masked_fill(self.used, -torch.inf)
        # After everything there is no choice; any finite row will do.
        kept = torch.where(self.used.all(-1, keepdim=True), torch.zeros_like(kept), kept)
        return kept.log_softmax(-1)

    def exact_mass(self) -> Tensor:
        """``Z+``, differentiably: what is left to go, from the full set down to the empty one."""
        n = self.order.num_operations
        sizes = self.used.sum(-1)
        moves = self.choices.exp() * self.legal
        mass = (sizes == n).to(moves)
        numbers = torch.arange(2**n)
        after = numbers[:, None] | (1 << torch.arange(n))
        for size in range(n - 1, -1, -1):
            there = (sizes == size).nonzero()[:, 0]
            level = (moves[there] * mass[after[there]]).sum(-1)
            mass = mass.index_put((there,), level)
        return mass[0]

    def next_choices(self, prefixes: Any) -> list[Tensor]:
        """What ``sample_orders`` asks for."""
        choices = self.choices.detach()
        return [choices[[mask_of(prefix) for prefix in some]] for some in prefixes]


def mask_of(prefix: Order) -> int:
    """The set of a prefix's operations."""
    return sum(1 << operation for operation in prefix)


def policy(order: PartialOrder, seed: int, strength: float, scale: float = 1.0) -> SetPolicy:
    """A random policy with a preference for legal moves."""
    n = order.num_operations
    used = (torch.arange(2**n)[:, None] >> torch.arange(n)) & 1 == 1
    legal = moves_after(order, used)
    draw = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(2**n, n, generator=draw, dtype=torch.float64) + strength * legal
    return SetPolicy(order, logits, used, legal)


def a_poset(num_operations: int, num_pairs: int, seed: int) -> PartialOrder:
    """A partial order from that many random pairs of a random order of the operations."""
    draw = np.random.default_rng([seed, num_operations, num_pairs])
    names = draw.permutation(num_operations)
    every = [(a, b) for a in range(num_operations) for b in range(a + 1, num_operations)]
    chosen = draw.choice(len(every), num_pairs, replace=False)
    pairs = [(int(names[every[k][0]]), int(names[every[k][1]])) for k in chosen]
    return PartialOrder.of(num_operations, pairs)


def estimates(
    of: SetPolicy, num_paths: int, scheme: Scheme, *, repetitions: int, seed: int
) -> Masses:
    """Independent repetitions of an estimate, one a row; gradients reach the policy's logits."""
    n = of.order.num_operations
    (drawn,) = sample_orders(
        of.next_choices,
        [Draw(count=num_paths, scheme=scheme, within=[of.order] * repetitions)],
        num_prompts=repetitions,
        num_operations=n,
        generator=torch.Generator().manual_seed(seed),
    )
    sets = torch.tensor(
        [[mask_of(path[:t]) for path in some for t in range(n - 1)] for some in drawn]
    )
    slots = torch.tensor([[path[: n - 1] for path in some] for some in drawn])
    rows = torch.arange(num_paths * (n - 1)).reshape(1, num_paths, n - 1)
    terms = path_terms(
        of.choices[sets],
        of.legal[sets],
        of.used[sets],
        Paths(rows=rows.expand(repetitions, -1, -1), slots=slots),
    )
    return estimate_masses(terms, terms.log_q.detach())


def measured(of: SetPolicy, num_paths: int, scheme: Scheme, repetitions: int) -> dict[str, float]:
    """Bias and spread of one setting, and what the estimate says of its own error."""
    logits = of.logits.clone().requires_grad_()
    with_gradient = SetPolicy(of.order, logits, of.used, of.legal)
    exact = with_gradient.exact_mass()
    (of_log,) = torch.autograd.grad(exact.log(), logits, retain_graph=True)
    (of_mass,) = torch.autograd.grad(exact, logits)
    exact = exact.detach()
    found, parts = [], []
    size = 50
    for part in range(-(-repetitions // size)):
        masses = estimates(with_gradient, num_paths, scheme, repetitions=size, seed=part)
        mass = masses.log_inside.exp()
        gradients = [
            torch.autograd.grad(value / size, logits, retain_graph=True)[0]
            for value in (masses.log_inside.sum(), mass.sum())
        ]
        found.append(torch.stack([mass.detach(), masses.standard_error, masses.effective_paths]))
        parts.append(torch.stack(gradients))
    mass, error, effective = torch.cat(found, dim=1)
    mean, across = torch.stack(parts).mean(0), torch.stack(parts)
    noise = across.std(0).square().sum((-1, -2)).sqrt() / len(parts) ** 0.5

    def off(k: int, true: Tensor) -> dict[str, float]:
        return {
            "relative_bias": float((mean[k] - true).norm() / true.norm()),
            # What chance alone leaves of a mean over these repetitions.
            "noise": float(noise[k] / true.norm()),
            "relative_spread": float(noise[k] * (len(parts) * size) ** 0.5 / true.norm()),
        }

    return {
        "mass": float(exact),
        "bias_in_standard_errors": float((mass.mean() - exact) / (mass.std() / len(mass) ** 0.5)),
        "relative_standard_deviation": float(mass.std() / exact),
        "stated_relative_error": float(error.mean()),
        "bias_of_log": float(mass.log().mean() - exact.log()),
        "effective_paths": float(effective.mean()),
        "gradient_of_log": off(0, of_log),
        "gradient_of_mass": off(1, of_mass),
    }


def main() -> None:
    """Measure and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--operations", type=int, nargs="+", default=[4, 6, 8, 12])
    parser.add_argument("--paths", type=int, nargs="+", default=[2, 4, 8, 16, 32])
    options = parser.parse_args()
    torch.set_num_threads(1)
    cells = []
    for n in options.operations:
        for num_pairs in (1, 4 if n > 4 else 2):
            order = a_poset(n, num_pairs, seed=0)
            for name, strength in STRENGTHS.items():
                of = policy(order, seed=n, strength=strength)
                for scheme in SCHEMES:
                    for num_paths in options.paths:
                        cell = {
                            "operations": n,
                            "pairs": num_pairs,
                            "legal_orders": num_linear_extensions(order),
                            "policy": name,
                            "scheme": scheme,
                            "paths": num_paths,
                            **measured(of, num_paths, scheme, options.repetitions),
                        }
                        cells.append(cell)
                        print(json.dumps(cell), flush=True)
    result = {
        "machine": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "repetitions": options.repetitions,
        "cells": cells,
    }
    options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
