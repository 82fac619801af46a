"""Confine this process by system limits, Landlock, seccomp and no capabilities; report what is in force.

Before it reads any untrusted text, a process permanently confines itself and all that it will start. The
:class:`Report` names every protection that the system lacks; nothing is assumed. This module and its imports need only
the standard library, because a process without any other package uses it. It does not limit wall time and memory in
use: the process that waits for an answer does.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import resource
import signal
import struct
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vcrt.processes import system_calls
from vcrt.processes.watching import SERVER_MARK, mark_process

#: Numbers of Landlock's system calls, the same on every machine.
_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_ASK_VERSION, _PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14
#: The rights to files of version 1, and those that versions 2, 3 and 5 have added.
_RIGHTS, _MORE_RIGHTS = (1 << 13) - 1, ((2, 1 << 13), (3, 1 << 14), (5, 1 << 15))
_NETWORK, _NETWORK_VERSION = 0b11, 4
_NET_PORT, _BIND = 2, 0b01
_SCOPES, _SCOPES_VERSION = 0b11, 6
_TRUNCATE_VERSION = 3
_CAPABILITY_VERSION = 0x20080522
#: The capability of root to read the files of others; Landlock limits which.
_READ_SEARCH = 1 << 2
#: The program of the process. It ignores the user's Python set-up, and finds this package after the standard library.
_START = "import os, sys; sys.path += sys.argv.pop().split(os.pathsep); from {} import main; main()"
_SYSTEM_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib")
_SYSTEM_FILES = (
    *("/etc/ld.so.cache", "/dev/null", "/dev/urandom", "/proc/meminfo", "/proc/cpuinfo"),
    *("/proc/sys/vm/overcommit_memory", "/sys/devices/system/cpu/online"),
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a process may use: bytes of address space and of a file, processor seconds, open files.

    None is no limit. ``readable`` are files and folders that it may read besides the system's libraries, and
    ``programs`` those that it may start in its own place; without ``readable``, its needs are unknown and its files are
    not restricted. A process with ``writable`` folders is a server: it may start other programs, keeps the named
    ``variables`` of its environment, and may listen on the ``port``, if there is one. ``folder`` is its working
    directory; without it, a process works in a folder that is deleted.
    """

    address_space: int | None
    cpu_seconds: int | None
    readable: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    file_bytes: int = 1 << 20
    open_files: int = 64
    writable: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    folder: str = ""
    port: int = 0

    def text(self) -> str:
        """Return the bounds as one argument of a command, which :func:`bounds_from` reads."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class Report:
    """The protections that are in force, and the missing ones with the reason."""

    in_force: dict[str, str]
    absent: dict[str, str]


def bounds_from(text: str) -> Bounds:
    """Read the bounds from an argument."""
    value = json.loads(text)
    fields: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in value.items()}
    return Bounds(**fields)


def started_by(module: str, *arguments: str) -> list[str]:
    """Return the command that runs ``main`` of a module, of vcrt or another package, with the same Python.

    It finds only the standard library, vcrt and the package of the module.
    """
    roots = [Path(__file__).resolve().parents[2], _root_of(module.partition(".")[0])]
    places = os.pathsep.join(dict.fromkeys(map(str, roots)))
    return [sys.executable, "-I", "-S", "-c", _START.format(module), *arguments, places]


def _root_of(package: str) -> Path:
    """Return the folder that contains a top-level package."""
    spec = importlib.util.find_spec(package)
    assert spec is not None, package
    assert spec.origin is not None, package
    return Path(spec.origin).resolve().parents[1]


def confine(bounds: Bounds) -> Report:
    """Take every right from this process that it does not need to start a prover or a server."""
    report = Report({}, {})
    limits = {
        "address space": (resource.RLIMIT_AS, bounds.address_space),
        "processor time": (resource.RLIMIT_CPU, bounds.cpu_seconds),
        "file size": (resource.RLIMIT_FSIZE, bounds.file_bytes),
        "open files": (resource.RLIMIT_NOFILE, bounds.open_files),
        "core dumps": (resource.RLIMIT_CORE, 0),
    }
    for name, (kind, value) in limits.items():
        if value is None:
            report.absent[name] = "not limited"
        else:
            _note(report, name, _limited(kind, value), f"at most {value:,}")
    if bounds.writable:
        _note(report, "end", _end_with_parent(), "ends with the process that started it")
    elif bounds.folder:
        os.chdir(bounds.folder)
    elif bounds.readable:
        _note(report, "private folder", _leave_folders(), "empty, and not there for others")
    else:
        report.absent["private folder"] = (
            "a script may look for things in the one it was started in"
        )
    _note(report, "privileges", _drop_capabilities(), "no capability but to read")
    version = _landlock_version()
    if not bounds.readable:
        report.absent["files"] = "which files this command needs is not known"
    else:
        problem = _restrict_files(version, bounds)
        may = "reads the verifier and Python, writes nothing, makes, moves and removes no file"
        if bounds.writable:
            may = f"reads {', '.join(bounds.readable)}, writes into its own folders"
        _note(report, "files", problem, f"Landlock {version}: {may}")
        if bounds.writable:
            _note_what_servers_may(report, 0 if problem else version)
        elif bounds.programs:
            means = f"Landlock {version}: only {', '.join(bounds.programs)}"
            _note(report, "other programs", problem, means)
    return report


def _note_what_servers_may(report: Report, version: int) -> None:
    """Note what a server may do because no filter of calls can refuse it; newer versions of Landlock (0: none) do."""
    here = f"here is {version or 'none'}"
    problem = f"a server may end any of this user: Landlock refuses that since version {_SCOPES_VERSION}, {here}"
    means = f"Landlock {version}: sends signals only to what it has started"
    _note(report, "other processes", None if version >= _SCOPES_VERSION else problem, means)
    if version < _TRUNCATE_VERSION:
        report.absent["contents of files"] = (
            f"a server may empty any of this user: Landlock refuses that since version {_TRUNCATE_VERSION}, {here}"
        )
    report.absent["modes, owners and times of files"] = (
        "a server may change those of any file of this user: Landlock refuses none of that"
    )


def refuse_calls(report: Report, phase: system_calls.Phase) -> None:
    """Have the system refuse from now on the system calls that nothing in this phase needs."""
    problem: str | None = "only on Linux"
    if sys.platform == "linux":
        problem = system_calls.install(os.uname().machine, phase)
    for kind in system_calls.REFUSED[phase]:
        _note(report, kind, problem, "seccomp")
    if phase == "script":
        for kind in system_calls.REFUSED["worker"][1:]:
            report.absent[kind] = "a script may start programs, and those may do what the user may"


def refuse_threads(report: Report) -> None:
    """Forbid further threads and processes of this user; the system does not count root's."""
    problem = _limited(resource.RLIMIT_NPROC, 0)
    if problem is None and os.getuid() == 0:
        problem = "the system does not count those of root"
    _note(report, "threads", problem, "no further ones")


