"""Parquet files whose descriptions blow up or lie, and all that our own writer makes."""

from __future__ import annotations

import random
import resource

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forged_parquet import BINARY, I16, I32, LIST, STRUCT, Forged, items, page, struct, varint
from vcrt.errors import DatasetError
from vcrt.hashing import sha256_hex
from vcrt.records.audit import read_rows, write_rows
from vcrt.records.dataset import POLICY_COLUMNS
from vcrt.records.pages import bytes_of, row_groups, unfolded_bytes
from vcrt.records.sealing.leaves import Leaf, row_digest
from vcrt.records.sealing.row_damage import damaged_rows
from vcrt.records.thrift import Reader

#: A dictionary of one text, and a run of its number for any number of rows, in a few bytes.
WORD = page(kind=2)


def run_of_rows(count):
    return WORD + page(b"\1" + varint(count << 1) + b"\0", values=count, encoding=8)


def inner_lists(count):
    """Lists of a million structs of one byte each."""
    inner = bytes([0xF0 | STRUCT]) + varint(10**6) + b"\0" * 10**6
    return (100, LIST, items(LIST, *[inner] * count))


def lie(unfolded, size):
    """Readers that take the last of two fields, or do not mind its type, see other sizes than Arrow does."""
    return [(2, I32, unfolded), (2, I16, 0), (3, I32, size)]


MANY = 50_000_000
LOST = {"dictionary": len(WORD)}
WORDS = page(kind=2, values=MANY)
#: What is forged, and how it is refused.
BOMBS = {
    "rows that the file's summary does not have": (
        Forged(pages=run_of_rows(MANY), rows=MANY, rows_of_file=1, **LOST), "another number of rows"),
    "rows that nothing is left of": (Forged(pages=run_of_rows(MANY), rows=MANY, **LOST), "would unfold"),
    "a row for every text that there is not": (Forged(pages=run_of_rows(10**6), rows=10**6, **LOST), "would unfold"),
    "more values in a page than in a column": (Forged(pages=run_of_rows(MANY), **LOST), "pages of 50,000,000"),
    "fewer values in a page": (Forged(pages=run_of_rows(2), rows=3, **LOST), "pages of 2 "),
    "a column that is longer than its group": (Forged(values=MANY), "of another length"),
    "no rows": (Forged(rows=0), "no rows"),
    "a dictionary of many": (
        Forged(pages=WORDS + page(b"\0\2\0", encoding=8), dictionary=len(WORDS)),
        "a dictionary of more"),
    "delta of lengths": (Forged(pages=page(b"\x80\x01\x04\x01\0\0", encoding=6)), "in encoding 6"),
    "delta of texts": (Forged(pages=page(b"\x80\x01\x04\x01\0\0" * 2, encoding=7)), "in encoding 7"),
    "numbers of a dictionary of old": (Forged(pages=WORD + page(b"\0\2\0", encoding=2), **LOST), "in encoding 2"),
    "another compression": (Forged(codec=4), "in compression 4"),
    "a page of another kind": (Forged(pages=page(kind=3)), "a page of type 3"),
    "two dictionaries": (Forged(pages=WORD + WORD + page(), **LOST), "a page of type 2"),
    "a size twice": (Forged(pages=page(sizes=lie)), "do not ascend"),
    "a size of another type": (
        Forged(pages=page(sizes=lambda a, b: [(2, I16, a), (3, I32, b)])), "field 2 is of type"),
    "a size of 33 bits": (
        Forged(pages=page(sizes=lambda a, b: [(2, I32, 2**32 + a), (3, I32, b)])), "does not fit"),
    "a field below zero": (Forged(column=((-3, I32, 1),)), "do not ascend"),
    "a size beyond the column": (
        Forged(pages=page(sizes=lambda a, b: [(2, I32, a), (3, I32, b + 1)])), "pages of 1 "),
    "empty pages": (Forged(pages=page(b"", values=0) * 1000 + page()), "a page without values"),
    "a header without end": (
        Forged(pages=page(sizes=lambda a, b: [(2, I32, a), (3, I32, b), (4, BINARY, b"x" * 2**16)])), "cut off"),
    "lists that nobody asked for": (Forged(footer=(inner_lists(2),)), "a field of type 9"),
    "lists in a column": (Forged(column=((13, LIST, items(STRUCT, *[b"\0"] * 1000)),)), "a list of 1000"),
    "elements of another type": (Forged(column=((13, LIST, items(I32, b"\0")),)), "elements of type 5"),
    "a footer of megabytes": (Forged(footer=((6, BINARY, b"x" * 2**21),)), "a footer of"),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_forged_tables_are_refused_before_they_unfold(tmp_path, name):
    forged, refusal = BOMBS[name]
    path = forged.write(tmp_path / "t.parquet")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DatasetError, match=refusal):
        read_rows(path, POLICY_COLUMNS)
    # Whoever looks for what was altered reads it with the same care.
    damage, *_ = damaged_rows(path, "policy/t.parquet", POLICY_COLUMNS, ())
    assert damage.what == "a file of the dataset cannot be read"
    assert refusal in damage.found
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


def test_what_the_forger_leaves_alone_is_read(tmp_path):
    path = Forged().write(tmp_path / "t.parquet")
    assert read_rows(path, POLICY_COLUMNS) == [{"record_id": "a", "record": "a"}]
    forged = Forged(pages=run_of_rows(3), rows=3, **LOST).write(tmp_path / "u.parquet")
    assert read_rows(forged, POLICY_COLUMNS) == [{"record_id": "a", "record": "a"}] * 3


