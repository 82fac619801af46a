"""Say what the texts of records give away: whoever reads steps in an environment's own words knows the environment.

Not covered: what else a record might tell (:mod:`vcrt.protocol.anonymity`, which leaves these texts out).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from vcrt.records.dataset import Dataset, read_policy_records
from vcrt.report.wording import counted, listed

_WORD = re.compile(r"[^\W\d_]{2,}")
#: How many of an environment's own words are named.
_NAMED = 6


def native_words(dataset: Dataset) -> tuple[str, ...]:
    """A sentence for each environment; none where records have no texts."""
    if not dataset.manifest.record_form.is_text:
        return ()
    words = {
        name: [
            frozenset(
                word.lower()
                for text in (record.task, *record.steps)
                for word in _WORD.findall(text)
            )
            for record in read_policy_records(dataset, name).values()
        ]
        for name in dataset.environments
    }
    return tuple(_sentence(name, words) for name in words)


def _sentence(name: str, words: Mapping[str, Sequence[frozenset[str]]]) -> str:
    own = words[name]
    elsewhere = {
        word for other, some in words.items() if other != name for one in some for word in one
    }
    found = Counter(word for one in own for word in one if word not in elsewhere)
    telling = sum(any(word in found for word in one) for one in own)
    shares = [
        f"{word} ({100 * number / len(own):.0f}%)" for word, number in found.most_common(_NAMED)
    ]
    named = sum(name.lower() in one for one in own)
    text = f"Of {counted(len(own), 'record')} of {name}, {named} name it and {telling} hold a word of it alone"
    return f"{text}: {listed(shares)}." if shares else f"{text}."
