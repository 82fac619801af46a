"""A small deterministic environment, and mutants of it that certification must catch."""

from __future__ import annotations

import os
from dataclasses import replace

from vcrt.environments.contract import (
    Accepted,
    BatchEnvironment,
    CrossCheck,
    Episode,
    Operation,
    Provenance,
    Rejected,
    Schema,
    StepEnvironment,
    Versions,
)
from vcrt.errors import VerifierFailure
from vcrt.hashing import canonical_json, sha256_hex
from vcrt.randomness import generator


class ToyEnvironment(StepEnvironment):
    """Assignments to variables: `needs` must be defined, `writes` gets a value or a copy of a variable."""

    name = "toy"
    #: Its states are all that there is to know of them; and its hashes are those of before there were probes.
    max_probes = 0
    schemas = (
        Schema(name="needs", summary="a write that needs another", relation="precedes"),
        Schema(name="overwrite", summary="two writes to one variable", relation="conflicts"),
    )

    def versions(self):
        return Versions(environment="toy", adapter="1", canonicalizer="1", verifier="toy 1")

    def sample(self, schema, seed):
        self.schema(schema)
        rng = generator(seed, "toy", schema)
        names = [f"v{i}" for i in rng.permutation(100)[:4]]
        values = [rng.integers(0, 1000) for _ in range(4)]
        ops = [{"needs": [], "writes": n, "value": v} for n, v in zip(names, values, strict=True)]
        first, second = sorted(int(i) for i in rng.permutation(4)[:2])
        if schema == "needs":
            ops[second]["needs"] = [names[first]]
        else:
            ops[second]["writes"] = names[first]
            ops[second]["value"] = ops[first]["value"] + 1
        return Episode(
            environment="toy",
            schema=schema,
            initial={"start": int(rng.integers(1000))},
            operations=tuple(
                Operation(signature=f"step {i}", payload=op) for i, op in enumerate(ops)
            ),
            provenance=Provenance(source=f"toy.{schema}/{seed}", generator="toy 1", seed=seed),
        )

    def initial_state(self, episode):
        return {"start": episode.initial["start"]}

    def step(self, state, operation):
        missing = [name for name in operation.payload["needs"] if name not in state]
        if missing:
            return Rejected(f"{missing[0]} is not defined")
        return Accepted({**state, operation.payload["writes"]: operation.payload["value"]})

    def canonical(self, state):
        return canonical_json(state)

    def cross_check(self, episode):
        return (CrossCheck("toy twice", 1, 1),)


class ProcessDependent(ToyEnvironment):
    def canonical(self, state):
        return canonical_json({**state, "process": os.getpid()})


class ReplayDependent(ToyEnvironment):
    count = 0

    def initial_state(self, episode):
        type(self).count += 1
        return {**super().initial_state(episode), "count": self.count}


class Idle(ToyEnvironment):
    def step(self, state, operation):
        if operation.signature == "step 2":
            return Accepted(state)
        return super().step(state, operation)


class SameSignatures(ToyEnvironment):
    def sample(self, schema, seed):
        episode = super().sample(schema, seed)
        return replace(
            episode, operations=tuple(replace(o, signature="step") for o in episode.operations)
        )


class NoProvenance(ToyEnvironment):
    def sample(self, schema, seed):
        return replace(
            super().sample(schema, seed),
            provenance=Provenance(source="", generator="toy", seed=seed),
        )


class ChangingVersions(ToyEnvironment):
    def versions(self):
        return replace(super().versions(), verifier=f"toy in process {os.getpid()}")


class AlwaysAccepts(ToyEnvironment):
    """Keeps the set of what ran, so that every order ends in the same state."""

    def step(self, state, operation):
        return Accepted({**state, operation.signature: True})


class AlwaysRejects(ToyEnvironment):
    def step(self, state, operation):
        return Rejected("no")


class ContextDependent(ToyEnvironment):
    """Steps 0 and 1 commute, unless step 2 has run."""

    def step(self, state, operation):
        value = operation.signature
        if operation.signature in ("step 0", "step 1") and "step 2" in state:
            value = str(sorted(state))
        return Accepted({**state, operation.signature: value})


