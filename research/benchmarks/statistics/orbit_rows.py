"""How far the rows of orbits, which verl's loss sees, are from whole orbits once the policy has moved.

    python research/benchmarks/statistics/orbit_rows.py DATASET

The embedded backbone, writing orders as tokens, and batches of a dataset's records. On each batch AdamW takes steps on
the rows' loss, as verl would, or on the exact one, at several learning rates; before each step both losses are computed
at the same weights, with their gradients. All in double precision. Minutes of one core.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import vcrt
import vcrt_train
from vcrt.storage import write_file
from vcrt_train.integrations.orbit_rows import (
    OrbitRows,
    Sample,
    orbit_rows,
    row_advantages,
    row_weights,
)
from vcrt_train.objective.losses import clipped_loss, leave_one_out_advantage
from vcrt_train.policy.causal_model import Prompt
from vcrt_train.policy.reference import backbone_reference
from vcrt_train.policy.scoring import score_orders
from vcrt_train.randomness import generator

RESULT = Path(__file__).parents[1] / "results" / "orbit_rows.json"
RATES = (1e-5, 1e-4, 3e-4, 1e-3, 3e-3)
STEPS = 4
PROMPTS, SAMPLES, CLIP = 8, 8, 0.2


def events(model: Any, prompts: list[Prompt]) -> Tensor:
    """``[B, E]``: log-probabilities of all orders, and of answers that are none."""
    scores = score_orders(model, prompts, interface="tokens")
    assert scores.malformed_log_prob is not None
    return torch.cat([scores.order_log_probs, scores.malformed_log_prob[:, None]], dim=1)


class Batch:
    """Samples of the policy as it is, and both losses of them under another."""

    def __init__(self, model: Any, prompts: list[Prompt], legal: Tensor, number: int) -> None:
        self.prompts, self.legal = prompts, legal
        with torch.no_grad():
            self.old = events(model, prompts)
        draw = torch.Generator().manual_seed(number)
        self.drawn = torch.multinomial(self.old.exp(), SAMPLES, replacement=True, generator=draw)
        self.successes = legal.gather(1, self.drawn)
        self.advantages = leave_one_out_advantage(self.successes.double())
        orbits = [tuple((int(e),) for e in row.nonzero()) for row in legal]
        self.rows: OrbitRows = orbit_rows(
            [
                Sample(group=b, completion=(int(event),), orbit=orbits[b] if good else None)
                for b, (drawn, successes) in enumerate(zip(self.drawn, self.successes, strict=True))
                for event, good in zip(drawn, successes, strict=True)
            ]
        )
        self.places = (
            torch.tensor(self.rows.sources) // SAMPLES,
            torch.tensor([event for (event,) in self.rows.completions]),
        )
        weights = row_weights(self.rows, self.old[self.places])
        self.values = row_advantages(self.rows, self.advantages.flatten(), weights)

    def log_ratios(self, new: Tensor) -> Tensor:
        """``[B, G]``: the orbit's for successes."""
        mass, old = (x.masked_fill(~self.legal, -torch.inf).logsumexp(1) for x in (new, self.old))
        single = new.gather(1, self.drawn) - self.old.gather(1, self.drawn)
        return torch.where(self.successes, (mass - old)[:, None], single)

    def exact(self, new: Tensor) -> Tensor:
        """The loss whose ratios are those of whole orbits."""
        return clipped_loss(self.log_ratios(new), self.advantages, CLIP)

    def of_rows(self, new: Tensor) -> Tensor:
        """The same loss of rows, each with its own ratio; tests hold verl's loss to it."""
        log_ratios = (new - self.old)[self.places]
        return clipped_loss(log_ratios[None], self.values[None], CLIP)

    def clipped(self, new: Tensor) -> tuple[float, float]:
        """The shares of the credited samples whose ratio is above the clip: their orbits, and their rows by weight."""
        new = new.detach()
        credited = self.successes & (self.advantages > 0)
        orbits = (self.log_ratios(new).exp() > 1 + CLIP)[credited]
        over = ((new - self.old)[self.places].exp() > 1 + CLIP).double()
        shared = self.values.clamp(min=0) * (self.values > 0)
        return float(orbits.double().mean()), float((over * shared).sum() / shared.sum())


