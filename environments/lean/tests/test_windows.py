"""Windows of a Lean project's proofs, judged by what Lean 4.28 answered to the driver when it was recorded.

The recording was made with a build of Lean for WebAssembly, and with the driver's loops written out, as that build
cannot compile those of Lean's library; it said which parts of its syntax there are, and which of them are tactics was
added by hand.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

import lean_recording
from vcrt.certificates.replay_tree import EpisodeReplays
from vcrt.environments.contract import ReplayRequest
from vcrt.errors import MalformedInputError, UnavailableError, VerifierFailure
from vcrt.hashing import sha256_hex
from vcrt.replay.lattice_replay import replay_merged
from vcrt.replay.replay import replay_exhaustively
from vcrt_lean.lift import MAX_FILE_BYTES, lift_lean_project, lift_project_file
from vcrt_lean.project import DriverSession, Limits, Project
from vcrt_lean.project_environment import LeanProjectEnvironment, check

FILE = Path(lean_recording.__file__).with_name("Mine.lean")


def project(folder, program=lean_recording.__file__):
    return Project(
        folder=folder,
        command=(sys.executable, str(program)),
        version="4.28.0-pre",
        search_path=(),
    )


@pytest.fixture
def environment(tmp_path):
    made = LeanProjectEnvironment(project(tmp_path))
    yield made
    made.close()


def written(folder, name="Mine.lean"):
    file = folder / name
    file.write_bytes(FILE.read_bytes())
    return file


def replayed(environment, episodes):
    return replay_merged(environment, episodes)


def lifted(file, environment, replay=replayed):
    return lift_lean_project(file, environment, replay, steps=4)


def test_the_self_test_holds_for_what_lean_answered(tmp_path):
    session = DriverSession(project(tmp_path), Limits())
    check(session, project(tmp_path))
    session.close()


def test_the_self_test_turns_away_a_driver_that_says_otherwise(tmp_path):
    program, recording = tmp_path / "play.py", tmp_path / "lean_recording.json"
    program.write_bytes(Path(lean_recording.__file__).read_bytes())
    text = lean_recording.RECORDING.read_text(encoding="utf-8")
    recording.write_text(text.replace("Unknown identifier `h1`", "no"), encoding="utf-8")
    made = project(tmp_path, program)
    session = DriverSession(made, Limits())
    with pytest.raises(UnavailableError, match="not so: h3 needs h1"):
        check(session, made)
    session.close()


def test_a_window_is_judged_with_ranges_and_reasons(tmp_path, environment):
    found = lifted(written(tmp_path), environment)
    (window,) = found.theorems
    assert window.lifted.theorem == "facts"
    assert [step.span for step in window.lifted.steps] == [
        "4:2-4:29",
        "5:2-5:34",
        "6:2-6:41",
        "7:2-9:18",
    ]
    assert window.lifted.steps[0].text == "have h1 : a < c := by omega"
    assert window.lifted.steps[3].text == "have h3 : a + 1 < c + 1 := by simpa using h1"
    assert window.orders.num_legal == 12
    pairs = {(pair.first, pair.second): pair for pair in window.orders.pairs}
    assert pairs[0, 3].relation == "precedes"
    assert pairs[0, 3].before == 0
    assert "h1" in pairs[0, 3].reason
    assert {p.relation for place, p in pairs.items() if place != (0, 3)} == {"commutes"}
    assert {(r.theorem, r.cause) for r in found.refused} == {("short", "short"), ("hole", "short")}


def test_a_hole_is_an_assumption(tmp_path, environment):
    windows = lift_project_file(written(tmp_path), environment, steps=3).lifted
    (hole,) = [window.episode for window in windows if window.theorem == "hole"]
    (replay,) = environment.replay([ReplayRequest(hole, (0, 1, 2))])
    assert len(replay.state_hashes) == 4
    assert replay.rejection is not None
    assert "rests on what is not proved: sorryAx" in replay.rejection.reason


@pytest.mark.parametrize(
    ("name", "where", "remedy"),
    [("Wrong.lean", "2:2", "mend it"), ("Gone.lean", "1:0", "lake build")],
)
def test_a_file_that_cannot_be_elaborated_is_named_by_its_line(
    tmp_path, environment, name, where, remedy
):
    file = written(tmp_path, name)
    with pytest.raises(MalformedInputError) as caught:
        lifted(file, environment)
    assert str(caught.value.where) == f"{file}:{where}"
    assert remedy in str(caught.value.remedy)


def test_a_window_without_a_verdict_is_refused(tmp_path, environment):
    def breaking(_, episodes):
        raise VerifierFailure("Lean broke", found=f"no answer about {episodes[0].schema}")

    found = lifted(written(tmp_path), environment, breaking)
    assert found.theorems == ()
    (refusal,) = [one for one in found.refused if one.cause != "short"]
    assert (refusal.cause, refusal.theorem) == ("no verdict", "facts")
    assert refusal.found == "no answer about lift"


def test_answers_that_contradict_each_other_are_no_verdict(tmp_path, environment):
    def wavering(environment, episodes):
        (found,) = replay_exhaustively(environment, episodes)
        first, *rest = found.replays
        changed = replace(first, state_hashes=(sha256_hex(b"another"), *first.state_hashes[1:]))
        return [EpisodeReplays.of_every_order(found.episode, (changed, *rest))]

    found = lifted(written(tmp_path), environment, wavering)
    assert found.theorems == ()
    assert "no verdict" in {one.cause for one in found.refused}


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"-- \xff", "codec"),
        (b"-" * (MAX_FILE_BYTES + 1), "more than 1,000,000 bytes"),
        (None, "No such file"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_and_asks_no_lean(tmp_path, data, found):
    path = tmp_path / "Mine.lean"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(MalformedInputError, match="cannot be read") as error:
        lift_project_file(path, LeanProjectEnvironment.__new__(LeanProjectEnvironment))
    assert found in error.value.found
    assert error.value.where == str(path)
