"""A second device where there is none: tensors of the processor's that refuse to be mixed with its others.

A GPU computes nothing from a tensor that lies on it and one that does not. :class:`PretendedDevice` keeps apart, by
their storage, the tensors that were put on a device that is only a name, and raises for what would raise there, so that
code for GPUs is run without one. What a backward pass does inside is not looked at, nor how much a device holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

#: A name that PyTorch knows and whose backend nothing here asks for.
DEVICE = torch.device("mps")
_READ = {
    Tensor.tolist,
    Tensor.item,
    Tensor.__bool__,
    Tensor.__float__,
    Tensor.__int__,
    Tensor.__repr__,
}
_NO_NUMPY = {Tensor.numpy, Tensor.__array__}
#: They move values from one device to another, or ask whether that can be.
_MOVE = {Tensor.copy_, torch._has_compatible_shallow_copy_type}
_BACKWARD = {Tensor.backward, torch.autograd.backward, torch.autograd.grad}
_INDEX = {Tensor.__getitem__, Tensor.__setitem__}


class DeviceError(AssertionError):
    """Something that a GPU would have refused."""


class PretendedDevice(TorchFunctionMode):
    """Within it, :data:`DEVICE` is a device that tensors can be put on."""

    #: Storages by address; they are kept, as the library keeps some tensors by their device, and so that no address is
    #: given to another one.
    storages: ClassVar[dict[int, Any]] = {}
    #: Tensors without an element, which have no address.
    empty: ClassVar[dict[int, Tensor]] = {}

    #: Whether anything was computed there.
    has_computed = False

    def holds(self, tensor: Tensor) -> bool:
        """Whether a tensor lies there."""
        storage = tensor.untyped_storage()
        if storage.nbytes() == 0:
            return id(tensor) in self.empty
        return storage.data_ptr() in self.storages

    def put(self, tensor: Tensor) -> Tensor:
        """Say that a tensor lies there."""
        storage = tensor.untyped_storage()
        if storage.nbytes() == 0:
            self.empty[id(tensor)] = tensor
        else:
            self.storages[storage.data_ptr()] = storage
        return tensor

    def place(self, model: torch.nn.Module) -> torch.nn.Module:
        """Put a model there."""
        for tensor in (*model.parameters(), *model.buffers()):
            self.put(tensor)
        return model

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if function == Tensor.device.__get__:
            return DEVICE if self.holds(args[0]) else function(*args)
        if function in (Tensor.is_cpu.__get__, Tensor.is_cuda.__get__):
            return self.holds(args[0]) == (function == Tensor.is_cuda.__get__)
        if function in (Tensor.cpu, Tensor.to):
            return self._moved(function, *args, **kwargs)
        if function in _NO_NUMPY and self.holds(args[0]):
            raise DeviceError("numpy reads tensors of the processor alone")
        if function in _READ or function in _BACKWARD or function == Tensor.grad.__get__:
            found = function(*args, **kwargs)
            there = any(self.holds(one) for one in tensors_in((args, kwargs)))
            if there and function not in _READ:
                for one in tensors_in(found):
                    self.put(one)
            return found
        named = torch.device(kwargs["device"]) if kwargs.get("device") is not None else None
        there = self._require_one_device(function, args, kwargs)
        if named == DEVICE:
            kwargs["device"] = "cpu"
        found = function(*args, **kwargs)
        self.has_computed |= there
        if function not in _MOVE and (there if named is None else named == DEVICE):
            for one in tensors_in(found):
                self.put(one)
        return found

    def _require_one_device(self, function: Any, args: Any, kwargs: dict[str, Any]) -> bool:
        generator = kwargs.get("generator")
        if function in _MOVE or function == Tensor.data.__set__:
            return self.holds(args[0])
        if function in _INDEX:
            # Places may be read from the processor.
            there = self.holds(args[0])
            if not there and any(map(self.holds, tensors_in(args[1]))):
                raise DeviceError("a tensor of the processor is indexed by one of the device")
            some = [one for one in tensors_in(args[2:]) if one.dim()]
            if any(self.holds(one) != there for one in some):
                raise DeviceError(f"{function.__name__} of tensors of two devices")
            return there
        some = list(tensors_in((args, kwargs)))
        there = any(map(self.holds, some))
        # A number goes with every device, but is not joined to what lies there.
        joined = function in (torch.cat, torch.stack)
        if there and not all(
            self.holds(one) or not (one.dim() or joined) or not one.numel() for one in some
        ):
            shapes = [(tuple(one.shape), self.holds(one)) for one in some]
            raise DeviceError(f"{getattr(function, '__name__', function)} of two devices: {shapes}")
        is_made_there = (
            kwargs.get("device") is not None and torch.device(kwargs["device"]) == DEVICE
        )
        if (there or is_made_there) and isinstance(generator, torch.Generator):
            raise DeviceError("a tensor of the device is drawn by a generator of the processor")
        return there

    def _moved(self, function: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        there = self.holds(tensor)
        target = torch.device("cpu") if function is Tensor.cpu else None
        if function is Tensor.to:
            wanted = [*args, *kwargs.values()]
            for one in wanted:
                if isinstance(one, Tensor):
                    target = DEVICE if self.holds(one) else torch.device("cpu")
                elif isinstance(one, (torch.device, str)):
                    target = torch.device(one)
            cast = [one for one in wanted if isinstance(one, torch.dtype)]
            cast += [one.dtype for one in wanted if isinstance(one, Tensor)]
            found = tensor.to(cast[0]) if cast else tensor
        else:
            found = tensor
        goes = there if target is None else target == DEVICE
        if (
            goes != there
            and found.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
        ):
            found = found.clone()
        return self.put(found) if goes else found


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors in arguments or results."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from tensors_in(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from tensors_in(one)
    elif isinstance(value, slice):
        yield from tensors_in((value.start, value.stop, value.step))