def main() -> None:
    """Run a command confined: ``python ... BOUNDS COMMAND...``; without a command, print the report for one."""
    bounds = bounds_from(sys.argv[1])
    report = confine(bounds)
    command = sys.argv[2:]
    if command:
        if bounds.writable:
            os.umask(0o022)
            if mark := os.environ.get(SERVER_MARK):
                mark_process(SERVER_MARK, mark)
            refuse_calls(report, _phase_of(bounds))
            kept = {name: os.environ[name] for name in bounds.variables if name in os.environ}
            os.execve(command[0], command, kept)
        refuse_calls(report, "command" if bounds.readable else "script")
        os.execv(command[0], command)
    if bounds.writable:
        refuse_calls(report, _phase_of(bounds))
    elif not bounds.readable:
        refuse_calls(report, "script")
    elif set(bounds.programs) <= {os.path.realpath(sys.executable)}:
        refuse_threads(report)
        refuse_calls(report, "worker")
    else:
        report.absent["threads"] = "not limited: the program starts its own"
        refuse_calls(report, "command")
    print(json.dumps(asdict(report)))


def _phase_of(bounds: Bounds) -> system_calls.Phase:
    return "listener" if bounds.port else "server"


def _note(report: Report, name: str, problem: str | None, means: str) -> None:
    """Note a protection: it is in force if one means works, even if another means of the same protection is missing."""
    if problem is None:
        report.in_force[name] = means
        report.absent.pop(name, None)
    elif name not in report.in_force:
        report.absent[name] = problem


