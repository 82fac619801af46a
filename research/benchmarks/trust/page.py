"""Write docs/trust.md and research/trust.md from research/benchmarks/results/trust.json: each figure is measured.

The former is short and for readers; the latter has every count and every gap.

python research/benchmarks/trust/page.py            # write the pages
python research/benchmarks/trust/page.py --check    # fail if a page is another one
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
FIGURES = ROOT / "research" / "benchmarks" / "results" / "trust.json"
Part = Mapping[str, Any]
Row = tuple[str, str]

INTRODUCTION = """\
# Attacks on the evidence, in full

[What the evidence withstands](../docs/trust.md) is the summary of this page. Here are all parts, with their counts
and with what each does not cover. `make trust` repeats them in short, in minutes (CI by its parts, or by tests of the
same); `make trust-long` repeats them in full, in hours, and writes both pages from
[`trust.json`](benchmarks/results/trust.json).
"""


def account(figures: Part) -> str:
    """The page with every count."""
    parts: Mapping[str, Part] = figures["parts"]
    sections = [_section(*one, parts) for one in SECTIONS]
    measured = "\n".join(
        f"| {name} | {part['form']} | `{part['commit']}` | {_time(part['seconds'])} |"
        for name, part in parts.items()
    )
    closing = (
        f"## Where it was measured\n\n{figures['machine']}; vcrt {figures['vcrt']}. The machine is shared, so that "
        f"seconds are no measure of speed.\n\n| part | form | commit | took |\n| --- | --- | --- | --- |\n{measured}\n"
    )
    return "\n".join([INTRODUCTION, *sections, CLOSED_FOLD, ERRORS, closing])


def _section(
    name: str,
    title: str,
    text: str,
    rows: Callable[[Part], Iterable[Row]],
    parts: Mapping[str, Part],
) -> str:
    part = parts.get(name)
    if part is None:
        return f"## {title}\n\n{text}\n\nNot measured in full yet; `make trust` measures it in short.\n"
    if "skipped" in part:
        table = f"Not measured: {part['skipped']}.\n"
    else:
        lines = "\n".join(f"| {what} | {found} |" for what, found in rows(part))
        table = f"| what | figure |\n| --- | --- |\n{lines}\n"
    missing = "\n".join(f"- {one}" for one in part.get("not_covered", ()))
    return f"## {title}\n\n{text}\n\n{table}\nNot covered:\n\n{missing}\n"


def _sealed(part: Part) -> Iterable[Row]:
    yield (
        "flips, one at a time, of every byte (long: every bit) of every file",
        f"{part['total_flips']:,}",
    )
    yield "of these detected", f"{part['total_detected']:,}"
    yield "and blamed on the right file or row", f"{part['total_named']:,}"
    for kind, one in part["tamperings"].items():
        yield (
            f"{kind} dropped, added, swapped, repeated, altered: detected and named",
            f"{one['named']} of {one['tried']}",
        )
    signed = part["signatures"]
    yield (
        "signatures altered, removed, moved or of another key: refused",
        f"{signed['refused']:,} of {signed['tried']:,}",
    )


def _protocol(part: Part) -> Iterable[Row]:
    yield "attacks", f"{part['attacks']}"
    yield "refused by a named error", f"{part['refused']}"
    yield "said in the plan, the report or both", f"{part['said']}"
    yield "missed", f"{part['missed']}"
    for name, one in part["by_attack"].items():
        yield name, one["found"]


def _environments(part: Part) -> Iterable[Row]:
    yield "tries, each a command in a process of its own", f"{part['tries']:,}"
    yield "commands", f"{part['commands']}"
    yield "kinds of faults", f"{len(part['by_kind'])}"
    yield (
        "that looked like success, showed a traceback, named no place, did not end, or left a process",
        f"{len(part['missed'])}",
    )


def _crash(part: Part) -> Iterable[Row]:
    yield (
        "calls that can be struck (create, write, flush, rename, remove, mode)",
        f"{part['possible_faults']:,} faults",
    )
    yield "faults tried: killed, torn, disk full, no permission, no file", f"{part['faults']:,}"
    for end, count in sorted(part["then"].items()):
        yield f"the next run: {end}", f"{count:,}"
    kills = part["kills_at_random"]
    yield (
        f"`kill -9` at random moments of `vcrt reproduce {part['larger_run']}`",
        f"{kills['kills']:,}",
    )
    yield (
        "half-written files seen, or other bytes in the end",
        f"{len(part['defects']) + len(kills['defects'])}",
    )


def _lean(part: Part) -> Iterable[Row]:
    yield "attacks", f"{part['attacks']}"
    yield "tries: through every door, and past the grammar", f"{part['tries']:,}"
    yield "accepted", f"{part['accepted']}"
    yield "verdicts on other episodes that changed", f"{part['moved_another_verdict']}"
    again = part["checked_again_by_the_kernel_alone"]
    yield (
        "accepted terms checked again by the kernel alone, without axioms",
        f"{again['accepted terms']:,}",
    )
    raw = part["doors"]["raw"]["outcomes"]
    only = sum(kinds.get(kind, 0) for kinds in raw.values() for kind in ("kernel", "axioms"))
    yield "raw texts that Lean itself let through and only that second check stopped", f"{only}"
    yield "protections of a worker on this machine", ", ".join(part["protections"]["in_force"])


def _fuzz(part: Part) -> Iterable[Row]:
    yield "readers", f"{len(part['readers'])}"
    yield "inputs", f"{part['inputs']:,}"
    yield "of these values", f"{part['values']:,}"
    yield "of these named errors", f"{sum(part['named_errors'].values()):,}"
    yield "crashes, other exceptions, over 1 s, over 500 MB", f"{sum(part['failures'].values())}"
    yield "slowest input", f"{part['slowest_seconds']:.2f} s of the processor"
    yield (
        "most that a reader's process grew over all its inputs",
        f"{part['most_grown_megabytes']:.0f} MB",
    )


def _guided(part: Part) -> Iterable[Row]:
    yield "readers, each for", f"{len(part['readers'])}, {part['seconds_a_reader']} s"
    yield "inputs", f"{part['inputs']:,}"
    yield "crashes", f"{part['crashes']}"


def _canaries(part: Part) -> Iterable[Row]:
    yield "false certificates planted", f"{part['planted']}"
    yield "found when replayed", f"{part['found']}"
    yield "found besides", f"{part['found_besides']}"
    replaced = [each for one in part["environments"] for each in one["replaced_verifiers"].values()]
    yield "replaced verifiers found before training", f"{sum(replaced)} of {len(replaced)}"


def _supply_chain(part: Part) -> Iterable[Row]:
    locked = part["locks"]["locked"]
    yield (
        "packages locked by SHA-256",
        ", ".join(f"{name} {count}" for name, count in locked.items()),
    )
    yield "pinned by version only", ", ".join(part["locks"]["unhashed"])
    same = "the same bytes" if part["wheel"]["same_bytes"] else "OTHER bytes"
    yield f"{part['wheel']['builds']} builds of the wheel", same
    if "downloads" in part:
        refused = "refused" if part["downloads"]["altered_hash_refused"] else "ACCEPTED"
        yield "a download with another hash", refused


def _load(part: Part) -> Iterable[Row]:
    for name, of in (("scale", "CLRS and ProofWriter"), ("lean", "Lean")):
        if name in part:
            by_size: dict[int, list[Part]] = {}
            for run in part[name]["runs"]:
                by_size.setdefault(run["episodes"], []).append(run)
            sizes = "; ".join(
                f"{episodes:,} in {_seconds(runs)} s, "
                f"{max(run['largest_mb'] for run in runs):.0f} MB"
                for episodes, runs in by_size.items()
            )
            yield f"episodes of {of}, seconds of processors, largest process", sizes
            yield "slope of log time over log episodes", f"{part[name]['slope']:.3f}"


def _seconds(runs: Iterable[Part]) -> str:
    return " and ".join(f"{run['cpu_seconds']:,.0f}" for run in runs)


def _soak(part: Part) -> Iterable[Row]:
    yield (
        f"Lean replays by one worker in {part['minutes']:.1f} minutes",
        f"{part['orders']:,} orders",
    )
    yield "memory, first and last", f"{part['first_mb']:.0f} and {part['last_mb']:.0f} MB"
    growth = part["growth_in_48_hours"]
    found = f"{round(growth['mb'])} MB, {round(growth['open_files'])} files, {round(growth['threads'])} threads"
    yield "growth, extrapolated to 48 hours", found


def _time(seconds: float) -> str:
    return f"{seconds:,.0f} s" if seconds < 120 else f"{seconds / 60:,.0f} min"


SECTIONS: tuple[tuple[str, str, str, Callable[[Part], Iterable[Row]]], ...] = (
    (
        "sealed",
        "Tampering with a dataset",
        "`leaves.jsonl` has a line for each certificate, `seal.json` the Merkle roots over them in an in-toto "
        "Statement in a DSSE envelope, signed with an Ed25519 key if you have one. `vcrt verify` names the "
        "file and row that was altered; with `--public-key` it also asks who sealed it.",
        _sealed,
    ),
    (
        "protocol",
        "Plans that are not what they seem",
        "On CLRS and ProofWriter with tiny models: a backbone that was trained on the held-out environment, one or two "
        "generations ago; provenance that is deleted, emptied, exchanged or changed; other code for a method; plans, "
        "ledgers and runs that are edited or copied; a search with forged pass rates; the held-out environment under "
        "another name.",
        _protocol,
    ),
    (
        "environments",
        "Environments that go wrong",
        "A plug-in that exits, ends its process, raises what nobody catches, hangs, forks, reads the standard input or "
        "gives what is no JSON: when it is imported, made, asked for versions, sampled or replayed. Every command that "
        "asks it must end in one named error with the environment, the episode and the step, in time, with an older "
        "agreement unchanged and no process left.",
        _environments,
    ),
    (
        "crash",
        "Crashes",
        "Every file is written beside its place, flushed and renamed. A library before every other one "
        "strikes the k-th call of a kind, for all k, in `certify`, `verify`, `plan`, `train`, `evaluate` and "
        "`report`; then the same command is given again. It must come to the same bytes, or say what is "
        "broken.",
        _crash,
    ),
    (
        "lean",
        "Cheating Lean",
        "Texts are read by a grammar before Lean sees them, accepted terms are checked a second time by the "
        "kernel alone with no axiom allowed, and workers have no network, no files, no other programs and "
        "limits on everything. Attacks: `sorry`, axioms, a kernel that is switched off, edited environments, "
        "foreign code, input and output, shadowed instances, comments without end, look-alike letters, depth, "
        "text that looks like our own output, endless work, memory bombs.",
        _lean,
    ),
    (
        "fuzz",
        "Hostile files",
        "Valid inputs of every reader of outside bytes, mutated; also with their digests made anew, so that "
        "what lies behind a digest is reached. Each must end in a value or in a named error.",
        _fuzz,
    ),
    (
        "guided",
        "Hostile texts, guided by coverage",
        "The readers of text under atheris, which looks for inputs that reach new code.",
        _guided,
    ),
    (
        "canaries",
        "False certificates and replaced verifiers",
        "Canaries are certificates that are false in one respect and fit all digests. The agreement gate, "
        "which every dataset passes before training, must find them all, and verifiers that are not those "
        "that certified.",
        _canaries,
    ),
    (
        "supply_chain",
        "Supply chain",
        "`make setup` installs from files of hashes (`supply_chain/`), `make release` builds the wheel twice "
        "and writes a bill of materials (CycloneDX), `make audit` asks PyPI for known vulnerabilities.",
        _supply_chain,
    ),
    (
        "load",
        "Load",
        "`vcrt certify` at sizes up to ten times the paper's: is time linear, is memory flat?",
        _load,
    ),
    (
        "soak",
        "Lean for days",
        "One worker replays Lean proofs; a line through its memory, files and threads is extrapolated to 48 "
        "hours.",
        _soak,
    ),
)
CLOSED_FOLD = """\
## The held-out fold

