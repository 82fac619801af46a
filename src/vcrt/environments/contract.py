"""Define what an environment is: episodes of operations that a native verifier can replay in any order.

An environment comes in one of two forms. The *step* form (:class:`StepEnvironment`) answers one transition at a
time, and derives replay from that; the *batch* form (:class:`BatchEnvironment`) replays many sequences at once, for
verifiers that are best driven in batches. What sees only :class:`Environment` serves both.

Not covered: certification (which orders are equivalent) and everything that the policy sees.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, Literal, TypeAlias, TypeVar

from vcrt.errors import MalformedInputError, UnknownNameError
from vcrt.hashing import Json, json_digest, sha256_hex

State = TypeVar("State")
RelationKind: TypeAlias = Literal["precedes", "conflicts", "observes"]
#: The kind of a schema's anti-diamonds; ``either`` stands for any kinds, in different episodes or in one.
AntiDiamonds: TypeAlias = RelationKind | Literal["either"]
#: The preset of schemas whose episodes promise nothing but that they can be certified.
ANY = "any"


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """One step of an episode.

    ``signature`` is its canonical name, unique within the episode and unchanged when the step is adapted to another
    position; ``payload`` is the native form that the verifier runs (JSON).
    """

    signature: str
    payload: Json


@dataclass(frozen=True, kw_only=True, slots=True)
class Provenance:
    """Where an episode comes from. Episodes with equal ``source`` never fall on two sides of a split."""

    source: str
    generator: str
    seed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Episode:
    """A native initial state and its operations; the reference order is the order in which they stand here.

    The whole episode is JSON, so that it can be sealed, hashed and replayed from its own bytes.
    """

    environment: str
    schema: str
    initial: Json
    operations: tuple[Operation, ...]
    provenance: Provenance

    @property
    def episode_id(self) -> str:
        """``environment/schema/seed``, unique within a dataset."""
        return f"{self.environment}/{self.schema}/{self.provenance.seed}"

    @property
    def num_operations(self) -> int:
        """How many operations an order of this episode has."""
        return len(self.operations)

    def content_hash(self) -> str:
        """SHA-256 of what is replayed (not of where it came from): equal episodes have equal content hashes."""
        content: Json = {
            "environment": self.environment,
            "schema": self.schema,
            "initial": self.initial,
            "operations": [operation_to_json(o) for o in self.operations],
        }
        return json_digest(content)


def operation_to_json(operation: Operation) -> dict[str, Json]:
    """The JSON form of an operation."""
    return {"signature": operation.signature, "payload": operation.payload}


#: The most characters of a refusal or an output that evidence holds whole, and how much of a longer one.
MAX_REASON = 16_384
_KEPT_OF_REASON = 4_096


def _shortened(text: str) -> str:
    """The text, or of a longer one than ``MAX_REASON`` the beginning, with the length and SHA-256 of all of it."""
    if len(text) <= MAX_REASON:
        return text
    digest = sha256_hex(text.encode(errors="surrogatepass"))
    return f"{text[:_KEPT_OF_REASON]} [... {len(text):,} characters in all, SHA-256 {digest}]"


@dataclass(frozen=True, slots=True)
class Accepted(Generic[State]):
    """The verifier accepts the operation; ``state`` is the next state.

    ``output`` is what whoever ran the operation was given, as a canonical text; None where nobody is given anything.
    It is part of what happens: two orders are equal only if every operation gave the same output in both. One of more
    than ``MAX_REASON`` characters is kept as a refusal's message is.
    """

    state: State
    output: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.output, str):
            object.__setattr__(self, "output", _shortened(self.output))


@dataclass(frozen=True, slots=True)
class Rejected:
    """The verifier refuses the operation; ``reason`` is its own message.

    Of a message of more than ``MAX_REASON`` characters the beginning is kept, with the length and SHA-256 of all of it.
    """

    reason: str

    def __post_init__(self) -> None:
        if isinstance(self.reason, str):
            object.__setattr__(self, "reason", _shortened(self.reason))


Transition: TypeAlias = Accepted[State] | Rejected


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """An episode and the sequence of operation indices to run from its initial state (a whole order or a prefix)."""

    episode: Episode
    sequence: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the accepted steps of an order come to: the canonical hash after the last, and the outputs by operation.

    An order is *legal* if its outcome is the reference order's: every step is accepted, the last state is the same, and
    every operation that gives an output gives the same one. All that calls an order legal asks :meth:`Replay.is_legal`,
    or is derived from certificates that compare as it does.
    """

    terminal_hash: str
    output_of: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Replay:
    """The verifier's answers along one sequence.

    ``state_hashes[k]`` is the SHA-256 of the canonical state after ``k`` accepted steps (``state_hashes[0]``: the
    initial state). If ``rejection`` is set, the step after the last hash was refused; when all steps have a hash and
    ``rejection`` is set all the same, the sequence was refused as a whole (an error that no single step shows).
    ``outputs`` has the output of each accepted step, None for one without; it is empty if all are without.
    """

    sequence: tuple[int, ...]
    state_hashes: tuple[str, ...]
    rejection: Rejected | None = None
    outputs: tuple[str | None, ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether every step was accepted."""
        return self.rejection is None

    @property
    def terminal_hash(self) -> str | None:
        """The canonical hash after the last step, or None if the sequence was refused."""
        return self.state_hashes[-1] if self.accepted else None

    def output(self, place: int) -> str | None:
        """The output of the accepted step in this place, from 0 on; None if it has none."""
        return self.outputs[place] if self.outputs else None

    @property
    def output_of(self) -> Mapping[int, str]:
        """The outputs by operation, of those that have one."""
        pairs = zip(self.sequence, self.outputs, strict=False)
        return {operation: output for operation, output in pairs if output is not None}

    @property
    def outcome(self) -> Outcome | None:
        """What the steps came to; None if the sequence was refused."""
        return Outcome(self.state_hashes[-1], self.output_of) if self.accepted else None

    def is_legal(self, reference: Outcome | None) -> bool:
        """Whether the order is legal, by the reference order's outcome; none is legal if that was refused."""
        return self.outcome is not None and self.outcome == reference


def some_outputs(outputs: Sequence[str | None]) -> tuple[str | None, ...]:
    """The outputs as :class:`Replay` holds them: none where no step has any."""
    return tuple(outputs) if any(output is not None for output in outputs) else ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Versions:
    """Everything that a verdict depends on besides the episode. Two datasets are comparable only if these are equal."""

    environment: str
    adapter: str
    canonicalizer: str
    verifier: str
    libraries: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Json]:
        """The JSON form, as it stands in certificates and manifests."""
        return {
            "environment": self.environment,
            "adapter": self.adapter,
            "canonicalizer": self.canonicalizer,
            "verifier": self.verifier,
            "libraries": dict(self.libraries),
        }


