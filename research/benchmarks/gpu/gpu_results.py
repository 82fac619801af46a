"""The JSON of the GPU benchmark: machine, versions, commit, and parts that are written as soon as they are done."""

from __future__ import annotations

import gc
import json
import os
import platform
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import vcrt

LIBRARIES = ("torch", "transformers", "peft", "trl", "accelerate", "flash-linear-attention")


def machine(device: torch.device) -> dict[str, Any]:
    """What this ran on."""
    found: dict[str, Any] = {
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "device": str(device),
    }
    if device.type == "cuda":
        about = torch.cuda.get_device_properties(device)
        found |= {"gpu": about.name, "gpu_memory_bytes": about.total_memory}
        found |= {"cuda": torch.version.cuda}
    return found


def versions() -> dict[str, str | None]:
    """The versions of the libraries; None for one that is not installed."""
    found: dict[str, str | None] = {"vcrt": vcrt.__version__}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def commit() -> str:
    """The commit that this tree is at."""
    try:
        answer = subprocess.run(
            ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
        )
    except OSError:
        return "unknown"
    return answer.stdout.strip() or "unknown"


class Results:
    """The JSON, written whole after each part; models of earlier commands stay in it."""

    def __init__(self, place: Path | None, key: str) -> None:
        self.place, self.key = place, key
        self.all: dict[str, Any] = {}
        if place is not None and place.exists():
            self.all = json.loads(place.read_text(encoding="utf-8"))
        self.mine: dict[str, Any] = {}
        self.all[key] = self.mine

    def put(self, name: str, value: Any) -> None:
        """Add one part and write."""
        self.mine[name] = value
        print(json.dumps({name: value}, indent=2), flush=True)
        if self.place is None:
            return
        self.place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=self.place.parent, delete=False, encoding="utf-8"
        ) as file:
            file.write(json.dumps(self.all, indent=2) + "\n")
        os.chmod(file.name, 0o644)
        os.replace(file.name, self.place)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """A part that may fail by itself: what it raised is written in its place, and the rest goes on."""
        try:
            yield
        except Exception as error:
            self.put(name, {"failed": f"{type(error).__name__}: {error}"[:2000]})
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
