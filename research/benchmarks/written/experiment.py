"""Does crediting orbits save samples where a model writes the steps itself? SmolLM2-135M in TRL, run by run.

    python research/benchmarks/written/experiment.py --folds tools --seeds 0
    python research/benchmarks/written/page.py

It needs TRL (`make test-integrations` installs it) and `vcrt backbone fetch smollm2-135m`. A task lists four steps in
no order, as text; the model writes them in one that works, and nothing else. It is taught the form of an answer on
reference traces whose steps are shuffled, trained on further tasks by each method from that same start, and evaluated
before and after, on tasks of the same sources and on tasks whose sources it has not seen. The fold ``tools`` is about
tool calls alone; ``theories`` about proofs whose steps no task lists: the model finds the deductions itself, is taught
on proofs in orders that work, and all runs go on from one such start, since that takes long; ``until`` is ``tools``
with runs that a rule ends (``PLAN.md``); each other fold trains on two environments and is evaluated on the third, its
namesake, as well.
Methods differ in the terms of the loss alone; prompts, numbers of samples and settings are the same. None was searched
for, but that pilots of GRPO and of Orbit-GRPO with margin, at twice this learning rate, came to write one answer alone.

Each run is written to ``research/benchmarks/results/written`` as soon as it is done, and is not done again; what is
interrupted begins anew. With ``--jobs``, so many runs are made beside one another, a core each. A GPU is used where one
is: a run waits for Python there, so as many share it as there are cores, under NVIDIA's MPS.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import multiprocessing
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from itertools import permutations
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from ending import Rule
from peft import set_peft_model_state_dict
from safetensors.torch import load_file
from sampling import Sampler
from task_relations import probabilities
from teaching import form_batches
from transformers import AutoTokenizer, TrainerCallback

sys.path.insert(0, str(Path(__file__).parents[1] / "gpu"))

from gpu_results import commit, machine, versions

from vcrt.environments.contract import Environment, Episode, ReplayRequest
from vcrt.environments.registry import load_environment
from vcrt.environments.written_episodes import WrittenEpisodes, written_task
from vcrt.hashing import json_digest
from vcrt.randomness import derive_seed
from vcrt.replay.completion_judge import CompletionJudge
from vcrt_proofwriter.written_proofs import WrittenProofs, proof_task
from vcrt_train.config import RunConfig
from vcrt_train.integrations.trl import OrbitGRPOConfig, OrbitGRPOTrainer
from vcrt_train.policy.adapters import with_adapters
from vcrt_train.policy.backbone import load_backbone
from vcrt_train.policy.causal_model import evaluation_mode
from vcrt_train.policy.reference import (
    backbone_reference,
    fetched_folder,
    instructions,
    number_format,
)
from vcrt_train.policy.text_scoring import score_texts
from vcrt_train.randomness import generator

RESULTS = Path(__file__).parents[1] / "results" / "written"
#: By environment, the schemas of its tasks: of four steps, of whose 24 orders 12 work. Where as few as 2 to 8 do, this
#: model solves one task in ten after it was taught the form, and most groups of samples have nothing to learn from.
SCHEMAS = {
    "clrs": ("bellman_ford", "matrix_chain_order", "bubble_sort"),
    "proofwriter": ("attribute_chain", "conjunctive_join"),
    "bfcl": ("files", "messages", "tickets", "trading", "vehicle"),
    "proofs": ("attribute_chain", "conjunctive_join"),
}
#: By fold, what is trained on.
FOLDS = {
    "tools": ("bfcl",),
    "until": ("bfcl",),
    "theories": ("proofs",),
    "proofwriter": ("clrs", "bfcl"),
    "bfcl": ("clrs", "proofwriter"),
    "clrs": ("proofwriter", "bfcl"),
}
#: By method, the terms of its loss.
METHODS = {
    "grpo": {"orbit_credit": False, "orbit_alpha": 0.0},
    "orbit": {"orbit_alpha": 0.0},
    "orbit-margin": {"orbit_alpha": 0.1},
    "augmentation": {"orbit_credit": False, "orbit_alpha": 0.0, "orbit_augmentation": 0.1},
    "all-orders": {"orbit_all_orders": True, "orbit_alpha": 0.0},
    "all-orders-margin": {"orbit_all_orders": True, "orbit_alpha": 0.1},
}
#: Tasks of each environment: to learn the form of an answer, to be trained on, and to be evaluated on, which are of the
#: same sources and of others.
SPLITS = {"form": 240, "train": 120, "known": 60, "new": 60}
TESTS = ("known", "new")
#: What is evaluated on: by fold, or else the environments of the folds that hold one out.
EVALUATED = {name: FOLDS[name] for name in ("tools", "theories", "until")}
HELD_OUT = ("clrs", "proofwriter", "bfcl")
#: The most tokens of a prompt, and of an answer.
MAX_PROMPT, MAX_ANSWER = 200, 80
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
#: Tasks answered at a time, and those whose orders are scored at a time.
ANSWERED, SCORED = (120, 6) if DEVICE.type == "cuda" else (30, 1)
RANK, SCALE = 32, 2.0


class Ending(TrainerCallback):
    """Ends training by a rule."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Look at the samples of each update."""
        if self.rule.ends([float(row["reward"]) for row in state.log_history if "reward" in row]):
            control.should_training_stop = True


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is trained: ``updates`` of ``prompts`` times ``samples`` completions, each used in ``epochs`` steps."""

    updates: int = 40
    prompts: int = 2
    samples: int = 8
    epochs: int = 1
    learning_rate: float = 5e-5
    form_learning_rate: float = 5e-4
    form_epochs: int = 4
    #: Reference proofs, whose deductions the model must find, each seen once.
    proofs: int = 2400
    splits: tuple[tuple[str, int], ...] = tuple(SPLITS.items())
    rule: Rule | None = None


def verifier(name: str) -> Environment:
    """The environment of the tasks of this name."""
    return WrittenProofs() if name == "proofs" else load_environment(name)


def reader(name: str) -> Any:
    """What makes the environment that reads answers to tasks of this name; a line that is no step spoils an answer."""
    return WrittenProofs if name == "proofs" else WrittenEpisodes(name, free_text=False)


def candidates(
    environment: Environment, schema: str
) -> Iterator[tuple[Episode, list[tuple[int, ...]]]]:
    """Episodes of a schema some of whose orders fail, with those that work."""
    seed = 0
    while True:
        episode = environment.sample(schema, seed=seed)
        seed += 1
        orders = list(permutations(range(episode.num_operations)))
        ends = [
            replay.terminal_hash
            for replay in environment.replay([ReplayRequest(episode, order) for order in orders])
        ]
        works = [order for order, end in zip(orders, ends, strict=True) if end == ends[0]]
        if ends[0] is not None and len(works) < len(ends):
            yield episode, works


def tasks(name: str, tokenizer: Any, splits: dict[str, int]) -> dict[str, list[dict[str, Any]]]:
    """Tasks of an environment by their split; those of the split ``new`` share no source with the others."""
    environment = verifier(name)
    streams = [candidates(environment, schema) for schema in SCHEMAS[name]]
    found: dict[str, list[dict[str, Any]]] = {split: [] for split in splits}
    is_new: dict[str, bool] = {}
    seen: set[str] = set()
    draw, turn = generator(0, f"written {name}"), 0
    # Splits fill in turn, so that their shares of each schema are alike.
    while wanting := [split for split in splits if len(found[split]) < splits[split]]:
        episode, works = next(streams[turn % len(streams)])
        turn += 1
        assert turn < 200 * sum(splits.values()), f"too few distinct episodes: {name}"
        wanting.sort(key=lambda split: len(found[split]) / splits[split])
        new = is_new.setdefault(episode.provenance.source, wanting[0] == "new")
        split = next((split for split in wanting if (split == "new") == new), None)
        key = json_digest([episode.initial, sorted(each.signature for each in episode.operations)])
        if split is None or key in seen:
            continue
        seen.add(key)
        task = (
            proof_task(environment, episode, draw)
            if isinstance(environment, WrittenProofs)
            else written_task(environment, episode, draw)
        )
        lengths = [len(tokenizer(text)["input_ids"]) for text in (task.prompt, task.completion)]
        if lengths[0] <= MAX_PROMPT and lengths[1] < MAX_ANSWER:
            found[split].append(asdict(task) | {"environment": name, "works": works})
    return found


def load(name: str, options: argparse.Namespace, size: Size) -> dict[str, list[dict[str, Any]]]:
    """The tasks of an environment, made once."""
    splits = dict(size.splits) | ({"form": size.proofs} if name == "proofs" else {})
    key = json_digest([tuple(splits.items()), SCHEMAS[name], MAX_PROMPT, MAX_ANSWER, "orders"])[:8]
    path = options.build / f"tasks-{name}-{key}.json"
    if not path.exists():
        tokenizer = AutoTokenizer.from_pretrained(options.backbone)
        made = tasks(name, tokenizer, splits)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(made))
    result: dict[str, list[dict[str, Any]]] = json.loads(path.read_text())
    return result


def common(folder: Path, seed: int) -> dict[str, Any]:
    """Settings of both trainers."""
    return {
        "output_dir": str(folder),
        "use_cpu": DEVICE.type == "cpu",
        # The model is in the format that it is to compute in.
        "bf16": False,
        "seed": seed,
        "lr_scheduler_type": "constant",
        "gradient_checkpointing": False,
        "report_to": "none",
        "disable_tqdm": True,
        "save_strategy": "no",
    }


def adapted(options: argparse.Namespace, seed: int) -> Any:
    """The model with adapters that change nothing yet."""
    loaded = load_backbone(backbone_reference(str(options.backbone), dtype=options.dtype))
    return with_adapters(loaded.model, rank=RANK, scale=SCALE, seed=seed).to(DEVICE)


def form_seed(fold: str, seed: int) -> int:
    """The seed that the model was taught the form with from which a run goes on; proofs, which take long, once."""
    return 0 if fold == "theories" else seed


def taught(
    fold: str, seed: int, given: dict[str, Any], options: argparse.Namespace, size: Size
) -> Path:
    """The folder of an adapter that has seen steps of reference traces, in orders drawn at random.

    So it has learnt to write the steps of a task, each once, in any order, and nothing of which orders work; but proofs
    are in orders that work, since out of order it learns to guess the end before what it follows from.
    """
    rows = [row for name in FOLDS[fold] for row in given[name]["form"]]
    finds = fold == "theories"
    epochs = 1 if finds else size.form_epochs
    key = json_digest(
        [
            *(
                "orders that work, decay" if finds else "any order, decay",
                size.form_learning_rate,
                epochs,
                RANK,
                options.dtype,
                seed,
            ),
            [row["prompt"] for row in rows],
        ]
    )[:8]
    folder: Path = options.build / f"form-{fold}-{seed}-{key}"
    if (folder / "adapter_config.json").exists():
        return folder
    tokenizer = AutoTokenizer.from_pretrained(options.backbone)
    model = adapted(options, seed).train()
    trained = [one for one in model.parameters() if one.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=size.form_learning_rate, weight_decay=0.0)
    batches = form_batches(rows, epochs, generator(seed, "form"), any_order=not finds)
    decay = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, len(batches))
    for number, batch in enumerate(batches):
        prompts, texts = (tokenizer(list(some))["input_ids"] for some in zip(*batch, strict=True))
        ended = [[[*text, tokenizer.eos_token_id]] for text in texts]
        found = score_texts(model, prompts, ended, backend="tree")
        loss = -torch.cat([one.log_probs for each in found for one in each]).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimiser.step()
        decay.step()
        optimiser.zero_grad()
        print(f"{time.strftime('%H:%M:%S')} form {number}: loss {loss.item():.3f}", flush=True)
    model.save_pretrained(folder)
    return folder


def tests(given: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The tasks to evaluate on, by environment and kind of source."""
    return {f"{name}/{kind}": some[kind] for name, some in given.items() for kind in TESTS}


