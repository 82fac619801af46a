"""Replay the passes of an update as CUDA graphs, one for each shape of what the model is given.

An update of a small model on a GPU waits for Python, which launches thousands of kernels one after another. A graph
holds the kernels of a whole forward pass, or of a whole backward pass, and one call launches them all. Each of them
reads and writes the memory that it had when it was captured, so a graph serves one shape of inputs, which are copied
into its own. Whatever Python does between kernels is not repeated: what depends on values cannot be captured.

Objective and optimiser stay outside. Gradients are summed where the graphs have their memory; a parameter's ``grad`` is
that memory, until it is cleared. What cannot be captured is computed without a graph, and the reason is said once.
Source: ``torch.cuda.make_graphed_callables``, which copies the gradient of each parameter by a kernel of its own.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import Module, Parameter

from vcrt_train.policy.adapters import shared_dropouts
from vcrt_train.policy.causal_model import CausalModel, unwrapped
from vcrt_train.policy.kernels.switch import own_kernels_are_used

#: The most shapes of inputs that are captured: each holds the activations of a forward pass for as long as it lives.
MOST_SHAPES = 16
#: How often a function runs before it is captured: libraries choose their kernels, and reserve memory, in first calls.
_WARM = 3
#: The largest difference of values, as a share of their norm, between a graph and the same pass without it. Kernels are
#: the same, but some add in an order that varies.
_TOLERANCE = 1e-3

Function: TypeAlias = Callable[..., Tensor]
Key: TypeAlias = tuple[object, ...]


class Graph(Protocol):
    """What is computed once while it is captured, and again, on the same memory, by each replay."""

    def warming(self) -> AbstractContextManager[None]:
        """Run what will be captured."""

    def capturing(self) -> AbstractContextManager[None]:
        """Capture what is launched within."""

    def replay(self) -> None:
        """Launch it all again."""


class CudaGraph:
    """A graph of PyTorch's."""

    def __init__(self) -> None:
        self._graph = torch.cuda.CUDAGraph()
        self._stream = _stream()

    @contextmanager
    def warming(self) -> Iterator[None]:
        """Run on the stream of captures."""
        torch.cuda.synchronize()
        with torch.cuda.stream(self._stream):
            yield
        torch.cuda.synchronize()

    @contextmanager
    def capturing(self) -> Iterator[None]:
        """Capture, with memory of its own; what a failed capture leaves is put right as far as PyTorch allows."""
        before = torch.cuda.current_stream()
        try:
            with torch.cuda.graph(self._graph, stream=self._stream):
                yield
        finally:
            torch.cuda.set_stream(before)

    def replay(self) -> None:
        """Launch it on the current stream."""
        self._graph.replay()


@cache
def _stream() -> torch.cuda.Stream:
    """Return the stream of all captures."""
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]


def graphs_of(device: torch.device) -> Callable[[], Graph] | None:
    """Return what makes a graph on a device; None if it has none."""
    return CudaGraph if device.type == "cuda" else None


_NOW: ContextVar[Graphs | None] = ContextVar("graphs in use", default=None)


