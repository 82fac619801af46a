"""Check the conditions under which an environment's verdicts can be certified: the conformance kit.

Each check passes, or says what was found and how to repair it. The kit runs the environment's own verifier on a few
sampled episodes of each schema; for episodes of many operations, on a sample of their sequences. Not covered: whether
the verifier is right (second opinions check that), and differences between processes, which certification finds by
replaying in fresh ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import combinations, permutations
from typing import TypeVar

from vcrt.environments.conformance_checks import (
    CHECKS,
    DETERMINISTIC,
    EQUAL_FUTURES,
    REMEDIES,
    SAMPLING,
    SINGLE_STEPS,
    STABLE,
    UNSEEN,
    Sample,
)
from vcrt.environments.contract import Environment, Episode, Replay, ReplayRequest
from vcrt.environments.guarding import place_of
from vcrt.environments.shared_prefixes import shares_prefixes
from vcrt.environments.tool_calls import unseen_by
from vcrt.errors import EnvironmentFailure, UnavailableError, VcrtError, VerifierFailure
from vcrt.limits import MAX_EXHAUSTIVE
from vcrt.orders import Order
from vcrt.printable import counted
from vcrt.randomness import Generator, generator

Result = TypeVar("Result")
#: Random orders in the sample of sequences; and up to how many operations each is moved behind each later one.
_RANDOM, _MOVE_ALL = 4, 7
#: The first check of a schema: nothing else can be looked at without answers.
ANSWERS = "its methods answer"


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check on one schema, or on the environment.

    ``problem`` says what was found, None if the check passed; ``remedy`` says how to repair it.
    """

    check: str
    subject: str
    problem: str | None
    remedy: str

    @property
    def passed(self) -> bool:
        """Whether the check passed."""
        return self.problem is None


def validate(
    environment: Environment,
    seeds: Iterable[int] = range(3),
    *,
    quick: bool = False,
    checked: Callable[[Finding], None] = lambda finding: None,
) -> list[Finding]:
    """Run every check on every schema; raises the environment's error if a part of it is missing or breaks.

    With ``quick``, all ``seeds`` are used for sampling only; replays use a few sequences of the first seed's
    episode. ``checked`` is called with each finding as it is made.
    """
    findings: list[Finding] = []
    for finding in _findings(environment, tuple(seeds), quick=quick):
        findings.append(finding)
        checked(finding)
    return findings


def validate_episodes(
    environment: Environment, schema: str, episodes: Sequence[Episode], *, quick: bool = True
) -> list[Finding]:
    """Run the checks, except those of sampling, on given episodes of one schema; raises as :func:`validate` does."""
    return [
        _stability(environment),
        *_findings_on(environment, schema, lambda: tuple(episodes), quick=quick),
    ]


def _findings(
    environment: Environment, seeds: tuple[int, ...], *, quick: bool
) -> Iterator[Finding]:
    yield _stability(environment)
    for schema in (each.name for each in environment.schemas):
        problem = _problem(partial(_sampling, environment, schema, seeds))
        yield Finding(SAMPLING, f"{environment.name}/{schema}", problem, REMEDIES[SAMPLING])
        given = partial(_sampled, environment, schema, seeds[:1] if quick else seeds)
        yield from _findings_on(environment, schema, given, quick=quick)


def _sampled(environment: Environment, schema: str, seeds: Sequence[int]) -> tuple[Episode, ...]:
    return tuple(environment.sample(schema, seed) for seed in seeds)


def _stability(environment: Environment) -> Finding:
    problem = _problem(partial(_stable, environment))
    return Finding(STABLE, environment.name, problem, REMEDIES[STABLE])


def _findings_on(
    environment: Environment, schema: str, given: Callable[[], tuple[Episode, ...]], *, quick: bool
) -> Iterator[Finding]:
    """Run the checks on episodes of a schema."""
    subject = f"{environment.name}/{schema}"
    problem, sample = attempted(lambda: _sample_of(environment, schema, given(), quick=quick))
    yield Finding(ANSWERS, subject, problem, "mend what its message says")
    for check in CHECKS if sample is not None else ():
        assert sample is not None
        name, problem = _checked(check, environment, sample)
        yield Finding(name, subject, problem, _remedy(environment, name))


def _checked(name: str, environment: Environment, sample: Sample) -> tuple[str, str | None]:
    """Give a check's finding under the check's name, or under the name of the check that explains it."""
    problem = _problem(partial(CHECKS[name], environment, sample))
    if problem is not None and name == SINGLE_STEPS:
        # Replayed once more, without a snapshot: what a clock or chance makes is no matter of snapshots.
        again = _problem(partial(CHECKS[DETERMINISTIC], environment, sample))
        if again is not None:
            return DETERMINISTIC, again
    return name, problem


def _problem(check: Callable[[], str | None]) -> str | None:
    """Run a check; return what it found, or what broke in it; None if it passed."""
    broken, found = attempted(check)
    return broken or found


def attempted(work: Callable[[], Result]) -> tuple[str | None, Result | None]:
    """Return the result, or, in words with the line of the environment's own code, what broke.

    A verifier that is missing or fails does not concern conformance: its error is raised.
    """
    try:
        return None, work()
    except EnvironmentFailure as error:
        return f"{error.found} ({error.where})", None
    except (UnavailableError, VerifierFailure):
        raise
    except VcrtError as error:
        place = f" ({error.where})" if error.where else ""
        return f"{error.what}{place}: found {error.found}, expected {error.expected}", None
    except (Exception, SystemExit, GeneratorExit) as error:
        return f"{type(error).__name__}: {error} ({place_of(error)})", None


