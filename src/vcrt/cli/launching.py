"""Run a command of this program in several processes that share its work."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from vcrt.errors import RunError

#: What `accelerate launch --use_fsdp --fsdp_version 2` sets.
_SHARDED = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
}


def launch(arguments: Sequence[str], num_processes: int, *, sharded: bool) -> None:
    """Run ``vcrt`` with these arguments in ``num_processes`` processes of PyTorch's launcher and wait for them.

    Raises :class:`RunError` if there is nothing to share, and leaves with the launcher's exit code if that is not 0.
    """
    if num_processes < 2:
        raise RunError(
            "one process has nothing to share",
            found=f"--num-processes {num_processes}" + (" --sharded" if sharded else ""),
            expected="--num-processes 2 or more",
        )
    launcher = ["-m", "torch.distributed.run", "--standalone"]
    command = [sys.executable, *launcher, "--nproc-per-node", str(num_processes)]
    environment = {**os.environ, **(_SHARDED if sharded else {})}
    environment.setdefault("OMP_NUM_THREADS", "1")
    done = subprocess.run([*command, "-m", "vcrt", *arguments], env=environment, check=False)
    if done.returncode != 0:
        sys.exit(done.returncode)
