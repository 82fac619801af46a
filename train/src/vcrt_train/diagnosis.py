"""Tell ``vcrt doctor`` what training runs on: PyTorch, a GPU, and the embedded backbone."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

from vcrt.api.doctor import Finding


def findings() -> Iterator[Finding]:
    """Give the findings on PyTorch and on the backbone."""
    yield from _devices()
    yield from _backbone()


def _devices() -> Iterator[Finding]:
    import torch

    with warnings.catch_warnings(action="ignore"):
        is_usable = torch.cuda.is_available()
    if is_usable:
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        yield Finding(subject="PyTorch", found=f"{torch.__version__}, {', '.join(names)}")
        return
    found = f"{torch.__version__}, no usable GPU: models run on the CPU"
    yield Finding(subject="PyTorch", found=found)
    if not _has_card():
        return
    if torch.version.cuda is None:
        yield Finding(
            subject="PyTorch",
            found="there is an NVIDIA card, and this is a build of PyTorch without CUDA",
            status="absent",
            remedy="pip install --force-reinstall torch, from an index whose builds have CUDA: "
            "https://pytorch.org/get-started/locally",
        )
        return
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
        said = "PyTorch does not say why"
    # A driver that does not fit the library can cause an error of any type.
    except Exception as error:
        said = str(error).strip().partition("\n")[0]
    yield Finding(
        subject="PyTorch",
        found=f"there is an NVIDIA card, and PyTorch cannot use it: {said}",
        status="absent",
        remedy=f"update NVIDIA's driver to one for CUDA {torch.version.cuda}, or install a PyTorch for an older CUDA: "
        "https://pytorch.org/get-started/locally; in a container, look whether it was given the card",
    )


def _has_card(driver: Path = Path("/proc/driver/nvidia/version")) -> bool:
    """Return whether there are signs of an NVIDIA card, and the user has not hidden it."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return not hidden and (driver.exists() or shutil.which("nvidia-smi") is not None)


def _backbone() -> Iterator[Finding]:
    from vcrt_train.policy.backbone import load_backbone

    backbone = load_backbone()
    size = sum(parameter.numel() for parameter in backbone.model.parameters())
    found = f"{backbone.name}, {size:,} parameters, digest {backbone.digest[:12]} as locked"
    yield Finding(subject="backbone", found=found)
