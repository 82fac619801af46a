"""What ``call_method`` gives and takes: arguments by type hints, coroutines, and outputs as a model gets them."""

from __future__ import annotations

import asyncio
import json
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from io import StringIO

import pytest
from pydantic import BaseModel, Field

import vcrt
from vcrt.environments.contract import Provenance, ReplayRequest
from vcrt.environments.shared_prefixes import replay_sharing
from vcrt.environments.tool_calls import (
    Call,
    InvalidCall,
    call_method,
    episode_of_calls,
    operations_of,
    output_text,
)
from vcrt.errors import MalformedInputError


class Colour(Enum):
    RED = "red"


class Line(BaseModel):
    sku: str
    number: int = Field(gt=0)
    price: Decimal


class Bill(BaseModel):
    identifier: uuid.UUID = Field(serialization_alias="id")
    lines: list[Line]
    due: date
    marks: set[str] = set()


@dataclass(frozen=True)
class Payment:
    amount: Decimal
    at: datetime


class Till:
    def __init__(self):
        self.bills = {}

    async def bill(self, customer: str, lines: list[Line], due: date) -> Bill:
        await asyncio.sleep(0)
        identifier = uuid.uuid5(uuid.NAMESPACE_DNS, f"{customer} {due:%Y}")
        made = Bill(identifier=identifier, lines=lines, due=due, marks={"a", "b", "c", "d"})
        self.bills[identifier] = made
        return made

    async def total(self, bill: uuid.UUID) -> Decimal:
        lines = self.bills[bill].lines if bill in self.bills else []
        return sum((line.number * line.price for line in lines), Decimal(0))

    def pay(self, amount: Decimal) -> Payment:
        return Payment(amount, datetime(2026, 1, 5, tzinfo=UTC))

    def double(self, number: int) -> int:
        return 2 * number

    def plain(self, number):
        return [number, number]

    def seen(self, item: str, earlier: list = []):  # noqa: B006
        earlier.append(item)
        return list(earlier)

    def paint(self, colour: Colour, day: "Unknown" = None) -> Colour:  # noqa: F821, UP037
        return colour

    def coloured(self, colour: Colour):
        return [colour, {colour.value: colour}]

    def broken(self, number: int):
        return Line(sku="a", number=-number, price=Decimal(1))


ACME = {
    "customer": "acme",
    "lines": [{"sku": "a", "number": 2, "price": "10.50"}],
    "due": "2026-02-01",
}
ZETA = {"customer": "zeta", "lines": [{"sku": "b", "number": 1, "price": 5}], "due": "2026-02-02"}


class Shop(vcrt.CallEnvironment):
    name = "till"

    def reset(self, initial):
        return Till()

    def call(self, state, name, arguments):
        return call_method(state, name, arguments)


def test_calls_of_tools_with_models_and_async_commute_as_they_should():
    identifier = str(uuid.uuid5(uuid.NAMESPACE_DNS, "acme 2026"))
    calls = [Call("bill", ACME), Call("bill", ZETA), Call("total", {"bill": identifier})]
    provenance = Provenance(source="test", generator="test", seed=0)
    episode = episode_of_calls("till", "log", None, operations_of(calls), provenance)
    requests = [ReplayRequest(episode, order) for order in ((0, 1, 2), (1, 0, 2), (2, 0, 1))]
    one, other, early = replay_sharing(Shop(), requests)
    assert one.state_hashes[2:] == other.state_hashes[2:]
    assert one.output_of[2] == other.output_of[2] == '"21.00"'
    assert early.output_of[2] == '"0"'
    written = json.loads(one.output_of[0])
    assert written["id"] == identifier
    assert written["due"] == "2026-02-01"
    assert written["lines"] == [{"sku": "a", "number": 2, "price": "10.50"}]
    assert written["marks"] == ["a", "b", "c", "d"]


def test_arguments_become_what_hints_say_and_nothing_else_does():
    till = Till()
    assert call_method(till, "double", {"number": "21"}) == 42
    assert call_method(till, "plain", {"number": "21"}) == ["21", "21"]
    assert call_method(till, "paint", {"colour": "red"}) == "red"  # a hint that nobody can read
    assert output_text(call_method(till, "coloured", {"colour": "red"})) == '["red",{"red":"red"}]'
    assert output_text(call_method(till, "pay", {"amount": 3})) == (
        '{"amount":"3","at":"2026-01-05T00:00:00Z"}'
    )


def test_what_is_left_out_stays_the_functions_own():
    Till.seen.__defaults__[0].clear()
    till = Till()
    assert call_method(till, "seen", {"item": "a"}) == ["a"]
    assert call_method(till, "seen", {"item": "b"}) == ["a", "b"]
    assert call_method(till, "seen", {"item": "c", "earlier": []}) == ["c"]


@pytest.mark.parametrize(
    ("name", "arguments", "found"),
    [
        ("double", {"number": "many"}, "number: Input should be a valid integer"),
        ("double", {"number": 2.5}, "number: Input should be a valid integer"),
        ("bill", {**ACME, "lines": [{"sku": "a", "number": 0, "price": 1}]}, "lines.0.number"),
        ("bill", {**ACME, "due": "soon"}, "due: Input should be a valid date"),
        ("double", {}, "missing a required argument: 'number'"),
        ("double", {"number": 1, "more": 2}, "unexpected keyword argument 'more'"),
    ],
)
def test_arguments_that_hints_do_not_allow_are_an_invalid_call(name, arguments, found):
    with pytest.raises(InvalidCall, match=found):
        call_method(Till(), name, arguments)


def test_a_model_that_a_tool_itself_makes_wrong_is_no_invalid_call():
    with pytest.raises(ValueError, match="greater than 0"):
        call_method(Till(), "broken", {"number": 1})


def nested(depth):
    value: list = []
    for _ in range(depth):
        value = [value]
    return value


class Gives(vcrt.CallEnvironment):
    name = "gives"

    def __init__(self, output):
        self.output = output

    def reset(self, initial):
        return {}

    def call(self, state, name, arguments):
        return self.output


def closed():
    stream = StringIO("x")
    stream.close()
    return stream


def test_outputs_that_are_deep_large_or_closed_are_written():
    (operation,) = operations_of([Call("any", {})])
    for output in (nested(700), 10**5_000, closed()):
        assert Gives(output).step({}, operation).output == Gives(output).step({}, operation).output


def test_an_output_that_cannot_be_written_is_named_with_its_call():
    (operation,) = operations_of([Call("any", {})])
    with pytest.raises(MalformedInputError, match="an output that is no JSON") as caught:
        Gives(nested(100_000)).step({}, operation)
    assert "any(), output" in caught.value.where
