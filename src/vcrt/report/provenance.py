"""The tables about what the results rest on: data construction, cross-checks, plan, opening and versions.

``contents.dataset`` is read in the form of a dataset's manifest (``counts``, ``conformance``, ``versions`` and so on).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vcrt.protocol.search import RANGES, SearchCheck
from vcrt.protocol.statistics import proportion_interval
from vcrt.report import paper
from vcrt.report.anonymity import anonymity_table
from vcrt.report.contents import ReportContents
from vcrt.report.data_words import evidence_sentences
from vcrt.report.table import Table
from vcrt.report.wording import label
from vcrt.training.methods import method

#: The table that is not the same each time.
CLOCKS = "clocks"


def provenance_tables(contents: ReportContents) -> tuple[Table, ...]:
    """Everything about the data, the plan and the versions, in the order in which it is shown."""
    return (
        construction_table(contents),
        fold_table(contents),
        exclusion_table(contents),
        cross_check_table(contents),
        *(() if contents.anonymity is None else (anonymity_table(contents.anonymity),)),
        plan_table(contents),
        *(() if contents.search is None else (search_table(contents),)),
        opening_table(contents),
        clock_table(contents),
        version_table(contents),
    )


def construction_table(contents: ReportContents) -> Table:
    """Candidates, episodes, replays, legal orders and relations of each schema, and their totals."""
    totals, known = [0] * 7, True
    rows: list[tuple[str | int, ...]] = []
    for environment, schema, counts in _schemas(contents):
        relations = counts["relations"]
        numbers = [
            counts["candidates"],
            counts["episodes"],
            _replayed(counts),
            counts["legal_orders"] or 0,
            *(relations.get(kind, 0) for kind in ("commutes", "precedes", "conflicts")),
        ]
        totals = [total + number for total, number in zip(totals, numbers, strict=True)]
        known = known and counts["legal_orders"] is not None
        rows.append((label(environment), schema, *_shown(numbers, counts["legal_orders"])))
    rows.append(("All", "", *_shown(totals, totals[3] if known else None)))
    return Table(
        name="construction",
        title="Frozen episodes",
        columns=(
            "Environment",
            "Schema",
            "Candidates",
            "Episodes",
            "Sequences replayed"
            if evidence_sentences(contents.dataset["counts"])
            else "Orders replayed",
            "Legal orders",
            "Commutes",
            "Precedes",
            "Conflicts",
        ),
        rows=tuple(rows),
        note=f"{_how_replayed(contents, totals)} The last three columns count certified relations.",
    )


def _shown(numbers: Sequence[int], legal: int | None) -> list[str | int]:
    """The numbers of a row, of which the fourth are the legal orders, if they are counted."""
    return [*numbers[:3], "not counted" if legal is None else legal, *numbers[4:]]


def _how_replayed(contents: ReportContents, totals: Sequence[int]) -> str:
    sampled = evidence_sentences(contents.dataset["counts"])
    if sampled:
        return " ".join(sampled)
    return (
        f"Every order of every frozen episode was replayed by itself: {_per(totals[2], totals[1])} orders an "
        f"episode, {_per(totals[3], totals[1])} of them legal (the paper: {paper.LEGAL_ORDERS_PER_EPISODE} of "
        f"{paper.ORDERS_PER_EPISODE})."
    )


def _replayed(counts: Mapping[str, Any]) -> int:
    """Orders, or, where not every order was replayed, the sequences that were."""
    evidence = counts.get("evidence")
    return int(counts["orders"] if evidence is None else evidence["sequences"])


def fold_table(contents: ReportContents) -> Table:
    """Source environments, episodes and replays of each fold beside the paper's."""
    episodes: dict[str, int] = {}
    orders: dict[str, int] = {}
    for environment, _, counts in _schemas(contents):
        episodes[environment] = episodes.get(environment, 0) + counts["episodes"]
        orders[environment] = orders.get(environment, 0) + _replayed(counts)
    rows = []
    for fold in contents.folds:
        sources = [name for name in episodes if name != fold]
        rows.append(
            (
                label(fold),
                " + ".join(label(name) for name in sources),
                sum(episodes[name] for name in sources),
                sum(orders[name] for name in sources),
                contents.frozen[fold].held_out_passes.size,
                paper.SOURCE_EPISODES,
                paper.SOURCE_REPLAYS,
            )
        )
    aside = ("Episodes (paper)", "Replays (paper)")
    return Table(
        name="folds",
        title="Leave-one-environment-out folds",
        columns=("Held out", "Sources", "Source episodes", "Replays", "Held-out items", *aside),
        rows=tuple(rows),
        note="A part of the source episodes is kept from training and measures source retention.",
        aside=frozenset(aside),
    )


def exclusion_table(contents: ReportContents) -> Table:
    """Candidates that were not frozen, by kind."""
    rows = tuple(
        (
            label(environment),
            schema,
            kind,
            number,
            f"{100 * number / counts['candidates']:.2f}%",
        )
        for environment, schema, counts in _schemas(contents)
        for kind, number in sorted(counts["exclusions"].items())
    )
    return Table(
        name="exclusions",
        title="Excluded candidates",
        columns=("Environment", "Schema", "Kind", "Candidates", "Share"),
        rows=rows,
        note="Excluded candidates carry no label. Schemas without a row excluded none.",
    )


