"""The published servers that are tried: a row each, and the class of each under its key, for `--environment`."""

from __future__ import annotations

from typing import Any

from csv_sessions import MASKS, CsvSessions
from published_servers import Row, environment_of
from vcrt_mcp_servers.files import FilesServer
from vcrt_mcp_servers.git import GitServer
from vcrt_mcp_servers.memory import MemoryServer
from vcrt_mcp_servers.sqlite import SqliteServer

from vcrt.environments.mcp import EVERY_TOOL

_ANN = {"name": "Ann", "entityType": "person", "observations": ["likes tea"]}
_EVE = {"entities": [{**_ANN, "name": "Eve"}]}
_KNOWS = {"relations": [{"from": "Ann", "to": "Bob", "relationType": "knows"}]}
_MORE = {"observations": [{"entityName": "Ann", "contents": ["is in Oslo"]}]}
_LESS = {"deletions": [{"entityName": "Ann", "observations": ["likes tea"]}]}
_GRAPH = {
    "memory.jsonl": '{"type":"entity","name":"Ann","entityType":"person","observations":["likes tea"]}\n'
    '{"type":"entity","name":"Bob","entityType":"person","observations":[]}'
}
_REPO = {"repo_path": "{state}"}
_TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.]+(Z|[+-][0-9:]+)?)?"
_ITEMS = {
    "sql": "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT); INSERT INTO item VALUES (1, 'tea');"
}
_NOON = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
_BOOK, _WORD, _SLIDES = "{state}/b.xlsx", "{state}/a.docx", "{state}/a.pptx"
_NOTEBOOK = (
    '{"cells": [{"cell_type": "code", "execution_count": null, "id": "one", "metadata": {}, "outputs": [], '
    '"source": "x = 1"}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'
)
_MANY = {"column": "n", "operator": ">", "value": 1}
_TO_RICE = {"old_string": "tea", "new_string": "rice"}


def _thought(number: int, **more: Any) -> tuple[str, dict[str, Any]]:
    said = {"thought": "so", "thoughtNumber": number, "totalThoughts": 3, "nextThoughtNeeded": True}
    return "sequentialthinking", {**said, **more}


def _file(path: str, **more: Any) -> dict[str, Any]:
    return {"path": f"{{state}}/{path}".rstrip("/"), **more}


def _file_path(path: str) -> dict[str, Any]:
    return {"file_path": f"{{state}}/{path}"}


def _session(**more: Any) -> dict[str, Any]:
    return {"session_id": "{id}", **more}


def _sheet(**more: Any) -> dict[str, Any]:
    return {"path": _BOOK, "sheet": "S", **more}


def _notebook(**more: Any) -> dict[str, Any]:
    return {"ipynb_filepath": "{state}/n.ipynb", **more}


