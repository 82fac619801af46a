"""Make the tables about the basis of the results: data construction, cross-checks, plan, opening and versions.

``contents.dataset`` has the form of a dataset's manifest (``counts``, ``conformance``, ``versions`` and so on).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from vcrt.certificates.certificates import RelationType
from vcrt.printable import counted, listed, printable
from vcrt.words.evidence_words import evidence_sentences, inner_values
from vcrt_train.protocol.search import RANGES, Search, SearchCheck
from vcrt_train.protocol.statistics import proportion_interval
from vcrt_train.report.contents import ReportContents
from vcrt_train.report.table import Cell, Table
from vcrt_train.report.wording import label
from vcrt_train.training.methods import method

#: The table that differs from repetition to repetition.
CLOCKS = "clocks"


def provenance_tables(contents: ReportContents) -> tuple[Table, ...]:
    """Make all tables about the data, the plan and the versions, in the order in which they are shown."""
    return (
        construction_table(contents),
        fold_table(contents),
        exclusion_table(contents),
        cross_check_table(contents),
        plan_table(contents),
        *(() if contents.search is None else (search_table(contents.search, contents.plan),)),
        opening_table(contents),
        clock_table(contents),
        version_table(contents),
    )


def construction_table(contents: ReportContents) -> Table:
    """Make the table of each schema's candidates, episodes, replays, legal orders and relations, with totals."""
    schemas = list(_schemas(contents))
    kinds = [
        kind
        for kind in get_args(RelationType)
        # This kind has a column only if outputs are observed.
        if kind != "observes" or any(counts["relations"].get(kind) for _, _, counts in schemas)
    ]
    # Legal orders are None if they are not counted.
    numbers = [
        [
            *(counts["candidates"], counts["episodes"], _replayed(counts), counts["legal_orders"]),
            *(counts["relations"].get(kind, 0) for kind in kinds),
        ]
        for _, _, counts in schemas
    ]
    totals = [None if None in column else sum(column) for column in zip(*numbers, strict=True)]
    names = [(label(environment), schema) for environment, schema, _ in schemas]
    sampled = evidence_sentences(contents.dataset["counts"])
    _, episodes, replays, legal, *_ = totals
    how = " ".join(sampled) or (
        f"Every order of every frozen episode was replayed by itself: {_per(replays, episodes)} orders an "
        f"episode, {_per(legal, episodes)} of them legal."
    )
    return Table(
        name="construction",
        title="Frozen episodes",
        columns=(
            *("Environment", "Schema", "Candidates", "Episodes"),
            "Sequences replayed" if sampled else "Orders replayed",
            *("Legal orders", *(kind.capitalize() for kind in kinds)),
        ),
        rows=tuple(
            (*name, *("not counted" if number is None else number for number in row))
            for name, row in zip((*names, ("All", "")), (*numbers, totals), strict=True)
        ),
        note=f"{how} The last {'four' if len(kinds) == 4 else 'three'} columns count certified relations.",
    )


def _replayed(counts: Mapping[str, Any]) -> int:
    """Return the number of orders or, if not every order was replayed, of replayed sequences."""
    return int(counts["evidence"]["sequences"] if "evidence" in counts else counts["orders"])


def fold_table(contents: ReportContents) -> Table:
    """Make the table of each fold's source environments, episodes and replays."""
    episodes, replays = Counter[str](), Counter[str]()
    for environment, _, counts in _schemas(contents):
        episodes[environment] += counts["episodes"]
        replays[environment] += _replayed(counts)
    rows: list[tuple[Cell, ...]] = []
    for fold in contents.folds:
        sources = [name for name in episodes if name != fold]
        totals = (sum(of[name] for name in sources) for of in (episodes, replays))
        named = " + ".join(map(label, sources))
        rows.append((label(fold), named, *totals, contents.frozen[fold].held_out_passes.size))
    return Table(
        name="folds",
        title="Leave-one-environment-out folds",
        columns=("Held out", "Sources", "Source episodes", "Replays", "Held-out items"),
        rows=tuple(rows),
        note="A part of the source episodes is kept from training and measures source retention.",
    )


