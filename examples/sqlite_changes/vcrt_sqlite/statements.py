"""Where the statements come from: templates, filled from a random generator. Nothing here is trusted.

Whether two statements commute is found out by running them; a bad template costs episodes, not truth.
"""

from __future__ import annotations

from vcrt.environments.contract import Schema
from vcrt.randomness import Generator

#: Each schema with the two statements that it is about, in their reference order.
PAIRS = {
    Schema(name="new_column", summary="a column, then what fills it", relation="precedes"): (
        "ALTER TABLE goods ADD COLUMN {column} INTEGER",
        "UPDATE goods SET {column} = {number} WHERE id = {row}",
    ),
    Schema(name="unique_name", summary="the double goes, then its ban", relation="precedes"): (
        "DELETE FROM goods WHERE id = 4",
        "CREATE UNIQUE INDEX goods_name ON goods (name)",
    ),
    Schema(name="one_price", summary="two changes of one price", relation="conflicts"): (
        "UPDATE goods SET price = price * {factor} WHERE id = {row}",
        "UPDATE goods SET price = price + {number} WHERE id = {row}",
    ),
    Schema(name="column_order", summary="two columns of one table", relation="conflicts"): (
        "ALTER TABLE goods ADD COLUMN {column} INTEGER",
        "ALTER TABLE goods ADD COLUMN {other_column} TEXT",
    ),
}
#: What else happens: statements that commute with each other and with every pair.
OTHERS = (
    "UPDATE goods SET stock = stock - {number} WHERE id = {row}",
    "DELETE FROM goods WHERE id = {other_row}",
    "INSERT INTO goods (id, name, price, stock) VALUES ({new_row}, '{new_name}', {price}, {stock})",
    "INSERT INTO people (id, name) VALUES ({new_row}, '{new_name}')",
    "UPDATE people SET name = '{new_name}' WHERE id = {row}",
    "ALTER TABLE people RENAME COLUMN city TO {column}",
    "CREATE INDEX people_by_name ON people (name)",
    "CREATE TABLE {column} (id INTEGER PRIMARY KEY, person INTEGER)",
)
#: The shop: rows 1 and 4 of goods have the same name.
SETUP = (
    "CREATE TABLE goods (id INTEGER PRIMARY KEY, name TEXT, price INTEGER, stock INTEGER)",
    "CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT, city TEXT)",
    *(
        f"INSERT INTO goods VALUES ({row}, '{{goods[{row % 3}]}}', {{price}} + {row}, {{stock}})"
        for row in (1, 2, 3, 4)
    ),
    *(f"INSERT INTO people VALUES ({row}, '{{people[{row}]}}', '{{city}}')" for row in (1, 2, 3)),
)
WORDS = (
    "amber basil cedar clover copper coral ember fennel flint garnet hazel ivory jasper juniper laurel linen "
    "maple nutmeg olive onyx opal pearl pepper poppy quartz raven saffron sage thyme walnut"
)


def draw(schema: Schema, rng: Generator) -> tuple[list[str], list[str]]:
    """The statements of a setup, and four statements whose reference order has the schema's pair in its order."""
    words = rng.permutation(WORDS.split())
    row, other_row = rng.permutation([2, 3])
    price, stock, number, factor = (rng.integers(2, 1000) for _ in range(4))
    values = {
        "goods": words[:3],
        "people": words[3:7],
        "new_name": words[7],
        "city": words[8],
        "column": words[9],
        "other_column": words[10],
        "row": row,
        "other_row": other_row,
        "new_row": int(rng.integers(5, 1000)),
        "price": price,
        "stock": stock,
        "number": number,
        "factor": factor,
    }
    statements = [OTHERS[i] for i in rng.permutation(len(OTHERS))[:2]]
    for place, statement in zip(sorted(rng.permutation(4)[:2]), PAIRS[schema], strict=True):
        statements.insert(int(place), statement)
    return [s.format(**values) for s in SETUP], [s.format(**values) for s in statements]