@dataclass(frozen=True, slots=True)
class Footprint:
    """The resources that a step declares to read and to write, by names of its environment; a claim, not evidence.

    >>> Footprint(reads=("cart",), writes=("cart", "orders")).writes
    ('cart', 'orders')
    """

    reads: tuple[str, ...]
    writes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CrossCheck:
    """An independent second opinion: of ``checked`` comparisons made by ``checker``, ``agreed`` were equal."""

    checker: str
    checked: int
    agreed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Guards:
    """What stands behind the answers of an environment on this machine; nothing of it enters what is hashed.

    ``in_force`` and ``absent`` are protections from what an episode may try with the verifier, in words by name;
    ``checked_again`` counts what was checked a second time, beyond what was asked for, and found right.
    """

    in_force: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    checked_again: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Schema:
    """One family of episodes.

    ``relation`` is the kind of its anti-diamonds *as designed*; certification decides. ``num_steps`` is the number of
    steps that its episodes have, if it has one of its own. ``preset`` names what its episodes are to look like (see
    ``vcrt.certificates.episodes.PRESETS``; ``any`` takes all that certify): by default ``paper``, or ``posetsN`` for
    ``num_steps=N``. ``default`` says whether it is certified when that preset is asked for and no schema is named.

    Raises :class:`vcrt.errors.MalformedInputError` if ``preset`` is that of another number of steps.

    >>> Schema(name="six", summary="six steps", relation="either", num_steps=6).preset
    'posets6'
    """

    name: str
    summary: str
    relation: AntiDiamonds
    default: bool = True
    preset: str = ""
    num_steps: int | None = None

    def __post_init__(self) -> None:
        own = "paper" if self.num_steps is None else f"posets{self.num_steps}"
        if not self.preset:
            object.__setattr__(self, "preset", own)
        if self.num_steps is not None and self.preset.startswith("posets") and self.preset != own:
            raise MalformedInputError(
                "a schema with two numbers of steps",
                where=f"schema {self.name!r}",
                found=f"num_steps={self.num_steps}, preset={self.preset!r}",
                expected=f"one number, as num_steps={self.num_steps} alone gives",
            )

    def designed(self, kinds: Collection[str]) -> bool:
        """Whether anti-diamonds of these kinds are what the schema was designed for."""
        return bool(kinds) and (self.relation == "either" or set(kinds) == {self.relation})


