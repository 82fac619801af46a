from __future__ import annotations

import json
import time
from contextlib import redirect_stdout, suppress
from io import StringIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proofwriter_support import data_file
from vcrt.errors import MalformedInputError, VcrtError
from vcrt_proofwriter import answers
from vcrt_proofwriter.answers import theories
from vcrt_proofwriter.command import print_answers
from vcrt_proofwriter.engine import holding, truth
from vcrt_proofwriter.english import parse_question, parse_theory, theory_text
from vcrt_proofwriter.files import (
    LabelledTheory,
    Refused,
    parse_atom,
    parse_rule,
    read_row,
    read_rows,
    read_theories,
)
from vcrt_proofwriter.theory import Atom, Rule, Theory

ENGLISH = "proofwriter_owa_d5_english.jsonl"
STRUCTURED = "proofwriter_meta_sample.jsonl"


def num_right(labelled: LabelledTheory, facts: frozenset[str]) -> int:
    return sum(
        truth(q.atom, facts, labelled.theory.assumption) == q.answer for q in labelled.questions
    )


def parsed(row: dict, where: str = "text") -> LabelledTheory:
    read = read_row(json.dumps(row), where)
    if isinstance(read, Refused):
        assert read.where == where
        assert read.id == (row.get("id") if isinstance(row.get("id"), str) else None)
        raise read.error
    assert read.where == where
    return read


# --- real data ------------------------------------------------------------------------------------


def test_structured_sample_is_read_and_answered() -> None:
    rows = list(read_theories(data_file(STRUCTURED)))
    assert [row.theory.assumption for row in rows] == ["CWA", "CWA", "OWA"]
    assert [len(row.theory.facts) for row in rows] == [4, 12, 7]
    assert [len(row.theory.rules) for row in rows] == [2, 6, 3]
    assert [len(row.questions) for row in rows] == [12, 7, 7]
    assert [num_right(row, holding(row.theory)) for row in rows] == [12, 7, 7]
    assert {q.answer for q in rows[2].questions} == {"True", "False", "Unknown"}


def test_structured_and_english_agree() -> None:
    path = data_file(STRUCTURED)
    for line, row in zip(path.read_text().splitlines(), read_theories(path), strict=True):
        text = json.loads(line)["theory"]
        assert parse_theory(text, assumption=row.theory.assumption) == row.theory
        for question in row.questions:
            assert parse_question(question.text) == question.atom


def test_all_english_rows_are_read_and_written_again() -> None:
    rows = list(read_theories(data_file(ENGLISH)))
    assert len(rows) == 2500
    assert sum(len(row.questions) for row in rows) == 3731
    assert {q.answer for row in rows for q in row.questions} == {"True", "False", "Unknown"}
    for row in rows:
        assert parse_theory(theory_text(row.theory), assumption="OWA") == row.theory


def checked(*paths) -> str:
    output = StringIO()
    with redirect_stdout(output):
        print_answers(theories(paths))
    return output.getvalue()


@pytest.mark.slow
def test_command_answers_all_real_questions_as_labelled() -> None:
    output = checked(data_file(ENGLISH), data_file(STRUCTURED))
    assert output.count("3731/3731") == output.count("26/26") == 2
    assert "2500/2500" in output
    assert "3/3" in output


def test_command_finds_a_wrong_label(tmp_path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(GOOD_ENGLISH))
    assert checked(path).count("1/1") == 3
    path.write_text(json.dumps(changed(GOOD_ENGLISH, ("questions", 0, "answer"), "Unknown")))
    with pytest.raises(VcrtError, match="2 differ"):
        checked(path)


def test_command_names_the_line_of_a_theory_without_a_model(tmp_path) -> None:
    path = tmp_path / "rows.jsonl"
    broken = changed(GOOD_ENGLISH, ("theory",), "Bob is red. Bob is not red.")
    path.write_text(json.dumps(GOOD_ENGLISH) + "\n" + json.dumps(broken))
    with pytest.raises(MalformedInputError, match="contradicts itself") as caught:
        checked(path)
    assert caught.value.where == f"{path}, line 2"


def test_command_finds_a_model_that_is_not_clingos(tmp_path, monkeypatch) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(GOOD_ENGLISH))
    monkeypatch.setattr(answers, "holding", lambda theory: frozenset())
    with pytest.raises(VcrtError, match="2 differ"):
        checked(path)


