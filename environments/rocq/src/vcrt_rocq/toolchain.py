"""Find the Rocq that judges: a configured ``coqidetop``, or the one on ``PATH``, as Debian and opam install it.

``VCRT_ROCQ`` is the path of a ``coqidetop``. One that is found but cannot be used is an error; no other one replaces
it. :meth:`Session.check` tests whether it judges as expected.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vcrt.errors import UnavailableError
from vcrt.hashing import file_digest
from vcrt.processes.programs import Needs, answer_of

VARIABLE = "VCRT_ROCQ"
SUPPORTED = "coqidetop of Coq 8.16 or later, or of Rocq 9, with its standard library"
REMEDY = f"apt-get install coq, or set {VARIABLE} to the path of a coqidetop (opam install coqide-server)"
_NAMES = ("coqidetop.opt", "coqidetop")
_LEAST = (8, 16)
_VERSION = re.compile(r"version (\S+)")
#: The standard library's place below the library: since Rocq 9 a package of its own.
_STANDARD = ("theories", "user-contrib/Stdlib")
_ARITHMETIC = Path("Arith", "PeanoNat.vo")
#: The program beside the library that ``coqtop`` and ``coqc`` become since Rocq 9.
_WORKER = Path("rocq-runtime", "rocqworker")
#: The places of plug-ins besides the library.
_FINDLIB = ("/etc/ocamlfind.conf", "/usr/lib/ocaml", "/usr/share/coq")


@dataclass(frozen=True, kw_only=True, slots=True)
class Toolchain:
    """A Rocq that was found: its programs, its own description, and the SHA-256 of the judging files."""

    server: Path
    top: Path
    compiler: Path
    checker: Path
    library: Path
    origin: str
    version: str
    digests: tuple[tuple[str, str], ...]

    @property
    def label(self) -> str:
        """The version as records have it."""
        return f"{'Coq' if self.version.startswith('8.') else 'Rocq'} {self.version}"

    @property
    def needs(self) -> Needs:
        """What its processes may read, and the programs that they may be."""
        programs = [self.server, self.top, self.compiler, self.checker]
        programs += filter(Path.is_file, [self.library.parent / _WORKER])
        return Needs(
            readable=(str(self.library), str(self.library.parent), *_FINDLIB),
            programs=tuple(str(program.resolve()) for program in programs),
        )


def find_toolchain() -> Toolchain:
    """Return the Rocq to use, cached for equal settings; raise :class:`UnavailableError` if there is none."""
    return _find(os.environ.get(VARIABLE), os.environ.get("PATH"))


@cache
def _find(configured: str | None, path: str | None) -> Toolchain:
    if configured:
        found, origin = shutil.which(configured, path=path), f"{VARIABLE}={configured}"
        if found is None:
            raise UnavailableError(
                f"the Rocq that {VARIABLE} names cannot be run",
                found=configured,
                expected="the path of a coqidetop",
                remedy=f"correct or unset {VARIABLE}",
            )
    else:
        found = next(filter(None, (shutil.which(name, path=path) for name in _NAMES)), None)
        if found is None:
            raise _unfit("no Rocq was found", None, f"no {VARIABLE} and no coqidetop on PATH")
        origin = f"on PATH ({found})"
    server = Path(found).absolute()
    version, library = _VERSION.search(_said(server, "--version")), _said(server, "-where")
    if version is None or not Path(library, "theories").is_dir():
        raise _unfit(
            "a coqidetop that does not tell its version or where its library is",
            origin,
            f"{_said(server, '--version')[:80]!r}, {library[:80]!r}",
        )
    if tuple(map(int, re.findall(r"\d+", version[1])[:2])) < _LEAST:
        raise _unfit("a Rocq that is too old", origin, version[1])
    wanted = [Path(library, folder, _ARITHMETIC) for folder in _STANDARD]
    arithmetic = next(filter(Path.is_file, wanted), None)
    if arithmetic is None:
        raise _unfit(
            "a Rocq without its standard library",
            origin,
            f"none of {', '.join(map(str, wanted))}",
            "apt-get install libcoq-stdlib, or opam install rocq-stdlib",
        )
    return Toolchain(
        server=server,
        top=_beside(server, "coqtop"),
        compiler=_beside(server, "coqc"),
        checker=_beside(server, "coqchk"),
        library=Path(library),
        origin=origin,
        version=version[1],
        digests=tuple((path.name, file_digest(path)) for path in (server.resolve(), arithmetic)),
    )


def _unfit(what: str, where: str | None, found: str, remedy: str = REMEDY) -> UnavailableError:
    return UnavailableError(what, where=where, found=found, expected=SUPPORTED, remedy=remedy)


def _beside(server: Path, name: str) -> Path:
    """Return a program of the same installation; raise :class:`UnavailableError` if it is missing."""
    program = server.with_name(name)
    if not program.is_file():
        raise UnavailableError(
            f"a Rocq without its {name}", where=str(server), expected=str(program), remedy=REMEDY
        )
    return program


def _said(program: Path, option: str) -> str:
    """Return the answer to an option; empty if there is none."""
    return answer_of([str(program), option], seconds=60)
