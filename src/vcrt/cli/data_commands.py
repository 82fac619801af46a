"""The commands about episodes: certify, verify, show, lift, probe, and what can be certified.

Each loads what it needs when it runs, so that ``vcrt --help`` is quick.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.console import Console

from vcrt.cli.options import DatasetPath, plain_console, print_document, set_verifier_timeout
from vcrt.cli.progress import showing_progress
from vcrt.errors import VcrtError
from vcrt.jobs import num_jobs
from vcrt.printable import counted

if TYPE_CHECKING:
    from vcrt.records.manifest import Agreement


def certify(
    output: Path,
    schemas: tuple[str, ...] = (),
    episodes: int = 500,
    seed: int = 0,
    jobs: int | None = None,
    backend: Literal["loky", "ray", "dask"] = "loky",
    preset: str = "paper",
    sampled: bool = False,
    relations: Literal["all", "reduced"] = "all",
    commutations: Literal["shown", "omitted"] | None = None,
    distractors: int = 0,
    pool: Literal["usual", "large"] | None = None,
    json: bool = False,
    verifier_timeout: float | None = None,
) -> None:
    """Replay every order of sampled episodes (or what stands for all) and freeze the certified ones as a new dataset.

    Without options it is the paper's: 500 episodes of each of five schemas in each of the three environments. The
    run's unfinished work lies in OUTPUT.shards until the dataset is whole; a call that was interrupted goes on from
    there when it is given again.

    Example: vcrt certify --output runs/data --schemas clrs lean/cite --episodes 100

    Args:
        output: The new dataset's directory.
        schemas: Environments, or single schemas as environment/schema, separated by spaces; all that come
            with vcrt if none is given.
        episodes: Certified episodes for each schema.
        seed: Seed of everything.
        jobs: Worker processes; as many as there are cores by default. The result does not depend on it.
        backend: Where the workers are: local processes, or a Ray or Dask cluster (that of RAY_ADDRESS or
            DASK_SCHEDULER_ADDRESS, else a local one).
        preset: What an episode looks like: `paper` (one anti-diamond and 12 of 24 legal orders), `several` (several
            anti-diamonds and 2 to 8 legal orders), `posetsN` (N steps, 3 to 64, with an anti-diamond at least, two
            of three or four steps, and two legal orders at least), or `any`: whatever certifies, of 2 to 64 steps,
            of several lengths in one dataset. Of 6 steps and more every reachable context is replayed, and beyond
            10 a sample of them. Each has schemas of its own, but `any` takes those of every preset; those that come
            with vcrt have 4, 6, 8, 12 and 16 steps.
        sampled: Replay a sample of the contexts even where all could be, from 6 steps on.
        relations: Whether a policy record states all directed relations, or only those that do not follow from
            others.
        commutations: Whether it states which pairs commute; by default only of up to four steps, and not with `any`.
        distractors: How many relations among operations that do not occur stand beside them.
        pool: Whether records of up to four steps draw their pointers from 8, or from the 32 of longer ones, so that
            both look alike; by default from 8, with `any` from 32.
        json: Print the root hash and all counts for machines; progress goes to the standard error.
        verifier_timeout: Seconds that one call of a verifier may take (a step, or a batch), in place of what each
            environment says (60, or 600 for a batch).
    """
    set_verifier_timeout(verifier_timeout)
    from vcrt.api.certifying import certify as certified
    from vcrt.certification.episodes import preset_named
    from vcrt.cli.counts import dataset_document, print_counts
    from vcrt.records.policy_view import MAX_DISTRACTORS
    from vcrt.records.record_form import RecordForm, usual_form
    from vcrt.records.sealing.leaves import first_leaf

    if episodes < 1:
        raise VcrtError("too few episodes", found=f"--episodes {episodes}", expected="at least 1")
    if not 0 <= distractors <= MAX_DISTRACTORS:
        raise VcrtError(
            "a number of distractors that no record has",
            found=f"--distractors {distractors}",
            expected=f"0 to {MAX_DISTRACTORS}",
        )
    usual = usual_form(preset_named(preset).num_operations)
    console = plain_console(aside=json)
    with showing_progress(console) as progress:
        dataset = certified(
            output,
            schemas=schemas,
            episodes=episodes,
            seed=seed,
            preset=preset,
            sampled=sampled,
            form=RecordForm(
                relations=relations,
                commutations=commutations or usual.commutations,
                distractors=distractors,
                pool=pool or usual.pool,
            ),
            jobs=num_jobs(jobs),
            backend=backend,
            progress=progress,
        )
    if json:
        print_document(dataset_document(dataset))
        return
    print_counts(console, dataset.manifest)
    console.print(
        f"dataset   {output}\nroot hash {dataset.manifest.root_hash}",
        highlight=False,
        soft_wrap=True,
    )
    first = first_leaf(dataset.path).episode
    console.print(
        f"next: vcrt verify {output}\n      vcrt show {first} --dataset {output}",
        highlight=False,
        soft_wrap=True,
    )


def verify(
    dataset: Annotated[Path | None, tyro.conf.Positional] = None,
    certificate: Path | None = None,
    proof: Path | None = None,
    public_key: Path | None = None,
    replay: bool = True,
    jobs: int | None = None,
    json: bool = False,
    verifier_timeout: float | None = None,
) -> None:
    """Replay a whole dataset, or one certificate, again in fresh processes and demand that everything agrees.

    A dataset is compared with its seal first: what was altered is named, and nothing is replayed.

    Example: vcrt verify runs/data

    Args:
        dataset: A directory made by `vcrt certify`.
        certificate: A file made by `vcrt show EPISODE --json`, checked alone, from its own bytes.
        proof: A file made by `vcrt prove`: the certificate must be among those of the dataset that it names.
        public_key: Demand that the seal (or the proof's) is signed by this key, a PEM file.
        replay: With `--no-replay`, only the seal is checked: files, manifest, leaves, signatures.
        jobs: Worker processes for a dataset; as many as there are cores by default.
        json: Print what agreed for machines (a dataset, with its replays); the rest goes to the standard error.
        verifier_timeout: Seconds that one call of a verifier may take (a step, or a batch), in place of what each
            environment says (60, or 600 for a batch).
    """
    set_verifier_timeout(verifier_timeout)
    if (dataset is None) == (certificate is None):
        raise VcrtError(
            "verify what?",
            found="neither a dataset nor a certificate" if dataset is None else "both",
            expected="a dataset, or a certificate",
            remedy="vcrt verify DATASET, or vcrt verify --certificate FILE",
        )
    if (proof is not None and certificate is None) or (
        certificate is not None and (not replay or (proof is None and public_key is not None))
    ):
        raise VcrtError(
            "options that do not go together",
            expected="--proof with --certificate; --public-key with a dataset or --proof; --no-replay with a dataset",
        )
    if json and (certificate is not None or not replay):
        raise VcrtError(
            "options that do not go together",
            found="--json without the replays of a dataset",
            remedy="leave --json out: the exit status says whether all holds",
        )
    from vcrt.cli.sealing import check_inclusion, check_seal

    console = plain_console(aside=json)
    if certificate is not None:
        from vcrt.cli.show import check_certificate

        check_certificate(console, certificate)
        if proof is not None:
            check_inclusion(console, certificate, proof, public_key)
    if dataset is not None:
        check_seal(console, dataset, public_key)
        if replay:
            agreement = _verify_dataset(console, dataset, num_jobs(jobs))
            if json:
                print_document(agreement.model_dump())


def _verify_dataset(console: Console, dataset: Path, jobs: int) -> Agreement:
    from vcrt.datasets.agreement import verify_agreement
    from vcrt.records.dataset import open_dataset
    from vcrt.report.data_words import evidence_sentences

    opened = open_dataset(dataset)
    with showing_progress(console) as progress:
        agreement = verify_agreement(opened, jobs=jobs, progress=progress)
    console.print(
        f"{agreement.agreed} of {agreement.replays} replays agree "
        f"({counted(agreement.episodes, 'episode')}), root hash {agreement.root_hash}",
        highlight=False,
        soft_wrap=True,
    )
    for line in evidence_sentences(opened.manifest.model_dump()["counts"]):
        console.print(line, highlight=False, soft_wrap=True)
    for name, guards in agreement.guards.items():
        counts = ", ".join(f"{count} {what}" for what, count in guards.checked_again.items())
        if counts:
            console.print(
                f"{name}: checked again by itself: {counts}", highlight=False, soft_wrap=True
            )
        if guards.absent:
            missing = "; ".join(f"{what} ({why})" for what, why in guards.absent.items())
            console.print(f"{name}: not protected: {missing}", highlight=False, soft_wrap=True)
    return agreement


def show(
    episode: Annotated[str, tyro.conf.Positional],
    dataset: Path | None = None,
    json: bool = False,
    pair: tuple[int, int] | None = None,
    brief: bool = False,
    full: bool = False,
    verifier_timeout: float | None = None,
) -> None:
    """Show one episode: its steps, which of them commute and which do not, and the verifier's own evidence for it.

    Example: vcrt show clrs/bellman_ford/7

    Args:
        episode: An episode as environment/schema/seed, or a certificate's file.
        dataset: Take the sealed evidence of this dataset; without it, the episode is replayed on the spot.
        json: Print one self-contained document, which `vcrt verify --certificate` checks.
        pair: Show only these two steps, by their numbers.
        brief: Leave out the initial state, the single orders and the evidence of each pair; so it is in a terminal.
        full: Show all of it, in a terminal too; so it is where the output is piped.
        verifier_timeout: Seconds that one call of a verifier may take (a step, or a batch), in place of what each
            environment says (60, or 600 for a batch).
    """
    set_verifier_timeout(verifier_timeout)
    from vcrt.cli.show import show_episode

    if sum((brief, full, json, pair is not None)) > 1 and not (json and pair is not None):
        raise VcrtError(
            "options that do not go together",
            expected="one of --brief, --full, --json and --pair",
        )
    console = plain_console()
    brief = brief or (console.is_terminal and not (full or json or pair is not None))
    show_episode(console, episode, dataset=dataset, as_json=json, pair=pair, brief=brief)


def environments(
    action: Annotated[Literal["list", "validate"], tyro.conf.Positional] = "list",
    name: Annotated[str | None, tyro.conf.Positional] = None,
    quick: bool = False,
    json: bool = False,
    verifier_timeout: float | None = None,
) -> None:
    """List the registered environments, or run the conformance kit on one.

    Example: vcrt environments validate clrs

    Args:
        action: What to do.
        name: The environment to validate.
        quick: Look at one episode of each schema and a few of its orders: for slow verifiers, and at first.
        json: Print the list for machines.
        verifier_timeout: Seconds that one call of a verifier may take (a step, or a batch), in place of what each
            environment says (60, or 600 for a batch).
    """
    set_verifier_timeout(verifier_timeout)
    from vcrt.cli.environments import (
        environments_document,
        list_environments,
        validate_environment,
    )

    if quick and action == "list":
        raise VcrtError("only validation has a quick form", found="--quick with list")
    if json and action != "list":
        raise VcrtError("only the list has a form for machines", found=f"--json with {action}")
    console = plain_console()
    if action == "list" and json:
        print_document(environments_document())
    elif action == "list":
        list_environments(console)
    elif name is None:
        raise VcrtError(
            "which environment?", expected="a name", remedy="vcrt environments validate NAME"
        )
    else:
        validate_environment(console, name, quick=quick)


def theories(files: Annotated[tuple[Path, ...], tyro.conf.Positional]) -> None:
    """Read ProofWriter files, answer every question, and compare with the gold answers and with clingo.

    Example: vcrt theories meta-test.jsonl

    Args:
        files: JSON lines, each an official structured row or an English theory with its questions.
    """
    if not files:
        raise VcrtError("which files?", expected="at least one", remedy="vcrt theories FILE...")
    from vcrt.cli.theories import check_theories

    check_theories(plain_console(), files)


def probe(dataset: DatasetPath, output: Path | None = None, seed: int = 0) -> None:
    """Measure how anonymous the policy records of a dataset are: what classifiers can guess from them.

    Example: vcrt probe runs/data --output runs/experiment/anonymity.json

    Args:
        dataset: A directory made by `vcrt certify`.
        output: Where to keep the result; the report of an experiment takes it from EXPERIMENT/anonymity.json.
        seed: Seed of the probe's subsamples and splits.
    """
    from vcrt.cli.anonymity import run_probe

    run_probe(plain_console(), dataset, output, seed=seed)


def lift(
    source: Annotated[Literal["proofwriter", "lean", "clrs"], tyro.conf.Positional],
    inputs: Annotated[tuple[str, ...], tyro.conf.Positional],
    output: Path | None = None,
    limit: int | None = None,
    runs: int | None = None,
    length: int | None = None,
    steps: int | None = None,
    seed: int | None = None,
    json: bool = False,
    jobs: int | None = None,
    backend: Literal["loky", "ray", "dask"] | None = None,
    verifier_timeout: float | None = None,
) -> None:
    """Find episodes in your own theories, Lean files or runs of an algorithm, and say which steps commute.

    Theories and windows of four steps are certified like sampled episodes: every order is replayed by itself. For
    theorems, and for windows of another length, the numbers of legal orders come from merged replay: orders that
    reach equal states by the same steps are continued once for all of them.

    The exit status is 2 if a file cannot be read or nothing in the material can be judged; the rest is reported all
    the same.

    Example: vcrt lift lean Proofs.lean

    Args:
        source: The kind of material.
        inputs: ProofWriter files (structured or English rows), Lean files, or names of CLRS algorithms.
        output: A new dataset of the certified four-step episodes (proofwriter, clrs); nothing is written without it.
            Until it is whole, finished work lies in OUTPUT.shards.
        limit: The most episodes of a schema from one theory (proofwriter); all by default.
        runs: Genuine runs whose windows are lifted (clrs); 20 by default.
        length: Length of those runs' inputs (clrs); 8 by default.
        steps: Steps of a window, 2 to 8 (clrs); 4 by default, and others are reported, not frozen.
        seed: Seed of the first run (clrs); 0 by default.
        json: Print the report for machines (lean).
        jobs: Worker processes (proofwriter, clrs); as many as there are cores by default.
        backend: Where the workers are (proofwriter, clrs); local processes, loky, by default.
        verifier_timeout: Seconds that one call of a verifier may take (a step, or a batch), in place of what each
            environment says (60, or 600 for a batch).
    """
    set_verifier_timeout(verifier_timeout)
    from vcrt.cli.lift_options import require_taken

    if not inputs:
        raise VcrtError("lift what?", expected="at least one input", remedy="vcrt lift --help")
    options = {"--output": output, "--limit": limit, "--runs": runs, "--length": length}
    options |= {"--steps": steps, "--seed": seed, "--json": json}
    require_taken(source, {**options, "--jobs": jobs, "--backend": backend})
    console = plain_console()
    if source == "lean":
        from vcrt.cli.lean_files import lift_lean_files

        lift_lean_files(console, [Path(name) for name in inputs], as_json=json)
        return
    from vcrt.cli.lifting import lift_clrs, lift_proofwriter

    if source == "proofwriter":
        lift_proofwriter(
            console,
            [Path(name) for name in inputs],
            limit=limit,
            output=output,
            jobs=num_jobs(jobs),
            backend=backend or "loky",
        )
        return
    lift_clrs(
        console,
        inputs,
        num_runs=20 if runs is None else runs,
        length=8 if length is None else length,
        num_steps=4 if steps is None else steps,
        seed=0 if seed is None else seed,
        output=output,
        jobs=num_jobs(jobs),
        backend=backend or "loky",
    )