def scored(
    sampler: Sampler,
    model: Any,
    tokenizer: Any,
    given: dict[str, Any],
    judge: CompletionJudge,
    *,
    orders: bool,
) -> dict[str, Any]:
    """What a model does with each task of :func:`tests`.

    ``scores``: whether its most probable answer, token by token, solves it; ``orders``, if asked for: where the
    task lists its steps, the probability of each order of them.
    """
    rows = [row for some in tests(given).values() for row in some]
    sampler.follow(model)
    answers = list[list[int]]()
    for begin in range(0, len(rows), ANSWERED):
        prompts = tokenizer([row["prompt"] for row in rows[begin : begin + ANSWERED]])["input_ids"]
        answers += sampler(prompts, each=1, most=MAX_ANSWER, ends=[tokenizer.eos_token_id])
    judge.begin(
        [json.dumps(row["task"]) for row in rows],
        tokenizer.batch_decode(answers, skip_special_tokens=True),
        [row["environment"] for row in rows],
    )
    chances = list[list[float]]()
    listed = [row for row in rows if orders and row["environment"] != "proofs"]
    with evaluation_mode(model):
        for begin in range(0, len(listed), SCORED):
            chances += probabilities(model, tokenizer, listed[begin : begin + SCORED])
    passes = iter([int(judgement.success) for judgement in judge.finish()])
    of_each = iter(chances)
    names = tests(given)
    return {
        "scores": {name: [next(passes) for _ in some] for name, some in names.items()},
        "orders": {
            name: [next(of_each) for _ in some]
            for name, some in names.items()
            if orders and not name.startswith("proofs/")
        },
    }


