"""What one update has to compute and to move, counted from the model's own layers; and the floors that follow.

FLOPs: a multiplication and an addition are two. A linear layer of a frozen weight costs ``2 * in * out`` a token
forward and as much backward (the gradient of its input, no gradient of its weight), an adapter's twice as much
backward. What lies before the first adapter has no backward pass. Attention is counted whole, masked pairs too, and
backward twice its forward; the gated delta rule as the library computes it, in chunks of 64 with the padding that
takes; logits at the columns that are computed. Normalisations, activations, rotations, the objective and AdamW are not
counted: less than one percent.

Bytes: each weight is read once a forward and once a backward pass (a frozen weight's gradient is not written, an
adapter's is), once more where layers are checkpointed; each linear layer reads its input and writes its output, and as
much again backward (an adapter also reads its saved input); keys and values are read once for each row; AdamW reads
and writes weights, gradients and moments. What a perfect fusion would keep on the chip is counted: only layers are
taken apart, not what is inside them.

The memory floor is bytes over the device's bandwidth. The compute floor is FLOPs over its peak, each kind of number
format by its own peak: adapters are kept in float32 and multiplied in the model's format, the delta rule runs in
float32. Reached together they would take the larger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from vcrt_train.policy.backends import SHORTEST_TAIL
from vcrt_train.policy.causal_model import HALF, WIDE_VOCABULARY, CausalModel, Prompt, unwrapped
from vcrt_train.policy.prefix_tree import OrderTree

#: The library's chunk of the gated delta rule.
CHUNK = 64
#: Projections that read what the layer before them wrote: before the first adapter that has no gradient.
ENTRIES = frozenset({"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"})
ADAM_BYTES = 4 * (3 + 7)


@dataclass(frozen=True, kw_only=True)
class Peak:
    """A device's peaks as its maker gives them: dense, without sparsity."""

    half_tflops: float
    single_tflops: float
    bandwidth_tb_s: float


#: By what the device's name contains, the first that does. Source: NVIDIA's data sheets.
PEAKS: Mapping[str, Peak] = {
    "H200": Peak(half_tflops=989.4, single_tflops=66.9, bandwidth_tb_s=4.8),
    "H100 PCIe": Peak(half_tflops=756.0, single_tflops=51.2, bandwidth_tb_s=2.0),
    "H100": Peak(half_tflops=989.4, single_tflops=66.9, bandwidth_tb_s=3.35),
}


@dataclass(frozen=True, kw_only=True)
class Pass:
    """One run through the model: ``rows`` sequences of ``tokens`` behind ``cached`` ones, ``logits`` rows of logits.

    ``continued`` if another run begins with the states that this one ends with.
    """

    rows: int
    tokens: int
    cached: int
    logits: int
    continued: bool = False


def passes_of(prompts: Sequence[Prompt], tree: OrderTree, backend: str) -> list[Pass]:
    """The runs that scoring these prompts together takes."""
    lengths = [len(prompt.token_ids) for prompt in prompts]
    # Captured trees are padded behind, which is not counted: a floor is of what must be computed.
    if backend in ("tree", "captured"):
        size = max(lengths) + tree.num_rows - 1
        return [Pass(rows=len(lengths), tokens=size, cached=0, logits=len(lengths) * tree.num_rows)]
    width = len(tree.leaves)
    if backend == "naive":
        logits = width * tree.num_choices
        return [Pass(rows=width, tokens=n + tree.depth, cached=0, logits=logits) for n in lengths]
    found = []
    for length, count in Counter(lengths).items():
        found.append(
            Pass(rows=count, tokens=length, cached=0, logits=count, continued=tree.depth > 0)
        )
        if tree.depth:
            tail = max(tree.depth, SHORTEST_TAIL)
            nodes = count * (tree.num_rows - 1)
            found.append(Pass(rows=count * width, tokens=tail, cached=length, logits=nodes))
    return found


@dataclass(frozen=True, kw_only=True)
class Work:
    """FLOPs and bytes of one kind of work in one pass."""

    part: str
    #: ``half`` or ``single``: the number format that it is computed in.
    precision: str
    forward: float
    backward: float = 0.0
    forward_bytes: float = 0.0
    backward_bytes: float = 0.0


def work_of(model: CausalModel, one: Pass, columns: int) -> Iterator[Work]:
    """The work of one pass, layer by layer; ``columns`` of the output layer are computed if it is narrowed."""
    inner = unwrapped(model)
    config, head = inner.config.get_text_config(decoder=True), inner.get_output_embeddings()
    tokens = one.rows * one.tokens
    # The layer of the first adapter: nothing before it has a gradient, nor has what its first projections read.
    first_layer: list[str] | None = None
    for name, module in model.named_modules():
        layer, projection, adapter = _place(name)
        if module is head:
            yield _head(module, one.logits, columns)
        elif isinstance(module, torch.nn.Linear):
            if adapter and first_layer is None:
                first_layer = layer
            entry = projection in ENTRIES and layer == first_layer
            slope = adapter == "lora_B" or (first_layer is not None and not entry)
            activations = inner.dtype if adapter else module.weight.dtype
            yield _linear(module, tokens, activations, adapter=adapter is not None, slope=slope)
        elif projection == "self_attn":
            width = getattr(config, "head_dim", None)
            width = width or config.hidden_size // config.num_attention_heads
            seen = one.cached + one.tokens
            forward = 4.0 * one.rows * config.num_attention_heads * one.tokens * seen * width
            weight = next(module.parameters())
            size = weight.element_size()
            moved = 2.0 * one.rows * config.num_key_value_heads * seen * width * size
            yield Work(
                part="attention",
                precision=_precision(weight.dtype),
                forward=forward,
                backward=2 * forward,
                forward_bytes=moved,
                backward_bytes=2 * moved,
            )
        elif projection == "linear_attn":
            yield from _delta_rule(config, one, backward=first_layer is not None)


