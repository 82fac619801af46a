"""The model card of what ``vcrt export-model`` writes: what it is, from what and how it was trained, how to load it."""

from __future__ import annotations

from vcrt import __version__
from vcrt.printable import counted, printable
from vcrt.protocol.decision import Policy
from vcrt.protocol.plan import Plan, PlannedRun

CARD_FILE = "README.md"


def model_card(plan: Plan, run: PlannedRun, policy: Policy, *, is_adapter: bool) -> str:
    """The card as Markdown; it names the base model by name and hash, never by a place on this machine."""
    config, base = plan.config_of(run), printable(policy.backbone.name)
    revision = policy.backbone.revision
    of = "" if revision is None else f", revision {printable(revision)}"
    what = "a PEFT adapter for" if is_adapter else "a model trained from"
    updates = counted(config.num_updates, "update")
    each = f"{updates}, {counted(config.prompts_per_update, 'prompt')} each"
    trained = f"adapters of rank {config.lora_rank}" if is_adapter else "all"
    licence = "base model's licence applies to it, and so to this adapter's use with it"
    if not is_adapter:
        licence = _own_licence(plan)
    library = "peft" if is_adapter else "transformers"
    return f"""---
library_name: {library}
tags: [vcrt]
---

# {run.method}: {what} {base}

It reads a record of anonymous pointers with the certified relations between the steps that they stand for, and writes
an order of them. It was trained by vcrt {__version__} to put its probability on the orders that a verifier accepts. It
is of no use for text of another form.

## Base model

`{base}`{of}. SHA-256 of its locked files: `{policy.backbone.digest}`.

## Training

| what | value |
| --- | --- |
| method | {run.method}: {policy.method.summary} |
| dataset, root hash | `{plan.root_hash}` |
| environments trained on | {", ".join(map(printable, plan.sources(run.held_out)))} |
| environment held out | {printable(run.held_out)} |
| seed | {run.seed} |
| updates | {policy.update} of {each} |
| learning rate | {config.learning_rate:g} |
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


def _own_licence(plan: Plan) -> str:
    if plan.backbone.is_embedded:
        return "base model comes with vcrt, under vcrt's licence (Apache-2.0)"
    return "weights are derived from the base model, whose licence applies to them"


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
