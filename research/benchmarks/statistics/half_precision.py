"""How far the self-check's tolerance in bfloat16 is from sound scores and from wrong ones, on a real language model.

    python research/benchmarks/statistics/half_precision.py MODEL_FOLDER DATASET

The folder is locked (`vcrt backbone lock`). Each number of prompts of the dataset's records, both interfaces, and
logits 1, 2, 4 and 16 times as sharp as the model's own, as training makes them: how much of what the format costs the
tree differs by (``FORMAT_MULTIPLE`` of it are allowed), and whether two planted faults are refused: a mask that is
wrong in bfloat16 alone, and a layer that hands something from token to token. Some minutes of one core.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import vcrt
import vcrt_train
from vcrt.errors import BackboneError
from vcrt.storage import write_file
from vcrt_research.backbone_card import INTERFACES
from vcrt_train.policy import backends
from vcrt_train.policy.causal_model import CausalModel
from vcrt_train.policy.reference import backbone_reference
from vcrt_train.policy.self_check import FORMAT_MULTIPLE, LEAST_HALF_TOLERANCE, self_check
from vcrt_train.randomness import generator

RESULT = Path(__file__).parents[1] / "results" / "half_precision.json"
SHARPNESS = (1, 2, 4, 16)
PROMPTS = 4
#: A leak as small as the tests of tiny models plant: in bfloat16 it does not show, widened it does.
LEAK = 0.02


@contextmanager
def wrong_mask() -> Iterator[None]:
    """Every node sees all before it, in bfloat16 alone."""
    sound = backends.tree_mask

    def careless(lengths: Any, trees: Any, dtype: torch.dtype, device: Any) -> Tensor:
        mask = sound(lengths, trees, dtype, device)
        if dtype != torch.bfloat16:
            return mask
        size = mask.shape[-1]
        hidden = ~torch.ones(size, size, dtype=torch.bool).tril()
        return torch.zeros_like(mask).masked_fill(hidden, torch.finfo(dtype).min)

    backends.tree_mask = careless
    try:
        yield
    finally:
        backends.tree_mask = sound


@contextmanager
def leaking(model: CausalModel) -> Iterator[None]:
    """The first layer hands something from token to token, which the model's configuration does not say."""

    def leak(module: object, args: object, output: Tensor) -> Tensor:
        steps = torch.arange(1, output.shape[1] + 1)[:, None].to(output)
        return output + LEAK * output.cumsum(1) / steps

    handle = model.get_decoder().layers[0].register_forward_hook(leak)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def sharpened(model: CausalModel, factor: int) -> Iterator[None]:
    """Logits so many times as large: exact in bfloat16, whose numbers have an exponent of their own."""
    handle = model.get_output_embeddings().register_forward_hook(lambda *a: a[-1] * factor)
    try:
        yield
    finally:
        handle.remove()


def refused(check: Callable[[], object]) -> bool:
    """Whether the check refuses the model."""
    try:
        check()
    except BackboneError:
        return True
    return False


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--groups", type=int, default=5, help="how many groups of prompts")
    parser.add_argument("--output", type=Path, default=RESULT)
    chosen = parser.parse_args()
    backbone = vcrt_train.load_backbone(backbone_reference(str(chosen.model), dtype="bfloat16"))
    dataset = vcrt.open_dataset(chosen.dataset)
    records = [
        item.supervised.record
        for name in dataset.environments
        for item in vcrt.load_items(dataset, name)
    ]
    draw = generator(0, "half precision")
    picked = [records[i] for i in draw.permutation(len(records))[: PROMPTS * chosen.groups]]
    prompts = [backbone.encode(record, "shuffled", draw) for record in picked]
    rows: list[dict[str, Any]] = []
    for factor in SHARPNESS:
        for interface in INTERFACES:
            shares: list[float] = []
            refusals: list[str] = []
            checks, seen = 0, {"mask": 0, "leak": 0}
            for group in range(chosen.groups):
                checks += 1
                some = prompts[group * PROMPTS : (group + 1) * PROMPTS]

                def check(some: Any = some, interface: Any = interface) -> Any:
                    return self_check(backbone.model, some, interface=interface, gradients=False)

                with sharpened(backbone.model, factor):
                    try:
                        found = check()
                    except BackboneError as error:
                        refusals.append(f"{error.found}, expected {error.expected}")
                        continue
                    shares.append(found.own_format_difference / found.own_format_error)
                    with wrong_mask():
                        seen["mask"] += refused(check)
                    with leaking(backbone.model):
                        seen["leak"] += refused(check)
            rows.append(
                {
                    "sharpness": factor,
                    "interface": interface,
                    "checks": checks,
                    "sound_ones_refused": refusals,
                    "largest_share_of_the_formats_error": round(max(shares), 2) if shares else None,
                    "smallest_share": round(min(shares), 2) if shares else None,
                    "wrong_masks_refused": seen["mask"],
                    "leaks_refused": seen["leak"],
                }
            )
            print(json.dumps(rows[-1]), flush=True)
    result = {
        "model": backbone.name,
        "digest": backbone.digest,
        "torch": torch.__version__,
        "prompts_a_check": PROMPTS,
        "allowed_share": FORMAT_MULTIPLE,
        "allowed_in_any_case": LEAST_HALF_TOLERANCE,
        "rows": rows,
    }
    write_file(chosen.output, (json.dumps(result, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