def _place(name: str) -> tuple[list[str], str, str | None]:
    """The layer of a module, its own name there, and which part of an adapter it is, if any."""
    path = name.split(".")
    adapter = next((part for part in path if part in ("lora_A", "lora_B")), None)
    if adapter:
        path = path[: path.index(adapter)]
    elif path[-1] == "base_layer":
        path = path[:-1]
    return path[:-1], path[-1], adapter


def _precision(dtype: torch.dtype) -> str:
    return "half" if dtype in HALF else "single"


def _linear(
    module: Any, tokens: int, activations: torch.dtype, *, adapter: bool, slope: bool
) -> Work:
    weight = module.weight
    forward = 2.0 * weight.numel() * tokens
    moved = float(module.in_features + module.out_features) * tokens * activations.itemsize
    read = float(weight.numel() * weight.element_size())
    times = slope + adapter
    return Work(
        part="adapters" if adapter else "linear",
        precision=_precision(activations),
        forward=forward,
        backward=forward * times,
        forward_bytes=moved + read,
        backward_bytes=times * (moved + read),
    )


def _head(head: Any, logits: int, columns: int) -> Work:
    half = head.weight.dtype in HALF
    narrow = columns and (half or head.out_features >= WIDE_VOCABULARY)
    out = columns if narrow else head.out_features
    forward = 2.0 * head.in_features * out * logits
    read = float(head.in_features * out * head.weight.element_size())
    return Work(
        part="head",
        precision="single" if narrow else _precision(head.weight.dtype),
        forward=forward,
        backward=forward,
        forward_bytes=read,
        backward_bytes=read,
    )


def _delta_rule(config: Any, one: Pass, *, backward: bool) -> Iterator[Work]:
    keys, values = config.linear_key_head_dim, config.linear_value_head_dim
    heads, tokens = config.linear_num_value_heads, one.rows * one.tokens
    chunks = one.rows * -(-one.tokens // CHUNK) * heads
    products = chunks * (2.0 * CHUNK**2 * (2 * keys + values) + 6.0 * CHUNK * keys * values)
    solves = float(chunks * CHUNK**2 * (keys + values))
    # An empty state has no gradient, nor has one that nothing reads: a product's two gradients less for each.
    without = (one.cached == 0) + (not one.continued)
    spared = without * one.rows * heads * 4.0 * CHUNK * keys * values
    state = 4.0 * one.rows * heads * keys * values
    channels = 2 * config.linear_num_key_heads * keys + heads * values
    convolution = 2.0 * config.linear_conv_kernel_dim * channels * tokens
    parts = {
        "delta rule": (products, 2 * products + 2 * solves - spared, state),
        "delta rule, triangular solves": (solves, solves, 0.0),
        "convolution": (convolution, convolution, 8.0 * channels * tokens),
    }
    for part, (forward, back, moved) in parts.items():
        yield Work(
            part=part,
            precision="single",
            forward=forward,
            backward=back * backward,
            forward_bytes=moved,
            backward_bytes=moved * backward,
        )


@dataclass(frozen=True, kw_only=True)
class Costs:
    """All FLOPs and bytes of an update, by part, and the tokens that went through the model forward."""

    flops: Mapping[str, float]
    flops_by_precision: Mapping[str, float]
    bytes: Mapping[str, float]
    tokens: int

    def floors(self, peak: Peak) -> dict[str, float]:
        """Milliseconds that the device's peaks allow at best; FLOPs, and FLOPs if all were in half precision."""
        half, single = (self.flops_by_precision.get(p, 0.0) for p in ("half", "single"))
        compute = 1e3 * (half / peak.half_tflops + single / peak.single_tflops) / 1e12
        memory = 1e3 * sum(self.bytes.values()) / (peak.bandwidth_tb_s * 1e12)
        return {
            "memory_ms": memory,
            "compute_ms": compute,
            "compute_if_all_half_ms": 1e3 * (half + single) / (peak.half_tflops * 1e12),
            "roofline_ms": max(memory, compute),
        }


def update_costs(
    model: CausalModel,
    prompts: Sequence[Prompt],
    tree: OrderTree,
    *,
    backend: str,
    epochs: int = 2,
    part_size: int | None = None,
    checkpointing: bool = False,
) -> Costs:
    """The costs of one update: ``epochs`` forward and backward passes, and as many steps of AdamW.

    In parts, prompts are scored once more, without gradient; checkpointed layers are run again by the backward pass.
    """
    size = part_size or len(prompts)
    groups = [prompts[start : start + size] for start in range(0, len(prompts), size)]
    forwards = 1 + (len(groups) > 1) + checkpointing
    flops: Counter[str] = Counter()
    formats: Counter[str] = Counter()
    moved: Counter[str] = Counter()
    tokens = 0
    for group in groups:
        columns = len({pointer for prompt in group for pointer in prompt.pointer_ids})
        for one in passes_of(group, tree, backend):
            tokens += epochs * one.rows * one.tokens * (1 + (len(groups) > 1))
            for work in work_of(model, one, 0 if backend == "naive" else columns):
                done = epochs * (forwards * work.forward + work.backward)
                flops[work.part] += done
                formats[work.precision] += done
                moved[work.part] += epochs * (forwards * work.forward_bytes + work.backward_bytes)
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    moved["AdamW"] = epochs * ADAM_BYTES * trained
    return Costs(flops=flops, flops_by_precision=formats, bytes=moved, tokens=tokens)
