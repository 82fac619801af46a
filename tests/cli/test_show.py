"""What ``vcrt show`` prints and what ``vcrt verify --certificate`` says, in this process and through the command."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from rich.console import Console

import toy_environment as toy
from command_line import ran
from vcrt.api.certifying import verify_certificate
from vcrt.api.datasets import Shown, show
from vcrt.certificates.certificates import ExclusionKind
from vcrt.certificates.episodes import PAPER_PRESET
from vcrt.cli.certificate_view import say_shown
from vcrt.cli.verify import check_lines
from vcrt.datasets.examination import examine
from vcrt.datasets.freezing import make_dataset
from vcrt.environments.contract import Rejected
from vcrt.environments.registry import load_environment
from vcrt.errors import DatasetError, UnknownNameError, VcrtError, VerifierFailure
from vcrt.orders import all_orders
from vcrt.records.certificate import certificate_document, document_text, read_certificate
from vcrt.replay.config import sampled
from vcrt.replay.evidence import episode_from_json
from vcrt.words.certificate_words import EXCLUSIONS, order_groups

TOY = {"toy": toy.ToyEnvironment}
VCRT = Path(sys.executable).with_name("vcrt")


def shown(name, *, width=100, factories=TOY, terminal=False, dataset=None, **options):
    """What is printed of an episode at some width."""
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal)
    say_shown(console, show(name, dataset, environments=factories), **options)
    return console.file.getvalue()


def document(name, *, factories=TOY, dataset=None):
    """What is printed of it for machines."""
    return document_text(show(name, dataset, environments=factories).examined.document())


def squeezed(text):
    """Without white space, so that it does not matter where lines were broken."""
    return "".join(text.split())


def in_its_own_process(*arguments):
    """How the command that is installed ended, its output piped."""
    return subprocess.run(
        [VCRT, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False
    )


def beside(done):
    """What a command said beside its output, but for progress, which it shows if it takes long."""
    progress = "[a-z]+: .*(replay|done)|replay .*: .* episodes"
    return [line for line in done.stderr.splitlines() if not re.match(progress, line)]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A real certificate, made by the command."""
    done = ran("show", "clrs/bellman_ford/7", "--json")
    assert (done.returncode, beside(done)) == (0, [])
    path = tmp_path_factory.mktemp("certificate") / "clrs.json"
    path.write_text(done.stdout)
    return path


def pair_section(text, one, other):
    start = text.index(f"Steps {one} and {other}:")
    end = text.find("\nSteps ", start)
    return text[start : end if end > 0 else None]


def test_a_pair_that_must_not_be_swapped_is_explained_in_plain_words():
    text = viewed(examined("needs", 3), toy.ToyEnvironment())
    document = json.loads(document_text(examined("needs", 3).document()))
    ((first, second, _),) = [r for r in document["relations"] if r[2] != "commutes"]
    refusal = next(r["rejection"] for r in document["replays"] if r["rejection"])
    one, other = sorted((first, second))
    section = pair_section(text, one, other)
    assert f"an anti-diamond, {first} precedes {second}" in section
    assert (
        f"at the start: {first} then {second} accepted; {second} then {first}: "
        f"step {second} refused: '{refusal}'"
    ) in " ".join(section.split())
    assert f"(1) the verifier on step {second}: {refusal}" in section
    assert f"{first} precedes {second}: {second} then {first} is refused" in text


def test_a_pair_that_may_be_swapped_is_explained_in_plain_words():
    text = viewed(examined("overwrite", 0), toy.ToyEnvironment())
    document = json.loads(document_text(examined("overwrite", 0).document()))
    for certificate in document["certificates"]:
        one, other = certificate["forward"]["operations"]
        if certificate["context"] or certificate["verdict"] != "diamond":
            continue
        end = certificate["forward"]["state_hashes"][1][:10]
        section = " ".join(pair_section(text, one, other).split())
        assert "a diamond, they commute" in section
        assert (
            f"at the start: {one} then {other} accepted; {other} then {one} accepted; "
            f"both end in state {end}"
        ) in section


def test_a_conflict_has_its_direction_and_its_two_states():
    text = viewed(examined("overwrite", 0), toy.ToyEnvironment())
    document = json.loads(document_text(examined("overwrite", 0).document()))
    ((first, second, kind),) = [r for r in document["relations"] if r[2] != "commutes"]
    assert kind == "conflicts"
    section = " ".join(pair_section(text, first, second).split())
    assert f"an anti-diamond, {first} conflicts with {second}" in section
    certificate = next(
        c
        for c in document["certificates"]
        if c["forward"]["operations"] == [first, second] and not c["context"]
    )
    ends = [certificate[way]["state_hashes"][1][:10] for way in ("forward", "reverse")]
    assert f"they end in two states, {ends[0]} and {ends[1]}" in section
    assert f"{first} conflicts with {second}: {second} then {first} ends in another state" in text


