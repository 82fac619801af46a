"""What a report says of the words of a task."""

from __future__ import annotations

import os
import subprocess
import sys


def test_words_of_equal_shares_stand_in_one_order_in_every_process(tmp_path):
    """Sets of texts are not: what a report says must not depend on the process that says it."""
    script = (
        "from vcrt_train.report.task import _sentence\n"
        "print(_sentence('a_1', {'a_1': ['of a_1: one two three four five six seven eight'] * 2, 'b': ['x']}))"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(2)
    }
    (sentence,) = said
    assert sentence.startswith(
        "Of 2 records of a_1, 2 name it and 2 hold a word of it alone: eight"
    )
