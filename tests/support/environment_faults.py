"""An environment that goes wrong in every way that is asked of it, as a plug-in of real processes, and what must come.

The module `faulty` is written into a folder with the metadata of a package, so that `vcrt` finds it by its entry point.
`FAULT` is `PLACE:KIND`: where it goes wrong, and how.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

NAME = "faulty"
SOURCE = """
import os, subprocess, sys, time

PLACE, _, KIND = os.environ.get("FAULT", ":").partition(":")


def go_wrong():
    if KIND == "exit":
        sys.exit(0)
    if KIND == "end":
        os._exit(0)
    if KIND == "kill":
        os.kill(os.getpid(), 9)
    if KIND == "hang":
        time.sleep(1000)
    if KIND == "spin":
        while True:
            try:
                while True:
                    pass
            except BaseException:
                pass
    if KIND == "fork":
        os.fork()
    if KIND == "child":
        if os.fork() == 0:
            time.sleep(1000)
    if KIND == "daemon":
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
    if KIND == "orphan":  # a child that keeps the pipes of its parent, which then ends
        if os.fork() == 0:
            time.sleep(1000)
        os._exit(0)
    if KIND == "deep":
        def deeper():
            return deeper()
        deeper()
    if KIND == "input":
        input("Password: ")
    if KIND == "print":
        print("what does not belong there", flush=True)
        os.write(1, b"nor this" + bytes([10]))
    if KIND == "file":
        open("/nowhere/at/all")
    if KIND == "memory":
        raise MemoryError("too much")
    raised = {
        "interrupt": KeyboardInterrupt, "generator": GeneratorExit, "stop": StopIteration, "key": KeyError,
        "zero": ZeroDivisionError, "assert": AssertionError, "attribute": AttributeError,
        "broken_pipe": BrokenPipeError, "not_implemented": NotImplementedError,
        "base": type("Own", (BaseException,), {}),
        "picky": type("Picky", (Exception,), {"__init__": lambda self, one, two: None}),
    }
    if KIND == "picky":
        raise raised[KIND](1, 2)
    if KIND in raised:
        raise raised[KIND]("of the environment")


if PLACE == "import":
    go_wrong()

from vcrt.environments.contract import *

SURROGATE = "half \\ud800 of it"


def wrong(place):
    if PLACE == place:
        go_wrong()


class Base:
    name = "faulty"
    schemas = (Schema(name="needs", summary="one needs another", relation="precedes"),)

    def __init__(self):
        wrong("make")

    def versions(self):
        wrong("versions")
        verifier = SURROGATE if (PLACE, KIND) == ("versions", "surrogate") else "faulty 1"
        return Versions(environment="faulty", adapter="1", canonicalizer="1", verifier=verifier)

    def guards(self):
        wrong("guards")
        return Guards()

    def describe(self, operation):
        wrong("describe")
        return {"surrogate": SURROGATE, "none": None}.get(KIND, "do it") if PLACE == "describe" else "do it"

    def sample(self, schema, seed):
        wrong("sample")
        def initial(kind):
            return {"nan": float("nan"), "bytes": b"bytes", "surrogate": SURROGATE}.get(kind, seed)
        payloads = [[], ["a"], [], []]
        if PLACE == "payload":
            payloads[1] = ["a", initial(KIND)]
        return Episode(
            environment="faulty",
            schema=schema,
            initial=initial(KIND if PLACE == "initial" else ""),
            operations=tuple(Operation(signature=s, payload=p) for s, p in zip("abcd", payloads)),
            provenance=Provenance(source=str(seed), generator="faulty 1", seed=seed),
        )

    def cross_check(self, episode):
        wrong("cross_check")
        return ()

    def first(self, episode):
        wrong("initial_state")
        return (episode.initial,)

    def after(self, state, operation):
        if operation.signature == "c" and "b" in state:
            wrong("step")
        if not set(operation.payload) <= set(state):
            reason = {"surrogate": SURROGATE, "long": "no " * 2**20, "empty": "", "none": None}
            return Rejected(reason.get(KIND, "a is missing") if PLACE == "reason" else "a is missing")
        return Accepted((*state, operation.signature))

    def form(self, state):
        wrong("canonical")
        return repr((state[0], sorted(state[1:]))).encode()


class Steps(Base, StepEnvironment):
    initial_state, step, canonical = Base.first, Base.after, Base.form


class Batches(Base, BatchEnvironment):
    def replay(self, requests):
        from vcrt.hashing import sha256_hex

        wrong("replay")
        answers = []
        for request in requests:
            state = self.first(request.episode)
            hashes, refusal = [sha256_hex(self.form(state))], None
            for index in request.sequence:
                answer = self.after(state, request.episode.operations[index])
                if isinstance(answer, Rejected):
                    refusal = answer
                    break
                state = answer.state
                hashes.append(sha256_hex(self.form(state)))
            answers.append(Replay(request.sequence, tuple(hashes), refusal))
        return answers


