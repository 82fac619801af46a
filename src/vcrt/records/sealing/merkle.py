"""Compute roots and inclusion proofs of Merkle trees over byte strings, as RFC 6962 and RFC 9162 define them.

Leaves and inner nodes are hashed under different prefixes, so that no inner node can be passed off as a leaf. A tree of
n leaves is split at the largest power of two below n. Digests are 32 bytes of SHA-256.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

_LEAF, _NODE = b"\x00", b"\x01"


def leaf_hash(data: bytes) -> bytes:
    """The hash of a leaf."""
    return hashlib.sha256(_LEAF + data).digest()


def root_of(leaves: Sequence[bytes]) -> bytes:
    """The root over leaves' hashes, in their order; that of no leaves is the SHA-256 of nothing."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    level = list(leaves)
    # Pairing neighbours, an odd last one carried up, gives the same tree as splitting at powers of two.
    while len(level) > 1:
        pairs = [_node(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
        level = pairs + level[len(level) - len(level) % 2 :]
    return level[0]


def inclusion_proof(leaves: Sequence[bytes], index: int) -> tuple[bytes, ...]:
    """The hashes beside the path from leaf ``index`` up to the root, lowest first.

    Raises ``IndexError`` if there is no such leaf.
    """
    if not 0 <= index < len(leaves):
        raise IndexError(f"no leaf {index} among {len(leaves)}")
    path = []
    level = list(leaves)
    while len(level) > 1:
        beside = index ^ 1
        if beside < len(level):
            path.append(level[beside])
        pairs = [_node(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
        level = pairs + level[len(level) - len(level) % 2 :]
        index //= 2
    return tuple(path)


def root_from_proof(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes | None:
    """The root that a proof leads to from a leaf's hash; None if a proof of another length belongs to that place.

    ``index`` and ``size`` are the leaf's place and the number of leaves. Source: RFC 9162, section 2.1.3.2.
    """
    if not 0 <= index < size:
        return None
    reached, last, remaining = leaf, size - 1, list(path)
    while last:
        if index % 2 or index != last:
            if not remaining:
                return None
            beside = remaining.pop(0)
            reached = _node(beside, reached) if index % 2 else _node(reached, beside)
        index, last = index // 2, last // 2
    return None if remaining else reached


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(_NODE + left + right).digest()