class Environment(ABC):
    """What certification needs of an environment. Subclass :class:`StepEnvironment` or :class:`BatchEnvironment`.

    Contract: ``sample`` and ``replay`` are deterministic functions of their arguments; a verifier that breaks raises
    :class:`vcrt.errors.VerifierFailure` and never returns a verdict; equal canonical hashes imply equal futures.
    """

    name: ClassVar[str]
    schemas: ClassVar[tuple[Schema, ...]]
    #: How many requests ``replay`` likes to get at once.
    preferred_batch: ClassVar[int] = 4096
    #: Seconds by the clock on the wall that one call of a method may take; ``--verifier-timeout`` replaces it. A
    #: process that overruns is ended, with all that it has started.
    call_timeout_s: ClassVar[float] = 60.0
    #: How many calls are made, at most, after each of two orders of an episode that seem to end in one state, to tell
    #: them apart; over all pairs of operations. 0: none. Only a :class:`StepEnvironment` is asked.
    max_probes: ClassVar[int] = 256

    @abstractmethod
    def versions(self) -> Versions:
        """Versions and library hashes; raises :class:`vcrt.errors.UnavailableError` if a part is missing or wrong."""

    @abstractmethod
    def sample(self, schema: str, seed: int) -> Episode:
        """A candidate episode of a schema, from that schema's own generator seeded by ``seed``."""

    @abstractmethod
    def replay(self, requests: Sequence[ReplayRequest]) -> list[Replay]:
        """The verifier's answers to each request, in the order of the requests."""

    def cross_check(self, episode: Episode) -> tuple[CrossCheck, ...]:
        """Second opinions on one episode from an engine other than the verifier. Default: none."""
        return ()

    def cross_check_all(
        self, episodes: Sequence[Episode], replays: Sequence[Sequence[Replay]] | None = None
    ) -> list[tuple[CrossCheck, ...]]:
        """Second opinions on each of ``episodes``; override it if many are cheaper together. Default: one by one.

        ``replays`` are the replays of all orders of each episode, in lexicographic order, if they are at hand; of an
        episode of too many operations, those of some orders and refused sequences, the reference order first.
        """
        return [self.cross_check(episode) for episode in episodes]

    def thorough(self) -> Environment:
        """The same environment with every check that it can make a second time; answers the same. Default: itself."""
        return self

    def guards(self) -> Guards:
        """What protects the verifier, and what this environment has checked again so far. Default: nothing."""
        return Guards()

    def describe(self, operation: Operation) -> str:
        """The native step as a person would read it, and a policy that is shown steps as text."""
        return operation.signature

    def task(self, episode: Episode) -> str:
        """What the steps start from and are for, in a few words, for a policy that is shown them. Default: nothing.

        It says nothing about the order: the policy is to find that.
        """
        return ""

    def footprint(self, episode: Episode, operation: Operation) -> Footprint | None:
        """What the operation reads and writes, where that is declared. Default: nothing is."""
        return None

    def schema(self, name: str) -> Schema:
        """The schema of that name; raises :class:`vcrt.errors.UnknownNameError`."""
        return schema_named(self.name, self.schemas, name)