def test_contexts_that_certify_nothing_say_so():
    document = json.loads(document_text(examined("needs", 3).document()))
    vacuous = [c for c in document["certificates"] if c["verdict"] == "vacuous"]
    assert vacuous
    text = viewed(examined("needs", 3), toy.ToyEnvironment())
    assert text.count("certifies nothing") == len(vacuous) + len(
        {tuple(c["forward"]["operations"]) for c in vacuous}
    )


@cache
def examined(schema, seed, kind=toy.ToyEnvironment):
    return examine(kind, kind().sample(schema, seed), PAPER_PRESET)


@cache
def real_document(name):
    environment_name, schema, seed = name.split("/")
    environment = load_environment(environment_name)
    episode = environment.sample(schema, int(seed))
    return examine(type(environment), episode, PAPER_PRESET).document()


def viewed(outcome, environment, width=100):
    """What is printed of what was examined before."""
    console = Console(file=io.StringIO(), width=width)
    say_shown(console, Shown(examined=outcome, origin="now", factory=type(environment)))
    return console.file.getvalue()


REAL = ("clrs/bellman_ford/7", "clrs/mst_kruskal/7", "proofwriter/naf_sweep/7", "lean/shadow/7")


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", REAL)
def test_nothing_is_hidden_at_any_width(name, width, tmp_path):
    document = real_document(name)
    environment = load_environment(name.partition("/")[0])
    episode = episode_from_json(document["episode"])
    path = tmp_path / "certificate.json"
    path.write_text(document_text(document))
    text = shown(str(path), width=width, factories=None)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for operation in episode.operations:
        native = environment.describe(operation).removeprefix(f"{operation.signature}: ")
        assert squeezed(native) in squeezed(text)
    for order in document["orbit"]:
        assert "".join(map(str, order)) in text.split()
    for certificate in document["certificates"]:
        section = pair_section(text, *certificate["forward"]["operations"])
        assert certificate["context_hash"][:10] in section
        assert certificate["verdict"] in section
        for way in ("forward", "reverse"):
            for state_hash in certificate[way]["state_hashes"]:
                assert f"accepted {state_hash[:10]}" in section
            if certificate[way]["rejection"] is not None:
                assert squeezed(certificate[way]["rejection"]) in squeezed(section)
    for checker, checked, agreed in document["cross_checks"]:
        assert f"{checker}: {agreed} of {checked} agree" in text


class Verbose(toy.ToyEnvironment):
    """Refuses at length, over several lines, and with what a terminal would obey."""

    def step(self, state, operation):
        answer = super().step(state, operation)
        if not isinstance(answer, Rejected):
            return answer
        return Rejected(f"\x1b[2J{answer.reason}\n{'x' * 300}\n[bold]so it is[/bold] \u202e")


@pytest.mark.parametrize("terminal", [False, True])
def test_a_long_message_is_printed_whole_and_cannot_steer_the_terminal(terminal, tmp_path):
    document = examined("needs", 3, Verbose).document()
    path = tmp_path / "certificate.json"
    path.write_text(document_text(document))
    text = shown(str(path), width=80, terminal=terminal, factories=TOY)
    assert "\x1b[2J" not in text
    assert "\u202e" not in text
    assert "\\x1b[2J" in text
    assert "x" * 300 in squeezed(text)
    assert "[bold]so it is[/bold]" in squeezed(text).replace("soitis", "so it is")


@pytest.mark.parametrize(
    ("kind", "schema", "excluded"),
    [
        pytest.param(
            toy.ProcessDependent, "needs", "nondeterministic", marks=pytest.mark.processes
        ),
        (toy.ReplayDependent, "needs", "nondeterministic"),
        (toy.SameSignatures, "needs", "ambiguous_correspondence"),
        (toy.NoProvenance, "needs", "missing_provenance"),
        pytest.param(
            toy.ChangingVersions, "needs", "version_disagreement", marks=pytest.mark.processes
        ),
        (toy.ContextDependent, "needs", "context_dependent"),
        (toy.Idle, "needs", "no_effect"),
        (toy.Forgetful, "overwrite", "unequal_futures"),
        (toy.AlwaysAccepts, "needs", "outside_schema"),
        (toy.AlwaysRejects, "needs", "outside_schema"),
        (toy.DisagreeingSecondOpinion, "needs", "second_opinion"),
    ],
)
def test_an_excluded_episode_says_which_exclusion_why_and_what_was_replayed(
    kind, schema, excluded, tmp_path
):
    outcome = examined(schema, 1, kind)
    text = viewed(outcome, kind())
    assert f"excluded, {excluded}:" in text
    assert squeezed(EXCLUSIONS[excluded]) in squeezed(text)
    assert "Orders, 24 replayed" in text
    assert "certified:" not in text
    assert "Relations" not in text
    for order in all_orders(4):
        assert "".join(map(str, order)) in text.split()
    document = json.loads(document_text(outcome.document()))
    assert document["format"] == "vcrt-exclusion/1"
    assert document["exclusion"]["kind"] == excluded
    assert len(document["replays"]) == 24
    assert squeezed(document["exclusion"]["detail"]) in squeezed(text)
    path = tmp_path / "exclusion.json"
    path.write_text(json.dumps(document))
    with pytest.raises(DatasetError, match="left out"):
        read_certificate(path)


