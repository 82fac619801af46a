"""Folders as values: what is taken in comes back as it was, and what counts of it is in its canonical bytes."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vcrt.environments.folder_states import (
    Entry,
    Workplace,
    canonical_tree,
    put_back,
    read_tree,
    write_files,
)
from vcrt.errors import MalformedInputError

NAMES = st.sampled_from(["a", "b", "c"])
LEAVES = st.one_of(
    st.binary(max_size=3).map(lambda content: ("file", content)),
    st.sampled_from([b"a", b"../b", b"/nowhere"]).map(lambda place: ("link", place)),
)
FOLDERS = st.recursive(
    LEAVES, lambda inner: st.dictionaries(NAMES, inner, max_size=3), max_leaves=6
).map(lambda drawn: drawn if isinstance(drawn, dict) else {"a": drawn})


def tree_of(drawn, inside=""):
    tree = {}
    for name, value in drawn.items():
        path = f"{inside}{name}"
        if isinstance(value, dict):
            tree[path] = Entry("folder", 0o755, b"")
            tree |= tree_of(value, f"{path}/")
        else:
            kind, content = value
            when = 10**18 + len(content)
            tree[path] = Entry(kind, *((0o640, content, when) if kind == "file" else (0, content)))
    return tree


@settings(max_examples=150, deadline=None)
@given(FOLDERS, FOLDERS)
def test_what_is_put_back_is_what_is_read(tmp_path_factory, one, other):
    folder = tmp_path_factory.mktemp("folder")
    for tree in (tree_of(one), tree_of(other), {}):
        put_back(folder, tree)
        assert read_tree(folder) == tree


@settings(max_examples=100, deadline=None)
@given(FOLDERS, FOLDERS)
def test_canonical_bytes_are_equal_for_equal_trees_alone(one, other):
    first, second = tree_of(one), tree_of(other)
    reordered = dict(sorted(first.items(), reverse=True))
    assert canonical_tree(reordered) == canonical_tree(first)
    assert (canonical_tree(first) == canonical_tree(second)) == (first == second)


def test_modes_links_and_names_that_are_no_text(tmp_path):
    (tmp_path / "run").write_bytes(b"x")
    (tmp_path / "run").chmod(0o750)
    (tmp_path / "to").symlink_to("run")
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))).write_bytes(b"")
    closed = tmp_path / "closed"
    closed.mkdir()
    (closed / "file").write_bytes(b"y")
    closed.chmod(0o500)
    tree = read_tree(tmp_path)
    assert tree["run"][:3] == ("file", 0o750, b"x")
    assert tree["to"] == Entry("link", 0, b"run")
    before = canonical_tree(tree)
    put_back(tmp_path, {})
    put_back(tmp_path, tree)
    assert canonical_tree(read_tree(tmp_path)) == before
    assert stat.S_IMODE(closed.stat().st_mode) == 0o500
    (tmp_path / "run").chmod(0o755)
    assert canonical_tree(read_tree(tmp_path)) != before


def test_what_no_call_sees_and_where_the_folder_lies_do_not_count(tmp_path):
    trees = []
    for name in ("one", "other"):
        folder = tmp_path / name
        write_files(folder, {"seen": f"in {folder}", "cache/x": name, "empty": None})
        tree = read_tree(folder)
        trees.append(canonical_tree(tree, ignored=["cache/*"], names={str(folder): "{state}"}))
        assert "empty" in tree
    assert trees[0] == trees[1]


def test_what_cannot_be_kept_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(MalformedInputError, match="neither a file"):
        read_tree(tmp_path)
    for files in ({"../x": ""}, {"/x": ""}, {"x": 1}):
        with pytest.raises(MalformedInputError, match="no folder of texts"):
            write_files(tmp_path / "state", files)


def test_a_folder_whose_owner_was_killed_is_removed_and_that_of_a_living_one_is_not(tmp_path):
    program = "from vcrt.environments.folder_states import Workplace\nimport os\n{}Workplace()\n{}"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    source = str(Path(__file__).parents[2] / "src")
    environment["PYTHONPATH"] = source
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(tmp_path))
        living = Workplace()
    for _ in range(2):
        text = program.format("kept = ", "os._exit(9)")
        subprocess.run([sys.executable, "-c", text], env=environment, check=False)
    assert living.state.is_dir()
    assert len(list(tmp_path.glob("vcrt-state-*"))) == 2
    living.close()
    assert not living.path.exists()
