"""Give the same time and random numbers each time a step is run, so that states can be compared although steps ask.

Covered: ``django.utils.timezone.now``, ``uuid.uuid4`` and ``random``; of other ``luck`` they are other numbers. Not
covered: ``datetime.now``, the database's own clock, ``secrets``; states that hold these differ, which is found by
running every order twice (:mod:`vcrt_django.chance`).
"""

from __future__ import annotations

import hashlib
import random
import uuid
from datetime import UTC, datetime
from functools import wraps
from itertools import count


class Steady:
    """What stands in place of the clock and of random numbers, from when it is made."""

    def __init__(self, now: str) -> None:
        from django.conf import settings
        from django.utils import timezone

        self.luck = ""
        moment = datetime.fromisoformat(now)
        self.begin("")

        @wraps(timezone.now)
        def fixed() -> datetime:
            return moment if settings.USE_TZ else moment.astimezone().replace(tzinfo=None)

        @wraps(uuid.uuid4)
        def drawn() -> uuid.UUID:
            digest = hashlib.sha256(f"{self._name} {next(self._drawn)}".encode()).digest()
            return uuid.UUID(bytes=digest[:16], version=4)

        timezone.now = fixed
        uuid.uuid4 = drawn

    def begin(self, name: str) -> None:
        """From now on a step of this name is run."""
        self._name, self._drawn = f"{name}{self.luck}", count()
        random.seed(self._name)


def moment() -> str:
    """Now, for all workers of one project."""
    return datetime.now(UTC).isoformat()
