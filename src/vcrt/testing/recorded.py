"""Record certificates beside tests, and compare those that tests give later with them.

Each is a document of :mod:`vcrt.records.certificate` in ``__vcrt__/FILE.TEST.json``; a test's second one has the number
2. Versions may change without a difference: any edit of a test's file changes them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from vcrt.certificates.episodes import ANY_PRESET, CertifiedEpisode
from vcrt.errors import DatasetError
from vcrt.hashing import Json, sha256_hex
from vcrt.records.certificate import (
    certificate_document,
    document_text,
    first_difference,
    read_certificate,
)
from vcrt.storage import write_file
from vcrt.testing.sessions import RunningTest, Session

#: The folder of certificates beside a file of tests.
FOLDER = "__vcrt__"
_UPDATE = "if the change is meant: `pytest --vcrt-update`, and review the file"
#: What is compared, in this order; all else follows from it, or are versions and further checks.
_COMPARED = ("episode", "relations", "replays")


def is_recorded(session: Session | None, number: int) -> bool:
    """Tell whether one of the test's next ``number`` certificates is to be written, or lies there to compare with."""
    if session is None or session.test is None:
        return False
    first = session.num_certified + 1
    places = (place_of(session.test, first + more) for more in range(number))
    return session.test.update or any(map(os.path.lexists, places))


def pass_over(session: Session | None, number: int) -> None:
    """Count certificates that are not recorded."""
    if session is not None:
        session.num_certified += number


def record(certified: CertifiedEpisode, session: Session | None) -> None:
    """Write a certificate if the session is to, else compare it with the recorded one, if there is one.

    Raises :class:`AssertionError` if it differs, and :class:`DatasetError` for no certificate, or no place for one.
    """
    if session is None or session.test is None:
        return
    session.num_certified += 1
    path = place_of(session.test, session.num_certified)
    document = certificate_document(certified, ANY_PRESET)
    if session.test.update:
        try:
            path.parent.mkdir(exist_ok=True)
            write_file(path, f"{document_text(document)}\n".encode())
        except OSError as error:
            raise DatasetError(
                "a certificate that cannot be written",
                where=str(path),
                found=f"{type(error).__name__}: {error}",
                expected="a folder beside the test that may be written into",
                remedy="run `pytest` without `--vcrt-update`, or make it possible to write there",
            ) from error
    elif os.path.lexists(path):
        difference = _difference(path, document)
        if difference is not None:
            raise AssertionError(difference)


def place_of(test: RunningTest, number: int) -> Path:
    """Return where the certificate of a test's assertion lies, counted from 1.

    >>> place_of(RunningTest(Path("tests/test_shop.py"), "TestTea::test_look[a]", False), 2).as_posix()
    'tests/__vcrt__/test_shop.TestTea.test_look[a].2.json'
    """
    head, bracket, parameters = test.name.partition("[")
    plain = head.replace("::", ".") + bracket + parameters
    name = re.sub(r"[^\w.\[\]-]", "_", plain, flags=re.ASCII)[:120]
    if name != plain:
        name += f"-{sha256_hex(test.name.encode())[:8]}"
    several = "" if number == 1 else f".{number}"
    return test.file.parent / FOLDER / f"{test.file.stem}.{name}{several}.json"


def unused(tests: Iterable[RunningTest], numbers: Mapping[RunningTest, int]) -> list[Path]:
    """Return the certificates beside tests that none of these tests asks for.

    ``tests`` are all tests of their files; ``numbers`` says how many certificates a test had that passed.
    """
    known = {place_of(test, 1): numbers.get(test) for test in tests}
    files = {(test.file.parent, test.file.stem) for test in tests}
    found = []
    for folder in sorted({parent for parent, _ in files}):
        for path in sorted((folder / FOLDER).glob("*.json")):
            several = re.fullmatch(r"(.*)\.(\d+)\.json", path.name)
            first = path if several is None else path.with_name(f"{several[1]}.json")
            if first in known:
                most = known[first]
                is_unused = most is not None and (1 if several is None else int(several[2])) > most
            else:
                own = any(path.name.startswith(f"{stem}.") for at, stem in files if at == folder)
                is_unused = own or not (folder / f"{path.name.partition('.')[0]}.py").exists()
            found += [path] if is_unused else []
    return found


def _difference(path: Path, document: dict[str, Json]) -> str | None:
    if not path.is_file():
        raise DatasetError(
            "a recorded certificate that is no file",
            where=str(path),
            found="a link to nothing"
            if path.is_symlink()
            else "a folder, or a file of another kind",
            expected="the file that `pytest --vcrt-update` wrote",
            remedy="restore the file, or remove what is there and write it anew",
        )
    try:
        sealed = read_certificate(path)
    except DatasetError as error:
        error.remedy = f"restore the file, or write it anew: `pytest --vcrt-update`; {error.remedy}"
        raise
    recorded = certificate_document(sealed.certified, sealed.preset)
    for part in _COMPARED:
        difference = first_difference(document.get(part), recorded.get(part), (part,))
        if difference is not None:
            what = {
                "episode": "the calls, or their start, are others than in the recorded certificate",
                "relations": "the relations are others than in the recorded certificate",
            }.get(part, "the recorded certificate no longer holds: replay gives something else")
            return "\n".join(
                [
                    what,
                    f"  where: {path}, field {difference.name}",
                    f"  found: {difference.found}",
                    f"  expected: {difference.expected}",
                    f"  to mend: {_UPDATE}",
                ]
            )
    return None
