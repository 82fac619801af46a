"""Episodes of Rocq for tests, and the mark of those that need it."""

from __future__ import annotations

import os
from itertools import permutations

import pytest

from vcrt.environments.contract import Episode, Operation, Provenance, ReplayRequest
from vcrt.errors import UnavailableError
from vcrt_rocq.schemas import LIBRARIES
from vcrt_rocq.toolchain import REMEDY, find_toolchain


def missing():
    """Whether there is no Rocq here, and none is required."""
    if os.environ.get("VCRT_ROCQ_TESTS") == "required":
        return False
    try:
        find_toolchain()
    except UnavailableError:
        return True
    return False


needs_rocq = pytest.mark.skipif(missing(), reason=f"no Rocq: {REMEDY}")


def episode(initial, *texts):
    return Episode(
        environment="rocq",
        schema="test",
        initial=initial,
        operations=tuple(Operation(signature=f"{n}", payload=t) for n, t in enumerate(texts)),
        provenance=Provenance(source="test", generator="test", seed=0),
    )


def proof(statement, *texts, opening=(), closing=(), before=(LIBRARIES,)):
    initial = {
        "form": "proof",
        "before": list(before),
        "statement": statement,
        "opening": list(opening),
        "closing": list(closing),
    }
    return episode(initial, *texts)


def declarations(*texts, before=(LIBRARIES,), probes=()):
    return episode({"form": "declarations", "before": list(before), "probes": list(probes)}, *texts)


def replayed(environment, one, *sequences):
    sequences = sequences or tuple(permutations(range(one.num_operations)))
    return environment.replay([ReplayRequest(one, sequence) for sequence in sequences])
