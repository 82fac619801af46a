"""What each method of a report is, in the words of the method table. Not covered: methods that the table lacks."""

from __future__ import annotations

from collections.abc import Sequence

from vcrt.report import paper
from vcrt.report.wording import label
from vcrt.training.methods import METHODS


def explained(methods: Sequence[str]) -> dict[str, str]:
    """What each method is, by its name as it is shown, in the given order."""
    return {
        label(method): " ".join(label(w) if w in METHODS else w for w in row.summary.split(" "))
        for method in methods
        for row in METHODS.values()
        if paper.same_name(row.name, method)
    }


def methods_note(methods: Sequence[str]) -> str:
    """The same as one sentence for a table's note; empty if no method is known."""
    words = "; ".join(f"{name} is {what}" for name, what in explained(methods).items())
    return f"{words}." if words else ""
