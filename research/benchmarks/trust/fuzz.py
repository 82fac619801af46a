"""Hostile files: mutations of valid inputs to every reader of outside bytes.

    python research/benchmarks/trust/fuzz.py --short --output fuzz.json
    python research/benchmarks/trust/fuzz.py --long  --output fuzz.json

Each input must end in a value or in a named error, within one second of the processor and 500 MB. The exit code is 1
if one did not; with --failures FOLDER such inputs are kept. Equal seeds give equal inputs.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from fuzz_watch import run_target, to_json
from parts import part_parser, write_figures
from readers import make_targets

SHORT, LONG = 60_000, 1_100_000
NOT_COVERED = [
    "A hostile chat template can loop for long within its sandbox where the user chose --prompt-style chat.",
    "Seconds are those of the processor, not of the wall clock, because the machine is shared; a reader that stays "
    "outside Python for 60 seconds ends the process and counts as a failure.",
    "Memory is the growth of one process over all inputs of a reader; it can have 500 MB more than at its start.",
    "Tokenizers and weights are parsed by the tokenizers and safetensors libraries; here only the lock, the index, "
    "the configuration and checkpoints are given hostile bytes, and loading a whole model is tested on few.",
    "What a verifier does with a well-formed but large theory or algorithm input takes the time that it takes.",
    "Of a file of lines the first 2,000 are read: each line is read by itself, so that a file takes time with its size "
    "(25 microseconds for an empty line).",
    "Coverage-guided fuzzing (guided.py) is not part of this count.",
]


def main(arguments: list[str] | None = None) -> int:
    """Run all readers; 0 if nothing failed."""
    parser = part_parser(__doc__)
    parser.add_argument("--count", type=int, help="inputs in all")
    parser.add_argument("--seconds", type=float, help="no more seconds than this, in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="readers whose name holds this")
    parser.add_argument("--failures", type=Path, help="a folder for inputs that fail")
    options = parser.parse_args(arguments)
    count = options.count or (LONG if options.long else SHORT)
    budget = options.seconds or (1800.0 if options.long else 90.0)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="vcrt-fuzz-", dir=_memory()) as folder:
        targets = [t for t in make_targets(Path(folder)) if options.only in t.name]
        set_up = time.monotonic() - began
        whole = sum(target.weight for target in targets)
        outcomes = []
        for target in targets:
            share = target.weight / whole
            # What a fast reader leaves over, a slow one may use.
            outcome = run_target(
                target,
                count=max(1, round(count * share)),
                seed=options.seed,
                budget=max(1.0, 4 * budget * share),
                failures=options.failures,
            )
            outcomes.append(outcome)
            print(
                f"{outcome.reader:28} {outcome.inputs:>8} inputs {outcome.values:>8} values "
                f"{sum(outcome.errors.values()):>8} errors {sum(outcome.failures.values()):>5} failures "
                f"{outcome.seconds:>6} s, slowest {outcome.slowest_seconds:.3f} s, +{outcome.grown_megabytes} MB",
                flush=True,
            )
    errors: Counter[str] = sum((o.errors for o in outcomes), Counter())
    failures: Counter[str] = sum((o.failures for o in outcomes), Counter())
    result = {
        "inputs": sum(o.inputs for o in outcomes),
        "asked_for": count,
        "values": sum(o.values for o in outcomes),
        "named_errors": dict(sorted(errors.items())),
        "failures": dict(sorted(failures.items())),
        "slowest_seconds": max((o.slowest_seconds for o in outcomes), default=0.0),
        "most_grown_megabytes": max((o.grown_megabytes for o in outcomes), default=0.0),
        "set_up_seconds": round(set_up, 1),
        "seconds": round(time.monotonic() - began, 1),
        "seed": options.seed,
        "readers": [to_json(outcome) for outcome in outcomes],
        "not_covered": NOT_COVERED,
    }
    write_figures(result, options.output)
    return 1 if failures else 0


def _memory() -> str | None:
    """Where files are kept in memory, so that readers are measured and not the disk."""
    place = Path("/dev/shm")
    return str(place) if place.is_dir() and os.access(place, os.W_OK) else None


if __name__ == "__main__":
    sys.exit(main())