@dataclass(frozen=True, kw_only=True)
class Start:
    """What the runs of a fold and seed begin with; ``before`` is what :func:`scored` says of its model."""

    given: dict[str, dict[str, list[dict[str, Any]]]]
    form: Path
    model: Any
    tokenizer: Any
    sampler: Sampler
    readers: dict[str, Any]
    before: dict[str, Any]


def start(fold: str, seed: int, options: argparse.Namespace, size: Size) -> Start:
    """A model that was taught the form, and what it does before it is trained further: both are made once."""
    seed = form_seed(fold, seed)
    evaluated = EVALUATED.get(fold, HELD_OUT)
    given = {name: load(name, options, size) for name in evaluated}
    tokenizer = AutoTokenizer.from_pretrained(options.backbone)
    form = taught(fold, seed, given, options, size)
    model = adapted(options, seed)
    set_peft_model_state_dict(model, load_file(form / "adapter_model.safetensors"))
    sampler = Sampler(options.backbone, getattr(torch, options.dtype), DEVICE)
    readers = {name: reader(name) for name in given}
    known = form / ("before.json" if options.orders else "before-without-orders.json")
    if not known.exists():
        with CompletionJudge(readers) as judge:
            before = scored(sampler, model, tokenizer, given, judge, orders=options.orders)
            known.write_text(json.dumps(before))
    return Start(
        given=given,
        form=form,
        model=model,
        tokenizer=tokenizer,
        sampler=sampler,
        readers=readers,
        before=json.loads(known.read_text()),
    )


