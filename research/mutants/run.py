"""Show that the test suite finds each mutant of ``mutants.toml``: a fault of one line, put into a copy of the tree.

A mutant is *found* if a named test fails with it that passes without it, *lost* if all named tests pass with it, and
*broken* if nothing can be said: the tests fail without it, do not even start, take too long, or the text that it
replaces is no longer there exactly once. The copy holds what git tracks, as it stands in the working tree, which stays
as it is. Not covered: tests that the mutant does not name.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: Exit codes of pytest.
PASSED, FAILED = 0, 1
#: Seconds that the tests of one mutant may take.
LIMIT_S = 600
QUICK = "not slow and not browser and not paper_scale"
FIRST_FAILURE = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


class Broken(Exception):
    """Nothing can be said of a mutant; the text says why."""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A fault, where it is, and the tests that find it, as ``mutants.toml`` has them."""

    name: str
    fault: str
    room: str
    before: str
    after: str
    tests: list[str]


@dataclass(frozen=True, kw_only=True)
class Result:
    """What became of a mutant: ``found``, ``lost`` or ``broken``, by which test or why, and the seconds it took."""

    name: str
    room: str
    result: str
    detail: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Tree:
    """A copy of the tracked files; ``files`` are their paths."""

    root: Path
    files: list[Path]

    @classmethod
    def copied(cls, source: Path, root: Path) -> Tree:
        """Copy what git tracks in ``source``. Tests look for ``shared`` beside the checkout, so it is linked there."""
        listed = [Path(name) for name in git(source, "ls-files", "-z").split("\0") if name]
        files = [file for file in listed if (source / file).is_file()]
        for file in files:
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / file, root / file)
        if (source.parent / "shared").is_dir():
            (root.parent / "shared").symlink_to((source.parent / "shared").resolve())
        return cls(root=root, files=files)

    def place_of(self, text: str) -> Path:
        """The one source file that holds the text, exactly once; raises :class:`Broken`."""
        sources = [file for file in self.files if file.suffix == ".py" and "src" in file.parts[:-1]]
        counts = {file: (self.root / file).read_text("utf-8").count(text) for file in sources}
        places = [file for file, count in counts.items() for _ in range(count)]
        if len(places) != 1:
            where = ", ".join(sorted({str(place) for place in places})) or "no source file"
            raise Broken(
                f"`before` must occur once, and does {len(places)} times, in {where}: rewrite it"
            )
        return places[0]

    def named(self, tests: list[str]) -> list[str]:
        """The paths of named tests, below ``tests`` folders; ``clrs/test_x.py`` lies below one like ``clrs``."""
        found = []
        for test in tests:
            name, colons, inner = test.partition("::")
            *folders, base = name.split("/")
            ends = [
                file
                for file in self.files
                if file.name == base
                and "tests" in file.parts
                and all(any(each in part for part in file.parts[:-1]) for each in folders)
            ]
            if len(ends) != 1:
                raise Broken(f"{len(ends)} test files are named {name}: {[*map(str, ends)]}")
            found.append(f"{ends[0]}{colons}{inner}")
        return found

    def run(self, tests: list[str]) -> tuple[int, str, str]:
        """The exit code of pytest up to the first failure, that failure, and the last line; raises :class:`Broken`."""
        folders = [self.root / "src", self.root / "train" / "src"]
        folders += sorted(self.root.glob("environments/*/src"))
        sources = os.pathsep.join(str(each) for each in folders if each.is_dir())
        # Without files of bytecode: one may be as old and as long as the source with the fault.
        variables = {**os.environ, "PYTHONPATH": sources, "PYTHONDONTWRITEBYTECODE": "1"}
        options = ["-x", "-rfE", "--color=no", "-p", "no:cacheprovider", "-m", QUICK]
        ask = partial(subprocess.run, cwd=self.root, env=variables, capture_output=True, text=True)
        try:
            done = ask([sys.executable, "-m", "pytest", *options, *tests], timeout=LIMIT_S)
        except subprocess.TimeoutExpired as error:
            raise Broken(f"the tests took longer than {LIMIT_S} s") from error
        failure = FIRST_FAILURE.search(done.stdout)
        last = (done.stdout.strip() or done.stderr.strip()).splitlines()[-1:]
        return done.returncode, failure[1] if failure else "", "".join(last)


def git(source: Path, *arguments: str) -> str:
    """What git says."""
    done = subprocess.run(
        ["git", "-C", str(source), *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout


def tried(tree: Tree, mutant: Mutant) -> tuple[str, str]:
    """The result of one mutant, and the test that found it, or why there is none."""
    try:
        place, tests = tree.root / tree.place_of(mutant.before), tree.named(mutant.tests)
        whole = place.read_text("utf-8")
        faulty = whole.replace(mutant.before, mutant.after)
        compile(faulty, place.name, "exec")
        code, first, last = tree.run(tests)
        if code != PASSED or "passed" not in last:
            raise Broken(f"without the fault, pytest ends with {code}: {first or last}")
        place.write_text(faulty, "utf-8")
        try:
            code, first, last = tree.run(tests)
        finally:
            place.write_text(whole, "utf-8")
        if code not in (PASSED, FAILED) or (code == FAILED and not first):
            raise Broken(f"with the fault, no test fails, and pytest ends with {code}: {last}")
    except (Broken, SyntaxError) as error:
        return "broken", str(error)
    return ("found", first) if code == FAILED else ("lost", f"all pass: {last}")


def main() -> int:
    """Try the mutants, say what became of each, and give 0 only if all of them are found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these mutants alone")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the results as JSON")
    parser.add_argument("--mutants", type=Path, default=HERE / "mutants.toml", metavar="FILE")
    options = parser.parse_args()
    mutants = [Mutant(**each) for each in tomllib.loads(options.mutants.read_text())["mutant"]]
    names = [mutant.name for mutant in mutants]
    if unknown := set(options.only or ()) - {*names}:
        parser.error(f"no mutant {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    source = Path(git(HERE, "rev-parse", "--show-toplevel").strip())
    results = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Tree.copied(source, Path(folder).resolve() / "tree")
        for mutant in [each for each in mutants if each.name in (options.only or names)]:
            began = time.monotonic()
            result, detail = tried(tree, mutant)
            seconds = round(time.monotonic() - began, 1)
            results.append(
                Result(
                    name=mutant.name,
                    room=mutant.room,
                    result=result,
                    detail=detail,
                    seconds=seconds,
                )
            )
            shown = result if result == "found" else result.upper()
            print(f"{shown:7} {seconds:6.1f} s  {mutant.name:32} {detail}", flush=True)
    num_found = sum(each.result == "found" for each in results)
    print(f"{num_found} of {len(results)} mutants are found")
    if options.output is not None:
        changed = bool(git(source, "status", "--porcelain", "--untracked-files=no").strip())
        document = {
            "commit": git(source, "rev-parse", "HEAD").strip(),
            "changed_since": changed,
            "python": sys.version.split()[0],
            "mutants": [vars(each) for each in results],
        }
        options.output.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    return 0 if num_found == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
