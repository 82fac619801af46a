"""Files of rows that nobody honest wrote, and all that our own writer makes."""

from __future__ import annotations

import gzip
import json
import random
import resource

import pytest

from vcrt.errors import DatasetError, TooLargeError
from vcrt.hashing import canonical_json, json_digest, sha256_hex
from vcrt.records import rows as row_files
from vcrt.records.dataset import POLICY_COLUMNS
from vcrt.records.rows import HEADER, read_lines, read_rows, row_of, write_rows
from vcrt.records.sealing.integrity import damaged_rows
from vcrt.records.sealing.statement import Leaf

#: More than a file of so few bytes may unfold to.
MANY = 80 * 2**20


def some_rows(count):
    drawn = random.Random(0)
    return [
        {"record_id": drawn.randbytes(8).hex(), "record": drawn.randbytes(200).hex()}
        for _ in range(count)
    ]


def lines_of(rows):
    return b"".join(canonical_json(row) + b"\n" for row in rows)


def leaves_of(rows):
    return [
        Leaf(audit="", certificate="", environment="e", episode=str(i), policy=json_digest(row))
        for i, row in enumerate(rows)
    ]


ROW = lines_of(some_rows(1))
#: What a file holds, the row that is blamed (None: any), and how the file is refused.
REFUSED = {
    "a line without end": (gzip.compress(b" " * MANY), 0, "would unpack"),
    "one letter often": (gzip.compress(b'{"record":"' + b"x" * MANY), 0, "would unpack"),
    "rows of nothing": (gzip.compress(b'{"record":"","record_id":""}\n' * 10**5), None, "would unpack"),
    "nothing but line feeds": (gzip.compress(b"\n" * MANY), None, "would unpack|no text"),
    "a bomb behind a row": (gzip.compress(ROW) + gzip.compress(b"x" * MANY), 1, "would unpack"),
    "half a header": (HEADER[:5], 0, "would unpack|cannot be read"),
    "no gzip": (b"PAR1" * 10, 0, "Not a gzipped file"),
    "another compression": (b"\x1f\x8b\x07" + bytes(100), 0, "Unknown compression"),
    "half a file": (gzip.compress(lines_of(some_rows(300)))[:-2000], None, "ended before"),
    "a wrong sum": (gzip.compress(ROW)[:-8] + bytes(8), 1, "CRC check failed"),
    "something behind its end": (gzip.compress(ROW) + b"more", 1, "Not a gzipped file"),
    "a line that is cut off": (gzip.compress(ROW + b'{"rec'), 1, "cut off"),
    "no blocks": (HEADER + b"\xff" * 100, 0, "invalid block type"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_file_of_rows_is_refused_by_file_and_row_in_little_memory(tmp_path, name):
    data, row, refusal = REFUSED[name]
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(data)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DatasetError, match=refusal) as caught:
        read_rows(path, POLICY_COLUMNS)
    place, _, number = caught.value.where.rpartition(", row ")
    assert place == str(path)
    assert row in (None, int(number))
    # Whoever looks for what was altered reads it with the same care.
    damage = list(damaged_rows(path, "policy/t.jsonl.gz", POLICY_COLUMNS, ()))
    assert damage[-1].place.startswith("policy/t.jsonl.gz, row ")
    # In kilobytes: a line of the greatest length, and its parts before they were joined.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


NO_ROWS = {
    "no JSON": b"{",
    "a list": b"[]",
    "lists in lists": b'{"record":' + b"[" * 100_000,
    "objects by the million": b'{"record":[' + b"{}," * 10**6 + b"{}]}",
    "a number": b'{"record":1,"record_id":"a"}',
    "another column": b'{"other":"","record":"","record_id":"a"}',
    "one column more": b'{"record":"","record_id":"a","x":""}',
    "a column less": b'{"record":""}',
    "a column twice": b'{"record":"","record":"","record_id":"a"}',
    "another order": b'{"record_id":"a","record":""}',
    "space": b'{"record": "","record_id":"a"}',
    "space at its end": b'{"record":"","record_id":"a"} ',
    "an escape that nobody needs": b'{"record":"\\u0061","record_id":"a"}',
    "half a character": b'{"record":"\\ud800","record_id":"a"}',
    "no text": b'{"record":"\xff","record_id":"a"}',
    "a text without end": b'{"record":"',
}  # fmt: skip


@pytest.mark.parametrize("name", NO_ROWS)
def test_a_line_has_one_spelling(tmp_path, name):
    with pytest.raises(ValueError, match=r"."):
        row_of(NO_ROWS[name], POLICY_COLUMNS)
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(gzip.compress(ROW + NO_ROWS[name] + b"\n" + ROW))
    with pytest.raises(DatasetError, match=r"cannot be read") as caught:
        read_rows(path, POLICY_COLUMNS)
    assert caught.value.where == f"{path}, row 1"


def test_what_could_not_be_read_again_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(row_files, "MAX_LINE", 100)
    with pytest.raises(TooLargeError, match=r"rows too large to be read again"):
        write_rows(some_rows(2), tmp_path / "t.jsonl.gz")


def test_a_flipped_byte_is_blamed_on_a_row_and_those_before_it_are_read(tmp_path):
    path = tmp_path / "t.jsonl.gz"
    rows = some_rows(600)
    altered = [*rows[:9], {**rows[9], "record": "another"}, *rows[10:]]
    write_rows(altered, path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    first, *_, last = damaged_rows(path, "t", POLICY_COLUMNS, leaves_of(rows))
    assert first.place == f"t, row 9, record {rows[9]['record_id']}"
    assert int(last.place.split()[2].rstrip(",")) in range(250, 601)
    assert "what follows" in last.place


def test_every_byte_of_a_file_may_be_another(tmp_path):
    path = tmp_path / "t.jsonl.gz"
    rows = some_rows(2)
    write_rows(rows, path)
    data = path.read_bytes()
    refused = 0
    for place, byte in enumerate(data):
        for value in {byte ^ 1, byte ^ 16, 0, 255} - {byte}:
            path.write_bytes(data[:place] + bytes([value]) + data[place + 1 :])
            try:
                # What a header says besides is all that can change.
                assert read_rows(path, POLICY_COLUMNS) == rows
                assert place in range(3, 10)
            except DatasetError:
                refused += 1
    assert refused > 3 * (len(data) - 10)


class Compared(str):
    """A digest that counts how often it is compared."""

    times = 0

    def __eq__(self, other):
        Compared.times += 1
        return super().__eq__(other)

    __hash__ = str.__hash__


def test_moved_rows_are_named_without_looking_at_all_for_each(tmp_path):
    path = tmp_path / "t.jsonl.gz"
    count = 500
    rows = [{"episode_id": sha256_hex(b"%d" % i), "record": "x"} for i in range(count)]
    leaves = [Leaf(audit=Compared(json_digest(row)), certificate="", environment="e", episode=row["episode_id"],
                   policy="") for row in rows]  # fmt: skip
    write_rows(rows[::-1], path)
    damage = list(damaged_rows(path, "t", tuple(rows[0]), leaves))
    assert len(damage) == count
    assert damage[0].place.startswith("t, row 0, episode ")
    assert damage[0].expected == f"row {count - 1}"
    assert Compared.times < 20 * count


def written_files():
    """Rows as certificates have them, and stranger ones."""
    drawn = random.Random(0)
    yield "none", []
    yield (
        "empty texts",
        [{"record_id": f"{drawn.getrandbits(64):016x}", "record": ""} for _ in range(20)],
    )
    yield (
        "many",
        [{"record_id": drawn.randbytes(8).hex(), "record": "r" * (i % 7)} for i in range(5000)],
    )
    yield (
        "long",
        [
            {
                "record_id": drawn.randbytes(8).hex() + "é" * 2030,
                "record": drawn.choice("ab\n\x00\u2028") * size,
            }
            for size in (4095, 4096, 4097, 70_000, 300_000)
        ],
    )
    for case in range(20):
        alphabet = drawn.choice(
            ("a", "ab\x00", "0123456789abcdef", "é\U0001f600𝕏", '{"a":[1,2]}\\\n')
        )
        yield f"case {case}", [
            {"record_id": drawn.randbytes(8).hex(),
             "record": "".join(drawn.choices(alphabet, k=drawn.choice((0, 1, 40, 300))))}
            for _ in range(drawn.choice((1, 2, 255, 700)))
        ]  # fmt: skip


def test_all_that_our_writer_makes_is_read_as_gzip_and_json_read_it(tmp_path):
    path, again = tmp_path / "t.jsonl.gz", tmp_path / "another name"
    for name, rows in written_files():
        write_rows(rows, path)
        assert read_rows(path, POLICY_COLUMNS) == rows, name
        assert [sha256_hex(line) for line in read_lines(path)] == [json_digest(row) for row in rows]
        with gzip.open(path, "rb") as stream:
            assert [json.loads(line) for line in stream] == rows
        # The bytes say nothing of a name or a time.
        write_rows(rows, again)
        assert again.read_bytes() == path.read_bytes()
        assert path.read_bytes().startswith(HEADER)
