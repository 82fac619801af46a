"""`vcrt export-model`: what a run has trained, as the libraries load it: a PEFT adapter, or a whole model."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from vcrt.cli.model_card import CARD_FILE, model_card
from vcrt.cli.progress import telling
from vcrt.errors import VcrtError
from vcrt.policy.model_provenance import Training, write_provenance
from vcrt.protocol.decision import Policy, chosen_run, load_policy
from vcrt.protocol.experiment import open_experiment
from vcrt.protocol.plan import Plan, PlannedRun
from vcrt.storage import publish_directory, require_new, write_file


def export_model(
    console: Console, experiment: Path, output: Path, *, run: str | None, update: int | None
) -> None:
    """Write the model of a finished run to the new folder ``output`` with its tokenizer and provenance.

    Says what it was trained on, and how to load it.
    """
    # PEFT is slow to import.
    from peft import PeftModel

    require_new(output, VcrtError)
    opened = open_experiment(experiment)
    chosen = chosen_run(opened.plan, run)
    with telling(console):
        policy = load_policy(opened, chosen, update=update)
    provenance = opened.plan.provenance.followed_by(_training(opened.plan, chosen, policy))
    reference = opened.plan.backbone
    base = reference.name if reference.folder is None else str(reference.folder)
    model = policy.model
    adapted = isinstance(model, PeftModel)
    if adapted:
        # Where the backbone lies; it was loaded from a folder of links that is gone.
        for settings in model.peft_config.values():
            settings.base_model_name_or_path = base

    def fill(partial: Path) -> None:
        # To see whether embeddings were changed, PEFT would ask the hub for the base model.
        model.save_pretrained(partial, **({"save_embedding_layers": False} if adapted else {}))
        policy.backbone.tokenizer.save_pretrained(partial)
        card = model_card(opened.plan, chosen, policy, is_adapter=adapted)
        write_file(partial / CARD_FILE, card.encode())
        write_provenance(provenance, partial)

    publish_directory(output, fill, VcrtError)
    how = (
        f'peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("{base}"), "{output}")'
        if adapted
        else f'AutoModelForCausalLM.from_pretrained("{output}")'
    )
    console.print(
        f"run {policy.run} after update {policy.update}  {output}\n"
        f"provenance: {provenance.in_words()}\nnext: {how}",
        highlight=False,
        soft_wrap=True,
    )


def _training(plan: Plan, run: PlannedRun, policy: Policy) -> Training:
    """What the run was trained on: its source environments, retention items included."""
    return Training(
        run=run.name,
        update=int(policy.update or 0),
        checkpoint=str(policy.checkpoint),
        plan_hash=plan.plan_hash,
        code=plan.code,
        dataset=plan.root_hash,
        environments={name: plan.environment_versions[name] for name in plan.sources(run.held_out)},
        backbone=plan.backbone.name,
        backbone_digest=plan.backbone_digest,
    )
