"""What must hold of vcrt's files whenever a command is killed or refused, and one trial that looks whether it does.

A *stage* is a command on a folder that holds what the commands before it wrote. A trial restores that folder, runs the
command with a fault, looks at what is there, gives the same command again and compares
with the folder of an undisturbed run, file by file.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fault_injection import Fault, Server, Trial

from vcrt.errors import VcrtError
from vcrt.records.ledger import Ledger

#: How a command that finds its result whole says so.
WHOLE_ALREADY = ("exists already and is not overwritten", "the held-out folds were opened before")
#: Files without a result in them: locks, and a log for people that grows line by line.
_LOCK, _LOG = "lock", "progress.jsonl"
#: What two runs of the same plan may record differently: the moment of an opening, and times.
_CLOCKS = ("at", "cpu_seconds", "nonce")

Tree = Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """A command below one folder; given again, it goes on after an interruption."""

    name: str
    command: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Undisturbed:
    """A stage's folder before and after, and the calls that its command makes."""

    stage: Stage
    before: Path
    tree_before: Tree
    tree: Tree
    trial: Trial


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What came of one fault: how the command ended, how the next one did, and what is wrong, if anything."""

    stage: str
    fault: Fault | None
    ended: str
    then: str
    defects: tuple[str, ...] = ()


def stages(root: Path) -> tuple[Stage, ...]:
    """The whole way of a tiny experiment: two environments, one fold, one method, two updates, two checkpoints."""
    data, experiment = str(root / "data"), str(root / "experiment")
    schemas = ("clrs/bubble_sort", "proofwriter/attribute_chain")
    plan = ("--methods", "vcrt", "--held-out", "clrs", "--runs", "1", "--updates", "2")
    one = ("--jobs", "1")
    commands: dict[str, tuple[str, ...]] = {
        "certify": ("certify", "--output", data, "--schemas", *schemas, "--episodes", "4", *one),
        "verify": ("verify", data, *one),
        "plan": ("plan", data, "--output", experiment, *plan, "--checkpoints", "1", "2"),
        "train": ("train", experiment, *one),
        "evaluate": ("evaluate", experiment, *one),
        "report": ("report", experiment),
    }
    return tuple(
        Stage(
            name=name,
            command=command,
        )
        for name, command in commands.items()
    )


def restore(root: Path, kept: Path | None = None) -> None:
    """Make ``root`` what ``kept`` is, or an empty folder."""
    shutil.rmtree(root, ignore_errors=True)
    if kept is None:
        root.mkdir(parents=True)
    else:
        shutil.copytree(kept, root)


def undisturbed(
    server: Server, root: Path, kept: Path, some: Sequence[Stage]
) -> tuple[Undisturbed, ...]:
    """Run the stages one after the other in ``root``; copies of it before each of them go into ``kept``."""
    restore(root)
    found = []
    for stage in some:
        before = kept / stage.name
        shutil.copytree(root, before)
        tree_before = tree_of(root)
        trial = server.trial(stage.command, root)
        if trial.code != 0:
            raise RuntimeError(f"{stage.name} does not run: {trial.said[-2000:]}")
        found.append(
            Undisturbed(
                stage=stage,
                before=before,
                tree_before=tree_before,
                tree=tree_of(root),
                trial=trial,
            )
        )
    return tuple(found)


def attempt(
    server: Server, root: Path, known: Undisturbed, fault: Fault, *, workers: str = "forked"
) -> Outcome:
    """One fault, and the next run of the command."""
    restore(root, known.before)
    struck = server.trial(known.stage.command, root, fault, workers=workers)
    ended = how_it_ended(struck)
    defects = list(half_written(root, known.tree_before, known.tree))
    if not struck.struck:
        defects.append("the fault was not reached")
    if ended == "crashed":
        defects.append(f"no named error: {struck.said[-1500:]}")
    if ended == "done":
        defects += [f"done, but {line}" for line in differences(known.tree, tree_of(root))]
    following = server.trial(known.stage.command, root, workers=workers)
    then, more = _continued(following, known, tree_of(root))
    return Outcome(
        stage=known.stage.name, fault=fault, ended=ended, then=then, defects=(*defects, *more)
    )


def how_it_ended(trial: Trial) -> str:
    """``killed``, ``done``, ``named error`` (a message and exit code 2), or ``crashed``."""
    if trial.was_killed:
        return "killed"
    if trial.code == 0:
        return "done"
    has_message = "error:" in trial.said and "Traceback" not in trial.said
    return "named error" if trial.code == 2 and has_message else "crashed"


def _continued(trial: Trial, known: Undisturbed, found: Tree) -> tuple[str, list[str]]:
    lines = differences(known.tree, found)
    said = " ".join(trial.said.split())
    if trial.code == 0:
        return "same result", lines
    if trial.code == 2 and any(words in said for words in WHOLE_ALREADY):
        return "whole already, and says so", lines
    if how_it_ended(trial) == "named error":
        return f"says what is broken: {said[-300:]}", []
    return "crashed", [f"the next run: {trial.said[-1500:]}", *lines]


def tree_of(root: Path) -> dict[str, str]:
    """Every file and folder below ``root`` with the digest of its content; of ledgers, what they say but for clocks."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_dir():
            found[name] = "folder"
        elif path.suffix == ".sqlite":
            found[name] = "\n".join(ledger_lines(path))
        else:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def ledger_lines(path: Path) -> list[str]:
    """The bodies of a ledger's rows without clocks; the ledger is read in a copy, since reading can mend it."""
    with tempfile.TemporaryDirectory() as folder:
        for part in path.parent.glob(f"{path.name}*"):
            shutil.copy(part, folder)
        try:
            entries = Ledger(Path(folder) / path.name).entries()
        except VcrtError as error:
            return [f"unreadable: {error}"]
    return [
        json.dumps([e.kind, {k: v for k, v in e.body.items() if k not in _CLOCKS}], sort_keys=True)
        for e in entries
    ]


