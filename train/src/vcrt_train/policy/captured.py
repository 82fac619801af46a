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
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

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

    @contextmanager
    def warming(self) -> Iterator[None]:
        """Run on a stream beside the usual one, as captures do."""
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
            yield
        torch.cuda.synchronize()

    @contextmanager
    def capturing(self) -> Iterator[None]:
        """Capture, with memory of its own."""
        with torch.cuda.graph(self._graph):
            yield

    def replay(self) -> None:
        """Launch it on the current stream."""
        self._graph.replay()


def graphs_of(device: torch.device) -> Callable[[], Graph] | None:
    """Return what makes a graph on a device; None if it has none."""
    return CudaGraph if device.type == "cuda" else None


_NOW: ContextVar[Graphs | None] = ContextVar("graphs in use", default=None)


class Graphs:
    """The graphs of a model that is trained, by the shape of its inputs; they are used within :meth:`used`."""

    def __init__(self, model: CausalModel) -> None:
        self._model = model
        self._dropouts = shared_dropouts(model)
        self._tensors = [*model.parameters(), *model.buffers()]
        self._new_graph = graphs_of(unwrapped(model).device)
        self._seen = Counter[Key]()
        self._captured: dict[Key, _Captured] = {}
        self._refused: set[Key] = set()
        self._said: set[str] = set()
        #: The sum of gradients of each parameter that is trained.
        self._sums: dict[Tensor, Tensor] = {}
        self._addresses: list[int] = []

    @contextmanager
    def used(self) -> Iterator[None]:
        """Have :func:`through_graphs` use these graphs."""
        token = _NOW.set(self)
        try:
            yield
        finally:
            _NOW.reset(token)

    def run(self, function: Function, inputs: Sequence[Tensor]) -> Tensor:
        """Return ``function(*inputs)``, by a graph if there is one for these shapes and this state of the model."""
        masks = [None if one.mask is None else one.mask.data_ptr() for one in self._dropouts]
        shapes = ((each.shape, each.dtype) for each in inputs)
        key = (own_kernels_are_used(), *masks, *shapes)
        self._require_same_memory()
        found = self._captured.get(key)
        if found is None and torch.is_grad_enabled() and key not in self._refused:
            self._seen[key] += 1
            # A shape that comes once is not worth it.
            if self._seen[key] > 1:
                found = self._capture(key, function, inputs)
        return function(*inputs) if found is None else found(inputs)

    def _capture(self, key: Key, function: Function, inputs: Sequence[Tensor]) -> _Captured | None:
        reason = self._obstacle()
        if reason is None:
            assert self._new_graph is not None
            try:
                self._captured[key] = _Captured(function, inputs, self._sums, self._new_graph)
            except (RuntimeError, _Differs) as error:
                reason = f"{type(error).__name__}: {str(error).splitlines()[0]}"
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
        if unwrapped(self._model) is not self._model:
            return f"{type(self._model).__name__} divides the model among processes"
        layers = self._model.modules()
        if any(getattr(layer, "gradient_checkpointing", False) is True for layer in layers):
            return "gradient checkpointing computes activations again"
        if len(self._captured) >= MOST_SHAPES:
            return f"there are more than {MOST_SHAPES} shapes of inputs"
        if not self._sums:
            trained = [one for one in self._tensors if one.requires_grad]
            self._sums = {one: torch.zeros_like(one) for one in trained}
        return None

    def _require_same_memory(self) -> None:
        """Forget graphs whose parameters have moved: they would read what is no longer there."""
        addresses = [each.data_ptr() for each in self._tensors]
        if addresses != self._addresses:
            self._captured.clear()
            self._addresses = addresses


class _Differs(Exception):
    """A graph gives other values than the passes that were captured in it."""


class _Captured:
    """The graphs of both passes of a function of tensors, of which parameters alone have a gradient."""

    def __init__(
        self,
        function: Function,
        inputs: Sequence[Tensor],
        sums: dict[Tensor, Tensor],
        new_graph: Callable[[], Graph],
    ) -> None:
        parameters = list(sums)
        # Copies that no caller writes to, and that are contiguous.
        self._inputs = [each.clone(memory_format=torch.contiguous_format) for each in inputs]
        self._forward, self._backward = new_graph(), new_graph()
        with torch.inference_mode(mode=False), torch.enable_grad():
            with self._forward.warming():
                for _ in range(_WARM):
                    output = function(*self._inputs)
                    ones = torch.ones_like(output)
                    gradients = torch.autograd.grad(output, parameters, ones, allow_unused=True)
            expected = output.detach(), gradients
            with self._forward.capturing():
                self._output = function(*self._inputs)
            self._cotangent = torch.ones_like(self._output)
            used = [one is not None for one in gradients]
            self._sums = {
                p: sums[p] for p, is_used in zip(parameters, used, strict=True) if is_used
            }
            with self._backward.capturing():
                found = torch.autograd.grad(self._output, list(self._sums), self._cotangent)
                torch._foreach_add_(list(self._sums.values()), list(found))
        #: Where the backward pass begins in a caller's graph.
        self._leaf = torch.zeros(0, device=self._output.device, requires_grad=True)
        self.num_replays = 0
        self._check(expected[0], [one for one in expected[1] if one is not None])

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
        return self._output.detach().clone()

    @torch.no_grad()
    def replay_backward(self, cotangent: Tensor) -> None:
        """Add the gradients of the last forward pass to those of the parameters."""
        self._cotangent.copy_(cotangent)
        # Others were cleared since, or made without a graph.
        fresh = [(p, total) for p, total in self._sums.items() if p.grad is not total]
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
        torch._foreach_zero_(totals)
        self._forward.replay()
        self._backward.replay()
        are_equal = _are_close([self._output.detach()], [output]) and _are_close(totals, gradients)
        torch._foreach_copy_(totals, kept)
        if not are_equal:
            raise _Differs("what was captured gives other values than without a graph")


def _are_close(found: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    gaps = torch._foreach_norm(torch._foreach_sub(list(found), list(expected)))
    norms = torch._foreach_norm(list(expected))
    return bool(torch.stack(gaps).norm() <= _TOLERANCE * torch.stack(norms).norm())


class _Replay(torch.autograd.Function):
    """One use of :class:`_Captured`."""

    @staticmethod
    def forward(ctx: Any, leaf: Tensor, captured: _Captured, *inputs: Tensor) -> Tensor:
        found = captured.replay_forward(inputs)
        ctx.captured, ctx.number = captured, captured.num_replays
        return found

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, cotangent: Tensor) -> tuple[None, ...]:
        if ctx.number != ctx.captured.num_replays:
            raise RuntimeError("a graph was replayed between a forward pass and its backward pass")
        ctx.captured.replay_backward(cotangent)
        return (None,) * (2 + len(ctx.captured._inputs))


def through_graphs(model: CausalModel, function: Function, inputs: Sequence[Tensor]) -> Tensor:
    """Return ``function(*inputs)``, a pass of ``model``, by one of the graphs in use if they are this model's."""
    graphs = _NOW.get()
    if graphs is None or graphs._model is not model:
        return function(*inputs)
    return graphs.run(function, inputs)
