"""Attacks on Lean through every door: what becomes of each, and whether one moves the verdict on another episode.

    python research/benchmarks/trust/lean.py --short --output lean.json
    python research/benchmarks/trust/lean.py --long --output lean.json

The attacks and the doors are those of the tests (`lean_attacks.py`, `lean_doors.py` in `tests/support`). ``raw`` gives
texts to the worker past the grammar: there the short form takes every third attack, and the long one all, as
declarations and as tactics. Good episodes are replayed before the first attack and after each that came to Lean, by the
same worker. The command fails if an attack is accepted or a good episode is answered otherwise.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3] / "tests" / "support"))
from parts import part_parser, write_figures

from lean_attacks import ATTACKS, Attack
from lean_doors import (
    LIMITS,
    OUTCOMES,
    Raw,
    by_certificate,
    by_deciding,
    by_step,
    good_certificate,
    good_digest,
    in_this_process,
    outcome,
    verified_apart,
)
from vcrt_lean.environment import LeanEnvironment

#: Texts longer than this, and attacks that run into the wall clock, are left to the long form.
SHORT_CHARS = 10_000
SLOW = ("a name of 500 parts", "100 holes")
CERTIFICATES_APART = 12

Found = Iterator[tuple[str, str]]


def through(
    attacks: Sequence[Attack], door: Callable[[Attack], Found], state: Callable[[], object]
) -> dict[str, Any]:
    """Outcomes by place, and how often ``state`` was another one after an attack that came to Lean."""
    began = time.perf_counter()
    before = state()
    places: dict[str, Counter[str]] = {}
    accepted, moved, compared = [], [], 0
    for attack in attacks:
        came_to_lean = False
        for place, found in door(attack):
            places.setdefault(place, Counter())[found] += 1
            came_to_lean |= found not in ("grammar", "not run")
            if found == "accepted":
                accepted.append(f"{place}: {attack.family}, {attack.name}")
        if came_to_lean:
            compared += 1
            if state() != before:
                moved.append(f"{attack.family}, {attack.name}")
    return {
        "attacks": len(attacks),
        "tries": sum(counts.total() for counts in places.values()),
        "outcomes": {
            place: {name: counts[name] for name in OUTCOMES if counts[name]}
            for place, counts in places.items()
        },
        "accepted": accepted,
        "compared_with_good_episodes": compared,
        "moved_another_verdict": moved,
        "seconds": round(time.perf_counter() - began, 1),
    }


def doors(form: str, folder: Path) -> dict[str, Any]:
    """The figures of every door."""
    environment = LeanEnvironment(limits=LIMITS, recheck=True)
    in_this_process(SimpleNamespace(setattr=setattr))
    document = good_certificate()
    long = form == "long"
    attacks = [a for a in ATTACKS if long or (len(a.text) < SHORT_CHARS and a.name not in SLOW)]
    raw = Raw()

    def good() -> object:
        return good_digest(environment.replay)

    def raw_state() -> object:
        return raw.environment(), good_digest(raw.replay)

    found = {
        "step": through(attacks, lambda a: by_step(environment, a), good),
        "certificate": through(
            attacks,
            lambda a: by_certificate(document, a, folder, (0, 3) if long else (0,)),
            good,
        ),
        "decide": through(attacks, by_deciding, lambda: None),
        "raw": through(
            attacks if long else attacks[::3], lambda a: raw.outcomes(a, everywhere=long), raw_state
        ),
    }
    raw.elaborators.close()
    if long:

        def apart(attack: Attack) -> Found:
            yield (
                "certificate/fresh process",
                outcome(lambda: verified_apart(document, attack, folder)),
            )

        chosen = attacks[:: len(attacks) // CERTIFICATES_APART]
        found["certificate, each in a fresh process"] = through(chosen, apart, good)
    found["checked_again"] = dict(environment.guards().checked_again)
    return found


def main() -> None:
    """Try everything, print and write the figures."""
    options = part_parser(__doc__).parse_args()
    form = "long" if options.long else "short"
    environment = LeanEnvironment()
    with TemporaryDirectory(prefix="vcrt-trust-lean-") as folder:
        found = doors(form, Path(folder))
    checked_again = found.pop("checked_again")
    accepted = sum(len(door["accepted"]) for door in found.values())
    moved = sum(len(door["moved_another_verdict"]) for door in found.values())
    guards = environment.guards()
    result = {
        "form": form,
        "verifier": environment.versions().verifier,
        "attacks": len(ATTACKS),
        "tries": sum(door["tries"] for door in found.values()),
        "accepted": accepted,
        "moved_another_verdict": moved,
        "protections": {"in_force": dict(guards.in_force), "absent": dict(guards.absent)},
        "allowed_axioms": [],
        "checked_again_by_the_kernel_alone": checked_again,
        "doors": found,
        "not_covered": list(NOT_COVERED[form]),
    }
    write_figures(result, options.output)
    if accepted or moved:
        sys.exit(1)


_ALWAYS = (
    "A flaw in Lean's kernel itself; the second check runs the same kernel in a clean environment",
    "Raw texts go to the in-process worker only; one past the grammar could change what a batch of the lean "
    "command prints for the replays behind it",
    "A Lean of the user's own is driven by its command line, where no second check by the kernel is made; a "
    "script that starts it is kept from the network and from privileges, not from files",
    "Files of a Lake project, which the project's own Lean elaborates as they stand",
    "macOS has neither Landlock nor seccomp; only limits and an empty environment are in force there",
)
NOT_COVERED = {
    "short": (*_ALWAYS, "Texts over 10,000 characters, and two thirds of the raw attacks"),
    "long": _ALWAYS,
}


if __name__ == "__main__":
    main()
