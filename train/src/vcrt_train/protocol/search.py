"""Describe a search for hyper-parameters on source items only: its trials, their results, and the chosen settings.

Every method tries the same settings on every fold, so that all get equal effort; a setting that a method does not use
(such as the margin) has no effect on it. Each fold is searched by itself, because another fold's source environments
include the one that this fold holds out. Not covered: how trials run (:mod:`vcrt_train.protocol.trials`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from vcrt.documents import read_limited, strict_json
from vcrt.errors import ConfigError, RunError, UnknownNameError
from vcrt.forms import ClosedModel, in_a_line
from vcrt.hashing import Json, json_digest
from vcrt.printable import counted
from vcrt.storage import write_file
from vcrt_train.config import (
    DEFAULTS,
    EMBEDDED_LEARNING_RATE,
    WITHOUT_EFFECT,
    RunConfig,
)
from vcrt_train.policy.reference import BackboneReference
from vcrt_train.randomness import generator

FORMAT = "vcrt-search/7"
SEARCH_FILE = "search.json"
#: The most settings that a search tries.
MAX_TRIALS = 1000
LEARNING_RATE = "optimiser.learning_rate"
UPDATES = "schedule.updates"
#: Lowest and highest value of each setting; the values are spread uniformly in the logarithm.
RANGES: Mapping[str, tuple[float, float]] = {
    LEARNING_RATE: (1e-4, 4e-3),
    "objective.alpha": (0.02, 1.0),
    "objective.margin": (1.0, 4.0),
    "objective.mu": (1.0, 30.0),
}


class Trial(ClosedModel):
    """One method trained on a part of one fold's source items with one choice of settings, and its result on others."""

    method: str
    held_out: str
    number: int
    #: By name, such as ``objective.margin``.
    settings: dict[str, float]
    #: Share of greedy passes on the validation items; 0 for a run that diverged.
    pass_rate: float
    #: Mean probability of the certified orbit on the validation items; 0 for a run that diverged.
    orbit_mass: float
    diverged: bool = False


class SearchCheck(ClosedModel):
    """How many trials of a search were repeated with the same result, and how many of these were chosen ones."""

    trials: int
    chosen: int

    def in_words(self) -> str:
        """Write both numbers in a sentence, for a plan and its report."""
        return (
            f"{self.trials} of the trials, {self.chosen} of them chosen ones, were drawn and run again when the plan "
            "was made, and came out the same."
        )


