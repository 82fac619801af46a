"""Give pytest the fixtures ``vcrt_commutes`` and ``vcrt_declared``, and the option ``--vcrt-update``.

pytest loads it by the entry point ``pytest11``. Nothing else of vcrt is imported before a test uses it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from vcrt.testing import sessions

#: All tests of the collected files, empty if only some are known; and how many certificates those had that passed.
_TESTS = pytest.StashKey[list[sessions.RunningTest]]()
_NUMBERS = pytest.StashKey[dict[sessions.RunningTest, int]]()
_UNUSED = pytest.StashKey[set[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--vcrt-update``."""
    parser.getgroup("vcrt", "commuting calls").addoption(
        "--vcrt-update",
        action="store_true",
        help="write the certificate of each vcrt.testing.assert_commutes into __vcrt__ beside the test, for review",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> object:
    """Keep worker processes while tests run."""
    outer, sessions.session = sessions.session, sessions.Session()
    try:
        return (yield)
    finally:
        sessions.session.end()
        sessions.session = outer


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note which test runs."""
    if sessions.session is not None:
        sessions.session.begin(_test(item))


def _test(item: pytest.Item) -> sessions.RunningTest:
    name = item.nodeid.partition("::")[2] or item.name
    return sessions.RunningTest(item.path, name, bool(item.config.getoption("--vcrt-update")))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Forget the test."""
    if sessions.session is not None:
        sessions.session.begin(None)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Note the tests before any is deselected, unless some were not even collected."""
    partly = any("::" in each for each in config.args) or config.getoption("lf", False)
    config.stash[_TESTS] = [] if partly else [_test(item) for item in items]


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> None:
    """Note how many certificates a test had, if it passed."""
    if call.when == "call" and call.excinfo is None and sessions.session is not None:
        numbers = item.config.stash.setdefault(_NUMBERS, {})
        numbers[_test(item)] = sessions.session.num_certified


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Find certificates that no test asked for; a process of pytest-xdist sends them to the one that reports."""
    config, found = session.config, set[str]()
    tests = [] if config.option.collectonly else config.stash.get(_TESTS, [])
    if any((folder / "__vcrt__").is_dir() for folder in {test.file.parent for test in tests}):
        from vcrt.testing.recorded import unused

        numbers = config.stash.setdefault(_NUMBERS, {})
        found = {str(path) for path in unused(tests, numbers)}
    config.stash.setdefault(_UNUSED, set()).update(found)
    if hasattr(config, "workeroutput"):
        config.workeroutput["vcrt_unused"] = sorted(found)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what a process of pytest-xdist found."""
    found = getattr(node, "workeroutput", {}).get("vcrt_unused", [])
    node.config.stash.setdefault(_UNUSED, set()).update(found)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Name the certificates that no test asked for."""
    if found := sorted(config.stash.get(_UNUSED, ())):
        terminalreporter.section("recorded certificates that no test compares", yellow=True)
        for path in found:
            terminalreporter.line(path)
        terminalreporter.line("remove them, unless their tests only run elsewhere")


@pytest.fixture
def vcrt_commutes() -> Callable[..., None]:
    """Give ``vcrt.testing.assert_commutes(environment, calls)``."""
    from vcrt.testing.assertions import assert_commutes

    return assert_commutes


@pytest.fixture
def vcrt_declared() -> Callable[..., None]:
    """Give ``vcrt.testing.assert_declared(environment, logs)``."""
    from vcrt.testing.assertions import assert_declared

    return assert_declared
