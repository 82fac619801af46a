"""Canaries: false certificates planted in datasets of real verifiers, and verifiers that are not what they say.

    python research/benchmarks/trust/canaries.py --short --output canaries.json

The agreement gate must find every planted certificate and no other. A verifier that always accepts, one that calls
itself older, and one that is older but does not say so must be found before any training. The exit code is 1 if not.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from canary_planting import planted
from parts import part_parser, write_figures

from vcrt.datasets.agreement import DisagreementError, verify_agreement
from vcrt.datasets.freezing import make_dataset
from vcrt.environments.contract import Environment, Episode, Replay, ReplayRequest, Versions
from vcrt.environments.registry import load_environment
from vcrt.errors import DatasetError, UncertifiableError
from vcrt.hashing import json_digest
from vcrt.records.dataset import Dataset, load_items, require_agreement
from vcrt.replay.config import sampled
from vcrt.replay.shards import EnvironmentFactory

SCHEMAS: Mapping[str, tuple[str, ...]] = {
    "proofwriter": ("attribute_chain", "binding_sweep"),
    "clrs": ("bellman_ford", "mst_kruskal"),
    "lean": ("cite",),
}
#: Episodes of each schema, Lean's apart.
SHORT, LONG, SHORT_LEAN, LONG_LEAN = 12, 60, 4, 12
NOT_COVERED = [
    "Half of the episodes of a few schemas carry canaries, not those of every schema.",
    "A verifier that is wrong in the same way when it certifies and when it verifies, and that a second opinion does "
    "not contradict, is not found by replay.",
    "agreement.json is not signed: whoever forges it together with the dataset is found by `vcrt verify` alone.",
]


@dataclass(frozen=True, slots=True)
class Replaced:
    """A factory of a verifier that was replaced: how, and by what name it goes."""

    name: str
    how: str

    def __call__(self) -> Environment:
        return Impostor(load_environment(self.name), self.how)


class Impostor(Environment):
    """A real environment whose answers or versions were changed."""

    def __init__(self, real: Environment, how: str) -> None:
        self._real = real
        self._how = how
        self.name = real.name  # type: ignore[misc]
        self.schemas = real.schemas  # type: ignore[misc]

    def versions(self) -> Versions:
        versions = self._real.versions()
        if self._how == "older version":
            return replace(versions, verifier=f"{versions.verifier} (older)")
        return versions

    def sample(self, schema: str, seed: int) -> Episode:
        return self._real.sample(schema, seed)

    def replay(self, requests: Sequence[ReplayRequest]) -> list[Replay]:
        answers = self._real.replay(requests)
        if self._how == "always accepts":
            return [_accepted(request) for request in requests]
        if self._how == "older, silently":
            # As a defect of an earlier version would: what should be refused at its last step is let through.
            return [_let_through(answer) for answer in answers]
        return answers


def _accepted(request: ReplayRequest) -> Replay:
    done = request.sequence
    states = [json_digest(sorted(done[:length])) for length in range(len(done) + 1)]
    return Replay(done, tuple(states))


def _let_through(answer: Replay) -> Replay:
    missing = len(answer.sequence) + 1 - len(answer.state_hashes)
    if answer.accepted or missing != 1:
        return answer
    last = json_digest(["let through", *answer.state_hashes])
    return Replay(answer.sequence, (*answer.state_hashes, last))


def main(arguments: list[str] | None = None) -> int:
    """Plant, replace and count; 0 if all were found and nothing else was."""
    parser = part_parser(__doc__)
    parser.add_argument("--no-lean", action="store_true", help="without the slowest verifier")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="vcrt-canaries-") as folder:
        names = [name for name in SCHEMAS if name != "lean" or not options.no_lean]
        results = [_environment(Path(folder), name, options.long) for name in names]
    whole = all(
        r["planted"] == r["found"]
        and not r["found_besides"]
        and all(r["replaced_verifiers"].values())
        for r in results
    )
    result = {
        "planted": sum(r["planted"] for r in results),
        "found": sum(r["found"] for r in results),
        "found_besides": sum(r["found_besides"] for r in results),
        "all_found": whole,
        "seconds": round(time.monotonic() - began, 1),
        "environments": results,
        "not_covered": NOT_COVERED,
    }
    write_figures(result, options.output)
    return 0 if whole else 1


def _environment(folder: Path, name: str, long: bool) -> dict[str, Any]:
    began = time.monotonic()
    count = (LONG_LEAN if long else SHORT_LEAN) if name == "lean" else (LONG if long else SHORT)
    dataset = make_dataset(sampled({name: SCHEMAS[name]}, count), folder / name, jobs=1)
    forged, kinds = planted(dataset, folder / f"{name}-canaries")
    # Nothing short of the verifier tells them apart: the copy opens, and gives items as any dataset does.
    load_items(forged, name)
    found: set[str] = set()
    try:
        verify_agreement(forged, jobs=1)
    except DisagreementError as error:
        found = set(error.episodes)
    return {
        "environment": name,
        "episodes": sum(counts.episodes for counts in dataset.manifest.counts[name].values()),
        "planted": len(kinds),
        "found": len(found & set(kinds)),
        "found_besides": len(found - set(kinds)),
        "planted_by_kind": dict(sorted(Counter(kinds.values()).items())),
        "replaced_verifiers": _replaced(folder, dataset, name),
        "seconds": round(time.monotonic() - began, 1),
    }


def _replaced(folder: Path, dataset: Dataset, name: str) -> dict[str, bool]:
    """Whether each impostor was found: by the gate and, where it certifies, by certification itself."""
    found = {}
    for how in ("always accepts", "older version", "older, silently"):
        factories: dict[str, EnvironmentFactory] = {name: Replaced(name, how)}
        found[f"{how}, at the gate"] = _refused(dataset, factories)
    factories = {name: Replaced(name, "always accepts")}
    config = sampled({name: SCHEMAS[name][:1]}, 1)
    try:
        make_dataset(config, folder / f"{name}-accepted", jobs=1, factories=factories)
        found["always accepts, when certifying"] = False
    except UncertifiableError:
        found["always accepts, when certifying"] = True
    return found


def _refused(dataset: Dataset, factories: Mapping[str, EnvironmentFactory]) -> bool:
    try:
        verify_agreement(dataset, jobs=1, factories=factories)
    except DatasetError:
        # Training asks for the record that only a gate which was passed writes.
        try:
            require_agreement(dataset)
        except DatasetError:
            return True
    return False


if __name__ == "__main__":
    sys.exit(main())
