"""Run messages of several calls by a framework itself, as often as asked: the part that all frameworks share.

It uses nothing of `vcrt`, so that what it shows stands beside a replay as a second, independent answer.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

#: A call: the tool's name and its arguments.
Call: TypeAlias = tuple[str, Mapping[str, Any]]
#: Runs messages on a new state; returns the outputs of the last two calls, in the order of the calls, and the state.
Ran: TypeAlias = Callable[[Sequence[Sequence[Call]]], tuple[Sequence[str], str]]


def compared(ran: Ran, before: Sequence[Call], two: Sequence[Call], runs: int) -> dict[str, Any]:
    """Return what two calls give one after the other, in both orders, and in one message, with how often."""
    first, second = two
    alone = [[call] for call in before]
    outputs, state = ran([*alone, [first], [second]])
    swapped, swapped_state = ran([*alone, [second], [first]])
    seen = Counter(
        json.dumps([list(outputs), state])
        for outputs, state in (ran([*alone, two]) for _ in range(runs))
    )
    in_order = [list(outputs), state]
    return {
        "in_order": in_order,
        "swapped": [list(reversed(swapped)), swapped_state],
        "in_one_message": [[json.loads(each), count] for each, count in seen.most_common()],
        "as_in_order": seen[json.dumps(in_order)],
        "runs": runs,
    }


def main(rans: Mapping[str, Ran]) -> None:
    """Print, as JSON, what comes of the pairs that standard input lists: name, calls before, the two calls."""
    asked = json.load(sys.stdin)
    found = [
        compared(rans[asked["name"]], pair["before"], pair["two"], asked["runs"])
        for pair in asked["pairs"]
    ]
    print(json.dumps(found))
