"""Judge, reward and certify a trainer's completions when they are sampled, and make candidates from them.

Not covered: the loss (:mod:`vcrt_train.integrations.trl.orbit_grpo_trainer`).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

from vcrt.errors import MalformedInputError
from vcrt.hashing import Json
from vcrt.printable import counted
from vcrt.randomness import derive_seed
from vcrt.replay.completion_judge import CompletionJudge
from vcrt.replay.completions import Judgement
from vcrt.replay.shards import EnvironmentFactory, factory_of
from vcrt_train.integrations.orbit_credit import Candidates, TokenIds
from vcrt_train.integrations.trl.orbit_grpo_config import ENVIRONMENT, TASK, OrbitGRPOConfig
from vcrt_train.integrations.written_orbits import OrbitLimits, written_orbit
from vcrt_train.randomness import generator

#: The counts that every batch has, even if 0; the reasons ``missed/`` are further ones.
_COUNTED = (
    *("waited_s", "judging_s", "certifying_s", "members"),
    *("unreadable", "judged", "sampled", "partial", "alone", "other_solutions"),
)
#: From this many successes on, warn if the tokenizer writes more than half of them with other tokens.
_ENOUGH = 16
#: The judge of completions: a registered environment's name or a class, or several of these by names that rows give.
Written: TypeAlias = str | EnvironmentFactory | Mapping[str, str | EnvironmentFactory]


class OnlineOrbits:
    """The judge of a trainer's samples, with its findings on the last batch."""

    def __init__(self, environment: Written, args: OrbitGRPOConfig) -> None:
        self._args = args
        self._several = isinstance(environment, Mapping)
        max_illegal = args.orbit_max_members if args.orbit_alpha else 0
        self._judge = CompletionJudge(
            {name: _factory(each) for name, each in environment.items()}
            if isinstance(environment, Mapping)
            else _factory(environment),
            jobs=args.orbit_jobs,
            max_steps=args.orbit_max_steps,
            max_illegal=max_illegal,
            max_judged=args.orbit_max_members if args.orbit_all_orders else 0,
            certified=not args.orbit_all_orders,
        )
        self._limits = OrbitLimits(
            max_members=args.orbit_max_members,
            max_illegal=max_illegal,
            max_tokens=args.orbit_max_tokens // args.num_generations,
            max_length=args.max_completion_length,
        )
        #: The rows of the batch that is being sampled.
        self.rows: Sequence[Mapping[str, Any]] = ()
        self._judgements: list[Judgement] = []
        #: Sums over the last batch's samples by name; ``samples`` is the number of samples.
        self.counts: dict[str, float] = {}
        #: The samples so far that could be credited, and those written with other tokens; None after the warning.
        self._written: tuple[int, int] | None = (0, 0)

        def solved(**_: Any) -> list[float]:
            return self._rewards()

        #: The reward function; TRL names its logs after it.
        self.reward = solved

    def begin(
        self,
        completions: Sequence[Sequence[int]],
        tokenizer: Any,
        ends: Sequence[int],
        *,
        update: int,
    ) -> None:
        """Give the texts of sampled tokens to the workers, without the token of ``ends`` that ends them."""
        texts = [
            tokenizer.decode(
                ids[:-1] if ids[-1] in ends else ids,
                skip_special_tokens=False,
                clean_up_tokenization_spaces=False,
            )
            for ids in map(list, completions)
        ]
        names = [_environment_of(row) for row in self.rows] if self._several else None
        beside = ("prompt", ENVIRONMENT) if self._several else ("prompt",)
        tasks = [task_of(row, beside) for row in self.rows]
        draw = derive_seed(self._args.seed, "judged blocks", update)
        self._judge.begin(tasks, texts, names, draw=draw)

    def _rewards(self) -> list[float]:
        """Return 1 for each completion that solves its task, else 0, in the order of the batch."""
        began = time.perf_counter()
        self._judgements = self._judge.finish()
        self.counts = dict.fromkeys(_COUNTED, 0.0)
        self.counts["waited_s"] = time.perf_counter() - began
        return [float(judgement.success) for judgement in self._judgements]

    @property
    def succeeded(self) -> list[bool]:
        """Whether each completion of the last batch solves its task."""
        return [judgement.success for judgement in self._judgements]

    def candidates(
        self,
        prompts: Sequence[TokenIds],
        completions: Sequence[TokenIds],
        tokenizer: Any,
        ends: Sequence[int],
        *,
        update: int,
    ) -> list[Candidates]:
        """Make the candidates of each completion of the last batch; draws depend only on the seed and the update."""
        found = []
        counts = self.counts
        counts["samples"] = len(completions)
        # Equal completions of a task share one judgement.
        for judgement in {id(each): each for each in self._judgements}.values():
            counts["judging_s"] += judgement.judging_s
            counts["certifying_s"] += judgement.certifying_s
        sampled = zip(prompts, completions, self._judgements, strict=True)
        for prompt, completion, judgement in sampled:
            orbit = written_orbit(
                prompt,
                completion,
                judgement,
                encode=lambda text: tokenizer(text, add_special_tokens=False)["input_ids"],
                ends=ends,
                limits=self._limits,
                draw=generator(self._args.seed, "orbit windows", update),
                all_orders=self._args.orbit_all_orders,
            )
            found.append(orbit.candidates)
            counts["members"] += len(orbit.candidates.orbit)
            if judgement.failure is not None and judgement.failure.startswith("unreadable"):
                counts["unreadable"] += 1
            counts["other_solutions"] += judgement.other_solutions
            counts["judged"] += len(judgement.judged)
            counts["sampled"] += not judgement.complete
            counts["partial"] += orbit.is_partial
            counts["alone"] += orbit.is_partial and len(orbit.candidates.orbit) == 1
            if orbit.missed is not None:
                reason = f"missed/{orbit.missed}"
                counts[reason] = counts.get(reason, 0.0) + 1
        number = len(found) if self._args.orbit_all_orders else sum(self.succeeded)
        self._warn_of_tokens(number, int(counts.get("missed/tokens", 0)))
        return found

    def _warn_of_tokens(self, number: int, missed: int) -> None:
        """Warn once if samples are seldom credited because the tokenizer writes their text with other tokens.

        ``number`` counts the samples that could be credited: successes, or all.
        """
        if self._written is None:
            return
        number, missed = number + self._written[0], missed + self._written[1]
        self._written = number, missed
        if number >= _ENOUGH and 2 * missed > number:
            self._written = None
            words = (
                ("completion", "completions")
                if self._args.orbit_all_orders
                else ("success", "successes")
            )
            warnings.warn(
                f"{missed} of {counted(number, *words)} stand for themselves, as in GRPO "
                "(orbit/missed/tokens): the tokenizer writes their text with other tokens than were sampled",
                stacklevel=2,
            )

    def end(self) -> None:
        """End the workers; the next batch starts new ones."""
        self._judge.end()


def task_of(row: Mapping[str, Any], beside: Collection[str] = ("prompt",)) -> Json:
    """Return the task of a dataset's row: its column ``task``, or else all columns except those in ``beside``."""
    if TASK in row:
        task: Json = row[TASK]
        return task
    return {name: value for name, value in row.items() if name not in beside}


def _environment_of(row: Mapping[str, Any]) -> str:
    name = row.get(ENVIRONMENT)
    if isinstance(name, str):
        return name
    raise MalformedInputError(
        "a row that does not say which environment judges it",
        where="train_dataset",
        found=f"columns {', '.join(row)}" if ENVIRONMENT not in row else f"{ENVIRONMENT}={name!r}",
        expected=f"the name of one in the column {ENVIRONMENT!r}",
        remedy="add the column, or give one environment",
    )


def _factory(environment: str | EnvironmentFactory) -> EnvironmentFactory:
    return factory_of(environment) if isinstance(environment, str) else environment
