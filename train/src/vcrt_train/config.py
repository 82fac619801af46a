"""Hold every setting of a run in one object: the same in Python, in a TOML file, on the command line and in a plan.

Each section is a frozen dataclass; :class:`RunConfig` holds one of each, and its defaults are the library's. When a
plan is made, :meth:`RunConfig.resolved` fills in the settings that were not given; plans and training use the resulting
:class:`ResolvedConfig`. The module :mod:`vcrt_train.config_files` reads files and presets. Not covered: methods,
held-out environments and seeds, which are arguments of :func:`vcrt_train.plan`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from difflib import get_close_matches
from math import inf
from typing import Annotated, Literal, Self, TypeAlias, get_args

from pydantic import ConfigDict
from tyro.conf import arg

from vcrt.errors import ConfigError, UnknownNameError
from vcrt.hashing import Json

Dtype: TypeAlias = Literal["float32", "bfloat16"]
AskedDtype: TypeAlias = Literal["auto", "float32", "bfloat16"]
#: ``plain``: the record as one text. ``chat``: as a user's message in the tokenizer's own chat template.
PromptStyle: TypeAlias = Literal["plain", "chat"]
#: ``opaque``: relation types as the tokens r0 to r4. ``words``: each relation as a plain sentence.
RelationNames: TypeAlias = Literal["opaque", "words"]
#: How orders are scored, which is exact in any case, see :mod:`vcrt_train.policy.backends`.
Backend: TypeAlias = Literal["auto", "tree", "fork", "naive", "captured"]
#: How paths of an estimate are drawn, see :mod:`vcrt_train.policy.order_sampling`.
Scheme: TypeAlias = Literal["independent", "systematic"]
#: When multipliers move: once an update, after its last epoch, or after each epoch as in the paper's listing.
DualSteps: TypeAlias = Literal["update", "epoch"]
Decay: TypeAlias = Literal["constant", "linear", "cosine"]
#: How a policy answers, see :mod:`vcrt_train.policy.scoring`.
Interface: TypeAlias = Literal["pointers", "tokens"]

#: The most updates of a run: checkpoints are named by six digits.
MAX_UPDATES = 999_999
#: The embedded backbone that knows the pointers of records of up to four operations; the default.
EMBEDDED_NAME = "embedded"
#: The embedded backbone for records of more operations.
EMBEDDED_LONG_NAME = "embedded-long"
#: The backbones that come with the package.
EMBEDDED_NAMES = (EMBEDDED_NAME, EMBEDDED_LONG_NAME)
#: AdamW's learning rate for backbones that come with the package, and for language models (the paper's).
EMBEDDED_LEARNING_RATE, LANGUAGE_MODEL_LEARNING_RATE = 1e-3, 5e-6


class _Settings:
    """The base class of the sections; files may not give them unknown keys."""

    __slots__ = ()
    __pydantic_config__ = ConfigDict(extra="forbid")


@dataclass(frozen=True, kw_only=True, slots=True)
class DataConfig(_Settings):
    """Which source items are trained on."""

    retention_share: float = 0.1
    """At least this share of each source environment's items is set aside and never trained on."""
    validation_share: float = 0.2
    """A search scores its trials on at least this share of the other items."""

    def __post_init__(self) -> None:
        for name in ("retention_share", "validation_share"):
            _require(0 < getattr(self, name) < 1, f"data.{name}", self, "between 0 and 1")


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig(_Settings):
    """Which model is trained, how it reads records, and how orders are scored."""

    backbone: Annotated[str, arg(aliases=["--backbone"])] = EMBEDDED_NAME
    """The model: `embedded`, `embedded-long` for records of more than four operations, `smollm2-135m` once it was
    fetched, a folder of a causal language model, or a hub name as OWNER/MODEL, which is read from the local hub cache.
    Language models must be fetched or locked first: see `vcrt backbone --help`."""
    lock: Annotated[str | None, arg(aliases=["--lock"])] = None
    """The backbone's lock file; by default vcrt-lock.json in its folder. A hub name needs one."""
    dtype: Annotated[AskedDtype, arg(aliases=["--dtype"])] = "auto"
    """Number format of the backbone's weights; adapters are in float32. `auto` is bfloat16 for a language model with
    adapters if the machine computes in bfloat16, and float32 otherwise; the plan records the choice."""
    prompt_style: Annotated[PromptStyle, arg(aliases=["--prompt-style"])] = "plain"
    """How a language model gets a record: as plain text, or as a message in its chat template."""
    relation_names: Annotated[RelationNames, arg(aliases=["--relation-names"])] = "opaque"
    """How a language model gets relations: by opaque names (`A r1 C;`), or in words (`A must come before C.`)."""
    scoring: Annotated[Backend, arg(aliases=["--scoring"])] = "auto"
    """How orders are scored; every way is exact. `naive` runs each order by itself: it works with every causal model,
    even one that cannot use the faster ways. `captured` is `tree` in a few shapes: on CUDA an update replays graphs."""

    def __post_init__(self) -> None:
        _require(bool(self.backbone), "model.backbone", self, "a name or a folder")
        kinds = {
            "dtype": AskedDtype,
            "prompt_style": PromptStyle,
            "relation_names": RelationNames,
            "scoring": Backend,
        }
        for name, kind in kinds.items():
            _require_choice(self, f"model.{name}", kind)


