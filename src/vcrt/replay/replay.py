"""Replay every complete order of an episode, each by itself, through the native verifier.

Exhaustive replay is the oracle that frozen datasets are built from. It infers no verdict; a verifier that breaks raises
:class:`vcrt.errors.VerifierFailure`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from math import factorial
from typing import TypeGuard

from vcrt.certificates.replay_tree import HASH, EpisodeReplays
from vcrt.environments.apart import replay_apart
from vcrt.environments.contract import Environment, Episode, Rejected, Replay, ReplayRequest
from vcrt.environments.guarding import checks_advice
from vcrt.environments.shared_prefixes import replay_sharing
from vcrt.errors import MalformedInputError, VerifierFailure
from vcrt.hashing import Json
from vcrt.orders import all_orders
from vcrt.printable import counted


def replay_exhaustively(
    environment: Environment,
    episodes: Sequence[Episode],
    *,
    backwards: bool = False,
    sharing: bool = False,
) -> list[EpisodeReplays]:
    """Replay all orders of each episode by :func:`replay_all`.

    Each order starts afresh. With ``sharing``, orders with a common prefix run it once, where the environment allows it
    (:mod:`vcrt.environments.shared_prefixes`); that suits one of two replays, not both. Raise :class:`VerifierFailure`
    if the verifier answers requests that were not made, or in another form.
    """
    requests = [
        ReplayRequest(episode, order)
        for episode in episodes
        for order in all_orders(episode.num_operations)
    ]
    answers = iter(replay_all(environment, requests, sharing=sharing, backwards=backwards))
    return [
        EpisodeReplays.of_every_order(
            episode, list(islice(answers, factorial(episode.num_operations)))
        )
        for episode in episodes
    ]


def replay_all(
    environment: Environment,
    requests: Sequence[ReplayRequest],
    *,
    sharing: bool = False,
    backwards: bool = False,
) -> list[Replay]:
    """Return the environment's answers, requested in batches of its preferred size, each checked for its form.

    ``backwards`` requests the same in another succession: last sequences first, with the episodes alternating. A
    verifier whose answers depend on earlier requests then answers differently.
    """
    places = list(range(len(requests)))
    if backwards:
        places.sort(key=lambda place: (requests[place].sequence, place), reverse=True)
    size = environment.preferred_batch
    if not isinstance(size, int) or size < 1:
        raise _malformed(environment, f"preferred_batch {size!r}", "a number from 1")
    replays: dict[int, Replay] = {}
    for start in range(0, len(places), size):
        batch = [requests[place] for place in places[start : start + size]]
        answers = (replay_sharing if sharing else replay_apart)(environment, batch)
        if not isinstance(answers, list) or len(answers) != len(batch):
            is_list = isinstance(answers, list)
            found = counted(len(answers), "answer") if is_list else repr(answers)[:80]
            raise _malformed(environment, found, f"a list of {counted(len(batch), 'answer')}")
        are_hashes = _are_hashes(answers)
        for place, request, answer in zip(places[start:], batch, answers, strict=False):
            flaw = _flaw(request, answer, are_hashes)
            if flaw is not None:
                where = f"{request.episode.episode_id}, operations {list(request.sequence)}"
                raise _malformed(environment, f"{flaw} for {where}", "one answer to each request")
            replays[place] = answer
    return [replays[place] for place in range(len(requests))]


def _are_hashes(answers: Sequence[Replay]) -> bool:
    """Return whether all state hashes in these answers are SHA-256; check each distinct value once."""
    try:
        values = set[object]().union(*(answer.state_hashes for answer in answers))
    except (AttributeError, TypeError):
        return False
    return all(isinstance(value, str) and HASH.fullmatch(value) for value in values)


def _flaw(request: ReplayRequest, answer: Replay, are_hashes: bool) -> str | None:
    """Return the flaw in an answer's form, or None; ``are_hashes`` says that its batch holds valid hashes alone."""
    if not isinstance(answer, Replay) or answer.sequence != request.sequence:
        return f"the answer {answer!r:.120}"
    hashes, length = answer.state_hashes, len(request.sequence)
    if not isinstance(hashes, tuple) or not (are_hashes or _are_hashes([answer])):
        return f"the state hashes {hashes!r:.120} (SHA-256 in lower-case hexadecimal)"
    if not isinstance(answer.outputs, tuple) or len(answer.outputs) not in (0, len(hashes) - 1):
        return f"the outputs {answer.outputs!r:.120} (one for each accepted step, or none)"
    if not all(isinstance(output, str | None) for output in answer.outputs):
        return f"the outputs {answer.outputs!r:.120} (text, or None)"
    rejection = answer.rejection
    if not isinstance(rejection, Rejected | None):
        return f"the rejection {rejection!r:.120}"
    if rejection is not None and not isinstance(rejection.reason, str):
        return f"the rejection {rejection!r:.120}"
    if rejection is not None and not rejection.reason.strip():
        return "a rejection without a reason"
    if not (length + 1 if rejection is None else 1) <= len(hashes) <= length + 1:
        said = "accepted" if rejection is None else "rejected"
        return f"{said}, with {counted(len(hashes), 'state hash', 'state hashes')}"
    return None


def _malformed(environment: Environment, found: str, expected: str) -> VerifierFailure:
    return VerifierFailure(
        "the environment did not answer each replay request in turn and in due form",
        where=f"environment {environment.name!r}",
        found=found,
        expected=expected,
        remedy=checks_advice(environment),
    )


def _are_outputs(value: object, number: int) -> TypeGuard[list[str | None] | None]:
    """Return whether a replay's JSON has an output or None for each step, at least one output; or no such field."""
    if value is None:
        return True
    return (
        isinstance(value, list)
        and len(value) == number
        and all(isinstance(output, str | None) for output in value)
        and any(output is not None for output in value)
    )


def replay_to_json(replay: Replay) -> dict[str, Json]:
    """Return the JSON form of a replay; :func:`replay_from_json` reads it."""
    reason = None if replay.rejection is None else replay.rejection.reason
    value: dict[str, Json] = {
        "order": list(replay.sequence),
        "state_hashes": list(replay.state_hashes),
        "rejection": reason,
    }
    return {**value, "outputs": list(replay.outputs)} if replay.outputs else value


def replay_from_json(value: object) -> Replay:
    """Read a replay; raise :class:`MalformedInputError` for another form."""
    match value:
        case {"order": list(order), "state_hashes": list(hashes), "rejection": reason, **more} if (
            all(isinstance(i, int) for i in order)
            and all(isinstance(h, str) for h in hashes)
            and (reason is None or isinstance(reason, str))
            and not more.keys() - {"outputs"}
            and _are_outputs(outputs := more.get("outputs"), len(hashes) - 1)
        ):
            rejection = None if reason is None else Rejected(reason)
            return Replay(tuple(order), tuple(hashes), rejection, tuple(outputs or ()))
    raise MalformedInputError(
        "not a replay",
        found=repr(value)[:120],
        expected='{"order": [int], "state_hashes": [str], "rejection": str or null}',
    )
