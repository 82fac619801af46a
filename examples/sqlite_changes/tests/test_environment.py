"""Every schema is certified with 12 of 24 orders and the anti-diamond that it declares."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from dataclasses import replace

import pytest
from vcrt_sqlite.environment import SqliteChanges

from vcrt.certificates.episodes import PAPER_PRESET, CertifiedEpisode, certify_episode
from vcrt.environments.conformance import validate
from vcrt.environments.contract import Operation, ReplayRequest
from vcrt.environments.registry import load_environment
from vcrt.errors import MalformedInputError, UnknownNameError
from vcrt.replay.replay import replay_exhaustively

SQLITE = SqliteChanges()
SEEDS = range(50)
#: The schemas of one pair among four statements.
PAIRS = [schema for schema in SQLITE.schemas if schema.preset == "paper"]


def test_it_is_registered():
    assert isinstance(load_environment("sqlite_changes"), SqliteChanges)


def test_it_passes_the_conformance_kit():
    assert [f for f in validate(SQLITE, range(2)) if not f.passed] == []


@pytest.mark.parametrize("schema", PAIRS, ids=lambda schema: schema.name)
def test_every_episode_is_certified(schema):
    episodes = [SQLITE.sample(schema.name, seed) for seed in SEEDS]
    assert len({episode.content_hash() for episode in episodes}) == len(SEEDS)
    for seed, evidence in zip(SEEDS, replay_exhaustively(SQLITE, episodes), strict=True):
        checks = SQLITE.cross_check(evidence.episode) if seed < 5 else ()
        outcome = certify_episode(evidence, SQLITE.versions(), PAPER_PRESET, checks)
        assert isinstance(outcome, CertifiedEpisode), outcome
        assert len(outcome.orbit) == 12
        kinds = Counter(relation.kind for relation in outcome.relations)
        assert kinds == {"commutes": 5, schema.relation: 1}
        assert all((check.checked, check.agreed) == (24, 24) for check in checks)


def test_both_kinds_of_anti_diamond_are_there():
    assert {schema.relation for schema in PAIRS} == {"precedes", "conflicts"}
    with pytest.raises(UnknownNameError, match="did you mean 'one_price'"):
        SQLITE.sample("on_price", 0)


@pytest.mark.parametrize(
    ("schema", "message"),
    [("new_column", "no such column: "), ("unique_name", "UNIQUE constraint failed: goods.name")],
)
def test_a_rejection_is_the_message_of_sqlite(schema, message):
    episode = SQLITE.sample(schema, 0)
    (answer,) = SQLITE.replay([ReplayRequest(episode, (3, 2, 1, 0))])
    assert message in answer.rejection.reason


def after(*statements):
    """The canonical state that statements make."""
    episode = replace(SQLITE.sample("one_price", 0), initial=list(statements))
    return SQLITE.canonical(SQLITE.initial_state(episode))


T = "CREATE TABLE t (id INTEGER PRIMARY KEY, x)"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((T, "INSERT INTO t VALUES (1, 1)"), (T, "INSERT INTO t VALUES (1, 1.0)")),
        ((T, "INSERT INTO t VALUES (1, 1)"), (T, "INSERT INTO t VALUES (1, '1')")),
        ((T, "INSERT INTO t VALUES (1, x'31')"), (T, "INSERT INTO t VALUES (1, '1')")),
        (
            (T, "INSERT INTO t VALUES (1, 0.1)"),
            (T, "INSERT INTO t VALUES (1, 0.10000000000000002)"),
        ),
        ((T, "INSERT INTO t VALUES (1, 9e999)"), (T, "INSERT INTO t VALUES (1, -9e999)")),
        ((T,), ("CREATE TABLE t (id INTEGER PRIMARY KEY, x UNIQUE)",)),
        ((T,), ("CREATE TABLE t (id INTEGER PRIMARY KEY, x CHECK (x > 0))",)),
        ((T,), ("CREATE TABLE t (id INTEGER PRIMARY KEY, x DEFAULT 7)",)),
        ((T, "CREATE INDEX i ON t (x)"), (T, "CREATE UNIQUE INDEX i ON t (x)")),
        # Without a key SQLite numbers the rows, whatever other columns are called.
        (
            ("CREATE TABLE t (rowid, _rowid_)", "INSERT INTO t VALUES (1, 1)"),
            (
                "CREATE TABLE t (rowid, _rowid_)",
                "INSERT INTO t VALUES (0, 0)",
                "INSERT INTO t VALUES (1, 1)",
                "DELETE FROM t WHERE rowid = 0",
            ),
        ),
    ],
)
def test_what_sql_can_see_is_in_the_state(one, other):
    assert after(*one) != after(*other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # Where the rows lie in the file, and in which order tables were made, is not for SQL to see.
        (
            (T, "INSERT INTO t VALUES (1, 1)", "INSERT INTO t VALUES (2, 2)"),
            (T, "INSERT INTO t VALUES (2, 2)", "INSERT INTO t VALUES (1, 1)"),
        ),
        (
            ("CREATE TABLE a (x)", "CREATE TABLE b (x)"),
            ("CREATE TABLE b (x)", "CREATE TABLE a (x)"),
        ),
        ((T, "INSERT INTO t VALUES (1, 1)", "DELETE FROM t"), (T,)),
    ],
)
def test_what_sql_cannot_see_is_not(one, other):
    assert after(*one) == after(*other)


def test_tables_of_every_kind_can_be_read():
    assert after('CREATE TABLE "a""b" (x)', "CREATE TABLE w (x PRIMARY KEY) WITHOUT ROWID")
    assert b"sqlite_sequence" in after(
        "CREATE TABLE s (id INTEGER PRIMARY KEY AUTOINCREMENT, x)", "INSERT INTO s (x) VALUES (1)"
    )


@pytest.mark.parametrize(
    "setup", ["CREATE TABLE t (x)", None, [], [1], ["INSERT INTO t VALUES (1)"]]
)
def test_a_bad_setup_is_malformed(setup):
    with pytest.raises(MalformedInputError):
        SQLITE.initial_state(replace(SQLITE.sample("one_price", 0), initial=setup))


def test_chance_in_sqlite_itself_is_found():
    """A table that is full to the largest row number gets the next row anywhere; no guard sees that."""
    episode = SQLITE.sample("one_price", 0)
    statement = "INSERT INTO goods (name) VALUES ('amber')"
    chancy = replace(
        episode,
        initial=[*episode.initial, "INSERT INTO goods (id) VALUES (9223372036854775807)"],
        operations=(*episode.operations[:3], Operation(signature=statement, payload=statement)),
    )
    (evidence,) = replay_exhaustively(SQLITE, [chancy])
    assert certify_episode(evidence, SQLITE.versions(), PAPER_PRESET).kind == "nondeterministic"


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="no sqlite3 shell on this machine")
@pytest.mark.parametrize("schema", PAIRS, ids=lambda schema: schema.name)
def test_the_shell_of_sqlite_agrees(schema):
    """The orders once more as scripts of another program, perhaps of another version; rows and verdicts only."""
    episode = SQLITE.sample(schema.name, 0)
    orders = [(0, 1, 2, 3), (3, 2, 1, 0), (1, 0, 3, 2)]
    replays = SQLITE.replay([ReplayRequest(episode, order) for order in orders])
    dumps = []
    for order, replay in zip(orders, replays, strict=True):
        script = [*episode.initial, *(episode.operations[i].payload for i in order), ".dump"]
        shell = subprocess.run(
            ["sqlite3", "-batch", "-bail", ":memory:"],
            input="".join(f"{line};\n" if line != ".dump" else line for line in script),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (shell.returncode == 0) == replay.accepted, shell.stderr
        dumps.append(sorted(shell.stdout.splitlines()))
    same = [replay.terminal_hash == replays[0].terminal_hash for replay in replays]
    assert [dump == dumps[0] for dump in dumps] == same
