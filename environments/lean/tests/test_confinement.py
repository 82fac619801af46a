"""What a Lean process cannot do, tried by processes that confine themselves; and what it was started with."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lean_doors import asking, said_to
from vcrt.environments.contract import ReplayRequest
from vcrt.processes import confinement, system_calls
from vcrt.processes.confinement import bounds_from
from vcrt.processes.programs import Needs, bounds, empty_environment
from vcrt_lean import inprocess
from vcrt_lean.environment import LeanEnvironment
from vcrt_lean.inprocess import Elaborators, WorkerBroken
from vcrt_lean.judging import Limits
from vcrt_lean.toolchain import UNKNOWN, find_toolchain, lean_needs, protections, python_needs

SOURCE = str(Path(confinement.__file__).parents[2])
NEEDS = python_needs()
IN_FORCE = protections(NEEDS).in_force
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

LIMITS = Limits(max_heartbeats=5_000, max_memory_mb=700.0, lone_seconds=100.0)

PHASES = ("script", "command", "worker", "client", "server")
#: Those that start no process and write no file.
ALONE = ("command", "worker", "client")


def needs_guard(*names):
    missing = [name for name in names if name not in IN_FORCE]
    return pytest.mark.skipif(bool(missing), reason=f"this system has no protection of {missing}")


def confined(
    code: str,
    *,
    before: str = "",
    needs: Needs = NEEDS,
    phase: str = "worker",
    landlock: int | None = None,
    **changes,
) -> str:
    """What a confined process prints; ``code`` has ``os`` and ``tried``, which gives the name of an error.

    It runs ``before`` while calls are not refused yet, and takes the system for one of this ``landlock`` (0: none).
    """
    limits = replace(bounds(needs, cpu_seconds=1, max_memory_mb=100, threads=1), **changes)
    program = (
        "import sys; sys.path.append(sys.argv[2])\n"
        "import os, socket, ctypes, signal, resource, time, threading\n"
        "from vcrt.processes import confinement as c\n"
        f"c._landlock_version = {'c._landlock_version' if landlock is None else f'lambda: {landlock}'}\n"
        "report = c.confine(c.bounds_from(sys.argv[1]))\n"
        f"{before}\n"
        f"c.refuse_calls(report, {phase!r})\n"
        "def tried(f, *a):\n"
        "    try: return f(*a) and None\n"
        "    except BaseException as e: return type(e).__name__\n"
    )
    answer = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program + code, limits.text(), SOURCE],
        capture_output=True,
        text=True,
        env=empty_environment(),
        check=False,
        timeout=60,
    )
    return answer.stdout.strip() or f"exit {answer.returncode}: {answer.stderr[-200:]}"


@needs_guard("files")
def test_it_reads_only_what_it_needs(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("a secret")
    for path in (secret, "/etc/passwd", Path(SOURCE) / "vcrt" / "errors.py", "/proc/self/environ"):
        assert confined(f"print(tried(open, {str(path)!r}))") == "PermissionError"
    assert confined(f"print(tried(os.listdir, {str(tmp_path)!r}))") == "PermissionError"
    assert confined("import decimal; print(decimal.Decimal(1))") == "1"
    readable = replace(NEEDS, readable=(*NEEDS.readable, str(tmp_path)))
    assert confined(f"print(open({str(secret)!r}).read())", needs=readable) == "a secret"


@needs_guard("writing")
def test_it_writes_nothing(tmp_path):
    for path in (tmp_path / "new", "new"):
        code = f"print(tried(open, {str(path)!r}, 'w'), tried(os.mkdir, {str(path)!r}))"
        assert set(confined(code).split()) <= {"PermissionError", "FileNotFoundError"}
    assert not list(tmp_path.iterdir())
    code = f"print(tried(os.chmod, {str(tmp_path)!r}, 0), tried(os.utime, {str(tmp_path)!r}))"
    assert confined(code) == "PermissionError PermissionError"


#: What changes files, in a folder that has ``file`` and ``folder``; ``here`` and ``handle`` are open.
CHANGES = """
os.rename("file", "other") | os.rename("file", "other", src_dir_fd=here, dst_dir_fd=here) | os.unlink("file")
libc.renameat2(-100, b"file", -100, b"other", 0) | os.unlink("file", dir_fd=here) | os.rmdir("folder")
os.mkdir("new") | os.mkdir("new", dir_fd=here) | os.symlink("file", "new") | os.symlink("file", "new", dir_fd=here)
os.link("file", "new") | os.link("file", "new", src_dir_fd=here) | os.mkfifo("new") | os.mknod("new")
os.truncate("file", 0) | os.ftruncate(handle, 0) | os.posix_fallocate(handle, 0, 9) | os.chmod("file", 0)
os.fchmod(handle, 0) | os.chmod("file", 0, dir_fd=here) | os.chown("file", -1, -1) | os.fchown(handle, -1, -1)
os.lchown("file", -1, -1) | os.utime("file") | os.utime(handle) | os.setxattr("file", "user.x", b"")
os.setxattr(handle, "user.x", b"") | os.removexattr("file", "user.x") | os.open("file", os.O_WRONLY)
os.open("file", os.O_RDWR) | os.open("file", os.O_TRUNC) | os.open("new", os.O_CREAT) | libc.creat(b"file", 0)
os.open(".", os.O_TMPFILE + os.O_WRONLY) | libc.ioctl(handle, 0x40086602, bytes(8)) | libc.fcntl(handle, 1024, 0)
"""
#: What reaches the process ``victim``; ``mine`` is one end of a pair of sockets.
REACHES = """
os.kill(victim, 9) | libc.tgkill(victim, victim, 9) | libc.syscall(TKILL, victim, 9)
libc.sigqueue(victim, 9, None) | libc.pidfd_open(victim, 0) | libc.ptrace(16, victim, None, None)
libc.process_vm_writev(victim, None, 0, None, 0, 0) | libc.process_vm_readv(victim, None, 0, None, 0, 0)
resource.prlimit(victim, resource.RLIMIT_CPU, (1, 1)) | os.setpriority(os.PRIO_PROCESS, victim, 19)
os.setpriority(os.PRIO_USER, 0, 19) | os.sched_setaffinity(victim, {0})
os.sched_setscheduler(victim, os.SCHED_IDLE, os.sched_param(0)) | os.sched_setparam(victim, os.sched_param(0))
fcntl.fcntl(mine, fcntl.F_SETOWN, victim) | fcntl.fcntl(mine, 10, 9) | fcntl.fcntl(mine, 15, bytes(8))
fcntl.ioctl(mine, 0x8901, bytes(4)) | fcntl.ioctl(mine, 0x8902, bytes(4)) | fcntl.ioctl(0, 0x5412, b"x")
libc.shmget(0, 1, 0) | libc.shmctl(0, 0, None) | libc.semget(0, 1, 0) | libc.semctl(0, 0, 0) | libc.msgget(0, 0)
libc.msgctl(0, 0, None) | libc.syscall(MQ_UNLINK, b"x") | os.fork() | os.posix_spawn("/bin/true", ["x"], {})
"""
TRIED = """
import fcntl
libc = ctypes.CDLL(None, use_errno=True)
TKILL, MQ_UNLINK = {"x86_64": (200, 241), "aarch64": (130, 181)}[os.uname().machine]
def outcome(call):
    ctypes.set_errno(0)
    try: found = eval(call)
    except OSError as error: return error.errno
    return ctypes.get_errno() if found == -1 else "done"