def gradient(model: Any, loss: Tensor) -> Tensor:
    found = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
    return torch.cat([part.flatten() for part in found])


def compared(ours: Tensor, theirs: Tensor) -> dict[str, float]:
    """The rows' gradient beside the exact one; nothing where the clip has stopped every sample of either."""
    if not ours.any() or not theirs.any():
        return {}
    return {
        "cosine": float(ours @ theirs / (ours.norm() * theirs.norm())),
        "relative_norm": float(theirs.norm() / ours.norm()),
        "relative_difference": float((theirs - ours).norm() / ours.norm()),
    }


def follow(model: Any, batch: Batch, rate: float, exact: bool) -> list[dict[str, float]]:
    """Both losses before each step of AdamW on one of them, as differences."""
    model = copy.deepcopy(model)
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
    found = []
    for _ in range(STEPS + 1):
        new = events(model, batch.prompts)
        whole, rows = batch.exact(new), batch.of_rows(new)
        ours, theirs = gradient(model, whole), gradient(model, rows)
        orbits, weight = batch.clipped(new)
        mass = new.detach().exp()[:, :-1].mul(batch.legal[:, :-1]).sum(1).mean()
        found.append(
            {
                "exact_loss": whole.item(),
                "loss_difference": (rows - whole).item(),
                **compared(ours, theirs),
                "orbits_above_the_clip": orbits,
                "rows_above_the_clip": weight,
                "mean_orbit_mass": float(mass),
            }
        )
        optimiser.zero_grad()
        (whole if exact else rows).backward()
        optimiser.step()
    return found


def rounded(value: float) -> float:
    return float(f"{value:.6g}")


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--output", type=Path, default=RESULT)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    backbone = vcrt_train.load_backbone(backbone_reference("embedded"))
    model = backbone.model.double()
    dataset = vcrt.open_dataset(chosen.dataset)
    records = [
        item.supervised for name in dataset.environments for item in vcrt.load_items(dataset, name)
    ]
    draw = generator(0, "orbit rows")
    runs: dict[tuple[float, bool], list[list[dict[str, float]]]] = {}
    for number in range(chosen.batches):
        picked = [records[i] for i in draw.permutation(len(records))[:PROMPTS]]
        prompts = [backbone.encode(record.record, "shuffled", draw) for record in picked]
        # The last event, an answer that is no order, is never legal.
        legal = torch.tensor([[*record.legal, False] for record in picked])
        batch = Batch(model, prompts, legal, number)
        for rate in RATES:
            for exact in (False, True):
                runs.setdefault((rate, exact), []).append(follow(model, batch, rate, exact))
        print(f"batch {number + 1} of {chosen.batches}", flush=True)
    rows = []
    for (rate, exact), batches in runs.items():
        for step in range(STEPS + 1):
            found = [batch[step] for batch in batches]
            names = dict.fromkeys(name for batch in found for name in batch)
            values = {name: [b[name] for b in found if name in b] for name in names}
            row: dict[str, Any] = {
                "learning_rate": rate,
                "trained_on": "orbits" if exact else "rows",
                "steps_taken": step,
                **{name: rounded(statistics.mean(each)) for name, each in values.items()},
                "least_loss_difference": rounded(min(values["loss_difference"])),
                "least_cosine": rounded(min(values["cosine"])),
                "largest_relative_difference": rounded(max(values["relative_difference"])),
                "batches_with_both_gradients": len(values["cosine"]),
            }
            rows.append(row)
            print(json.dumps(row), flush=True)
    result = {
        "backbone": backbone.name,
        "dataset": dataset.manifest.root_hash,
        "torch": torch.__version__,
        "batches": chosen.batches,
        "prompts": PROMPTS,
        "samples_per_prompt": SAMPLES,
        "clip": CLIP,
        "rows": rows,
    }
    write_file(chosen.output, (json.dumps(result, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