ROWS = (
    Row(
        key="filesystem",
        registry="npm",
        package="@modelcontextprotocol/server-filesystem",
        version="2026.8.31",
        program="mcp-server-filesystem",
        arguments=("{state}",),
        base=FilesServer,
        traces=(
            (
                ("write_file", _file("a.txt", content="new\n")),
                ("write_file", _file("a.txt", content="new\n")),
                ("read_text_file", _file("a.txt")),
                ("list_directory_with_sizes", _file("")),
            ),
            (
                ("create_directory", _file("made")),
                ("create_directory", _file("made")),
                ("list_directory", _file("")),
                ("directory_tree", _file("")),
            ),
            (
                ("edit_file", _file("a.txt", edits=[{"oldText": "a", "newText": "aa"}])),
                ("edit_file", _file("a.txt", edits=[{"oldText": "a", "newText": "aa"}])),
                ("read_file", _file("a.txt")),
                ("get_file_info", _file("a.txt")),
            ),
            (
                ("move_file", {"source": "{state}/a.txt", "destination": "{state}/c.txt"}),
                ("search_files", _file("", pattern="**/*.txt")),
                ("read_multiple_files", {"paths": ["{state}/c.txt", "{state}/docs/b.txt"]}),
                ("read_media_file", _file("docs/b.txt")),
            ),
        ),
    ),
    Row(
        key="memory",
        registry="npm",
        package="@modelcontextprotocol/server-memory",
        version="2026.8.31",
        program="mcp-server-memory",
        base=MemoryServer,
        initial=_GRAPH,
        traces=(
            (
                ("create_entities", _EVE),
                ("create_entities", _EVE),
                ("read_graph", {}),
                ("search_nodes", {"query": "tea"}),
            ),
            (
                ("create_relations", _KNOWS),
                ("create_relations", _KNOWS),
                ("read_graph", {}),
                ("delete_relations", _KNOWS),
            ),
            (
                ("add_observations", _MORE),
                ("add_observations", _MORE),
                ("open_nodes", {"names": ["Ann"]}),
                ("delete_observations", _LESS),
            ),
            (
                ("delete_observations", _LESS),
                ("delete_observations", _LESS),
                ("delete_entities", {"entityNames": ["Ann"]}),
                ("delete_entities", {"entityNames": ["Ann"]}),
            ),
        ),
    ),
    Row(
        key="thinking",
        registry="npm",
        package="@modelcontextprotocol/server-sequential-thinking",
        version="2026.8.31",
        program="mcp-server-sequential-thinking",
        remembered=frozenset({EVERY_TOOL}),
        counted=("sequentialthinking",),
        traces=(
            (_thought(1), _thought(1), _thought(2)),
            (_thought(1), _thought(2, branchFromThought=1, branchId="b"), _thought(3)),
        ),
        note="The server holds thoughts in its memory. No other tool shows them: the number of calls stands for it.",
    ),
    Row(
        key="everything",
        registry="npm",
        package="@modelcontextprotocol/server-everything",
        version="2026.8.31",
        program="mcp-server-everything",
        traces=(
            (
                ("echo", {"message": "a"}),
                ("get-sum", {"a": 1, "b": 2}),
                ("get-tiny-image", {}),
                ("get-structured-content", {"location": "New York"}),
            ),
            (
                ("get-resource-links", {"count": 2}),
                ("get-annotated-message", {"messageType": "error"}),
                ("echo", {"message": "a"}),
            ),
        ),
        note="`toggle-*` start timers that send messages on their own, and were not called.",
    ),
    Row(
        key="git",
        registry="PyPI",
        package="mcp-server-git",
        version="2026.10.19",
        program="mcp-server-git",
        arguments=("--repository", "{state}"),
        base=GitServer,
        initial=[{"a.txt": "one\n"}, {"a.txt": "two\n", "b.txt": "new\n"}],
        traces=(
            (
                ("git_add", {**_REPO, "files": ["a.txt"]}),
                ("git_add", {**_REPO, "files": ["a.txt"]}),
                ("git_status", _REPO),
                ("git_diff_staged", _REPO),
            ),
            (
                ("git_add", {**_REPO, "files": ["a.txt"]}),
                ("git_commit", {**_REPO, "message": "two"}),
                ("git_log", {**_REPO, "max_count": 3}),
                ("git_diff_unstaged", _REPO),
            ),
            (
                ("git_add", {**_REPO, "files": ["a.txt"]}),
                ("git_reset", _REPO),
                ("git_reset", _REPO),
                ("git_diff", {**_REPO, "target": "HEAD"}),
            ),
            (
                ("git_create_branch", {**_REPO, "branch_name": "work"}),
                ("git_branch", {**_REPO, "branch_type": "local"}),
                ("git_checkout", {**_REPO, "branch_name": "work"}),
                ("git_show", {**_REPO, "revision": "HEAD"}),
            ),
        ),
        note="Commits have a fixed author and date.",
    ),
    Row(
        key="sqlite",
        registry="PyPI",
        package="mcp-server-sqlite",
        version="2025.4.25",
        with_them=("mcp==1.30.0",),
        program="mcp-server-sqlite",
        arguments=("--db-path", "{state}/shop.db"),
        base=SqliteServer,
        traces=(
            (
                ("write_query", {"query": "INSERT INTO item (name, price) VALUES ('pen', 1)"}),
                ("write_query", {"query": "INSERT INTO item (name, price) VALUES ('cup', 1)"}),
                ("read_query", {"query": "SELECT * FROM item"}),
                ("list_tables", {}),
            ),
            (
                ("create_table", {"query": "CREATE TABLE shop (name TEXT)"}),
                ("list_tables", {}),
                ("describe_table", {"table_name": "item"}),
                ("read_query", {"query": "SELECT 1"}),
            ),
        ),
    ),
    Row(
        key="excel",
        registry="PyPI",
        package="excel-mcp-server",
        version="2.2.2",
        program="excel-mcp-server",
        arguments=("stdio",),
        initial={"b.xlsx": {"cell": "tea"}},
        masks=(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]+(\.[0-9]+)?Z?",),
        traces=(
            (
                ("write_range", _sheet(at="A2", rows=[[1], [2]])),
                ("write_range", _sheet(at="A2", rows=[[1], [2]])),
                ("read_range", _sheet()),
                ("describe_workbook", {"path": _BOOK}),
            ),
            (
                ("create_sheet", {"path": _BOOK, "new_name": "T"}),
                ("copy_sheet", _sheet(new_name="U")),
                ("describe_sheet", _sheet()),
                ("find_cells", {"path": _BOOK, "query": "tea"}),
            ),
            (
                ("insert_rows_or_columns", _sheet(axis="rows", start=1)),
                ("insert_rows_or_columns", _sheet(axis="rows", start=1)),
                ("format_range", _sheet(range="A1", style={"bold": True})),
                ("format_range", _sheet(range="A1", style={"bold": True})),
            ),
        ),
    ),
    Row(
        key="word",
        registry="PyPI",
        package="office-word-mcp-server",
        version="1.1.11",
        with_them=("mcp<2", "fastmcp<3"),
        program="word_mcp_server",
        masks=(_TIME,),
        traces=(
            (
                ("create_document", {"filename": _WORD}),
                ("add_paragraph", {"filename": _WORD, "text": "hello"}),
                ("get_document_text", {"filename": _WORD}),
                ("list_available_documents", {"directory": "{state}"}),
            ),
        ),
    ),
    Row(
        key="powerpoint",
        registry="PyPI",
        package="office-powerpoint-mcp-server",
        version="2.0.7",
        with_them=("mcp<2",),
        program="ppt_mcp_server",
        remembered=frozenset({EVERY_TOOL}),
        views=(("list_presentations", {}),),
        refusals=('{\n  "error"',),
        masks=(_TIME,),
        traces=(
            (
                ("create_presentation", {"id": "one"}),
                ("save_presentation", {"file_path": _SLIDES, "presentation_id": "one"}),
                ("open_presentation", {"file_path": _SLIDES}),
            ),
            (
                ("create_presentation", {"id": "one"}),
                ("get_presentation_info", {"presentation_id": "one"}),
            ),
        ),
    ),
    Row(
        key="mcp_sqlite",
        registry="PyPI",
        package="mcp-sqlite",
        version="0.3.2",
        with_them=("mcp<2",),
        program="mcp-sqlite",
        arguments=("{state}/a.db",),
        initial={"a.db": _ITEMS},
        traces=(
            (
                ("sqlite_get_catalog", {}),
                ("sqlite_execute", {"sql": "SELECT * FROM item"}),
                ("sqlite_execute", {"sql": "INSERT INTO item VALUES (2, 'rice')"}),
            ),
        ),
        note="The server refused the INSERT.",
    ),
    Row(
        key="jupyter",
        registry="PyPI",
        package="jupyter-editor-mcp",
        version="0.2.2",
        with_them=("mcp<2",),
        program="jupyter-editor-mcp",
        initial={"n.ipynb": _NOTEBOOK},
        masks=(r'"id": ?"[0-9a-f-]+"',),
        refusals=('{"error"',),
        traces=(
            (
                ("ipynb_append_cell", _notebook(content="y = 2")),
                ("ipynb_replace_cell", _notebook(cell_index=0, new_content="x = 2")),
                ("ipynb_list_cells", _notebook()),
                ("ipynb_get_notebook_info", _notebook()),
            ),
            (
                ("ipynb_set_kernel", _notebook(kernel_name="python3", display_name="Python 3")),
                ("ipynb_set_kernel", _notebook(kernel_name="python3", display_name="Python 3")),
                ("ipynb_get_metadata", _notebook()),
                ("ipynb_get_cell", _notebook(cell_index=0)),
            ),
        ),
    ),
    Row(
        key="filesystem_mcp",
        registry="PyPI",
        package="filesystem-mcp",
        version="1.0.2",
        program="filesystem-mcp",
        arguments=("{state}",),
        initial={"a.txt": "alpha\n"},
        masks=(_TIME,),
        traces=(
            (
                ("write_file", _file("a.txt", content="new\n")),
                ("write_file", _file("a.txt", content="new\n")),
                ("read_file", _file("a.txt")),
                ("list_directory", _file("")),
            ),
            (
                ("write_file", _file("b.txt", content="new\n", append=True)),
                ("write_file", _file("b.txt", content="new\n", append=True)),
                ("list_allowed_directories", {}),
                ("list_directory", _file("")),
            ),
        ),
    ),
    Row(
        key="taskmanager",
        registry="npm",
        package="@kazuph/mcp-taskmanager",
        version="1.1.1",
        program="mcp-taskmanager",
        env={"TASK_MANAGER_FILE_PATH": "{state}/tasks.json"},
        restart=True,
        traces=(
            (
                (
                    "request_planning",
                    {"originalRequest": "r", "tasks": [{"title": "a", "description": "d"}]},
                ),
                ("list_requests", {}),
                ("open_task_details", {"taskId": "task-1"}),
            ),
        ),
    ),
    Row(
        key="knowledge_graph",
        registry="npm",
        package="@itseasy21/mcp-knowledge-graph",
        version="1.0.7",
        program="mcp-knowledge-graph",
        env={"MEMORY_FILE_PATH": "{state}/m.jsonl"},
        initial={
            "m.jsonl": '{"type":"entity","name":"Ann","entityType":"person","observations":[]}'
        },
        masks=(_TIME,),
        traces=(
            (("add_observations", _MORE), ("read_graph", {}), ("search_nodes", {"query": "Ann"})),
        ),
        note="It answers what it refuses with an internal error of JSON-RPC. "
        "Only calls were made that it takes in any order.",
    ),
    Row(
        key="memory_bank",
        registry="npm",
        package="@allpepper/memory-bank-mcp",
        version="0.2.2",
        program="mcp-server-memory-bank",
        env={"MEMORY_BANK_ROOT": "{state}"},
        traces=(
            (
                ("memory_bank_write", {"projectName": "p", "fileName": "a.md", "content": "x"}),
                ("memory_bank_update", {"projectName": "p", "fileName": "a.md", "content": "y"}),
                ("memory_bank_read", {"projectName": "p", "fileName": "a.md"}),
                ("list_projects", {}),
            ),
        ),
    ),
    Row(
        key="time",
        registry="PyPI",
        package="mcp-server-time",
        version="2026.10.19",
        program="mcp-server-time",
        arguments=("--local-timezone", "UTC"),
        masks=(_TIME,),
        traces=(
            (
                ("get_current_time", {"timezone": "UTC"}),
                ("convert_time", _NOON),
                ("convert_time", {**_NOON, "time": "13:00"}),
            ),
        ),
        note="It reads the clock, and `convert_time` takes the day from it. Without this, vcrt refuses its calls: "
        "replays of one call differ.",
    ),
    Row(
        key="duckdb",
        registry="PyPI",
        package="mcp-server-duckdb",
        version="1.1.0",
        with_them=("mcp<2",),
        program="mcp-server-duckdb",
        arguments=("--db-path", "{state}/a.duckdb"),
        ignored=frozenset({"a.duckdb"}),
        views=(("query", {"query": "SELECT * FROM item"}),),
        refusals=("Database error",),
        traces=(
            (
                ("query", {"query": "CREATE TABLE item (name TEXT)"}),
                ("query", {"query": "INSERT INTO item VALUES ('tea')"}),
                ("query", {"query": "INSERT INTO item VALUES ('rice')"}),
                ("query", {"query": "SELECT count(*) FROM item"}),
            ),
        ),
        note="The state is what `SELECT * FROM item` shows, in its order.",
    ),
    Row(
        key="ai_todo",
        registry="PyPI",
        package="ai-todo",
        version="3.0.2",
        program="ai-todo",
        arguments=("serve",),
        masks=(_TIME, r"[0-9]{2}:[0-9]{2}:[0-9]{2}", r"\b[0-9a-f]{64}\b"),
        ignored=frozenset({".ai-todo", ".ai-todo/*", ".cursor", ".cursor/*"}),
        traces=(
            (
                ("add_task", {"description": "buy tea"}),
                ("add_task", {"description": "buy rice"}),
                ("list_tasks", {}),
            ),
        ),
    ),
    Row(
        key="desktop_commander",
        registry="npm",
        package="@wonderwhy-er/desktop-commander",
        version="0.2.52",
        with_them=("--ignore-scripts",),
        program="desktop-commander",
        initial={"a.txt": "tea\n", "docs/b.txt": "rice\n"},
        masks=(_TIME, r"[0-9.]+ms"),
        traces=(
            (
                ("write_file", _file("a.txt", content="new\n", mode="append")),
                ("read_file", _file("a.txt")),
                ("get_file_info", _file("a.txt")),
                ("list_directory", _file("")),
            ),
            (
                ("edit_block", {"file_path": "{state}/a.txt", **_TO_RICE}),
                ("read_multiple_files", {"paths": ["{state}/a.txt", "{state}/docs/b.txt"]}),
                ("move_file", {"source": "{state}/a.txt", "destination": "{state}/c.txt"}),
            ),
            (
                ("create_directory", _file("made")),
                ("create_directory", _file("made")),
                ("list_directory", _file("")),
            ),
        ),
        note="Its install script downloads a program, and was not run. `start_search` and what belongs to it were not "
        "called: it draws the name of a search.",
    ),
    Row(
        key="motherduck",
        registry="PyPI",
        package="mcp-server-motherduck",
        version="1.1.0",
        program="mcp-server-motherduck",
        arguments=("--db-path", "{state}/a.duckdb", "--read-write"),
        restart=True,
        ignored=frozenset({"a.duckdb", "a.duckdb.wal"}),
        views=(("list_tables", {}), ("execute_query", {"sql": "SELECT * FROM item"})),
        traces=(
            (
                ("execute_query", {"sql": "CREATE TABLE item (name TEXT)"}),
                ("execute_query", {"sql": "INSERT INTO item VALUES ('tea')"}),
                ("execute_query", {"sql": "SELECT count(*) AS n FROM item"}),
            ),
            (
                ("execute_query", {"sql": "CREATE TABLE item (name TEXT)"}),
                ("list_tables", {}),
                ("list_columns", {"table": "item"}),
            ),
        ),
        note="The state is what `list_tables` and `SELECT * FROM item` show. It holds its database open, so it was "
        "started anew for each state.",
    ),
    Row(
        key="agent_files",
        registry="npm",
        package="@agent-infra/mcp-server-filesystem",
        version="1.2.29",
        program="mcp-server-filesystem",
        arguments=("--allowed-directories", "{state}"),
        base=FilesServer,
        traces=(
            (
                ("write_file", _file("a.txt", content="new\n")),
                ("write_file", _file("a.txt", content="new\n")),
                ("read_file", _file("a.txt")),
                ("get_file_info", _file("a.txt")),
            ),
            (
                ("create_directory", _file("made")),
                ("create_directory", _file("made")),
                ("list_directory", _file("")),
                ("directory_tree", _file("")),
            ),
            (
                ("edit_file", _file("a.txt", edits=[{"oldText": "a", "newText": "aa"}])),
                ("edit_file", _file("a.txt", edits=[{"oldText": "a", "newText": "aa"}])),
                ("read_file", _file("a.txt")),
                ("list_allowed_directories", {}),
            ),
            (
                ("move_file", {"source": "{state}/a.txt", "destination": "{state}/c.txt"}),
                ("search_files", _file("", pattern="txt")),
                ("read_multiple_files", {"paths": ["{state}/c.txt", "{state}/docs/b.txt"]}),
            ),
        ),
        note="It prints a plain line before its first message, as no server should; vcrt passes over it, as hosts do.",
    ),
    Row(
        key="csv",
        registry="PyPI",
        package="csv-mcp-server",
        version="1.0.0",
        program="csv-editor",
        base=CsvSessions,
        ids=CsvSessions.ids,
        masks=MASKS,
        ignored=CsvSessions.ignored,
        traces=(
            (
                ("load_csv", _file_path("shop.csv")),
                ("sort_data", _session(columns=["name"])),
                ("export_csv", _session(file_path="{state}/sorted.csv")),
            ),
            (
                ("load_csv", _file_path("shop.csv")),
                ("filter_rows", _session(conditions=[_MANY])),
                ("get_value_counts", _session(column="name")),
            ),
            (
                ("load_csv", _file_path("shop.csv")),
                ("rename_columns", _session(mapping={"n": "count"})),
                ("undo", _session()),
            ),
        ),
        note="It draws the names of sessions: the log is that of a client, and `ids` of the environment's class says "
        "where they stand. The state is the folder, the sessions that it lists, and the history of each, to which "
        "`get_value_counts` adds, too.",
    ),
)

