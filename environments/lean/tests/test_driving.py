"""The protocol of the driver: what is an answer, what is none, and what becomes of a process that breaks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from vcrt.errors import MalformedInputError, VerifierFailure
from vcrt_lean import project
from vcrt_lean.project import Broken, DriverSession, Limits, Project


@pytest.mark.parametrize(
    ("received", "is_whole"),
    [
        (b"", False),
        (b"vcrt-answer {}", False),
        (b"vcrt-answer {}\n", True),
        (b"what the file prints\n", False),
        (b"what the file prints\nvcrt-answer {}\n", True),
        (b"vcrt-answer {}\nwhat the file prints\n", False),
    ],
)
def test_an_answer_is_a_line_of_its_own_behind_its_mark(received, is_whole):
    assert project.is_answered(bytearray(received)) is is_whole


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("vcrt-answer {\n", "no JSON"),
        ("vcrt-answer []\n", "another form"),
        ('{"theorems": []}\n', "another form"),
        ('vcrt-answer {"failure": "no file is open"}\n', "no file is open"),
    ],
)
def test_what_is_no_answer_is_never_a_verdict(text, said):
    with pytest.raises(Broken, match=said):
        project.read_answer(text)


@pytest.mark.parametrize(
    ("part", "what", "remedy"),
    [
        ("header", "imports are not there", "lake build"),
        ("errors", "does not compile", "mend it"),
    ],
)
def test_an_error_of_the_file_comes_with_its_place_and_leans_message(part, what, remedy):
    answer = {"theorems": [], part: [{"line": 3, "column": 7, "text": "unknown tactic"}]}
    with pytest.raises(MalformedInputError) as caught:
        project.read_opened(answer, Path("Mine.lean"))
    assert what in caught.value.what
    assert caught.value.where == "Mine.lean:3:7"
    assert caught.value.found == "unknown tactic"
    assert remedy in str(caught.value.remedy)


@pytest.mark.parametrize(
    ("reader", "answer"),
    [
        (lambda a: project.read_opened(a, Path("Mine.lean")), {}),
        (lambda a: project.read_opened(a, Path("Mine.lean")), {"theorems": [{"name": "t"}]}),
        (project.read_answers, {"nodes": []}),
        (project.read_answers, {"nodes": [{"path": [0]}], "ends": []}),
        (project.read_answers, {"nodes": [], "ends": [{"path": [0]}]}),
    ],
)
def test_answers_of_another_form_are_no_answers(reader, answer):
    with pytest.raises(Broken, match="another form"):
        reader(answer)


def test_refusals_do_not_depend_on_what_was_run_before():
    assert project.refusal_text("unknown ?m.17 of _uniq.4711 in x._@.Mine._hyg.9") == (
        "unknown ?m of _uniq in x"
    )
    assert project.refusal_text("h✝¹ : x = 1.5") == "h✝¹ : x = 1.5"


def test_a_limit_of_leans_own_is_never_a_refusal():
    answer = {
        "nodes": [{"path": [0], "refused": "(deterministic) timeout at `whnf`, ..."}],
        "ends": [],
    }
    with pytest.raises(Broken, match="timeout"):
        project.read_answers(answer)


def session(script, **limits):
    command = (sys.executable, "-c", script)
    project = Project(folder=Path("/"), command=command, version="4.9.0", search_path=())
    return DriverSession(project, Limits(**limits))


@pytest.mark.parametrize(
    ("script", "limits", "said"),
    [
        ("raise SystemExit('no module Lean')", {}, "no module Lean"),
        ("import time; time.sleep(60)", {"seconds": 0.2}, "no answer after 0.2 s"),
        ("print('something else'); import time; time.sleep(60)", {"seconds": 0.2}, "no answer"),
        ("print('vcrt-answer {\"protocol\": 0}', flush=True); input()", {}, "protocol 0"),
    ],
    ids=["dies", "hangs", "speaks of something else", "has another protocol"],
)
def test_a_driver_that_breaks_is_an_error_and_never_a_verdict(script, limits, said):
    made = session(script, **limits)
    with pytest.raises(VerifierFailure) as caught:
        made.open(Path("/Mine.lean"))
    assert said in str(caught.value.found)
    assert "new process" in caught.value.what
    made.close()
