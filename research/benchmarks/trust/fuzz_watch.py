"""Runs a reader on many inputs in a process of its own, under limits, and counts how each one ended.

An input may end in a value or in a :class:`VcrtError`. It is a failure if it ends in any other exception, takes more
than a second of the processor, makes the process grow by more than 500 MB, or kills the process.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import multiprocessing
import random
import resource
import signal
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fuzz_mutations import Reseal, json_bytes, mutated_bytes, mutated_value, paths_of

from vcrt.errors import VcrtError

SECONDS = 1.0
MEGABYTES = 500
#: A reader that stays outside Python for so long is killed by its own process.
WALL_SECONDS = 60
#: Failures that are kept in full.
KEPT = 20


@dataclass(frozen=True, kw_only=True)
class Target:
    """A reader of outside bytes, valid inputs of it, and how much of the whole it should get."""

    name: str
    #: What the inputs are, in a word or two.
    form: str
    seeds: tuple[bytes, ...]
    read: Callable[[bytes], object]
    weight: int = 1
    #: Whether the seeds are JSON, and how to make a changed one agree with its own digests again.
    is_json: bool = False
    reseal: Reseal | None = None


@dataclass(kw_only=True)
class Outcome:
    """How many inputs of a reader ended in what."""

    reader: str
    form: str
    inputs: int = 0
    values: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    examples: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    slowest_seconds: float = 0.0
    grown_megabytes: float = 0.0


class TooSlow(BaseException):
    """Raised by the timer; no reader catches it."""


def inputs(target: Target, seed: int) -> Iterator[bytes]:
    """The valid inputs, then mutations of them without end."""
    yield from target.seeds
    rng = random.Random(zlib.crc32(target.name.encode()) ^ (seed << 32))
    values = [json.loads(data) for data in target.seeds] if target.is_json else []
    paths = [paths_of(value) for value in values]
    while True:
        if values and rng.random() < 0.8:
            which = rng.randrange(len(values))
            value = mutated_value(values[which], paths[which], rng)
            if target.reseal is not None and rng.random() < 0.75:
                # What has no digest any more is given as it is.
                with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
                    value = target.reseal(value)
            yield json_bytes(value, rng)
        else:
            yield mutated_bytes(rng.choice(target.seeds), target.seeds, rng)


def run_target(
    target: Target, *, count: int, seed: int, budget: float, failures: Path | None
) -> Outcome:
    """Give ``count`` inputs to a reader, or as many as ``budget`` seconds allow, in a process of its own."""
    current = multiprocessing.RawArray("B", 8_000_000)
    size = multiprocessing.Value("L", 0)
    receiving, sending = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("fork")
    process = context.Process(
        target=_work, args=(target, count, seed, budget, failures, current, size, sending)
    )
    process.start()
    sending.close()
    try:
        outcome: Outcome = receiving.recv()
    except EOFError:
        process.join()
        data = bytes(current[: size.value])
        outcome = Outcome(reader=target.name, form=target.form, inputs=1)
        _fail(outcome, f"process ended: {process.exitcode}", data, "", failures)
    process.join()
    return outcome


def _work(
    target: Target,
    count: int,
    seed: int,
    budget: float,
    failures: Path | None,
    current: Any,
    size: Any,
    sending: Any,
) -> None:
    faulthandler.enable()
    signal.signal(signal.SIGPROF, _too_slow)
    outcome = Outcome(reader=target.name, form=target.form)
    for data in target.seeds:
        target.read(data)
    gc.collect()
    started, began = time.monotonic(), _megabytes()
    limit = _address_space() + MEGABYTES * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    memory = memoryview(current).cast("B")
    for data in inputs(target, seed):
        if outcome.inputs >= count or time.monotonic() - started > budget:
            break
        size.value = len(data)
        memory[: len(data)] = data
        _one(target, data, outcome, failures)
    outcome.seconds = round(time.monotonic() - started, 1)
    outcome.grown_megabytes = round(_megabytes() - began, 1)
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    sending.send(outcome)


def _one(target: Target, data: bytes, outcome: Outcome, failures: Path | None) -> None:
    outcome.inputs += 1
    faulthandler.dump_traceback_later(WALL_SECONDS, exit=True)
    began = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        try:
            target.read(data)
            outcome.values += 1
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    except VcrtError as error:
        if _out_of_memory(error):
            _fail(outcome, "more than 500 MB", data, traceback.format_exc(), failures)
        else:
            str(error)
            outcome.errors[type(error).__name__] += 1
    except TooSlow:
        _fail(outcome, "more than 1 s", data, traceback.format_exc(), failures)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        _fail(outcome, type(error).__name__, data, traceback.format_exc(), failures)
    took = time.process_time() - began
    faulthandler.cancel_dump_traceback_later()
    if took > SECONDS and sum(outcome.failures.values()) == 0:
        _fail(outcome, "more than 1 s", data, "outside Python", failures)
    outcome.slowest_seconds = max(outcome.slowest_seconds, round(took, 3))


def _too_slow(number: int, frame: object) -> None:
    raise TooSlow


def _out_of_memory(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _fail(outcome: Outcome, kind: str, data: bytes, trace: str, failures: Path | None) -> None:
    outcome.failures[kind] += 1
    if len(outcome.examples) < KEPT:
        name = f"{outcome.reader.replace(' ', '-')}-{outcome.inputs}.bin"
        outcome.examples.append({"kind": kind, "input": name, "trace": trace[-1500:]})
        if failures is not None:
            failures.mkdir(parents=True, exist_ok=True)
            (failures / name).write_bytes(data)


def _address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return pages * resource.getpagesize()


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def to_json(outcome: Outcome) -> dict[str, Any]:
    """Plain counts."""
    value = asdict(outcome)
    value["errors"] = dict(sorted(outcome.errors.items()))
    value["failures"] = dict(sorted(outcome.failures.items()))
    return value