Faulty = Batches if os.environ.get("FORM") == "batches" else Steps
"""


def install(folder: Path) -> Path:
    """Write the plug-in into ``folder``, which is to stand in PYTHONPATH."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "faulty.py").write_text(SOURCE, encoding="utf-8")
    metadata = folder / "faulty-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[vcrt.environments]\nfaulty = faulty:Faulty\n")
    return folder


def run(
    folder: Path,
    *arguments: str,
    fault: str = ":",
    form: str = "steps",
    timeout_s: float = 60,
    cwd: Path | None = None,
    seconds: float = 120,
) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own with that fault; raises if it does not end in time."""
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "FAULT": fault,
        "FORM": form,
        "FAULTY_HERE": str(folder),
        "VCRT_VERIFIER_TIMEOUT": str(timeout_s),
    }
    return subprocess.run(
        [sys.executable, "-m", "vcrt", *arguments],
        env=environment,
        cwd=cwd or folder,
        capture_output=True,
        text=True,
        timeout=seconds,
        stdin=subprocess.DEVNULL,
    )


def left_over(folder: Path, within_s: float = 5.0) -> list[str]:
    """The command lines of processes that commands of :func:`run` have left behind."""
    deadline = time.monotonic() + within_s
    while True:
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("FAULTY_HERE") == str(folder):
                    found.append(" ".join(process.cmdline()))
            except psutil.Error:
                continue
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


#: Every command that asks an environment, given a dataset and a certificate that were made without a fault.
COMMANDS = {
    "certify": ("certify", "--schemas", NAME, "--episodes", "2", "--output", "new", "--jobs", "1"),
    "verify": ("verify", "data", "--jobs", "1"),
    "verify --certificate": ("verify", "--certificate", "certificate.json"),
    "validate": ("environments", "validate", NAME, "--quick"),
    "show": ("show", f"{NAME}/needs/7"),
    "environments": ("environments",),
    "doctor": ("doctor",),
}
#: What leaves every answer as it is: only no process may be left, and no output be mixed.
HARMLESS = ("fork", "child", "daemon", "print")
#: Commands that list what is there, broken or not, and so succeed.
LISTS = ("environments",)
#: Where each command asks the environment: only there can a fault show.
ASKED_OF_ITSELF = ("import", "make", "versions", "guards")
REPLAYED = ("initial_state", "step", "canonical", "reason")
SAMPLED = ("sample", "initial", "payload")
PLACES = {
    "certify": (*ASKED_OF_ITSELF[:3], *SAMPLED, *REPLAYED, "cross_check"),
    "verify": (*ASKED_OF_ITSELF[:3], *REPLAYED, "cross_check"),
    "verify --certificate": (*ASKED_OF_ITSELF[:3], *REPLAYED, "cross_check"),
    "validate": (*ASKED_OF_ITSELF[:3], *SAMPLED, *REPLAYED),
    "show": (*ASKED_OF_ITSELF[:3], *SAMPLED, *REPLAYED, "cross_check", "describe"),
    "environments": ASKED_OF_ITSELF,
    "doctor": ASKED_OF_ITSELF,
}


def made(folder: Path) -> Path:
    """The plug-in, with a dataset of it and a certificate, made without a fault."""
    made_with_dataset(folder)
    add_certificate(folder)
    return folder


def add_certificate(folder: Path) -> None:
    """Put the certificate of an episode into the folder of the plug-in."""
    shown = run(folder, "show", f"{NAME}/needs/7", "--json")
    assert shown.returncode == 0, shown.stderr
    (folder / "certificate.json").write_text(shown.stdout, encoding="utf-8")


def made_with_dataset(folder: Path) -> Path:
    """The plug-in, with a dataset of it, made without a fault."""
    install(folder)
    certified = run(folder, *COMMANDS["certify"][:-3], "data", "--jobs", "1")
    assert certified.returncode == 0, certified.stderr
    verified = run(folder, *COMMANDS["verify"])
    assert verified.returncode == 0, verified.stderr
    return folder


def flaw(command: str, fault: str, done: subprocess.CompletedProcess[str]) -> str | None:
    """What is wrong with how a command ended that met a fault, None if it is as it must be."""
    said = done.stdout + done.stderr
    if fault.partition(":")[2] in HARMLESS:
        return None if done.returncode == 0 else "it fails though every answer came"
    if "Traceback" in said:
        return "a traceback"
    if command in LISTS:
        return None if "not available" in said and done.returncode == 0 else "no word of the fault"
    if done.returncode == 0:
        return "it looks like success"
    if NAME not in said:
        return "the environment is not named"
    place = fault.partition(":")[0]
    if (
        place in ("step", "initial_state", "canonical", "payload", "reason")
        and f"{NAME}/needs" not in said
    ):
        return "the episode is not named"
    if place == "step" and "'c'" not in said and "replay of " not in said:
        return "the step is not named"
    return None