def cross_check_table(contents: ReportContents) -> Table:
    """Second opinions and the agreement gate: comparisons, agreements, and the rate of disagreement."""
    checks = [
        (label(environment), checker, counts["checked"], counts["agreed"])
        for environment, checkers in contents.dataset["conformance"].items()
        for checker, counts in checkers.items()
    ]
    agreement = contents.agreement
    checks.append(
        ("All", "replayed again in fresh processes", agreement["replays"], agreement["agreed"])
    )
    return Table(
        name="cross-checks",
        title="Cross-checks",
        columns=("Environment", "Checker", "Checked", "Agreed", "Disagreement (%)", "95% interval"),
        rows=tuple((*check, *_disagreement(check[2], check[3])) for check in checks),
        note=(
            "Exact binomial (Clopper-Pearson) intervals, which treat comparisons as independent. In the paper the "
            "agreement of replays is 100%."
        ),
    )


def _disagreement(checked: int, agreed: int) -> tuple[str, str]:
    if checked == 0:
        return "n/a", "n/a"
    low, high = proportion_interval(checked - agreed, checked)
    return f"{100 * (checked - agreed) / checked:.4f}", f"[{100 * low:.4f}, {100 * high:.4f}]"


def plan_table(contents: ReportContents) -> Table:
    """The frozen plan, one row for each setting, and the hashes of plan and dataset, each once."""
    root_hash = contents.dataset["root_hash"]
    rows = [("plan hash", contents.plan_hash), ("dataset root hash", root_hash)]
    rows += [
        (".".join(path), _text(value))
        for path, value in _leaves(contents.plan)
        if (path, value) != (("root_hash",), root_hash)
    ]
    return Table(
        name="plan",
        title="Plan",
        columns=("Setting", "Value"),
        rows=tuple(rows),
        note="Frozen before the first run.",
    )


def opening_table(contents: ReportContents) -> Table:
    """Whether the held-out evaluation was opened again, and why."""
    rows = tuple(
        (".".join(path), _text(value))
        for path, value in _leaves(contents.opening)
        if path != ("opened_at",)
    )
    return Table(
        name="opening",
        title="Opening of the held-out evaluation",
        columns=("Fact", "Value"),
        rows=rows,
        note="Evaluation opens once, after every run of the plan has reached its last update.",
    )


def clock_table(contents: ReportContents) -> Table:
    """What clocks said: the moment of the opening and the processor time of training, beside the paper's.

    The only table that is not the same each time the experiment is repeated.
    """
    known = [run.cpu_seconds for run in contents.runs if run.cpu_seconds is not None]
    hours = f"{sum(known) / 3600:.2f} CPU hours" if len(known) == len(contents.runs) else None
    return Table(
        name=CLOCKS,
        title="What clocks said",
        columns=("Fact", "Here", "Paper"),
        rows=(
            ("Held-out evaluation opened", str(contents.opening.get("opened_at", "n/a")), "n/a"),
            ("Training of all runs", hours or "not recorded", f"{paper.GPU_HOURS:.2f} GPU hours"),
        ),
        note=(
            "Processor time of the processes that finished the runs; what an interrupted run had used before is not in "
            "it. This table differs from repetition to repetition; the others do not."
        ),
    )


def search_table(contents: ReportContents) -> Table:
    """Every trial of the search that the plan was made with, the chosen ones marked; raises if there was none."""
    search = contents.search
    if search is None:
        raise AssertionError("there was no search")
    check = contents.plan.get("search_check")
    chosen = {(m, fold): search.best(m, fold) for m in search.methods for fold in search.held_out}
    rows = [
        (
            label(trial.method),
            label(trial.held_out),
            trial.number,
            *(
                f"{trial.settings[name]:.3g}" if name in method(trial.method).settings else "-"
                for name in RANGES
            ),
            "diverged" if trial.diverged else f"{100 * trial.pass_rate:.2f}",
            f"{trial.orbit_mass:.4f}",
            "chosen" if chosen[trial.method, trial.held_out] == trial else "",
        )
        for trial in search.trials
    ]
    return Table(
        name="search",
        title="What was tried before, on source items alone",
        columns=(
            *("Method", "Held out", "Trial", "Learning rate", "Alpha", "Margin", "Mu"),
            *("Pass rate (%)", "Orbit mass", "Verdict"),
        ),
        rows=tuple(rows),
        note=search.in_words(None if check is None else SearchCheck.model_validate(check)),
    )


def version_table(contents: ReportContents) -> Table:
    """Verifier, canonicalizer, adapter and library versions of each environment."""
    rows = tuple(
        (label(environment), ".".join(path), _text(value))
        for environment, versions in contents.dataset["versions"].items()
        for path, value in _leaves(versions)
    )
    return Table(
        name="versions",
        title="Versions behind the verdicts",
        columns=("Environment", "Part", "Version"),
        rows=rows,
    )


def _schemas(contents: ReportContents) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for environment, schemas in contents.dataset["counts"].items():
        for schema, counts in schemas.items():
            yield environment, schema, counts


def _per(total: int, number: int) -> str:
    """``total / number`` without needless decimals."""
    return f"{total / number:g}" if number else "0"


def _leaves(value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """The leaves of nested mappings with their paths; a sequence of plain values is one leaf."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, str(key)))
    elif isinstance(value, Sequence) and any(isinstance(inner, Mapping | list) for inner in value):
        for index, inner in enumerate(value):
            yield from _leaves(inner, (*path, str(index)))
    else:
        yield path, value


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(_text(inner) for inner in value)
    return "none" if value is None else str(value)
