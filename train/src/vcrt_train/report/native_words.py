"""Say what the texts of records give away: whoever reads steps in an environment's own words knows the environment.

Not covered: what else a record might tell.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from vcrt.printable import counted, listed
from vcrt.records.dataset import Dataset, read_policy_records

_WORD = re.compile(r"[^\W\d_]{2,}")
#: How many of an environment's own words are named.
_NAMED = 6


def native_words(dataset: Dataset) -> tuple[str, ...]:
    """A sentence for each environment; none where records have no texts."""
    if not dataset.manifest.record_form.is_text:
        return ()
    texts = {
        name: [
            "\n".join((record.task, *record.steps)).lower()
            for record in read_policy_records(dataset, name).values()
        ]
        for name in dataset.environments
    }
    return tuple(_sentence(name, texts) for name in texts)


def _sentence(name: str, texts: Mapping[str, Sequence[str]]) -> str:
    words = {other: [frozenset(_WORD.findall(text)) for text in of] for other, of in texts.items()}
    own = words[name]
    elsewhere = {
        word for other, some in words.items() if other != name for one in some for word in one
    }
    found = Counter(word for one in own for word in one if word not in elsewhere)
    telling = sum(any(word in found for word in one) for one in own)
    # Not as they were met: sets of texts have another order in each process.
    most = sorted(found.items(), key=lambda item: (-item[1], item[0]))[:_NAMED]
    shares = [f"{word} ({100 * number / len(own):.0f}%)" for word, number in most]
    named = sum(name.lower() in text for text in texts[name])
    text = f"Of {counted(len(own), 'record')} of {name}, {named} name it and {telling} hold a word of it alone"
    return f"{text}: {listed(shares)}." if shares else f"{text}."
