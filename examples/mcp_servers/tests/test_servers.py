"""The published servers themselves: what they answer, that restored states are whole, and which calls commute."""

from __future__ import annotations

import shutil

import pytest

pytest.importorskip("mcp", reason="the official client is not installed: make test-integrations")

from vcrt_mcp_servers.files import Files
from vcrt_mcp_servers.git import Git
from vcrt_mcp_servers.memory import Memory
from vcrt_mcp_servers.sqlite import Sqlite

import vcrt
from vcrt.environments.conformance import validate
from vcrt.environments.contract import ReplayRequest
from vcrt.environments.shared_prefixes import replay_sharing
from vcrt.environments.tool_calls import Call, CallRefused, episode_of_calls, operations_of
from vcrt.orders import all_orders

#: Whether a call that only reads may stand in an episode is certification's matter.
NOT_OURS = ("registered under its own name", "every step changes the state")
SQL = "INSERT INTO item (name, price) VALUES ('{}', 1)"


def there(kind):
    program = kind.command[0]
    missing = shutil.which(program) is None
    return pytest.param(
        kind,
        marks=pytest.mark.skipif(missing, reason=f"no {program}: make test-integrations"),
        id=kind.name,
    )


SERVERS = [there(kind) for kind in (Files, Git, Memory, Sqlite)]


@pytest.fixture(scope="module")
def made():
    """One environment of each kind, made when it is asked for."""
    environments = {}

    def make(kind):
        return environments.setdefault(kind, kind())

    yield make
    for environment in environments.values():
        environment.close()


def episode_of(kind, initial, *calls):
    provenance = vcrt.Provenance(source="test", generator="test", seed=0)
    schema = kind.schemas[0].name
    return episode_of_calls(kind.name, schema, initial, operations_of(calls), provenance)


def both_orders(environment, initial, *calls):
    episode = episode_of(type(environment), initial, *calls)
    requests = [ReplayRequest(episode, order) for order in ((0, 1), (1, 0))]
    return environment.replay(requests)


@pytest.mark.parametrize("kind", SERVERS)
def test_samplers_draw_every_tool_of_the_server(kind, made):
    drawn = {name for tools in kind.drawn.values() for name in tools}
    assert drawn == {tool.name for tool in made(kind).tools()}
    assert set(kind.drawn) == {schema.name for schema in kind.schemas}


@pytest.mark.parametrize("kind", SERVERS)
def test_it_conforms(kind, made):
    findings = validate(made(kind), seeds=range(2), quick=True)
    failed = [finding for finding in findings if not finding.passed]
    assert not [finding for finding in failed if finding.check not in NOT_OURS]


@pytest.mark.parametrize("kind", SERVERS)
def test_restored_states_answer_as_those_that_were_made_anew(kind, made):
    environment = made(kind)
    episode = environment.sample(kind.schemas[0].name, 3)
    requests = [ReplayRequest(episode, order) for order in all_orders(episode.num_operations)]
    assert replay_sharing(environment, requests) == environment.replay(requests)


@pytest.mark.parametrize("kind", SERVERS)
def test_it_says_what_it_is(kind, made):
    environment = made(kind)
    assert environment.versions() == environment.versions()
    declared = {tool.name: tool.read_only for tool in environment.tools()}
    assert any(declared.values()) == (kind is not Sqlite), "which declares nothing"


@pytest.mark.parametrize("kind", [there(Files)])
def test_files(kind, made):
    environment = made(kind)
    write = Call("write_file", {"path": "{state}/a.txt", "content": "new"})
    other = Call("write_file", {"path": "{state}/b.txt", "content": "new"})
    read = Call("read_text_file", {"path": "{state}/a.txt"})
    listing = Call("list_directory", {"path": "{state}"})
    one, reverse = both_orders(environment, None, write, other)
    assert one.terminal_hash == reverse.terminal_hash
    assert one.output_of == reverse.output_of
    one, reverse = both_orders(environment, None, write, read)
    assert one.terminal_hash == reverse.terminal_hash
    assert one.output_of[1] != reverse.output_of[1]
    one, reverse = both_orders(environment, None, other, listing)
    assert "b.txt" in one.output_of[1]
    assert "b.txt" not in reverse.output_of[1]
    with pytest.raises(
        CallRefused, match=r"outside allowed directories: /etc/passwd not in \{state\}"
    ):
        environment.call(environment.reset(None), "read_text_file", {"path": "/etc/passwd"})


@pytest.mark.parametrize("kind", [there(Git)])
def test_git(kind, made):
    environment = made(kind)
    initial = [{"a.txt": "1", "b.txt": "1"}, {"a.txt": "2", "b.txt": "2"}]
    add_a, add_b = (
        Call("git_add", {"repo_path": "{state}", "files": [name]}) for name in ("a.txt", "b.txt")
    )
    commit = Call("git_commit", {"repo_path": "{state}", "message": "m"})
    one, reverse = both_orders(environment, initial, add_a, add_b)
    assert one.terminal_hash == reverse.terminal_hash
    one, reverse = both_orders(environment, initial, add_a, commit)
    assert one.accepted
    assert not reverse.accepted or one.terminal_hash != reverse.terminal_hash


@pytest.mark.parametrize("kind", [there(Sqlite)])
def test_sqlite(kind, made):
    environment = made(kind)
    pen, cup = (Call("write_query", {"query": SQL.format(name)}) for name in ("pen", "cup"))
    one, reverse = both_orders(environment, None, pen, cup)
    assert one.terminal_hash != reverse.terminal_hash
    notes = [Call("append_insight", {"insight": name}) for name in ("pens", "cups")]
    one, reverse = both_orders(environment, None, *notes)
    assert one.terminal_hash != reverse.terminal_hash, "the memo is in the server's memory"
    one, reverse = both_orders(environment, None, pen, notes[0])
    assert one.terminal_hash == reverse.terminal_hash
    with pytest.raises(CallRefused, match="no such table"):
        environment.call(environment.reset(None), "read_query", {"query": "SELECT * FROM none"})


@pytest.mark.parametrize("kind", [there(Files)])
def test_an_episode_is_certified(kind):
    calls = [
        Call("write_file", {"path": f"{{state}}/{name}", "content": text})
        for name, text in (("a.txt", "1"), ("b.txt", "2"), ("c.txt", "3"), ("a.txt", "4"))
    ]
    certified = vcrt.certify_episode(kind, episode_of(kind, None, *calls))
    found = {(r.first, r.second): r.kind for r in certified.relations}
    assert found.pop((0, 3)) == "conflicts"
    assert set(found.values()) == {"commutes"}
