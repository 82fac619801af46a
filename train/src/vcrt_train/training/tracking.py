"""Send every metric of every update, and tokens per second, to experiment trackers, by accelerate's names for them.

Trackers are for people: nothing is read back from them, and a run's result does not depend on them. TensorBoard,
trackio and W&B write below the experiment and need no network: W&B is offline unless ``WANDB_MODE`` says otherwise, and
variables that the user has set (``TRACKIO_DIR``, ``WANDB_DIR``, ...) take precedence. This module does not determine
where other trackers of accelerate write or whether they need a network, and does not write a run's own log.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from vcrt.errors import RunError, UnavailableError, UnknownNameError
from vcrt.hashing import Json
from vcrt_train.training.run import OnUpdate
from vcrt_train.training.update import UpdateMetrics

PROJECT = "vcrt"


def require_trackers(names: Sequence[str]) -> None:
    """Raise unless every name is that of an installed tracker; call this before anything is trained.

    Raises :class:`UnknownNameError` for other names and :class:`UnavailableError` for a missing package.
    """
    if not names:
        return
    from accelerate import PartialState
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS, filter_trackers

    # Without this, the library does not even log which trackers are missing.
    PartialState()
    for name in names:
        if name not in LOGGER_TYPE_TO_CLASS:
            raise UnknownNameError.of("tracker", name, LOGGER_TYPE_TO_CLASS)
        # The library leaves out trackers that are not installed.
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
    """Yield a function that sends each update to the trackers ``names``, whose files lie below ``directory``.

    Raises :class:`UnavailableError` for a tracker that does not start, and :class:`RunError` if this process has used
    trackio with another folder: trackio keeps one folder for each process.
    """
    if not names:
        yield lambda metrics, num_tokens: None
        return
    directory = directory.resolve()
    variables = {key: value for name in names for key, value in _variables(name, directory).items()}
    with _defaults(variables), ExitStack() as finishing:
        if "trackio" in names:
            _require_trackio_at(Path(os.environ["TRACKIO_DIR"]))
        trackers = []
        for name in names:
            tracker = _started(name, directory, run)
            finishing.callback(tracker.finish)
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

        yield track


def _started(name: str, directory: Path, run: str) -> Any:
    from accelerate import PartialState
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS

    PartialState()
    directory.mkdir(parents=True, exist_ok=True)
    kind = LOGGER_TYPE_TO_CLASS[name]
    if kind.requires_logging_directory:
        tracker = kind(run, str(directory))
    else:
        # These trackers take the name of a run in the project.
        tracker = kind(PROJECT, **({"name": run} if name in ("trackio", "wandb") else {}))
    try:
        tracker.start()
    # Trackers raise errors of no common class.
    except Exception as error:
        raise UnavailableError(
            f"the tracker {name} could not be started",
            found=f"{type(error).__name__}: {error}".splitlines()[0],
            remedy="leave WANDB_MODE unset, and send the run later with `wandb sync`"
            if name == "wandb"
            else f"leave {name} out of --trackers; nothing else depends on it",
        ) from error
    return tracker


def _variables(name: str, directory: Path) -> dict[str, str]:
    """Return the environment variables that keep a tracker's files below ``directory``, and W&B off the network."""
    if name == "trackio":
        return {"TRACKIO_DIR": str(directory / "trackio")}
    if name == "wandb":
        kept = directory / "wandb"
        folders = {"CACHE": "cache", "CONFIG": "config", "DATA": "data", "ARTIFACT": "artifacts"}
        return {
            "WANDB_MODE": "offline",
            # Without it, each run ends with a page of terminal plots.
            "WANDB_QUIET": "true",
            "WANDB_DIR": str(directory),
            **{f"WANDB_{key}_DIR": str(kept / folder) for key, folder in folders.items()},
        }
    return {}


@contextmanager
def _defaults(variables: Mapping[str, str]) -> Iterator[None]:
    """Set the environment variables that are not set, until the end of the context."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _require_trackio_at(directory: Path) -> None:
    # trackio reads the variable once, when it is imported, and would continue to write to another experiment.
    loaded = sys.modules.get("trackio.utils")
    if loaded is not None and Path(loaded.TRACKIO_DIR) != directory:
        raise RunError(
            "trackio cannot change its folder after this process has first used it",
            found=str(loaded.TRACKIO_DIR),
            expected=str(directory),
            remedy="train in a process of its own, as `vcrt train` does, or set TRACKIO_DIR for all of them",
        )