class SameContent(ToyEnvironment):
    def sample(self, schema, seed):
        episode = super().sample(schema, 0)
        return replace(episode, provenance=replace(episode.provenance, seed=seed))


class DisagreeingSecondOpinion(ToyEnvironment):
    def cross_check(self, episode):
        return (CrossCheck("oracle", 2, 1),)


class SometimesDisagreeing(ToyEnvironment):
    def cross_check(self, episode):
        return (CrossCheck("oracle", 2, 2 - (episode.provenance.seed % 3 == 0)),)


class Forgetful(ToyEnvironment):
    """Its canonical state leaves out the values, which show only when all steps have run."""

    def step(self, state, operation):
        answer = super().step(state, operation)
        answer.state["steps"] = state.get("steps", 0) + 1
        return answer

    def canonical(self, state):
        steps = state.get("steps", 0)
        return canonical_json(state if steps == 4 else [steps, sorted(state)])


class Aliasing(ToyEnvironment):
    """Changes the state in place, and gives every replay the same one to start with."""

    def __init__(self):
        self.shared = {}

    def initial_state(self, episode):
        self.shared.setdefault("steps", 0)
        return self.shared

    def step(self, state, operation):
        state["steps"] += 1
        state[operation.payload["writes"]] = state["steps"]
        return Accepted(state)


class InBatches(BatchEnvironment):
    """The toy environment in the batch form."""

    name = "toy"
    schemas = ToyEnvironment.schemas
    preferred_batch = 7

    def __init__(self):
        self.steps = ToyEnvironment()

    def versions(self):
        return self.steps.versions()

    def sample(self, schema, seed):
        return self.steps.sample(schema, seed)

    def replay(self, requests):
        return self.steps.replay(requests)


class Fickle(InBatches):
    """Its hashes change with every call."""

    calls = 0

    def replay(self, requests):
        self.calls += 1
        return [
            replace(
                r,
                state_hashes=tuple(
                    sha256_hex(f"{h} {self.calls}".encode()) for h in r.state_hashes
                ),
            )
            for r in super().replay(requests)
        ]


class DyingVerifier(ToyEnvironment):
    def step(self, state, operation):
        raise VerifierFailure("the toy verifier died", where="toy")


class KilledProcess(ToyEnvironment):
    """Its process is gone in the middle of a replay, as after a crash of native code."""

    def step(self, state, operation):
        os._exit(3)


class SkipsAnswers(ToyEnvironment):
    def replay(self, requests):
        return super().replay(requests)[:-1]


class ToyA(ToyEnvironment):
    """The toy environment under another name, for datasets of several environments."""

    name = "toy-a"

    def sample(self, schema, seed):
        return replace(super().sample(schema, seed), environment=self.name)


class ToyB(ToyA):
    name = "toy-b"


class ToyC(ToyA):
    name = "toy-c"


THREE_TOYS = {"toy-a": ToyA, "toy-b": ToyB, "toy-c": ToyC}


# What only another succession of replays, another process, or a close look at the answers can find.


class LearnsFromOthers(ToyEnvironment):
    """Two steps need another, but one of them is content if any replay has ever run it: 6 of 24 look like 12."""

    def __init__(self):
        self.ever = set()

    def sample(self, schema, seed):
        names = [f"episode {seed} v{i}" for i in range(4)]
        needs = ([], [], [names[0]], [names[1]])
        ops = [
            {"needs": some, "strict": i != 3, "writes": name, "value": i}
            for i, (name, some) in enumerate(zip(names, needs, strict=True))
        ]
        return replace(
            super().sample(schema, seed),
            operations=tuple(
                Operation(signature=f"step {i}", payload=op) for i, op in enumerate(ops)
            ),
        )

    def step(self, state, operation):
        known = state if operation.payload["strict"] else self.ever
        if any(name not in known for name in operation.payload["needs"]):
            return Rejected("not defined")
        self.ever.add(operation.payload["writes"])
        return Accepted({**state, operation.payload["writes"]: operation.payload["value"]})


