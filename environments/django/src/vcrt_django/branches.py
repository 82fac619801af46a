"""Certify two branches of a Django app that a merge would join: which operations commute, and which order is right.

Both branches run whole in both orders, as on databases that have one of them already and by the unchanged migrations;
and every pair of operations, one of each branch, runs as migrations of their own, adjacent in the context of the
operations before them. A few operations also run in every order. If tables are empty and the user gave no rows, whole
orders run on the empty tables and on rows made from the models; an order is right if it is right on both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Literal, TypeAlias

from vcrt.certificates.certificates import Certificate, UncertifiedError, path_after
from vcrt.certificates.pairs import OrdersReport, report_orders
from vcrt.certificates.replay_tree import Answers, EpisodeReplays
from vcrt.environments.contract import Replay, ReplayRequest
from vcrt.errors import MalformedInputError, TooLargeError, VerifierFailure
from vcrt.limits import MAX_LISTED
from vcrt.orders import Order
from vcrt.printable import counted
from vcrt.replay.lattice_replay import replay_merged
from vcrt_django.lifting import (
    Branches,
    DjangoProject,
    DjangoStep,
    WholeOrder,
    WholeOrders,
    Window,
)

#: The most operations of two branches together: every pair is replayed in both orders.
MAX_BRANCHED = 200
#: The kinds of made rows besides plain values, from most to fewest: a branch may rely on rows never having one.
_MADE = (("empty values", "equal values"), ("empty values",), ("equal values",), ())
Outcome: TypeAlias = Literal["either", "first", "second", "other state", "neither"]
Relation: TypeAlias = Literal["commutes", "precedes", "conflicts", "undecided"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CrossPair:
    """The finding about an operation of the first branch and one of the second.

    ``before`` is the operation that must come first (``precedes``); ``reason`` is the message of the refused one.
    ``differences`` are those between the final states of conflicting orders.
    """

    first: int
    second: int
    relation: Relation
    before: int | None
    reason: str
    differences: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class OnRows:
    """The results of whole orders on some rows: the present ones, or kinds of ``made`` ones where tables were empty.

    ``refusals`` say why an order is refused, first branch first. ``drawn`` names columns that differ between two runs
    of one order, and were not compared.
    """

    made: tuple[str, ...] | None
    tables: tuple[str, ...]
    outcome: Outcome
    refusals: tuple[str | None, str | None]
    differences: tuple[str, ...]
    drawn: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class AllOrders:
    """All orders of the operations: their number, and the numbers of accepted orders that end in each state."""

    number: int
    ends: tuple[int, ...]

    @property
    def accepted(self) -> int:
        """The number of accepted orders."""
        return sum(self.ends)


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedBranches:
    """Two branches and the findings; ``refusals`` say why an order of whole branches is refused, first one first.

    ``differences`` are those between the results of whole orders that both run. ``outcome`` holds on all ``rests_on``;
    pairs and ``orders`` were judged on the last of them. ``without_verdict`` are made rows on which neither order runs.
    ``unmade`` are empty tables for which no rows could be made, each with the reason; ``idle`` are steps that changed
    nothing in any order; ``failed`` are receivers of signals that failed where the branches begin, each with the
    reason.
    """

    branches: Branches
    outcome: Outcome
    refusals: tuple[str | None, str | None]
    differences: tuple[str, ...]
    pairs: tuple[CrossPair, ...]
    orders: AllOrders | None
    rests_on: tuple[OnRows, ...]
    without_verdict: OnRows | None
    unmade: tuple[tuple[str, str], ...]
    idle: tuple[int, ...]
    failed: tuple[tuple[str, str], ...]

    @property
    def drawn(self) -> tuple[str, ...]:
        """The columns that were not compared, since two runs of one order differ there."""
        return tuple(sorted({name for each in self.rests_on for name in each.drawn}))

    @property
    def steps(self) -> tuple[DjangoStep, ...]:
        """The operations of the first branch, then those of the second."""
        return self.branches.steps


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedWindow:
    """A window of a migration and the finding, or the reason why there is none."""

    window: Window
    orders: OrdersReport | None
    problem: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class DjangoLift:
    """All findings about a project; ``engine`` is the one in its settings, ``verifier`` the one that judged.

    ``has_rows`` says whether there were rows of the user's own besides those of migrations.
    """

    project: str
    verifier: str
    engine: str
    has_rows: bool
    apps: tuple[str, ...]
    merges: tuple[JudgedBranches, ...]
    windows: tuple[JudgedWindow, ...]


def judge_branches(environment: DjangoProject, branches: Branches) -> JudgedBranches:
    """Return the results of both orders of two branches, and of every pair of operations across them."""
    sides = [[n for n, s in enumerate(branches.steps) if s.branch == side] for side in (0, 1)]
    one, other = sides
    number = len(branches.steps)
    if number > MAX_BRANCHED:
        raise TooLargeError(
            "branches of too many operations",
            where=f"app {branches.app}",
            found=counted(number, "operation"),
            expected=f"at most {MAX_BRANCHED}",
        )
    contexts = {
        (a, b): [(*one[:i], *other[:j]), (*other[:j], *one[:i])]
        for (i, a), (j, b) in product(enumerate(one), enumerate(other))
    }
    wanted: dict[Order, None] = {(*one, *other): None, (*other, *one): None}
    for (a, b), either in contexts.items():
        for context in either:
            wanted |= {(*context, a, b): None, (*context, b, a): None}
    tried = _tried(environment, branches)
    # Made rows on which neither order runs say nothing about the two.
    rests_on = [tried[0], *(one for one in tried[1:] if _outcome(one[2]) != "neither")]
    branches = rests_on[-1][1]
    asked = [ReplayRequest(branches.episode, sequence) for sequence in wanted]
    replays = dict(zip(wanted, environment.replay(asked), strict=True))
    answers = Answers()
    for each in replays.values():
        answers.note_replay(each)
    if answers.contradiction is not None:
        raise VerifierFailure(
            "a sequence that is answered in two ways",
            where=branches.episode.episode_id,
            found=answers.contradiction,
        )
    apart = replays[(*one, *other)], replays[(*other, *one)]
    found = [_on_rows(*each, apart) for each in rests_on]
    failing = tried[-1] if len(tried) > 1 and len(rests_on) == 1 else None
    return JudgedBranches(
        branches=branches,
        outcome=_joint([one.outcome for one in found]),
        refusals=(
            next((one.refusals[0] for one in found if one.refusals[0]), None),
            next((one.refusals[1] for one in found if one.refusals[1]), None),
        ),
        differences=next((one.differences for one in found if one.differences), ()),
        pairs=tuple(_pairs(environment, branches, answers, contexts)),
        orders=None
        if not 2 <= number <= MAX_LISTED
        else _all_orders(replay_merged(environment, [branches.episode])[0]),
        rests_on=tuple(found),
        without_verdict=None if failing is None else _on_rows(*failing, apart),
        unmade=tried[-1][2].unmade,
        idle=_idle(branches, list(replays.values())),
        failed=tried[0][2].failed,
    )


_Tried: TypeAlias = tuple[tuple[str, ...] | None, Branches, WholeOrders]


def _tried(environment: DjangoProject, branches: Branches) -> list[_Tried]:
    """Run whole orders on the present rows and, if tables are empty, on made rows until an order accepts some."""
    tried: list[_Tried] = [(None, branches, environment.whole(branches))]
    there = tried[0][2]
    if not environment.has_rows and there.empty and _outcome(there) != "neither":
        for kinds in _MADE:
            on_made = branches.on_made_rows(kinds)
            tried.append((kinds, on_made, environment.whole(on_made)))
            if _outcome(tried[-1][2]) != "neither":
                break
    return tried


def _on_rows(
    kinds: tuple[str, ...] | None,
    branches: Branches,
    whole: WholeOrders,
    apart: tuple[Replay, Replay],
) -> OnRows:
    forward, backward = whole.orders
    return OnRows(
        made=kinds,
        tables=whole.empty if kinds is None else whole.made,
        outcome=_outcome(whole),
        refusals=(
            _refusal(branches, forward, apart[0]),
            _refusal(branches, backward, apart[1]),
        ),
        differences=whole.differences,
        drawn=whole.drawn,
    )


def _outcome(whole: WholeOrders) -> Outcome:
    forward, backward = whole.orders
    if forward.refused is None and backward.refused is None:
        return "either" if forward.hash == backward.hash else "other state"
    if forward.refused is None:
        return "first"
    return "second" if backward.refused is None else "neither"


def _joint(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the outcome on all rows: an order that is refused on some is refused."""
    first, second = (
        all(outcome in ("either", "other state", side) for outcome in outcomes)
        for side in ("first", "second")
    )
    if first and second:
        return "other state" if "other state" in outcomes else "either"
    if first:
        return "first"
    return "second" if second else "neither"