# --- English --------------------------------------------------------------------------------------


def test_english_grammar() -> None:
    read = parse_theory(
        "The bald eagle does not see Bob. Bob sees the bald eagle. Young, big things are not red. "
        "All kind people like the bald eagle. If someone is big and not red then they carry Bob. "
        "If the cat watches something then it does not watch the bald eagle.",
        assumption="OWA",
    )
    eagle = "bald eagle"
    assert read.facts == (Atom(eagle, "sees", "Bob", "-"), Atom("Bob", "sees", eagle))
    conditions = [rule.conditions for rule in read.rules]
    assert conditions == [
        (Atom("something", "is", "young"), Atom("something", "is", "big")),
        (Atom("someone", "is", "kind"),),
        (Atom("someone", "is", "big"), Atom("someone", "is", "red", "-")),
        (Atom("cat", "watches", "something"),),
    ]
    assert [rule.conclusion for rule in read.rules] == [
        Atom("something", "is", "red", "-"),
        Atom("someone", "likes", eagle),
        Atom("someone", "carries", "Bob"),
        Atom("something", "watches", eagle, "-"),
    ]


def test_negated_condition_depends_on_the_assumption() -> None:
    text = "If Bob is not red then Bob is big."
    polarity = {
        world: parse_theory(text, assumption=world).rules[0].conditions[0].polarity
        for world in ("CWA", "OWA")
    }
    assert polarity == {"CWA": "~", "OWA": "-"}


@pytest.mark.parametrize(
    "sentence",
    [
        "",
        "Bob",
        "Bob is",
        "Bob is Red",
        "Bob is not",
        "Bob is very red",
        "Bob Ann",
        "bob is red",
        "Someone is red",
        "They are red",
        "If Bob is red",
        "If Bob is red then",
        "If then Bob is red",
        "If red then Bob is red",
        "If Bob is red then then Bob is big",
        "If Bob is red then they are big",
        "If someone is red then it is big",
        "If someone sees something then Bob is red",
        "If Bob is red then someone is big",
        "All people are red",
        "Red big people are kind",
        "Red, people are kind",
        "All Red people are kind",
        "Red people",
        "People",
        "Bob likes",
        "Bob likes cat",
        "The likes the cat",
        "Bob does like Ann",
        "Bob 2 is red",
        'Bob is "red"',
        "If Bob is red, big then Bob is kind",
    ],
)
def test_sentence_outside_the_grammar_is_refused(sentence: str) -> None:
    with pytest.raises(MalformedInputError) as caught:
        parse_theory(f"Ann is red. {sentence}. Ann is big.", assumption="OWA", where="here")
    assert (caught.value.where or "").startswith("here")


@pytest.mark.parametrize("text", ["", " ", ".", "Bob is red", "Bob is red. Bob is big"])
def test_text_without_full_stops_is_refused(text: str) -> None:
    with pytest.raises(MalformedInputError):
        parse_theory(text, assumption="OWA")


def test_negative_fact_under_a_closed_world_is_refused() -> None:
    with pytest.raises(MalformedInputError, match="fact 2"):
        parse_theory("Bob is red. Bob is not big.", assumption="CWA", where="a file")


# --- rows -----------------------------------------------------------------------------------------

GOOD_ENGLISH = {
    "id": "AttNeg-OWA-D5-1",
    "theory": "Bob is red.",
    "questions": [{"question": "Bob is red.", "answer": "True"}],
}
GOOD_STRUCTURED = {
    "id": "AttNeg-CWA-D5-1",
    "triples": {"triple1": {"representation": '("Bob" "is" "red" "+")'}, "triple2": None},
    "rules": {
        "rule1": {"representation": '((("someone" "is" "red" "~")) -> ("someone" "is" "big" "+"))'},
        "rule2": None,
    },
    "questions": {
        "Q1": {
            "question": "Bob is red.",
            "answer": True,
            "QDep": 0,
            "QLen": "1",
            "representation": '("Bob" "is" "red" "+")',
        }
    },
}


