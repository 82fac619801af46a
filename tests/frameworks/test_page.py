"""The page on frameworks: each of its blocks gives the schedule of its class."""

import re
from pathlib import Path

import pytest

import vcrt

PAGE = (Path(__file__).parents[2] / "docs" / "frameworks.md").read_text(encoding="utf-8")
NEEDS = {
    "pydantic-ai": "pydantic_ai",
    "LangChain and LangGraph": "langgraph",
    "OpenAI Agents": "agents",
    "FastMCP, and servers of the package mcp": "fastmcp",
}


def blocks(language: str, part: str = PAGE) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", part, re.MULTILINE | re.DOTALL)


def scheduled(folder: Path, code: str):
    (folder / "kitchen.py").write_text(blocks("python")[0])
    (folder / "calls.jsonl").write_text(blocks("json")[0])
    (folder / "own_tools.py").write_text(code)
    (found,) = vcrt.schedule(
        folder / "calls.jsonl", environment=f"{folder / 'own_tools.py'}:KITCHEN"
    )
    assert found.problem is None, found.problem
    return found.schedule.waves, [(e.first, e.second) for e in found.schedule.edges]


def test_each_framework_has_its_block():
    # And one that takes a server of PostgreSQL: test_postgres.py runs it.
    assert len(blocks("py")) == len(NEEDS) + 1


@pytest.mark.parametrize("heading", NEEDS)
def test_a_block_gives_the_schedule_of_the_class(heading, tmp_path):
    pytest.importorskip(NEEDS[heading])
    (code,) = blocks("py", PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0])
    expected = scheduled(tmp_path, blocks("python")[0])
    assert expected == (((0, 1), (2, 3)), [(0, 2), (1, 3)])
    assert scheduled(tmp_path, code) == expected
