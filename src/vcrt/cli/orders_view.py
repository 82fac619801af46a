"""How ``vcrt lift`` prints what was found about the steps of one episode, for any number of steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from vcrt.certification.pairs import OrdersReport

#: Text of a user's own is printed as it is.
PLAIN: dict[str, Any] = {"highlight": False, "markup": False, "soft_wrap": True}
#: Where the numbers of legal orders come from.
MERGED = (
    "The numbers of orders come from merged replay: orders that reach equal states by the same steps are continued "
    "once for all of them."
)


def print_orders(console: Console, report: OrdersReport, labels: Sequence[str]) -> None:
    """Print the number of legal orders and the relation of every pair of steps, which go by their labels."""
    line = f"{report.num_legal} of {report.num_orders} orders are legal"
    if report.num_other_state:
        line += f"; {report.num_other_state} more are accepted, but end in another state"
    console.print(line, highlight=False)
    if report.reference_refusal is not None:
        refusal = report.reference_refusal
        step = "the whole" if refusal.step is None else labels[refusal.step]
        console.print(f"the order as it stands is refused at {step}: {refusal.reason}", **PLAIN)
    table = Table("first", "second", "relation", "why")
    for pair in report.pairs:
        relation: str = pair.relation
        if pair.before is not None:
            relation = f"{labels[pair.before]} {pair.relation}"
        why = pair.reason
        if pair.relation == "uncertified" and pair.always_first is not None:
            why += f"; {labels[pair.always_first]} comes first in every legal order"
        table.add_row(labels[pair.first], labels[pair.second], relation, why)
    console.print(table, markup=False)
    if report.idle:
        names = ", ".join(labels[step] for step in report.idle)
        console.print(f"somewhere without any effect: {names}", **PLAIN)