def changed(row: dict, path: tuple, value: object) -> dict:
    copy = json.loads(json.dumps(row))
    target = copy
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return copy


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("id",), None, "'id'"),
        (("id",), "AttNeg-D5", "closed or open"),
        (("id",), "CWA-OWA", "closed or open"),
        (("theory",), 3, "'theory'"),
        (("theory",), "", "full stop"),
        (("questions",), {}, "'questions'"),
        (("questions", 0), "Bob is red.", "question 1"),
        (("questions", 0, "question"), "All red people are big.", "named entities"),
        (("questions", 0, "answer"), "Maybe", "'answer'"),
        (("questions", 0, "answer"), 1, "'answer'"),
    ],
)
def test_malformed_english_row(path, value, says) -> None:
    parsed(GOOD_ENGLISH)
    with pytest.raises(MalformedInputError) as caught:
        parsed(changed(GOOD_ENGLISH, path, value), "f, line 7")
    assert says in str(caught.value)
    assert (caught.value.where or "").startswith("f, line 7")


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("triples",), None, "'triples'"),
        (("rules",), [], "'rules'"),
        (("triples", "triple1"), [], "triples.triple1"),
        (("triples", "triple1", "representation"), "", "triples.triple1"),
        (("triples", "triple1", "representation"), '("Bob" "is" "red" "~")', "fact 1"),
        (("triples", "triple1", "representation"), '("Bob" "is" "red" "-")', "fact 1"),
        (("triples", "triple1", "representation"), '("someone" "is" "red" "+")', "fact 1"),
        (("rules", "rule1", "representation"), '("Bob" "is" "red" "+")', "not a rule"),
        (("rules", "rule1", "representation"), '(() -> ("Bob" "is" "red" "+"))', "condition"),
        (("questions", "Q1", "representation"), None, "questions.Q1"),
        (("questions", "Q1", "representation"), '("someone" "is" "red" "+")', "variable"),
        (("questions", "Q1", "answer"), None, "'answer'"),
    ],
)
def test_malformed_structured_row(path, value, says) -> None:
    parsed(GOOD_STRUCTURED)
    with pytest.raises(MalformedInputError) as caught:
        parsed(changed(GOOD_STRUCTURED, path, value), "f, line 7")
    assert says in str(caught.value)
    assert (caught.value.where or "").startswith("f, line 7")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "empty line"),
        ("   ", "empty line"),
        ("{", "not a JSON line"),
        ('{"id": "a"} {}', "not a JSON line"),
        ("[" * 100_000, "not a JSON line"),
        ('{"id": 1, "id": 2}', "twice"),
        ("[]", "should be an object"),
        (json.dumps({"id": "AttNeg-OWA-D5-1", "theory": "\ud800"}), "not a JSON line"),
        ("1" * 5000, "not a JSON"),
    ],
)
@pytest.mark.parametrize("good", [GOOD_ENGLISH, GOOD_STRUCTURED])
def test_malformed_line_names_file_and_line(tmp_path, good, line, says) -> None:
    text = json.dumps(good)
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{text}\n{text}\n{line}\n{text}\n")
    rows = read_theories(path)
    assert next(rows).theory == next(rows).theory
    with pytest.raises(MalformedInputError, match=says) as caught:
        next(rows)
    assert caught.value.where == f"{path}, line 3"
    assert caught.value.found
    assert caught.value.expected
    kinds = [(type(row), row.where) for row in read_rows(path)]
    assert kinds == [
        (Refused if number == 3 else LabelledTheory, f"{path}, line {number}")
        for number in (1, 2, 3, 4)
    ]


def test_unicode_line_separators_do_not_split_rows(tmp_path) -> None:
    row = changed(GOOD_STRUCTURED, ("questions", "Q1", "question"), "Bob\u2028is red.")
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row, ensure_ascii=False), encoding="utf-8")
    assert len(list(read_theories(path))) == 1


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe"])
def test_unreadable_file(tmp_path, content) -> None:
    path = tmp_path / "rows.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(MalformedInputError, match=str(path)):
        list(read_theories(path))
    (row,) = read_rows(path)
    assert isinstance(row, Refused)