def _idle(branches: Branches, replays: Sequence[Replay]) -> tuple[int, ...]:
    """Return the steps that ran, are no declared no-ops, and left every state unchanged."""
    ran, changed = set[int](), set[int]()
    for each in replays:
        for place, (before, after) in enumerate(pairwise(each.state_hashes)):
            ran.add(each.sequence[place])
            if before != after:
                changed.add(each.sequence[place])
    return tuple(n for n in sorted(ran - changed) if not branches.steps[n].is_noop)


def _all_orders(evidence: EpisodeReplays) -> AllOrders:
    ends = Counter(one.terminal_hash for one in evidence.replays if one.accepted)
    numbers = sorted(ends.values(), reverse=True)
    return AllOrders(number=len(evidence.replays), ends=tuple(numbers))


def _refusal(branches: Branches, whole: WholeOrder, apart: Replay) -> str | None:
    """Return the place where an order is refused: the operation, if it is also refused as a migration of its own."""
    if whole.refused is None:
        return None
    app, migration, reason = whole.refused
    if apart.rejection is not None and apart.rejection.reason == reason:
        step = branches.steps[apart.sequence[len(apart.state_hashes) - 1]]
        if (step.app, step.migration) == (app, migration):
            return f"{step.label}: {reason}"
    return f"{app}.{migration}: {reason}"