def trainer_of(
    begin: Start, fold: str, method: str, seed: int, options: argparse.Namespace, size: Size
) -> OrbitGRPOTrainer:
    """The trainer of a run, which goes on from a model that was taught the form."""
    given, tokenizer, sampler = begin.given, begin.tokenizer, begin.sampler
    # Tasks as text: a dataset would give nested ones the keys of each other.
    dataset = Dataset.from_list(
        [
            {"prompt": row["prompt"], "task": json.dumps(row["task"]), "environment": name}
            for name in FOLDS[fold]
            for row in given[name]["train"]
        ]
    )
    settings = OrbitGRPOConfig(
        **common(options.build / f"run-{fold}-{method}-{seed}", seed),
        **METHODS[method],
        learning_rate=size.learning_rate,
        max_completion_length=MAX_ANSWER,
        per_device_train_batch_size=size.prompts * size.samples,
        num_generations=size.samples,
        num_iterations=size.epochs,
        max_steps=size.updates * size.epochs,
        logging_steps=1,
        beta=0.0,
    )

    def rollouts(prompts: list[str], trainer: OrbitGRPOTrainer) -> dict[str, Any]:
        sampler.follow(trainer.model)
        draw = torch.Generator(DEVICE)
        draw.manual_seed(derive_seed(seed, "rollouts", trainer.state.global_step) % 2**63)
        ids = tokenizer(prompts)["input_ids"]
        written = sampler(
            ids[:: size.samples],
            each=size.samples,
            most=MAX_ANSWER,
            ends=[tokenizer.eos_token_id],
            draw=draw,
        )
        return {"prompt_ids": ids, "completion_ids": written, "logprobs": None}

    return OrbitGRPOTrainer(
        begin.model,
        args=settings,
        train_dataset=dataset,
        environment=begin.readers,
        processing_class=tokenizer,
        rollout_func=rollouts,
        callbacks=[Ending(size.rule)] if size.rule else [],
    )


def run(
    fold: str, method: str, seed: int, options: argparse.Namespace, size: Size
) -> dict[str, Any]:
    """Train one run and evaluate it: what :func:`scored` says of it, and its log."""
    begin = start(fold, seed, options, size)
    given, tokenizer, sampler = begin.given, begin.tokenizer, begin.sampler
    trainer = trainer_of(begin, fold, method, seed, options, size)
    trainer.train()
    trainer.model.save_pretrained(options.build / f"run-{fold}-{method}-{seed}")
    with CompletionJudge(begin.readers) as judge:
        after = scored(sampler, trainer.model, tokenizer, given, judge, orders=options.orders)
    kept = ("reward", "step_time", "loss", "entropy", "completions/mean_length")
    log = [
        {name: row[name] for name in row if name in kept or name.startswith("orbit/")}
        for row in trainer.state.log_history
        if "loss" in row
    ]
    return {
        "fold": fold,
        "method": method,
        "seed": seed,
        "size": asdict(size),
        "form": sha256((begin.form / "adapter_model.safetensors").read_bytes()).hexdigest(),
        "chance": {
            name: sum(len(row["works"]) for row in some) / 24 / len(some)
            for name, some in tests(given).items()
        },
        "sources": {
            name: [row["task"]["source"] for row in some] for name, some in tests(given).items()
        },
        **{
            what: {"before": begin.before[what], "after": after[what]}
            for what in ("scores", "orders")
        },
        "log": log,
    }


