"""Graphs of kernels where there is no GPU: the same operators again, on the same memory.

What a CUDA graph refuses, :class:`PretendedGraph` refuses too: reading a value, and whatever has a size that depends on
values. As there, nothing is computed while operators are captured: what they would give is not a number. No memory is
given to two tensors, so that a graph which reads what another one has overwritten is not found out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from pretended_device import tensors_in

_READ = {"aten::_local_scalar_dense", "aten::nonzero", "aten::_unique2", "aten::masked_select"}
_BY_MASK = {"aten::index", "aten::index_put", "aten::index_put_"}


class PretendedGraph(TorchDispatchMode):
    """One capture, and its replays."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, list[Tensor]]] = []
        self.num_replays = 0

    @contextmanager
    def warming(self) -> Iterator[None]:
        yield

    @contextmanager
    def capturing(self) -> Iterator[None]:
        with self:
            yield

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs, schema = kwargs or {}, function._schema
        by_mask = schema.name in _BY_MASK and any(
            isinstance(index, Tensor) and index.dtype == torch.bool for index in args[1]
        )
        if schema.name in _READ or by_mask:
            raise RuntimeError(f"operation not permitted when stream is capturing: {schema.name}")
        given = list(tensors_in((args, kwargs)))
        written = [
            value
            for argument, value in zip(schema.arguments, args, strict=False)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
        written += [
            kwargs[one.name] for one in schema.arguments if one.name in kwargs and one.is_out
        ]
        if written:
            # It would change what was there before the capture.
            self.calls.append((function, args, kwargs, []))
            return written[0] if schema.returns else None
        found = function(*args, **kwargs)
        memory = {one.untyped_storage().data_ptr() for one in given}
        made = [one for one in tensors_in(found) if one.untyped_storage().data_ptr() not in memory]
        for one in made:
            if one.is_floating_point():
                one.fill_(torch.nan)
        # A view is the same memory at each replay.
        if made or not list(tensors_in(found)):
            self.calls.append((function, args, kwargs, made))
        return found

    @torch.no_grad()
    def replay(self) -> None:
        self.num_replays += 1
        for function, args, kwargs, made in self.calls:
            found = function(*args, **kwargs)
            for old, new in zip(made, tensors_in(found) if made else (), strict=True):
                old.copy_(new)
