"""Find out what the steps of the proofs in Lean files do in every order: ``vcrt lift lean``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from vcrt.api.lifting import MIN_STEPS, each_file, replay_merged_evidence, require_within, some
from vcrt.certification.lifted_files import FileLift
from vcrt.environments.guarding import guarded
from vcrt.errors import MalformedInputError
from vcrt.limits import MAX_LIFTED
from vcrt.progress import SILENT, Progress
from vcrt_lean.project import find_project
from vcrt_lean.project_environment import LeanProjectEnvironment
from vcrt_lean.windows import lift_lean_project


def lift_lean(
    files: Sequence[str | Path],
    *,
    project: str | Path,
    steps: int = 4,
    progress: Progress = SILENT,
) -> Iterator[FileLift | MalformedInputError]:
    """What windows of ``steps`` steps of the proofs in Lean files do in every order: ``vcrt lift lean``.

    The Lean of the ``project``, the folder of a Lake project, judges its own files with their imports. A file that
    cannot be read gives an error in its place and does not stop the others. Raises
    :class:`vcrt.errors.UnavailableError` without a fit Lean, and :class:`MalformedInputError` for a folder that is no
    project, both at once and not with the first file.
    """
    files = some(files)
    require_within("steps", steps, MIN_STEPS, MAX_LIFTED)
    environment = LeanProjectEnvironment(find_project(Path(project)))
    guarded(environment)
    return each_file(
        files,
        lambda file: lift_lean_project(file, environment, replay_merged_evidence, steps=steps),
        progress,
        end=environment.close,
    )