@pytest.mark.processes
def test_what_changed_between_two_processes_is_named():
    outcome = examined("needs", 1, toy.ProcessDependent).outcome
    assert outcome.detail.startswith("replays[0].state_hashes[0] (the initial state): ")


def test_an_excluded_episode_is_shown_and_is_no_error():
    broken = {"toy": toy.AlwaysAccepts}
    assert "excluded, outside_schema" in shown("toy/needs/1", factories=broken)
    expected = examined("needs", 1, toy.AlwaysAccepts).document()
    assert document("toy/needs/1", factories=broken) == document_text(expected)


def test_every_exclusion_has_a_meaning():
    assert set(EXCLUSIONS) == set(ExclusionKind.__args__)


def test_a_pair_whose_contexts_disagree_shows_both():
    text = viewed(examined("needs", 1, toy.ContextDependent), toy.ContextDependent())
    section = " ".join(pair_section(text, 0, 1).split())
    assert "the contexts disagree" in section
    assert "both end in state" in section
    assert "they end in two states" in section


def test_orders_are_grouped_by_what_became_of_them():
    for schema, kind in (("needs", "refused at step"), ("overwrite", "accepted, but not legal")):
        groups = order_groups(examined(schema, 0).evidence.replays.replays)
        assert [len(orders) for _, orders in groups] == [12, 12]
        assert groups[0][0].startswith("12 of 24 legal")
        assert kind in groups[1][0]
        assert sorted(o for _, orders in groups for o in orders) == list(all_orders(4))


def test_one_pair_alone():
    text = shown("toy/needs/3", pair=(2, 1))
    assert text.count("Steps ") == 1
    assert "Steps 1 and 2:" in text


def test_pairs_that_do_not_exist_are_refused(tmp_path):
    path = tmp_path / "certificate.json"
    path.write_text(document_text(examined("needs", 3).document()))
    for pair in ((1, 1), (0, 4), (-1, 2)):
        with pytest.raises(VcrtError, match="no such pair"):
            shown(str(path), pair=pair)
    done = ran("show", path, "--pair", 0, 1, "--json")
    assert done.returncode == 2
    assert "options that do not go together" in done.stderr


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    path = tmp_path_factory.mktemp("show") / "data"
    return make_dataset(
        sampled({"toy": ("needs", "overwrite")}, 3, seed=7), path, jobs=1, factories=TOY
    )


def test_sealed_evidence_is_shown_and_is_what_is_replayed_on_the_spot(dataset):
    config = sampled({"toy": ("needs", "overwrite")}, 3, seed=7)
    name = f"toy/overwrite/{config.candidate_seed(config.series[1], 0)}"
    text = shown(name, dataset=dataset.path)
    assert f"sealed in {dataset.path}" in " ".join(text.split())
    assert dataset.manifest.root_hash in squeezed(text)
    assert document(name, dataset=dataset.path) == document(name)
    # A verifier that is broken now does not matter to what was sealed.
    shown(name, dataset=dataset.path, factories={"toy": toy.DyingVerifier})


def test_what_is_not_in_the_dataset_is_said(dataset):
    with pytest.raises(DatasetError, match="no episode 'toy/needs/0'") as caught:
        shown("toy/needs/0", dataset=dataset.path)
    assert "one of its 6 episodes" in caught.value.expected
    with pytest.raises(UnknownNameError, match="did you mean 'toy'"):
        shown("tyo/needs/0", dataset=dataset.path)
    with pytest.raises(DatasetError, match="not a frozen dataset"):
        shown("toy/needs/0", dataset=dataset.path / "audit")
    with pytest.raises(UnknownNameError, match="neither an episode nor a file") as caught:
        shown(str(dataset.path))
    command, names = caught.value.remedy.removesuffix(" names its episodes").split("; ")
    assert command == f"vcrt show EPISODE --dataset {dataset.path}"
    example = json.loads(Path(names).read_text().splitlines()[0])["episode"]
    assert example in shown(example, dataset=dataset.path)


