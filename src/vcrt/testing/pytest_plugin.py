"""Give pytest the fixtures ``vcrt_commutes`` and ``vcrt_declared``, and the option ``--vcrt-update``.

pytest loads it by the entry point ``pytest11``. Nothing else of vcrt is imported before a test uses it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from vcrt.testing import sessions


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
        name = item.nodeid.partition("::")[2] or item.name
        update = bool(item.config.getoption("--vcrt-update"))
        sessions.session.begin(sessions.RunningTest(item.path, name, update))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Forget the test."""
    if sessions.session is not None:
        sessions.session.begin(None)


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
