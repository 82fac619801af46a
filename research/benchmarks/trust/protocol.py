"""Attack what a plan promises, on real environments: each attack must be refused by name, or stand in plan or report.

    python research/benchmarks/trust/protocol.py --short --output protocol.json

Short: training and scoring in one process. Long: in worker processes, as a user runs them.
"""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "src")]

from parts import part_parser, write_figures  # noqa: E402

import protocol_attacks  # noqa: E402

NOT_COVERED = [
    "Provenance that is rewritten together with its digest in config.json before the lock: nobody signs it. Taken away "
    "with that digest, the backbone counts as of unknown training.",
    "A model that was trained outside vcrt, or an adapter that was merged into its backbone elsewhere: of unknown "
    "training.",
    "A plan, its ledger and its checkpoints that are all made anew; the hash of the source that a forger writes down.",
    "Source that is changed in memory, environments of other packages, and libraries beyond their versions.",
    "Forged trials that the sample of --check-search does not hold; all are run again where it asks for as many.",
    "Another environment with other versions and other episodes that teaches the same.",
]


def measure(*, long: bool) -> dict[str, Any]:
    """Every attack, what it must end in, and what came."""
    began = time.perf_counter()
    results = {}
    if long:
        protocol_attacks.in_this_process = nullcontext
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "made").mkdir()
        place = protocol_attacks.make_place(Path(folder) / "made")
        for number, attack in enumerate(protocol_attacks.ATTACKS):
            own = Path(folder) / str(number)
            own.mkdir()
            found = protocol_attacks.outcome(attack, place, own)
            results[attack.name] = {"must_be": attack.ends, "found": found}
    held = [one["found"] == one["must_be"] for one in results.values()]
    return {
        "attacks": len(results),
        "refused": sum(one["found"] == "refused" for one in results.values()),
        "said": sum(one["found"] == "said" for one in results.values()),
        "missed": held.count(False),
        "by_attack": results,
        "seconds_inside": round(time.perf_counter() - began, 1),
        "not_covered": NOT_COVERED,
    }


def main() -> None:
    options = part_parser(__doc__).parse_args()
    result = measure(long=options.long)
    write_figures(result, options.output)
    sys.exit(1 if result["missed"] else 0)


if __name__ == "__main__":
    main()