#: What was tried without a result: package, version, and what happened. None of it says anything of the tools.
NOT_RUN = (
    (
        "@negokaz/excel-mcp-server",
        "0.12.0",
        "its program ended in the middle of a call; why was not found out",
    ),
    (
        "iflow-mcp-danielmeint-todo-txt-mcp",
        "1.0.2",
        "vcrt refuses it: its answers depend on something that its files do not show",
    ),
    (
        "database-mcp-sqlite",
        "0.2.1",
        "no verdict: two processes did not describe themselves alike; not looked into",
    ),
    ("mcp-memory-libsql", "0.0.17", "not finished in time: it is started anew for each state"),
    (
        "cadence-todo",
        "0.2.41",
        "no verdict: with times left out, states that look alike answered otherwise; not looked into",
    ),
    (
        "mcp-json-yaml-toml",
        "0.10.2",
        "its first call downloads a program, which takes a network",
    ),
    ("markdown-vault-mcp", "5.1.0", "replays of one call differ; not looked into"),
    ("obsidian-mcp", "2.0.1", "it takes Node 22"),
    ("mcp-obsidian", "1.0.0", "a tool's schema has no type, which the protocol asks for"),
    ("mcp-kb-sqlite", "0.2.1", "not finished in time"),
    (
        "mcp-shrimp-task-manager",
        "1.0.21",
        "no list of tools within 40 seconds, without a client that answers it",
    ),
    ("mcp-text-editor", "1.2.2", "not installable with Python 3.12.1"),
    ("notes-mcp", "0.1.4", "not installable with Python 3.12.1"),
    ("bridgemcp-server-filesystem", "0.1.1", "it asks for a package that it does not install"),
    ("@bytebase/dbhub", "1.4.0", "it takes Node 22.5"),
    ("@j0hanz/filesystem-mcp", "2.5.0", "not installable: a package that it asks for is not there"),
)

globals().update({row.key: environment_of(row, __name__) for row in ROWS})