def test_fields_that_nobody_knows_are_passed_over_and_not_kept():
    data = struct(
        (1, I32, 7), (9, BINARY, b"x" * 100), (30, STRUCT, struct((1, I32, 3))), (31, I32, 2)
    )
    assert Reader(data).struct({1: I32, 31: I32}) == {1: 7, 31: 2}
    with pytest.raises(ValueError, match="nested"):
        Reader(b"\x1c" * 5000).struct({})


def test_a_word_named_often_in_a_damaged_file_is_not_spelled_out(tmp_path):
    path = tmp_path / "t.parquet"
    names = pa.DictionaryArray.from_arrays(pa.array([0] * 80), pa.array(["x" * 2**20]))
    table = pa.table({"record_id": [str(i) for i in range(80)], "record": names.cast(pa.string())})
    pq.write_table(table, path, compression="zstd")
    (damage,) = damaged_rows(path, "policy/t.parquet", POLICY_COLUMNS, ())
    assert damage.place == "policy/t.parquet, rows 0 to 79, column record"
    assert "would unfold" in damage.found


def test_in_a_damaged_file_sound_row_groups_are_read(tmp_path):
    """The header of one page is broken: its rows and column are named, and an altered row of the others."""
    path = tmp_path / "t.parquet"
    rows = [{"record_id": sha256_hex(b"%d" % i), "record": f"text {i}"} for i in range(600)]
    leaves = [Leaf(audit="", certificate="", environment="e", episode=str(i), policy=row_digest(row))
              for i, row in enumerate(rows)]  # fmt: skip
    rows[599] = {**rows[599], "record": "another"}
    write_rows(rows, POLICY_COLUMNS, path)
    data = bytearray(path.read_bytes())
    with bytes_of(path) as read:
        data[row_groups(read)[1].chunks[1].start] ^= 1
    path.write_bytes(data)
    damage = list(damaged_rows(path, "t", POLICY_COLUMNS, leaves))
    assert [one.place for one in damage] == [
        "t, rows 256 to 511, column record",
        f"t, row 599, record {rows[599]['record_id']}",
    ]


class Compared(str):
    """A digest that counts how often it is compared."""

    times = 0

    def __eq__(self, other):
        Compared.times += 1
        return super().__eq__(other)

    __hash__ = str.__hash__


def test_moved_rows_are_named_without_looking_at_all_for_each(tmp_path):
    path = tmp_path / "t.parquet"
    count = 500
    rows = [{"episode_id": sha256_hex(b"%d" % i), "record": "x"} for i in range(count)]
    leaves = [Leaf(audit=Compared(row_digest(row)), certificate="", environment="e", episode=row["episode_id"],
                   policy="") for row in rows]  # fmt: skip
    write_rows(rows[::-1], tuple(rows[0]), path)
    damage = list(damaged_rows(path, "t", tuple(rows[0]), leaves))
    assert len(damage) == count
    assert damage[0].place.startswith("t, row 0, episode ")
    assert damage[0].expected == f"row {count - 1}"
    assert Compared.times < 20 * count


def written_tables():
    """Rows as certificates have them, and stranger ones."""
    drawn = random.Random(0)
    yield "none", []
    yield "empty texts", [{"record_id": f"{i:016x}", "record": ""} for i in range(20)]
    yield (
        "many row groups",
        [{"record_id": drawn.randbytes(8).hex(), "record": "r" * (i % 7)} for i in range(5000)],
    )
    yield (
        "long least and greatest",
        [
            {"record_id": f"{i:016x}" + "é" * 2030, "record": chr(97 + i) * size}
            for i, size in enumerate((4095, 4096, 4097, 70_000, 300_000))
        ],
    )
    yield (
        "longer than a dictionary",
        [
            {"record_id": drawn.randbytes(8).hex(), "record": drawn.randbytes(9000).hex()}
            for _ in range(300)
        ],
    )
    for case in range(20):
        size = drawn.choice((1, 2, 255, 256, 257, 700))
        alphabet = drawn.choice(("a", "ab\x00", "0123456789abcdef", "é\U0001f600𝕏", '{"a":[1,2]}'))
        yield f"case {case}", [
            {"record_id": drawn.randbytes(8).hex(),
             "record": "".join(drawn.choices(alphabet, k=drawn.choice((0, 1, 40, 300))))}
            for _ in range(size)
        ]  # fmt: skip


def test_all_that_our_writer_makes_is_read_and_described_as_arrow_does(tmp_path):
    path = tmp_path / "t.parquet"
    for name, rows in written_tables():
        write_rows(rows, POLICY_COLUMNS, path)
        assert read_rows(path, POLICY_COLUMNS) == rows, name
        metadata = pq.ParquetFile(path).metadata
        with bytes_of(path) as data:
            groups = row_groups(data)
            assert len(groups) == metadata.num_row_groups
            for place, group in enumerate(groups):
                assert group.num_rows == metadata.row_group(place).num_rows
                for number, chunk in enumerate(group.chunks):
                    column = metadata.row_group(place).column(number)
                    assert chunk.start == (column.dictionary_page_offset or column.data_page_offset)
                    assert chunk.end == chunk.start + column.total_compressed_size
                    # Arrow counts the headers as well.
                    assert (
                        unfolded_bytes(data, chunk) - 4 * group.num_rows
                        < column.total_uncompressed_size
                    )
