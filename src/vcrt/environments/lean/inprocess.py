"""The client of the worker that elaborates trees of texts: starting it, limits, replacing one that broke or grew.

Promises an answer to each request from a worker that stayed alive while it worked on it, or :class:`WorkerBroken`;
a death is never an answer. Not covered: what the texts and answers mean (see
:mod:`vcrt.environments.lean.sharing`).
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import vcrt
from vcrt.environments.lean.messages import Message
from vcrt.environments.lean.rendering import PRELUDE

#: Nothing of the user's Python set-up gets into the worker; our package comes last, after the standard library.
_START = "import sys; sys.path.append(sys.argv.pop()); from vcrt.environments.lean.worker import main; main()"
#: A worker is replaced after so many texts: what it keeps for good stays far below its limit on memory.
TEXTS_PER_WORKER = 20_000
_SECONDS_TO_START = 120.0
_CHUNK = 1 << 16


class WorkerBroken(Exception):
    """A worker died, or was killed for taking too long, or said what is not an answer; the text says which."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text to run, and those to run after it; these are left out if its first ``guarded`` lines hold an error."""

    text: str
    guarded: int
    longer: list[Text]

    def count(self) -> int:
        """How many texts there are."""
        return 1 + sum(text.count() for text in self.longer)

    def to_json(self) -> list[Any]:
        """The form in which the worker gets it."""
        return [self.text, self.guarded, [text.to_json() for text in self.longer]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What Lean said to a text, and the answers to those after it (none if they were left out)."""

    said: list[Message]
    longer: list[Answer]


class Elaborators:
    """Elaborates trees of texts in a worker process, one worker at a time.

    ``folder`` holds Lean's libraries; ``max_heartbeats`` is Lean's limit on the work for one command. The worker is
    started when it is first needed, ends with this process, and is replaced after ``texts_per_worker`` texts.
    """

    def __init__(
        self, folder: Path, *, max_heartbeats: int, texts_per_worker: int = TEXTS_PER_WORKER
    ) -> None:
        self._folder = folder
        self._max_heartbeats = max_heartbeats
        self._texts_per_worker = texts_per_worker
        self._worker: _Worker | None = None
        self._texts = 0

    def run(self, texts: Sequence[Text], *, seconds: float) -> list[Answer]:
        """The answers to ``texts``.

        A worker that breaks is replaced and the request made once more. Raises :class:`WorkerBroken` if that breaks
        too. ``seconds`` is the wall-clock limit on each attempt.
        """
        try:
            return self._attempt(texts, seconds)
        except WorkerBroken:
            return self._attempt(texts, seconds)

    def close(self) -> None:
        """End the worker, if there is one."""
        if self._worker is not None:
            self._worker.end()
            self._worker = None

    def _attempt(self, texts: Sequence[Text], seconds: float) -> list[Answer]:
        count = sum(text.count() for text in texts)
        if self._texts + count > self._texts_per_worker:
            self.close()
        if self._worker is None:
            self._worker = self._started()
            self._texts = 0
        self._texts += count
        try:
            answers = self._worker.ask([text.to_json() for text in texts], seconds)
            return _read_answers(texts, answers)
        except BaseException:
            self.close()
            raise

    def _started(self) -> _Worker:
        worker = _Worker(self._folder)
        try:
            # The header of a file is not a command; the line stays, so that positions do.
            prelude = PRELUDE.removeprefix("prelude")
            limit = f"set_option maxHeartbeats {self._max_heartbeats}\n"
            said = worker.ask({"prelude": prelude + limit}, _SECONDS_TO_START)
            if said != []:
                raise WorkerBroken(f"the prelude is not accepted: {said}")
        except BaseException:
            worker.end()
            raise
        return worker


class _Worker:
    """One worker process."""

    def __init__(self, folder: Path) -> None:
        self._errors = TemporaryFile()
        self._process = subprocess.Popen(
            _command(folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._input, False)

    def ask(self, request: Any, seconds: float) -> Any:
        """The answer to one request."""
        unsent = memoryview(json.dumps(request).encode() + b"\n")
        answer = bytearray()
        deadline = time.monotonic() + seconds
        while not answer.endswith(b"\n"):
            left = deadline - time.monotonic()
            wanted = [self._input] if unsent else []
            readable, writable, _ = select.select([self._output], wanted, [], max(left, 0.0))
            if not readable and not writable:
                raise WorkerBroken(f"no answer after {seconds:g} s")
            try:
                if writable:
                    unsent = unsent[os.write(self._input, unsent[:_CHUNK]) :]
                if readable:
                    chunk = os.read(self._output, _CHUNK)
                    if not chunk:
                        raise BrokenPipeError
                    answer += chunk
            except BrokenPipeError:
                raise WorkerBroken(self._death()) from None
        try:
            return json.loads(answer)
        except ValueError:
            raise WorkerBroken(f"not an answer: {bytes(answer[:100])!r}") from None

    def end(self) -> None:
        """Kill the process, if it is not dead yet."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            self._process.kill()
        self._process.communicate()
        self._errors.close()

    def _death(self) -> str:
        status = self._process.wait()
        self._errors.seek(0)
        noise = self._errors.read().decode(errors="replace").strip()[-300:]
        return f"exit status {status}{': ' if noise else ''}{noise}"


@cache
def shared_elaborators(folder: Path, max_heartbeats: int, process: int) -> Elaborators:
    """The elaborators of this ``process`` (its number: a forked child must not use its parent's worker)."""
    return Elaborators(folder, max_heartbeats=max_heartbeats)


def _read_answers(texts: Sequence[Text], value: Any) -> list[Answer]:
    try:
        return [_answer(text, answer) for text, answer in zip(texts, value, strict=True)]
    except (TypeError, ValueError) as error:
        raise WorkerBroken(f"not an answer to what was asked: {error}") from None


def _answer(text: Text, value: Any) -> Answer:
    said, longer = value
    messages = [
        Message(line=int(line), severity=str(severity), text=str(words))
        for line, severity, words in said
    ]
    left_out = any(m.is_error and m.line <= text.guarded for m in messages)
    expected = [] if left_out else text.longer
    return Answer(messages, [_answer(*pair) for pair in zip(expected, longer, strict=True)])


def _command(folder: Path) -> list[str]:
    root = Path(vcrt.__file__).resolve().parent.parent
    return [sys.executable, "-I", "-S", "-c", _START, str(folder), str(root)]
