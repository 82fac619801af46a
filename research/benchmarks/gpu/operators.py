"""What one update dispatches: operators, kernels, waits of the host for the device, and Python's time; on any machine.

    python research/benchmarks/gpu/operators.py --output research/benchmarks/results/operators.json

On a GPU, an update of a small model waits for Python, which launches one kernel after another. How many operators are
dispatched depends on the layers and not on their widths, so models have all layers of ``gpu_shapes.py`` and widths cut
to a few numbers, on the processor. Of each part of an update:

- ``operators``: all that PyTorch dispatches below autograd, backward passes too.
- ``kernels``: those of them that compute or copy: no views, no allocations. A GPU launches about as many; some that are
  one there are several here and the other way round (a normalisation; a sum over a large axis).
- ``waits``: where the host would wait until a GPU is done: it reads a value, or an index by a mask. ``waits_by_place``
  names the functions of vcrt that do. ``sent``: tensors that the host would send to a GPU. For both the model lies on a
  device that is only a name (``tests/support/pretended_device.py``).
- ``graphs``: with ``--scoring captured``, replays of graphs, each of a whole pass, whose kernels are not counted again.
  The graphs are only pretended (``tests/support/pretended_graphs.py``).
- ``milliseconds``: of the processor, medians over updates without any counting. With such widths nearly all of it is
  Python and dispatching, which is what a GPU waits for.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

sys.path.insert(0, str(Path(__file__).parents[3] / "tests" / "support"))

from gpu_prompts import random_items
from gpu_results import commit, machine, versions
from gpu_shapes import SHAPES, Shape, random_model
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import vcrt_train.policy.captured as captured
import vcrt_train.training.batch_scores
import vcrt_train.training.update
from pretended_device import PretendedDevice
from pretended_graphs import PretendedGraph
from vcrt_train.config import ResolvedConfig
from vcrt_train.config_files import load_config, settings_names
from vcrt_train.policy.adapters import with_adapters
from vcrt_train.training.items import EncodedItem
from vcrt_train.training.methods import method
from vcrt_train.training.orbit_masses import orbit_log_masses
from vcrt_train.training.update import TrainerState, new_state, update

#: Widths that change no operator.
NARROW = {
    "vocab_size": 4608,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
NARROW_RECURRENT = {
    "head_dim": 32,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
MODELS = ("smollm2-135m", "qwen3.5-2b", "granite-4.1-3b")
PROMPTS, LENGTHS, RANK = 2, (56, 60), 4
#: Functions of an update whose work is counted by itself; the rest of it is ``rest``.
PARTS = (
    (vcrt_train.training.update, "draw_trees", "trees"),
    (vcrt_train.training.update, "score_batch", "scores"),
    (vcrt_train.training.update, "freeze", "samples"),
    (vcrt_train.training.update, "objective", "objective"),
    (Tensor, "backward", "backward of the objective"),
    (vcrt_train.training.batch_scores.BatchScores, "pull_back", "backward of the model"),
    (vcrt_train.training.update, "_step", "optimiser"),
)
_ALLOCATE = ("aten::empty", "aten::new_empty", "aten::empty_like", "aten::empty_strided")
_NO_KERNEL = ("aten::detach", "aten::_unsafe_view", "aten::alias", "aten::lift_fresh", *_ALLOCATE)
#: They wait for a device whose tensor they are given.
_WAIT = {
    *(Tensor.tolist, Tensor.item, Tensor.__bool__, Tensor.__float__, Tensor.__int__, Tensor.cpu),
    *(torch.unique, torch.nonzero, Tensor.nonzero, torch.masked_select, torch.equal),
}
_BY_MASK = ("aten::index", "aten::index_put", "aten::index_put_")


@dataclass
class Count:
    """What one part of an update dispatched."""

    operators: int = 0
    kernels: int = 0
    waits: int = 0
    sent: int = 0
    graphs: int = 0


@dataclass
class Counts:
    """What an update dispatched, by part, and where in vcrt the host waited."""

    parts: dict[str, Count] = field(default_factory=dict)
    kernels: Counter[str] = field(default_factory=Counter)
    waits_by_place: Counter[str] = field(default_factory=Counter)
    part: str = "rest"
    #: Whether a graph is replayed.
    is_replaying: bool = False

    def here(self) -> Count:
        """The part that is running."""
        return self.parts.setdefault(self.part, Count())

    def wait(self) -> None:
        """The host reads a value."""
        self.here().waits += 1
        own = [f for f in traceback.extract_stack() if "/vcrt_train/" in f.filename]
        if own:
            place = own[-1].filename.split("/vcrt_train/")[-1]
            self.waits_by_place[f"{self.part}: {place}, {own[-1].name}"] += 1

    def total(self) -> Count:
        """The sums over parts."""
        parts = self.parts.values()
        return Count(
            operators=sum(part.operators for part in parts),
            kernels=sum(part.kernels for part in parts),
            waits=sum(part.waits for part in parts),
            sent=sum(part.sent for part in parts),
            graphs=sum(part.graphs for part in parts),
        )


class _Operators(TorchDispatchMode):
    def __init__(self, counts: Counts) -> None:
        super().__init__()
        self._counts = counts

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if self._counts.is_replaying:
            return function(*args, **(kwargs or {}))
        schema, here = function._schema, self._counts.here()
        here.operators += 1
        views = [
            kept.alias_info is not None and not kept.alias_info.is_write for kept in schema.returns
        ]
        if not any(views) and schema.name not in _NO_KERNEL:
            here.kernels += 1
            self._counts.kernels[schema.name] += 1
        if schema.name in _BY_MASK and any(
            isinstance(index, Tensor) and index.dtype == torch.bool for index in args[1]
        ):
            self._counts.wait()
        return function(*args, **(kwargs or {}))


class Device(PretendedDevice):
    """A device that is only a name; what makes the host wait for it is counted, and what it is sent."""

    counts = Counts()

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        moved = function is Tensor.to or function is Tensor.cpu
        is_there = bool(args) and isinstance(args[0], Tensor) and self.holds(args[0])
        if function in _WAIT and is_there:
            self.counts.wait()
        found = super().__torch_function__(function, types, args, kwargs)
        # PyTorch's own functions believe that all lies on the processor, and move it there.
        by_pytorch = "/torch/" in sys._getframe(1).f_code.co_filename
        if function is Tensor.to and is_there and not self.holds(found) and not by_pytorch:
            self.counts.wait()
        sent = moved and not is_there and self.holds(found)
        if sent or (function is torch.tensor and self.holds(found)):
            self.counts.here().sent += 1
        return found


@contextmanager
def counted_graphs(device: Device) -> Iterator[None]:
    """Within it, models on the pretended device have graphs, whose replays are counted."""

    class Graph(PretendedGraph):
        def replay(self) -> None:
            device.counts.here().graphs += 1
            device.counts.is_replaying = True
            # What it launches lies where it lay.
            try:
                with torch._C.DisableTorchFunction():
                    super().replay()
            finally:
                device.counts.is_replaying = False

    with patch.object(captured, "graphs_of", lambda _: Graph):
        yield


@contextmanager
def in_parts(around: Callable[[str, Callable[[], Any]], Any]) -> Iterator[None]:
    """Within it, each of :data:`PARTS` is called by ``around(its name, it)``."""

    def through(function: Callable[..., Any], name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: around(name, lambda: function(*args, **kwargs))

    with ExitStack() as stack:
        for owner, attribute, name in PARTS:
            wrapped = through(getattr(owner, attribute), name)
            stack.enter_context(patch.object(owner, attribute, wrapped))
        yield


def counted(one_update: Callable[[], object], device: Device) -> Counts:
    """What an update of a model on a pretended device dispatches."""
    counts = Counts()

    def around(name: str, call: Callable[[], Any]) -> Any:
        outer, counts.part = counts.part, name
        try:
            return call()
        finally:
            counts.part = outer

    device.counts = counts
    try:
        with in_parts(around), device, _Operators(counts):
            one_update()
    finally:
        device.counts = Counts()
    return counts


def timed(one_update: Callable[[], object], updates: int) -> dict[str, float]:
    """The medians of the processor's milliseconds in each part of an update, and in all of it."""
    spent: list[Counter[str]] = []

    def around(name: str, call: Callable[[], Any]) -> Any:
        began = time.process_time()
        try:
            return call()
        finally:
            spent[-1][name] += time.process_time() - began

    with in_parts(around):
        for _ in range(updates):
            spent.append(Counter())
            around("all", one_update)
    return {name: 1e3 * statistics.median(each[name] for each in spent) for name in spent[0]}


