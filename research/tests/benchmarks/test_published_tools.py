"""The page on published tools says what its results say, and no more."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "research" / "benchmarks" / "results" / "published_tools.json"


@pytest.fixture(scope="module")
def page():
    file = ROOT / "research" / "benchmarks" / "published_tools" / "page.py"
    spec = importlib.util.spec_from_file_location("page_of_published_tools", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_results_give(page):
    assert page.PAGE.read_text() == page.page(json.loads(RESULTS.read_text()))


def test_what_was_not_seen_by_hand_twice_is_no_contradiction(page):
    seen = {
        "tool": "look",
        "hint": "readOnlyHint",
        "same_twice": True,
        "differs": True,
        "answers_otherwise": False,
    }
    found = [{**seen, "same_twice": False}, {**seen, "differs": False}, seen]
    server = {"tools": {"look": {"readOnlyHint": True}}, "contradicted": found}
    assert page.contradicted(server) == [seen]


def test_idempotence_of_a_tool_that_is_declared_read_only_is_not_judged(page):
    seen = {
        "tool": "look",
        "hint": "idempotentHint",
        "same_twice": True,
        "differs": True,
        "answers_otherwise": True,
    }
    for read_only in (True, False):
        server = {"tools": {"look": {"readOnlyHint": read_only}}, "contradicted": [seen]}
        assert page.contradicted(server) == [seen] * (not read_only)


def test_a_row_counts_pairs_that_did_not_commute_and_hints_that_hold(page):
    server = {
        "package": "shop",
        "version": "1",
        "tools": {"look": {"readOnlyHint": True}, "order": {}, "list": {}},
        "called": {
            "look": {"changed": [0, 2]},
            "order": {"changed": [1, 2]},
            "list": {"changed": [0, 1]},
        },
        "pairs": [
            {"a": "look", "b": "look", "commuted": [2, 2], "against": None},
            {
                "a": "look",
                "b": "order",
                "commuted": [1, 2],
                "against": {"calls": ["look()", "order()"]},
            },
            {
                "a": "order",
                "b": "order",
                "commuted": [0, 1],
                "against": {"calls": ["order()", "order() #2"]},
            },
            {"a": "list", "b": "order", "commuted": [0, 0], "against": None},
        ],
        "contradicted": [],
    }
    (row,) = page.table({"servers": [server, {"problem": "it does not start"}]})
    assert row == (
        "| shop 1 | 3 of 3 | 1 readOnlyHint, 0 idempotentHint | 0 | 1 of 3 (0) | `list` |"
    )
