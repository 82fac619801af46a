"""What an item asks of a policy, when it passes, and how often a random order would.

Read from ``num_operations`` and ``orbit_size`` of the dataset. Not covered: how an order is replayed and judged.
"""

from __future__ import annotations

import math

from vcrt.report.contents import ReportContents


def chance(contents: ReportContents) -> float:
    """The share of an episode's orders that pass, which is the pass rate of a random order."""
    return float(contents.dataset["orbit_size"]) / _num_orders(contents)


def chance_text(contents: ReportContents) -> str:
    """The chance as a percentage without needless decimals."""
    return f"{100 * chance(contents):.4g}%"


def task_text(contents: ReportContents) -> str:
    """What an item is, what the policy is given, when it passes, and what chance gives."""
    return (
        f"An item is an episode of {contents.dataset['num_operations']} steps from an environment that was not "
        "trained on. The policy is given only anonymous pointers and the certified relations, no text, and writes one "
        "order greedily. It passes if the verifier accepts that order and ends in the certified state; "
        f"{contents.dataset['orbit_size']} of {_num_orders(contents)} orders do, so a random order passes with "
        f"{chance_text(contents)}."
    )


def task_note(contents: ReportContents) -> str:
    """As :func:`task_text`, short enough for a table's note."""
    return (
        f"An item is a {contents.dataset['num_operations']}-step episode of the held-out environment; it passes if the "
        "verifier accepts the order and ends in the certified state. A random order passes with "
        f"{chance_text(contents)}."
    )


def _num_orders(contents: ReportContents) -> int:
    return math.factorial(int(contents.dataset["num_operations"]))