def _limited(kind: int, value: int) -> str | None:
    """Lower a limit permanently; return what went wrong, or None."""
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    try:
        resource.setrlimit(kind, (value, value))
    except (OSError, ValueError) as error:
        return f"the system refuses the limit: {error}"
    return None


def _leave_folders() -> str | None:
    """Work in a deleted folder: nobody finds it, nothing can be put into it, and it leaves nothing behind."""
    try:
        folder = tempfile.mkdtemp(prefix="vcrt-empty-")
        os.chdir(folder)
        Path(folder).rmdir()
    except OSError as error:
        return f"no folder could be made: {error}"
    return None


def _end_with_parent() -> str | None:
    """Have the system kill this process when the thread that started it has ended."""
    if sys.platform != "linux":
        return "only on Linux"
    parent = os.getppid()
    if ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL, 0, 0, 0):
        return f"prctl failed with error {ctypes.get_errno()}"
    if os.getppid() != parent:
        os._exit(1)
    return None


def _drop_capabilities() -> str | None:
    if sys.platform != "linux":
        return "only on Linux"
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    kept = _READ_SEARCH if os.geteuid() == 0 else 0
    data = struct.pack("=6I", kept, kept, 0, 0, 0, 0)
    if ctypes.CDLL(None, use_errno=True).capset(header, data):
        return f"capset failed with error {ctypes.get_errno()}"
    return None


def _landlock_version() -> int:
    """Return the version of Landlock; 0 if there is none."""
    if sys.platform != "linux":
        return 0
    return max(0, int(ctypes.CDLL(None).syscall(_CREATE, None, 0, _ASK_VERSION)))


def _restrict_files(version: int, bounds: Bounds) -> str | None:
    if version < 1:
        return "no Landlock on this system"
    library = ctypes.CDLL(None, use_errno=True)
    handled = _RIGHTS | sum(right for since, right in _MORE_RIGHTS if version >= since)
    network = _NETWORK if version >= _NETWORK_VERSION else 0
    scopes = _SCOPES if version >= _SCOPES_VERSION else 0
    words = struct.pack("=QQQ", handled, network, scopes)
    size = 24 if scopes else 16 if network else 8
    ruleset = library.syscall(_CREATE, words, size, 0)
    if ruleset < 0:
        return f"Landlock failed with error {ctypes.get_errno()}"
    try:
        reading = (*_SYSTEM_LIBRARIES, *_SYSTEM_FILES, *_loaded_from(), *bounds.readable)
        for path in reading:
            _allow(library, ruleset, path, _READ_FILE | _READ_DIR)
        if network and bounds.port:
            rule = struct.pack("=QQ", _BIND, bounds.port)
            library.syscall(_ADD_RULE, ruleset, _NET_PORT, rule, 0)
        for path in bounds.programs:
            _allow(library, ruleset, path, _READ_FILE | _READ_DIR | _EXECUTE)
        for path in bounds.writable:
            _allow(library, ruleset, path, handled & ~_EXECUTE)
        if bounds.programs:
            for path in _loaded_from(loader=True):
                _allow(library, ruleset, path, _READ_FILE | _EXECUTE)
        if library.prctl(38, 1, 0, 0, 0) or library.syscall(_RESTRICT, ruleset, 0):
            return f"Landlock failed with error {ctypes.get_errno()}"
    finally:
        os.close(ruleset)
    return None


def _allow(library: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    """Allow a path; a path that does not exist needs no right."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            rights &= _READ_FILE | _WRITE_FILE | _TRUNCATE | _EXECUTE
        rule = struct.pack("=Qi", rights, descriptor)
        library.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
    finally:
        os.close(descriptor)


def _loaded_from(*, loader: bool = False) -> set[str]:
    """Return the folders of the libraries in this process, wherever the system keeps them; or the ``loader`` itself."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return set()
    files = {line.split(None, 5)[5] for line in maps.splitlines() if line.count("/") > 1}
    if loader:
        return {file for file in files if os.path.basename(file).startswith("ld")}
    return {os.path.dirname(file) for file in files if ".so" in os.path.basename(file)}
