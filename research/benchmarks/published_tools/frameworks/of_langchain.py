"""The toolkit for files of `langchain-community`, for `--environment of_langchain.py:FILES`.

Run as a program, LangGraph runs them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain_community.agent_toolkits import FileManagementToolkit
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from sent import Call, main

TEXT = "tea\n"


def files_of(folder: str) -> list[Any]:
    """Return the tools of the toolkit for files."""
    return FileManagementToolkit(root_dir=folder).get_tools()


def fill_folder(folder: Path) -> None:
    """Write the first state of the folder."""
    (folder / "a.txt").write_text(TEXT)


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


if __name__ == "__main__":
    main({"FILES": ran_files})
else:
    import vcrt

    _FIRST = Path(tempfile.mkdtemp())
    (_FIRST / "folder").mkdir()
    fill_folder(_FIRST / "folder")
    FILES = vcrt.tools_environment(
        tools_of=files_of, state=vcrt.folder(_FIRST / "folder"), name="langchain_files"
    )
