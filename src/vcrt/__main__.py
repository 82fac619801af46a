"""Run the command line: as ``vcrt``, and as ``python -m vcrt`` where that script is not on the path."""

from __future__ import annotations

import gc
import sys
from contextlib import ExitStack

#: What a worker imports that replays the calls of a log and makes a schedule of them.
_NEEDED = "vcrt.api.schedules"


def main() -> None:
    """Run one command; see :func:`vcrt.cli.main`."""
    given = sys.argv[1:]
    # Until the command runs, nothing is made that goes again.
    gc.disable()
    with ExitStack() as stack:
        if "--environment" in given and (given[0] == "schedule" or given[:2] == ["lift", "log"]):
            # Workers start while this process imports what it needs itself; of a schedule, the other one follows later.
            from vcrt.processes import kept_processes

            kept = stack.enter_context(kept_processes())
            for process in kept if given[0] == "lift" else [kept.first]:
                process.prepare(_NEEDED)
        from vcrt.cli import main as run

        run()


if __name__ == "__main__":
    main()
