"""The lean environment against the real Lean: verdicts, states, isolation and what happens when Lean breaks."""

from __future__ import annotations

import itertools
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from vcrt.environments.contract import (
    Episode,
    Operation,
    Provenance,
    Rejected,
    Replay,
    ReplayRequest,
)
from vcrt.errors import MalformedInputError, UnknownNameError, VerifierFailure
from vcrt.hashing import Json
from vcrt_lean import judging
from vcrt_lean.environment import LeanEnvironment
from vcrt_lean.grammar import Step
from vcrt_lean.judging import Job, Limits, judge
from vcrt_lean.program import Declarations, read_program
from vcrt_lean.toolchain import UNKNOWN, Toolchain, find_toolchain

SEEDS = (0, 1, 17)
ORDERS = tuple(itertools.permutations(range(4)))
SCHEMAS = tuple(s.name for s in LeanEnvironment.schemas if s.preset == "paper")
PLAIN: Json = {"form": "declarations", "setup": [], "probes": []}
FACTS: Json = {
    "form": "tactics",
    "statement": "theorem t1 (p q : Prop) (x : p) (y : p → q) : p",
    "opening": None,
    "closing": "exact x",
}
GOOD = "theorem a1 (p : Prop) (x : p) : And p p := And.intro x x"
CITING = "theorem b1 (p : Prop) (x : p) : And p p := a1 p x"


def episode(initial: Json, *payloads: str, seed: int = 0) -> Episode:
    """A hand-made episode; each step is named by the first word after its keyword."""
    return Episode(
        environment="lean",
        schema="by_hand",
        initial=initial,
        operations=tuple(
            Operation(signature=text.removeprefix("noncomputable ").split()[1], payload=text)
            for text in payloads
        ),
        provenance=Provenance(source=f"lean.by_hand/{seed}", generator="lean.by_hand", seed=seed),
    )


def changed(value: Json, **fields: Json) -> Json:
    assert isinstance(value, dict)
    return {**value, **fields}


def job(of: Episode, *sequence: int) -> Job:
    return Job(label=of.episode_id, program=read_program(of), sequence=sequence)


def one(env: LeanEnvironment, of: Episode, *sequence: int) -> Replay:
    (answer,) = env.replay([ReplayRequest(of, sequence)])
    assert answer.sequence == sequence
    return answer


@pytest.fixture(scope="module")
def env() -> LeanEnvironment:
    return LeanEnvironment()


@pytest.fixture(scope="module")
def replays(env: LeanEnvironment) -> dict[tuple[str, int], dict[tuple[int, ...], Replay]]:
    """All orders of the sampled episodes, replayed in mixed batches."""
    keys = list(itertools.product(SCHEMAS, SEEDS))
    episodes = {key: env.sample(*key) for key in keys}
    requests = [ReplayRequest(episodes[key], order) for order in ORDERS for key in keys]
    found: dict[tuple[str, int], dict[tuple[int, ...], Replay]] = {key: {} for key in keys}
    for key, answer in zip(itertools.cycle(keys), env.replay(requests), strict=False):
        found[key][answer.sequence] = answer
    return found