@dataclass(frozen=True, kw_only=True, slots=True)
class AdapterConfig(_Settings):
    """Low-rank adapters (LoRA) that are trained in place of all parameters."""

    rank: Annotated[int, arg(aliases=["--lora-rank"])] = 0
    """Rank of the adapters (the paper: 64); 0 trains all parameters."""
    alpha: Annotated[float | None, arg(aliases=["--lora-alpha"])] = None
    """An adapter's product is multiplied by alpha / rank; by default, alpha is twice the rank (the paper: 128)."""
    dropout: Annotated[float, arg(aliases=["--lora-dropout"])] = 0.0
    """An update drops this share of the adapters' input features, the same ones for all its tokens (the paper: dropout
    0.05)."""
    recurrent: Annotated[bool, arg(aliases=["--lora-recurrent"])] = False
    """Adapt the projections of recurrent layers (gated DeltaNet, Mamba) as well as those of attention and MLP."""

    def __post_init__(self) -> None:
        _require(self.rank >= 0, "adapter.rank", self, "0 or more")
        is_right = self.alpha is None or 0 < self.alpha < inf or self.alpha == self.rank == 0
        _require(is_right, "adapter.alpha", self, _POSITIVE)
        _require(0 <= self.dropout < 1, "adapter.dropout", self, "from 0 to below 1")
        if not self.rank:
            for name in ("alpha", "dropout", "recurrent"):
                _require(not getattr(self, name), f"adapter.{name}", self, "adapter.rank above 0")


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedAdapter(AdapterConfig):
    """Adapters with their alpha, which is 0 without adapters."""

    alpha: float

    @property
    def scale(self) -> float:
        """The factor by which an adapter's product is multiplied."""
        return self.alpha / self.rank


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimiserConfig(_Settings):
    """The settings of AdamW."""

    learning_rate: Annotated[float | None, arg(aliases=["--learning-rate"])] = None
    """The learning rate of all methods; a search draws other rates around it. By default 1e-3 for embedded backbones
    and 5e-6 (the paper's) for language models."""
    weight_decay: float = 0.0
    """Decoupled weight decay."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay of the running averages of the gradient and of its square."""
    eps: float = 1e-8
    """A number that AdamW adds to the denominator."""
    max_gradient_norm: float = 1.0
    """Gradients with a larger norm are scaled down to this norm."""

    def __post_init__(self) -> None:
        rate = self.learning_rate
        _require(rate is None or 0 < rate < inf, "optimiser.learning_rate", self, _POSITIVE)
        _require(0 <= self.weight_decay < inf, "optimiser.weight_decay", self, "0 or more")
        inside = len(self.betas) == 2 and all(0 <= beta < 1 for beta in self.betas)
        _require(inside, "optimiser.betas", self, "two numbers from 0 to below 1")
        _require(0 < self.eps < inf, "optimiser.eps", self, _POSITIVE)
        _require(self.max_gradient_norm > 0, "optimiser.max_gradient_norm", self, _POSITIVE)


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedOptimiser(OptimiserConfig):
    """AdamW with its learning rate."""

    learning_rate: float


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingConfig(_Settings):
    """The numbers of prompts and orders that each update draws."""

    prompts_per_update: int = 2
    """Prompts of one update (the paper: 2)."""
    samples_per_prompt: int = 8
    """Orders sampled for each prompt: the group size of group-relative advantages."""

    def __post_init__(self) -> None:
        prompts, samples = self.prompts_per_update, self.samples_per_prompt
        expected = f"from 1 to {MAX_UPDATES}"
        _require(1 <= prompts <= MAX_UPDATES, "sampling.prompts_per_update", self, expected)
        _require(samples >= 2, "sampling.samples_per_prompt", self, "2 or more")


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectiveConfig(_Settings):
    """The weights and caps of the objective; the defaults are this library's demonstration preset."""

    clip: float = 0.2
    """Half-width of the interval around 1 to which policy ratios are clipped; 0 clips nothing."""
    alpha: float = 0.1
    """Weight of the anti-diamond loss, and of the contrastive loss or the uniformity of a method that has one."""
    margin: float = 2.0
    """By how much the legal log-mass should exceed the illegal one, in nats."""
    mu: float = 10.0
    """Stiffness of the penalties and size of the dual steps."""
    commutation_cap: float = 0.01
    """Cap on the expected commutation loss, in nats."""
    retention_cap: float = 0.05
    """Cap on the mean decline of source-orbit mass, as probability."""
    action_kl_cap: float = 0.20
    """Cap on the action KL, in nats per choice."""

    def __post_init__(self) -> None:
        _require(0 <= self.clip < 1, "objective.clip", self, "from 0 to below 1")
        _require(0 <= self.alpha < inf, "objective.alpha", self, "0 or more")
        _require(0 < self.mu < inf, "objective.mu", self, _POSITIVE)
        for name in ("margin", "commutation_cap", "retention_cap", "action_kl_cap"):
            _require(-inf < getattr(self, name) < inf, f"objective.{name}", self, "a finite number")


