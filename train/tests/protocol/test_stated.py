"""Relation records: the three forms in which they are read, and what is refused by name."""

from __future__ import annotations

import json
from itertools import combinations

import pytest

from vcrt.certificates.certificates import directed
from vcrt.documents import MAX_BYTES
from vcrt.errors import MalformedInputError
from vcrt.orders import linear_extensions
from vcrt_train.protocol.relation_records import read_relation_record, with_pointers

RECORD = {
    "operations": ["load", "clean", "sum", "plot"],
    "relations": [
        ["load", "sum", "precedes"],
        ["plot", "clean", "conflicts"],
        ["load", "plot", "commutes"],
    ],
}


def test_legal_orders_keep_every_required_pair():
    stated = read_relation_record(json.dumps(RECORD).encode(), "test")
    extensions = linear_extensions(len(stated.operations), directed(stated.relations))
    orders = [stated.names(order) for order in extensions]
    assert len(set(orders)) == 6
    for order in orders:
        assert order.index("load") < order.index("sum")
        assert order.index("plot") < order.index("clean")


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_pointers_rename_the_operations_and_nothing_else(seed):
    stated = read_relation_record(json.dumps(RECORD).encode(), "test")
    shown = with_pointers(stated, seed)
    assert shown == with_pointers(stated, seed)
    assert sorted(shown.slot_of_operation) == [0, 1, 2, 3]
    named = set()
    for relation in shown.record.relations:
        ends = stated.names(shown.operations((relation.first, relation.second)))
        named.add((frozenset(ends) if relation.kind == "commutes" else ends, relation.kind))
    assert named == {
        (("load", "sum"), "precedes"),
        (("plot", "clean"), "conflicts"),
        (frozenset(("load", "plot")), "commutes"),
    }
    assert len({with_pointers(stated, other).record.pointers for other in range(20)}) > 5


def lifted(*names, relation="commutes", before=None):
    """As `vcrt lift lean --json` prints it: h2 before h0, the pair of h0 and h1 as given."""
    pairs = [
        {"first": a, "second": b, "relation": "commutes", "before": None}
        for a, b in combinations(range(3), 2)
    ]
    pairs[0] |= {"relation": relation, "before": before}
    pairs[1] |= {"relation": "conflicts", "before": 2}
    steps = [{"label": f"h{n}", "text": "have", "line": n} for n in range(3)]
    theorems = [{"name": name, "line": 1, "steps": steps, "pairs": pairs} for name in names]
    return [{"file": "a.lean", "theorems": theorems, "refused": []}]


def test_a_lifted_theorem_keeps_its_directions():
    data = json.dumps(lifted("one", "two", relation="precedes", before=1)).encode()
    stated = read_relation_record(data, "test", theorem="two")
    kinds = [(*stated.names((r.first, r.second)), r.kind) for r in stated.relations]
    assert kinds == [
        ("h1", "h0", "precedes"), ("h1", "h2", "commutes"), ("h2", "h0", "conflicts")
    ]  # fmt: skip
    assert (
        read_relation_record(json.dumps(json.loads(data)[0]["theorems"][0]).encode(), "t") == stated
    )


@pytest.mark.parametrize(
    ("document", "theorem", "message"),
    [
        (lifted("one", "two"), None, "which theorem"),
        (lifted("one", "two"), "tow", "did you mean 'two'"),
        (lifted("one", "one"), "one", "which theorem"),
        (lifted(), None, "no theorem was judged"),
        (lifted("one", relation="depends on context"), None, "without one relation"),
        (lifted("one", relation="uncertified"), None, "nothing is certified"),
        (lifted("one", relation="precedes", before=2), None, "steps that are not there"),
        (RECORD, "one", "no theorems to choose from"),
    ],
)
def test_theorems_that_are_no_record_are_refused(document, theorem, message):
    with pytest.raises(ValueError, match=message):
        read_relation_record(json.dumps(document).encode(), "test", theorem=theorem)


def record_of(*relations, operations=("a", "b", "c")):
    return json.dumps({"operations": list(operations), "relations": list(relations)}).encode()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "found: nothing"),
        (b"{", "no JSON"),
        (b"\xff\xfe\x00", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b" " * (MAX_BYTES + 1), "more than 16,777,216 bytes"),
        (b"3", "not a relation record"),
        (b'{"operations": ["a", "b"], "operations": ["a"], "relations": []}', "twice"),
        (b'{"operations": ["a", "b"]}', "field relations"),
        (b'{"operations": ["a", 1], "relations": []}', "field operations.1"),
        (b'{"operations": ["a", "b"], "relations": [], "more": 1}', "field more"),
        (record_of(["a", "b"]), "field relations.0"),
        (record_of(["a", "b", "follows"]), "unknown kind"),
        (record_of(["a", "a", "precedes"]), "an operation with itself"),
        (record_of(["a", "b", "precedes"], ["b", "a", "commutes"]), "two relations for one pair"),
        (record_of(["a", "d", "precedes"]), "names an operation that is not there"),
        (
            record_of(["a", "b", "precedes"], ["b", "c", "conflicts"], ["c", "a", "precedes"]),
            "a cycle through 'a', 'b', 'c'",
        ),
        (record_of(operations=["a"]), "1 operation"),
        (record_of(operations=[f"step {n}" for n in range(65)]), "2 to 64"),
        (record_of(operations=["a", "b", "a"]), "two operations of one name"),
        (record_of(operations=["a", " "]), "a name that no operation can have"),
        (record_of(operations=["a", "b" * 201]), "a name that no operation can have"),
    ],
)
def test_what_is_no_record_is_refused_by_name(data, message):
    with pytest.raises(MalformedInputError) as refusal:
        read_relation_record(data, "given.json")
    assert message in str(refusal.value)
    assert "where: given.json" in str(refusal.value)
    assert len(str(refusal.value)) < 1500
