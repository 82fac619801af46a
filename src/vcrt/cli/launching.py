"""Run a command of this program in several processes that share its work.

The first process has the terminal; what the others print is shown only if it explains why one of them failed. Each
tells its :class:`Launcher` how it ended, which prints what the first that failed has said, once. Not covered: several
machines, for which there are `torchrun` and `accelerate launch`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import IO, NoReturn

from vcrt.errors import RunError, UnavailableError, VcrtError
from vcrt.workers import end_with

#: The environment variable that names the launcher's process and the open file for last words: ``PID:DESCRIPTOR``.
LAUNCHER = "VCRT_LAUNCHER"
#: Seconds that a process waits before it leaves with an unforeseen error. That may be a connection that another
#: process's death has cut: then the launcher hears of that one first and ends this one.
PATIENCE_S = 3.0
#: What `accelerate launch --use_fsdp --fsdp_version 2` sets.
_SHARDED = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
}
#: Seconds between two looks at the processes.
_LOOK_S = 0.02
#: Seconds that a process has to tidy up before it is killed.
GRACE_S = 10.0
#: Of what a failed process printed, the end is shown: so many characters.
_SHOWN = 4000


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


def require_processes(num_processes: int, *, sharded: bool) -> None:
    """Raise unless so many processes can share work on this machine.

    Raises :class:`VcrtError` for less than one, :class:`RunError` if there is nothing to share, and
    :class:`UnavailableError` for more than there are GPUs, if there are any.
    """
    found = f"--num-processes {num_processes}" + (" --sharded" if sharded else "")
    if num_processes < 1:
        raise VcrtError("too few processes", found=found, expected="at least 1")
    if num_processes == 1 and sharded:
        raise RunError(
            "one process has nothing to share", found=found, expected="--num-processes 2 or more"
        )
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if num_processes > 1 and 0 < gpus < num_processes:
        raise UnavailableError(
            "each process needs a GPU of its own",
            found=f"{found}, {gpus} GPUs",
            expected=f"at most --num-processes {gpus}",
            remedy="use fewer processes, or CUDA_VISIBLE_DEVICES= to train on the processor",
        )


def launch(arguments: Sequence[str], num_processes: int, *, sharded: bool, remedy: str) -> None:
    """Run ``vcrt`` with these arguments in ``num_processes`` processes that find each other, and wait for them.

    Raises and leaves as :func:`run_together` does.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    # Held here from the choice of its port on: no other program can take it before the processes meet.
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    meeting = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    environment = {"OMP_NUM_THREADS": "1", **os.environ, **meeting, **(_SHARDED if sharded else {})}
    command = [sys.executable, "-m", "vcrt", *arguments]
    run_together(command, num_processes, environment=environment, remedy=remedy)


def run_together(
    command: Sequence[str],
    num_processes: int,
    *,
    environment: Mapping[str, str],
    remedy: str,
    grace_s: float = GRACE_S,
) -> None:
    """Run ``command`` as ranks 0 to ``num_processes - 1`` and wait until all are done or one has failed.

    When one fails, the others are ended, after ``grace_s`` seconds by force, and the failure is this process's: the
    named error or the exit code of the one that failed first, or a :class:`RunError` with this ``remedy`` if a signal
    killed it. An interruption of one of them or of this process ends all and raises KeyboardInterrupt.
    """
    with ExitStack() as files:
        ranks: list[_Rank] = []
        try:
            with _only_this_process_interrupted():
                for rank in range(num_processes):
                    ranks.append(_start(command, rank, num_processes, environment, files))
            while not (failed := [rank for rank in ranks if rank.process.poll()]):
                if all(rank.process.poll() == 0 for rank in ranks):
                    return
                time.sleep(_LOOK_S)
        finally:
            _end(ranks, grace_s)
        _fail_as(min(failed, key=_Rank.order), num_processes, remedy)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rank:
    rank: int
    process: subprocess.Popen[bytes]
    words: IO[bytes]
    output: IO[bytes]

    def last_words(self) -> tuple[int, str] | None:
        """The exit code and text that the process has told its launcher, if it has."""
        self.words.seek(0)
        try:
            told = json.loads(self.words.read())
            return int(told["exit_code"]), str(told["text"])
        except ValueError:
            return None

    def printed(self) -> str:
        """The end of what it printed; nothing for the first, which prints to the terminal."""
        self.output.seek(max(0, self.output.seek(0, os.SEEK_END) - _SHOWN))
        return self.output.read().decode(errors="replace")

    def order(self) -> tuple[int, int]:
        """Of several that failed at one look, the least is the cause: the others may have lost their connection."""
        told, code = self.last_words(), self.process.returncode
        if told is not None and told[0] != 1:
            return 0, self.rank
        if code < 0:
            return (2 if code == -signal.SIGABRT else 1), self.rank
        return 3, self.rank


def _start(
    command: Sequence[str], rank: int, size: int, environment: Mapping[str, str], files: ExitStack
) -> _Rank:
    # Without names, so that nothing is left behind whatever happens.
    words, output = (
        files.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        for _ in range(2)
    )
    place = {
        **{"RANK": str(rank), "LOCAL_RANK": str(rank)},
        **{"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)},
        LAUNCHER: f"{os.getpid()}:{words.fileno()}",
    }
    process = subprocess.Popen(
        command,
        env={**environment, **place},
        stdin=subprocess.DEVNULL if rank else None,
        stdout=output if rank else None,
        stderr=output if rank else None,
        pass_fds=[words.fileno()],
    )
    return _Rank(rank=rank, process=process, words=words, output=output)


def _end(ranks: Sequence[_Rank], grace_s: float) -> None:
    """End those that still run; a further interruption meanwhile kills them at once."""
    try:
        for rank in ranks:
            rank.process.terminate()
        deadline = time.monotonic() + grace_s
        while time.monotonic() < deadline and any(rank.process.poll() is None for rank in ranks):
            time.sleep(_LOOK_S)
    finally:
        for rank in ranks:
            rank.process.kill()
        for rank in ranks:
            rank.process.wait()


def _fail_as(failed: _Rank, size: int, remedy: str) -> NoReturn:
    """Raise the failure of one process, or leave with its exit code."""
    code = failed.process.returncode
    name = f"process {failed.rank} of {size}"
    if code == 130:
        raise KeyboardInterrupt
    told = failed.last_words()
    if told is not None:
        code, text = told
        if code != 1:
            error = RunError(text)
            error.exit_code = code
            raise error
        print(f"{name} failed:\n{text}", file=sys.stderr, end="")
    elif printed := failed.printed():
        print(f"the last that {name} printed:\n{printed}", file=sys.stderr)
    if code >= 0:
        sys.exit(code)
    raise RunError(
        f"{name} was ended by {_signal_name(-code)}",
        where=f"rank {failed.rank}",
        found=f"signal {-code}"
        + (", which the system sends where memory runs out" if code == -signal.SIGKILL else ""),
        remedy=remedy,
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@contextmanager
def _only_this_process_interrupted() -> Iterator[None]:
    """Processes that are started in the context do not hear Ctrl-C; one that comes meanwhile is raised at the end.

    A terminal sends it to all of them, but this process alone is to decide how the others end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    handlers = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    ours = {s: handler for s, handler in handlers.items() if callable(handler)}
    for number in ours:
        signal.signal(number, lambda number, _: came.append(number))
    # Processes inherit what their starter blocks.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number, handler in ours.items():
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt
