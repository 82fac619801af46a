"""Generate episodes of migrations: one dependent pair among four operations, or several dependent ones of any number.

An app with two models and some rows stands before the steps. Certification decides whether a pair depends as designed.
Names are drawn at random and reveal nothing about a step's role in the episode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from vcrt.environments.contract import AntiDiamonds, Episode, Operation, Provenance, Schema
from vcrt.environments.posets import (
    DrawnRelations,
    Pairs,
    below_of,
    long_schemas,
    several_schema,
)
from vcrt.hashing import Json
from vcrt.randomness import Generator, fresh_names, generator, pick

_NAMES = 300
_ROWS = 3
_KEY = '("id", models.BigAutoField(primary_key=True))'
#: The dependent pair of operations and, if need be, what stands before the steps for it.
_Pair: TypeAlias = tuple[str, str]


class _App:
    """The app before the steps, with unused names."""

    def __init__(self, rng: Generator) -> None:
        self.rng = rng
        self._names: Iterator[str] = iter(fresh_names(rng, _NAMES))
        self.label = self.name()
        self.before = list[str]()
        self.tables: dict[str, list[str]] = {}
        for _ in range(2):
            self.add_model(number=8)

    def name(self) -> str:
        """Return a new name."""
        return next(self._names)

    def number(self, low: int, high: int) -> int:
        """Draw a number from ``low`` to ``high``."""
        return int(self.rng.integers(low, high + 1))

    def add_model(self, *, number: int) -> str:
        """Add a model with nullable integer fields, and rows of which some are equal."""
        model, fields = self.name().capitalize(), [self.name() for _ in range(number)]
        columns = [_KEY, *(f'("{field}", models.IntegerField(null=True))' for field in fields)]
        self.before.append(_created(model, columns))
        rows = [
            ["NULL" if row == 2 else str(1 + place % 2) for place in range(number)]
            for row in range(_ROWS)
        ]
        self.before.append(
            _sql(
                *(
                    f'INSERT INTO "{self.table(model)}" ({", ".join(fields)}) VALUES ({", ".join(row)})'
                    for row in rows
                )
            )
        )
        self.tables[model] = fields
        return model

    def table(self, model: str) -> str:
        """Return the table of a model."""
        return f"{self.label}_{model.lower()}"

    def model(self) -> str:
        """Return one of the models."""
        return pick(self.rng, list(self.tables))

    def field(self, model: str) -> str:
        """Return a field that no step uses yet."""
        return self.tables[model].pop()

    def column(self) -> str:
        """Draw a field of some kind that existing rows can have."""
        kinds = (
            "models.IntegerField(null=True)",
            f"models.IntegerField(default={self.number(0, 9)})",
            f"models.CharField(max_length={self.number(10, 99)}, null=True)",
            f'models.CharField(max_length={self.number(10, 99)}, default="{self.name()}")',
            "models.BooleanField(default=False)",
            'models.TextField(default="", blank=True)',
            "models.DateField(null=True)",
            f"models.DecimalField(max_digits={self.number(5, 9)}, decimal_places=2, null=True)",
            "models.FloatField(null=True)",
            "models.UUIDField(null=True)",
        )
        return pick(self.rng, kinds)

    def reference(self, model: str) -> str:
        """Return a nullable key to a model."""
        return f'models.ForeignKey("{self.label}.{model}", on_delete=models.CASCADE, null=True)'

    def index(self, model: str, *fields: str) -> str:
        """Return a step that adds an index."""
        names = ", ".join(f'"{field}"' for field in fields)
        return (
            f'migrations.AddIndex("{model}", models.Index(fields=[{names}], name="{self.name()}"))'
        )

    def constraint(self, model: str, field: str) -> str:
        """Return a step that makes a field unique, in one of three ways."""
        ways = (
            f'migrations.AddConstraint("{model}", models.UniqueConstraint(fields=["{field}"], name="{self.name()}"))',
            f'migrations.AlterField("{model}", "{field}", models.IntegerField(null=True, unique=True))',
            f'migrations.AlterUniqueTogether("{model}", {{("{field}",)}})',
        )
        return pick(self.rng, ways)

    def other(self) -> str:
        """Return a step that needs nothing else."""
        model = self.model()
        ways: tuple[Callable[[], str], ...] = (
            lambda: f'migrations.AddField("{model}", "{self.name()}", {self.column()})',
            lambda: self.index(model, self.field(model)),
            lambda: _created(
                self.name().capitalize(), [_KEY, f'("{self.name()}", {self.column()})']
            ),
            lambda: (
                f'migrations.AlterField("{model}", "{self.field(model)}", models.BigIntegerField(null=True))'
            ),
            lambda: f'migrations.RenameField("{model}", "{self.field(model)}", "{self.name()}")',
            lambda: f'migrations.RemoveField("{model}", "{self.field(model)}")',
            lambda: self.change("add", model, self.field(model), self.number(1, 9)),
        )
        # Long episodes use up the fields of a model.
        return pick(self.rng, ways if self.tables[model] else (ways[0], ways[2]))()

    def other_statement(self) -> str:
        """Return a statement of SQL that needs nothing else."""
        model = self.model()
        ways: tuple[Callable[[], str], ...] = (
            lambda: f'CREATE TABLE "{self.name()}" ({self.name()} integer NULL)',
            lambda: f'CREATE INDEX "{self.name()}" ON "{self.table(model)}" ({self.field(model)})',
            lambda: f'UPDATE "{self.table(model)}" SET {self.field(model)} = {self.number(3, 99)}',
        )
        return _sql(pick(self.rng, ways)())

    def change(self, kind: str, model: str, field: str, argument: str | int) -> str:
        """Return a step that changes rows."""
        shown = f'"{argument}"' if isinstance(argument, str) else str(argument)
        return f'migrations.RunPython(rows.{kind}("{self.label}.{model}", "{field}", {shown}))'


def _created(model: str, columns: Sequence[str]) -> str:
    return f'migrations.CreateModel("{model}", [{", ".join(columns)}])'


def _sql(*statements: str) -> str:
    """Return a step of SQL; Django runs a list of statements unchanged, but would parse a text."""
    return f"migrations.RunSQL({list(statements)!r})"


def sample_episode(schema: Schema, seed: int) -> Episode:
    """Return a candidate episode of ``schema``."""
    rng = generator(seed, "django", schema.name)
    app = _App(rng)
    if schema.num_steps is None:
        *_, generate = _FAMILIES[schema.name]
        pair = generate(app)
        other = app.other_statement if schema.name == "statements" else app.other
        steps = _arranged(rng, [*pair, other(), other()])
    else:
        drawn = DrawnRelations.of(schema, below_of(rng))
        steps = drawn.arranged(_linked_steps(app, drawn.pairs, drawn.num_steps), below_of(rng))
    name = f"django.{schema.name}"
    initial: Json = {"app": app.label, "before": list(app.before)}
    return Episode(
        environment="django",
        schema=schema.name,
        initial=initial,
        operations=tuple(Operation(signature=app.name(), payload=step) for step in steps),
        provenance=Provenance(source=f"{name}/seed={seed}", generator=name, seed=seed),
    )


def _arranged(rng: Generator, steps: Sequence[str]) -> list[str]:
    """Return a random order in which the first two keep their order; all such orders are equally likely."""
    places = rng.permutation(len(steps))
    places[:2] = sorted(places[:2])
    placed = dict(zip(places, steps, strict=True))
    return [placed[place] for place in range(len(steps))]


def _creates(app: _App) -> _Pair:
    model, field, aside = app.name().capitalize(), app.name(), app.model()
    first = _created(model, [_KEY, f'("{field}", models.IntegerField(null=True))'])
    seconds = (
        f'migrations.AddField("{model}", "{app.name()}", {app.column()})',
        app.index(model, field),
        _created(app.name().capitalize(), [_KEY, f'("{app.name()}", {app.reference(model)})']),
        f'migrations.AddField("{aside}", "{app.name()}", {app.reference(model)})',
        app.constraint(model, field),
        f'migrations.RenameModel("{model}", "{app.name().capitalize()}")',
    )
    return first, pick(app.rng, seconds)


def _renames(app: _App) -> _Pair:
    model = app.model()
    old, new = app.field(model), app.name()
    seconds = (
        f'migrations.AddField("{model}", "{old}", models.IntegerField(null=True))',
        f'migrations.AlterField("{model}", "{new}", models.BigIntegerField(null=True))',
        f'migrations.RemoveField("{model}", "{new}")',
        f'migrations.RenameField("{model}", "{new}", "{app.name()}")',
        app.index(model, new),
        app.constraint(model, new).replace("unique=True", "db_index=True"),
        app.change("add", model, new, app.number(1, 9)),
    )
    if app.rng.random() < 0.2:
        alone = app.add_model(number=1)
        app.tables.pop(alone)
        renamed = app.name().capitalize()
        first = f'migrations.RenameModel("{alone}", "{renamed}")'
        return first, f'migrations.AddField("{renamed}", "{app.name()}", {app.column()})'
    second = pick(app.rng, seconds)
    if "nique" in second:
        app.before.append(app.change("copy", model, old, "id"))
    return f'migrations.RenameField("{model}", "{old}", "{new}")', second


def _removes(app: _App) -> _Pair:
    model = app.model()
    field, index = app.field(model), app.name()
    if app.rng.random() < 0.3:
        alone, key = app.add_model(number=1), app.name()
        app.tables.pop(alone)
        app.before.append(f'migrations.AddField("{model}", "{key}", {app.reference(alone)})')
        first = f'migrations.RemoveField("{model}", "{key}")'
        return first, f'migrations.DeleteModel("{alone}")'
    if app.rng.random() < 0.5:
        app.before.append(
            f'migrations.AddIndex("{model}", models.Index(fields=["{field}"], name="{index}"))'
        )
        first = f'migrations.RemoveIndex("{model}", "{index}")'
    else:
        first = app.change("copy", model, app.field(model), field)
    return first, f'migrations.RemoveField("{model}", "{field}")'


def _unique(app: _App) -> _Pair:
    model = app.model()
    field = app.field(model)
    return app.change("copy", model, field, "id"), app.constraint(model, field)


def _backfills(app: _App) -> _Pair:
    model = app.model()
    field = app.field(model)
    kind = pick(app.rng, ("IntegerField", "BigIntegerField"))
    second = f'migrations.AlterField("{model}", "{field}", models.{kind}())'
    return app.change("fill", model, field, app.number(3, 99)), second


def _overwrites(app: _App) -> _Pair:
    model = app.model()
    field, table = app.field(model), app.table(model)
    changes = [
        app.change("fill", model, field, app.number(3, 99)),
        app.change("add", model, field, app.number(1, 9)),
        app.change("scale", model, field, app.number(2, 9)),
        _sql(f'UPDATE "{table}" SET {field} = 3 * {field} + {app.number(1, 99)}'),
    ]
    low, high = app.number(20, 50), app.number(60, 99)
    columns = [f"models.CharField(max_length={size}, null=True)" for size in (low, high)]
    if app.rng.random() < 0.3:
        changes = [f'migrations.AlterField("{model}", "{field}", {column})' for column in columns]
    first, second = app.rng.permutation(len(changes))[:2]
    return changes[first], changes[second]


def _statements(app: _App) -> _Pair:
    table, column, more = app.name(), app.name(), app.name()
    model = app.model()
    made = f'CREATE TABLE "{table}" ({column} integer NULL, {more} integer NULL)'
    added = f'ALTER TABLE "{app.table(model)}" ADD COLUMN {more} integer NULL'
    pairs = (
        (made, f'INSERT INTO "{table}" ({column}) VALUES ({app.number(0, 99)})'),
        (made, f'CREATE INDEX "{app.name()}" ON "{table}" ({column}, {more})'),
        (made, f'ALTER TABLE "{table}" ADD COLUMN {app.name()} integer NULL'),
        (added, f'UPDATE "{app.table(model)}" SET {more} = {app.number(0, 99)}'),
        (added, f'CREATE INDEX "{app.name()}" ON "{app.table(model)}" ({more})'),
    )
    first, second = pick(app.rng, pairs)
    return _sql(first), _sql(second)


def _linked_steps(app: _App, pairs: Pairs, num_steps: int) -> list[str]:
    """Return models, fields and indexes, each of which names what the steps before it in ``pairs`` made."""
    made, steps = list[str](), list[str]()
    for step in range(num_steps):
        needed = [made[a] for a, b in sorted(pairs) if b == step]
        leads = any(a == step for a, _ in pairs)
        model, field = app.name().capitalize(), app.name()
        made.append(model)
        if not needed and not leads:
            steps.append(app.other())
        elif len(needed) == 1 and not leads and app.rng.random() < 0.5:
            ways = (
                f'migrations.AddField("{needed[0]}", "{field}", {app.column()})',
                app.index(needed[0], "id"),
                f'migrations.AddField("{app.model()}", "{field}", {app.reference(needed[0])})',
            )
            steps.append(pick(app.rng, ways))
        else:
            keys = [f'("{app.name()}", {app.reference(other)})' for other in needed]
            steps.append(_created(model, [_KEY, f'("{field}", {app.column()})', *keys]))
    return steps


_Generator: TypeAlias = Callable[[_App], _Pair]
#: By name: the content of an episode, how its pair depends, and its generator.
_FAMILIES: Mapping[str, tuple[str, AntiDiamonds, _Generator]] = {
    "creates": ("a model, and what is added to it or refers to it", "precedes", _creates),
    "renames": ("a field or model renamed, and a step under its new name", "precedes", _renames),
    "removes": (
        "what has to go, or to be copied, before a field or model goes",
        "precedes",
        _removes,
    ),
    "unique": ("rows that are made different, and a constraint that they are", "precedes", _unique),
    "backfills": (
        "rows that are filled, and a field that must not be null",
        "precedes",
        _backfills,
    ),
    "overwrites": ("two changes of one field, in rows or in kind", "conflicts", _overwrites),
    "statements": (
        "plain SQL: a table or column, and a statement about it",
        "precedes",
        _statements,
    ),
}
SCHEMAS = (
    *(
        Schema(name=name, summary=summary, relation=relation)
        for name, (summary, relation, _) in _FAMILIES.items()
    ),
    several_schema("models", "models, several of which refer to others", "precedes"),
    *long_schemas("operations, some of which need what others make", "precedes"),
)
