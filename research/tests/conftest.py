"""Let libraries of linear algebra compute in one thread: on small matrices, threads cost more than they bring."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    with threadpool_limits(limits=1):
        yield
