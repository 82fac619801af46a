"""Define what an environment is: episodes of operations that a native verifier can replay in any order.

An environment has one of two forms. The *step* form (:class:`StepEnvironment`) answers one transition at a time,
and derives replay from that; the *batch* form (:class:`BatchEnvironment`) replays many sequences at once, for
verifiers that run best in batches. Code that uses only :class:`Environment` serves both.

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

    ``signature`` is its canonical name, unique within the episode and independent of the step's position;
    ``payload`` is the native form that the verifier runs (JSON).
    """

    signature: str
    payload: Json


@dataclass(frozen=True, kw_only=True, slots=True)
class Provenance:
    """The origin of an episode. Episodes with equal ``source`` never fall on two sides of a split."""

    source: str
    generator: str
    seed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Episode:
    """A native initial state and its operations, which stand in the reference order.

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
        """The number of operations in an order of this episode."""
        return len(self.operations)

    def content_hash(self) -> str:
        """SHA-256 of the replayed content, without its origin: equal episodes have equal content hashes."""
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
    """Return the text; above ``MAX_REASON`` characters, its beginning with the length and SHA-256 of the whole."""
    if len(text) <= MAX_REASON:
        return text
    digest = sha256_hex(text.encode(errors="surrogatepass"))
    return f"{text[:_KEPT_OF_REASON]} [... {len(text):,} characters in all, SHA-256 {digest}]"


@dataclass(frozen=True, slots=True)
class Accepted(Generic[State]):
    """The verifier accepts the operation; ``state`` is the next state.

    ``output`` is what the caller of the operation receives, as a canonical text; None if it receives nothing. Outputs
    are part of an order's outcome: two orders are equal only if every operation gave the same output in both. An
    output of more than ``MAX_REASON`` characters is kept like a long refusal message.
    """

    state: State
    output: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.output, str):
            object.__setattr__(self, "output", _shortened(self.output))


@dataclass(frozen=True, slots=True)
class Rejected:
    """The verifier refuses the operation; ``reason`` is its own message.

    Of a message of more than ``MAX_REASON`` characters, only the beginning is kept, with the length and SHA-256 of the
    whole.
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
    """The outcome of an accepted order: the canonical hash after its last step, and the outputs by operation.

    An order is *legal* if its outcome is the reference order's: every step is accepted, the last state is the same, and
    every operation that gives an output gives the same one. All code that decides about legality asks
    :meth:`Replay.is_legal`, or uses certificates that compare in the same way.
    """

    terminal_hash: str
    output_of: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Replay:
    """The verifier's answers along one sequence.

    ``state_hashes[k]`` is the SHA-256 of the canonical state after ``k`` accepted steps (``state_hashes[0]``: the
    initial state). If ``rejection`` is set, the step after the last hash was refused; if all steps have a hash as
    well, the sequence was refused as a whole (an error that no single step shows). ``outputs`` has the output of
    each accepted step, None if a step has none; it is empty if no step has one.
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

    def beginning(self, length: int) -> Replay:
        """Return the replay of the first ``length`` steps, which is this one if it was refused before they had run.

        >>> Replay((0, 1), ("a", "b", "c"), None, (None, "x")).beginning(1)
        Replay(sequence=(0,), state_hashes=('a', 'b'), rejection=None, outputs=())
        """
        reached = len(self.state_hashes) > length
        return Replay(
            self.sequence[:length],
            self.state_hashes[: length + 1],
            None if reached else self.rejection,
            some_outputs(self.outputs[:length]),
        )

    def output(self, place: int) -> str | None:
        """Return the output of the accepted step at this place, from 0; None if it has none."""
        return self.outputs[place] if self.outputs else None

    @property
    def output_of(self) -> Mapping[int, str]:
        """The outputs by operation, for operations that have one."""
        pairs = zip(self.sequence, self.outputs, strict=False)
        return {operation: output for operation, output in pairs if output is not None}

    @property
    def outcome(self) -> Outcome | None:
        """The outcome of the steps; None if the sequence was refused."""
        return Outcome(self.state_hashes[-1], self.output_of) if self.accepted else None

    def is_legal(self, reference: Outcome | None) -> bool:
        """Tell whether the order is legal, given the reference order's outcome; none is legal if that was refused."""
        return self.outcome is not None and self.outcome == reference


def some_outputs(outputs: Sequence[str | None]) -> tuple[str | None, ...]:
    """Return the outputs in the form of :class:`Replay`: empty if no step has any."""
    return tuple(outputs) if any(output is not None for output in outputs) else ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Versions:
    """Everything besides the episode that a verdict depends on; datasets are comparable only if these are equal."""

    environment: str
    adapter: str
    canonicalizer: str
    verifier: str
    libraries: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Json]:
        """Return the JSON form of certificates and manifests."""
        return {
            "environment": self.environment,
            "adapter": self.adapter,
            "canonicalizer": self.canonicalizer,
            "verifier": self.verifier,
            "libraries": dict(self.libraries),
        }