def test_names_that_mean_nothing_are_refused():
    for name in ("toy", "toy/needs", "toy/needs/-1", "toy/needs/x", "/needs/1", "toy/needs/1/2"):
        with pytest.raises(UnknownNameError, match="neither an episode nor a file"):
            shown(name)
    with pytest.raises(UnknownNameError, match="did you mean 'needs'"):
        shown("toy/need/1")
    with pytest.raises(UnknownNameError, match="unknown environment"):
        shown("tyo/needs/1")


@pytest.mark.parametrize(
    "kind", [toy.DyingVerifier, pytest.param(toy.KilledProcess, marks=pytest.mark.processes)]
)
def test_a_verifier_that_breaks_shows_nothing(kind):
    with pytest.raises(VerifierFailure):
        shown("toy/needs/1", factories={"toy": kind})


class Particular(toy.ToyEnvironment):
    def describe(self, operation):
        return operation.payload["text"]


def test_a_step_that_cannot_be_described_is_the_files_fault(tmp_path):
    path = tmp_path / "certificate.json"
    path.write_text(document_text(examined("needs", 3).document()))
    with pytest.raises(DatasetError, match="cannot read a step"):
        shown(str(path), factories={"toy": Particular})


def test_what_was_checked_is_printed_with_counts(tmp_path):
    outcome = examined("needs", 3)
    path = tmp_path / "certificate.json"
    path.write_text(document_text(outcome.document()))
    text = "\n".join(check_lines(verify_certificate(path, environments=TOY)))
    hashes = sum(len(r.state_hashes) for r in outcome.outcome.replays)
    assert f"24 of 24 orders again in a fresh process: {hashes} hashes and 12 messages" in text
    assert f"{len(outcome.outcome.certificates)} local certificates" in text
    assert "6 relations and 12 legal orders" in text
    assert "toy twice 1/1, as before" in text
    assert outcome.document()["sha256"] in text
    assert "no replay tells its source" in text


def test_the_command_shows_and_verifies(certificate):
    done = in_its_own_process("show", "clrs/bellman_ford/7")
    assert (done.returncode, beside(done)) == (0, [])
    for operation in json.loads(certificate.read_text())["episode"]["operations"]:
        assert f"relax {operation['signature'].split()[-1]}" in done.stdout
    assert "12 of 24 orders are legal" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 120
    from_file = ran("show", certificate)
    assert from_file.returncode == 0
    pairs = "Pairs, each in every context"
    assert from_file.stdout.partition(pairs)[2] == done.stdout.partition(pairs)[2]
    done = ran("verify", "--certificate", certificate)
    assert (done.returncode, beside(done)) == (0, [])
    assert "24 of 24 orders again in a fresh process" in done.stdout


def test_the_command_finds_a_forgery_and_says_where(certificate, tmp_path):
    text = certificate.read_text()
    changed = tmp_path / "changed.json"
    changed.write_text(text.replace(" is not reached yet", " no", 1))
    done = ran("verify", "--certificate", changed)
    assert (done.returncode, done.stdout) == (4, "")
    assert "sha256" in done.stderr

    sealed = read_certificate(certificate)
    versions = replace(sealed.certified.versions, verifier="dm-clrs 1.0.0")
    other = certificate_document(replace(sealed.certified, versions=versions), PAPER_PRESET)
    changed.write_text(document_text(other))
    done = ran("verify", "--certificate", changed)
    assert done.returncode == 4
    assert "other versions of 'clrs'" in done.stderr
    for part in ("where", "found", "expected", "to mend"):
        assert f"{part}: " in done.stderr


def test_the_command_wants_one_thing_to_verify(certificate, tmp_path):
    for arguments in ((), (tmp_path, "--certificate", certificate)):
        done = ran("verify", *arguments)
        assert done.returncode == 2
        assert "vcrt verify --certificate FILE" in done.stderr
        assert "Traceback" not in done.stderr
    done = ran("verify", "--certificate", tmp_path / "absent")
    assert done.returncode == 4
    assert "No such file" in done.stderr


def test_a_message_that_quotes_a_file_cannot_steer_the_terminal(certificate, tmp_path):
    document = json.loads(certificate.read_text())
    document["\x1b[2J"] = 1
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(document))
    done = ran("verify", "--certificate", changed)
    assert done.returncode == 4
    assert "\x1b" not in done.stderr
    assert "\\x1b[2J" in done.stderr
