"""Whether equal canonical states have equal futures, as far as an episode's own replays can tell.

A canonical form that forgets something gives two different states one hash; steps then seem to commute that do not.
Such an episode shows it when two prefixes, of the same operations or of others, give one hash and a continuation of
both fares differently. (Only where both or neither end the sequence by it: what belongs to the end, such as the check
of a finished proof, belongs to the last state.)
"""

from __future__ import annotations

from vcrt.certification.replay import EpisodeReplays
from vcrt.orders import Order

#: What a verifier answers to the operations after a prefix: the hash of the state that each led to, None if refused.
_Future = dict[Order, str | None]


def unequal_futures(evidence: EpisodeReplays) -> tuple[Order, Order, Order] | None:
    """Two accepted prefixes of equal hash and a continuation that they answer differently; None if there are none."""
    futures: dict[Order, _Future] = {}
    hashes: dict[Order, str] = {}
    for replay in evidence.replays:
        num_reached = len(replay.state_hashes)
        # Refused as a whole: the last hash is not of an accepted state.
        if not replay.accepted and num_reached > len(replay.sequence):
            num_reached -= 1
        for length in range(num_reached):
            prefix = replay.sequence[:length]
            hashes[prefix] = replay.state_hashes[length]
            future = futures.setdefault(prefix, {})
            for end in range(length + 1, min(num_reached + 1, len(replay.sequence) + 1)):
                reached = replay.state_hashes[end] if end < num_reached else None
                future[replay.sequence[length:end]] = reached
    num_operations = evidence.episode.num_operations
    known: dict[tuple[str, Order, bool], tuple[str | None, Order]] = {}
    for prefix in sorted(futures, key=lambda order: (len(order), order)):
        for tail, reached in futures[prefix].items():
            ends = len(prefix) + len(tail) == num_operations
            before, twin = known.setdefault((hashes[prefix], tail, ends), (reached, prefix))
            if before != reached:
                return twin, prefix, tail
    return None
