"""A process that `vcrt train --num-processes` started: what it has to say at its end is for its launcher to print.

Its launcher (:mod:`vcrt.cli.launching`) hears of every process and prints what the first that failed has said, once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

from vcrt.errors import VcrtError
from vcrt.workers import end_with

#: The environment variable that names the launcher's process and the open file for last words: ``PID:DESCRIPTOR``.
LAUNCHER = "VCRT_LAUNCHER"
#: Seconds that a process waits before it leaves with an unforeseen error. That may be a connection that another
#: process's death has cut: then the launcher hears of that one first and ends this one.
PATIENCE_S = 3.0


@dataclass(frozen=True, slots=True)
class Launcher:
    """The launcher of this process; ``descriptor`` is an open file that it reads afterwards."""

    descriptor: int

    @classmethod
    def of_this_process(cls) -> Launcher | None:
        """The launcher that started this process, if one did; this process ends soon after it from now on."""
        # Taken away, as this process's own children have another parent.
        named = os.environ.pop(LAUNCHER, None)
        if named is None:
            return None
        parent, descriptor = map(int, named.split(":"))
        os.set_inheritable(descriptor, False)
        end_with(parent)
        return cls(descriptor)

    def leave(self, error: VcrtError) -> NoReturn:
        """Leave after a named error, with its exit code."""
        self._tell(error.exit_code, str(error))
        sys.exit(error.exit_code)

    def leave_with_traceback(self) -> NoReturn:
        """Leave with exit code 1 after the unforeseen error that is being handled; the launcher may interrupt this."""
        self._tell(1, traceback.format_exc())
        time.sleep(PATIENCE_S)
        sys.exit(1)

    def _tell(self, exit_code: int, text: str) -> None:
        os.write(self.descriptor, json.dumps({"exit_code": exit_code, "text": text}).encode())


def interrupt_once(number: int, frame: FrameType | None) -> None:
    """A signal's handler: interrupt as Ctrl-C does, and let no second signal disturb the tidying up."""
    del frame
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