def test_what_stands_before_bytes_that_are_no_text_is_read(tmp_path) -> None:
    path = tmp_path / "rows.jsonl"
    good = (json.dumps(GOOD_ENGLISH) + "\n").encode()
    path.write_bytes(good * 3000 + b"\xff\n" + good)
    *read, last = read_rows(path)
    assert len(read) > 100
    assert not any(isinstance(row, Refused) for row in read)
    assert isinstance(last, Refused)
    assert "cannot read" in str(last.error)


# --- s-expressions --------------------------------------------------------------------------------


ATOM = '("Bob" "is" "red" "+")'


def test_s_expressions() -> None:
    assert parse_atom(' ( "a b""is" "c"  "~" ) ') == Atom("a b", "is", "c", "~")
    for text in (
        '((("x" "is" "y" "+")) -> ("x" "is" "z" "+"))',
        '( ( ("x""is""y""+" )\n)->("x" "is" "z" "+") ) ',
    ):
        assert parse_rule(text) == Rule(
            conditions=(Atom("x", "is", "y"),), conclusion=Atom("x", "is", "z")
        )
    assert len(parse_rule(f"(({ATOM} {ATOM}{ATOM}) -> {ATOM})").conditions) == 3


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "(",
            ")",
            "()()",
            '"a',
            "a",
            "(a)",
            '("a"',
            '("a"))',
            '"a" "b"',
            '"a\\""',
            "- >",
        ),
        *(
            ATOM + ATOM,
            ATOM[:-1],
            ATOM[1:],
            ATOM.replace("+", "*"),
            ATOM.replace("Bob", ""),
            f"({ATOM})",
        ),
        *(
            f"({ATOM} -> {ATOM})",
            f"(({ATOM}) -> )",
            f"(({ATOM}) {ATOM})",
            f"(({ATOM} x) -> {ATOM})",
        ),
        *("(" * 10**6, "(" * 10**6 + ")" * 10**6, f"(({ATOM * 10**5}"),
    ],
)
def test_broken_s_expression(text: str) -> None:
    begin = time.perf_counter()
    for parse in (parse_atom, parse_rule):
        with pytest.raises(MalformedInputError, match=r"not an? (atom|rule)"):
            parse(text)
    assert time.perf_counter() - begin < 5


# --- any text -------------------------------------------------------------------------------------

LISP = st.text(st.sampled_from('()"+-~> \\ab\n'), max_size=60)
PIECES = (
    *(
        "If",
        "then",
        "and",
        "not",
        "is",
        "are",
        "does",
        "do",
        "the",
        "The",
        "All",
        "people",
        "things",
    ),
    *("Bob", "cat", "red", "big", "likes", "like", ",", ".", "..", "someone", "something", "they"),
)
WORDS = st.lists(st.sampled_from(PIECES), max_size=25).map(lambda words: " ".join(words) + ".")


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=80), LISP))
def test_any_text_is_an_atom_a_rule_or_malformed(text: str) -> None:
    for parse, kind in ((parse_atom, Atom), (parse_rule, Rule)):
        with suppress(MalformedInputError):
            assert isinstance(parse(text), kind)


@settings(max_examples=500, deadline=None)
@given(st.one_of(st.text(max_size=80), WORDS), st.sampled_from(("CWA", "OWA")))
def test_any_text_is_a_theory_or_malformed(text: str, assumption) -> None:
    try:
        read = parse_theory(text, assumption=assumption)
    except MalformedInputError:
        return
    assert isinstance(read, Theory)
    assert parse_theory(theory_text(read), assumption=assumption).content_hash() == (
        read.content_hash()
    )


@settings(max_examples=300, deadline=None)
@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(
                st.sampled_from(
                    ["id", "theory", "triples", "rules", "questions", "Q1", "representation"]
                ),
                inner,
                max_size=4,
            ),
        ),
        max_leaves=12,
    )
)
def test_any_json_is_a_row_or_malformed(value) -> None:
    read = read_row(json.dumps(value), "text")
    assert isinstance(read, (LabelledTheory, Refused))


@pytest.mark.parametrize(
    "text",
    ["If " + "someone is red and " * 20_000, "Red, " * 20_000 + "people are big.", "the " * 50_000],
)
def test_long_text_ends_soon(text: str) -> None:
    begin = time.perf_counter()
    with pytest.raises(MalformedInputError):
        parse_theory(text + "..", assumption="OWA")
    assert time.perf_counter() - begin < 5
