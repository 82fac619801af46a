"""Show a record as words: the prompts that models read, and the row that whoever holds the policy file reads.

A prompt is probed in both forms that ``model.relation_names`` has: with opaque names of relations, and in words.

A question about an order is put by renaming: each pointer and slot becomes its place in that order, so that an order is
legal if the right one of two places comes first, whatever the pointers are. For a question without relations these are
cut out first; :func:`prompt_words` and :func:`row_words` say what is left.

Features are counts of words, of two and of three words in a row, and each word at its position; for a question also
which pointers it asks about, and which of two is the lower. Not covered: combinations beyond these, such as the parity
of two characters of an identity.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import comb
from typing import get_args

import numpy as np
import numpy.typing as npt

from vcrt.orders import Order
from vcrt.records.policy_view import (
    ANSWER,
    POINTER_TOKENS,
    RELATION_TOKENS,
    RELATIONS,
    Serialisation,
    in_words,
    render,
)
from vcrt_research.anonymity.material import ProbedRecord
from vcrt_research.anonymity.result import IN_WORDS, WordView
from vcrt_research.anonymity.tasks import Task
from vcrt_train.randomness import generator

WORD_VIEWS: tuple[WordView, ...] = get_args(WordView)

#: Random renderings of one record whose features are added up.
NUM_RENDERINGS = 4
#: A feature that fewer records have is left out.
MIN_RECORDS_WITH_FEATURE = 5
#: Parts of a file, and periods, whose traces in the order of rows are looked for.
NUM_PARTS, PERIODS = 16, range(2, 9)

_RELATION_LIST = re.compile(r'(?<="relations":)\s*\[.*\](?=\s*\})', re.DOTALL)
_PIECES = re.compile(r"[a-z]+\d*|\d+|[^a-z\d]+")
_RELATION_WORDS = frozenset(token for pair in RELATION_TOKENS.values() for token in pair)


def word_features(task: Task, view: WordView, seed: int) -> npt.NDArray[np.float64]:
    """``[n, d]``: the features of each record of a task in a view."""
    from sklearn.feature_extraction.text import CountVectorizer

    documents = [
        features_of_words(record, question, view, task.shows_relations, seed)
        for record, question in zip(task.records, task.questions, strict=True)
    ]
    counts = CountVectorizer(analyzer=_as_given, min_df=MIN_RECORDS_WITH_FEATURE)
    direct: npt.NDArray[np.float64] = counts.fit_transform(documents).toarray().astype(np.float64)
    return direct


def row_order_features(task: Task) -> npt.NDArray[np.float64]:
    """``[n, d]``: in which part of its file a record stands, and its place in periods of several lengths."""
    columns = []
    for record in task.records:
        part = np.eye(NUM_PARTS)[NUM_PARTS * record.row // record.num_rows]
        columns.append(np.concatenate([part, *(np.eye(p)[record.row % p] for p in PERIODS)]))
    return np.stack(columns)


def _as_given(words: Sequence[str]) -> Sequence[str]:
    return words


def features_of_words(
    record: ProbedRecord,
    question: Order | None,
    view: WordView,
    shows_relations: bool,
    seed: int,
) -> list[str]:
    """The names of a record's features, each as often as it occurs."""
    if view == "file row":
        pieces = row_words(record, question, shows_relations)
        words = [piece for piece in pieces if piece[0].isalnum()]
        found = [*_grams(words), *_at_positions(pieces), *pieces]
        found += [f"id {i} {c}" for i, c in enumerate(record.record_id)]
    else:
        serialisation: Serialisation = "sorted" if view.endswith("sorted") else "shuffled"
        found = []
        for copy in range(NUM_RENDERINGS):
            draw = generator(seed, "probe", view, record.record_id, copy)
            words = prompt_words(record, serialisation, question, shows_relations, draw)
            if view in IN_WORDS:
                words = [word for phrase in in_words(words) for word in phrase.split()]
            found += [*_grams(words), *_at_positions(words)]
    if question is not None:
        asked = [record.record.pointers[slot] for slot in question]
        found += [f"asked {place} {pointer}" for place, pointer in enumerate(asked)]
        found += [
            f"ascends {i} {j}" for i, j in combinations(range(len(asked)), 2) if asked[i] < asked[j]
        ]
    return found


def prompt_words(
    record: ProbedRecord,
    serialisation: Serialisation,
    question: Order | None,
    shows_relations: bool,
    draw: np.random.Generator,
) -> list[str]:
    """The rendered prompt, with relations by their opaque names.

    Without relations, the sorted prompt loses them altogether, since it sorts and directs them by what they say. The
    shuffled prompt keeps their pointers, whose sequence and direction it promises to be random, and loses their types;
    unless some pair has no relation, so that those that have one tell. Distractors are left among them.
    """
    shown = record.record
    num_pairs = comb(shown.num_operations, 2)
    if not shows_relations and len(shown.relations) < num_pairs:
        shown = replace(shown, relations=())
    words = render(shown, serialisation, draw)
    if not shows_relations:
        if serialisation == "sorted":
            words = [*words[: words.index(RELATIONS) + 1], ANSWER]
        words = ["?" if word in _RELATION_WORDS else word for word in words]
    if question is None:
        return words
    asked = [POINTER_TOKENS[shown.pointers[slot]] for slot in question]
    pool = POINTER_TOKENS[: shown.pool]
    others = [token for token in pool if token not in asked]
    names = {token: f"q{place}" for place, token in enumerate((*asked, *others))}
    return [names.get(word, word) for word in words]


def row_words(record: ProbedRecord, question: Order | None, shows_relations: bool) -> list[str]:
    """The text of the record's row in words and what stands between them; its identity is one word.

    Without relations, what stands in their brackets is left out.
    """
    text = record.text.replace(record.record_id, "#")
    listed = _RELATION_LIST.search(text)
    start, end = listed.span() if listed else (len(text), len(text))
    around, relations = (text[:start], text[end:]), text[start:end] if shows_relations else ""
    if question is not None:
        pointers = {str(record.record.pointers[s]): f"q{k}" for k, s in enumerate(question)}
        slots = {str(s): f"q{k}" for k, s in enumerate(question)}
        around = (_renamed(around[0], pointers), _renamed(around[1], pointers))
        relations = _renamed(relations, slots)
    return _PIECES.findall(around[0] + relations + around[1])


def _renamed(text: str, names: Mapping[str, str]) -> str:
    return re.sub(r"\d+", lambda number: names.get(number[0], number[0]), text)


def _grams(words: Sequence[str]) -> Iterator[str]:
    for size in (1, 2, 3):
        for start in range(len(words) - size + 1):
            yield " ".join(words[start : start + size])


def _at_positions(words: Sequence[str]) -> Iterator[str]:
    return (f"@{position} {word}" for position, word in enumerate(words))
