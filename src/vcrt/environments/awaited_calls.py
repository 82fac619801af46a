"""Await what an ``async`` tool gives, in an event loop of its own, which is over when the call is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from vcrt.errors import MalformedInputError

#: Seconds that a library's idle threads have to end in when their loop is closed.
_THREADS_S = 5.0
#: How many rounds of the loop a task may take to end that has nothing left to wait for.
_ROUNDS = 3


def awaited(work: Callable[[], Awaitable[Any]]) -> Any:
    """Await the result of ``work``; raises :class:`MalformedInputError` if tasks or timers run on after it."""
    threads = set(threading.enumerate())
    try:
        return asyncio.run(_alone(work))
    finally:
        for thread in set(threading.enumerate()) - threads:
            if type(thread).__module__.startswith("anyio."):  # idle, and told to end
                thread.join(_THREADS_S)


async def _alone(work: Callable[[], Awaitable[Any]]) -> Any:
    result = await work()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for _ in range(_ROUNDS):
        left = {task for task in left if not task.done()}
        if left:
            await asyncio.sleep(0)
    timers = getattr(asyncio.get_running_loop(), "_scheduled", ())
    waiting: list[object] = [task.get_coro() for task in left]
    waiting = waiting or [getattr(t, "_callback", t) for t in timers if not t.cancelled()]
    if waiting:
        raise MalformedInputError(
            "a call that leaves a task running" if left else "a call that leaves a timer running",
            found=", ".join(sorted(map(str, waiting)))[:200],
            expected="a call that is over, with all its effects, when it returns",
            remedy="let the tool await the tasks and timers that it starts",
        )
    return result
