"""What a server cannot do where the system can confine it, tried by a server."""

from __future__ import annotations

import pytest

pytest.importorskip("mcp", reason="the official client is not installed: make test-integrations")

from mcp_support import Small
from vcrt.environments.tool_calls import CallRefused


@pytest.fixture(scope="module")
def small():
    environment = Small()
    yield environment
    environment.close()


def needs(environment, name):
    report = environment.guards()
    if name not in report.in_force:
        pytest.skip(f"this system has no protection of {name}: {report.absent[name]}")


def test_it_reaches_no_network(small):
    needs(small, "network")
    with pytest.raises(CallRefused, match="PermissionError"):
        small.call(small.reset(None), "fetch", {})


def test_it_writes_into_its_own_folders_alone(small, tmp_path):
    needs(small, "files")
    state = small.reset(None)
    outside = tmp_path / "file"
    for path in (outside, small._host.place().path / "lock"):
        with pytest.raises(CallRefused, match="PermissionError"):
            small.call(state, "write_at", {"path": str(path)})
    assert not outside.exists()
    assert small.call(state, "write_at", {"path": "{state}/file"}) == "wrote"
    for path in (small._host.place().path / "home" / "x", small._host.place().path / "tmp" / "x"):
        assert small.call(state, "write_at", {"path": str(path)}) == "wrote"


def test_it_says_what_is_in_force_and_what_is_not(small):
    report = small.guards()
    assert {"network", "files", "end", "privileges"} <= {*report.in_force, *report.absent}
    assert report.absent["address space"] == "not limited"
