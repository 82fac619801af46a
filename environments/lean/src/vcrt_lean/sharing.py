"""Judge replays by a worker: the sequences of an episode are a tree, so that a prefix that they share is judged once.

Reads Lean's answers in the same way as the command-line route. Every prefix is a state of Lean's own, from which all
that begins with it goes on. Only where Lean's parser does not take the steps of a proof one by one is the whole proof
of each sequence run by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import chain
from typing import Any, TypeAlias

from vcrt.environments.contract import Replay
from vcrt_lean.inprocess import Elaborators, WorkerBroken
from vcrt_lean.judging import Job, Limits, no_verdict
from vcrt_lean.messages import Message, Unreadable, by_part
from vcrt_lean.program import Declarations
from vcrt_lean.reading import Transcript, read_alone
from vcrt_lean.rendering import Part, Rendered, part_text
from vcrt_lean.toolchain import Toolchain

_Sequence = tuple[int, ...]
_Verdicts: TypeAlias = dict[_Sequence, Replay | Unreadable]
#: A request to the worker, and how its answer is read.
_Question: TypeAlias = tuple[dict[str, Any], Callable[[Any], _Verdicts]]


def judge_shared(
    toolchain: Toolchain,
    elaborators: Elaborators,
    jobs: Sequence[Job],
    limits: Limits,
    *,
    recheck: bool = False,
) -> list[Replay]:
    """The verdicts on ``jobs``, in order; one request to the worker for all jobs of a program.

    With ``recheck``, the kernel alone must accept again what Lean accepts (see
    :mod:`vcrt_lean.recheck`).
    Raises :class:`vcrt.errors.VerifierFailure` if a job has no verdict, and
    :class:`vcrt.errors.MalformedInputError` if Lean refuses what stands before the steps.
    """
    groups: dict[int, list[int]] = {}
    for index, job in enumerate(jobs):
        groups.setdefault(id(job.program), []).append(index)
    replays: dict[int, Replay] = {}
    for indices in groups.values():
        first = jobs[indices[0]]
        rendered = Rendered(first.program)
        sequences = dict.fromkeys(jobs[index].sequence for index in indices)
        # About how many states that takes.
        cost = len({s[:count] for s in sequences for count in range(len(s) + 1)})

        def ask(question: _Question, cost: int = cost) -> _Verdicts:
            request, read = {**question[0], "recheck": recheck}, question[1]
            return elaborators.run(request, read, cost=cost, seconds=limits.lone_seconds)

        try:
            verdicts = ask(_by_prefix(rendered, sequences)) or ask(_apart(rendered, sequences))
        except WorkerBroken as broken:
            problem = Unreadable(f"the worker broke: {broken}")
            raise no_verdict(first, problem, toolchain) from None
        for index in indices:
            verdict = verdicts[jobs[index].sequence]
            if isinstance(verdict, Unreadable):
                raise no_verdict(jobs[index], verdict, toolchain)
            replays[index] = verdict
    return [replays[index] for index in range(len(jobs))]


def _by_prefix(rendered: Rendered, sequences: Collection[_Sequence]) -> _Question:
    """Asks for each prefix of the sequences once; there are no verdicts if Lean does not read a proof line by line."""

    def read(answer: Any) -> _Verdicts:
        if answer is None:
            return {}
        transcript = Transcript(rendered=rendered, steps={(): _messages(answer["said"])})
        for prefix, said in answer["steps"]:
            transcript.steps[tuple(prefix)] = _messages(said)
        for sequence, start, end in answer["ends"]:
            transcript.ends[tuple(sequence)] = _messages(start), _messages(end)
        return {sequence: transcript.verdict(sequence) for sequence in sequences}

    return {**_texts(rendered), "sequences": list(sequences)}, read


def _apart(rendered: Rendered, sequences: Collection[_Sequence]) -> _Question:
    """Asks for each of the sequences by itself, as a text that is run after the prelude."""
    parts = {sequence: rendered.parts(sequence) for sequence in sequences}

    def read(answer: Any) -> _Verdicts:
        verdicts: _Verdicts = {}
        for sequence, (_, said) in zip(sequences, answer["steps"], strict=True):
            try:
                of_parts = by_part(_messages(said), parts[sequence])
                verdicts[sequence] = read_alone(rendered, sequence, of_parts)
            except Unreadable as problem:
                verdicts[sequence] = problem
        return verdicts

    texts = [_declaration(tuple(chain(*each))) for each in parts.values()]
    declarations = {"start": _declaration(()), "steps": texts}
    each = [[place] for place in range(len(texts))]
    return {"declarations": declarations, "sequences": each}, read


def _texts(rendered: Rendered) -> dict[str, Any]:
    """What a request says of the program."""
    if isinstance(rendered.program, Declarations):
        steps = list(map(_declaration, rendered.steps))
        return {"declarations": {"start": _declaration(rendered.start), "steps": steps}}
    proof = {
        "name": rendered.names[rendered.program.statement.name],
        "start": part_text(rendered.start),
        "steps": list(map(part_text, rendered.steps)),
        "closing": part_text([line for line in rendered.end if line.role == "closing"]),
        "questions": part_text([line for line in rendered.end if line.role != "closing"]),
    }
    return {"proof": proof}


def _messages(said: Any) -> list[Message]:
    """Messages of the worker; raises ``TypeError`` or ``ValueError`` for what is none."""
    messages = []
    for line, severity, text in said:
        if not (isinstance(line, int) and isinstance(severity, str) and isinstance(text, str)):
            raise TypeError(f"not a message: {line}, {severity}, {text}")
        messages.append(Message(line=line, severity=severity, text=text))
    return messages


def _declaration(part: Part) -> dict[str, Any]:
    """A declaration as a request has it; where there is no instance, Lean says so by an error that refuses nothing."""
    first = part[0] if part else None
    known = first is not None and first.role == "step" and not first.text.startswith("inductive")
    return {
        "text": part_text(part),
        "guarded": sum(line.role != "synth" for line in part),
        "name": part[1].text.split()[-1] if known else "",
        "declared": [line.text.split()[-1] for line in part if line.role == "axioms"],
    }
