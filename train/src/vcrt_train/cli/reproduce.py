"""Print the result of a demo."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from vcrt.cli.certify import print_counts
from vcrt.cli.options import plain_console, say
from vcrt_train.cli.report import say_report

if TYPE_CHECKING:
    from vcrt_train.api.reproducing import Demo


def print_demo(made: Demo) -> None:
    """Print the result of a demo, and what to try next."""
    console = plain_console()
    print_counts(console, made.dataset.manifest)
    say_report(console, made.report)
    agreement, dataset, vcrt_command = made.agreement, made.dataset.path, _command()
    say(
        console,
        f"{agreement.episodes} episodes, {agreement.agreed} of {agreement.replays} replays agree; "
        f"{made.seconds:.0f} s in all",
        f"root hash  {made.dataset.manifest.root_hash}",
        f"dataset    {dataset}",
        f"experiment {made.experiment.path}",
        f"report     {made.report.files['report.html']}",
        f"explorer   {made.explorer}",
        "",
        "try next:",
        f"  {vcrt_command} verify {dataset}",
        f"  {vcrt_command} environments validate clrs",
        f"  {vcrt_command} plan {dataset} --output {made.folder / 'ablation'} --methods vcrt no-orbit no-anti",
    )


def _command() -> str:
    """How to call this very command from the shell: by its name only if the shell finds it."""
    called = Path(sys.argv[0])
    return called.name if shutil.which(called.name) else str(called)
