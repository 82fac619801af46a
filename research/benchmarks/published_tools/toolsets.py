"""The toolsets of frameworks that are tried: what is installed, where the environment of each is, and calls to make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Called: TypeAlias = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Framework:
    """What is installed for one framework; of ``source``, the published source, too, since the examples are in it.

    ``bare`` are packages that are installed without what they ask for, of which the tools here need nothing more.
    """

    name: str
    packages: tuple[str, ...]
    file: str
    bare: tuple[str, ...] = ()
    source: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Toolset:
    """A toolset: ``place`` is where it is published, ``declared`` what its authors say of calls at once."""

    key: str
    framework: Framework
    place: str
    declared: str
    traces: tuple[tuple[Called, ...], ...]


PYDANTIC_AI = Framework(
    name="pydantic-ai",
    packages=(
        "pydantic-ai-slim[openai]==2.62.0",
        "duckdb==2.0.1",
        "pandas==3.1.1",
        "datasets==5.2.0",
    ),
    bare=("pydantic-ai-examples==2.62.0",),
    file="of_pydantic_ai.py",
)
LANGCHAIN = Framework(
    name="LangGraph",
    packages=("langchain-community==0.4.2", "langgraph==1.2.24", "langchain==1.5.2"),
    file="of_langchain.py",
)
OPENAI = Framework(
    name="OpenAI Agents",
    packages=("openai-agents==0.24.0",),
    source="openai-agents==0.24.0",
    file="of_openai.py",
)

_QUERY = "SELECT * FROM dataset WHERE n > 1"
_PEN = {"file_path": "b.txt", "text": "rice\n"}
_HUMAN = {"priority": "high", "reason": "r", "summary": "s"}

TOOLSETS = (
    Toolset(
        key="ANALYST",
        framework=PYDANTIC_AI,
        place="`pydantic_ai_examples.data_analyst`",
        declared="no `sequential`",
        traces=(
            (
                ("run_duckdb", {"dataset": "Out[1]", "sql": _QUERY}),
                ("run_duckdb", {"dataset": "Out[1]", "sql": "SELECT sum(n) AS n FROM dataset"}),
                ("display", {"name": "Out[2]"}),
                ("display", {"name": "Out[1]"}),
            ),
        ),
    ),
    Toolset(
        key="FILES",
        framework=LANGCHAIN,
        place="`FileManagementToolkit` of `langchain_community`",
        declared="nothing",
        traces=(
            (
                ("write_file", _PEN),
                ("list_directory", {}),
                ("read_file", {"file_path": "b.txt"}),
            ),
            (
                ("copy_file", {"source_path": "a.txt", "destination_path": "c.txt"}),
                ("move_file", {"source_path": "a.txt", "destination_path": "d.txt"}),
                ("file_search", {"pattern": "*.txt"}),
            ),
            (
                ("write_file", {**_PEN, "file_path": "a.txt", "append": True}),
                ("file_delete", {"file_path": "a.txt"}),
                ("read_file", {"file_path": "a.txt"}),
            ),
        ),
    ),
    Toolset(
        key="AIRLINE",
        framework=OPENAI,
        place="`customer_service` of the examples",
        declared="nothing",
        traces=(
            (
                ("update_seat", {"confirmation_number": "A1", "new_seat": "1A"}),
                ("update_seat", {"confirmation_number": "A1", "new_seat": "2B"}),
                ("faq_lookup_tool", {"question": "bag"}),
            ),
        ),
    ),
    Toolset(
        key="HEALTHCARE",
        framework=OPENAI,
        place="`healthcare_support` of the examples",
        declared="nothing",
        traces=(
            (
                ("patient_info_lookup", {"name": "x"}),
                ("route_to_human_queue", {"queue": "billing", **_HUMAN}),
                ("route_to_human_queue", {"queue": "intake", **_HUMAN}),
            ),
        ),
    ),
)