class Graphs:
    """The graphs of a model that is trained, by the shape of its inputs; they are used within :meth:`used`."""

    def __init__(self, model: CausalModel) -> None:
        self._model = model
        self._dropouts = shared_dropouts(model)
        self._tensors: list[Tensor] = []
        self._new_graph = graphs_of(unwrapped(model).device)
        self._seen = Counter[Key]()
        self._captured: dict[Key, _Captured] = {}
        self._refused: set[Key] = set()
        #: The error of a capture, after which none is tried again: it may have left the device in a doubtful state.
        self._failed: str | None = None
        self._said: set[str] = set()
        #: The sum of gradients of each parameter that is trained.
        self._sums: dict[Parameter, Tensor] = {}
        #: Where each parameter lies, and whether it is trained, as all graphs have it.
        self._found: list[tuple[int, bool]] = []

    @contextmanager
    def used(self) -> Iterator[None]:
        """Have :func:`through_graphs` use these graphs.

        Within it, gradients of parameters come from ``backward``: ``torch.autograd.grad`` would find none. Parameters
        are the same objects throughout.
        """
        self._tensors = [*self._model.parameters(), *self._model.buffers()]
        token = _NOW.set(self)
        try:
            yield
        finally:
            _NOW.reset(token)

    def run(self, function: Function, inputs: Sequence[Tensor]) -> Tensor:
        """Return ``function(*inputs)``, by a graph if there is one for these shapes and this state of the model."""
        masks = [None if one.mask is None else one.mask.data_ptr() for one in self._dropouts]
        shapes = ((each.shape, each.dtype) for each in inputs)
        # Casts of weights that are kept would be captured.
        is_cast = torch.is_autocast_enabled(unwrapped(self._model).device.type)
        key = (own_kernels_are_used(), is_cast, *masks, *shapes)
        self._require_same_memory()
        found = self._captured.get(key)
        if found is None and torch.is_grad_enabled() and key not in self._refused:
            self._seen[key] += 1
            # A shape that comes once is not worth it.
            if self._seen[key] > 1:
                found = self._capture(key, function, inputs)
        return function(*inputs) if found is None else found(inputs)

    def _capture(self, key: Key, function: Function, inputs: Sequence[Tensor]) -> _Captured | None:
        is_cast = key[1]
        reason = "autocast is on" if is_cast else self._obstacle()
        if reason is None:
            assert self._new_graph is not None
            try:
                self._captured[key] = _Captured(
                    self._model, function, inputs, self._sums, self._new_graph
                )
            except _Differs as error:
                reason = str(error)
            except RuntimeError as error:
                reason = self._failed = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        if reason is None:
            return self._captured[key]
        self._refused.add(key)
        if reason not in self._said:
            self._said.add(reason)
            warnings.warn(f"computed without a graph: {reason}", stacklevel=2)
        return None

    def _obstacle(self) -> str | None:
        """Return why nothing is captured, or None."""
        device = unwrapped(self._model).device
        if self._new_graph is None:
            return f"only CUDA has graphs, and the model is on {device.type}"
        if self._failed is not None:
            return self._failed
        is_divided = any(hasattr(one, "device_mesh") for one in self._tensors)
        if unwrapped(self._model) is not self._model or is_divided:
            return "the model is divided among processes"
        if any(one.device != device for one in self._tensors):
            return "the model lies on several devices"
        layers = self._model.modules()
        if any(getattr(layer, "gradient_checkpointing", False) is True for layer in layers):
            return "gradient checkpointing computes activations again"
        if len(self._captured) >= MOST_SHAPES:
            return f"there are more than {MOST_SHAPES} shapes of inputs"
        if not self._sums:
            trained = [one for one in self._model.parameters() if one.requires_grad]
            self._sums = {one: torch.zeros_like(one) for one in trained}
        return None

    def _require_same_memory(self) -> None:
        """Forget graphs whose parameters have moved, so that they would read what is no longer there, or are frozen."""
        found = [(each.data_ptr(), each.requires_grad) for each in self._tensors]
        if found != self._found:
            self._captured.clear()
            self._sums = {}
            self._found = found


class _Differs(Exception):
    """A graph gives other values than the passes that were captured in it."""


class _Pass(Module):
    """A function that runs a model, as a module whose parameters can be replaced."""

    def __init__(self, model: CausalModel, function: Function) -> None:
        super().__init__()
        self.model = model
        self._function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        return self._function(*inputs)


def _pass(
    model: CausalModel,
    function: Function,
    inputs: Sequence[Tensor],
    parameters: Sequence[Parameter],
) -> tuple[list[Tensor], Tensor]:
    """Return new leaves with the memory of these parameters, and what a function gives with them in their place.

    Autograd ties a leaf to the stream that first used it. Parameters were used on another stream than a capture's,
    which may not wait for that one.
    """
    names = {parameter: name for name, parameter in model.named_parameters()}
    leaves = [parameter.detach().requires_grad_() for parameter in parameters]
    places = [f"model.{names[parameter]}" for parameter in parameters]
    replaced = dict(zip(places, leaves, strict=True))
    found: Tensor = functional_call(_Pass(model, function), replaced, tuple(inputs))
    return leaves, found


