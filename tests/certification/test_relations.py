"""Relations of pairs: what contexts must agree on."""

from __future__ import annotations

import pytest

from vcrt.certificates.certificates import (
    Certificate,
    PathEvidence,
    UncertifiedError,
    relation_graph,
)


def accepted(*operations):
    return PathEvidence(operations=operations, state_hashes=("a", "b"), rejection=None)


def refused(*operations):
    return PathEvidence(operations=operations, state_hashes=(), rejection="no")


def test_a_pair_whose_order_turns_names_who_comes_first_in_each_context():
    turning = [
        Certificate(context=(), context_hash="x", forward=accepted(0, 1), reverse=refused(1, 0)),
        Certificate(context=(2,), context_hash="y", forward=refused(0, 1), reverse=accepted(1, 0)),
    ]
    with pytest.raises(UncertifiedError) as found:
        relation_graph(3, turning)
    assert found.value.kind == "context_dependent"
    assert "operations (0, 1): precedes (0 first) after [], precedes (1 first) after [2]" in str(
        found.value
    )
