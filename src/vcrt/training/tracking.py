"""Experiment trackers, by the names that accelerate gives them: every metric of every update, and tokens a second.

Trackers are for people to look at: nothing is read back from them, and a run's result does not depend on them. Not
covered: a run's own log, which is always written.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from vcrt.errors import UnavailableError, UnknownNameError
from vcrt.hashing import Json
from vcrt.training.run import OnUpdate
from vcrt.training.update import UpdateMetrics

PROJECT = "vcrt"
#: What a tracker of accelerate is called with beside its project, by name; others are given nothing more.
_Options: TypeAlias = dict[str, Any]


def require_trackers(names: Sequence[str]) -> None:
    """Raise unless every name is a tracker's that is installed, before anything is trained.

    Raises :class:`UnknownNameError` for other names and :class:`UnavailableError` for a missing package.
    """
    if not names:
        return
    from accelerate import PartialState
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS, filter_trackers

    # Without it the library does not even say what is missing.
    PartialState()
    for name in names:
        if name not in LOGGER_TYPE_TO_CLASS:
            raise UnknownNameError.of("tracker", name, LOGGER_TYPE_TO_CLASS)
        # The library leaves out what is not installed.
        if not filter_trackers([name], logging_dir="."):
            raise UnavailableError(
                f"the tracker {name} is not installed",
                expected=f"the package that accelerate uses for {name}",
                remedy=f"pip install {name}",
            )


@contextmanager
def tracking(
    names: Sequence[str], directory: Path, run: str, settings: Mapping[str, Json]
) -> Iterator[OnUpdate]:
    """What to tell of each update, for the trackers ``names``; those that write files do so below ``directory``."""
    if not names:
        yield lambda metrics, num_tokens: None
        return
    from accelerate import PartialState
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS

    PartialState()
    trackers = []
    for name in names:
        kind = LOGGER_TYPE_TO_CLASS[name]
        if kind.requires_logging_directory:
            directory.mkdir(parents=True, exist_ok=True)
            tracker = kind(run, str(directory))
        else:
            tracker = kind(PROJECT, **_options(name, run))
        tracker.start()
        tracker.store_init_configuration(dict(settings))
        trackers.append(tracker)
    last = time.perf_counter()

    def track(metrics: UpdateMetrics, num_tokens: int) -> None:
        nonlocal last
        now = time.perf_counter()
        values = {**metrics.to_json(), "tokens_per_second": num_tokens / max(now - last, 1e-9)}
        last = now
        for tracker in trackers:
            tracker.log(values, step=metrics.update)

    try:
        yield track
    finally:
        for tracker in trackers:
            tracker.finish()


def _options(name: str, run: str) -> _Options:
    """How a tracker of runs in projects is told the name of the run."""
    return {"name": run} if name in ("trackio", "wandb") else {}