"""


def not_refused(calls: str, **arguments: Any) -> list[str]:
    """Those of the calls that are not refused as not permitted, tried by one confined process."""
    each = [call.strip() for line in calls.strip().splitlines() for call in line.split(" | ")]
    code = f"{TRIED}for call in {each!r}: print(call, ':', outcome(call))"
    found = confined(code, **arguments).splitlines()
    assert len(found) == len(each), found
    return [line for line in found if not line.endswith(f" : {errno.EPERM}")]


@needs_guard("writing")
@pytest.mark.parametrize("phase", ALONE)
def test_no_call_changes_a_file_where_landlock_is_not_there(tmp_path, phase):
    (tmp_path / "file").write_text("text")
    (tmp_path / "folder").mkdir()
    before = (
        f"os.chdir({str(tmp_path)!r}); here = os.open('.', 0); handle = os.open('file', os.O_RDWR)"
    )
    assert not_refused(CHANGES, before=before, phase=phase, landlock=0) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]
    assert (tmp_path / "file").read_text() == "text"


@needs_guard("other processes")
@pytest.mark.parametrize("phase", ALONE)
def test_no_call_reaches_another_process_where_landlock_is_not_there(phase):
    with subprocess.Popen(["sleep", "60"]) as victim:
        try:
            before = f"mine, other = socket.socketpair(); victim = {victim.pid}"
            assert not_refused(REACHES, before=before, phase=phase, landlock=0) == []
            assert victim.poll() is None
        finally:
            victim.kill()


@needs_guard("network")
@pytest.mark.parametrize("phase", PHASES)
def test_every_number_of_a_call_that_is_refused_is_refused(phase):
    """Arguments that no call takes: what is not refused fails for another reason."""
    machine = system_calls._ARCHITECTURES[os.uname().machine][0]
    tables = [n for n in system_calls._ALWAYS if n not in system_calls._LEFT.get(phase, ())]
    tables += system_calls._ALONE * (phase in ALONE) + system_calls._LAST * (phase in ALONE[1:])
    numbers = [n[machine] for n in tables if n[machine] is not None]
    calls = "\n".join(f"libc.syscall({number}, -1, -1, -1, -1, -1, -1)" for number in numbers)
    assert not_refused(calls, phase=phase) == []


@needs_guard("network")
@pytest.mark.parametrize("phase", PHASES)
def test_a_process_ends_itself_and_reads_its_limits(phase):
    assert confined("os.abort()", phase=phase).startswith("exit -6")
    code = (
        "print(tried(resource.getrlimit, 0), tried(os.sched_setaffinity, 0, os.sched_getaffinity(0)),"
        "tried(resource.prlimit, os.getpid(), 0), os.isatty(0), tried(signal.raise_signal, signal.SIGCHLD))"
    )
    assert confined(code, phase=phase) == "None None None False None"
    if phase not in ALONE:
        child = "p = os.fork()\nif not p: os.abort()\nprint(os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]))"
        assert confined(child, phase=phase) == "-6"


@needs_guard("network")
@pytest.mark.parametrize("phase", ["script", "server"])
def test_one_that_starts_processes_limits_no_other(phase):
    call = f"resource.prlimit({os.getpid()}, resource.RLIMIT_CPU, (1 << 30, 1 << 30))"
    assert not_refused(call, phase=phase) == []


@needs_guard("network")
def test_a_client_names_no_receiver():
    before = "one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)"
    code = "print(tried(one.send, b'x'), tried(one.sendto, b'x', '/nowhere'))"
    assert confined(code, before=before, phase="client") == "None PermissionError"


def reported(phase: str, landlock: int, **changes: Any) -> dict[str, dict[str, str]]:
    code = "import json, dataclasses; print(json.dumps(dataclasses.asdict(report)))"
    found: dict[str, dict[str, str]] = json.loads(
        confined(code, phase=phase, landlock=landlock, **changes)
    )
    return found


@needs_guard("files", "network")
def test_what_is_said_to_be_in_force_is_said_of_what_does_it(tmp_path):
    without = reported("worker", 0)
    assert "no Landlock" in without["absent"]["files"]
    assert {n for n, m in without["in_force"].items() if m == "seccomp"} == {
        *("network", "other processes", "writing", "other programs")
    }
    assert "other programs" not in without["absent"]
    assert not [means for means in without["in_force"].values() if "Landlock" in means]
    command = reported("command", 0)
    assert "other programs" in command["absent"]
    assert reported("command", 1)["in_force"]["other programs"].startswith("Landlock 1")
    server = {"writable": (str(tmp_path),)}
    for version in (0, 1, 6):
        found = reported("server", version, **server)
        is_absent = {"other processes": version < 6, "contents of files": version < 3}
        for name, expected in is_absent.items():
            assert (name in found["absent"]) == expected, version
            assert not (expected and name in found["in_force"]), version
        assert "modes, owners and times of files" in found["absent"]
        assert "writing" not in found["in_force"]
    script = reported("script", 6, readable=(), programs=())
    assert {"other processes", "writing", "other programs"} <= script["absent"].keys()


@linux
def test_a_command_is_not_said_to_be_kept_from_what_only_a_worker_is_kept_from():
    program = replace(NEEDS, programs=("/bin/sleep",))
    assert "threads" in protections(program).absent
    means = protections(program).in_force.get("other programs", "Landlock")
    assert means.startswith("Landlock")


@needs_guard("network")
@pytest.mark.parametrize("phase", PHASES)
def test_it_has_no_network(phase):
    code = "print(*[tried(socket.socket, k) for k in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)])"
    assert confined(code, phase=phase) == " ".join(["PermissionError"] * 3)


@needs_guard("network")
def test_a_client_sends_through_the_connections_that_it_has():
    before = "one, other = socket.socketpair()"
    code = "print(tried(one.send, b'x'), tried(os.fork), tried(os.kill, os.getppid(), 0))"
    refused = "PermissionError PermissionError"
    assert confined(code, before=before) == f"PermissionError {refused}"
    assert confined(code, before=before, phase="client") == f"None {refused}"


@needs_guard("other processes", "other programs")
def test_it_starts_no_process_and_hurts_none():
    code = f"print(tried(os.fork), tried(os.kill, {os.getpid()}, 0), tried(os.execv, '/bin/true', ['x']))"
    assert confined(code) == "PermissionError PermissionError PermissionError"
    assert confined(
        "t = threading.Thread(target=print, args=['a thread']); t.start(); t.join()"
    ) == ("a thread")


@needs_guard("other programs")
def test_it_raises_no_limit():
    code = "print(tried(resource.setrlimit, resource.RLIMIT_AS, (1 << 40, 1 << 40)))"
    assert confined(code) in ("PermissionError", "ValueError")
    lower = (
        "print(tried(resource.setrlimit, resource.RLIMIT_CORE, (0, 0)), resource.getrlimit(0)[1])"
    )
    assert confined(lower).split()[0] in ("PermissionError", "ValueError")


@needs_guard("address space", "processor time", "file size", "open files")
def test_its_limits_hold():
    assert confined("print(tried(bytearray, 1 << 31))", address_space=1 << 31) == "MemoryError"
    assert confined("while True: pass", cpu_seconds=1).startswith(("exit -24", "exit -9"))
    files = "print(tried(lambda: [os.open('/dev/null', 0) for _ in range(100)]))"
    assert confined(files, open_files=20) == "OSError"
    assert confined("print(*resource.getrlimit(resource.RLIMIT_FSIZE))") == "1048576 1048576"


@needs_guard("private folder")
def test_its_folder_is_its_own_and_leaves_nothing():
    before = {path.name for path in Path("/tmp").glob("vcrt-empty-*")}
    assert (
        confined("print(os.listdir('/proc/self/cwd') if 0 else os.readlink('/proc/self/cwd'))")
        != ""
    )
    assert {path.name for path in Path("/tmp").glob("vcrt-empty-*")} <= before


def test_a_script_of_the_user_s_is_restricted_as_far_as_that_is_known():
    report = protections(UNKNOWN)
    assert {"files", "private folder"} <= report.absent.keys()
    assert "network" in report.in_force or sys.platform != "linux"
    assert confined("print(tried(open, '/etc/passwd'))", needs=UNKNOWN, phase="script") == "None"


def test_only_a_program_of_its_own_has_needs_that_are_known(tmp_path):
    script = tmp_path / "lean"
    script.write_text("#!/bin/sh\n")
    assert lean_needs(script) == UNKNOWN
    assert lean_needs(tmp_path / "none") == UNKNOWN
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "lean"
    program.write_bytes(b"\x7fELF more")
    assert lean_needs(program) == Needs(readable=(str(tmp_path),), programs=(str(tmp_path),))


def test_bounds_pass_as_text():
    limits = bounds(NEEDS, cpu_seconds=1.5, max_memory_mb=2, threads=2)
    assert bounds_from(limits.text()) == limits
    assert limits.cpu_seconds == 32
    assert limits.address_space == (2 << 30) + 4_000_000


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("phase", PHASES)
def test_a_filter_is_a_program_of_whole_instructions_whose_jumps_stay_inside(machine, phase):
    code = system_calls.program(machine, phase, 1)
    assert len(code) % 8 == 0
    steps = [code[i : i + 8] for i in range(0, len(code), 8)]
    for index, step in enumerate(steps):
        if step[0] & 7 == 5:
            assert max(step[2], step[3]) + index + 1 < len(steps)
    assert steps[-1][0] == 6


@linux
class TestWorker:
    @pytest.fixture
    def elaborators(self):
        made = Elaborators(find_toolchain(), LIMITS)
        yield made
        made.close()

    def ask(self, elaborators, text):
        return elaborators.run(asking(text), said_to, cost=1)

    def test_it_runs_with_all_of_it(self, elaborators, monkeypatch):
        monkeypatch.setenv("VCRT_SECRET", "a secret")
        assert self.ask(elaborators, "theorem a1 (p : Prop) (x : p) : p := x") == []
        place = Path(f"/proc/{elaborators.process}")
        status = dict(line.split(":", 1) for line in (place / "status").read_text().splitlines())
        assert b"SECRET" not in (place / "environ").read_bytes()
        assert b"PATH" not in (place / "environ").read_bytes().replace(b"LD_LIBRARY_PATH", b"")
        if "network" in IN_FORCE:
            assert status["Seccomp"].strip() == "2"
            assert status["NoNewPrivs"].strip() == "1"
        if "privileges" in IN_FORCE:
            assert int(status["CapEff"], 16) in (0, 4)
        if "private folder" in IN_FORCE:
            assert os.readlink(place / "cwd").endswith("(deleted)")
        limit, _ = resource.prlimit(elaborators.process, resource.RLIMIT_AS)
        assert limit < 10e9

    def test_memory_that_runs_out_is_an_error_and_the_next_worker_is_whole(
        self, elaborators, monkeypatch
    ):
        whole = inprocess.bounds
        small = 2_500_000_000
        monkeypatch.setattr(
            inprocess, "bounds", lambda *a, **k: replace(whole(*a, **k), address_space=small)
        )
        monkeypatch.setattr(elaborators, "limits", replace(LIMITS, max_memory_mb=1e6))
        with pytest.raises(WorkerBroken, match="exit status"):
            self.ask(elaborators, "theorem a1 : False := " + "x " * 20_000_000)
        monkeypatch.undo()
        assert self.ask(elaborators, "theorem a1 (p : Prop) (x : p) : p := x") == []

    @pytest.mark.slow
    def test_a_processor_s_time_that_runs_out_is_an_error(self, elaborators, monkeypatch):
        whole = inprocess.bounds
        monkeypatch.setattr(
            inprocess, "bounds", lambda *a, **k: replace(whole(*a, **k), cpu_seconds=3)
        )
        long = "".join(f"theorem a{k} (p : Prop) (x : p) : p := x\n" for k in range(100_000))
        with pytest.raises(WorkerBroken, match=r"exit status -(9|24)"):
            self.ask(elaborators, long)


class TestGuards:
    def test_accepted_terms_are_counted(self):
        plain = LeanEnvironment()
        environment = plain.thorough()
        sample = environment.sample("cite", 3)
        orders = ((0, 1, 2, 3), (3, 2, 1, 0))
        found = environment.replay([ReplayRequest(sample, order) for order in orders])
        steps = sum(len(replay.state_hashes) - 1 for replay in found)
        assert found == plain.replay([ReplayRequest(sample, order) for order in orders])
        assert plain.guards().checked_again == {}
        assert plain.versions() == environment.versions()
        counted = environment.guards().checked_again
        assert counted["accepted terms"] == steps
        assert 4 <= counted["kernel checks"] <= 3 * steps

    def test_they_enter_nothing_that_is_hashed(self):
        environment = LeanEnvironment()
        assert "guards" not in json.dumps(environment.versions().to_json())
        assert environment.guards().in_force == protections(find_toolchain().needs).in_force
