"""Find out what windows of the proofs in Rocq files do in every order: ``vcrt lift rocq``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from vcrt.api.lifting import MIN_STEPS, each_file, replay_merged_evidence, require_within, some
from vcrt.certification.lifted_files import FileLift, ReplayOrders, judged_windows
from vcrt.environments.contract import Environment
from vcrt.environments.guarding import make_guarded
from vcrt.environments.registry import Registered
from vcrt.errors import MalformedInputError
from vcrt.limits import MAX_LIFTED
from vcrt.progress import SILENT, Progress
from vcrt_rocq.lifting import lift_file

_STANDS = "a proof that Rocq accepts as it stands, over its standard library alone"


def lift_rocq(
    files: Sequence[str | Path], *, steps: int = 4, progress: Progress = SILENT
) -> Iterator[FileLift | MalformedInputError]:
    """Report on the proofs of Rocq files, by windows of consecutive steps: how many orders are legal, which commute.

    Each window starts in the state that the file has before it. A file that cannot be read gives an error in its place
    and does not stop the others. The exit status is 2 if a file cannot be read or nothing can be judged.

    Example: vcrt lift rocq Proofs.v

    Args:
        files: Rocq files over the standard library.
        steps: Steps of a window, 2 to 8.

    Raises:
        UnavailableError: There is no fit Rocq. It is raised at once, not with the first file.
    """
    files = some(files)
    require_within("steps", steps, MIN_STEPS, MAX_LIFTED)
    environment = make_guarded(Registered("rocq"))
    return each_file(
        files,
        lambda file: lift_rocq_file(file, environment, replay_merged_evidence, steps=steps),
        progress,
    )


def lift_rocq_file(
    path: Path, environment: Environment, replay: ReplayOrders, *, steps: int
) -> FileLift:
    """Lift a ``.v`` file and report what windows of ``steps`` steps do in every order, as ``replay`` replays them.

    Raises :class:`MalformedInputError` if the file cannot be read, and :class:`vcrt.errors.UnavailableError` without a
    fit Rocq.
    """
    versions = environment.versions()
    file = lift_file(path, steps=steps)
    return FileLift.of(file, versions, judged_windows(file, environment, replay, _STANDS, "rocq"))
