"""Run the commands that carry out a plan: train, and the one evaluate."""

from __future__ import annotations

import os

import vcrt
from vcrt.cli.options import ExperimentPath, plain_console, say
from vcrt.cli.progress import showing_progress
from vcrt.errors import RunError
from vcrt.jobs import num_jobs
from vcrt.printable import counted


def train(
    experiment: ExperimentPath,
    resume: bool = False,
    jobs: int | None = None,
    num_processes: int = 1,
    sharded: bool = False,
    prompts_at_a_time: int | None = None,
    gradient_checkpointing: bool = False,
    trackers: tuple[str, ...] = (),
    other_code: str | None = None,
) -> None:
    """Train every run of a plan; a run opens no file of the environment that it holds out.

    `accelerate launch -m vcrt train EXPERIMENT` and `torchrun` do the same as --num-processes.

    Runs that were interrupted go on, to the same result as without it; finished ones are left as they are.

    Example: vcrt train runs/experiment

    Args:
        experiment: A directory made by `vcrt plan`.
        resume: Changes nothing: interrupted runs go on in any case.
        jobs: Worker processes, one run each; by default as many as there are cores, or one on a GPU.
        num_processes: Processes that share the prompts of each update, one run after another; usually one a GPU.
        sharded: Each of them holds a part of the model (FSDP2) in place of the whole.
        prompts_at_a_time: Score at most so many prompts at a time, which needs less memory; same result but for
            rounding.
        gradient_checkpointing: Compute activations twice instead of keeping them, which needs less memory; same result
            but for rounding.
        trackers: Trackers that are told of every update: tensorboard, trackio and wandb write below
            EXPERIMENT/tracking and need no network; other trackers of accelerate are taken by name too.
        other_code: Why other source code of vcrt than was planned is to train; every later report shows it.
    """
    from vcrt.cli.launching import launch, require_processes
    from vcrt.protocol.planned_training import require_trainable
    from vcrt.protocol.source_validation import (
        RULE,
        TOO_FEW,
        flagged_runs,
        is_too_short_to_flag,
    )
    from vcrt.training.distributed import is_launched
    from vcrt.training.tracking import require_trackers

    if not is_launched():
        require_processes(num_processes, sharded=sharded)
    opened = vcrt.open_experiment(experiment)
    num_jobs(jobs)
    require_trackers(trackers)
    # Once here, not once in each process.
    if num_processes > 1 and not is_launched() and require_trainable(opened, other_code=other_code):
        options = []
        if prompts_at_a_time is not None:
            options += ["--prompts-at-a-time", str(prompts_at_a_time)]
        if gradient_checkpointing:
            options += ["--gradient-checkpointing"]
        if other_code is not None:
            options += ["--other-code", other_code]
        if trackers:
            options += ["--trackers", *trackers]
        shared = f"--num-processes {num_processes}" + (" --sharded" if sharded else "")
        launch(
            ["train", str(experiment), *options],
            num_processes,
            sharded=sharded,
            remedy=f"go on from the last checkpoints with `vcrt train {experiment} {shared}`",
        )
        return
    done = len(opened.finished_runs())
    console = plain_console(quiet=is_launched() and os.environ.get("RANK", "0") != "0")
    with showing_progress(console) as progress:
        digests = vcrt.train(
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


def evaluate(
    experiment: ExperimentPath,
    reopen: bool = False,
    reason: str | None = None,
    jobs: int | None = None,
    prompts_at_a_time: int = 64,
    other_code: str | None = None,
) -> None:
    """Open the held-out folds and score every run, once.

    Example: vcrt evaluate runs/experiment

    Args:
        experiment: An experiment whose runs are all trained.
        reopen: Open again what was opened and scored before; every later report says so.
        reason: Why it is opened again.
        jobs: Worker processes; as many as there are cores by default, or one on a GPU.
        prompts_at_a_time: Score so many prompts in one pass; fewer need less memory.
        other_code: Why other source code of vcrt than was planned is to score; every later report shows it.
    """
    if reopen != bool(reason):
        raise RunError(
            "a second opening needs both --reopen and --reason",
            found="only one of them",
            remedy='for example: --reopen --reason "a checkpoint file was restored"',
        )
    console = plain_console()
    with showing_progress(console) as progress:
        vcrt.evaluate(
            experiment,
            jobs=jobs,
            reopen_reason=reason,
            prompts_at_a_time=prompts_at_a_time,
            progress=progress,
            other_code=other_code,
        )
    say(console, f"next: vcrt report {experiment}")
