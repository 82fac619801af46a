"""Judge and certify completions in worker processes, while their caller does something else.

:meth:`CompletionJudge.begin` hands completions out, :meth:`CompletionJudge.finish` waits for their judgements. Two sets
of workers live as long as the judge: the first judges, the second replays what the first has accepted. A worker that
dies or exceeds its time limit is ended with all that it started. Its completion is tried once more, alone; a second
failure raises :class:`vcrt.errors.VerifierFailure`: a broken verifier is never a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any

from vcrt.errors import MalformedInputError, UnknownNameError, VerifierFailure
from vcrt.hashing import Json, json_digest
from vcrt.limits import MAX_COMPLETE
from vcrt.processes.watching import Doing
from vcrt.processes.work import do_alone
from vcrt.processes.workers import WorkerDiedError, Workers, do_piece
from vcrt.replay.completions import FirstLook, Judgement, Looks, Work, look_again, look_first
from vcrt.replay.shards import EnvironmentFactory, Kept

#: The default for the most steps of a certified completion. With more, contexts are sampled, and certified orders may
#: be illegal. A longer completion stands for itself.
MAX_STEPS = MAX_COMPLETE


class CompletionJudge:
    """A judge of completions, ``jobs`` at a time; a context manager that ends its workers.

    With several environments by name, each completion names its own. Equal completions of equal tasks are judged once.
    Judgements depend neither on ``jobs`` nor on other completions. For each success, up to ``max_illegal`` illegal
    orders are judged too; for each completion, up to ``max_judged`` orders of its steps (:attr:`Judgement.judged`). If
    not ``certified``, successes are not certified.
    """

    def __init__(
        self,
        factory: EnvironmentFactory | Mapping[str, EnvironmentFactory],
        *,
        jobs: int = 1,
        max_steps: int = MAX_STEPS,
        max_illegal: int = 0,
        max_judged: int = 0,
        certified: bool = True,
        on_wait: Callable[[], None] = lambda: None,
    ) -> None:
        self._factory = (
            {name: Kept.of(each) for name, each in factory.items()}
            if isinstance(factory, Mapping)
            else Kept.of(factory)
        )
        self._jobs, self._on_wait = jobs, on_wait
        self._looks = Looks(max_steps, certified, max_illegal, max_judged)
        self._workers: tuple[Workers, Workers] | None = None
        self._lock = Lock()
        self._asked: list[str] = []
        #: Work and judgements, by key.
        self._work: dict[str, Work] = {}
        self._found: dict[str, Judgement] = {}
        self._first: dict[str, Future[FirstLook]] = {}
        self._second: dict[str, Future[Judgement]] = {}

    def __enter__(self) -> CompletionJudge:
        return self

    def __exit__(self, kind: object, failure: object, trace: object) -> None:
        self.end(kind, failure, trace)

    def end(self, kind: object = None, failure: object = None, trace: object = None) -> None:
        """End the workers; they start anew with the next work."""
        with self._lock:
            ended, self._workers = self._workers or (), None
        for workers in ended:
            workers.__exit__(kind, failure, trace)

    def begin(
        self,
        tasks: Sequence[Json],
        completions: Sequence[str],
        environments: Sequence[str] | None = None,
        *,
        draw: int = 0,
    ) -> None:
        """Hand completions out, each with its task; forget those of an earlier call.

        ``environments`` names the environment of each, if there are several. ``draw`` is the seed of the blocks of
        orders that are judged, where not all are. Raise
        :class:`vcrt.errors.MalformedInputError` for a task that JSON cannot hold, and
        :class:`vcrt.errors.UnknownNameError` for an unknown environment.
        """
        names = [""] * len(tasks) if environments is None else environments
        work: list[Work] = [
            (self._factory_of(name), task, text)
            for name, task, text in zip(names, tasks, completions, strict=True)
        ]
        with self._lock:
            self._asked = [
                _key(name, task, text) for name, (_, task, text) in zip(names, work, strict=True)
            ]
            self._work, self._found = dict(zip(self._asked, work, strict=True)), {}
            self._second = {}
        self._looks = replace(self._looks, draw=draw)
        self._look_first = partial(look_first, looks=self._looks)
        self._look_again = partial(look_again, looks=self._looks)
        self._submit()

    def finish(self) -> list[Judgement]:
        """Wait for the judgements, and return them in the order of the completions.

        Raise :class:`VerifierFailure` for a completion that broke its worker twice, and whatever the environment
        raises.
        """
        for key in self._work:
            while key not in self._found:
                self._wait_for(key)
        return [self._found[key] for key in self._asked]

    def _factory_of(self, name: str) -> EnvironmentFactory:
        if not isinstance(self._factory, Mapping):
            return self._factory
        if name not in self._factory:
            raise UnknownNameError.of("environment", name, self._factory)
        return self._factory[name]

    def _submit(self) -> None:
        """Hand out all work without a judgement."""
        if self._workers is None:
            self._workers = Workers(self._jobs, self._on_wait), Workers(self._jobs, self._on_wait)
        self._first, self._second = {}, {}
        look: Any = partial(do_piece, self._look_first, VerifierFailure)
        for number, (key, work) in enumerate(self._work.items()):
            if key not in self._found:
                try:
                    future = self._workers[0].submit(look, (number, work))
                except WorkerDiedError as broken:  # raised to the waiting caller
                    future = Future()
                    future.set_exception(broken)
                self._first[key] = future
                future.add_done_callback(partial(self._when_done, key, number, self._second))

    def _when_done(
        self, key: str, number: int, second: dict[str, Future[Judgement]], done: Future[FirstLook]
    ) -> None:
        """Continue at once, in a thread of the workers; leave failures to the waiting caller."""
        if not done.cancelled() and done.exception() is None:
            with suppress(WorkerDiedError):
                self._go_on(key, number, second, done.result())

    def _go_on(
        self, key: str, number: int, second: dict[str, Future[Judgement]], look: FirstLook
    ) -> None:
        """Hand a completion that the first look accepted to the second."""
        with self._lock:
            # Drop the results of an earlier call.
            is_asked = second is self._second and self._workers is not None
            if is_asked and not look.is_last and key not in second:
                assert self._workers is not None
                piece = number, (self._work[key], look)
                again: Any = partial(do_piece, self._look_again, VerifierFailure)
                second[key] = self._workers[1].submit(again, piece)

    def _wait_for(self, key: str) -> None:
        """Wait for the judgement of one completion; if workers broke, judge the suspects alone."""
        if self._workers is None:
            self._submit()
        assert self._workers is not None
        number = list(self._work).index(key)
        at = self._workers[0]
        try:
            look = at.result(self._first[key])
            if look.is_last:
                self._found[key] = look.judgement
                return
            at = self._workers[1]
            self._go_on(key, number, self._second, look)
            self._found[key] = at.result(self._second[key])
            return
        except WorkerDiedError:
            broken = at.ended
        self.end()
        keys = list(self._work)
        doings = {keys[d.work]: d for d in broken if d.work < len(keys)}
        for suspect in doings or [key]:
            if suspect not in self._found:
                self._found[suspect] = self._alone(self._work[suspect], doings.get(suspect))
        self._submit()

    def _alone(self, work: Work, before: Doing | None) -> Judgement:
        look = do_alone(self._look_first, work, before, VerifierFailure, self._on_wait)
        if look.is_last:
            return look.judgement
        return do_alone(self._look_again, (work, look), before, VerifierFailure, self._on_wait)


def _key(environment: str, task: Json, completion: str) -> str:
    try:
        return json_digest([environment, task, completion])
    except (TypeError, ValueError, RecursionError) as error:
        raise MalformedInputError(
            "a task that JSON in UTF-8 cannot hold",
            where=f"task {task!r:.120}",
            found=f"{type(error).__name__}: {str(error)[:200]}",
            expected="finite numbers, text, lists and objects with text as keys",
            remedy="write dates and bytes as text; where a loader made dates of text, cast the column back to text",
        ) from error
