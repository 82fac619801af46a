"""Gather the contents of a report from an evaluated experiment on disk."""

from __future__ import annotations

from collections.abc import Iterable

from vcrt.printable import printable
from vcrt.records.dataset import Dataset, read_audit, require_agreement
from vcrt.records.record_form import View
from vcrt_train.config import EMBEDDED_NAME
from vcrt_train.policy.reference import BackboneReference
from vcrt_train.protocol.experiment import (
    Experiment,
    planned_dataset,
    planned_search,
    planned_test_sets,
    read_finished_run,
)
from vcrt_train.protocol.plan import Plan
from vcrt_train.protocol.same_code import other_code_sentences, report_sentences
from vcrt_train.protocol.scores import (
    FROZEN_AS,
    FoldPasses,
    TestSetPasses,
    openings,
    other_openings,
    passes_array,
    read_scores,
    unshared_openings,
    view_of,
)
from vcrt_train.protocol.splits import set_aside
from vcrt_train.report.contents import FoldScore, ReportContents, RunReport, TestSetScores
from vcrt_train.report.task import native_words
from vcrt_train.report.training_tables import flag_sentences
from vcrt_train.training.methods import method

TITLE = "Verifier-Certified Rule Transport"
_FROZEN_VIEW = view_of(method(FROZEN_AS))


def not_measured(backbone: BackboneReference, view: View = "relations") -> tuple[str, ...]:
    """Say what no experiment on this backbone and these records can show."""
    from_text = {
        "relations": "Whether the relations could be read from raw text: the policy is given the certified relations.",
        "steps": "Whether a policy orders steps that it writes itself: it is given them.",
        "footprints": "Whether footprints could be read from raw text: the policy is given what the steps declare.",
    }[view]
    if not backbone.is_embedded:
        return (from_text,)
    kind = "embedded backbone" if backbone.name == EMBEDDED_NAME else f"backbone {backbone.name}"
    return (
        f"Language models: all figures come from the {kind} of about 150,000 parameters.",
        from_text,
    )


def _backbone(plan: Plan) -> str:
    """Name the backbone with its digest; if it is not embedded, also its revision, training and what it is shown."""
    name = f"{plan.backbone.name} ({plan.backbone_digest[:12]})"
    if plan.backbone.is_embedded:
        return name
    revision = "" if plan.backbone_revision is None else f", {printable(plan.backbone_revision)}"
    return f"{name}{revision}, {plan.provenance.in_words()}{plan.backbone.shown}"


def gather(experiment: Experiment) -> ReportContents:
    """Gather the report's contents; raises :class:`vcrt.errors.RunError` if the experiment was not evaluated."""
    plan, scores = experiment.plan, read_scores(experiment)
    dataset, test_sets = planned_dataset(plan), planned_test_sets(plan)
    agreement = require_agreement(dataset)
    opened = openings(experiment)
    unshared = [unshared_openings(experiment, one) for one in (dataset, *test_sets.values())]
    finished = experiment.finished_runs()
    sources = _sources(dataset, dataset.environments)
    runs = tuple(
        RunReport(
            method=run.method,
            held_out=run.held_out,
            seed=run.seed,
            **vars(_fold_score(scores.runs[run.name])),
            frozen=_fold_score(scores.frozen[view_of(method(run.method))][run.held_out]),
            curve=tuple(
                {name: float(value) for name, value in line.items()}  # type: ignore[arg-type]
                for line in read_finished_run(experiment, run).metrics
            ),
            checkpoints={
                update: _fold_score(of) for update, of in scores.checkpoints[run.name].items()
            },
            cpu_seconds=finished[run.name].body["cpu_seconds"],
        )
        for run in plan.runs
    )
    return ReportContents(
        title=TITLE,
        backbone=_backbone(plan),
        dataset=dataset.manifest.model_dump(),
        agreement={"replays": agreement.replays, "agreed": agreement.agreed},
        plan=plan.without_places,
        plan_hash=plan.plan_hash,
        opening={
            "opened_at": opened[0]["at"],
            "reopened": len(opened) > 1,
            "reason": "; ".join(entry["reason"] for entry in opened[1:]) or None,
            "by_other_plans": len(other_openings(experiment, dataset)),
            "by_copies": max(one.beside_dataset_alone for one in unshared),
            "unknown_to_dataset": max(one.here_alone for one in unshared),
        },
        frozen={fold: _fold_score(of) for fold, of in scores.frozen[_FROZEN_VIEW].items()},
        runs=runs,
        not_measured=not_measured(plan.backbone, dataset.manifest.record_form.view),
        tried=(plan.how_chosen,),
        warnings=(*plan.warnings, *other_code_sentences(experiment), *flag_sentences(runs)),
        remarks=(*plan.remarks, *report_sentences(plan), *native_words(dataset)),
        search=planned_search(experiment),
        sources={fold: sources[fold] for fold in plan.held_out},
        retention_sources={
            fold: tuple(
                f"{name}/{source}"
                for name, of_item in sources.items()
                if name != fold
                for aside in [set_aside(of_item, plan.config.data.retention_share, plan.seed)]
                for source in of_item
                if source in aside
            )
            for fold in plan.held_out
        },
        also_test={
            name: _test_set(experiment, other, scores.also_test[name])
            for name, other in test_sets.items()
        },
        seed=plan.seed,
    )


def _fold_score(passes: FoldPasses) -> FoldScore:
    return FoldScore(
        held_out_passes=passes_array(passes.held_out),
        retention_passes=passes_array(passes.retention),
        spread=passes.spread,
    )


def _test_set(experiment: Experiment, dataset: Dataset, scores: TestSetPasses) -> TestSetScores:
    plan = experiment.plan
    return TestSetScores(
        dataset=dataset.manifest.model_dump(),
        frozen={fold: passes_array(of) for fold, of in scores.frozen[_FROZEN_VIEW].items()},
        runs={
            (run.method, run.held_out, run.seed): passes_array(scores.runs[run.name])
            for run in plan.runs
        },
        opened_by_others=len(other_openings(experiment, dataset)),
        sources=_sources(dataset, plan.held_out),
    )


def _sources(dataset: Dataset, environments: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Read the source of each item by environment, in the order in which items are scored."""
    return {
        name: tuple(row["source"] for row in read_audit(dataset, name)) for name in environments
    }
