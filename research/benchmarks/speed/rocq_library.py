"""List the proofs of Rocq's standard library whose steps were judged, each window with what its certificates say.

    python research/benchmarks/speed/rocq_library.py

Windows of four consecutive steps in the files of some folders, as `vcrt lift rocq` judges them. Writes
results/rocq_library.json: by file and line the theorem, its steps, how many of their orders are legal, the relation of
each pair, and the SHA-256 of the window's certificates, by which the same evidence is known again; and what was
refused, by cause. Prints the table of research/verifiers.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

import vcrt_rocq
from vcrt.errors import MalformedInputError
from vcrt.replay.lifted_files import FileLift
from vcrt_rocq.toolchain import find_toolchain

RESULTS = Path(__file__).parents[1] / "results" / "rocq_library.json"
FOLDERS = ("Arith", "Bool", "Lists", "Relations", "Sorting", "Wellfounded")
#: By column of the table, the cause of a refusal.
CAUSES = {
    "proofs of fewer steps": "short",
    "behind what is not let through": "before",
    "rest on a module's parameters": "assumptions",
    "not let through": "grammar",
    "refused by Rocq": "rocq",
    "no verdict": "no verdict",
}


def listed(file: str, lift: FileLift) -> list[dict[str, object]]:
    """The windows of one file."""
    return [
        {
            "theorem": f"{file}:{one.lifted.line} {one.lifted.theorem}",
            "steps": [step.text for step in one.lifted.steps],
            "legal_orders": one.orders.num_legal,
            "pairs": [
                f"{pair.first + 1} {pair.relation} {pair.second + 1}" for pair in one.orders.pairs
            ],
            "certificates_sha256": one.orders.digest,
        }
        for one in lift.theorems
    ]


def main() -> None:
    """Judge the files, folder by folder."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folders", nargs="*", default=FOLDERS)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    toolchain = find_toolchain()
    theories = toolchain.library / "theories"
    windows, refused, pairs = list[dict[str, object]](), dict[str, Counter[str]](), Counter[str]()
    proofs = set[tuple[str, str]]()
    columns = ("files", "windows", "with several legal orders", *CAUSES)
    print(f"| folder | {' | '.join(columns)} |\n| --- |{' ---: |' * len(columns)}")
    for folder in options.folders:
        files = sorted((theories / folder).glob("*.v"))
        found, causes, several = list[dict[str, object]](), Counter[str](), 0
        for file, lift in zip(files, vcrt_rocq.lift_rocq(files), strict=True):
            if isinstance(lift, MalformedInputError):
                sys.exit(str(lift))
            print(f"{file.name}: {len(lift.theorems)}", file=sys.stderr, flush=True)
            found += listed(f"{folder}/{file.name}", lift)
            several += sum(one.orders.num_legal > 1 for one in lift.theorems)
            causes.update(one.cause for one in lift.refused)
            proofs.update((str(file), one.lifted.theorem) for one in lift.theorems)
            pairs.update(pair.relation for one in lift.theorems for pair in one.orders.pairs)
        row = (len(files), len(found), several, *(causes[cause] for cause in CAUSES.values()))
        print(f"| `{folder}` | {' | '.join(map(str, row))} |", flush=True)
        windows += found
        refused[folder] = causes
    print(f"{len(windows)} windows of {len(proofs)} proofs; pairs: {dict(pairs)}")
    value = {
        "rocq": toolchain.label,
        "proofs": len(proofs),
        "pairs": pairs,
        "refused": refused,
        "windows": windows,
    }
    options.output.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
