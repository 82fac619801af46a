"""The doors through which a stranger's text comes to Lean, and what becomes of an attack at each of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from lean_attacks import Attack
from vcrt.certificates.episodes import PAPER_PRESET, CertifiedEpisode, certify_episode
from vcrt.datasets import examination
from vcrt.datasets.examination import examine, verify_certificate
from vcrt.environments.contract import (
    Episode,
    Operation,
    Provenance,
    Replay,
    ReplayRequest,
    Versions,
)
from vcrt.errors import DatasetError, MalformedInputError, UnknownNameError, VerifierFailure
from vcrt.hashing import Json, json_digest
from vcrt.processes import in_fresh_processes
from vcrt.records.certificate import certificate_document
from vcrt.replay.evidence import evidence_from_json
from vcrt.replay.replay import replay_to_json
from vcrt.replay.shards import evidence_again
from vcrt_lean.environment import LeanEnvironment
from vcrt_lean.grammar import Step
from vcrt_lean.inprocess import Elaborators, judge_shared
from vcrt_lean.judging import Job, Limits
from vcrt_lean.program import Declarations, Program, Tactics, read_program
from vcrt_lean.toolchain import find_toolchain

#: What became of an attack; only the last one is a defect.
OUTCOMES = ("grammar", "lean", "axioms", "kernel", "limit", "no verdict", "not run", "accepted")
#: A short wall clock: an attack that needs longer is ended by it.
LIMITS = Limits(lone_seconds=4.0, batch_seconds=8.0, max_heartbeats=5_000, max_memory_mb=700.0)
SEQUENCES = ((0,), (0, 1), (1, 0))

#: Words of a limit: one of Lean's own, the wall clock, the memory, the answer's size, or a death by a signal.
_LIMITS_REACHED = (
    *("ran into a limit", "no answer after", "no end after", "over the limit", "bytes"),
    *("exit status -", "recursion depth", "deep recursion"),
)

_DECLARATIONS: Json = {"form": "declarations", "setup": [], "probes": []}
# All but the attack itself can be proved, by a name that no attack knows.
_STATEMENT = "theorem t1 (hidden7 : False) : And False False"
_OPENING = "refine And.intro ?a1 ?b1"
_TACTICS: Json = {
    "form": "tactics",
    "statement": _STATEMENT,
    "opening": _OPENING,
    "closing": None,
}
_HARMLESS = "theorem d9 (p : Prop) (x : p) : p := x"
_OTHER = "theorem e9 (p : Prop) (x : p) : p := x"
_CASE = "case b1 => exact hidden7"


def episode(name: str, initial: Json, *payloads: str) -> Episode:
    """An episode of hand-made steps, called by what they declare."""
    return Episode(
        environment="lean",
        schema="cite",
        initial=initial,
        operations=tuple(
            Operation(signature=_signature(text, place), payload=text)
            for place, text in enumerate(payloads)
        ),
        provenance=Provenance(source=f"lean.attack/{name}", generator="lean.attack", seed=0),
    )


def _signature(text: str, place: int) -> str:
    words = text.split()
    known = len(words) > 1 and words[0] in ("theorem", "def", "inductive", "instance")
    return words[1] if known else f"step{place}"


def placed(attack: Attack) -> Iterator[tuple[str, Episode]]:
    """The attack in every place of an episode that holds a text for Lean."""
    text = attack.text
    yield "declaration", episode("declaration", _DECLARATIONS, text, _HARMLESS)
    yield "class", episode("class", {**_DECLARATIONS, "setup": [text]}, _HARMLESS, _OTHER)
    probing = {**_DECLARATIONS, "setup": ["class K1 (α : Type) where v1 : α"], "probes": [text]}
    yield "probe", episode("probe", probing, _HARMLESS, _OTHER)
    yield "tactic", episode("tactic", _TACTICS, text, _CASE)
    for place in ("statement", "opening", "closing"):
        yield place, episode(place, {**_TACTICS, place: text}, "case a1 => exact hidden7", _CASE)


def by_step(environment: LeanEnvironment, attack: Attack) -> Iterator[tuple[str, str]]:
    """Place and outcome of an attack in each place of an episode that is replayed."""
    for place, sample in placed(attack):
        sequences = [s for s in SEQUENCES if max(s) < sample.num_operations]
        yield (
            f"step/{place}",
            outcome(
                lambda sample=sample, sequences=sequences: proved(
                    environment.replay([ReplayRequest(sample, s) for s in sequences]), sample
                )
            ),
        )


def proved(replays: Sequence[Replay], sample: Episode) -> str:
    """Whether something false was proved: by a declaration, or by the whole of a proof."""
    whole = sample.num_operations if sample.initial["form"] == "tactics" else 1
    return _judged([r for r in replays if len(r.sequence) >= whole])


def _judged(replays: Sequence[Replay]) -> str:
    # In a sequence that runs the harmless step first, the attack is the last one: all of it counts.
    if any(replay.accepted for replay in replays):
        return "accepted"
    reasons = [r.rejection.reason for r in replays if r.rejection is not None]
    return "axioms" if all("depends on axioms" in reason for reason in reasons) else "lean"


def outcome(run: Callable[[], str]) -> str:
    """What becomes of an attack, from what it returns or raises; anything unforeseen comes through."""
    try:
        return run()
    except (MalformedInputError, UnknownNameError) as error:
        return "lean" if "Lean refuses" in error.what else "grammar"
    except DatasetError as error:
        return (
            "lean" if "does not replay" in error.what or "Lean refuses" in error.what else "grammar"
        )
    except VerifierFailure as error:
        return _ended(str(error.found))


def _ended(found: str) -> str:
    if "kernel alone" in found:
        return "kernel"
    return "limit" if any(word in found for word in _LIMITS_REACHED) else "no verdict"


_QUESTIONS = (
    "#print axioms True.intro\n#print axioms a1_r0000\n#print axioms x1\n#check @And.intro\n"
    "#synth CoeT Prop True False\n#print False\ntheorem z1 (p : Prop) (x : p) : p := x\n"
)


def good_certificate() -> dict[str, Json]:
    """The document of a certified episode of the ``cite`` schema."""
    environment = LeanEnvironment()
    sample = environment.sample("cite", 5)
    return examine(LeanEnvironment, sample, PAPER_PRESET).document()


def by_certificate(
    document: dict[str, Json], attack: Attack, folder: Path, places: Sequence[int] = (0,)
) -> Iterator[tuple[str, str]]:
    """Outcome of a certificate in which a text of the episode was replaced, sealed again."""
    for place in places:
        path = _forged(document, attack, folder, place)
        yield f"certificate/step {place}", outcome(lambda path=path: _verified(path))


def _forged(document: dict[str, Json], attack: Attack, folder: Path, place: int) -> Path:
    """A certificate with another text for a step, in which all else follows as it should, down to the digest."""
    forged = json.loads(json.dumps(document))
    operation = forged["episode"]["operations"][place]
    operation["payload"] = re.sub(r"\ba1\b", operation["signature"], attack.text)
    try:
        evidence = evidence_from_json(forged)
        certified = certify_episode(
            evidence.replays, Versions(**forged["versions"]), PAPER_PRESET, evidence.cross_checks
        )
        assert isinstance(certified, CertifiedEpisode)
        forged = certificate_document(certified, PAPER_PRESET)
    except UnicodeEncodeError:
        # No canonical JSON holds such a text, so no digest does.
        pass
    path = folder / "certificate.json"
    path.write_text(json.dumps(forged))
    return path


def verified_apart(document: dict[str, Json], attack: Attack, folder: Path) -> str:
    """As :func:`by_certificate`, with the replays in a process of their own, as `vcrt verify` makes them."""
    here = examination.in_fresh_processes
    examination.in_fresh_processes = in_fresh_processes
    try:
        return _verified(_forged(document, attack, folder, 0))
    finally:
        examination.in_fresh_processes = here


def _verified(path: Path) -> str:
    verify_certificate(path, factories={"lean": _environment})
    return "accepted"


def _environment() -> LeanEnvironment:
    return LeanEnvironment(limits=LIMITS, recheck=True)


def in_this_process(monkeypatch) -> None:
    """Let certificates be replayed here, by one worker, instead of each in a process of its own."""
    monkeypatch.setattr(
        examination,
        "in_fresh_processes",
        lambda function, arguments, **options: map(function, arguments),
    )
    assert examination.evidence_again is evidence_again


def by_deciding(attack: Attack) -> Iterator[tuple[str, str]]:
    """Outcome of an attack in what ``vcrt decide`` reads, which must be no more than a name."""
    steps = [
        {"label": label, "text": text, "line": 1}
        for label, text in ((attack.text, attack.text), ("x", "y"))
    ]
    pair = {
        **{"first": 0, "second": 1, "relation": "commutes", "before": None, "always_first": 0},
        **{"reason": attack.text, "contexts": {}},
    }
    theorem = {
        **{"name": attack.text, "line": 1, "steps": steps, "orders": 2, "legal_orders": 2},
        **{"other_state": 0, "pairs": [pair]},
    }
    file = {
        "file": "f.lean",
        "sha256": "0" * 64,
        "replay": "merged",
        "theorems": [theorem],
        "refused": [],
    }
    if find_spec("vcrt_train") is None:
        return  # Lean's tests do without the package where this door is.
    for place, document in (("theorem", theorem), ("file", [file])):
        data = json.dumps(document).encode()
        yield f"decide/{place}", outcome(lambda data=data: _stated(data, attack.text))


def _stated(data: bytes, theorem: str) -> str:
    from vcrt_train.protocol.relation_records import read_relation_record

    read_relation_record(data, "record.json", theorem=theorem)
    return "not run"


def asking(text: str) -> dict[str, object]:
    """A request to run a text in the environment that every episode starts from."""
    empty, whole = ({"text": t, "guarded": 0, "name": "", "declared": []} for t in ("", text))
    declarations = {"start": empty, "steps": [whole]}
    return {"declarations": declarations, "sequences": [[0]], "recheck": True}


def said_to(answer: dict[str, object]) -> object:
    """What Lean said to that text."""
    ((_, said),) = answer["steps"]
    return said


class Raw:
    """A worker that is given texts past the grammar, as if they had passed it."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.elaborators = Elaborators(find_toolchain(), limits)

    def judge(self, program: Program, sequences: Sequence[tuple[int, ...]]) -> list[Replay]:
        """Replays of a program that no grammar has seen."""
        jobs = [Job(label="attack", program=program, sequence=s) for s in sequences]
        return judge_shared(self.elaborators, jobs, recheck=True)

    def environment(self) -> object:
        """What Lean says in the environment that every episode starts from."""
        return self.elaborators.run(asking(_QUESTIONS), said_to, cost=1)

    def replay(self, requests: Sequence[ReplayRequest]) -> list[Replay]:
        """Replays of episodes that do pass the grammar, by the same worker."""
        return [
            replay
            for request in requests
            for replay in self.judge(read_program(request.episode), (request.sequence,))
        ]

    def outcomes(self, attack: Attack, *, everywhere: bool = True) -> Iterator[tuple[str, str]]:
        """Place and outcome of an attack as a declaration and as a tactic, or only as what it was written for."""
        harmless = Step(kind="theorem", name="d9", text=_HARMLESS)
        declared = Declarations(
            setup=(), probes=(), steps=(Step(kind="theorem", name="a1", text=attack.text), harmless)
        )
        if everywhere or not attack.tactic:
            yield "raw/declaration", outcome(lambda: _judged(self.judge(declared, ((0,), (0, 1)))))
        if not everywhere and not attack.tactic:
            return
        statement = Step(kind="theorem", name="t1", text=_STATEMENT)
        proof = Tactics(
            statement=statement,
            opening=_OPENING,
            closing=None,
            steps=(
                Step(kind="case", name="a1", text=attack.text),
                Step(kind="case", name="b1", text=_CASE),
            ),
        )
        yield "raw/tactic", outcome(lambda: _judged(self.judge(proof, ((0, 1), (1, 0)))))


def good_episodes() -> list[Episode]:
    """One episode of each form, with classes and without, whose answers show what an environment holds."""
    environment = LeanEnvironment()
    return [environment.sample(schema, 3) for schema in ("cite", "instances", "tactic_siblings")]


def good_digest(replay: Callable[[list[ReplayRequest]], list[Replay]]) -> str:
    """A digest of the verdicts and states of good episodes, which nothing may change."""
    orders = ((0, 1, 2, 3), (3, 2, 1, 0))
    requests = [ReplayRequest(sample, order) for sample in good_episodes() for order in orders]
    return json_digest([replay_to_json(answer) for answer in replay(requests)])
