"""The command in a real terminal: colours and bars there, none of them elsewhere or where they are unwanted."""

from __future__ import annotations

import subprocess

import pytest

from command_line import ran
from terminals import VCRT, in_a_terminal


@pytest.mark.slow
def test_a_terminal_gets_colours_unless_it_wants_none():
    shown = ("show", "clrs/bellman_ford/7", "--pair", "0", "1")
    coloured, plain = in_a_terminal(*shown), in_a_terminal(*shown, NO_COLOR="1")
    assert "\x1b[32m" in coloured or "\x1b[31m" in coloured
    assert not any(f"\x1b[{code}m" in plain for code in range(30, 38))
    assert "bellman_ford" in plain


@pytest.mark.slow
def test_an_episode_is_brief_in_a_terminal_and_whole_elsewhere():
    def piped(*options):
        command = [*VCRT, "show", "clrs/bellman_ford/7", *options]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    brief = in_a_terminal("show", "clrs/bellman_ford/7", NO_COLOR="1")
    full = in_a_terminal("show", "clrs/bellman_ford/7", "--full", NO_COLOR="1")
    # What stands above is progress, if it took long.
    _, _, brief = brief.rpartition("\x1b[?25h")
    assert len(brief.splitlines()) <= 30 < 100 < len(full.splitlines())
    for words in ("0 precedes 2: 2 then 0 is refused", "12 of 24 legal", "--full: "):
        assert words in brief
    for short in (brief, piped("--brief").stdout):
        assert "adjacency" not in short
        assert "Steps 0 and 2" not in short
    for whole in (full, piped().stdout):
        assert "adjacency" in whole
        assert "Steps 0 and 2: an anti-diamond, 0 precedes 2" in whole
    both = piped("--brief", "--full")
    assert (both.returncode, "do not go together" in both.stderr) == (2, True)


@pytest.mark.slow
def test_long_work_has_bars_with_rate_and_remaining_time(tmp_path):
    options = ("--schemas", "clrs/bellman_ford", "--episodes", "12", "--jobs", "1")
    written = in_a_terminal("certify", "--output", str(tmp_path / "data"), *options)
    assert "━" in written
    assert "/s" in written
    assert "0:00:" in written


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_for_shells(shell):
    done = ran("--tyro-print-completion", shell)
    assert done.returncode == 0
    assert "certify" in done.stdout
    assert "vcrt" in done.stdout