class Search(ClosedModel):
    """All trials of a search, with everything on which they depend."""

    format: str
    root_hash: str
    #: The backbone by name, with its number format and what it is shown, without the place of its files.
    backbone: BackboneReference
    backbone_digest: str
    methods: tuple[str, ...]
    #: The definition of each method: its row of the method table.
    definitions: dict[str, dict[str, Any]]
    held_out: tuple[str, ...]
    num_trials: int
    seed: int
    #: The learning rate of trial 0, around which the others are drawn.
    learning_rate: float
    #: The settings that all trials share, by section.
    config: dict[str, dict[str, Any]]
    #: The hash of the source files that ran the trials, by package.
    code: dict[str, str]
    trials: tuple[Trial, ...]

    @property
    def digest(self) -> str:
        """SHA-256 of the search's canonical JSON."""
        return json_digest(self.model_dump(mode="json"))

    @property
    def num_updates(self) -> int:
        """The number of updates of each trial."""
        updates: int = self.config["schedule"]["updates"]
        return updates

    @property
    def backbone_identity(self) -> dict[str, Json]:
        """The identity of the backbone, in the form of a plan."""
        return self.backbone.identity

    def best(self, method: str, held_out: str) -> Trial:
        """Return the trial with the highest pass rate; if equal, the one with the most orbit mass, then the first."""
        mine = [t for t in self.trials if (t.method, t.held_out) == (method, held_out)]
        return max(mine, key=lambda t: (not t.diverged, t.pass_rate, t.orbit_mass, -t.number))

    def in_words(self, check: SearchCheck | None = None) -> str:
        """Say how the settings were chosen and which trials were repeated, for a plan and its report."""
        checked = "None of the trials was run again: the search is unverified."
        share = self.config["data"]["validation_share"]
        ranges = ", ".join(
            f"{in_words(name)} {low:g} to {high:g}"
            for name, (low, high) in ranges_around(self.learning_rate).items()
        )
        return (
            f"For each method and fold, the best of {counted(self.num_trials, 'setting')} by the pass rate on source "
            f"items that the search did not train on ({100 * share:g}% of them; equal ones by orbit "
            f"mass), after one run of {counted(self.num_updates, 'update')} each. Every method tried the same "
            f"settings: the library's defaults, and {counted(self.num_trials - 1, 'point')} of a Halton sequence "
            f"({ranges}, uniform in the logarithm). {SEARCH_FILE} lists all. "
            f"{checked if check is None else check.in_words()}"
        )

    def require_same_training(self, config: RunConfig, methods: Sequence[str]) -> None:
        """Raise :class:`RunError` unless the trials trained these methods with the settings of ``config``.

        Searched settings may differ; runs may have more updates than trials, and the plan then says so.
        """
        from vcrt_train.training.methods import method

        expected, found = (
            {
                f"{section}.{key}": value
                for section, keys in one.items()
                for key, value in keys.items()
            }
            for one in (shared_settings(config), self.config)
        )
        longest, updates = expected.pop(UPDATES), found.pop(UPDATES, None)
        if type(updates) is not int or not 1 <= updates <= longest:
            raise RunError(
                "the number of updates of the search's trials does not fit the planned runs",
                where=UPDATES,
                found=f"{updates!s:.80}",
                expected=f"a number from 1 to {longest}",
                remedy="search again with `vcrt search --updates`, or plan at least as many",
            )
        for name in methods:
            expected[f"method {name}"] = method(name).definition()
            found[f"method {name}"] = self.definitions.get(name)
        for name, value in expected.items():
            if found.get(name) != value:
                raise RunError(
                    "the search trained with another setting than the plan has",
                    where=name,
                    found=str(found.get(name)),
                    expected=str(value),
                    remedy="search again with these settings: `vcrt search`",
                )

    def require(self, **expected: Json) -> None:
        """Raise :class:`RunError` unless the fields of the search have these values."""
        for name, value in expected.items():
            if getattr(self, name) != value:
                raise RunError(
                    "the search is not of this experiment",
                    where=name.replace("_", " "),
                    found=str(getattr(self, name)),
                    expected=str(value),
                    remedy="search again on this dataset with `vcrt search`",
                )


def require_not_given(config: RunConfig, names: Iterable[str] = RANGES) -> None:
    """Raise :class:`ConfigError` for the first setting that is given although a search chooses it."""
    for name in names:
        if config.value(name) != DEFAULTS.value(name):
            raise ConfigError(
                f"the {in_words(name)} would be chosen twice",
                where=name,
                found=f"{config.value(name)}, and a search",
                expected="one of them",
                remedy="leave the setting out, or plan without the search",
            )


def shared_settings(config: RunConfig) -> dict[str, dict[str, Any]]:
    """Return a run's settings without those that a search chooses, and those on which no result depends."""
    # The search states the backbone, its format and what it is shown elsewhere.
    shown = ("dtype", "prompt_style", "relation_names")
    beside = (f"model.{name}" for name in ("backbone", "lock", *shown))
    out = (*WITHOUT_EFFECT, *RANGES, *beside)
    found = {
        section: {k: v for k, v in values.items() if not f"{section}.{k}".startswith(out)}
        for section, values in config.to_json().items()
    }
    return {section: values for section, values in found.items() if values}


def in_words(setting: str) -> str:
    """Return the name of a searched setting as words of a sentence."""
    return setting.partition(".")[2].replace("_", " ")


def ranges_around(learning_rate: float) -> dict[str, tuple[float, float]]:
    """Return the ranges around a learning rate: that of the embedded backbone, scaled by the ratio of the two rates."""
    factor = learning_rate / EMBEDDED_LEARNING_RATE
    low, high = RANGES[LEARNING_RATE]
    return {**RANGES, LEARNING_RATE: (low * factor, high * factor)}


