"""Which orders of an episode of calls are legal, by replaying each from its own start."""

from itertools import permutations

from vcrt.environments.contract import ReplayRequest


def legal_orders(environment, episode):
    """The orders that end where the reference order does, with equal outputs of each call."""
    orders = list(permutations(range(episode.num_operations)))
    reference, *others = environment.replay([ReplayRequest(episode, order) for order in orders])
    assert reference.accepted
    assert len(reference.output_of) == episode.num_operations
    return {
        replay.sequence
        for replay in (reference, *others)
        if replay.terminal_hash == reference.terminal_hash
        and replay.output_of == reference.output_of
    }


def kept_pair(orders):
    """The only pair of calls that has one order in all of these; None if there is none or several."""
    pairs = [
        (one, other)
        for one, other in permutations(range(4), 2)
        if all(order.index(one) < order.index(other) for order in orders)
    ]
    return pairs[0] if len(pairs) == 1 else None