def differences(expected: Tree, found: Tree) -> list[str]:
    """How a finished folder differs from the undisturbed one: contents, names that are missing or left over."""
    lines = [f"{name} is missing" for name in expected.keys() - found.keys()]
    lines += [f"{name} is left over" for name in found.keys() - expected.keys()]
    same = expected.keys() & found.keys()
    lines += [f"{name} has other content" for name in same if expected[name] != found[name]]
    return sorted(lines)


def half_written(root: Path, before: Tree, expected: Tree) -> Iterator[str]:
    """What is visible in an interrupted folder without being whole: bytes that no finished command ever wrote."""
    for name, content in tree_of(root).items():
        parts = name.split("/")
        if any(part.startswith(".") for part in parts) or content == "folder":
            continue
        path = root / name
        if parts[-1] == _LOCK or re.search(r"\.sqlite-(wal|shm|journal)$", name):
            continue
        if ".shards/" in name:
            if not is_whole_shard(path):
                yield f"{name} is a piece cut short"
        elif parts[-1] == _LOG or path.suffix == ".sqlite":
            if not _is_begun(content, expected.get(name, ""), path):
                yield f"{name} says what an undisturbed run does not say"
        elif content not in (before.get(name), expected.get(name)):
            yield f"{name} is visible and not whole"


def _is_begun(content: str, expected: str, path: Path) -> bool:
    """A log may end anywhere, since nobody reads it back; a ledger has whole rows, from the first on."""
    if path.suffix != ".sqlite":
        return True
    lines = content.split("\n") if content else []
    return expected.split("\n")[: len(lines)] == lines


def is_whole_shard(path: Path) -> bool:
    """Whether an unfinished certification's piece is what its own header says, or its identity is JSON."""
    header, _, body = path.read_bytes().partition(b"\n")
    try:
        said = json.loads(header)
    except ValueError:
        return False
    return path.name == "identity.json" or said["sha256"] == hashlib.sha256(body).hexdigest()


def unflushed(
    calls: Sequence[tuple[str, ...]], root: Path, *, before: Tree, tree: Tree
) -> list[str]:
    """What a loss of power could take back although the command has ended, or publish before it is whole.

    From the calls in their order: a rename must find its source's data flushed, and at the end every file's data and
    every folder's entries must be. Ledgers are left to SQLite, locks have no content, and a removal that is taken back
    leaves what the next run removes again.
    """
    data, entries = set[str](), set[str]()
    there = {str(root / name) for name in before}
    found = []

    def below(places: set[str], folder: str) -> set[str]:
        return {place for place in places if place == folder or place.startswith(f"{folder}/")}

    for kind, path, *other in calls:
        if kind == "create" and path not in there:
            there.add(path)
            if _is_ours(path):
                entries.add(str(Path(path).parent))
        elif kind == "remove":
            there.discard(path)
            data.discard(path)
        elif kind == "write":
            data.add(path)
        elif kind == "fsync":
            data.discard(path)
            entries.discard(path)
        elif kind == "rename":
            (target,) = other
            found += [f"{p} is renamed before it is flushed" for p in below(data | entries, path)]
            for places in (data, entries, there):
                moved = below(places, path)
                places -= moved
                places |= {target + place.removeprefix(path) for place in moved}
            there.add(target)
            entries.add(str(Path(target).parent))
    kept = {str(root / name): content for name, content in tree.items()}
    found += [f"{p} is not flushed at the end" for p in data if p in kept and _is_ours(p)]
    listed = {str(Path(p).parent) for p, c in kept.items() if c == "folder" or _is_ours(p)}
    return found + [f"the entries of {p} are not flushed" for p in entries & listed]


def _is_ours(path: str) -> bool:
    return ".sqlite" not in path and not path.endswith(f"/{_LOCK}")


def faults_of(trial: Trial, wanted: Callable[[str, int], bool]) -> Iterator[Fault]:
    """Every call of an undisturbed run that is ``wanted`` (by kind and place), with all that can befall it."""
    import errno

    refusals: dict[str, tuple[tuple[str, int], ...]] = {
        "create": (("fail from then on", errno.EACCES), ("fail from then on", errno.ENOSPC)),
        "write": (("fail from then on", errno.ENOSPC), ("fail once", errno.EIO)),
        "fsync": (("fail once", errno.EIO),),
        "rename": (("fail once", errno.EACCES), ("fail from then on", errno.EROFS)),
        "remove": (("fail once", errno.EACCES),),
        "mode": (("fail once", errno.EPERM),),
    }
    for kind, count in trial.counts.items():
        for at in range(1, count + 1):
            if wanted(kind, at):
                yield Fault(kind=kind, at=at)
                if kind == "write":
                    yield Fault(kind=kind, at=at, action="tear")
                for action, error in refusals[kind]:
                    yield Fault(kind=kind, at=at, action=action, error=error)
