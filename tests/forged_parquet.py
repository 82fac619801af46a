"""Parquet files byte by byte: what no library would write, in Thrift's compact protocol."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

I16, I32, I64, BINARY, LIST, STRUCT = 4, 5, 6, 8, 9, 12
TEXT = b"\1\0\0\0a"


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def struct(*fields):
    """Fields of a number, a type and a value each, in the order given, however that may be."""
    out, before = bytearray(), 0
    for number, kind, value in fields:
        if 0 < number - before < 16:
            out.append((number - before) << 4 | kind)
        else:
            out += bytes([kind]) + varint(2 * number if number >= 0 else -2 * number - 1)
        before = number
        if kind in (I16, I32, I64):
            value = varint(2 * value)
        elif kind == BINARY:
            value = varint(len(value)) + value
        out += value
    return bytes(out) + b"\0"


def items(kind, *values):
    return bytes([0xF0 | kind]) + varint(len(values)) + b"".join(values)


def zstd(data):
    return pa.compress(data, codec="zstd", asbytes=True) if data else b""


def page(data=TEXT, *, values=1, encoding=0, sizes=None, kind=0):
    """A data page (kind 0) or a dictionary (kind 2); ``sizes`` are fields 2 and 3, if they are not the truth."""
    body = zstd(data)
    details = [(1, I32, values), (2, I32, encoding), (3, I32, 3), (4, I32, 3)]
    header = [(1, I32, kind), (2, I32, len(data)), (3, I32, len(body))]
    if sizes is not None:
        header[1:] = sizes(len(data), len(body))
    number = {0: 5, 2: 7}.get(kind, 8)
    return struct(*header, (number, STRUCT, struct(*details[: 2 if kind else 4]))) + body


@dataclass(kw_only=True)
class Forged:
    """A table of two required text columns; what is not said is as it should be."""

    pages: bytes = field(default_factory=page)
    rows: int = 1
    rows_of_group: int | None = None
    rows_of_file: int | None = None
    values: int | None = None
    codec: int = 6
    dictionary: int | None = None
    footer: tuple = ()
    column: tuple = ()

    def write(self, path):
        """Both columns have the same pages, but ``record_id`` a sound one if the table has one row."""
        out, columns = b"PAR1", []
        names = (b"record_id", b"record")
        of_group = self.rows if self.rows_of_group is None else self.rows_of_group
        of_file = of_group if self.rows_of_file is None else self.rows_of_file
        values = of_group if self.values is None else self.values
        for name in names:
            first = len(out)
            pages = page() if name == names[0] and of_group == 1 else self.pages
            out += pages
            data = first if self.dictionary is None else first + self.dictionary
            also = () if self.dictionary is None else ((11, I64, first),)
            details = struct(
                (1, I32, 6), (2, LIST, items(I32, b"\0")), (3, LIST, items(BINARY, varint(len(name)) + name)),
                (4, I32, self.codec), (5, I64, values), (6, I64, len(pages)), (7, I64, len(pages)), (9, I64, data),
                *also, *self.column,
            )  # fmt: skip
            columns.append(struct((2, I64, first), (3, STRUCT, details)))
        schema = [struct((4, BINARY, b"schema"), (5, I32, 2))]
        schema += [struct((1, I32, 6), (3, I32, 0), (4, BINARY, name), (6, I32, 0)) for name in names]  # fmt: skip
        group = struct((1, LIST, items(STRUCT, *columns)), (2, I64, len(out)), (3, I64, of_group))
        fields = [
            (1, I32, 1),
            (2, LIST, items(STRUCT, *schema)),
            (3, I64, of_file),
            (4, LIST, items(STRUCT, group)),
        ]
        footer = struct(*fields, *self.footer)
        path.write_bytes(out + footer + len(footer).to_bytes(4, "little") + b"PAR1")
        return path
