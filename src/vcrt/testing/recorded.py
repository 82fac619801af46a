"""Record certificates beside tests, and compare those that tests give later with them.

Each is a document of :mod:`vcrt.records.certificate` in ``__vcrt__/FILE.TEST.json``; a test's second one has the number
2. Versions may change without a difference: any edit of a test's file changes them.
"""

from __future__ import annotations

import re
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
    return session.test.update or any(place.exists() for place in places)


def pass_over(session: Session | None, number: int) -> None:
    """Count certificates that are not recorded."""
    if session is not None:
        session.num_certified += number


def record(certified: CertifiedEpisode, session: Session | None) -> None:
    """Write a certificate if the session is to, else compare it with the recorded one, if there is one.

    Raises :class:`AssertionError` if it differs, and :class:`DatasetError` for a file that is no certificate.
    """
    if session is None or session.test is None:
        return
    session.num_certified += 1
    path = place_of(session.test, session.num_certified)
    document = certificate_document(certified, ANY_PRESET)
    if session.test.update:
        path.parent.mkdir(exist_ok=True)
        write_file(path, f"{document_text(document)}\n".encode())
    elif path.exists():
        difference = _difference(path, document)
        if difference is not None:
            raise AssertionError(difference)


def place_of(test: RunningTest, number: int) -> Path:
    """Return where the certificate of a test's assertion lies, counted from 1.

    >>> place_of(RunningTest(Path("tests/test_shop.py"), "TestTea::test_look[a]", False), 2).as_posix()
    'tests/__vcrt__/test_shop.TestTea.test_look[a].2.json'
    """
    plain = test.name.replace("::", ".")
    name = re.sub(r"[^\w.\[\]-]", "_", plain, flags=re.ASCII)[:120]
    if name != plain:
        name += f"-{sha256_hex(test.name.encode())[:8]}"
    several = "" if number == 1 else f".{number}"
    return test.file.parent / FOLDER / f"{test.file.stem}.{name}{several}.json"


def _difference(path: Path, document: dict[str, Json]) -> str | None:
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
