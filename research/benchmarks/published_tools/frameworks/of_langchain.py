"""Toolkits of `langchain-community`, for `--environment of_langchain.py:FILES`.

Run as a program, LangGraph runs them.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from langchain_community.agent_toolkits import FileManagementToolkit, SQLDatabaseToolkit
from langchain_community.utilities import SQLDatabase
from langchain_core.language_models import FakeListLLM
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from sent import Call, main

TEXT = "tea\n"
SQL = "CREATE TABLE item (name TEXT); INSERT INTO item VALUES ('tea');"


def files_of(folder: str) -> list[Any]:
    """Return the tools of the toolkit for files."""
    return FileManagementToolkit(root_dir=folder).get_tools()


def sql_of(file: str) -> list[Any]:
    """Return the tools of the toolkit for SQL on a file of SQLite; its checker of queries has no real model."""
    database = SQLDatabase.from_uri(f"sqlite:///{file}")
    return SQLDatabaseToolkit(db=database, llm=FakeListLLM(responses=["-"])).get_tools()


def fill_folder(folder: Path) -> None:
    """Write the first state of the folder."""
    (folder / "a.txt").write_text(TEXT)


def fill_database(file: Path) -> None:
    """Write the first state of the database."""
    with closing(sqlite3.connect(file)) as database:
        database.executescript(SQL)


def graph_of(tools: Sequence[Any]) -> Any:
    """Return a graph of LangGraph whose one node is `ToolNode`."""
    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode(tools, handle_tool_errors=True))
    graph.add_edge(START, "tools")
    return graph.compile()


def answers(tools: Sequence[Any], messages: Sequence[Sequence[Call]]) -> list[str]:
    """Return the outputs of the last two calls."""
    graph, said = graph_of(tools), []
    for number, calls in enumerate(messages):
        asked = [
            {"name": name, "args": dict(given), "id": f"{number}.{place}", "type": "tool_call"}
            for place, (name, given) in enumerate(calls)
        ]
        said += graph.invoke({"messages": [AIMessage("", tool_calls=asked)]})["messages"][1:]
    return [str(each.content) for each in said[-2:]]


def ran_files(messages: Sequence[Sequence[Call]]) -> tuple[list[str], str]:
    """Run messages on a new folder."""
    with tempfile.TemporaryDirectory() as given:
        folder = Path(given)
        fill_folder(folder)
        outputs = answers(files_of(given), messages)
        held = {file.name: file.read_text() for file in sorted(folder.iterdir())}
        return [each.replace(given, "{state}") for each in outputs], str(held)


def ran_sql(messages: Sequence[Sequence[Call]]) -> tuple[list[str], str]:
    """Run messages on a new database."""
    with tempfile.TemporaryDirectory() as given:
        file = Path(given) / "shop.db"
        fill_database(file)
        outputs = answers(sql_of(str(file)), messages)
        with closing(sqlite3.connect(file)) as database:
            return outputs, "\n".join(database.iterdump())


if __name__ == "__main__":
    main({"FILES": ran_files, "DATABASE": ran_sql})
else:
    import vcrt

    _FIRST = Path(tempfile.mkdtemp())
    (_FIRST / "folder").mkdir()
    fill_folder(_FIRST / "folder")
    fill_database(_FIRST / "shop.db")
    FILES = vcrt.tools_environment(
        tools_of=files_of, state=vcrt.folder(_FIRST / "folder"), name="langchain_files"
    )
    DATABASE = vcrt.tools_environment(
        tools_of=sql_of, state=vcrt.sqlite_file(_FIRST / "shop.db", str), name="langchain_sql"
    )
