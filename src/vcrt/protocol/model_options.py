"""Which model a plan or a search trains, and how: the options of `vcrt plan`, `search` and `reproduce`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

from vcrt.errors import UnknownNameError, VcrtError

if TYPE_CHECKING:
    from vcrt.policy.reference import BackboneReference
    from vcrt.training.presets import Preset
    from vcrt.training.run import RunConfig

Value = TypeVar("Value")
Dtype = Literal["float32", "bfloat16"]
PromptStyle = Literal["plain", "chat"]
PresetName = Literal["qwen3.5-2b", "granite-4.1-3b"]
Scoring = Literal["auto", "tree", "fork", "naive"]
#: What the options of a few words may be.
CHOICES: dict[str, tuple[str, ...]] = {
    "dtype": get_args(Dtype),
    "prompt_style": get_args(PromptStyle),
    "preset": get_args(PresetName),
    "scoring": get_args(Scoring),
}


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Which model is trained, and how; what is not given comes from the preset, if there is one."""

    backbone: str | Path | None = None
    """The model: `embedded` (the default), `embedded-long` for records of more than four operations, a folder of a
    causal language model, or a hub name as OWNER/MODEL, which is read from the local hub cache. Language models must be
    locked first: see `vcrt backbone --help`."""
    lock: str | Path | None = None
    """The backbone's lock file; by default vcrt-lock.json in its folder. A hub name needs one."""
    dtype: Dtype | None = None
    """Number format of the backbone's weights; float32 by default. Adapters are in float32."""
    prompt_style: PromptStyle = "plain"
    """How a language model gets a record: as plain text, or as a message in its chat template."""
    preset: PresetName | None = None
    """The paper's settings for one of its models: the hub name (unless --backbone names a folder), LoRA of rank 64,
    alpha 128 and dropout 0.05, AdamW at 5e-6, 400 updates, bfloat16."""
    scoring: Scoring = "auto"
    """How orders are scored, exactly in any case: `naive` runs each order by itself, which every causal model can,
    where the faster ways are refused."""
    updates: int | None = None
    """Updates of each run, and of each trial of a search; 400 by default."""
    learning_rate: float | None = None
    """AdamW's learning rate, for all methods, and the middle of a search; 1e-3 for embedded backbones and 5e-6 (the
    paper's) for language models by default."""
    lora_rank: int | None = None
    """Train low-rank adapters of this rank instead of all parameters."""
    lora_alpha: float | None = None
    """An adapter's product is multiplied by alpha / rank; alpha is twice the rank by default."""
    lora_dropout: float | None = None
    """Dropout of the adapters' inputs; 0 by default."""
    lora_recurrent: bool = False
    """Adapt the projections of recurrent layers (gated DeltaNet, Mamba) too, not attention and MLP alone."""

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            if (given := getattr(self, name)) not in (*allowed, getattr(ModelOptions, name)):
                raise UnknownNameError.of(name, str(given), allowed)

    def reference(self) -> BackboneReference:
        """The backbone that is meant."""
        from vcrt.policy.reference import EMBEDDED_NAME, EMBEDDED_NAMES, backbone_reference

        preset = self._preset()
        name = str(self.backbone or "") or (preset.hub_name if preset else EMBEDDED_NAME)
        if preset and name in EMBEDDED_NAMES:
            raise VcrtError(
                "a preset is for a language model",
                found=f"--preset {self.preset} with the backbone {name}",
                expected=f"{preset.hub_name}, or a folder with a copy of it",
            )
        dtype = self.dtype or (preset.dtype if preset else "float32")
        lock = None if self.lock is None else Path(self.lock)
        return backbone_reference(name, lock=lock, dtype=dtype, prompt_style=self.prompt_style)

    def run_config(self, checkpoints: tuple[int, ...] = ()) -> RunConfig:
        """The settings of a run."""
        from vcrt.training.run import RunConfig
        from vcrt.training.update import UpdateConfig

        preset = self._preset()
        rank = _first(self.lora_rank, preset.lora_rank if preset else 0)
        if not rank and self.lora_alpha is not None:
            raise VcrtError("--lora-alpha without adapters", expected="--lora-rank above 0 with it")
        # The scale, not alpha, stays the preset's if only the rank is given: it is what the adapters see.
        scale = preset.lora_scale if preset else RunConfig().lora_scale
        return RunConfig(
            num_updates=_first(self.updates, preset.num_updates if preset else 400),
            checkpoints=checkpoints,
            learning_rate=_first(self.learning_rate, self._default_learning_rate()),
            lora_rank=rank,
            lora_scale=scale if self.lora_alpha is None else self.lora_alpha / rank,
            lora_dropout=_first(self.lora_dropout, preset.lora_dropout if preset and rank else 0.0),
            lora_recurrent=self.lora_recurrent,
            update=UpdateConfig(backend=self.scoring),
        )

    def how_chosen(self) -> str:
        """How the learning rate was chosen, for a plan."""
        from vcrt.policy.reference import EMBEDDED_NAME
        from vcrt.protocol.planning import DEFAULTS_CHOSEN

        if self.learning_rate not in (None, self._default_learning_rate()):
            return "The learning rate was given, not searched for."
        if self.preset is not None:
            return f"The settings are the paper's (preset {self.preset})."
        if self.reference().name == EMBEDDED_NAME:
            return DEFAULTS_CHOSEN
        if self.reference().is_embedded:
            return f"The settings are those that were chosen for the backbone {EMBEDDED_NAME}."
        return "The learning rate is the paper's. Other settings are the library's defaults."

    def _default_learning_rate(self) -> float:
        from vcrt.training.presets import LANGUAGE_MODEL_LEARNING_RATE
        from vcrt.training.run import Settings

        preset = self._preset()
        if preset is not None:
            return preset.learning_rate
        if self.reference().is_embedded:
            return Settings().learning_rate
        return LANGUAGE_MODEL_LEARNING_RATE

    def _preset(self) -> Preset | None:
        from vcrt.training.presets import preset

        return None if self.preset is None else preset(self.preset)


NO_OPTIONS = ModelOptions()


def _first(given: Value | None, default: Value) -> Value:
    return default if given is None else given
