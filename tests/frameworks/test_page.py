"""The page on tools and logs: each of its blocks gives the schedule of the tutorial's class."""

import json
import re
from pathlib import Path

import pytest

import vcrt

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "tools-logs.md").read_text(encoding="utf-8")
TUTORIAL = (DOCS / "tools.md").read_text(encoding="utf-8")
NEEDS = {
    "pydantic-ai": "pydantic_ai",
    "LangChain and LangGraph": "langgraph",
    "OpenAI Agents": "agents",
    "FastMCP": "fastmcp",
}
#: Two orders of the last rice, one of tea, and one of what there is not.
CALLS = [("rice", "ann"), ("tea", "bob"), ("rice", "cyd"), ("salt", "ann")]


def blocks(language: str, part: str = PAGE) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", part, re.MULTILINE | re.DOTALL)


def scheduled(folder: Path, code: str):
    (folder / "shop.py").write_text(blocks("python", TUTORIAL)[0])
    calls = [{"item": item, "customer": customer} for item, customer in CALLS]
    lines = [json.dumps({"name": "order", "arguments": arguments}) for arguments in calls]
    (folder / "orders.jsonl").write_text("\n".join(lines))
    (folder / "own_tools.py").write_text(code)
    (found,) = vcrt.schedule(folder / "orders.jsonl", environment=f"{folder / 'own_tools.py'}:SHOP")
    assert found.problem is None, found.problem
    return found.schedule.waves, [(e.first, e.second, e.kind) for e in found.schedule.edges]


def test_each_framework_has_its_block():
    # And those of a server of PostgreSQL, which test_postgres.py runs, and of ids.
    assert len(blocks("py")) == len(NEEDS) + 2


@pytest.mark.parametrize("heading", NEEDS)
def test_a_block_gives_the_schedule_of_the_class(heading, tmp_path):
    pytest.importorskip(NEEDS[heading])
    (code,) = blocks("py", PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0])
    waves, edges = scheduled(tmp_path, blocks("python", TUTORIAL)[0])
    assert waves == ((0, 3), (1, 2))
    assert scheduled(tmp_path, code) == (waves, edges)