class _Captured:
    """The graphs of both passes of a function of tensors, of which parameters alone have a gradient."""

    def __init__(
        self,
        model: CausalModel,
        function: Function,
        inputs: Sequence[Tensor],
        sums: dict[Parameter, Tensor],
        new_graph: Callable[[], Graph],
    ) -> None:
        # Copies that no caller writes to, and that are contiguous.
        self._inputs = [each.clone(memory_format=torch.contiguous_format) for each in inputs]
        self._forward, self._backward = new_graph(), new_graph()
        with torch.inference_mode(mode=False), torch.enable_grad():
            with self._forward.warming():
                for _ in range(_WARM):
                    expected, gradients = self._both(model, function, list(sums))
            used = [p for p, gradient in zip(sums, gradients, strict=True) if gradient is not None]
            self._sums = {p: sums[p] for p in used}
            with self._forward.capturing():
                leaves, output = _pass(model, function, self._inputs, used)
            self._output = output.detach()
            self._cotangent = torch.ones_like(self._output)
            with self._backward.capturing():
                found = torch.autograd.grad(output, leaves, self._cotangent)
                torch._foreach_add_(list(self._sums.values()), list(found))
        del output, leaves, found
        #: Where the backward pass begins in a caller's graph.
        self._leaf = torch.zeros(0, device=self._output.device, requires_grad=True)
        self.num_replays = 0
        self._check(expected, [one for one in gradients if one is not None])

    def _both(
        self, model: CausalModel, function: Function, parameters: Sequence[Parameter]
    ) -> tuple[Tensor, Sequence[Tensor | None]]:
        """Return the output, and the gradients of its sum."""
        leaves, output = _pass(model, function, self._inputs, parameters)
        ones = torch.ones_like(output)
        return output.detach(), torch.autograd.grad(output, leaves, ones, allow_unused=True)

    def __call__(self, inputs: Sequence[Tensor]) -> Tensor:
        """Return the function of other inputs of the same shapes, with its graph of gradients."""
        found: Tensor = _Replay.apply(self._leaf, self, *inputs)  # type: ignore[no-untyped-call]
        return found

    def replay_forward(self, inputs: Sequence[Tensor]) -> Tensor:
        """Compute the output of ``inputs``; the next replay changes no output that was returned."""
        for mine, given in zip(self._inputs, inputs, strict=True):
            mine.copy_(given)
        self._forward.replay()
        self.num_replays += 1
        return self._output.clone()

    def versions(self) -> list[int]:
        """Return how often each parameter was written to."""
        return [parameter._version for parameter in self._sums]

    @torch.no_grad()
    def replay_backward(self, cotangent: Tensor) -> None:
        """Add the gradients of the last forward pass to those of the parameters."""
        self._cotangent.copy_(cotangent)
        # Others were cleared since, or made without a graph.
        fresh = [(p, total) for p, total in self._sums.items() if not _are_same(p.grad, total)]
        kept = [(total, p.grad) for p, total in fresh if p.grad is not None]
        if fresh:
            torch._foreach_zero_([total for _, total in fresh])
        if kept:
            torch._foreach_add_([total for total, _ in kept], [grad for _, grad in kept])
        self._backward.replay()
        for parameter, total in fresh:
            parameter.grad = total

    @torch.no_grad()
    def _check(self, output: Tensor, gradients: Sequence[Tensor]) -> None:
        """Raise :class:`_Differs` if a replay differs from what was computed before the capture."""
        totals = list(self._sums.values())
        # They may be the gradients of an earlier part of this update.
        kept = [total.clone() for total in totals]
        try:
            torch._foreach_zero_(totals)
            self._forward.replay()
            self._backward.replay()
            are_close = _are_close([self._output], [output]) and _are_close(totals, gradients)
        finally:
            torch._foreach_copy_(totals, kept)
        if not are_close:
            raise _Differs("what was captured gives other values than without a graph")


def _are_close(found: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    """Whether each tensor is close to what is expected, beside its own norm or the usual one."""
    found, expected = ([each.float() for each in some] for some in (found, expected))
    gaps = torch.stack(torch._foreach_norm(torch._foreach_sub(found, expected)))
    norms = torch.stack(torch._foreach_norm(expected))
    bounds = _TOLERANCE * (norms + norms.square().mean().sqrt())
    return bool((gaps <= bounds).all() & norms.isfinite().all())


def _are_same(gradient: Tensor | None, total: Tensor) -> bool:
    return gradient is not None and gradient.data_ptr() == total.data_ptr()


class _Replay(torch.autograd.Function):
    """One use of :class:`_Captured`."""

    @staticmethod
    def forward(ctx: Any, leaf: Tensor, captured: _Captured, *inputs: Tensor) -> Tensor:
        found = captured.replay_forward(inputs)
        ctx.captured, ctx.number, ctx.versions = captured, captured.num_replays, captured.versions()
        return found

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, cotangent: Tensor) -> tuple[None, ...]:
        if ctx.number != ctx.captured.num_replays:
            raise RuntimeError("a graph was replayed between a forward pass and its backward pass")
        if ctx.versions != ctx.captured.versions():
            raise RuntimeError("a parameter changed between a forward pass and its backward pass")
        ctx.captured.replay_backward(cotangent)
        return (None,) * (2 + len(ctx.captured._inputs))


def through_graphs(model: CausalModel, function: Function, inputs: Sequence[Tensor]) -> Tensor:
    """Return ``function(*inputs)``, a pass of ``model``, by one of the graphs in use if they are this model's."""
    graphs = _NOW.get()
    if graphs is None or graphs._model is not model:
        return function(*inputs)
    return graphs.run(function, inputs)
