"""Merkle trees against the test vectors of RFC 6962's reference implementation and against the definition itself."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcrt.records.sealing.statement import inclusion_proof, leaf_hash, root_from_proof, root_of

#: The leaves and roots of certificate-transparency's own tests, for the first 0 to 8 leaves.
LEAVES = [
    bytes.fromhex(text)
    for text in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = {
    0: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    1: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    2: "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    3: "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    8: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
}


def by_definition(leaves):
    """The tree's root as section 2.1 of RFC 6962 defines it."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    both = by_definition(leaves[:split]) + by_definition(leaves[split:])
    return hashlib.sha256(b"\x01" + both).digest()


@pytest.mark.parametrize("count", ROOTS)
def test_the_vectors_of_certificate_transparency(count):
    assert root_of([leaf_hash(leaf) for leaf in LEAVES[:count]]).hex() == ROOTS[count]


def test_every_size_up_to_70_and_every_proof():
    leaves = [leaf_hash(bytes([i])) for i in range(70)]
    for size in range(71):
        some = leaves[:size]
        root = root_of(some)
        assert root == by_definition(some)
        for index in range(size):
            proof = inclusion_proof(some, index)
            assert root_from_proof(some[index], index, size, proof) == root


@given(st.integers(1, 40), st.data())
def test_no_other_leaf_place_size_or_path_has_a_proof(size, data):
    leaves = [leaf_hash(bytes([i])) for i in range(size)]
    root = root_of(leaves)
    index = data.draw(st.integers(0, size - 1))
    proof = list(inclusion_proof(leaves, index))
    other = data.draw(st.integers(0, size + 2))
    if other != index:
        assert root_from_proof(leaves[index], other, size, proof) != root
    assert root_from_proof(leaf_hash(b"other"), index, size, proof) != root
    assert root_from_proof(leaves[index], index, size, [*proof, root]) is None
    if proof:
        assert root_from_proof(leaves[index], index, size, proof[:-1]) is None
        at = data.draw(st.integers(0, len(proof) - 1))
        proof[at] = bytes([proof[at][0] ^ 1]) + proof[at][1:]
        assert root_from_proof(leaves[index], index, size, proof) != root


def test_an_inner_node_is_no_leaf_and_there_is_no_leaf_outside():
    leaves = [leaf_hash(bytes([i])) for i in range(4)]
    inner = leaves[0] + leaves[1]
    assert leaf_hash(inner) != root_of(leaves[:2])
    assert root_from_proof(leaves[0], 4, 4, ()) is None
    with pytest.raises(IndexError):
        inclusion_proof(leaves, 4)