def _pairs(
    environment: DjangoProject,
    branches: Branches,
    answers: Answers,
    contexts: dict[tuple[int, int], list[Order]],
) -> Iterator[CrossPair]:
    for (first, second), either in contexts.items():
        certificates = []
        for context in either:
            reached = answers.by_sequence.get(context)
            if reached is not None and reached.state_hash is not None:
                certificate = Certificate(
                    context=context,
                    context_hash=reached.state_hash,
                    forward=path_after(answers.by_sequence, context, (first, second)),
                    reverse=path_after(answers.by_sequence, context, (second, first)),
                )
                certificates.append(certificate)
        # A context in which neither order runs says nothing if another one does.
        certificates.sort(key=lambda each: each.verdict == "vacuous")
        found = _pair(first, second, certificates)
        if found.relation == "conflicts":
            context = certificates[0].context
            orders = (*context, first, second), (*context, second, first)
            differ = environment.differences(branches, orders)
            found = replace(found, differences=differ)
            if not differ:
                reason = "both orders end in one state, but for what is drawn by chance"
                found = replace(found, relation="commutes", reason=reason)
        yield found


def _pair(first: int, second: int, certificates: Sequence[Certificate]) -> CrossPair:
    relation: Relation = "undecided"
    reason, before = "what stands before one of them is refused", None
    if certificates:
        found = certificates[0]
        refused = found.forward.rejection or found.reverse.rejection or ""
        if found.verdict == "vacuous":
            reason = f"refused in both orders of the two: {refused}"
        elif found.verdict == "precedes":
            relation, before, reason = "precedes", found.before, refused
        elif found.verdict == "conflicts":
            relation, reason = "conflicts", "both orders run, and end in different states"
        else:
            relation, reason = "commutes", "both orders end in one state"
    return CrossPair(first=first, second=second, relation=relation, before=before, reason=reason)


def judge_window(project: DjangoProject, window: Window) -> JudgedWindow:
    """Return the finding about a window."""
    try:
        (evidence,) = replay_merged(project, [window.episode])
        return JudgedWindow(window=window, orders=report_orders(evidence))
    except (MalformedInputError, VerifierFailure) as error:
        where = f"{error.where}: " if error.where else ""
        return JudgedWindow(window=window, orders=None, problem=f"{where}{error.found}")
    except UncertifiedError as error:
        return JudgedWindow(window=window, orders=None, problem=str(error))
