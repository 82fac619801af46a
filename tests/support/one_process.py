"""Train, evaluate and search in the process of the test: a worker imports PyTorch and the model again, in 5 seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from vcrt_train.protocol import evaluation, planned_training, trials


def at_once(work, arguments, **options):
    """The results, as :func:`vcrt.processes.in_fresh_processes` gives them."""
    return map(work, arguments)


@contextmanager
def in_this_process() -> Iterator[None]:
    """Without worker processes, which train/tests/protocol/test_protocol.py and others have."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (evaluation, planned_training, trials):
            patch.setattr(module, "in_fresh_processes", at_once)
        yield
