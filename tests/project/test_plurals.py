"""Numbers agree with their nouns: what counts things in a text asks :func:`vcrt.printable.counted` for the noun."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = [ROOT / "src", ROOT / "train" / "src", *ROOT.glob("environments/*/src")]
#: A noun in the plural right after a number, maybe behind an adjective.
PLURAL = re.compile(r" (?:[a-z-]+ )?[a-z-]+[^sui\W]s\b")
#: What ends like a plural and is none.
NO_NOUN = re.compile(
    r" (?:\w+ )?(?:was|is|has|as|does|its|this|always|times|others|precedes|commutes|conflicts|series|characters)\b"
)
#: Words between a number and a noun that does not belong to it.
NOT_ITS_OWN = re.compile(
    r" (?:of|and|in|a|an|to|on|for|from|with|by|at|among|or|per|not|that|than|then|after|the)\b"
)


def counts(node: ast.expr) -> bool:
    """Whether an expression is a number of things that may be one, as its names say."""
    text = ast.unparse(node)
    # Limits; and an episode has at least two operations or steps, and so two orders.
    if re.search(r"\b[A-Z][A-Z_]{2,}\b|num_operations|num_orders|num_steps", text):
        return False
    return bool(
        re.match(r"(len|sum)\(", text)
        or re.search(r"(?:^|\.)(?:num_\w+|count|disagreed|found|updates)$", text)
        or re.search(r"\['?(?:episodes|trials|updates)'?\]$", text)
    )


def suspicious(tree: ast.AST) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.JoinedStr):
            continue
        for value, after in zip(node.values, node.values[1:], strict=False):
            if not (isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant)):
                continue
            words = after.value
            if (
                counts(value.value)
                and PLURAL.match(words)
                and not NO_NOUN.match(words)
                and not NOT_ITS_OWN.match(words)
            ):
                found.append(f"{ast.unparse(value.value)}{words[:30]!r}")
    return found


def test_the_search_finds_what_it_is_for():
    assert suspicious(ast.parse('f"{len(runs)} runs are done"'))
    assert suspicious(ast.parse('f"found {self.num_trials} planned trials"'))
    assert not suspicious(ast.parse('f"{MOST_RUNS} runs, {len(runs)} of all runs, {name} is"'))


def test_no_text_counts_one_things():
    found = {
        str(path.relative_to(ROOT)): texts
        for source in SOURCES
        for path in sorted(source.rglob("*.py"))
        if (texts := suspicious(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert found == {}
