"""The conformance kit: what any environment must pass before its verdicts are worth certifying.

Each check either passes or says in one sentence what was found. The kit runs the environment's own verifier on a few
sampled episodes of each schema. Not covered: whether the verifier is right; that is what second opinions are for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations

from vcrt.environments.contract import (
    Accepted,
    BatchEnvironment,
    Environment,
    Episode,
    Replay,
    ReplayRequest,
    StepEnvironment,
)
from vcrt.hashing import canonical_json


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check on one schema (or on the environment): ``problem`` is None if it passed."""

    check: str
    subject: str
    problem: str | None

    @property
    def passed(self) -> bool:
        """Whether the check passed."""
        return self.problem is None


@dataclass(frozen=True, slots=True)
class Sample:
    """Episodes of one schema with the replays of every sequence of distinct operations, complete or not."""

    schema: str
    episodes: tuple[Episode, ...]
    replays: tuple[dict[tuple[int, ...], Replay], ...]


def validate(environment: Environment, seeds: Iterable[int] = range(3)) -> list[Finding]:
    """Run every check on every schema; raises what the environment raises if a part of it is missing or breaks."""
    seeds = tuple(seeds)
    findings = [Finding("versions are stable", environment.name, _stable(environment))]
    for schema in environment.schemas:
        subject = f"{environment.name}/{schema.name}"
        problem = _sampling(environment, schema.name, seeds)
        findings.append(Finding("sampling is a function of the seed", subject, problem))
        sample = take_sample(environment, schema.name, seeds)
        findings += [Finding(name, subject, check(environment, sample)) for name, check in _CHECKS]
    return findings


def take_sample(environment: Environment, schema: str, seeds: Sequence[int]) -> Sample:
    """Sample episodes and replay all of their sequences in one go."""
    episodes = tuple(environment.sample(schema, seed) for seed in seeds)
    requests = [ReplayRequest(e, s) for e in episodes for s in _sequences(e.num_operations)]
    answers: list[Replay] = []
    for start in range(0, len(requests), environment.preferred_batch):
        answers += environment.replay(requests[start : start + environment.preferred_batch])
    by_episode: dict[str, dict[tuple[int, ...], Replay]] = {e.episode_id: {} for e in episodes}
    for request, answer in zip(requests, answers, strict=True):
        by_episode[request.episode.episode_id][request.sequence] = answer
    return Sample(schema, episodes, tuple(by_episode[e.episode_id] for e in episodes))


def _sequences(num_operations: int) -> list[tuple[int, ...]]:
    return [s for n in range(num_operations + 1) for s in permutations(range(num_operations), n)]


def _stable(environment: Environment) -> str | None:
    one, other = environment.versions(), environment.versions()
    return None if one == other else f"{one}, then {other}"


def _sampling(environment: Environment, schema: str, seeds: Sequence[int]) -> str | None:
    contents = set()
    for seed in seeds:
        one, other = environment.sample(schema, seed), environment.sample(schema, seed)
        if one != other:
            return f"seed {seed} gave two different episodes"
        contents.add(one.content_hash())
    if len(contents) < len(seeds):
        return f"{len(seeds)} seeds gave {len(contents)} distinct episodes"
    return None


def _episodes_are_well_formed(environment: Environment, sample: Sample) -> str | None:
    for episode in sample.episodes:
        signatures = [operation.signature for operation in episode.operations]
        if len(set(signatures)) < len(signatures):
            return f"{episode.episode_id} has a signature twice: {signatures}"
        if (episode.environment, episode.schema) != (environment.name, sample.schema):
            return f"{episode.episode_id} names another environment or schema"
        if not episode.provenance.source or not episode.provenance.generator:
            return f"{episode.episode_id} has no provenance"
        try:
            canonical_json(episode.initial)
            canonical_json([operation.payload for operation in episode.operations])
        except (TypeError, ValueError) as error:
            return f"{episode.episode_id} is not JSON: {error}"
    return None


def _reference_is_accepted(environment: Environment, sample: Sample) -> str | None:
    for episode, replays in _pairs(sample):
        reference = replays[tuple(range(episode.num_operations))]
        if reference.rejection is not None:
            return f"{episode.episode_id}: {reference.rejection.reason}"
    return None


