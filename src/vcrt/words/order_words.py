"""Show two orders of two calls side by side: their outputs, the states that they end in, and what differs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from textwrap import wrap

from vcrt.calls.differences import Differing
from vcrt.certificates.certificates import Certificate, PathEvidence
from vcrt.printable import printable
from vcrt.words.certificate_words import short_hash

#: Characters of each of the two columns, and the most lines of an output.
_WIDTH, _MAX_LINES = 52, 6


def side_by_side(
    names: Sequence[str], certificate: Certificate, difference: Sequence[Differing]
) -> str:
    """Return both orders of a certificate as two columns, with where they end apart; ``names`` are all calls."""
    before = ", ".join(printable(names[call]) for call in certificate.context)
    lines = [f"after {before}:" if before else "from the start:"]
    lines += _columns(["one order"], ["the other order"])
    lines.append("-" * _WIDTH + "-+-" + "-" * _WIDTH)
    forward, reverse = (_told(names, each) for each in (certificate.forward, certificate.reverse))
    for one, other in zip(forward, reverse, strict=True):
        lines += _columns(one, other)
    if difference:
        lines.append("what differs:")
    for each in difference:
        of = "" if each.call is None else f" of {printable(names[each.call])}"
        lines.append(f"  {printable(each.where)}{of}")
        values = [["nothing" if v is None else printable(v)] for v in (each.forward, each.reverse)]
        lines += _columns(*([f"    {line}" for line in value] for value in values))
    return "\n".join(lines)


def _told(names: Sequence[str], path: PathEvidence) -> list[list[str]]:
    """Give the cells of a column: each call, what it gave, and the state at the end."""
    cells = []
    for place, call in enumerate(path.operations):
        cells.append([printable(names[call])])
        if place < len(path.state_hashes):
            output = path.outputs[place] if path.outputs else None
            cells.append([f"  gives {printable(output or 'nothing')}"])
        elif place == len(path.state_hashes):
            cells.append([f"  is refused: {printable(path.rejection or '')}"])
        else:
            cells.append(["  does not come to run"])
    ends = f"ends in state {short_hash(path.state_hashes[-1])}" if path.accepted else "is refused"
    return [*cells, [ends]]


def _columns(one: Sequence[str], other: Sequence[str]) -> list[str]:
    cells = [[line for text in side for line in _wrapped(text)] for side in (one, other)]
    return [
        f"{left:<{_WIDTH}} | {right}".rstrip() for left, right in zip_longest(*cells, fillvalue="")
    ]


def _wrapped(text: str) -> list[str]:
    indent = " " * (len(text) - len(text.lstrip()))
    lines = wrap(text, _WIDTH, subsequent_indent=f"{indent}  ", break_on_hyphens=False)
    return lines if len(lines) <= _MAX_LINES else [*lines[: _MAX_LINES - 1], f"{indent}  ..."]