@dataclass(frozen=True, slots=True)
class Footprint:
    """The resources that a step declares to read and to write, by its environment's names; a claim, not evidence.

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
    """The protections and checks of an environment's answers on this machine; nothing of it enters what is hashed.

    ``in_force`` and ``absent`` name protections against what an episode may try with the verifier;
    ``checked_again`` counts what was checked a second time, beyond the request, and found right.
    """

    in_force: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    checked_again: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Schema:
    """One family of episodes.

    ``relation`` is the kind of its anti-diamonds *as designed*; certification decides. ``num_steps`` is the number of
    steps of its episodes, if it is fixed. ``preset`` names the requirements on its episodes (see
    ``vcrt.certificates.episodes.PRESETS``; ``any`` takes all that certify): by default ``paper``, or ``posetsN`` for
    ``num_steps=N``. ``default`` says whether the schema is certified if that preset is requested and no schema is
    named.

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
        """Tell whether the schema was designed for anti-diamonds of these kinds."""
        return bool(kinds) and (self.relation == "either" or set(kinds) == {self.relation})


class Environment(ABC):
    """What certification needs from an environment. Subclass :class:`StepEnvironment` or :class:`BatchEnvironment`.

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
        """Return a candidate episode of a schema, from that schema's own generator seeded by ``seed``."""

    @abstractmethod
    def replay(self, requests: Sequence[ReplayRequest]) -> list[Replay]:
        """Return the verifier's answers to each request, in the order of the requests."""

    def cross_check(self, episode: Episode) -> tuple[CrossCheck, ...]:
        """Return second opinions on one episode from an engine other than the verifier. Default: none."""
        return ()

    def cross_check_all(
        self, episodes: Sequence[Episode], replays: Sequence[Sequence[Replay]] | None = None
    ) -> list[tuple[CrossCheck, ...]]:
        """Return second opinions on each episode; override it if many are cheaper together. Default: one by one.

        ``replays``, if given, are the replays of all orders of each episode, in lexicographic order; for an episode
        of too many operations, the replays of some orders and refused sequences, the reference order first.
        """
        return [self.cross_check(episode) for episode in episodes]

    def thorough(self) -> Environment:
        """Return this environment with every check made a second time; its answers are the same. Default: itself."""
        return self

    def guards(self) -> Guards:
        """Return the verifier's protections, and what this environment has checked again so far. Default: nothing."""
        return Guards()

    def describe(self, operation: Operation) -> str:
        """Describe an operation in words, for people and for policies that see steps as text."""
        return operation.signature

    def task(self, episode: Episode) -> str:
        """Describe the start and purpose of the steps in a few words, for a policy that sees text. Default: nothing.

        The text says nothing about the order, which the policy has to find.
        """
        return ""

    def footprint(self, episode: Episode, operation: Operation) -> Footprint | None:
        """Return what the operation declares to read and write. Default: nothing is declared."""
        return None

    def schema(self, name: str) -> Schema:
        """Return the schema of that name; raises :class:`vcrt.errors.UnknownNameError`."""
        return schema_named(self.name, self.schemas, name)


def schema_named(environment: str, schemas: Sequence[Schema], name: str) -> Schema:
    """Return the schema of that name; raises :class:`vcrt.errors.UnknownNameError`."""
    for schema in schemas:
        if schema.name == name:
            return schema
    raise UnknownNameError.of(f"{environment} schema", name, (s.name for s in schemas))


@dataclass(frozen=True, slots=True)
class FormedSnapshot:
    """A snapshot with the canonical form that its state had, which then need not be made again."""

    value: object
    form: bytes


class StepEnvironment(Environment, Generic[State]):
    """The simple form: it runs one step at a time, on immutable native states (or states kept by :meth:`snapshot`)."""

    @abstractmethod
    def initial_state(self, episode: Episode) -> State:
        """Return the native state before the first operation."""

    @abstractmethod
    def step(self, state: State, operation: Operation) -> Transition[State]:
        """Run one operation; never change ``state`` in place, unless :meth:`snapshot` is offered."""

    @abstractmethod
    def canonical(self, state: State) -> bytes:
        """Serialise canonically: equal bytes exactly when the states are equivalent for every continuation.

        The last state of an episode may include more, such as the check of finished work.
        """

    def snapshot(self, state: State) -> object:
        """Keep ``state`` as it is now, for :meth:`restore`. Default: not offered; override both or neither.

        Snapshots serve states outside of the process: a folder, a database, a repository. If they are offered,
        :meth:`step` may change the given state in place (even when it refuses); vcrt continues from such a state
        once, and otherwise from :meth:`restore` of an earlier snapshot. A snapshot leaves the state as it is, and no
        later step changes what the snapshot holds.
        """
        raise NotImplementedError

    def restore(self, snapshot: object) -> State:
        """Return a new state, equal to the one of the snapshot; works any number of times for one snapshot."""
        raise NotImplementedError

    def probes(self, episode: Episode) -> Sequence[Operation]:
        """Return operations whose answers may distinguish states of this episode. Default: its own, each payload once.

        They run on copies that nothing else uses, in any number and order; an error that they raise counts as an
        answer.
        """
        return tuple({json_digest(each.payload): each for each in episode.operations}.values())

    def replay(self, requests: Sequence[ReplayRequest]) -> list[Replay]:
        """Replay each request by itself, step by step, from its own fresh initial state, without snapshots."""
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
    """The batch form: subclasses give ``replay``, which answers many requests at once.

    It suits verifiers that answer many requests best at once, such as Lean. Its answers are :class:`Replay` objects:

    >>> Replay(sequence=(0, 1), state_hashes=("a" * 64,), rejection=Rejected("no such name")).accepted
    False
    """

    #: A call is a whole batch.
    call_timeout_s: ClassVar[float] = 600.0
