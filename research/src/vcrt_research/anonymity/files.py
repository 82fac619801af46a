"""Check what a policy file could give away besides its rows, exactly instead of by guesses.

The rows are in ascending order of their identities, so that their order is a function of what is in them; each row is
the canonical form of its record; and the file carries no metadata of its own. Its name says the environment and its
length the number of episodes: whoever may not know these must be given rows, not files.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from vcrt.records.dataset import POLICY_COLUMNS, Dataset, policy_row
from vcrt.records.manifest import policy_name
from vcrt.records.policy_view import record_of_json
from vcrt.records.rows import HEADER, read_rows

_IDENTITY = re.compile(r"[0-9a-f]{16}")


def file_findings(dataset: Dataset) -> tuple[str, ...]:
    """What is wrong with the policy files, one sentence each; nothing if they hold to the form."""
    return tuple(
        f"{policy_name(environment)}: {finding}"
        for environment in dataset.environments
        for finding in _findings(dataset.path / policy_name(environment))
    )


def _findings(path: Path) -> Iterator[str]:
    rows = read_rows(path, POLICY_COLUMNS)
    identities = [row["record_id"] for row in rows]
    if identities != sorted(set(identities)):
        yield "rows do not ascend by record_id"
    odd = [identity for identity in identities if not _IDENTITY.fullmatch(identity)]
    if odd:
        yield f"not all identities are 16 hexadecimal digits ({len(odd)} of {len(identities)}), the first is {odd[0]!r}"
    for row in rows:
        if policy_row(record_of_json(row["record"], str(path))) != row:
            yield f"record {row['record_id']} is not written in the canonical form"
            break
    data = path.read_bytes()
    if not data.startswith(HEADER):
        yield "metadata before its rows: a name, a time or a comment"
    unfolding = zlib.decompressobj(zlib.MAX_WBITS + 16)
    unfolding.decompress(data)
    if unfolding.unused_data:
        yield "something behind its rows"
