"""Commands killed and refused at every write, flush and rename, and killed at random: what the next run makes of it.

    python research/benchmarks/trust/crash.py --short --output crash.json    # a sample, about two minutes
    python research/benchmarks/trust/crash.py --long --output crash.json     # every call, and 200 random kills

Exits with 1 if anything half-written was visible, left over, or did not come to the same bytes.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from crash_trials import (
    Outcome,
    Undisturbed,
    attempt,
    differences,
    faults_of,
    half_written,
    how_it_ended,
    restore,
    stages,
    tree_of,
    undisturbed,
    unflushed,
)
from fault_injection import Fault, Server, serving, why_not
from parts import part_parser, write_figures

NOT_COVERED = [
    "Power is not cut: that data is flushed before it is published is read off the order of the calls, and a disk that "
    "lies about its flushes is not found. SQLite's own order of flushes is SQLite's.",
    "Files outside of a command's output: temporary folders of the system, trackers' logs, model caches.",
    "The order of calls of worker processes, of Ray and of Dask: here workers are forks of a warm process, but for a "
    "few trials with new ones. The report's page is drawn once for all trials, and written in each.",
    "Lean's worker processes (they write no file of the output), several machines, and network file systems.",
]
#: The larger run, in which commands are killed at random moments.
LARGER = (
    *("--schemas", "clrs/bubble_sort", "proofwriter/attribute_chain", "--episodes", "24"),
    *("--methods", "canonical-grpo", "vcrt", "--runs", "1", "--updates", "20"),
    *("--trials", "2", "--jobs", "1"),
)
#: The same, for a short look.
SMALLER = (
    *("--schemas", "clrs/bubble_sort", "proofwriter/attribute_chain", "--episodes", "4"),
    *("--methods", "vcrt", "--runs", "1", "--updates", "2", "--trials", "0", "--jobs", "1"),
)
#: Longest time that a larger run is left alone, in parts of what it takes undisturbed.
_LONGEST = 0.2


def all_faults(known: Sequence[Undisturbed]) -> list[tuple[Undisturbed, Fault, str]]:
    """Every fault of every stage, kills first; and a few with workers that are not forks."""
    found = [
        (one, fault, "forked")
        for one in known
        for fault in faults_of(one.trial, lambda kind, at: True)
    ]
    train = next(one for one in known if one.stage.name == "train")
    for kind, count in train.trial.counts.items():
        callers = [Fault(kind=kind, at=at, action="kill caller") for at in range(1, count + 1)]
        found += [(train, fault, "forked") for fault in callers]
        if kind == "rename":
            found += [(train, fault, "new") for fault in callers]
    actions = ("kill", "tear", "fail once", "fail from then on", "kill caller")
    return sorted(found, key=lambda some: (actions.index(some[1].action), len(some[0].trial.calls)))


def strike(
    server: Server,
    root: Path,
    work: Sequence[tuple[Undisturbed, Fault, str]],
    until: float,
) -> Iterator[Outcome]:
    """The outcomes of as many faults as there is time for."""
    for known, fault, workers in work:
        if time.monotonic() > until:
            return
        yield attempt(server, root, known, fault, workers=workers)


def random_kills(
    server: Server, root: Path, wanted: int, seed: int, options: Sequence[str]
) -> dict[str, Any]:
    """Kill ``vcrt reproduce`` at random moments, over and over, and compare whenever it comes to its end."""
    command = ["reproduce", "--output", str(root / "paper"), *options]
    restore(root)
    began = time.monotonic()
    whole = server.trial(command, root, timeout=600)
    if whole.code != 0:
        raise RuntimeError(f"the larger run does not run: {whole.said[-2000:]}")
    longest = _LONGEST * (time.monotonic() - began)
    expected = comparable(tree_of(root))
    draw = random.Random(seed)
    kills = finished = 0
    defects: list[str] = []
    restore(root)
    while kills < wanted or not finished:
        seconds = draw.uniform(0.0, longest) if kills < wanted else 600.0
        trial = server.trial(command, root, timeout=seconds)
        if how_it_ended(trial) == "killed":
            kills += 1
            if kills % 20 == 0:
                print(f"{kills} of {wanted} kills", file=sys.stderr, flush=True)
            defects += [
                f"after kill {kills}: {line}"
                for line in half_written(root, {}, tree_of(root))
                if "cut short" in line
            ]
            defects += visible_and_other(comparable(tree_of(root)), expected)
            continue
        if trial.code != 0:
            defects.append(f"after kill {kills}: {trial.said[-1500:]}")
        defects += differences(expected, comparable(tree_of(root)))
        finished += 1
        if kills < wanted:
            restore(root)
    return {"kills": kills, "came_to_the_end": finished, "defects": defects}


def comparable(tree: dict[str, str]) -> dict[str, str]:
    """What every run of one plan has in common: all but clocks (in the page and a table) and work in progress."""
    clocks = ("report.html", "clocks.csv", "clocks.tex")
    return {name: content for name, content in tree.items() if not name.endswith(clocks)}


def visible_and_other(found: dict[str, str], expected: dict[str, str]) -> list[str]:
    """Published files that are not what they are in the undisturbed run; ledgers and logs are still growing."""
    return [
        f"{name} is visible and not whole"
        for name, content in found.items()
        if name in expected
        and content != expected[name]
        and not name.endswith((".sqlite", "progress.jsonl"))
    ]


def measure(*, seconds: float, kills: int, seed: int, sample: bool) -> dict[str, Any]:
    """All figures: as many faults as there is time for in ``seconds``, and so many kills at random moments."""
    began = time.monotonic()
    shared = Path("/dev/shm")
    place = str(shared) if shared.is_dir() else None
    with (
        tempfile.TemporaryDirectory() as own,
        tempfile.TemporaryDirectory(dir=place) as folder,
        serving(Path(own)) as server,
    ):
        root = Path(folder) / "work"
        known = undisturbed(server, root, Path(folder) / "kept", stages(root))
        work = all_faults(known)
        if sample:
            random.Random(seed).shuffle(work)
        outcomes = []
        for outcome in strike(server, root, work, time.monotonic() + seconds):
            outcomes.append(outcome)
            if len(outcomes) % 100 == 0:
                print(f"{len(outcomes)} of {len(work)} faults", file=sys.stderr, flush=True)
            for defect in outcome.defects:
                print(f"{outcome.stage}, {outcome.fault}: {defect}", file=sys.stderr, flush=True)
        print(f"{len(outcomes)} of {len(work)} faults", file=sys.stderr, flush=True)
        lasting = {
            one.stage.name: unflushed(one.trial.calls, root, before=one.tree_before, tree=one.tree)
            for one in known
        }
        options = SMALLER if sample else LARGER
        at_random = random_kills(server, root, kills, seed, options)
        shutil.rmtree(root, ignore_errors=True)
    return {
        "what": "commands killed or refused at each call that changes their output, and what the next run makes of it",
        "calls": {one.stage.name: one.trial.counts for one in known},
        "possible_faults": len(work),
        "faults": len(outcomes),
        "by_fault": table(
            outcomes, lambda o: f"{o.fault.kind}: {o.fault.action}" if o.fault else ""
        ),
        "by_command": table(outcomes, lambda o: o.stage),
        "then": dict(Counter(outcome.then.split(":")[0] for outcome in outcomes)),
        "says_what_is_broken": sorted({o.then for o in outcomes if o.then.startswith("says")}),
        "defects": [
            f"{o.stage}, {o.fault.name if o.fault else ''}: {line}"
            for o in outcomes
            for line in o.defects
        ],
        "not_lasting": lasting,
        "larger_run": " ".join(options),
        "kills_at_random": at_random,
        "seconds": round(time.monotonic() - began, 1),
        "not_covered": NOT_COVERED,
    }


def table(outcomes: Sequence[Outcome], key: Any) -> dict[str, dict[str, int]]:
    """How commands ended, counted by something."""
    found: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        found.setdefault(key(outcome), Counter())[outcome.ended] += 1
    return {name: dict(counts) for name, counts in sorted(found.items())}


def main() -> None:
    parser = part_parser(__doc__)
    parser.add_argument("--seconds", type=float, help="most time for the faults at chosen calls")
    parser.add_argument("--kills", type=int, help="how many at random moments")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    reason = why_not()
    if reason is not None:
        result: dict[str, Any] = {"skipped": reason, "not_covered": [f"all of it: {reason}"]}
    else:
        result = measure(
            seconds=options.seconds or (float("inf") if options.long else 55.0),
            kills=options.kills or (200 if options.long else 10),
            seed=options.seed,
            sample=not options.long,
        )
    write_figures(result, options.output)
    broken = result.get("defects") or any(result.get("not_lasting", {}).values())
    sys.exit(1 if broken or result.get("kills_at_random", {}).get("defects") else 0)


if __name__ == "__main__":
    main()
