"""What is no answer is a named error, never a verdict: processes that die, hang, and print what they must not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

pytest.importorskip("mcp", reason="the official client is not installed: make test-integrations")

from mcp_support import SERVER, Restarted, Small
from vcrt.environments.contract import Accepted, Operation, Rejected
from vcrt.errors import UnavailableError, VerifierFailure

SUPPORT = Path(SERVER).parent


def starting(how, seconds=10.0):
    class Starting(Small):
        command = (*Small.command, how)
        start_timeout_s = seconds

    return Starting()


class Impatient(Small):
    timeout_s = 0.5


@pytest.mark.parametrize(
    ("how", "seconds", "words"),
    [
        ("exits", 10, "no such model"),
        ("hangs", 0.5, "no answer after 0.5 s"),
        ("fetches", 10, "Error"),
    ],
)
def test_a_server_that_does_not_start_is_not_there(how, seconds, words):
    environment = starting(how, seconds)
    with pytest.raises(UnavailableError) as raised:
        environment.versions()
    message = str(raised.value)
    assert words in message
    assert "environment 'small'" in message
    assert "to mend: run the command by itself" in message
    environment.close()


def test_a_program_that_is_not_there():
    class Missing(Small):
        command = ("mcp-server-of-nobody",)

    with pytest.raises(UnavailableError, match="no such program on PATH"):
        Missing().versions()


def test_a_greeting_on_standard_output_is_passed_over_as_hosts_do():
    environment = starting("prints")
    state = environment.reset({"a": "one"})
    assert "one" in str(environment.call(state, "read", {"path": "a"}))
    environment.close()


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("die", "out of luck"),
        ("hang", "no answer after 0.5 s"),
        ("noise", "Listening to you!"),
        ("torn", "Connection closed"),
        ("torn_line", '"id": 3, "resu'),
        ("nonsense", "ValidationError"),
    ],
)
def test_what_is_no_answer_is_no_verdict_and_the_next_state_is_whole(tool, words):
    environment = Impatient()
    state = environment.reset(None)
    environment.call(state, "write", {"path": "a", "text": "1"})
    kept = environment.snapshot(state)
    call = Operation(signature=tool, payload={"name": tool, "arguments": {}})
    with pytest.raises(VerifierFailure) as raised:
        environment.step(state, call)
    message = str(raised.value)
    assert words in message
    assert f"tools/call {tool!r}" in message
    assert "says nothing about the call" in message
    with pytest.raises(VerifierFailure, match="lost with its server"):
        environment.call(state, "read", {"path": "a"})
    assert environment.call(environment.restore(kept), "read", {"path": "a"}) == "1"
    environment.close()


@pytest.mark.parametrize(
    ("tool", "words"), [("breaks", "-32603: lost the database"), ("own_error", "-32050: sold out")]
)
def test_an_error_of_the_protocol_names_what_a_refusal_is(tool, words):
    environment = Small()
    with pytest.raises(VerifierFailure) as raised:
        environment.call(environment.reset(None), tool, {})
    message = str(raised.value)
    assert words in message
    assert 'return its refusal, {"content": [...], "isError": true}' in message
    environment.close()


@pytest.mark.parametrize("kind", [Small, Restarted])
def test_a_server_that_writes_after_its_answer_is_not_taken_for_one_that_only_reads(kind):
    environment = kind()
    state = environment.reset({"a": "one"})
    environment.call(state, "read", {"path": "a"})
    with pytest.raises(VerifierFailure, match="writes after it has answered") as raised:
        environment.call(state, "write_later", {"path": "a", "text": "two"})
    assert "'write_later'" in str(raised.value)
    environment.close()


def test_a_server_that_is_killed_between_two_calls():
    environment = Small()
    state = environment.reset(None)
    environment.call(state, "read", {"path": "a"})
    for process in servers_of(environment):
        process.kill()
    with pytest.raises(VerifierFailure):
        environment.call(state, "read", {"path": "a"})
    environment.close()


@pytest.fixture
def interruptible():
    """Interruptions reach Python even where whoever began the tests in the background has had them ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interruption_ends_the_server(interruptible):
    environment = Small()
    state = environment.reset(None)
    environment.call(state, "read", {"path": "a"})
    (server,) = servers_of(environment)
    main = threading.main_thread().ident
    wait = threading.Thread(target=interrupt_when_called, args=(server, main))
    wait.start()
    with pytest.raises(KeyboardInterrupt):
        environment.call(state, "hang", {})
    wait.join()
    server.wait(10)
    environment.close()


def interrupt_when_called(server, thread):
    """Once the server sleeps in the call: it has read the request and used its processor for it."""
    while server.is_running() and not asleep(server):
        time.sleep(0.01)
    signal.pthread_kill(thread, signal.SIGINT)


def asleep(process):
    place = Path(f"/proc/{process.pid}/wchan")
    return not place.exists() or "nanosleep" in place.read_text()


def servers_of(environment):
    mark = environment._host.server._mark
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("VCRT_SERVER") == mark:
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the system ends a child with its parent")
@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 9)", "sys.exit(0)", "1 / 0"])
def test_a_process_that_ends_leaves_no_server_and_no_folder(end, tmp_path):
    program = (
        "import os, sys\n"
        "from mcp_support import Small\n"
        "e = Small()\n"
        "e.call(e.reset(None), 'read', {'path': 'a'})\n"
        "print(e._host.place().path, e._host.server._mark, flush=True)\n" + end
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    environment["PYTHONPATH"] = os.pathsep.join([str(SUPPORT), str(SUPPORT.parents[1] / "src")])
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    place, mark = done.stdout.split()
    for process in psutil.process_iter():
        try:
            marked = process.environ().get("VCRT_SERVER") == mark
        except psutil.Error:
            continue
        if marked:
            process.wait(10)
    if "_exit" in end or "kill" in end:
        # Nobody was there to remove it: the next one does.
        subprocess.run(
            [sys.executable, "-c", "from mcp_support import Small\ne = Small()\ne.reset(None)"],
            env=environment,
            check=True,
        )
    assert not Path(place).exists()
    assert not list(tmp_path.glob("vcrt-state-*"))


def test_verdicts_come_of_answers_alone():
    environment = Small()
    state = environment.reset(None)
    for name, arguments, kind in (
        ("read", {"path": "a"}, Accepted),
        ("read", {"path": "none"}, Rejected),
        ("bad_arguments", {}, Rejected),
    ):
        call = Operation(signature=name, payload={"name": name, "arguments": arguments})
        assert isinstance(environment.step(state, call), kind)
    environment.close()