def dependent_pair(orders: list[tuple[int, ...]]) -> list[tuple[int, int]]:
    pairs = itertools.permutations(range(4), 2)
    return [(a, b) for a, b in pairs if all(o.index(a) < o.index(b) for o in orders)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("schema", SCHEMAS)
class TestSchemas:
    def test_twelve_orders_are_legal(self, schema, seed, replays):
        answers = replays[schema, seed]
        reference = answers[0, 1, 2, 3]
        assert reference.accepted
        legal = [o for o, a in answers.items() if a.terminal_hash == reference.terminal_hash]
        assert len(legal) == 12
        ((first, second),) = dependent_pair(legal)
        assert first < second
        reversals = [a for order, a in answers.items() if order not in legal]
        if LeanEnvironment().schema(schema).relation == "precedes":
            assert all(a.rejection is not None and a.rejection.reason for a in reversals)
        else:
            (other,) = {a.terminal_hash for a in reversals}
            assert other not in (None, reference.terminal_hash)

    def test_each_step_changes_the_state(self, schema, seed, replays):
        for answer in replays[schema, seed].values():
            assert len(set(answer.state_hashes)) == len(answer.state_hashes)

    def test_equal_prefixes_have_equal_states(self, schema, seed, replays):
        seen: dict[tuple[int, ...], str] = {}
        for order, answer in replays[schema, seed].items():
            for count, state in enumerate(answer.state_hashes):
                assert seen.setdefault(order[:count], state) == state

    def test_a_refused_step_ends_the_states(self, schema, seed, replays):
        for answer in replays[schema, seed].values():
            expected = 5 if answer.accepted else len(answer.state_hashes)
            assert len(answer.state_hashes) == expected
            assert answer.accepted or len(answer.state_hashes) <= 4


@pytest.mark.parametrize("schema", SCHEMAS)
def test_results_do_not_depend_on_the_batch(schema, env, replays):
    sample = env.sample(schema, 17)
    known = replays[schema, 17]
    chosen = [(3, 2, 1, 0), (0, 1, 2, 3), (2, 0, 3, 1)]
    again = env.replay([ReplayRequest(sample, order) for order in chosen])
    assert again == [known[order] for order in chosen]
    assert one(env, sample, 3, 2, 1, 0) == known[3, 2, 1, 0]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_prefix_has_the_states_of_the_whole(schema, env, replays):
    sample = env.sample(schema, 1)
    orders = [(0, 1, 2, 3), (3, 1, 0, 2)]
    requests = [ReplayRequest(sample, order[:n]) for order in orders for n in range(4)]
    for request, answer in zip(requests, env.replay(requests), strict=True):
        whole = next(
            a
            for o, a in replays[schema, 1].items()
            if o[: len(request.sequence)] == request.sequence
        )
        length = len(request.sequence)
        assert answer.state_hashes == whole.state_hashes[: length + 1]
        if len(whole.state_hashes) > length:
            assert answer.rejection is None
        else:
            assert answer.rejection == whole.rejection


def test_sampling_is_deterministic_and_varied(env):
    for schema in SCHEMAS:
        episodes = [env.sample(schema, seed) for seed in range(60)]
        assert episodes[7] == env.sample(schema, 7)
        assert len({e.content_hash() for e in episodes}) == 60
        assert episodes[3].provenance.source == f"lean.{schema}/seed=3"
        for sample in episodes:
            assert len({o.signature for o in sample.operations}) == 4
    with pytest.raises(UnknownNameError):
        env.sample("citee", 0)


def test_the_dependent_pair_stands_anywhere(env):
    """In ``cite`` the citing step is the one that speaks of another's name."""
    places = set()
    for seed in range(80):
        operations = env.sample("cite", seed).operations
        for a, b in itertools.permutations(range(4), 2):
            if f"{operations[a].signature} " in str(operations[b].payload):
                places.add((a, b))
    assert places == set(itertools.combinations(range(4), 2))


def test_the_reason_is_leans_own_message_with_names_restored(env):
    answer = one(env, episode(PLAIN, GOOD, CITING), 1, 0)
    assert answer.rejection == Rejected("Unknown identifier `a1`")
    assert len(answer.state_hashes) == 1


def test_a_reason_does_not_depend_on_the_place_in_the_batch(env):
    """Lean's words about a failed term may hold its line, its metavariables their numbers."""
    texts = (
        "theorem a1 (p : Prop) (x : k9 p) : And p p := And.intro x p",
        "theorem a1 : Exists (fun n : N => Eq n (N.s n)) := Exists.intro _ (Eq.refl _)",
        "theorem a1 (p : Prop) (x : p) : And p p := And.intro (x x) p",
        "theorem a1 (p : Prop) : p := fun (x : p) => x",
    )
    wrong = [ReplayRequest(episode(PLAIN, text), (0,)) for text in texts]
    good = [ReplayRequest(episode(PLAIN, GOOD, CITING), (0, 1))]
    answers = env.replay([*wrong, *good * 7, *reversed(wrong)])
    assert answers[:4] == answers[:-5:-1]
    assert all(a.rejection is not None for a in answers[:4])
    assert answers[:4] == [env.replay([request])[0] for request in wrong]


def test_a_repeated_step_is_refused(env):
    answer = one(env, episode(PLAIN, GOOD, CITING), 0, 0)
    assert len(answer.state_hashes) == 2
    assert answer.rejection is not None
    assert "has already been declared" in answer.rejection.reason


def test_states_are_leans_not_the_texts(env):
    """Two texts that Lean elaborates to the same thing give the same state; another statement does not."""
    same = "theorem a1 (p : Prop) (x : p) : And p p := ⟨x, x⟩"
    other = "theorem a1 (p : Prop) (x : p) : Or p p := Or.inl x"
    hashes = [one(env, episode(PLAIN, text), 0).terminal_hash for text in (GOOD, same, other)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_the_value_of_a_definition_belongs_to_the_state(env):
    texts = ("def a1 : N := N.z", "def a1 : N := N.s N.z", "inductive a1 : Type where | c1 | c2")
    hashes = {one(env, episode(PLAIN, text), 0).terminal_hash for text in texts}
    assert len(hashes) == 3
    assert None not in hashes


def test_instances_do_not_leak_between_replays(env):
    """A step that needs an instance is refused, whatever instances other replays of the batch declare."""
    start: Json = {
        "form": "declarations",
        "setup": ["class K1 (α : Type) where v1 : α"],
        "probes": ["K1 N"],
    }
    with_instance = episode(start, "instance a1 : K1 N := ⟨N.z⟩", "def b1 : N := K1.v1")
    requests = [ReplayRequest(with_instance, s) for s in ((0, 1), (1, 0), (0,), (1,), (0, 1))]
    found = [answer.accepted for answer in env.replay(requests)]
    assert found == [True, False, True, False, True]
    refused = one(env, with_instance, 1).rejection
    assert refused is not None
    assert refused.reason.startswith("failed to synthesize")


def test_an_instance_of_a_shared_class_is_not_allowed(env):
    with pytest.raises(MalformedInputError, match="class of this very episode"):
        one(env, episode(PLAIN, "instance a1 : And True True := ⟨True.intro, True.intro⟩"), 0)


def test_a_wrong_step_does_not_disturb_its_neighbours(env):
    broken = [
        "theorem a1 (p : Prop) : p :=  fun x =>",
        "theorem a1 (p : Prop) (x : p) : And p p →",
        "theorem a1 : False := True.intro",
        "theorem a1 (p : Prop : p := p",
    ]
    good = episode(PLAIN, GOOD, CITING)
    alone = one(env, good, 0, 1)
    bad = [episode(PLAIN, text) for text in broken[:1] + broken[2:3]]
    mixed = [
        ReplayRequest(good, (0, 1)),
        *(ReplayRequest(b, (0,)) for b in bad),
        ReplayRequest(good, (0, 1)),
    ]
    first, *refused, last = env.replay(mixed)
    assert first == last == alone
    assert all(r.rejection is not None and len(r.state_hashes) == 1 for r in refused)
    for text in (broken[1], broken[3]):
        with pytest.raises(MalformedInputError):
            one(env, episode(PLAIN, text), 0)


def test_more_errors_than_lean_reports_by_default(env):
    pair = episode(PLAIN, GOOD, CITING)
    orders = [(1,)] * 150 + [(0, 1), (1,)]
    answers = env.replay([ReplayRequest(pair, order) for order in orders])
    assert [a.accepted for a in answers] == [False] * 150 + [True, False]


def test_a_step_that_rests_on_an_axiom_is_refused():
    """The grammar has no way to say this; the reading of Lean's answers must not depend on that."""
    step = Step(kind="theorem", name="a1", text="theorem a1 : False := sorryAx False Bool.true")
    program = Declarations(setup=(), probes=(), steps=(step,))
    (answer,) = judge(
        find_toolchain(), [Job(label="axiom", program=program, sequence=(0,))], Limits()
    )
    assert answer.rejection is not None
    assert answer.rejection.reason.startswith("'a1' depends on axioms: [sorryAx")
    assert len(answer.state_hashes) == 1


class TestProofs:
    def test_an_error_in_the_middle_ends_the_accepted_steps(self, env):
        """Lean goes on after a failed ``case`` and prints goals for the later steps too."""
        start = changed(
            FACTS,
            statement="theorem t1 (p q : Prop) (x : p) (y : p → q) : And p (And q p)",
            opening="refine And.intro ?a1 (And.intro ?b1 ?c1)",
            closing=None,
        )
        sample = episode(start, "case a1 => exact x", "case b1 => exact x", "case c1 => exact x")
        answer = one(env, sample, 0, 1, 2)
        assert len(answer.state_hashes) == 2
        assert answer.rejection is not None
        assert "ype mismatch" in answer.rejection.reason
        assert one(env, sample, 0, 2).accepted

    def test_an_error_that_no_step_shows_refuses_the_whole(self, env):
        sample = episode(
            changed(FACTS, closing="exact y"), "have a1 : q := y x", "have b1 : p := x"
        )
        answer = one(env, sample, 0, 1)
        assert len(answer.state_hashes) == 3
        assert answer.rejection is not None
        assert answer.terminal_hash is None
        assert one(env, sample, 0).accepted

    def test_a_goal_that_is_left_open_refuses_the_whole(self, env):
        start = changed(
            FACTS,
            statement="theorem t1 (p q : Prop) (x : p) (y : p → q) : And p (And q p)",
            opening="refine And.intro ?a1 (And.intro ?b1 ?c1)",
            closing=None,
        )
        sample = episode(start, "case a1 => exact x", "case b1 => exact y x")
        answer = one(env, sample, 0, 1)
        assert len(answer.state_hashes) == 3
        assert answer.rejection is not None
        assert answer.rejection.reason.startswith("unsolved goals case c1")

    def test_a_step_without_an_end_is_refused(self, env):
        sample = episode(FACTS, "have a1 : q := y x", "have b1 : p → p := fun z =>")
        answer = one(env, sample, 0, 1)
        assert len(answer.state_hashes) == 2
        assert answer.rejection is not None

    def test_the_older_of_two_names_is_told_from_the_newer(self, env, replays):
        sample = env.sample("shadow", 0)
        texts = [str(o.payload).split()[1] for o in sample.operations]
        first, second = (i for i, name in enumerate(texts) if texts.count(name) == 2)
        rest = tuple(i for i in range(4) if i not in (first, second))
        answers = replays["shadow", 0]
        assert (
            answers[first, second, *rest].state_hashes[2]
            != answers[second, first, *rest].state_hashes[2]
        )

    @pytest.mark.parametrize(
        "fields",
        [
            {"statement": "theorem t1 (x : p) : p"},
            {"opening": "refine And.intro ?a1 ?b1"},
        ],
    )
    def test_a_start_that_lean_refuses_is_the_episodes_fault(self, env, fields):
        sample = episode(changed(FACTS, **fields), "have a1 : q := y x", "have b1 : p := x")
        with pytest.raises(MalformedInputError, match="before the steps"):
            one(env, sample)

    def test_a_class_that_lean_refuses_is_the_episodes_fault(self, env):
        start = changed(PLAIN, setup=["class K1 (α : Type) where v1 : β"])
        with pytest.raises(MalformedInputError, match="before the steps"):
            one(env, episode(start, GOOD), 0)


class TestLimits:
    def test_an_endless_step_is_a_failure_and_no_verdict(self):
        """The claim compares 65,536 with its successor, in unary."""
        two = "def c2 (α : Type) (u : α → α) (x : α) : α := u (u x)"
        four = "def c4 (α : Type) (u : α → α) (x : α) : α := c2 (α → α) (c2 α) u x"
        many = "def c5 (α : Type) (u : α → α) (x : α) : α := c4 (α → α) (c4 α) (c4 α (c4 α u)) x"
        claim = "theorem e1 : Eq (c5 N N.s N.z) (N.s (c5 N N.s N.z)) := Eq.refl (c5 N N.s N.z)"
        sample = episode(PLAIN, two, four, many, claim)
        env = LeanEnvironment(limits=Limits(max_heartbeats=300))
        assert one(env, sample, 0, 1, 2).accepted
        with pytest.raises(VerifierFailure, match="ran into a limit"):
            one(env, sample, 0, 1, 2, 3)

    def test_a_text_over_the_cap_never_reaches_lean(self, env):
        text = f"{GOOD} {'x ' * 1000}"
        with pytest.raises(MalformedInputError, match="at most 2000 characters"):
            one(env, episode(PLAIN, text), 0)

    @pytest.mark.parametrize("depth", [50, 320])
    def test_deep_terms_get_an_answer(self, env, depth):
        """Lean gives up on terms that are too deep with an error: that is a limit of its own, not a refusal."""
        deep = "N.s (" * depth + "N.z" + ")" * depth
        sample = episode(PLAIN, f"def a1 : N := {deep}")
        if depth == 50:
            assert one(env, sample, 0).accepted
        else:
            with pytest.raises(VerifierFailure, match="ran into a limit"):
                one(env, sample, 0)

    def test_the_wall_clock_ends_a_process(self):
        sample = episode(PLAIN, GOOD, CITING)
        limits = Limits(batch_seconds=0.01, lone_seconds=0.01)
        with pytest.raises(VerifierFailure, match="no end after"):
            judge(find_toolchain(), [job(sample, 0, 1)], limits)

    def test_an_unknown_step_index_is_refused(self, env):
        with pytest.raises(MalformedInputError, match="does not have"):
            one(env, episode(PLAIN, GOOD), 1)


class TestBrokenWorkers:
    """Lean processes that break, played by scripts around the real one."""

    @pytest.fixture
    def jobs(self) -> list[Job]:
        pair = episode(PLAIN, GOOD, CITING)
        facts = episode(FACTS, "have a1 : q := y x", "have b1 : p := x")
        return [job(pair, 0, 1), job(pair, 1, 0), job(facts, 0, 1), job(pair, 0), job(facts, 1, 0)]

    @pytest.fixture
    def healthy(self, jobs) -> list[Replay]:
        return judge(find_toolchain(), jobs, Limits())

    def breaking(self, folder: Path, script: str) -> Toolchain:
        """A toolchain whose command is a shell script; ``$LEAN "$@"`` in it is the real one."""
        real = find_toolchain()
        path = folder / "lean"
        lean = " ".join(f"'{part}'" for part in real.command)
        path.write_text(f"#!/bin/sh\nonce={folder}/once\n" + script.replace("$LEAN", lean))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return replace(real, command=(str(path),), origin="a broken one", needs=UNKNOWN)

    @pytest.mark.parametrize(
        "script",
        [
            'if [ ! -e "$once" ]; then touch "$once"; kill -9 $$; fi\n$LEAN "$@"\n',
            'if [ ! -e "$once" ]; then touch "$once"; $LEAN "$@" | head -c 3000; kill -9 $$; fi\n'
            '$LEAN "$@"\n',
            'if [ ! -e "$once" ]; then touch "$once"; echo nonsense; exit 1; fi\n$LEAN "$@"\n',
            '$LEAN "$@" | grep -v vcrt_end_r0002\nexit 1\n',
        ],
        ids=["killed", "cut off", "nonsense", "a mark is missing"],
    )
    def test_a_retry_gives_the_true_verdicts(self, tmp_path, jobs, healthy, script):
        assert judge(self.breaking(tmp_path, script), jobs, Limits()) == healthy

    @pytest.mark.parametrize(
        ("script", "found"),
        [
            ("kill -9 $$\n", "exit status -9"),
            ("cat >/dev/null; echo nonsense\n", "not Lean's JSON"),
            ("cat >/dev/null; echo '{}'\n", "not Lean's JSON"),
            ("cat >/dev/null\n", "did not report the mark"),
            ('$LEAN "$@" | grep -v vcrt_end; exit 1\n', "did not report the mark"),
            ('$LEAN "$@" | grep -v "does not depend"; exit 1\n', "not answered by one whole text"),
            ('$LEAN "$@" | sed "s/And p p/And p ⋯/"; exit 1\n', "one whole text"),
            ('$LEAN "$@" | sed s/a1_r0000/a1_r0001/; exit 1\n', "name of another replay"),
            ('(echo bogus; cat) | $LEAN "$@"\n', "in the prelude"),
            ('(cat; echo bogus) | $LEAN "$@"\n', "after the end"),
            ("sleep 60\n", "no end after"),
        ],
    )
    def test_what_stays_broken_is_a_failure_and_no_verdict(self, tmp_path, jobs, script, found):
        limits = Limits(batch_seconds=0.2, lone_seconds=0.2) if "sleep" in script else Limits()
        with pytest.raises(VerifierFailure, match=found):
            judge(self.breaking(tmp_path, script), jobs[:2], limits)

    @pytest.mark.parametrize("lacking", ["inductive Unit", "def Function.const"])
    def test_a_prelude_that_lacks_something_refuses_no_step(self, monkeypatch, lacking):
        """Without these, Lean reports that it cannot find them instead of what is wrong with the step."""
        lines = judging.PRELUDE.split("\n")
        start = next(i for i, line in enumerate(lines) if line.startswith(lacking))
        length = 2 if lacking == "inductive Unit" else 1
        monkeypatch.setattr(judging, "PRELUDE", "\n".join(lines[:start] + lines[start + length :]))
        with pytest.raises(VerifierFailure):
            judge(find_toolchain(), [job(episode(PLAIN, GOOD, CITING), 1, 0)], Limits())


def test_versions_name_the_judge(env):
    versions = env.versions()
    assert versions.verifier.startswith("Lean 4.")
    assert "commit" in versions.verifier
    assert (versions.adapter, versions.canonicalizer) == ("1", "2")
    assert {len(digest) for digest in versions.libraries.values()} == {64}
    assert "prelude.lean" in versions.libraries
    assert len(versions.libraries) >= 2


def test_describe_gives_the_native_text(env):
    operation = env.sample("have", 0).operations[0]
    assert env.describe(operation) == operation.payload