def _sample_of(
    environment: Environment, schema: str, episodes: tuple[Episode, ...], *, quick: bool
) -> Sample:
    """Sample these episodes, and replay their sequences in one go.

    If ``quick``, and replays are steps alone, a sequence that another one begins with is not replayed by itself.
    """
    wanted = [sequences(e.num_operations, quick=quick) for e in episodes]
    shared = quick and shares_prefixes(environment)
    asked = [_longest(some) if shared else some for some in wanted]
    requests = [ReplayRequest(e, s) for e, some in zip(episodes, asked, strict=True) for s in some]
    answers: list[Replay] = []
    for start in range(0, len(requests), environment.preferred_batch):
        answers += environment.replay(requests[start : start + environment.preferred_batch])
    if [answer.sequence for answer in answers] != [request.sequence for request in requests]:
        raise VerifierFailure(
            "the environment did not answer each replay request in turn",
            where=f"environment {environment.name!r}, schema {schema!r}",
            found=f"{counted(len(answers), 'answer')}",
            expected=f"{counted(len(requests), 'answer')}, one for each request and in its order",
        )
    remaining = iter(answers)
    found = [[next(remaining) for _ in some] for some in asked]
    replays = tuple(
        {sequence: _begun(of, sequence) for sequence in some}
        for some, of in zip(wanted, found, strict=True)
    )
    return Sample(schema, episodes, replays, quick)


def _longest(some: Sequence[Order]) -> tuple[Order, ...]:
    """Return those that no other begins with."""
    return tuple(s for s in some if not any(o[: len(s)] == s and o != s for o in some))


def _begun(replays: Sequence[Replay], sequence: Order) -> Replay:
    """Return the replay of a sequence, or of one that begins with it as far as it goes."""
    length = len(sequence)
    found = next(each for each in replays if each.sequence[:length] == sequence)
    return found if len(found.sequence) == length else found.beginning(length)


def _remedy(environment: Environment, check: str) -> str:
    """Return the remedy for a check's failure: the environment's own advice if the check is about unseen state."""
    own = unseen_by(environment) if check in UNSEEN else None
    if own is None and check == EQUAL_FUTURES and getattr(environment, "key_order", True) is False:
        own = (
            "if a call sees the order of a mapping's keys, say key_order=True, in vcrt.tools_environment or the class; "
            "else put what it sees into the state"
        )
    return own or REMEDIES[check]


def _stable(environment: Environment) -> str | None:
    one, other = environment.versions(), environment.versions()
    return None if one == other else f"{one}, then {other}"


def _sampling(environment: Environment, schema: str, seeds: Sequence[int]) -> str | None:
    contents = set()
    for seed in seeds:
        one, other = environment.sample(schema, seed), environment.sample(schema, seed)
        if one != other:
            return f"seed {seed} gave two different episodes"
        if one.provenance.seed != seed:
            return f"the episode of seed {seed} names seed {one.provenance.seed} in its provenance"
        try:
            contents.add(one.content_hash())
        except (TypeError, ValueError):
            return None  # not JSON: a check of its own says so
    if len(contents) < len(seeds):
        return f"{counted(len(seeds), 'seed')} gave {counted(len(contents), 'distinct episode')}"
    return None


@cache
def sequences(num_operations: int, *, quick: bool = False) -> tuple[Order, ...]:
    """Give sequences of distinct operations, from none to all of them, by length and then lexicographically.

    For a few operations, these are all sequences. For many, a sample that holds every prefix of its sequences, the
    reference order, its reversal, and pairs of sequences that run the same operations with one of them moved, and
    then go on alike: equal futures can only be checked on such pairs.

    ``quick`` gives the fewest sequences that leave something for every check: the reference order, its reversal, and
    the swap of its first two operations, with a prefix of each, and one that goes on differently after one operation.
    """
    if quick:
        reference = tuple(range(num_operations))
        swapped = (1, 0, *reference[2:])
        found = {(), reference[:2], swapped[:2], reference, reference[::-1], swapped}
        found.add((0, *reference[-1:]) if num_operations > 1 else reference)
        return tuple(sorted(found, key=lambda sequence: (len(sequence), sequence)))
    if num_operations <= MAX_EXHAUSTIVE:
        lengths = range(num_operations + 1)
        return tuple(s for n in lengths for s in permutations(range(num_operations), n))
    orders = _sampled_orders(num_operations)
    prefixes = {order[:length] for order in orders for length in range(num_operations + 1)}
    return tuple(sorted(prefixes, key=lambda sequence: (len(sequence), sequence)))


def _sampled_orders(num_operations: int) -> list[Order]:
    rng = generator(0, "conformance", num_operations)
    reference = tuple(range(num_operations))
    orders: list[Order] = [reference, reference[::-1]]
    orders += [tuple(rng.permutation(num_operations)) for _ in range(_RANDOM)]
    for one, other in _moves(num_operations, rng):
        rest = rng.permutation(reference[other + 1 :])
        moved = (*reference[:one], *reference[one + 1 : other + 1], one)
        orders += [(*reference[: other + 1], *rest), (*moved, *rest)]
    return orders


def _moves(num_operations: int, rng: Generator) -> list[tuple[int, int]]:
    """Choose which operation is moved behind which: each behind the next one, and others."""
    near = [(one, one + 1) for one in range(num_operations - 1)]
    far = [pair for pair in combinations(range(num_operations), 2) if pair not in near]
    if num_operations > _MOVE_ALL:
        far = [far[place] for place in rng.permutation(len(far))[: num_operations // 2]]
    return near + far
