"""Turn the replays of an episode into a certified episode or a typed exclusion.

Pure: the verifier's answers come in; evidence, or the reason why there is none, comes out. An exclusion is counted
in the manifest; it is never turned into a soft label.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial

from vcrt.certificates.certificates import (
    Certificate,
    ExclusionKind,
    OperationRelation,
    UncertifiedError,
    certificates,
    directed,
    relation_graph,
)
from vcrt.certificates.long_episodes import PairContexts, explain, sound_lattice
from vcrt.certificates.probes import require_not_told_apart
from vcrt.certificates.replay_tree import EpisodeReplays, ReplayTree
from vcrt.environments.contract import ANY, CrossCheck, Episode, Replay, Versions
from vcrt.errors import UnknownNameError
from vcrt.limits import MAX_COMPLETE, MAX_COUNTED, MAX_ENUMERATED, MAX_EXHAUSTIVE, MAX_OPERATIONS
from vcrt.orders import Order, linear_extensions, orbit_of
from vcrt.partial_orders import PartialOrder, num_linear_extensions
from vcrt.printable import counted


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Why an episode is not in the dataset."""

    episode_id: str
    kind: ExclusionKind
    detail: str
    #: The second opinions on the episode: disagreement is counted although the episode is left out.
    cross_checks: tuple[CrossCheck, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Preset:
    """The requirements on frozen episodes: their number of operations, and the size of their orbit.

    Without a size, the episode has at least two directed relations; its legal orders are their linear extensions, at
    least two and at most a third of all orders. Above ``vcrt.limits.MAX_ENUMERATED`` operations, one directed relation
    is enough, and any number of linear extensions. If the number of operations is not set either, an episode may have
    any number from two, and any relations that explain its legal orders: from none at all to a single legal order.
    """

    num_operations: int | None
    orbit_size: int | None
    #: Whether contexts are sampled where all of them could be replayed; see :attr:`samples`.
    sampled: bool = False

    @property
    def samples(self) -> bool:
        """Whether contexts of short episodes are sampled too; contexts of longer episodes always are."""
        if self.num_operations is None:
            return self.sampled
        return self.sampled and MAX_EXHAUSTIVE < self.num_operations <= MAX_COMPLETE

    @property
    def is_any(self) -> bool:
        """Whether each episode may have its own number of operations."""
        return self.num_operations is None

    @property
    def is_long(self) -> bool:
        """Whether episodes have, or may have, too many operations to replay every order by itself."""
        return self.num_operations is None or self.num_operations > MAX_EXHAUSTIVE

    @property
    def least_relations(self) -> int:
        """The smallest number of directed relations of an episode."""
        if self.num_operations is None:
            return 0
        several = self.orbit_size is None and self.num_operations <= MAX_ENUMERATED
        return 2 if several else 1

    @property
    def text(self) -> str:
        """The requirements in words."""
        if self.num_operations is None:
            return f"2 to {MAX_OPERATIONS} operations whose legal orders are the linear extensions of their relations"
        if self.orbit_size is not None:
            return f"{self.orbit_size} legal orders of {counted(self.num_operations, 'operation')}"
        relations = "two directed relations" if self.least_relations == 2 else "a directed relation"
        return (
            f"{counted(self.num_operations, 'operation')} with {relations} or more, whose linear extensions are the "
            "legal orders, two at least"
        )


#: Four operations of which 12 of the 24 orders are legal (the paper's Section "Experimental Design").
PAPER_PRESET = Preset(num_operations=4, orbit_size=12)
#: Four operations with several anti-diamonds: 2 to 8 of the 24 orders are legal.
SEVERAL_PRESET = Preset(num_operations=4, orbit_size=None)
#: Any episode that certifies, of 2 to 64 operations; in one dataset they need not have equally many.
ANY_PRESET = Preset(num_operations=None, orbit_size=None)
#: The presets by name; a schema names the one that its episodes are made for. ``posetsN`` is that of N operations.
PRESETS: Mapping[str, Preset] = {
    "paper": PAPER_PRESET,
    "several": SEVERAL_PRESET,
    ANY: ANY_PRESET,
    **{
        f"posets{n}": Preset(num_operations=n, orbit_size=None)
        for n in range(3, MAX_OPERATIONS + 1)
    },
}


def preset_named(name: str) -> Preset:
    """Return the preset of that name; raises :class:`vcrt.errors.UnknownNameError`."""
    if name not in PRESETS:
        number = name.removeprefix("posets")
        near = get_close_matches(name, PRESETS, n=1)
        if number != name and number.isdecimal():
            # Another number is no slip of the pen, but for zeros before it.
            same = f"posets{int(number)}"
            near = [same] if same in PRESETS else [ANY] if same == "posets2" else []
        raise UnknownNameError(
            f"unknown preset {name!r}",
            expected=f"paper, several, posetsN for 3 to {MAX_OPERATIONS} operations, or any for 2 to {MAX_OPERATIONS}",
            remedy=f"did you mean {near[0]!r}?" if near else None,
        )
    return PRESETS[name]


@dataclass(frozen=True, kw_only=True, slots=True)
class CertifiedEpisode:
    """An episode with the evidence for its relations.

    ``evidence`` holds the verifier's answers, from which all else follows. Up to ``MAX_EXHAUSTIVE`` operations it is
    exhaustive, ``certificates`` has every pair in every context, and ``orbit`` lists the legal orders that certified
    swaps connect. Above, ``orbit`` is empty; ``certificates`` has one example of each verdict on a pair, and ``pairs``
    counts the contexts in which it was compared; the legal orders are the linear extensions of ``order``. If
    ``complete``, every reachable context was replayed; otherwise ``classes`` is the number of classes of orders, and
    one representative of each was replayed.
    """

    evidence: EpisodeReplays
    versions: Versions
    certificates: tuple[Certificate, ...]
    relations: tuple[OperationRelation, ...]
    orbit: tuple[Order, ...]
    cross_checks: tuple[CrossCheck, ...] = ()
    pairs: tuple[PairContexts, ...] = ()
    complete: bool = True
    classes: int | None = None

    @property
    def episode(self) -> Episode:
        """The episode that was replayed."""
        return self.evidence.episode

    @property
    def exhaustive(self) -> bool:
        """Whether every order was replayed by itself."""
        return self.evidence.exhaustive

    @property
    def replays(self) -> tuple[Replay, ...]:
        """The replays of all orders; empty unless :attr:`exhaustive`."""
        return self.evidence.replays

    @property
    def tree(self) -> ReplayTree:
        """All sequences that were replayed."""
        return self.evidence.tree

    @property
    def order(self) -> PartialOrder:
        """The certified order of the operations: the closure of the directed relations."""
        return PartialOrder.of(self.episode.num_operations, directed(self.relations))

    @property
    def kinds(self) -> set[str]:
        """The kinds of its anti-diamonds."""
        return {str(relation.kind) for relation in self.relations} - {"commutes"}

    @property
    def num_legal(self) -> int | None:
        """The number of legal orders; None if not counted (more than ``MAX_COUNTED`` operations)."""
        return len(self.orbit) if self.exhaustive else counted_extensions(self.order)


def counted_extensions(order: PartialOrder) -> int | None:
    """The number of linear extensions; None if there are too many operations to count them."""
    return num_linear_extensions(order) if order.num_operations <= MAX_COUNTED else None


def certify_episode(
    evidence: EpisodeReplays,
    versions: Versions,
    preset: Preset,
    cross_checks: Sequence[CrossCheck] = (),
) -> CertifiedEpisode | Exclusion:
    """Certify one episode from its replays; every failure is a typed :class:`Exclusion`."""
    episode, checks = evidence.episode, tuple(cross_checks)
    certify = _certify_orders if evidence.exhaustive else _certify_tree
    certified = partial(CertifiedEpisode, evidence=evidence, versions=versions, cross_checks=checks)
    try:
        _require_form(episode, preset)
        require_not_told_apart(checks)
        disagreeing = [check for check in checks if check.agreed != check.checked]
        if disagreeing:
            found = "; ".join(f"{c.checker} agrees {c.agreed}/{c.checked}" for c in disagreeing)
            raise UncertifiedError("second_opinion", found)
        return certify(evidence, preset, certified)
    except UncertifiedError as error:
        return Exclusion(episode.episode_id, error.kind, error.detail, checks)


def _certify_orders(
    evidence: EpisodeReplays, preset: Preset, certified: Callable[..., CertifiedEpisode]
) -> CertifiedEpisode:
    """Certify an episode of which every order was replayed."""
    num_operations = evidence.episode.num_operations
    for replay in evidence.replays:
        for place in idle_places(replay):
            found = f"step {place + 1} of order {list(replay.sequence)}"
            raise UncertifiedError("no_effect", found)
    sound_lattice(evidence.tree)
    local = certificates(evidence)
    relations = relation_graph(num_operations, local, allow_implied=preset.orbit_size is None)
    legal = legal_orders(evidence.replays)
    if not legal:
        raise UncertifiedError("outside_schema", "the reference order itself is refused")
    diamonds = {(c.context, frozenset(c.pair)) for c in local if c.verdict == "diamond"}
    orbit = orbit_of(
        tuple(range(num_operations)),
        legal,
        lambda context, a, b: (context, frozenset((a, b))) in diamonds,
    )
    misfit = _misfit(preset, directed(relations), legal, orbit)
    if misfit is not None:
        raise UncertifiedError("outside_schema", misfit)
    return certified(certificates=local, relations=relations, orbit=tuple(orbit))


def _certify_tree(
    evidence: EpisodeReplays, preset: Preset, certified: Callable[..., CertifiedEpisode]
) -> CertifiedEpisode:
    explained = explain(evidence.tree, sampled=preset.samples)
    num_directed = len(directed(explained.relations))
    if num_directed < preset.least_relations:
        found = (
            f"{counted(num_directed, 'directed relation')}, not {preset.least_relations} or more"
        )
        raise UncertifiedError("outside_schema", found)
    num_legal = counted_extensions(explained.order)
    if preset.orbit_size is not None and num_legal != preset.orbit_size:
        found = "uncounted legal orders" if num_legal is None else counted(num_legal, "legal order")
        raise UncertifiedError("outside_schema", f"{found}, not {preset.orbit_size}")
    n = evidence.episode.num_operations
    if not preset.is_any and len(explained.order.pairs) == n * (n - 1) // 2:
        raise UncertifiedError("outside_schema", "1 legal order, not two or more")
    return certified(
        certificates=explained.certificates,
        relations=explained.relations,
        orbit=(),
        pairs=explained.pairs,
        complete=explained.complete,
        classes=explained.classes,
    )


def legal_orders(replays: Sequence[Replay]) -> list[Order]:
    """Return the legal orders among the replays: none if the reference order is refused.

    See :class:`vcrt.environments.contract.Outcome`.
    """
    reference = min(replays, key=lambda replay: replay.sequence).outcome
    return [replay.sequence for replay in replays if replay.is_legal(reference)]


def _misfit(
    preset: Preset,
    pairs: Sequence[tuple[int, int]],
    legal: Sequence[Order],
    orbit: Sequence[Order],
) -> str | None:
    """Say why an episode with these directed pairs, legal orders and orbit does not fit the preset; None if it does."""
    counts = f"{counted(len(legal), 'legal order')}, {len(orbit)} in the orbit"
    num_operations = len(legal[0])
    listed = num_operations <= MAX_ENUMERATED
    if preset.orbit_size is not None:
        whole = len(orbit) == len(legal) == preset.orbit_size
        if listed or not whole:
            return None if whole else f"{counts}, not {preset.orbit_size}"
    elif len(pairs) < preset.least_relations:
        least = "two" if preset.least_relations == 2 else "one"
        return f"{counted(len(pairs), 'directed relation')}, not {least} or more"
    if len(orbit) != len(legal) or (len(orbit) < 2 and not preset.is_any):
        return f"{counts}, not one orbit" + " of two or more" * (not preset.is_any)
    try:
        extensions = linear_extensions(num_operations, pairs)
    except ValueError:
        return "the directed relations contain a cycle"
    if extensions != sorted(legal):
        return f"{counts}, but {counted(len(extensions), 'linear extension')} of the directed relations, or others"
    return None


def _require_form(episode: Episode, preset: Preset) -> None:
    signatures = [operation.signature for operation in episode.operations]
    if len(set(signatures)) != len(signatures) or not all(map(_is_named, signatures)):
        raise UncertifiedError("ambiguous_correspondence", f"signatures {signatures}")
    if not all(map(_is_named, (episode.provenance.source, episode.provenance.generator))):
        raise UncertifiedError("missing_provenance", "source or generator is empty")
    number = episode.num_operations
    if preset.num_operations is None:
        if not 2 <= number <= MAX_OPERATIONS:
            found = f"{number} operations, not 2 to {MAX_OPERATIONS}"
            raise UncertifiedError("outside_schema", found)
    elif number != preset.num_operations:
        found = f"{counted(number, 'operation')}, not {preset.num_operations}"
        raise UncertifiedError("outside_schema", found)


def _is_named(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def idle_places(replay: Replay) -> list[int]:
    """Return the places, from 0, of a replay's steps that left the state as it was and have no output."""
    hashes = replay.state_hashes
    return [
        k for k in range(len(hashes) - 1) if hashes[k] == hashes[k + 1] and replay.output(k) is None
    ]
