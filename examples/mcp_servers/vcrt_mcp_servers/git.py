"""The git server: ``pip install mcp-server-git``."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from vcrt.environments.folder_states import Entry, canonical_tree, write_files
from vcrt.environments.mcp import McpEnvironment
from vcrt.hashing import Json
from vcrt.randomness import Generator
from vcrt_mcp_servers.sampling import SampledServer, one_of, schemas

#: Nothing of the machine or the hour: equal commits have equal hashes.
FIXED = {
    "GIT_CONFIG_NOSYSTEM": "1",
    **{
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "A"), ("EMAIL", "a@b.c"), ("DATE", "946684800 +0000"))
    },
}
#: The time of an entry in a log of references.
TIME = re.compile(rb" \d+ [+-]\d{4}\t")


class GitServer(McpEnvironment):
    """Opens the repository anew for each call. A beginning has the texts of each commit, and last of changes."""

    name = "git"
    command = ("mcp-server-git", "--repository", "{state}")
    env: ClassVar[Mapping[str, str]] = FIXED
    initial: ClassVar[Json] = [{"a.txt": "one\n"}, {}]
    restart = False

    def fill(self, folder: Path, initial: Any) -> None:
        """A repository with these commits and, in its files alone, the changes that come last."""
        _git(folder, "init", "-q", "-b", "main", "--template=")
        *commits, changes = initial
        for number, files in enumerate(commits):
            write_files(folder, files)
            _git(folder, "add", "-A")
            _git(folder, "commit", "-q", "--allow-empty", "-m", f"commit {number}")
        write_files(folder, changes)

    def content(self, folder: Path, kept: Any) -> bytes:
        """All but the times in index and logs, and how objects are packed: their names are hashes of what they hold."""
        seen: dict[str, Entry] = {}
        for path, entry in kept.items():
            if path.startswith(".git/objects/"):
                entry = entry._replace(content=b"")
            elif path.startswith(".git/logs/"):
                entry = entry._replace(content=TIME.sub(b"\t", entry.content))
            if path != ".git/index":
                seen[path] = entry
        return canonical_tree(seen) + _git(folder, "ls-files", "--stage", "-z")


def _git(folder: Path, *command: str) -> bytes:
    environment = {"PATH": os.environ["PATH"], "HOME": os.devnull, **FIXED}
    given = ["git", "-c", "core.fsmonitor=false", *command]
    return subprocess.run(
        given, cwd=folder, env=environment, capture_output=True, check=True
    ).stdout


NAMES = ("a.txt", "b.txt", "src/c.txt")
WORDS = ("one", "two", "three")
BRANCHES = ("main", "work", "next")
REVISIONS = ("HEAD", "HEAD~1", *BRANCHES)


class Git(GitServer, SampledServer):
    """The server with a sampler."""

    name = "mcp_git"
    schemas = schemas(
        index="changes are staged, unstaged, committed and looked at",
        branches="branches are made, checked out and listed",
        mixed="calls of every tool",
    )
    drawn: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "index": (
            *("git_add",) * 4,
            *("git_commit", "git_commit", "git_reset", "git_status"),
            *("git_diff_unstaged", "git_diff_staged"),
        ),
        "branches": (
            *("git_create_branch", "git_create_branch", "git_checkout", "git_checkout"),
            *("git_branch", "git_log", "git_show", "git_diff", "git_commit"),
        ),
        "mixed": (
            *("git_status", "git_diff_unstaged", "git_diff_staged", "git_diff", "git_commit"),
            *("git_add", "git_reset", "git_log", "git_create_branch", "git_checkout", "git_show"),
            *("git_branch", "git_add", "git_commit", "git_create_branch"),
        ),
    }

    def beginning(self, draw: Generator) -> Json:
        """Two commits, and changes of some files."""
        commits: list[Json] = [
            {name: f"{one_of(draw, WORDS)} {number}\n" for name in NAMES if draw.random() < 0.7}
            for number in range(3)
        ]
        return commits

    def arguments(self, name: str, draw: Generator) -> dict[str, Json]:
        """Few files, branches and revisions, so that calls meet."""
        branch, revision = one_of(draw, BRANCHES), one_of(draw, REVISIONS)
        drawn: dict[str, dict[str, Json]] = {
            "git_diff": {"target": revision},
            "git_commit": {"message": one_of(draw, WORDS)},
            "git_add": {"files": [one_of(draw, NAMES)]},
            "git_log": {"max_count": 3},
            "git_create_branch": {"branch_name": branch},
            "git_checkout": {"branch_name": branch},
            "git_show": {"revision": revision},
            "git_branch": {"branch_type": "local"},
        }
        return {"repo_path": "{state}", **drawn.get(name, {})}
