"""Run the command train, and make the options of evaluate."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import vcrt_train
from vcrt.cli.options import last_given, plain_console, say
from vcrt.cli.progress import showing_progress
from vcrt.errors import RunError, VcrtError
from vcrt.printable import counted
from vcrt.processes import num_jobs

if TYPE_CHECKING:
    from vcrt_train.protocol.scores import Scores

#: Seconds that a process waits before it reports an unforeseen error. If the end of another process cut its connection,
#: torchrun ends this process before it reports that.
_PATIENCE_S = 2.0


def train(
    experiment: Path,
    resume: bool = False,
    jobs: int | None = None,
    sharded: bool = False,
    prompts_at_a_time: int | None = None,
    gradient_checkpointing: bool = False,
    trackers: tuple[str, ...] = (),
    other_code: str | None = None,
) -> None:
    """Train every run of a plan; a run opens no file of the environment that it holds out.

    With `torchrun --standalone --nproc-per-node 4 -m vcrt train EXPERIMENT`, four processes share the prompts of each
    update, one run after another; usually there is one process for each GPU. `accelerate launch` can start them too.

    Interrupted runs continue, with the same result as without the interruption; finished runs are left as they are.

    Example: vcrt train runs/experiment

    Args:
        experiment: A directory made by `vcrt plan`.
        resume: Changes nothing: interrupted runs continue in any case.
        jobs: Worker processes, one run each; by default as many as there are cores, or one on a GPU.
        sharded: Each process of `torchrun` holds a part of the model (FSDP2) instead of the whole.
        prompts_at_a_time: Score at most this many prompts at a time, which needs less memory; the result differs only
            by rounding.
        gradient_checkpointing: Compute activations twice instead of keeping them, which needs less memory; the result
            differs only by rounding.
        trackers: Trackers that record every update: tensorboard, trackio and wandb write below EXPERIMENT/tracking and
            need no network; other trackers of accelerate work by name too.
        other_code: Your reason to train with other source code of vcrt than the plan's; every later report shows it.
    """
    from vcrt_train.protocol.source_validation import (
        RULE,
        TOO_FEW,
        flagged_runs,
        is_too_short_to_flag,
    )
    from vcrt_train.training.process_group import SHARDED, is_launched
    from vcrt_train.training.tracking import require_trackers

    if sharded:
        os.environ.update(SHARDED)
    opened = vcrt_train.open_experiment(experiment)
    num_jobs(jobs)
    require_trackers(trackers)
    done = len(opened.finished_runs())
    console = plain_console(quiet=is_launched() and os.environ.get("RANK", "0") != "0")
    with showing_progress(console) as progress:
        digests = (_train_shared if is_launched() else vcrt_train.train)(
            opened,
            jobs=jobs,
            prompts_at_a_time=prompts_at_a_time,
            gradient_checkpointing=gradient_checkpointing,
            trackers=trackers,
            progress=progress,
            other_code=other_code,
        )
    already = f" ({done} already were)" if done else ""
    say(console, f"{counted(len(digests), 'run')} at the last update{already}")
    flagged = flagged_runs({n: entry.body for n, entry in opened.finished_runs().items()})
    if flagged:
        named = ", ".join(f"{name} (at update {update})" for name, update in flagged.items())
        say(console, f"warning: {counted(len(flagged), 'run')} flagged: {named}. {RULE}")
    if is_too_short_to_flag(opened.plan.config.schedule):
        say(console, f"note: {TOO_FEW} a run; plan with a lower --schedule.validate-every. {RULE}")
    say(console, f"next: vcrt evaluate {experiment}")


def not_launching(command: Callable[..., None], arguments: Sequence[str]) -> Callable[..., None]:
    """Return the command ``train`` unchanged.

    Raises :class:`RunError`, with the command of torchrun, if the options ask for processes that share a training.
    """
    number = last_given(arguments, "--num-processes")
    if number is None:
        if "--sharded" not in arguments:
            return command
        from vcrt_train.training.process_group import is_launched

        if is_launched():
            return command
    torchrun = re.sub(r" --num-processes[ =]\S+", "", shlex.join(["vcrt", "train", *arguments]))
    raise RunError(
        "vcrt does not start the processes that share a training",
        found="--sharded" if number is None else f"--num-processes {number}",
        remedy=f"run `torchrun --standalone --nproc-per-node {number or 2} -m {torchrun}`",
    )


def _train_shared(*arguments: Any, **options: Any) -> Mapping[str, str]:
    """Train as one of several processes, and record an error for torchrun, which reports the first one at its end."""
    from torch.distributed.elastic.multiprocessing.errors import get_error_handler

    try:
        return vcrt_train.train(*arguments, **options)
    except Exception as error:
        if not isinstance(error, VcrtError):
            time.sleep(_PATIENCE_S)
        get_error_handler().record_exception(error)
        raise


def requiring_a_reason(
    command: Callable[..., None], arguments: Sequence[str]
) -> Callable[..., None]:
    """Make ``evaluate`` accept --reopen and --reason only together; raises :class:`RunError` otherwise."""

    @wraps(command)
    def run(**options: Any) -> None:
        if options["reopen"] != bool(options["reopen_reason"]):
            raise RunError(
                "a second opening needs both --reopen and --reason",
                found="only one of them",
                remedy='for example: --reopen --reason "a checkpoint file was restored"',
            )
        command(**options)

    return run


def print_evaluated(_: Scores, *, experiment: Path, reopen: bool = False) -> None:
    """Print the next command.

    Args:
        reopen: Open folds again that were scored before; every later report says so.
    """
    say(plain_console(), f"next: vcrt report {experiment}")
