"""Who may read outputs, and what is removed beside them."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from vcrt.errors import VcrtError
from vcrt.storage import make_directory, publish_directory, remove_partial, write_file


@pytest.fixture(params=[0o077, 0o022, 0o002, 0o027])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_who_may_read_what_is_written_the_umask_says(tmp_path: Path, umask: int) -> None:
    def fill(partial: Path) -> None:
        write_file(partial / "one", b"private")

    made = tmp_path / "above" / "data"
    publish_directory(made, fill, VcrtError)
    make_directory(tmp_path / "other")
    for _ in range(2):
        write_file(tmp_path / "file", b"private")
        assert mode(tmp_path / "file") == 0o666 & ~umask
    assert mode(made / "one") == 0o666 & ~umask
    for folder in (made, made.parent, tmp_path / "other"):
        assert mode(folder) == 0o777 & ~umask


@pytest.mark.parametrize("name", ["data[12]", "data*", "data?", "[!x]*"])
def test_a_folder_s_name_is_no_pattern(tmp_path: Path, name: str) -> None:
    others = [tmp_path / f".{other}.partial-x" for other in ("data1", "data2", "dataset")]
    own = tmp_path / f".{name}.partial-x"
    for folder in (*others, own):
        folder.mkdir()
    remove_partial(tmp_path, name)
    assert sorted(tmp_path.iterdir()) == sorted(others)
    remove_partial(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["data", None])
def test_what_another_call_is_at_work_on_stays(tmp_path: Path, name: str | None) -> None:
    at_work, left = tmp_path / ".data.partial-a", tmp_path / ".data.partial-b"
    at_work.mkdir()
    left.mkdir()
    descriptor = os.open(at_work, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    remove_partial(tmp_path, name)
    assert list(tmp_path.iterdir()) == [at_work]
    os.close(descriptor)
    remove_partial(tmp_path, name)
    assert not list(tmp_path.iterdir())