def schema_named(environment: str, schemas: Sequence[Schema], name: str) -> Schema:
    """The schema of that name; raises :class:`vcrt.errors.UnknownNameError`."""
    for schema in schemas:
        if schema.name == name:
            return schema
    raise UnknownNameError.of(f"{environment} schema", name, (s.name for s in schemas))


class StepEnvironment(Environment, Generic[State]):
    """The simple form: one transition at a time, over immutable native states (or such as :meth:`snapshot` keeps)."""

    @abstractmethod
    def initial_state(self, episode: Episode) -> State:
        """The native state before the first operation."""

    @abstractmethod
    def step(self, state: State, operation: Operation) -> Transition[State]:
        """Run one operation; never changes ``state`` in place, but where :meth:`snapshot` is offered."""

    @abstractmethod
    def canonical(self, state: State) -> bytes:
        """A canonical serialisation: equal bytes exactly when the states are equivalent for every continuation.

        The last state of an episode may hold more, such as the check of what is then finished.
        """

    def snapshot(self, state: State) -> object:
        """Keep ``state`` as it is now, for :meth:`restore`. Default: not offered; override both or neither.

        For states that live outside of the process: a folder, a database, a repository. Where it is offered,
        :meth:`step` may change in place the state that it is given (one that it refuses in, too); vcrt goes on from
        such a state once, and otherwise from what :meth:`restore` makes of a snapshot that it took before. A snapshot
        leaves the state as it is, and no later step changes what the snapshot holds.
        """
        raise NotImplementedError

    def restore(self, snapshot: object) -> State:
        """A new state, equal to the one that ``snapshot`` was taken of; any number of times from one snapshot."""
        raise NotImplementedError

    def probes(self, episode: Episode) -> Sequence[Operation]:
        """Operations whose answers may tell states of this episode apart. Default: its own, each payload once.

        They run on states that nothing else goes on from, in any number and order; what they raise is an answer, too.
        """
        return tuple({json_digest(each.payload): each for each in episode.operations}.values())

    def replay(self, requests: Sequence[ReplayRequest]) -> list[Replay]:
        """Each request by itself, step by step, from its own fresh initial state: no snapshot is restored."""
        return [self._replay_one(request) for request in requests]

    def _replay_one(self, request: ReplayRequest) -> Replay:
        state = self.initial_state(request.episode)
        hashes, outputs, rejection = [self._hash(state)], list[str | None](), None
        for index in request.sequence:
            transition = self._answer(state, request.episode.operations[index])
            if isinstance(transition, Rejected):
                rejection = transition
                break
            state = transition.state
            hashes.append(self._hash(state))
            outputs.append(transition.output)
        return Replay(request.sequence, tuple(hashes), rejection, some_outputs(outputs))

    def _answer(self, state: State, operation: Operation) -> Transition[State]:
        transition = self.step(state, operation)
        if not isinstance(transition, (Accepted, Rejected)):
            raise self._wrong("step", transition, "Accepted(state) or Rejected(reason)")
        if isinstance(transition, Accepted) and not isinstance(transition.output, str | None):
            raise self._wrong("step", transition.output, "an output that is text, or None")
        return transition

    def _hash(self, state: State) -> str:
        form = self.canonical(state)
        if not isinstance(form, bytes):
            raise self._wrong("canonical", form, "bytes, as text.encode() gives")
        return sha256_hex(form)

    def _wrong(self, method: str, given: object, expected: str) -> MalformedInputError:
        return MalformedInputError(
            f"{method} gave something else than it must",
            where=f"{type(self).__module__}.{type(self).__qualname__}.{method}",
            found=f"{type(given).__name__}",
            expected=expected,
        )


class BatchEnvironment(Environment):
    """The batch form: subclasses give ``replay``.

    It suits verifiers that are best asked many things at once, as Lean is. Its answers are :class:`Replay` objects:

    >>> Replay(sequence=(0, 1), state_hashes=("a" * 64,), rejection=Rejected("no such name")).accepted
    False
    """

    #: A call is a whole batch.
    call_timeout_s: ClassVar[float] = 600.0
