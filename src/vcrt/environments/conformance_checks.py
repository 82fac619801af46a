"""Look for one fault each: the checks of the conformance kit, functions of an environment and its sampled replays.

A check returns None, or its finding in terms of the operations' signatures; :data:`REMEDIES` has the remedies.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from vcrt.environments.contract import (
    ANY,
    Accepted,
    BatchEnvironment,
    Environment,
    Episode,
    Replay,
    ReplayRequest,
    StepEnvironment,
)
from vcrt.environments.shared_prefixes import (
    as_values,
    offers_snapshots,
    replay_sharing,
    shares_prefixes,
    state_after,
)
from vcrt.environments.states.object_states import first_difference, form_of, without_keys
from vcrt.environments.states.outside_states import named_part
from vcrt.environments.tool_calls import is_redacted, unseen_by
from vcrt.hashing import Json, canonical_json, sha256_hex

#: Steps of an episode that a quick look runs from one state.
_FEW = 2


@dataclass(frozen=True, slots=True)
class Sample:
    """Episodes of one schema with the replays of sequences of distinct operations, complete or not.

    :func:`vcrt.environments.conformance.sequences` chooses the sequences.
    """

    schema: str
    episodes: tuple[Episode, ...]
    replays: tuple[dict[tuple[int, ...], Replay], ...]
    quick: bool = False


def _episodes_are_well_formed(environment: Environment, sample: Sample) -> str | None:
    for episode in sample.episodes:
        signatures = [operation.signature for operation in episode.operations]
        if len(set(signatures)) < len(signatures):
            return f"{episode.episode_id} has a signature twice: {signatures}"
        if (episode.environment, episode.schema) != (environment.name, sample.schema):
            return f"{episode.episode_id} names another environment or schema"
        if not episode.provenance.source or not episode.provenance.generator:
            return f"{episode.episode_id} has no provenance"
    return None


def _reference_is_accepted(environment: Environment, sample: Sample) -> str | None:
    for episode, replays in _pairs(sample):
        reference = replays[tuple(range(episode.num_operations))]
        if reference.rejection is not None:
            return f"{_native(episode, reference.sequence)} is {_outcome(reference)}"
    return None


def _some_order_is_not_legal(environment: Environment, sample: Sample) -> str | None:
    if environment.schema(sample.schema).preset == ANY:
        # Such a schema promises no anti-diamond.
        return None
    for episode, replays in _pairs(sample):
        reference = replays[tuple(range(episode.num_operations))]
        complete = [r for s, r in replays.items() if len(s) == episode.num_operations]
        if all(replay.is_legal(reference.outcome) for replay in complete):
            return f"every order of {_native(episode, reference.sequence)} ends in one state"
    return None


def _replay_is_deterministic(environment: Environment, sample: Sample) -> str | None:
    for episode, replays in _pairs(sample):
        # Where replays are nothing but steps, those of whole orders run whatever their prefixes would.
        whole = episode.num_operations if shares_prefixes(environment) else 0
        requests = [ReplayRequest(episode, s) for s in reversed(replays) if len(s) >= whole]
        for again in environment.replay(requests):
            if again != replays[again.sequence]:
                return _difference(episode, replays[again.sequence], again)
    return None


def _prefixes_agree(environment: Environment, sample: Sample) -> str | None:
    for episode, replays in _pairs(sample):
        for sequence, replay in replays.items():
            for length in range(len(sequence)):
                prefix = replays.get(sequence[:length])
                if prefix is None:
                    continue
                reached = len(replay.state_hashes) > length
                if prefix.accepted != reached or (
                    replay.state_hashes[: length + 1] != prefix.state_hashes
                    or any(replay.output(k) != prefix.output(k) for k in range(length) if reached)
                ):
                    return (
                        f"{_native(episode, sequence[:length])} is {_outcome(prefix)} by itself, but "
                        f"not when {_native(episode, sequence[length:])} follows"
                    )
    return None


def _every_step_has_an_effect(environment: Environment, sample: Sample) -> str | None:
    for episode, replays in _pairs(sample):
        for sequence, replay in replays.items():
            hashes = replay.state_hashes
            for k in range(1, len(hashes)):
                if hashes[k] == hashes[k - 1] and replay.output(k - 1) is None:
                    when = f"after {_native(episode, sequence[: k - 1])}" if k > 1 else "run first"
                    step = _native(episode, sequence[k - 1 : k])
                    return f"{step} changes nothing and has no output, {when}"
    return None


def _equal_states_have_equal_futures(environment: Environment, sample: Sample) -> str | None:
    """Check that states may be merged by hash: the continuations of two equal hashes must be equal too."""
    for episode, replays in _pairs(sample):
        tails = _tails(replays)
        seen: dict[tuple[frozenset[int], str], tuple[int, ...]] = {}
        for sequence, replay in replays.items():
            if not replay.accepted:
                continue
            twin = seen.setdefault((frozenset(sequence), replay.state_hashes[-1]), sequence)
            for tail in tails[sequence]:
                if twin == sequence or (*twin, *tail) not in replays:
                    continue
                one, other = replays[(*twin, *tail)], replays[(*sequence, *tail)]
                same_states = one.state_hashes[len(twin) :] == other.state_hashes[len(sequence) :]
                same_outputs = one.outputs[len(twin) :] == other.outputs[len(sequence) :]
                if one.accepted != other.accepted or not same_states or not same_outputs:
                    return (
                        f"{_native(episode, twin)} and {_native(episode, sequence)} end in states of one "
                        f"hash; then {_native(episode, tail)} is {_outcome(one)} after the former "
                        f"and {_outcome(other)} after the latter"
                    )
    return None


def _tails(replays: Iterable[tuple[int, ...]]) -> dict[tuple[int, ...], list[tuple[int, ...]]]:
    """Return the continuations of each sequence in longer ones, in their order."""
    tails: dict[tuple[int, ...], list[tuple[int, ...]]] = {sequence: [] for sequence in replays}
    for sequence in replays:
        for length in range(len(sequence) + 1):
            if sequence[:length] in tails:
                tails[sequence[:length]].append(sequence[length:])
    return tails


def _refusals_give_a_reason(environment: Environment, sample: Sample) -> str | None:
    for episode, replays in _pairs(sample):
        for sequence, replay in replays.items():
            if replay.rejection is not None and not replay.rejection.reason.strip():
                return f"{_native(episode, sequence)} is refused without a message"
    return None


def _the_forms_agree(environment: Environment, sample: Sample) -> str | None:
    if isinstance(environment, BatchEnvironment):
        return None  # which has no single steps
    if not isinstance(environment, StepEnvironment):
        return "derive the environment from StepEnvironment or BatchEnvironment"
    episode, replays = sample.episodes[0], sample.replays[0]
    if shares_prefixes(environment):
        for one, its in _pairs(sample):
            if (lost := restored_states_agree(environment, one, its)) is not None:
                return lost
        requests = [ReplayRequest(episode, sequence) for sequence in replays]
        for shared in replay_sharing(environment, requests):
            if shared != replays[shared.sequence]:
                difference = _difference(episode, replays[shared.sequence], shared)
                return f"{difference} if sequences that begin alike are run once as far as they do"
        return None
    order = tuple(range(episode.num_operations))
    replay = replays[order]
    state = environment.initial_state(episode)
    for length, index in enumerate(order, start=1):
        answer = environment.step(state, episode.operations[index])
        reached = len(replay.state_hashes) > length
        if isinstance(answer, Accepted) != (replay.accepted if length == len(order) else reached):
            return (
                f"step and replay disagree whether {_native(episode, order[:length])} is accepted"
            )
        if not isinstance(answer, Accepted):
            break
        state = answer.state
        if sha256_hex(environment.canonical(state)) != replay.state_hashes[length]:
            return f"step and replay give {_native(episode, order[:length])} different hashes"
    return None


def restored_states_agree(
    environment: StepEnvironment[object],
    episode: Episode,
    replays: Mapping[tuple[int, ...], Replay],
) -> str | None:
    """Check that the reference order and its reversal give the same replays if each step starts from a snapshot."""
    if not offers_snapshots(environment):
        return None
    order = tuple(range(episode.num_operations))
    for sequence in (order, order[::-1]):
        state = environment.initial_state(episode)
        for length, index in enumerate(sequence):
            kept = environment.snapshot(state)
            answer = environment.step(environment.restore(kept), episode.operations[index])
            replay = replays[sequence]
            reached = len(replay.state_hashes) > length + 1
            if isinstance(answer, Accepted):
                state = answer.state
                found = sha256_hex(environment.canonical(state)), answer.output
                same = reached and found == (replay.state_hashes[length + 1], replay.output(length))
            else:
                same = not reached
            if not same:
                lost = _lost(environment, episode, sequence[:length], kept)
                return (
                    f"{_native(episode, sequence[: length + 1])} ends otherwise if the state after "
                    f"{_native(episode, sequence[:length])} was restored from a snapshot{lost}"
                )
            if not reached:
                break
    return None


def _lost(
    environment: StepEnvironment[object], episode: Episode, sequence: tuple[int, ...], kept: object
) -> str:
    """Say what a snapshot of the state after a sequence did not keep, if that can be seen."""
    if unseen_by(environment) is not None:
        return ""
    state = state_after(environment, episode, sequence)
    named = named_part(environment, state)
    where = first_difference(form_of(state), form_of(environment.restore(kept)))
    if where is not None:
        return f": {without_keys(where) if is_redacted(episode) else where} is another"
    return f": {named}, of which that made a second" if named else ""


def _states_stay_as_they_were(environment: Environment, sample: Sample) -> str | None:
    if not isinstance(environment, StepEnvironment):
        return None  # the batch form has no states
    environment = as_values(environment)
    for episode in sample.episodes:
        state = environment.initial_state(episode)
        for length, operation in enumerate(episode.operations[: _FEW if sample.quick else None]):
            before = environment.canonical(state)
            answer = environment.step(state, operation)
            for other in episode.operations[: _FEW if sample.quick else None]:
                environment.step(answer.state if isinstance(answer, Accepted) else state, other)
            if environment.canonical(state) != before:
                return (
                    f"the state after {_native(episode, range(length))} is another one once steps "
                    f"have been run from it"
                )
            if not isinstance(answer, Accepted):
                break
            state = answer.state
    return None


def _json_is_enough(environment: Environment, sample: Sample) -> str | None:
    for episode, replays in _pairs(sample):
        try:
            reread = replace(
                episode,
                initial=_reread(episode.initial),
                operations=tuple(
                    replace(o, payload=_reread(o.payload)) for o in episode.operations
                ),
            )
        except (TypeError, ValueError) as error:
            return f"{episode.episode_id} is not JSON: {error}"
        order = tuple(range(episode.num_operations))
        orders = (order,) if sample.quick else (order, order[::-1])
        for again in environment.replay([ReplayRequest(reread, one) for one in orders]):
            if again != replays[again.sequence]:
                return f"{_difference(episode, replays[again.sequence], again)} from its JSON"
    return None


def _second_opinions_agree(environment: Environment, sample: Sample) -> str | None:
    for episode in sample.episodes:
        for check in environment.cross_check(episode):
            if check.agreed != check.checked:
                return (
                    f"{episode.episode_id}: {check.checker} agrees {check.agreed}/{check.checked}"
                )
    return None


def _reread(value: Json) -> Json:
    reread: Json = json.loads(canonical_json(value))
    return reread


def _native(episode: Episode, sequence: Iterable[int]) -> str:
    """Describe the steps of a sequence by their signatures."""
    return f"[{'; '.join(episode.operations[index].signature for index in sequence)}]"


def _difference(episode: Episode, one: Replay, other: Replay) -> str:
    """Find the shortest sequence on which two replays disagree, and the answer of each."""
    agreed = 0
    for hashes in zip(one.state_hashes, other.state_hashes, strict=False):
        if len(set(hashes)) > 1 or (agreed and one.output(agreed - 1) != other.output(agreed - 1)):
            break
        agreed += 1
    outcomes = [
        _reached(replay, agreed) if len(replay.state_hashes) > agreed else _outcome(replay)
        for replay in (one, other)
    ]
    return f"{_native(episode, one.sequence[:agreed])} is {outcomes[0]}, then {outcomes[1]}"


def _outcome(replay: Replay) -> str:
    if replay.rejection is not None:
        return f"refused ({replay.rejection.reason.strip()})"
    return _reached(replay, len(replay.state_hashes) - 1)


def _reached(replay: Replay, length: int) -> str:
    output = replay.output(length - 1) if length else None
    gives = "" if output is None else f" with the output {output[:80]!r}"
    return f"accepted in state {replay.state_hashes[length][:8]}{gives}"


def _pairs(sample: Sample) -> Iterable[tuple[Episode, dict[tuple[int, ...], Replay]]]:
    return zip(sample.episodes, sample.replays, strict=True)


SINGLE_STEPS, DETERMINISTIC = "single steps agree with replays", "replay is deterministic"
EQUAL_FUTURES, STABLE = "equal states have equal futures", "versions are stable"
SAMPLING = "sampling is a function of the seed"
#: The checks on a sample, the ones that explain others first.
CHECKS: dict[str, Callable[[Environment, Sample], str | None]] = {
    "episodes are well formed": _episodes_are_well_formed,
    "the reference order is accepted": _reference_is_accepted,
    "refusals give a reason": _refusals_give_a_reason,
    DETERMINISTIC: _replay_is_deterministic,
    "an episode's JSON is enough to replay it": _json_is_enough,
    "replays agree on their prefixes": _prefixes_agree,
    SINGLE_STEPS: _the_forms_agree,
    "a step leaves its state as it was": _states_stay_as_they_were,
    "every step has an effect": _every_step_has_an_effect,
    "some order is refused or ends elsewhere": _some_order_is_not_legal,
    EQUAL_FUTURES: _equal_states_have_equal_futures,
    "second opinions agree": _second_opinions_agree,
}
#: Those that fail where a step sees what states leave out.
UNSEEN = (SINGLE_STEPS, EQUAL_FUTURES)
#: How a failure of each check is mended.
REMEDIES: dict[str, str] = {
    STABLE: "let versions() depend on what is installed alone: no clock, no counter, no process number",
    SAMPLING: "draw everything from vcrt.randomness.generator(seed, name, schema), put that seed into the provenance, "
    "and let enough vary that no two seeds give the same content",
    "episodes are well formed": "give each operation a signature of its own, name the environment and the schema as "
    "they are registered, and fill in source and generator",
    "the reference order is accepted": "list the operations in an order that the verifier accepts",
    "refusals give a reason": "pass the verifier's own message on",
    DETERMINISTIC: "look for random numbers, clocks, counters, memory addresses in messages, the "
    "order of a set in canonical(), and for what one replay leaves behind for the next",
    "an episode's JSON is enough to replay it": "put all that a replay needs into initial and the payloads, in a form "
    "that JSON gives back unchanged (text keys, lists), and remember nothing about an episode elsewhere",
    "replays agree on their prefixes": "let the answer to a step depend only on the steps before it",
    SINGLE_STEPS: "let replay() be what step() and canonical() give, step by step; let step() "
    "change nothing in its state; a state from restore() must behave as the one that snapshot() was given",
    "a step leaves its state as it was": "let step() make a new state and change nothing that the old one can reach: "
    "copy first, or use immutable values",
    "every step has an effect": "either the operation does nothing here, and an idle step commutes with "
    "everything, or canonical() leaves out what it changes; a step that only looks gives "
    "Accepted(state, output)",
    "some order is refused or ends elsewhere": "let two operations depend on each other; if two do, canonical() leaves "
    "out what tells their orders apart, or step() accepts what the verifier refuses",
    EQUAL_FUTURES: "canonical() leaves out something that a later step can see: put it in, or let "
    "no operation see it",
    "second opinions agree": "one of the two is wrong: find out which, on this episode, before you certify anything",
}