def settings_of_trial(
    seed: int, number: int, learning_rate: float = EMBEDDED_LEARNING_RATE
) -> dict[str, float]:
    """Return a trial's settings: the defaults for number 0, else a point of a Halton sequence scrambled by ``seed``.

    The range of learning rates is scaled as in :func:`ranges_around`. A trial's settings do not depend on how many
    trials there are.
    """
    if number == 0:
        defaults = {
            name: cast(float, DEFAULTS.value(name)) for name in RANGES if name != LEARNING_RATE
        }
        return {LEARNING_RATE: learning_rate, **defaults}
    # The import takes half a second, and only a search needs it.
    from scipy.stats import qmc

    sequence = qmc.Halton(len(RANGES), rng=generator(seed, "search"))
    point = sequence.fast_forward(number - 1).random(1)[0]
    # Six digits are enough, and JSON keeps them exactly.
    return {
        name: float(f"{low * (high / low) ** float(share):.6g}")
        for (name, (low, high)), share in zip(
            ranges_around(learning_rate).items(), point, strict=True
        )
    }


def of_length(updates: int) -> dict[str, Any]:
    """Return the settings of trials with this many updates; only the last is kept, because trials are scored there."""
    return {UPDATES: updates, "schedule.checkpoints": (updates,)}


def chosen_for(
    search: Search, methods: Sequence[str], folds: Sequence[str]
) -> dict[str, dict[str, dict[str, float]]]:
    """Return the chosen settings by method and fold; raises :class:`UnknownNameError` if the search left one out."""
    for what, names, known in (
        ("searched method", methods, search.methods),
        ("searched environment", folds, search.held_out),
    ):
        for name in names:
            if name not in known:
                raise UnknownNameError.of(what, name, known)
    return {m: {fold: search.best(m, fold).settings for fold in folds} for m in methods}


def write_search(search: Search, path: Path) -> None:
    """Write the search with its digest."""
    value: Json = {"search": search.model_dump(mode="json"), "digest": search.digest}
    write_file(path, (json.dumps(value, indent=1) + "\n").encode())


def read_search(path: Path) -> Search:
    """Read a search; raises :class:`RunError` if it is missing, malformed, changed or incomplete."""
    remedy = "restore the original, or search again with `vcrt search`"
    if not path.is_file():
        raise RunError("there is no such search", where=str(path), remedy=remedy)
    try:
        value = strict_json(read_limited(path))
        if value["search"]["format"] != FORMAT:
            raise ValueError(f"format {value['search']['format']!r:.80}, not {FORMAT}")
        search, sealed = Search.model_validate(value["search"]), value["digest"]
        digest = search.digest
    except (ValueError, KeyError, TypeError) as error:
        raise unreadable("search", path, error, remedy) from error
    if digest != sealed:
        raise changed("search", path, f"digest {digest}", f"digest {sealed!s:.80}", remedy)
    _require_complete(search, path)
    return search


def unreadable(what: str, path: Path, error: Exception, remedy: str) -> RunError:
    """Make the error for a search or plan that does not have the right form."""
    return RunError(
        f"the {what} cannot be read",
        where=str(path),
        found=f"{type(error).__name__}: {in_a_line(error)[:300]}",
        remedy=remedy,
    )


def changed(what: str, path: Path, found: str, expected: str, remedy: str) -> RunError:
    """Make the error for a search or plan that differs from its hash."""
    return RunError(
        f"the {what} was changed after it was made",
        where=str(path),
        found=found,
        expected=expected,
        remedy=remedy,
    )


def _require_complete(search: Search, path: Path) -> None:
    """Raise :class:`RunError` unless every method has every trial on every fold, with the settings of the seed."""
    found = [(t.method, t.held_out, t.number, t.settings) for t in search.trials]
    expected = []
    # Expected trials are listed only if the file has as many: it may state any number.
    whole = len(search.held_out) * len(search.methods) * search.num_trials == len(found)
    if whole and search.num_trials <= MAX_TRIALS and 1e-12 < search.learning_rate < 1e6:
        settings = [
            settings_of_trial(search.seed, number, search.learning_rate)
            for number in range(search.num_trials)
        ]
        expected = [
            (method, fold, number, settings[number])
            for fold in search.held_out
            for method in search.methods
            for number in range(search.num_trials)
        ]
    if found != expected or not expected:
        raise RunError(
            "the search does not have the trials that it should have",
            where=str(path),
            found=counted(len(found), "trial"),
            expected=f"each of {counted(len(search.methods), 'method')} on each of "
            f"{counted(len(search.held_out), 'fold')} with the {counted(search.num_trials, 'setting')} that "
            f"seed {search.seed} gives",
            remedy="search again with `vcrt search`",
        )