`train/tests/protocol/test_closed_fold.py` tries to read held-out labels from training code and from what is kept, by
editing the ledger, the plan or the clock, and by copying a dataset. Each is refused, or stands in the report
afterwards. Policy records are searched for canaries that were planted in the audit view.

Not covered:

- Somebody who trains outside `vcrt` on the audit view, and enters the checkpoint as if `vcrt` had made it.
- A copy of the dataset and of its ledger, from before an opening, on another machine: a ledger is no witness of copies.
"""
ERRORS = """\
## Errors

Every named error, its exit code and what to do about it are in [errors.md](../docs/errors.md); a test keeps it
complete.
"""


HEAD = """\
# What the evidence withstands

A certificate rests on the verifier that it names, and on replay. We attacked the rest. This page says what held, and
what can still mislead you. `make trust` repeats the attacks in short, in minutes; `make trust-long` repeats them in
full, in hours, and writes this page. [The full account](../research/trust.md) has every count and every gap.

## What held

| attack | tries | outcome |
| --- | ---: | --- |
"""
GAPS = """\

A test tries to read held-out labels from training code, the ledger, the plan and copies of a dataset. `vcrt` refuses
each attempt, or the report names it.

## What can still mislead you

**A wrong verifier.** Replay does not find a verifier that errs in the same way when it certifies and when it
verifies. Only a second opinion finds it. Lean's second check runs the same kernel, so a flaw of the kernel passes
both.