@dataclass(frozen=True, kw_only=True, slots=True)
class EstimatorConfig(_Settings):
    """How orbit masses are computed if there are too many orders to enumerate."""

    max_legal_prefixes: int = 512
    """Masses are exact up to this many legal prefixes in each record of an update, else estimated; 0 estimates all."""
    num_paths: int = 16
    """For each prompt, a mass is estimated from this many orders, drawn with legal moves alone."""
    scheme: Scheme = "systematic"
    """How these orders are drawn: each by itself, or spread evenly over the distribution."""
    num_swaps: int = 8
    """Certified swaps of each prompt that the commutation loss compares."""

    def __post_init__(self) -> None:
        _require(self.num_paths >= 2, "estimator.num_paths", self, "2 or more")
        _require_choice(self, "estimator.scheme", Scheme)
        for name in ("num_swaps", "max_legal_prefixes"):
            _require(getattr(self, name) >= 0, f"estimator.{name}", self, "0 or more")


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleConfig(_Settings):
    """How long a run is, how its learning rate changes, and after which updates it is kept."""

    updates: Annotated[int, arg(aliases=["--updates"])] = 400
    """Updates of each run, or of each trial of a search; trials may be shorter (the paper: 400)."""
    epochs_per_update: int = 2
    """Optimiser steps on the same samples (the paper: 2)."""
    dual_steps: DualSteps = "update"
    """When the multipliers of the constraints move: once an update, or after each epoch as in the paper's listing."""
    warmup_updates: int = 0
    """The learning rate rises in equal steps over this many updates."""
    decay: Decay = "constant"
    """After the warm-up, the learning rate is constant, or falls in this way towards 0 at the last update."""
    checkpoints: Annotated[tuple[int, ...], arg(aliases=["--checkpoints"])] = ()
    """The updates after which runs are kept and later scored; they must include the last. By default 50, 100, 150,
    every 400th and the last."""
    validate_every: int = 50
    """At multiples of this number of updates, and after the last, the log records the greedy pass rate on at most 64
    source items that are set aside; 0 means never. No result depends on it."""

    def __post_init__(self) -> None:
        expected = f"from 1 to {MAX_UPDATES}"
        _require(1 <= self.updates <= MAX_UPDATES, "schedule.updates", self, expected)
        _require(self.epochs_per_update >= 1, "schedule.epochs_per_update", self, "1 or more")
        _require_choice(self, "schedule.dual_steps", DualSteps)
        _require_choice(self, "schedule.decay", Decay)
        expected = f"from 0 to {self.updates}"
        _require(
            0 <= self.warmup_updates <= self.updates, "schedule.warmup_updates", self, expected
        )
        every, expected = self.validate_every, f"from 0 to {MAX_UPDATES}"
        _require(0 <= every <= MAX_UPDATES, "schedule.validate_every", self, expected)
        kept = self.checkpoints
        _require(
            not kept
            or (list(kept) == sorted(set(kept)) and kept[0] >= 1 and kept[-1] == self.updates),
            "schedule.checkpoints",
            self,
            f"updates from 1, ascending, the last of them {self.updates}",
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryConfig(_Settings):
    """How an update computes more to save memory; its result differs only by rounding."""

    prompts_at_a_time: Annotated[int | None, arg(aliases=["--prompts-at-a-time"])] = None
    """A process scores at most this many prompts at a time; by default all prompts of its share."""
    gradient_checkpointing: Annotated[bool, arg(aliases=["--gradient-checkpointing"])] = False
    """Layers keep only their inputs, and compute their activations again for the backward pass."""

    def __post_init__(self) -> None:
        size = self.prompts_at_a_time
        _require(size is None or size >= 1, "memory.prompts_at_a_time", self, "1 or more")

    @property
    def record(self) -> dict[str, Json]:
        """The settings that differ from the defaults, for a ledger."""
        return {name: value for name, value in asdict(self).items() if value}


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig(_Settings):
    """Every setting of a run, in sections.

    >>> RunConfig(objective=ObjectiveConfig(margin=3.0)).objective.margin
    3.0
    """

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    adapter: AdapterConfig = field(default_factory=AdapterConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    estimator: EstimatorConfig = field(default_factory=EstimatorConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)

    def override(self, values: Mapping[str, object]) -> Self:
        """Return these settings with changes, given by name: ``{"objective.margin": 3.0}``.

        Raises :class:`UnknownNameError`, which suggests a similar name, and :class:`ConfigError`.
        """
        sections: dict[str, dict[str, object]] = {}
        known = setting_names()
        for name, value in values.items():
            if name not in known:
                raise unknown_setting(name)
            section, _, key = name.partition(".")
            sections.setdefault(section, {})[key] = value
        changed = {name: replace(getattr(self, name), **keys) for name, keys in sections.items()}
        return replace(self, **changed)

    def value(self, name: str) -> object:
        """Return a setting by its name, such as ``objective.margin``."""
        section, _, key = name.partition(".")
        return getattr(getattr(self, section), key)

    def resolved(self) -> ResolvedConfig:
        """Fill in settings that were not given: the model's learning rate, twice the rank as alpha, the checkpoints."""
        rate, alpha, updates = (
            self.optimiser.learning_rate,
            self.adapter.alpha,
            self.schedule.updates,
        )
        rate = default_learning_rate(self.model) if rate is None else rate
        alpha = 2.0 * self.adapter.rank if alpha is None else alpha
        kept = self.schedule.checkpoints or default_checkpoints(updates)
        sections = {section.name: getattr(self, section.name) for section in fields(self)}
        sections["adapter"] = ResolvedAdapter(**asdict(self.adapter) | {"alpha": alpha})
        sections["optimiser"] = ResolvedOptimiser(
            **asdict(self.optimiser) | {"learning_rate": rate}
        )
        sections["schedule"] = replace(self.schedule, checkpoints=kept)
        return ResolvedConfig(**sections)

    def to_json(self) -> dict[str, dict[str, Json]]:
        """Return the settings by section, in JSON's types, as a user gives them: alpha is None without adapters."""
        found = {
            section: {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}
            for section, values in asdict(self).items()
        }
        found["adapter"]["alpha"] = self.adapter.alpha or None
        return found


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedConfig(RunConfig):
    """Every setting of a planned run; no choice is left open."""

    adapter: ResolvedAdapter
    optimiser: ResolvedOptimiser

    def __post_init__(self) -> None:
        expected = "the updates after which runs are kept"
        _require(bool(self.schedule.checkpoints), "schedule.checkpoints", self.schedule, expected)


def default_learning_rate(model: ModelConfig) -> float:
    """Return the learning rate of a model if no other is given."""
    is_embedded = model.backbone in EMBEDDED_NAMES
    return EMBEDDED_LEARNING_RATE if is_embedded else LANGUAGE_MODEL_LEARNING_RATE


def default_checkpoints(updates: int) -> tuple[int, ...]:
    """Return the updates after which a run is kept: 50, 100, 150, every 400th, and the last."""
    kept = (50, 100, 150, *range(400, updates, 400))
    return (*(n for n in kept if n < updates), updates)


def setting_names() -> tuple[str, ...]:
    """Return every setting's name, such as ``objective.margin``, in the order of the sections."""
    return tuple(
        f"{section}.{key}" for section, keys in RunConfig().to_json().items() for key in keys
    )


#: Names that other libraries give to these settings.
ALSO_CALLED = {
    "group_size": "sampling.samples_per_prompt",
    "num_generations": "sampling.samples_per_prompt",
    "num_samples": "sampling.samples_per_prompt",
    "batch_size": "sampling.prompts_per_update",
    "lr": "optimiser.learning_rate",
    "epsilon": "objective.clip",
    "num_iterations": "schedule.epochs_per_update",
    "max_steps": "schedule.updates",
    "num_updates": "schedule.updates",
    "max_grad_norm": "optimiser.max_gradient_norm",
    "warmup_steps": "schedule.warmup_updates",
    "eval_steps": "schedule.validate_every",
}
#: Prefixes of settings on which no result depends: when a run is kept or validated, and how it saves memory.
WITHOUT_EFFECT = ("memory.", "schedule.checkpoints", "schedule.validate_every")
_POSITIVE = "a finite number above 0"


def _require(is_right: bool, name: str, section: object, expected: str) -> None:
    if not is_right:
        raise ConfigError(
            f"{name} is not possible",
            where=name,
            found=str(getattr(section, name.partition(".")[2])),
            expected=expected,
        )


def _require_choice(section: object, name: str, kind: object) -> None:
    choices = get_args(kind)
    found = getattr(section, name.partition(".")[2])
    if found not in choices:
        raise UnknownNameError.of(name, str(found), choices, where=name)


def unknown_setting(name: str, where: str | None = None) -> UnknownNameError:
    """Make the error for a key that does not exist; it suggests a similar key, first from the same section."""
    names = setting_names()
    sections = sorted({one.partition(".")[0] for one in names})
    section, _, key = name.partition(".")
    inside = [one for one in names if one.startswith(f"{section}.")]
    near = [ALSO_CALLED[key or section]] if (key or section) in ALSO_CALLED else []
    if not near and not key:
        near = get_close_matches(section, sections, n=1)
    for some in (inside, names):
        keys = {one.partition(".")[2]: one for one in some}
        near = near or [keys[one] for one in get_close_matches(key or section, keys, n=1)]
    return UnknownNameError(
        f"no setting is called {name!r:.80}",
        where=where,
        expected=f"one of {', '.join(inside or sections)}",
        remedy=f"did you mean {near[0]!r}?" if near else None,
    )


#: The library's default settings.
DEFAULTS = RunConfig()
#: How many prompts an evaluation scores in one pass.
EVALUATED_AT_A_TIME = 64
