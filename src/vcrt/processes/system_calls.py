"""Make the seccomp filter of a verifier's process, as a BPF program: the system calls that the kernel refuses to it.

The filter leaves what computing needs: memory, threads, time, reading of open files. It supports Linux on x86-64 and
aarch64. This module imports only the standard library, since a process without any other package uses it.
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import Literal, TypeAlias

#: The numbers of a call on x86-64 and on aarch64; None where there is no such call.
Numbers: TypeAlias = tuple[int | None, int | None]
#: What the filter applies to: a script that may start programs, a program, this program itself, the same with
#: connections that it has made, or a server that starts programs and talks to them through socket pairs; a listener is
#: a server that may listen, but not connect.
Phase: TypeAlias = Literal["script", "command", "worker", "client", "server", "listener"]
#: What the filter refuses to each of them.
REFUSED: dict[Phase, tuple[str, ...]] = {
    "script": ("network",),
    "server": ("network",),
    "listener": ("outgoing connections",),
    "command": ("network", "other processes", "writing"),
    "worker": ("network", "other processes", "writing", "other programs"),
    "client": ("further connections", "other processes", "writing", "other programs"),
}


def _table(text: str) -> tuple[Numbers, ...]:
    """Return the numbers in a table of calls: name, number on x86-64, number on aarch64 or ``-``."""
    rows = (row.split() for line in text.strip().splitlines() for row in line.split(" | "))
    return tuple((int(first), None if second == "-" else int(second)) for _, first, second in rows)


#: Networks, and whatever changes the system, other processes or the rights of this process.
_ALWAYS = _table(
    """
    socket 41 198 | socketpair 53 199 | connect 42 203 | bind 49 200 | listen 50 201 | accept 43 202
    accept4 288 242 | sendto 44 206 | sendmsg 46 211 | sendmmsg 307 269 | rt_sigqueueinfo 129 138
    rt_tgsigqueueinfo 297 240 | pidfd_send_signal 424 424 | pidfd_open 434 434 | pidfd_getfd 438 438
    ptrace 101 117 | process_vm_readv 310 270 | process_vm_writev 311 271 | mount 165 40 | umount2 166 39
    pivot_root 155 41 | chroot 161 51 | unshare 272 97 | setns 308 268 | open_tree 428 428 | move_mount 429 429
    fsopen 430 430 | fsmount 432 432 | mount_setattr 442 442 | open_by_handle_at 304 265 | bpf 321 280
    perf_event_open 298 241 | userfaultfd 323 282 | io_uring_setup 425 425 | add_key 248 217
    request_key 249 218 | keyctl 250 219 | init_module 175 105 | finit_module 313 273 | kexec_load 246 104
    reboot 169 142 | swapon 167 224 | settimeofday 164 170 | clock_settime 227 112 | sethostname 170 161
    memfd_create 319 279 | process_madvise 440 440 | process_mrelease 448 448
    """
)
_SERVING = "socketpair 53 199 | sendto 44 206 | sendmsg 46 211 | sendmmsg 307 269"
_LISTENING = "socket 41 198 | bind 49 200 | listen 50 201 | accept 43 202 | accept4 288 242"
#: Exceptions: a server owns both ends of its socket pairs and has no other socket, a listener others of TCP; a client
#: sends through the connections that it has made.
_LEFT: dict[Phase, tuple[Numbers, ...]] = {
    "server": _table(_SERVING),
    "listener": _table(f"{_SERVING} | {_LISTENING}"),
    "client": _table("sendto 44 206"),
}
#: Refused as unknown, so that the C library uses the older call, whose arguments the filter can see.
_UNKNOWN = _table("clone3 435 435 | openat2 437 437")
#: Refused to a program that starts no process and writes no file: other processes and shared objects, then files.
_ALONE = _table(
    """
    fork 57 - | vfork 58 - | kill 62 129 | tkill 200 130 | setpriority 141 140 | ioprio_set 251 30
    shmget 29 194 | shmat 30 196 | shmctl 31 195 | semget 64 190 | semctl 66 191 | semop 65 193
    semtimedop 220 192 | msgget 68 186 | msgctl 71 187 | msgsnd 69 189 | msgrcv 70 188 | mq_open 240 180
    mq_unlink 241 181 | creat 85 - | truncate 76 45 | ftruncate 77 46 | fallocate 285 47 | rename 82 -
    renameat 264 38 | renameat2 316 276 | mkdir 83 - | mkdirat 258 34 | rmdir 84 - | unlink 87 - | unlinkat 263 35
    link 86 - | linkat 265 37 | symlink 88 - | symlinkat 266 36 | mknod 133 - | mknodat 259 33 | chmod 90 -
    fchmod 91 52 | fchmodat 268 53 | fchmodat2 452 452 | chown 92 - | lchown 94 - | fchown 93 55
    fchownat 260 54 | utime 132 - | utimes 235 - | futimesat 261 - | utimensat 280 88 | setxattr 188 5
    lsetxattr 189 6 | fsetxattr 190 7 | setxattrat 463 463 | removexattr 197 14 | lremovexattr 198 15
    fremovexattr 199 16 | removexattrat 466 466 | file_setattr 469 469
    """
)
#: Calls whose first argument names a process: allowed for this one, by its number or by 0. Every program may lower its
#: own limits, and one that starts no process ends itself by ``tgkill``, as ``abort`` does, under its present number.
_LIMITS = _table("prlimit64 302 261")
_BY_NUMBER = _table(
    """
    tgkill 234 131 | sched_setaffinity 203 122 | sched_setscheduler 144 119 | sched_setparam 142 118
    sched_setattr 314 274 | migrate_pages 256 238 | move_pages 279 239
    """
)
#: Refused to the running program itself: it starts no other program, and raises none of its limits.
_LAST = _table("execve 59 221 | execveat 322 281 | setrlimit 160 164")
_CLONE: Numbers = (56, 220)
_OPEN: Numbers = (2, None)
_OPENAT: Numbers = (257, 56)
_PRLIMIT: Numbers = (302, 261)
_SENDTO: Numbers = (44, 206)
_SENDMSG: Numbers = (46, 211)
_SENDMMSG: Numbers = (307, 269)
_SOCKET: Numbers = (41, 198)
_FCNTL: Numbers = (72, 25)
_IOCTL: Numbers = (16, 29)
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

_CLONE_THREAD = 0x10000
#: AF_INET and AF_INET6; SOCK_STREAM, with SOCK_NONBLOCK, SOCK_CLOEXEC or both; MSG_FASTOPEN, which connects.
_INTERNET, _STREAMS, _CONNECTING = (2, 10), (1, 0x801, 0x80001, 0x80801), 0x20000000
#: O_WRONLY, O_RDWR, O_CREAT and O_TRUNC.
_WRITING = 0x1 | 0x2 | 0x40 | 0x200
#: F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE and F_NOTIFY: they make the kernel send signals, or stop other writers.
_SIGNALLING = (8, 10, 15, 1024, 1026)
#: TCGETS, TCGETS2, TIOCGPGRP, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX: they change no file and no terminal.
_READING_IOCTLS = (0x5401, 0x802C542A, 0x540F, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
_OTHER_CALLS = 0x40000000
_NOT_PERMITTED, _NOT_KNOWN = 1, 38

_LOAD, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_PR_SET_NO_NEW_PRIVS, _SET_FILTER, _SPECULATION_ALLOWED = 38, 1, 4
_SECCOMP: Numbers = (317, 277)


def program(machine: str, phase: Phase, process: int) -> bytes:
    """Return the filter for ``machine`` (as ``os.uname`` names it), a phase, and the process with number ``process``.

    Raise ``KeyError`` for an unknown machine.
    """
    column, architecture = _ARCHITECTURES[machine]
    code = [
        _instruction(_LOAD, _ARCHITECTURE),
        # A 32-bit program has other numbers of calls.
        _instruction(_JUMP_EQUAL, architecture, otherwise=0, then=1),
        _fail(_NOT_PERMITTED),
        _instruction(_LOAD, _NUMBER),
        _instruction(_JUMP_GREATER_EQUAL, _OTHER_CALLS, then=0, otherwise=1),
        _fail(_NOT_PERMITTED),
    ]

    def refuse(numbers: Numbers, error: int) -> None:
        number = numbers[column]
        if number is not None:
            code.extend([_instruction(_JUMP_EQUAL, number, then=0, otherwise=1), _fail(error)])

    def examine(
        numbers: Numbers, argument: int, values: tuple[int, ...], *, jump: int, refused: bool
    ) -> None:
        """Refuse the call if (or, without ``refused``, unless) this word of its arguments meets one of the values."""
        number = numbers[column]
        if number is None:
            return
        tests = len(values)
        code.append(_instruction(_JUMP_EQUAL, number, then=0, otherwise=tests + 3))
        code.append(_instruction(_LOAD, _ARGUMENTS + argument))
        for left, value in zip(reversed(range(tests)), values, strict=True):
            miss = 1 if refused and not left else 0
            code.append(_instruction(jump, value, then=left + (not refused), otherwise=miss))
        code.extend([_fail(_NOT_PERMITTED), _instruction(_LOAD, _NUMBER)])

    def refuse_if(numbers: Numbers, argument: int, bits: int, *, are_set: bool) -> None:
        examine(numbers, argument, (bits,), jump=_JUMP_SET, refused=are_set)

    def only_its_own(numbers: Numbers) -> None:
        examine(numbers, 0, (0, process), jump=_JUMP_EQUAL, refused=False)

    for numbers in _ALWAYS:
        if numbers not in _LEFT.get(phase, ()):
            refuse(numbers, _NOT_PERMITTED)
    for numbers in _LIMITS:
        only_its_own(numbers)
    if phase == "listener":
        examine(_SOCKET, 0, _INTERNET, jump=_JUMP_EQUAL, refused=False)
        examine(_SOCKET, 8, _STREAMS, jump=_JUMP_EQUAL, refused=False)
        refuse_if(_SENDTO, 24, _CONNECTING, are_set=True)
        refuse_if(_SENDMSG, 16, _CONNECTING, are_set=True)
        refuse_if(_SENDMMSG, 24, _CONNECTING, are_set=True)
    if phase in ("command", "worker", "client"):
        for numbers in _ALONE:
            refuse(numbers, _NOT_PERMITTED)
        for numbers in _UNKNOWN:
            refuse(numbers, _NOT_KNOWN)
        refuse_if(_CLONE, 0, _CLONE_THREAD, are_set=False)
        refuse_if(_OPEN, 8, _WRITING, are_set=True)
        refuse_if(_OPENAT, 16, _WRITING, are_set=True)
        for numbers in _BY_NUMBER:
            only_its_own(numbers)
        examine(_FCNTL, 8, _SIGNALLING, jump=_JUMP_EQUAL, refused=True)
        examine(_IOCTL, 8, _READING_IOCTLS, jump=_JUMP_EQUAL, refused=False)
    if phase in ("worker", "client"):
        for numbers in _LAST:
            refuse(numbers, _NOT_PERMITTED)
        # A call that only reads a limit passes no address of a new one; an address has two halves.
        refuse_if(_PRLIMIT, 16, 0xFFFFFFFF, are_set=True)
        refuse_if(_PRLIMIT, 20, 0xFFFFFFFF, are_set=True)
        # A message through a connection names no receiver.
        refuse_if(_SENDTO, 32, 0xFFFFFFFF, are_set=True)
        refuse_if(_SENDTO, 36, 0xFFFFFFFF, are_set=True)
    code.append(_instruction(_RETURN, _ALLOW))
    return b"".join(code)


def install(machine: str, phase: Phase) -> str | None:
    """Install the filter for this process and its descendants; return the failure in words, or None."""
    try:
        code = program(machine, phase, os.getpid())
    except KeyError:
        return f"no filter for {machine}"
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return "the system does not let a process give up privileges"
    buffer = ctypes.create_string_buffer(code)
    # The structure holds the number of 8-byte instructions and, after padding, their address.
    header = struct.pack("=HxxxxxxQ", len(code) // 8, ctypes.addressof(buffer))
    number = _SECCOMP[_ARCHITECTURES[machine][0]]
    if library.syscall(number, _SET_FILTER, _SPECULATION_ALLOWED, header):
        return f"seccomp failed with error {ctypes.get_errno()}"
    return None


def _instruction(code: int, value: int, *, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, then, otherwise, value)


def _fail(error: int) -> bytes:
    return _instruction(_RETURN, _FAIL | error)
