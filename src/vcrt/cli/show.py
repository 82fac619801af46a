"""What ``vcrt show`` and ``vcrt verify --certificate`` do: find an episode, show it, check a certificate alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

from rich.console import Console

from vcrt.certification.episodes import CertifiedEpisode, preset_named
from vcrt.certification.shards import EnvironmentFactory
from vcrt.cli.certificate_view import View, print_view
from vcrt.cli.options import plain_console
from vcrt.cli.progress import PATIENCE, showing_progress
from vcrt.datasets.examination import (
    CertificateCheck,
    Examined,
    description_of,
    examine,
    factory_of,
    from_certified,
    verify_certificate,
)
from vcrt.environments.isolation import describe, sample
from vcrt.errors import DatasetError, UnknownNameError, VcrtError
from vcrt.printable import printable
from vcrt.progress import Progress
from vcrt.records.audit import certified_from_row
from vcrt.records.certificate import document_text, read_certificate
from vcrt.records.dataset import Dataset, open_dataset, read_audit
from vcrt.records.manifest import LEAVES
from vcrt.report.wording import counted

_EPISODE = re.compile(r"([^/]+)/([^/]+)/([0-9]{1,19})")


def show_episode(
    console: Console,
    name: str,
    *,
    dataset: Path | None = None,
    as_json: bool = False,
    pair: tuple[int, int] | None = None,
    brief: bool = False,
    factories: Mapping[str, EnvironmentFactory] | None = None,
) -> None:
    """Print an episode or a certificate file; raises :class:`vcrt.errors.VcrtError` if there is no such thing."""
    if as_json and pair is not None:
        raise VcrtError("the JSON form is always whole", found="--json and --pair")
    with showing_progress(plain_console(aside=True), after=PATIENCE) as progress:
        examined, origin = _find(name, dataset, factories, progress)
    if as_json:
        print(document_text(examined.document()))
        return
    num_operations = examined.evidence.episode.num_operations
    if pair is not None and not 0 <= min(pair) < max(pair) < num_operations:
        raise VcrtError(
            "no such pair",
            found=f"--pair {pair[0]} {pair[1]}",
            expected=f"two different steps from 0 to {num_operations - 1}",
        )
    episode = examined.evidence.episode
    factory = factory_of(episode.environment, factories)
    print_view(
        console,
        View(
            examined=examined,
            describe=description_of(factory, {name: episode.operations})(name),
            origin=origin,
            only_pair=None if pair is None else (min(pair), max(pair)),
            brief=brief,
        ),
    )
    if brief:
        console.print(
            "\n--full: the initial state, every order, and every pair in every context; --pair A B: one pair",
            style="dim",
            highlight=False,
            markup=False,
        )


def check_certificate(
    console: Console,
    path: Path,
    factories: Mapping[str, EnvironmentFactory] | None = None,
) -> None:
    """Check a certificate alone and print what was checked; raises if anything differs."""
    if not path.exists() or path.is_dir():
        raise DatasetError(
            "no certificate there",
            where=str(path),
            found=_instead(path),
            expected="a file made by `vcrt show EPISODE --json`",
            remedy="check the name, or make one: vcrt show EPISODE --json > FILE",
        )
    with showing_progress(plain_console(aside=True), after=PATIENCE) as progress:
        check = verify_certificate(path, factories=factories, progress=progress)
    for line in check_lines(check):
        console.print(printable(line), highlight=False, markup=False, soft_wrap=True)


def _instead(path: Path) -> str:
    if path.is_dir():
        return "a directory"
    return (
        f"a link to {path.readlink()}, which is not there" if path.is_symlink() else "No such file"
    )


def check_lines(check: CertificateCheck) -> list[str]:
    """What was checked, with counts, one thing a line."""
    certified = check.certificate.certified
    versions, num_libraries = certified.versions, len(certified.versions.libraries)
    opinions = [f"{c.checker} {c.agreed}/{c.checked}" for c in certified.cross_checks]
    return [
        f"certificate {certified.episode.episode_id}",
        f"digest      SHA-256 {check.certificate.sha256} holds",
        f"derived     {counted(len(certified.certificates), 'local certificate')}, "
        f"{counted(len(certified.relations), 'relation')} and "
        f"{_legal_orders(certified)} follow from the replays",
        f"versions    {versions.verifier}, adapter {versions.adapter}, canonicalizer {versions.canonicalizer} and "
        f"{counted(num_libraries, 'library', 'libraries')} are the same here",
        f"replayed    {check.replays} of {check.replays} {_replayed(certified)} again in a fresh process: "
        f"{check.hashes} hashes and {check.messages} messages equal",
        f"opinions    {', '.join(opinions) or 'none to repeat'}" + ", as before" * bool(opinions),
        "unchecked   where the episode comes from: no replay tells its source, generator or seed",
    ]


def _legal_orders(certified: CertifiedEpisode) -> str:
    num_legal = certified.num_legal
    if num_legal is None:
        return "the legal orders"
    if certified.complete:
        return counted(num_legal, "legal order")
    return f"{counted(num_legal, 'order')} that keep them"


def _replayed(certified: CertifiedEpisode) -> str:
    if certified.exhaustive:
        return "orders"
    return "sequences (complete)" if certified.complete else "sequences (sampled, not complete)"


def _find(
    name: str,
    dataset: Path | None,
    factories: Mapping[str, EnvironmentFactory] | None,
    progress: Progress,
) -> tuple[Examined, str]:
    """What is to be shown, and where its evidence comes from."""
    path = Path(name)
    if dataset is not None:
        return _find_sealed(name, open_dataset(dataset))
    if path.is_file():
        sealed = read_certificate(path)
        return (
            from_certified(sealed.certified, sealed.preset),
            f"the replays that {path} holds; `vcrt verify --certificate {path}` makes them again",
        )
    matched = _EPISODE.fullmatch(name)
    if matched is None:
        raise UnknownNameError(
            f"neither an episode nor a file: {name!r}",
            expected="environment/schema/seed, or the path of a certificate",
            remedy=f"vcrt show EPISODE --dataset {path}; {path / LEAVES} names its episodes"
            if (path / LEAVES).is_file()
            else "for example: vcrt show clrs/bellman_ford/7",
        )
    factory = factory_of(matched[1], factories)
    schema = describe(factory).schema(matched[2])
    episode = sample(factory, schema.name, int(matched[3]))
    what = "sequences of steps" if preset_named(schema.preset).is_long else "every order"
    return (
        examine(factory, episode, preset_named(schema.preset), progress),
        f"sampled now; {what} replayed in two fresh processes",
    )


def _find_sealed(name: str, dataset: Dataset) -> tuple[Examined, str]:
    environment = name.partition("/")[0]
    if environment not in dataset.environments:
        raise UnknownNameError.of("environment of the dataset", environment, dataset.environments)
    rows = {row["episode_id"]: row for row in read_audit(dataset, environment)}
    if name not in rows:
        near = get_close_matches(name, rows, n=3, cutoff=0.0)
        raise DatasetError(
            f"no episode {name!r} in the dataset",
            where=str(dataset.path),
            expected=f"one of its {counted(len(rows), 'episode')} of {environment}, such as {', '.join(near)}",
            remedy="without --dataset it is sampled and certified on the spot, or excluded with the reason",
        )
    preset = dataset.manifest.preset
    return (
        from_certified(certified_from_row(rows[name], preset), preset),
        f"sealed in {dataset.path}, root hash {dataset.manifest.root_hash}",
    )