class CountsEpisodes(ToyEnvironment):
    """Its states say how many replays this process has begun."""

    def __init__(self):
        self.begun = []

    def initial_state(self, episode):
        if episode not in self.begun:
            self.begun.append(episode)
        return {**super().initial_state(episode), "episode": self.begun.index(episode)}


class SwapsEpisodes(InBatches):
    """Gives whole episodes each other's answers; the orders that were asked for are right."""

    preferred_batch = 1000

    def replay(self, requests):
        groups = {}
        for request in requests:
            groups.setdefault(request.episode.episode_id, []).append(request)
        swapped = [r for group in reversed(groups.values()) for r in group]
        return self.steps.replay(swapped)


class SamplesAtRandom(ToyEnvironment):
    def sample(self, schema, seed):
        episode = super().sample(schema, seed)
        return replace(episode, initial={"start": os.getpid()})


class SamplesAnother(ToyEnvironment):
    def sample(self, schema, seed):
        return replace(super().sample(schema, seed), schema="overwrite")


class SamplesOneSeed(ToyEnvironment):
    def sample(self, schema, seed):
        return super().sample(schema, 7)


class ForgetsTheOnlyStep(ToyEnvironment):
    """While only one step has run, its canonical state does not say which."""

    def canonical(self, state):
        return canonical_json(state if len(state) != 2 else len(state))


class ChangesEpisodes(ToyEnvironment):
    def step(self, state, operation):
        operation.payload.setdefault("log", []).append(1)
        return super().step(state, operation)


class RenamesSteps(ToyEnvironment):
    """Runs a step under another signature than the episode gives it."""

    def step(self, state, operation):
        object.__setattr__(operation, "signature", f"{operation.signature} once more")
        return super().step(state, operation)


class NeverRefuses(ToyEnvironment):
    """Goes on with nonsense where the real verifier refuses."""

    def step(self, state, operation):
        missing = [name for name in operation.payload["needs"] if name not in state]
        value = "undefined" if missing else operation.payload["value"]
        return Accepted({**state, operation.payload["writes"]: value})


class Breaks(ToyEnvironment):
    def step(self, state, operation):
        raise KeyError(operation.signature)


class BreaksTheSecondTime(ToyEnvironment):
    """Dies in the second replay only, where the last order comes first."""

    first = None

    def initial_state(self, episode):
        return {**super().initial_state(episode), "": 0}

    def step(self, state, operation):
        if self.first is None:
            self.first = operation.signature
        if self.first == "step 3":
            raise VerifierFailure("the toy verifier died the second time", where="toy")
        return super().step(state, operation)


class CosmeticDuplicates(ToyEnvironment):
    def sample(self, schema, seed):
        episode = super().sample(schema, 0)
        initial = {**episode.initial, "comment": seed}
        return replace(episode, initial=initial, provenance=replace(episode.provenance, seed=seed))


def answering(change):
    """The toy environment in batches, with every answer changed."""

    class Answering(InBatches):
        def replay(self, requests):
            return change(super().replay(requests))

    return Answering


def _each(**changes):
    return lambda answers: [
        replace(a, **{name: change(a) for name, change in changes.items()}) for a in answers
    ]


MALFORMED_ANSWERS = {
    "none": lambda answers: None,
    "too few": lambda answers: answers[:-1],
    "no hashes": _each(state_hashes=lambda a: ()),
    "short": _each(state_hashes=lambda a: a.state_hashes[:-1]),
    "long": _each(state_hashes=lambda a: (*a.state_hashes, a.state_hashes[0])),
    "numbers": _each(state_hashes=lambda a: tuple(range(len(a.state_hashes)))),
    "words": _each(state_hashes=lambda a: tuple("h" for _ in a.state_hashes)),
    "no reason": _each(rejection=lambda a: a.rejection and Rejected("")),
    "no text": _each(rejection=lambda a: a.rejection and Rejected(None)),
}
