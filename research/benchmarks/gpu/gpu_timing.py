"""Time and memory of updates on a device that works behind Python's back."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import quantiles
from typing import Any

import torch


def synchronise(device: torch.device) -> None:
    """Wait until the device has done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def summary(seconds: list[float]) -> dict[str, Any]:
    """Median and quartiles in milliseconds."""
    lower, middle, upper = quantiles(seconds, n=4, method="inclusive")
    return {
        "median_ms": 1e3 * middle,
        "quartiles_ms": [1e3 * lower, 1e3 * upper],
        "updates": len(seconds),
    }


def measured(once: Callable[[], None], options: Any, device: torch.device) -> dict[str, Any]:
    """Time and peak memory of updates one by one, after a warm-up."""
    for _ in range(options.warm_up):
        once()
    synchronise(device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    seconds = []
    for _ in range(options.updates):
        began = time.perf_counter()
        once()
        synchronise(device)
        seconds.append(time.perf_counter() - began)
    return {**summary(seconds), "peak_memory_bytes": peak_memory(device)}


def peak_memory(device: torch.device) -> int | None:
    """The most bytes that tensors took since the last reset; None on a CPU."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None


class Stopwatch:
    """Seconds in the calls that it wraps, by label, with the device synchronised around each."""

    def __init__(self, device: torch.device) -> None:
        self.spent: dict[str, float] = {}
        self.device = device

    def around(self, label: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            synchronise(self.device)
            began = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                synchronise(self.device)
                self.spent[label] = self.spent.get(label, 0.0) + time.perf_counter() - began

        return call