def exclusion_table(contents: ReportContents) -> Table:
    """Make the table of candidates that were not frozen, by kind."""
    rows = tuple(
        (label(environment), schema, kind, number, f"{100 * number / counts['candidates']:.2f}%")
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
    """Make the table of second opinions and the agreement gate: comparisons, agreements, rate of disagreement."""
    checks = [
        (label(environment), checker, counts["checked"], counts["agreed"])
        for environment, checkers in contents.dataset["conformance"].items()
        for checker, counts in checkers.items()
    ]
    again = (contents.agreement["replays"], contents.agreement["agreed"])
    checks.append(("All", "replayed again in fresh processes", *again))
    return Table(
        name="cross-checks",
        title="Cross-checks",
        columns=("Environment", "Checker", "Checked", "Agreed", "Disagreement (%)", "95% interval"),
        rows=tuple((*check, *_disagreement(check[2], check[3])) for check in checks),
        note="Exact binomial (Clopper-Pearson) intervals, which treat comparisons as independent.",
    )


def _disagreement(checked: int, agreed: int) -> tuple[str, str]:
    if checked == 0:
        return "n/a", "n/a"
    low, high = proportion_interval(checked - agreed, checked)
    return f"{100 * (checked - agreed) / checked:.4f}", f"[{100 * low:.4f}, {100 * high:.4f}]"


def plan_table(contents: ReportContents) -> Table:
    """Make the table of the frozen plan: one row for each setting, and the hashes of plan and dataset, each once."""
    root_hash = contents.dataset["root_hash"]
    rows = [("plan hash", contents.plan_hash), ("dataset root hash", root_hash)]
    rows += [row for row in _leaves(contents.plan) if row != ("root_hash", root_hash)]
    return Table(
        name="plan",
        title="Plan",
        columns=("Setting", "Value"),
        rows=tuple(rows),
        note="Frozen before the first run.",
    )


def opening_table(contents: ReportContents) -> Table:
    """Make the table that says whether the held-out evaluation was opened again, and why."""
    return Table(
        name="opening",
        title="Opening of the held-out evaluation",
        columns=("Fact", "Value"),
        rows=tuple(row for row in _leaves(contents.opening) if row[0] != "opened_at"),
        note="Evaluation opens once, after every run of the plan has reached its last update.",
    )


def clock_table(contents: ReportContents) -> Table:
    """Make the table of clocks: the moment of the opening and the processor time of training.

    Only this table differs when the experiment is repeated.
    """
    known = [run.cpu_seconds for run in contents.runs if run.cpu_seconds is not None]
    hours = f"{sum(known) / 3600:.2f} CPU hours" if len(known) == len(contents.runs) else None
    return Table(
        name=CLOCKS,
        title="Times",
        columns=("Fact", "Value"),
        rows=(
            ("Held-out evaluation opened", str(contents.opening.get("opened_at", "n/a"))),
            ("Training of all runs", hours or "not recorded"),
        ),
        note=(
            "Processor time of the processes that finished the runs, without the time that an interrupted run had used "
            "before. This table differs from repetition to repetition; the others do not."
        ),
    )


def search_table(search: Search, plan: Mapping[str, Any]) -> Table:
    """Make the table of every trial of the plan's search, with the chosen ones marked."""
    check = plan.get("search_check")
    chosen = {(m, fold): search.best(m, fold) for m in search.methods for fold in search.held_out}
    rows = [
        (
            *(label(trial.method), label(trial.held_out), trial.number),
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
    """Make the table of each environment's versions of verifier, canonicalizer, adapter and libraries."""
    return Table(
        name="versions",
        title="Versions behind the verdicts",
        columns=("Environment", "Part", "Version"),
        rows=tuple(
            (label(environment), *row)
            for environment, versions in contents.dataset["versions"].items()
            for row in _leaves(versions)
        ),
    )


def _schemas(contents: ReportContents) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for environment, schemas in contents.dataset["counts"].items():
        for schema, counts in schemas.items():
            yield environment, schema, counts


def _per(total: int | None, number: int | None) -> str:
    """Write ``total / number`` without needless decimals."""
    return f"{total / number:g}" if total and number else "0"


def _leaves(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the leaves of nested mappings as text, with dotted paths; a sequence of plain values is one leaf."""
    if isinstance(value, Sequence) and any(isinstance(inner, Mapping | list) for inner in value):
        value = {str(index): inner for index, inner in enumerate(value)}
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    else:
        yield path, _text(value)


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    named = {True: "yes", False: "no", None: "none"}
    return named[value] if isinstance(value, bool | None) else str(value)


def data_sentences(contents: ReportContents) -> list[str]:
    """Write on frozen and excluded candidates by kind, and disagreements of checkers and of the second replay."""
    schemas = inner_values(contents.dataset["counts"])
    candidates = sum(schema["candidates"] for schema in schemas)
    episodes = sum(schema["episodes"] for schema in schemas)
    kinds: Counter[str] = Counter()
    for schema in schemas:
        kinds.update(schema["exclusions"])
    excluded = kinds.total()
    if excluded:
        parts = [f"{number:,} {printable(kind)}" for kind, number in kinds.most_common()]
        share = f"{100 * excluded / candidates:.2f}%"
        fate = f"{counted(excluded, 'was', 'were')} excluded ({share}): {listed(parts)}"
    else:
        fate = "none was excluded"
    again = contents.agreement["replays"] - contents.agreement["agreed"]
    replays = counted(contents.agreement["replays"], "replay")
    return [
        f"Of {counted(candidates, 'candidate')}, {counted(episodes, 'was', 'were')} frozen; {fate}.",
        *evidence_sentences(contents.dataset["counts"]),
        f"{_second_opinions(contents)}; {again:,} of {replays} in fresh processes disagreed.",
    ]


def _second_opinions(contents: ReportContents) -> str:
    checks = inner_values(contents.dataset["conformance"])
    checked = sum(counts["checked"] for counts in checks)
    if not checked:
        return "No second checker was asked"
    disagreed = checked - sum(counts["agreed"] for counts in checks)
    return (
        f"Second checkers disagreed in {disagreed:,} of {counted(checked, 'comparison')} "
        f"({100 * disagreed / checked:.4f}%)"
    )