def _some_order_is_not_legal(environment: Environment, sample: Sample) -> str | None:
    for episode, replays in _pairs(sample):
        reference = replays[tuple(range(episode.num_operations))]
        complete = [r for s, r in replays.items() if len(s) == episode.num_operations]
        if all(replay.terminal_hash == reference.terminal_hash for replay in complete):
            return f"{episode.episode_id}: every order is accepted and ends in one state"
    return None


def _replay_is_deterministic(environment: Environment, sample: Sample) -> str | None:
    for episode, replays in _pairs(sample):
        requests = [ReplayRequest(episode, sequence) for sequence in reversed(replays)]
        for again in environment.replay(requests):
            if again != replays[again.sequence]:
                return f"{episode.episode_id}: {replays[again.sequence]}, then {again}"
    return None


def _prefixes_agree(environment: Environment, sample: Sample) -> str | None:
    for episode, replays in _pairs(sample):
        for sequence, replay in replays.items():
            for length in range(len(sequence)):
                prefix = replays[sequence[:length]]
                reached = len(replay.state_hashes) > length
                if prefix.accepted != reached or (
                    replay.state_hashes[: length + 1] != prefix.state_hashes
                ):
                    return f"{episode.episode_id}: {sequence} and its prefix {sequence[:length]}"
    return None


def _every_step_has_an_effect(environment: Environment, sample: Sample) -> str | None:
    for episode, replays in _pairs(sample):
        for sequence, replay in replays.items():
            hashes = replay.state_hashes
            for k in range(1, len(hashes)):
                if hashes[k] == hashes[k - 1]:
                    return f"{episode.episode_id}: step {k} of {sequence} changes nothing"
    return None


def _equal_states_have_equal_futures(environment: Environment, sample: Sample) -> str | None:
    """Whether states may be merged by hash: what follows two equal hashes must be equal too."""
    for episode, replays in _pairs(sample):
        seen: dict[tuple[frozenset[int], str], tuple[int, ...]] = {}
        for sequence, replay in replays.items():
            if not replay.accepted:
                continue
            twin = seen.setdefault((frozenset(sequence), replay.state_hashes[-1]), sequence)
            for tail in _sequences(episode.num_operations):
                if set(tail) & set(sequence) or twin == sequence:
                    continue
                one, other = replays[(*sequence, *tail)], replays[(*twin, *tail)]
                same_states = one.state_hashes[len(sequence) :] == other.state_hashes[len(twin) :]
                if one.accepted != other.accepted or not same_states:
                    return (
                        f"{episode.episode_id}: {sequence} and {twin} have one hash, but differ "
                        f"when followed by {tail}"
                    )
    return None


def _the_forms_agree(environment: Environment, sample: Sample) -> str | None:
    if not isinstance(environment, (StepEnvironment, BatchEnvironment)):
        return "derive the environment from StepEnvironment or BatchEnvironment"
    episode, replays = sample.episodes[0], sample.replays[0]
    order = tuple(range(episode.num_operations))
    state = environment.initial_state(episode)
    for length, index in enumerate(order, start=1):
        answer = environment.step(state, episode.operations[index])
        if isinstance(answer, Accepted) != replays[order[:length]].accepted:
            return f"{episode.episode_id}: step and replay disagree after {order[:length]}"
        if not isinstance(answer, Accepted):
            break
        state = answer.state
    return None


def _second_opinions_agree(environment: Environment, sample: Sample) -> str | None:
    for episode in sample.episodes:
        for check in environment.cross_check(episode):
            if check.agreed != check.checked:
                return (
                    f"{episode.episode_id}: {check.checker} agrees {check.agreed}/{check.checked}"
                )
    return None


def _pairs(sample: Sample) -> Iterable[tuple[Episode, dict[tuple[int, ...], Replay]]]:
    return zip(sample.episodes, sample.replays, strict=True)


_CHECKS: tuple[tuple[str, Callable[[Environment, Sample], str | None]], ...] = (
    ("episodes are well formed", _episodes_are_well_formed),
    ("the reference order is accepted", _reference_is_accepted),
    ("some order is refused or ends elsewhere", _some_order_is_not_legal),
    ("replay is deterministic", _replay_is_deterministic),
    ("replays agree on their prefixes", _prefixes_agree),
    ("every step changes the state", _every_step_has_an_effect),
    ("equal states have equal futures", _equal_states_have_equal_futures),
    ("single steps agree with replays", _the_forms_agree),
    ("second opinions agree", _second_opinions_agree),
)
