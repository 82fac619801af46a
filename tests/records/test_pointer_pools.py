"""Pools of pointers by number of operations: records, and their words."""

import pytest

from vcrt.errors import MalformedInputError, TooLargeError
from vcrt.randomness import generator
from vcrt.records.policy_view import (
    LARGE_POOL,
    LARGEST_POOL,
    POINTER_POOL,
    PointerRelation,
    PolicyRecord,
    pointer_pool,
    record_from_json,
    render,
    vocabulary,
)
from vcrt.records.record_form import RecordForm

SIXTEEN = PolicyRecord(
    record_id="never rendered",
    pointers=(0, 2, 3, 5, 8, 9, 11, 12, 14, 17, 20, 21, 25, 28, 30, 31),
    relations=(
        PointerRelation(0, 15, "precedes"),
        PointerRelation(7, 3, "conflicts"),
        PointerRelation(9, 12, "precedes"),
    ),
)


def record(num_operations, pointers=None, **more):
    return PolicyRecord(
        record_id="r",
        pointers=tuple(range(num_operations)) if pointers is None else pointers,
        relations=(),
        **more,
    )


# --- pools ------------------------------------------------------------------------------------------


def test_each_number_of_operations_has_the_smallest_pool_that_holds_it_with_room():
    pools = {n: pointer_pool(n) for n in range(2, 65)}
    assert set(pools.values()) == {POINTER_POOL, LARGE_POOL, LARGEST_POOL} == {8, 32, 64}
    assert [n for n, pool in pools.items() if pool == 8] == [2, 3, 4]
    assert max(n for n, pool in pools.items() if pool == 32) == 32
    assert all(pool >= n for n, pool in pools.items())


@pytest.mark.parametrize(("count", "pool"), [(4, 8), (5, 32), (32, 32), (33, 64), (64, 64)])
def test_a_pointer_beyond_the_pool_is_refused(count, pool):
    assert record(count, (*range(count - 1), pool - 1)).num_operations == count
    with pytest.raises(MalformedInputError, match="outside the pool") as error:
        record(count, (*range(count - 1), pool))
    assert error.value.expected == f"0 to {pool - 1}"


def test_more_than_64_operations_are_too_many():
    with pytest.raises(TooLargeError, match="at most 64") as error:
        record(65)
    assert error.value.found == "65 operations"


def test_a_long_record_comes_back_from_json():
    assert record_from_json(SIXTEEN.to_json()) == SIXTEEN


def test_distractors_come_from_the_pool_of_their_record():
    form = RecordForm(distractors=4)
    found = {
        end
        for number in range(60)
        for d in form.draw_distractors(range(16), generator(number, "distractors"))
        for end in (d.first, d.second)
    }
    assert found == set(range(16, 32))
    far = PointerRelation(40, 63, "precedes")
    assert record(33, distractors=(far,)).distractors == (far,)
    with pytest.raises(MalformedInputError, match="not the record's own"):
        record(32, distractors=(far,))
    with pytest.raises(MalformedInputError, match="at most 1, as the pool has 32 pointers"):
        RecordForm(distractors=2).draw_distractors(range(30), generator(0, "any"))


# --- words ------------------------------------------------------------------------------------------


def test_the_vocabulary_of_few_pointers_begins_that_of_many():
    few, many = vocabulary(), vocabulary(LARGEST_POOL)
    assert few == (
        *("<s>", "<pointers>", "<relations>", ";", "<order>"),
        *("r0", "r1", "r2", "r3", "r4"),
        *(f"p{i}" for i in range(8)),
    )
    assert many == (*few, *(f"p{i}" for i in range(8, 64)))


def test_a_record_of_sixteen_operations_as_words():
    words = render(SIXTEEN, "sorted", generator(0, "any"))
    assert " ".join(words) == (
        "<s> <pointers> p0 p2 p3 p5 p8 p9 p11 p12 p14 p17 p20 p21 p25 p28 p30 p31 <relations> "
        "p0 r1 p31 ; p12 r3 p5 ; p17 r1 p25 ; <order>"
    )
    shuffled = render(SIXTEEN, "shuffled", generator(0, "other"))
    assert sorted(shuffled[2:18]) == sorted(words[2:18])
    backward = {"r1": "r2", "r3": "r4"}
    expected = {("p0", "r1", "p31"), ("p12", "r3", "p5"), ("p17", "r1", "p25")}
    expected |= {(right, backward[relation], left) for left, relation, right in expected}
    body = shuffled[19:-1]
    found = list(zip(body[0::4], body[1::4], body[2::4], strict=True))
    assert len(found) == 3
    assert set(found) <= expected
    assert words == render(SIXTEEN, "sorted", generator(1, "none of it is left to chance"))
