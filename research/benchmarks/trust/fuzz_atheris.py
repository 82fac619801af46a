"""Coverage-guided fuzzing of the readers of text, with atheris (`pip install atheris`; it is no dependency of vcrt).

    PYTHONPATH=src python research/benchmarks/trust/fuzz_atheris.py READER -max_total_time=60

READER is one of those below; what follows goes to libFuzzer. A crash is any exception but a named error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress

import atheris  # type: ignore[import-not-found]

with atheris.instrument_imports(include=["vcrt"]):
    from vcrt.documents import strict_json
    from vcrt.errors import VcrtError
    from vcrt.records.policy_view import record_of_json
    from vcrt_lean import grammar
    from vcrt_proofwriter.english import parse_theory
    from vcrt_proofwriter.files import parse_rule, read_row
    from vcrt_train.protocol.relation_records import read_relation_record


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _document(data: bytes) -> object:
    try:
        return strict_json(data)
    except ValueError as error:
        raise VcrtError(str(error)) from error


READERS: dict[str, Callable[[bytes], object]] = {
    "json": _document,
    "stated": lambda data: read_relation_record(data, "fuzz"),
    "record": lambda data: record_of_json(_text(data), "fuzz"),
    "row": lambda data: read_row(_text(data), "fuzz"),
    "english": lambda data: parse_theory(_text(data), assumption="OWA"),
    "s-expression": lambda data: parse_rule(_text(data)),
    "lean-step": lambda data: grammar.read_tactic(_text(data), where="fuzz"),
}


def main() -> None:
    """Run libFuzzer on one reader; with ``--readers``, print their names as JSON."""
    name, *options = sys.argv[1:] or [""]
    if name == "--readers":
        print(json.dumps(sorted(READERS)))
        return
    if name not in READERS:
        sys.exit(f"one of {json.dumps(sorted(READERS))}")
    read = READERS[name]

    def test(data: bytes) -> None:
        with suppress(VcrtError):
            read(data)

    atheris.Setup([sys.argv[0], *options], test)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
