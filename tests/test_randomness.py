"""Random numbers against NumPy's, whose streams golden episodes were drawn from."""

import random

import numpy as np
import pytest

from vcrt.randomness import Generator, derive_seed, generator

SIZES = (1, 2, 3, 7, 100, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**40, 2**62, 2**63 - 1)
SEEDS = (0, 1, 2**31, 2**32, 2**64 - 1, 2**64, 2**128, 2**200 + 17)


@pytest.mark.parametrize("seed", [*SEEDS, *(derive_seed(7, number) for number in range(60))])
def test_the_numbers_are_those_of_numpy(seed):
    ours, theirs = Generator(seed), np.random.Generator(np.random.PCG64(seed))
    choose = random.Random(seed)
    for _ in range(60):
        low = choose.randrange(-1000, 1000)
        number = choose.choice([*SIZES, choose.randrange(1, 2**33)])
        items = [choose.choice("abcdef") for _ in range(choose.randrange(1, 40))]
        match choose.randrange(6):
            case 0:
                assert ours.random() == theirs.random()
            case 1:
                assert ours.integers(number) == theirs.integers(number)
            case 2:
                assert ours.integers(low, low + 90) == theirs.integers(low, low + 90)
            case 3:
                assert ours.permutation(len(items)) == theirs.permutation(len(items)).tolist()
                assert ours.permutation(items) == theirs.permutation(items).tolist()
            case 4:
                again = list(items)
                ours.shuffle(items)
                theirs.shuffle(again)
                assert items == again
            case 5:
                assert ours.choice(items) == theirs.choice(items)


def test_names_part_generators():
    drawn = [
        generator(seed, *names).integers(2**62)
        for seed in (0, 1)
        for names in ((), ("a",), ("a", 1))
    ]
    assert len(set(drawn)) == 6
    assert drawn[1] == generator(0, "a").integers(2**62)


@pytest.mark.parametrize("bounds", [(0,), (-1,), (3, 3), (4, 3)])
def test_nothing_is_drawn_from_nothing(bounds):
    with pytest.raises(ValueError, match="no whole number"):
        generator(0).integers(*bounds)