**A seal without a signature.** Somebody who alters the evidence can make the manifest and an unsigned seal anew. A
root hash that you already know, a signature or a replay reveals it. A signature does not help if the private key was
stolen, or if you took the public key from the wrong person. [Sign datasets](certify.md#sign-a-dataset), and compare
the key.

**The origin of an episode.** No digest and no replay tells where an episode comes from.

**Files beside the dataset.** Nobody signs `agreement.json`, the record of `vcrt verify`: run that yourself. Nobody
signs the ledger, which records each opening of held-out episodes. Its last rows, or all of it, can vanish, and an
older copy of the dataset has an older ledger.

**What a model was trained on.** `vcrt` knows what `vcrt` trained. A model from elsewhere has unknown training, and so
has an adapter that was merged elsewhere. Provenance that somebody rewrites together with its digest, before the model
is locked, looks genuine. So do a plan, a ledger and checkpoints that somebody makes anew together. `vcrt` does not
recognise another environment that teaches the same. `vcrt plan --check-search` misses forged trials outside its
sample.

**Code that runs with your rights.** An environment, a Django project and a Lake project run their own code. `vcrt`
confines the provers where the system can do it. It does not confine an environment of yours or somebody else's: use a
container. A Lean of your own (on `PATH` or in `VCRT_LEAN`) gets no second check by the kernel, and a script that
starts it can use files. On macOS, limits and an empty environment are the only protections.

**Limits.** `vcrt` does not limit the memory of an environment. On a Ray or Dask cluster, a call over its limit ends
its worker, and only the cluster's log names the step.

**Untested.** Power cuts, disks that lie about their flushes, and network file systems are untested. One Lean worker
ran for {soak}; longer runs are an extrapolation. The largest dataset had {episodes} episodes.

**Supply chain.** Most packages are locked by hash, for Linux x86-64 and Python 3.11. `{unhashed}` is pinned by
version only. A hash says that a file is the locked one, and not that the file is harmless. `make audit` asks PyPI for
known vulnerabilities; it was untested where we measured.

We measured vcrt {vcrt} on {machine}.
"""


def summary(figures: Part) -> str:
    """The short page: what was attacked with what outcome, and what is left."""
    parts: Mapping[str, Part] = figures["parts"]
    rows = "".join(
        f"| {attack} | {tries:,} | {outcome} |\n" for attack, tries, outcome in _outcomes(parts)
    )
    gaps = GAPS.format(
        soak=f"{parts['soak']['minutes']:.0f} minutes",
        episodes=f"{max(run['episodes'] for run in parts['load']['scale']['runs']):,}",
        unhashed="`, `".join(parts["supply_chain"]["locks"]["unhashed"]),
        machine=figures["machine"],
        vcrt=figures["vcrt"],
    )
    return f"{HEAD}{rows}{gaps}"


def _outcomes(parts: Mapping[str, Part]) -> Iterable[tuple[str, int, str]]:
    """Each attack of the summary, how often it was tried, and what came of it."""
    sealed, lean, fuzz = parts["sealed"], parts["lean"], parts["fuzz"]
    crash, canaries, protocol = parts["crash"], parts["canaries"], parts["protocol"]
    tampered = list(sealed["tamperings"].values())
    signed, kills = sealed["signatures"], crash["kills_at_random"]
    named = f"`vcrt verify` detected {sealed['total_detected']:,}, {sealed['total_named']:,} by file or row"
    yield "flip a byte or bit of any file of a dataset", sealed["total_flips"], named
    yield (
        "drop, add, swap, repeat or alter rows, lines or files",
        sum(one["tried"] for one in tampered),
        f"detected and named: {sum(one['named'] for one in tampered):,}",
    )
    yield (
        "alter, remove, move or replace a signature",
        signed["tried"],
        f"refused: {signed['refused']:,}",
    )
    yield (
        "plant a false certificate that fits all digests",
        canaries["planted"],
        f"found by replay: {canaries['found']}",
    )
    replaced = [
        each for one in canaries["environments"] for each in one["replaced_verifiers"].values()
    ]
    yield (
        "replace the verifier",
        len(replaced),
        f"found before training: {sum(replaced)}",
    )
    yield (
        f"cheat Lean in {lean['attacks']} ways: `sorry`, axioms, foreign code, memory bombs",
        lean["tries"],
        f"accepted: {lean['accepted']}; other verdicts changed: {lean['moved_another_verdict']}",
    )
    yield (
        "feed mutated files to every reader",
        fuzz["inputs"],
        f"crashes and unnamed errors: {sum(fuzz['failures'].values())}",
    )
    yield (
        "search for crashing texts, guided by coverage",
        parts["guided"]["inputs"],
        f"crashes: {parts['guided']['crashes']}",
    )
    yield (
        "kill a command or fail its system call, then repeat the command",
        crash["faults"],
        f"lost or half-written files: {len(crash['defects'])}",
    )
    yield (
        "`kill -9` at random moments, then repeat the command",
        kills["kills"],
        f"other results: {len(kills['defects'])}",
    )
    plugins = parts["environments"]
    yield (
        "run an environment that exits, hangs, forks or answers nonsense",
        plugins["tries"],
        f"without one named error in time: {len(plugins['missed'])}",
    )
    yield (
        "hide training on the held-out environment, or edit plans and runs",
        protocol["attacks"],
        f"refused: {protocol['refused']}; named in the plan or report: {protocol['said']}; "
        f"missed: {protocol['missed']}",
    )


#: The pages and what makes them.
PAGES = {ROOT / "docs" / "trust.md": summary, ROOT / "research" / "trust.md": account}


def main() -> None:
    """Write or check the pages."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    for path, made in PAGES.items():
        if not options.check:
            path.write_text(made(figures), encoding="utf-8")
        elif path.read_text(encoding="utf-8") != made(figures):
            sys.exit(f"{path} is not what {FIGURES} says: run this script without --check")


if __name__ == "__main__":
    main()