def narrow(shape: Shape) -> Shape:
    """The shape with all of its layers and small widths."""
    layers = {"num_hidden_layers": {**shape.published, **shape.assumed}["num_hidden_layers"]}
    widths = NARROW | (NARROW_RECURRENT if shape.kind == "qwen3_5_text" else {})
    return replace(shape, published={}, assumed={**widths, **layers, "tie_word_embeddings": True})


def prepared(
    name: str, device: Device | None = None, scoring: str = "auto"
) -> Callable[[], object]:
    """Updates of VCRT of a narrow model with adapters, one a call; on a pretended device if one is given."""
    torch.set_num_threads(1)
    settings = load_config(settings=name if name in settings_names() else MODELS[0]).resolved()
    model = random_model(narrow(SHAPES[name]), torch.float32, torch.device("cpu"))
    model = with_adapters(
        model, rank=RANK, scale=settings.adapter.scale, dropout=settings.adapter.dropout, seed=0
    )
    items = random_items(4, NARROW["vocab_size"], list(LENGTHS))
    if device is None:
        return updates_of(model, items, scoring)
    with device, counted_graphs(device):
        return updates_of(device.place(model), items, scoring)


def updates_of(model: Any, items: list[EncodedItem], scoring: str) -> Callable[[], object]:
    """Updates of a model on these items, turn by turn, one a call: 2 prompts, 8 samples, 2 epochs."""
    config: ResolvedConfig = load_config(
        overrides={
            "sampling.samples_per_prompt": 8,
            "schedule.epochs_per_update": 2,
            "model.scoring": scoring,
        }
    ).resolved()
    state: TrainerState = new_state(model, config, seed=0)
    frozen = orbit_log_masses(model, items, interface="pointers", batch_size=PROMPTS)

    def one_update() -> object:
        first = PROMPTS * state.update_index
        rows = [index % len(items) for index in range(first, first + PROMPTS)]
        some = [items[row] for row in rows]
        return update(state, some, frozen[rows], method=method("vcrt"), config=config)

    return one_update


