"""One run of a tiny model in the processes of a launcher: FOLDER MODE STOP METHOD. See test_training_group.py."""

import sys
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import vcrt_train.training.run
from configs import resolved as config
from training_fixtures import ENCODE, TOKENIZER, supervised_records, tiny_model
from vcrt_train.policy.backbone import Backbone
from vcrt_train.protocol.source_validation import SourceValidation
from vcrt_train.training.items import encode_items
from vcrt_train.training.methods import method
from vcrt_train.training.process_group import LaunchedGroup, launched_group
from vcrt_train.training.run import train_run


class Stop(Exception):
    """The moment at which the run is interrupted."""


def group_of(mode):
    if mode == "replicas":
        return launched_group()
    from accelerate import Accelerator, FullyShardedDataParallelPlugin

    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=["Qwen3DecoderLayer"],
    )
    return LaunchedGroup(Accelerator(cpu=True, fsdp_plugin=plugin))


def trained(folder, mode, stop, name):
    """Train up to update ``stop``, from the latest checkpoint, in this process and those beside it."""
    settings = config(
        updates=6,
        prompts_per_update=3,
        checkpoints=(2, 4, 6),
        prompts_at_a_time=1,
        validate_every=2,
    )
    backbone = Backbone(
        model=tiny_model(), tokenizer=TOKENIZER, name="tiny", digest="0" * 64, encode=ENCODE
    )
    group, chosen = group_of(mode), method(name)
    # Of five items, two processes do not have as many each.
    aside = encode_items(supervised_records(14)[9:], chosen, seed=0, encode=ENCODE)
    original = vcrt_train.training.run.update

    def until_stop(state, *args, **options):
        if state.update_index >= stop:
            raise Stop
        return original(state, *args, **options)

    with patch.object(vcrt_train.training.run, "update", until_stop), suppress(Stop):
        train_run(
            settings,
            chosen,
            backbone,
            supervised_records(9),
            folder / "run",
            seed=1,
            encode_seed=0,
            group=group,
            validation=SourceValidation(items=aside, chosen=chosen, config=settings, group=group),
        )


if __name__ == "__main__":
    trained(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4])
