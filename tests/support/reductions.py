"""Reduce orders to their classes, by the definition: the oracle of the faster ways."""

from __future__ import annotations


def classes(orders, independent, stop=lambda order: len(order)):
    """The classes of ``orders`` under swaps of adjacent independent steps, each sorted; ``stop``: where swaps end."""
    remaining = set(orders)
    found = []
    while remaining:
        start = min(remaining)
        reached, frontier = {start}, [start]
        while frontier:
            order = frontier.pop()
            for k in range(stop(order) - 1):
                a, b = order[k : k + 2]
                swapped = (*order[:k], b, a, *order[k + 2 :])
                if independent(a, b) and swapped in remaining and swapped not in reached:
                    reached.add(swapped)
                    frontier.append(swapped)
        remaining -= reached
        found.append(sorted(reached))
    return found