def warm(one_update: Callable[[], object], device: Device | None = None) -> Callable[[], object]:
    """The same after two updates, which make what is kept."""
    with device or nullcontext():
        one_update()
        one_update()
    return one_update


def main() -> None:
    """Count and time each model; print a line a part, write all as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--scoring", default="auto", choices=["auto", "captured"])
    parser.add_argument("--updates", type=int, default=11, help="that are timed")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    found: dict[str, Any] = {
        "commit": commit(),
        "machine": machine(torch.device("cpu")),
        "versions": versions(),
    }
    for name in options.models:
        device = Device()
        counts = counted(warm(prepared(name, device, options.scoring), device), device)
        # There are no graphs on a processor to be timed.
        is_timed = options.scoring == "auto"
        times = timed(warm(prepared(name)), options.updates) if is_timed else {}
        total = counts.total()
        print(
            f"{name}: {total.operators:,} operators, {total.kernels:,} kernels, {total.waits} waits, "
            f"{total.sent} sent, {total.graphs} graphs, {times.get('all', 0):.0f} ms",
            flush=True,
        )
        for part, one in counts.parts.items():
            print(
                f"  {part}: {one.operators:,}, {one.kernels:,}, {one.waits}, {one.sent}, {times.get(part, 0):.0f} ms"
            )
        for place, number in counts.waits_by_place.most_common():
            print(f"    {number} waits in {place}")
        print("   ", ", ".join(f"{n} {k}" for k, n in counts.kernels.most_common(24)))
        found[name] = {
            "total": vars(total),
            "parts": {part: vars(one) for part, one in counts.parts.items()},
            "milliseconds": times,
            "kernels": dict(counts.kernels.most_common()),
            "waits_by_place": dict(counts.waits_by_place.most_common()),
        }
    if options.output:
        options.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
