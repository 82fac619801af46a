"""Find out what the steps of the proofs in Lean files do in every order: ``vcrt lift lean``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from vcrt.api.lifting import MIN_STEPS, each_file, replay_merged_evidence, require_within, some
from vcrt.certification.lifted_files import FileLift
from vcrt.environments.guarding import guarded
from vcrt.errors import MalformedInputError, VcrtError
from vcrt.limits import MAX_LIFTED
from vcrt.progress import SILENT, Progress
from vcrt_lean.project import find_project
from vcrt_lean.project_environment import LeanProjectEnvironment
from vcrt_lean.windows import lift_lean_project


def lift_lean(
    files: Sequence[str | Path],
    *,
    project: str | Path | None = None,
    steps: int = 4,
    progress: Progress = SILENT,
) -> Iterator[FileLift | MalformedInputError]:
    """Report on the proofs of Lean files, by windows of consecutive steps: how many orders are legal, which commute.

    The Lean of the files' own project judges them, with their imports. A file that cannot be read gives an error in its
    place and does not stop the others. The exit status is 2 if a file cannot be read or nothing can be judged.

    Example: vcrt lift lean Proofs.lean --project .

    Args:
        files: Lean files of the project.
        project: The folder of their Lake project, built by lake build; must be given.
        steps: Steps of a window, 2 to 8.

    Raises:
        UnavailableError: There is no fit Lean. Like the next, it is raised at once, not with the first file.
        MalformedInputError: The folder is no project.
    """
    files = some(files)
    if project is None:
        raise VcrtError(
            "lift lean needs a Lake project with a Lean toolchain: name its folder with --project"
        )
    require_within("steps", steps, MIN_STEPS, MAX_LIFTED)
    environment = LeanProjectEnvironment(find_project(Path(project)))
    guarded(environment)
    return each_file(
        files,
        lambda file: lift_lean_project(file, environment, replay_merged_evidence, steps=steps),
        progress,
        end=environment.close,
    )