def prepare(options: argparse.Namespace) -> None:
    """Leave nothing behind of what this process did before."""
    torch.set_num_threads(options.threads)
    gc.collect()
    torch.cuda.empty_cache()


def begun(fold: str, seed: int, options: argparse.Namespace, size: Size) -> None:
    """Make what the runs of a fold and seed begin with, or nothing where it is there."""
    prepare(options)
    start(fold, seed, options, size)


def done(fold: str, method: str, seed: int, options: argparse.Namespace, size: Size) -> None:
    """Make one run, and write it."""
    prepare(options)
    print(f"{time.strftime('%H:%M:%S')} {fold} {method} {seed}", flush=True)
    began = time.monotonic()
    found = run(fold, method, seed, options, size) | {
        "minutes": round((time.monotonic() - began) / 60, 1),
        "machine": machine(DEVICE) | {"instructions": instructions()},
        "threads": options.threads,
        "jobs": options.jobs,
        "dtype": options.dtype,
        "versions": versions(),
        "commit": commit(),
    }
    path: Path = options.results / fold / f"{method}-{seed}.json.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    whole, path = path, path.with_suffix(".partial")
    with gzip.GzipFile(path, "wb", mtime=0) as file:
        file.write(json.dumps(found).encode())
    path.rename(whole)
    for when, by_environment in found["scores"].items():
        rates = {name: sum(some) / len(some) for name, some in by_environment.items()}
        print(f"  {fold} {method} {seed} {when}: {rates}", flush=True)


def model_options(parser: argparse.ArgumentParser, *, threads: int = 1) -> None:
    """Add the options of the model and of where it is taught."""
    parser.add_argument("--backbone", type=Path, default=fetched_folder("smollm2-135m"))
    parser.add_argument("--build", type=Path, default=Path("build/written"))
    parser.add_argument("--threads", type=int, default=threads)


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Read the options, with the number format that suits the machine; orders are scored only where that is asked."""
    options = parser.parse_args()
    options.orders = getattr(options, "orders", False)
    settings = {"model.backbone": str(options.backbone), "adapter.rank": RANK}
    options.dtype = number_format(RunConfig().override(settings)).dtype
    return options


def main() -> None:
    """Do whichever runs are missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folds", nargs="*", default=list(FOLDS), choices=list(FOLDS))
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument(
        "--no-orders",
        dest="orders",
        action="store_false",
        help="leave out the probabilities of all orders, which relations.py reads and pass rates do without",
    )
    parser.add_argument("--updates", type=int, default=Size().updates)
    parser.add_argument("--learning-rate", type=float, default=Size().learning_rate)
    model_options(parser)
    parser.add_argument("--jobs", type=int, default=1)
    options = parsed(parser)
    sizes = {
        fold: Size(updates=options.updates, learning_rate=options.learning_rate) for fold in FOLDS
    }
    sizes["until"] = replace(sizes["until"], updates=options.updates * 3 // 2, rule=Rule())
    missing = [
        (fold, method, seed)
        for seed in options.seeds
        for fold in options.folds
        for method in options.methods
        if not (options.results / fold / f"{method}-{seed}.json.gz").exists()
    ]
    if options.jobs == 1:
        for fold, method, seed in missing:
            done(fold, method, seed, options, sizes[fold])
        return
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
        try:
            begins = {
                pool.submit(begun, *each, options, sizes[each[0]]): each
                for each in dict.fromkeys(
                    (fold, form_seed(fold, seed)) for fold, _, seed in missing
                )
            }
            runs = []
            for one in as_completed(begins):
                one.result()
                runs += [
                    pool.submit(done, fold, method, seed, options, sizes[fold])
                    for fold, method, seed in missing
                    if (fold, form_seed(fold, seed)) == begins[one]
                ]
            for one in as_completed(runs):
                one.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


if __name__ == "__main__":
    main()
