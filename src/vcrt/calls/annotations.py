"""Derive annotations of tools and pairs of tools from replayed contexts, and compare them with declared hints.

The same evidence counts once: a call in a state (by its hash), or two calls in a state, whichever sequences, episodes
and traces led there. Episodes that certify nothing count too, unless their replays contradict each other. A call that
was refused and changed nothing is no evidence of what the tool does or of what it commutes with. A refused call that
changed the state counts as a change; where the state after a refusal is not known, no harmless hint is given. Bounds
are for sources (:func:`vcrt.calls.proportions.of_units`) and cover only what was tried; the relations of arguments that
were never tried are listed beside them. A source whose replay a limit has cut counts in bounds as one that shows the
opposite, since what was not replayed might have. Pure. Not covered: where the replays come from, and what replay cannot
see, such as whether an update destroys something or reaches out of the environment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from vcrt.calls.call_logs import unwrapped
from vcrt.calls.conditions import (
    Arguments,
    Condition,
    Sample,
    Tested,
    as_arguments,
    as_text,
    cross_test,
    learn,
)
from vcrt.calls.data_flow import DataFlow
from vcrt.calls.log_lifting import LeftOut, flows_of
from vcrt.calls.proportions import Proportion, of_units
from vcrt.calls.tried import Relation, untried
from vcrt.certificates.certificates import Verdict
from vcrt.certificates.lattice import Lattice
from vcrt.certificates.replay_tree import ReplayTree
from vcrt.environments.contract import Episode, Operation
from vcrt.environments.tool_calls import Tool
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json
from vcrt.orders import Order

#: What replay says of a declared hint; ``unsupported``: not contradicted, but what it speaks of was never seen.
Standing: TypeAlias = Literal["contradicted", "not contradicted", "unsupported", "not tested"]
HintName: TypeAlias = Literal["readOnlyHint", "idempotentHint", "sequential"]
#: What two calls show in a state; ``excludes``: each is accepted alone, and neither after the other.
PairVerdict: TypeAlias = Verdict | Literal["excludes"]
#: A tool and its arguments as canonical JSON.
_CallKey: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class AfterRefusals:
    """What refused calls left, by the state's hash before: the next state's hash and the output of each ``call``.

    ``pairs``: what two calls show that were not both accepted, where a refused one changed the state; None if that is
    not known. ``complete`` is false if a limit came first.
    """

    calls: Mapping[tuple[str, int], tuple[str, str | None]]
    pairs: Mapping[tuple[str, int, int], PairVerdict | None]
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Witness:
    """Where something was seen: an episode's ``operations`` after its ``context``."""

    episode_id: str
    context: Order
    operations: tuple[int, ...]
    calls: tuple[str, ...]

    def to_json(self) -> dict[str, Json]:
        """The JSON form."""
        return {
            "episode": self.episode_id,
            "context": list(self.context),
            "operations": list(self.operations),
            "calls": list(self.calls),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolEvidence:
    """The evidence on a tool's calls; each call in each state counts once.

    ``changed``: accepted calls that changed the state, of all accepted calls. Calls that changed the state were
    repeated at once. ``changed_again``: repeated calls that changed it once more; ``same_output``: repeated calls with
    the same output; ``refused_again``: the number of further ones that were refused. ``changed_in`` and
    ``changed_again_in`` count sources instead of calls: those that show it, and each that calls the tool and is cut.
    ``ignored`` names what the states' bytes leave out, whose changes are not seen; None if unknown. ``unknown_after``
    counts refused calls after which the state is not known, as in datasets.
    """

    name: str
    refused: Proportion
    changed: Proportion
    changed_again: Proportion
    same_output: Proportion
    refused_again: int
    num_sources: int
    changed_in: Proportion
    changed_again_in: Proportion
    change: Witness | None = None
    second_change: Witness | None = None
    ignored: tuple[str, ...] | None = ()
    unknown_after: int = 0

    def hints(self, risk: float) -> dict[str, bool]:
        """The annotations of the Model Context Protocol that the evidence supports.

        One counter-example supports a false hint. A true hint is given if the chance that the next source shows the
        opposite is at most ``risk``, if the states' bytes leave nothing out, and if the state after each refusal is
        known. Replay cannot see that an update only
        adds, but a call that changes nothing destroys nothing.
        """
        is_whole = self.ignored == () and not self.unknown_after
        if self.changed.count:
            found = {"readOnlyHint": False}
            if self.changed_again.count:
                found["idempotentHint"] = False
            elif is_whole and self.changed_again.total and self.changed_again_in.bound <= risk:
                found["idempotentHint"] = True
            return found
        if is_whole and self.changed.total and self.changed_in.bound <= risk:
            return {"readOnlyHint": True, "destructiveHint": False}
        return {}


@dataclass(frozen=True, kw_only=True, slots=True)
class PairEvidence:
    """The evidence on calls of two tools (or two calls of one) in states in which both orders were replayed.

    ``condition`` is learned from all contexts except the ``num_refused`` in which the calls commuted because one was
    refused in both orders; ``tested`` is the result of conditions that were learned in the same way from other
    sources. ``untried`` lists the relations of arguments that no context had: condition and bound say nothing about
    them. ``not_commuted_in`` counts sources: those that show it, and each that calls both and is cut. ``against`` is a
    place where the two did not commute. ``is_cut``: a source in which the two were compared is cut, or it is not known
    what a refused one of them changed.
    """

    tools: tuple[str, str]
    verdicts: Mapping[PairVerdict, int]
    num_refused: int
    num_sources: int
    not_commuted_in: Proportion
    condition: Condition | None
    untried: tuple[Relation, ...]
    tested: Tested
    against: Witness | None
    is_cut: bool = False

    @property
    def commuted(self) -> Proportion:
        """Contexts in which both were accepted and commuted, of these and those in which they did not commute."""
        compared = sum(self.verdicts.values()) - self.verdicts.get("vacuous", 0)
        return Proportion(
            self.verdicts.get("diamond", 0) - self.num_refused, compared - self.num_refused
        )

    @property
    def rule(self) -> str | None:
        """The condition in words; "always" means in everything that was tried."""
        if self.condition is None:
            return None
        is_open = (self.untried or self.is_cut) and not self.condition.terms
        return f"{self.condition.text}, as far as seen" if is_open else self.condition.text


@dataclass(frozen=True, kw_only=True, slots=True)
class DeclaredHint:
    """A declared hint and replay's verdict on it: how many of the cases seen contradict it, or would have."""

    tool: str
    hint: HintName
    declared: bool
    standing: Standing
    seen: Proportion
    witness: Witness | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Annotations:
    """The tools and pairs of tools, sorted, with their evidence, and the declared hints that replay can test.

    ``left_out`` counts the episodes whose replays say nothing, by reason. ``num_disputed`` calls gave another answer in
    the same state of another episode, so states of one hash are not equal; the first answer counts. ``undeclared`` says
    why no declared hints were compared, if none were. ``risk`` bounds the chance that a hint given as true is wrong for
    the next source. ``missing`` lists calls of logs that are in no episode. ``ignored`` names what the environment
    leaves out of its states' bytes; None if that is not known. ``uncalled`` names the tools that no episode calls.
    ``cut`` names the sources that were replayed in part, since a limit came first.
    """

    environment: str
    tools: tuple[ToolEvidence, ...]
    pairs: tuple[PairEvidence, ...]
    declared: tuple[DeclaredHint, ...]
    num_episodes: int
    num_sources: int
    left_out: Mapping[str, int]
    num_disputed: int
    risk: float
    undeclared: str | None = None
    missing: tuple[LeftOut, ...] = ()
    ignored: tuple[str, ...] | None = ()
    uncalled: tuple[str, ...] = ()
    cut: tuple[str, ...] = ()

    @property
    def tested(self) -> Tested:
        """The results of conditions on contexts that they were not learned from, over all pairs."""
        return sum((pair.tested for pair in self.pairs), Tested())


@dataclass(slots=True)
class _Answer:
    """A call's answer in a state: the next state's hash (None if unknown), its output, and the sources that saw it."""

    after: str | None
    output: str | None
    refused: bool
    witness: Witness
    sources: set[str]
    rejected: bool  # also if it changed the state, so that it is no refusal that says nothing
    turn: Json = None  # of a call that draws: each repetition draws something else


@dataclass(slots=True)
class _Met:
    """Two calls in a state: the relation that they showed, each one's answer, and the sources that saw it.

    ``refused``: the calls commute, but only because one was refused. ``flows``: one takes a value from the other's
    output, or waits for a call that does, wherever they were met, so that no message has both.
    """

    verdict: PairVerdict
    arguments: tuple[Arguments, Arguments]
    outputs: tuple[str | None, str | None]
    refused: bool
    witness: Witness
    unknown: bool = False  # what a refused one of the two changes
    flows: bool = True
    sources: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Evidence:
    """The evidence so far, collected one episode after another."""

    answers: dict[tuple[str, _CallKey], _Answer] = field(default_factory=dict)
    pairs: dict[tuple[str, str], dict[tuple[str, str, str], _Met]] = field(default_factory=dict)
    sources: dict[str, set[str]] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    disputed: set[tuple[str, _CallKey]] = field(default_factory=set)
    missing: list[LeftOut] = field(default_factory=list)
    cut: set[str] = field(default_factory=set)
    num_episodes: int = 0

    def leave_out(self, reason: str) -> None:
        """Count an episode that says nothing."""
        self.num_episodes += 1
        self.left_out[reason] += 1

    def add(
        self,
        episode: Episode,
        tree: ReplayTree,
        *,
        cut: bool = False,
        flows: Sequence[DataFlow] | None = None,
        after_refusals: AfterRefusals | None = None,
    ) -> None:
        """Take the contexts of an episode, not all that there are if a limit ``cut`` its replay.

        ``flows`` are those of its log; by default, those that its outputs show. ``after_refusals``: what refused calls
        left (:func:`vcrt.calls.retries.after_refusals`); by default, it is not known. Raises
        :class:`MalformedInputError` if its operations are no calls.
        """
        calls = [_call(episode, operation) for operation in episode.operations]
        lattice = Lattice.of(tree)
        if tree.contradiction is not None or lattice.unequal is not None:
            self.leave_out("unequal_futures" if tree.contradiction is None else "nondeterministic")
            return
        self.num_episodes += 1
        if cut:
            self.cut.add(episode.provenance.source)
        for name, _ in calls:
            self.sources.setdefault(name, set()).add(episode.provenance.source)
        if after_refusals is not None and not after_refusals.complete:
            self.cut.add(episode.provenance.source)
        self._add_answers(episode, lattice, calls, after_refusals)
        needs: dict[int, set[int]] = {}
        flows = flows_of(tree, episode) if flows is None else flows
        for flow in sorted(flows, key=lambda each: each.second):
            needs.setdefault(flow.second, set()).update({flow.first}, needs.get(flow.first, ()))
        self._add_pairs(episode, lattice, calls, needs, after_refusals)

    def _add_answers(
        self,
        episode: Episode,
        lattice: Lattice,
        calls: Sequence[tuple[str, Mapping[str, Json]]],
        after_refusals: AfterRefusals | None,
    ) -> None:
        left_by = {} if after_refusals is None else after_refusals.calls
        for (number, operation), answer in lattice.transitions.items():
            context = lattice.contexts[number]
            output = lattice.outputs.get((number, operation))
            refused = _is_refused(lattice, episode, number, operation)
            given = _Answer(
                after=None if isinstance(answer, str) else lattice.contexts[answer].state_hash,
                output=output,
                refused=refused,
                witness=_witness(episode, context.sequence, (operation,)),
                sources={episode.provenance.source},
                rejected=refused or is_error(output or ""),
                turn=_payload(episode.operations[operation]).get("turn"),
            )
            call = calls[operation][0], as_text(calls[operation][1])
            state = context.state_hash
            left = left_by.get((state, operation)) if isinstance(answer, str) else None
            if left is not None:
                given = replace(given, after=left[0], output=left[1], refused=left[0] == state)
            self._note((state, call), given)
            # A refused call that changed the state was made again at once.
            again = left_by.get((left[0], operation)) if left and not given.refused else None
            if left is not None and again is not None:
                given = replace(given, after=again[0], output=again[1], refused=again[0] == left[0])
                self._note((left[0], call), given)

    def _note(self, key: tuple[str, _CallKey], given: _Answer) -> None:
        known = self.answers.get(key)
        if known is None or (known.after is None and given.after is not None):
            self.answers[key] = given
        if known is not None and known.turn == given.turn and not _alike(known, given):
            self.disputed.add(key)
        sources = given.sources if known is None else known.sources | given.sources
        self.answers[key].sources = sources

    def _add_pairs(
        self,
        episode: Episode,
        lattice: Lattice,
        calls: Sequence[tuple[str, Mapping[str, Json]]],
        needs: Mapping[int, Collection[int]],
        after_refusals: AfterRefusals | None,
    ) -> None:
        texts = [as_text(_payload(operation)) for operation in episode.operations]
        given = [as_arguments(arguments) for _, arguments in calls]
        for pair, contexts in lattice.by_pair.items():
            # For one tool, by payload: the same two calls are one pair, whichever stood first.
            a, b = sorted(pair, key=lambda operation: (calls[operation][0], texts[operation]))
            met = self.pairs.setdefault((calls[a][0], calls[b][0]), {})
            verdict: PairVerdict
            for number, (shown, _) in contexts.items():
                context = lattice.contexts[number]
                # Of two calls that are alike, it is the same which one is refused.
                is_open = shown == "vacuous" and texts[a] != texts[b]
                verdict, unknown = shown, is_open and after_refusals is None
                if is_open:
                    alone = [lattice.transitions[number, one] for one in pair]
                    if not any(isinstance(one, str) for one in alone):
                        verdict, unknown = "excludes", False
                    elif after_refusals is not None:
                        told = after_refusals.pairs.get((context.state_hash, *pair), shown)
                        verdict, unknown = told or shown, told is None
                seen = met.setdefault(
                    (context.state_hash, texts[a], texts[b]),
                    _Met(
                        verdict=verdict,
                        arguments=(given[a], given[b]),
                        outputs=(
                            lattice.outputs.get((number, a)),
                            lattice.outputs.get((number, b)),
                        ),
                        refused=verdict == "diamond"
                        and any(_is_refused(lattice, episode, number, one) for one in (a, b)),
                        witness=_witness(episode, context.sequence, (a, b)),
                        unknown=unknown,
                    ),
                )
                seen.flows &= pair[0] in needs.get(pair[1], ())
                seen.sources.add(episode.provenance.source)

    def annotations(
        self,
        environment: str,
        declared: Sequence[Tool],
        *,
        risk: float,
        undeclared: str | None = None,
        ignored: Collection[str] | None = (),
    ) -> Annotations:
        """Return the annotations that all evidence supports; ``declared`` are the tools with their maker's hints.

        ``ignored`` names what the environment leaves out of its states' bytes; None if that is not known.
        """
        unseen = None if ignored is None else tuple(sorted(ignored))
        names = sorted({name for _, (name, _) in self.answers})
        tools = tuple(self._tool(name, unseen) for name in names)
        pairs = tuple(self._pair(*item) for item in sorted(self.pairs.items()))
        return Annotations(
            environment=environment,
            tools=tools,
            pairs=pairs,
            declared=_compared(tools, self.pairs, declared),
            num_episodes=self.num_episodes,
            num_sources=len(set().union(*self.sources.values())),
            left_out=dict(sorted(self.left_out.items())),
            num_disputed=len(self.disputed),
            risk=risk,
            undeclared=undeclared,
            missing=tuple(self.missing),
            ignored=unseen,
            uncalled=tuple(sorted({tool.name for tool in declared} - {*names})),
            cut=tuple(sorted(self.cut)),
        )

    def _units(
        self, tools: Collection[str], cases: Sequence[tuple[Hashable, set[str], bool]]
    ) -> Proportion:
        """Count the sources that have a case; of those that a limit has cut, each that calls the tools counts."""
        cut = self.cut.intersection(*(self.sources[name] for name in tools)) if cases else ()
        whole = ((case, sources - self.cut, counts) for case, sources, counts in cases)
        return of_units(one for one in whole if one[1]) + Proportion(len(cut), len(cut))

    def _tool(self, name: str, ignored: tuple[str, ...] | None) -> ToolEvidence:
        answers = [
            (state, call, answer)
            for (state, call), answer in self.answers.items()
            if call[0] == name
        ]
        accepted = [item for item in answers if not item[2].refused]
        changes = [item for item in accepted if item[2].after != item[0]]
        both = [
            (answer, self.answers.get((str(answer.after), call))) for _, call, answer in changes
        ]
        repeated = [(answer, again) for answer, again in both if again and not again.refused]
        changed_again = [again for answer, again in repeated if again.after != answer.after]
        same = sum(answer.output == again.output for answer, again in repeated)
        return ToolEvidence(
            name=name,
            refused=Proportion(sum(answer.rejected for _, _, answer in answers), len(answers)),
            changed=Proportion(len(changes), len(accepted)),
            changed_again=Proportion(len(changed_again), len(repeated)),
            same_output=Proportion(same, len(repeated)),
            refused_again=sum(again is not None and again.refused for _, again in both),
            num_sources=len(self.sources[name]),
            changed_in=self._units(
                [name],
                [
                    ((state, call), answer.sources, answer.after != state)
                    for state, call, answer in accepted
                ],
            ),
            changed_again_in=self._units(
                [name],
                [
                    (again.witness, again.sources, again.after != answer.after)
                    for answer, again in repeated
                ],
            ),
            ignored=ignored,
            unknown_after=sum(answer.after is None for _, _, answer in answers),
            change=changes[0][2].witness if changes else None,
            second_change=changed_again[0].witness if changed_again else None,
        )

    def _pair(
        self, tools: tuple[str, str], met: Mapping[tuple[str, str, str], _Met]
    ) -> PairEvidence:
        refused = sum(seen.refused for seen in met.values())
        kept = [
            (key, seen)
            for key, seen in sorted(met.items())
            if seen.verdict != "vacuous" and not seen.refused
        ]
        compared = [seen for _, seen in kept]
        samples = [
            Sample(*seen.arguments, seen.verdict == "diamond", frozenset(seen.sources))
            for seen in compared
        ]
        one_tool = tools[0] == tools[1]
        return PairEvidence(
            tools=tools,
            verdicts=dict(sorted(Counter(seen.verdict for seen in met.values()).items())),
            num_refused=refused,
            num_sources=len({source for seen in met.values() for source in seen.sources}),
            not_commuted_in=self._units(
                tools, [(key, seen.sources, seen.verdict != "diamond") for key, seen in kept]
            ),
            condition=learn(samples, one_tool=one_tool),
            untried=untried(
                ((*seen.arguments, *seen.outputs) for seen in compared), one_tool=one_tool
            ),
            tested=cross_test(samples, one_tool=one_tool),
            against=next((seen.witness for seen in compared if seen.verdict != "diamond"), None),
            is_cut=any(not self.cut.isdisjoint(seen.sources) for seen in compared)
            or any(seen.unknown for seen in met.values()),
        )


def _compared(
    tools: Sequence[ToolEvidence],
    pairs: Mapping[tuple[str, str], Mapping[tuple[str, str, str], _Met]],
    declared: Sequence[Tool],
) -> tuple[DeclaredHint, ...]:
    """Compare the declared hints of the tools that were seen with replay."""
    said = {tool.name: tool for tool in declared}
    beside = {tool.name for tool in declared if tool.sequential is False}
    found = []
    for tool in tools:
        if tool.name not in said:
            continue
        own = said[tool.name].sequential
        met = [
            each
            for both, known in sorted(pairs.items())
            if tool.name in both and (own or beside.issuperset(both))
            for each in known.values()
            if each.verdict != "vacuous" and not each.refused and not each.flows
        ]
        apart = [each.witness for each in met if each.verdict != "diamond"]
        against = min(apart, key=lambda witness: len(witness.context), default=None)
        cases: tuple[tuple[HintName, bool | None, Proportion, Witness | None], ...] = (
            ("readOnlyHint", said[tool.name].read_only, tool.changed, tool.change),
            ("idempotentHint", said[tool.name].idempotent, tool.changed_again, tool.second_change),
            ("sequential", own, Proportion(len(apart), len(met)), against),
        )
        for hint, value, seen, witness in cases:
            if value is not None:
                standing = _standing(value is (hint != "sequential"), seen)
                found.append(
                    DeclaredHint(
                        tool=tool.name,
                        hint=hint,
                        declared=value,
                        standing=standing,
                        seen=seen,
                        witness=witness if standing == "contradicted" else None,
                    )
                )
    return tuple(found)


def _standing(harmless: bool, seen: Proportion) -> Standing:
    """Judge a hint, which promises that something is never seen or warns of it, by how often it was seen."""
    if not seen.total:
        return "not tested"
    if harmless:
        return "contradicted" if seen.count else "not contradicted"
    return "not contradicted" if seen.count else "unsupported"


def _call(episode: Episode, operation: Operation) -> tuple[str, Mapping[str, Json]]:
    """The tool and the arguments of an operation."""
    match operation.payload:
        case {"name": str(name), "arguments": dict(arguments)}:
            return name, arguments
    raise MalformedInputError(
        "the environment's steps are no calls",
        where=f"{episode.episode_id}, {operation.signature[:120]}",
        found=repr(operation.payload)[:120],
        expected="operations of a vcrt.CallEnvironment: a tool's name and its arguments",
    )


def _payload(operation: Operation) -> dict[str, Json]:
    """Return the payload fields that say how a call runs, without ``redact``, which says how its output is kept."""
    payload: Any = operation.payload
    return {name: value for name, value in payload.items() if name != "redact"}


def _is_refused(lattice: Lattice, episode: Episode, context: int, operation: int) -> bool:
    """Tell whether a call changed nothing and was refused, or gave an output that has the form of a refusal.

    If the trace itself contains the refused call, its refusal is an output. If only the output's hash is kept, its
    form cannot be read: each such call that changed nothing then counts as refused.
    """
    answer = lattice.transitions[context, operation]
    if isinstance(answer, str):
        return True
    if lattice.contexts[answer].state_hash != lattice.contexts[context].state_hash:
        return False
    payload: Any = episode.operations[operation].payload
    output = lattice.outputs.get((context, operation)) or ""
    if is_error(output):
        return True
    is_hidden = payload.get("redact") or lattice.as_in_reference(context, operation)
    return bool(payload.get("fails") and is_hidden)


def is_error(output: str) -> bool:
    """Tell whether an output, in MCP's content too, has an ``error``, or a ``success`` or ``ok`` that is false."""
    if not any(word in output for word in ("error", "success", "ok")):
        return False
    try:
        found = [each for each in unwrapped(output) if isinstance(each, dict)]
    except ValueError:  # an output that is kept in part
        return output.startswith('{"error":')
    return any(
        each.get("error") or False in (each.get("success"), each.get("ok")) for each in found
    )


def _alike(one: _Answer, other: _Answer) -> bool:
    """Tell whether two answers are equal; if one of them gives no state, both must be refusals."""
    if one.after is None or other.after is None:
        return one.rejected and other.rejected
    return (one.after, one.output) == (other.after, other.output)


def _witness(episode: Episode, context: Order, operations: tuple[int, ...]) -> Witness:
    names = tuple(episode.operations[operation].signature for operation in operations)
    return Witness(episode.episode_id, context, operations, names)
