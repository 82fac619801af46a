"""List the commands that this package adds to ``vcrt``, with one line about each."""

from __future__ import annotations

from vcrt.cli.commands import Command
from vcrt.cli.contents import Chapters

CHAPTERS: Chapters = {
    "the whole way": {
        "demo": Command(
            function="vcrt_train:demo",
            summary="everything once, small, with a report at the end",
            view="vcrt_train.cli.report:print_demo",
            prepare="vcrt_train.cli.plan:with_config",
            interrupted="what the demo had published stays in its folder; a new one is made by",
        ),
        "reproduce": Command(
            function="vcrt_train:reproduce",
            summary="the paper's experiment, or what is missing",
            view="vcrt_train.cli.report:print_report",
            prepare="vcrt_train.cli.plan:with_config",
            kept=("", "what was finished is kept"),
        ),
    },
    "hand over": {
        "export": Command(
            function="vcrt_train:export",
            summary="records with orbits, for other trainers",
            view="vcrt_train.cli.report:print_exported",
        )
    },
    "train": {
        "methods": Command(
            function="vcrt_train:methods",
            summary="what each method trains on",
            view="vcrt_train.cli.plan:print_methods",
        ),
        "backbone": Command(
            function="vcrt_train.cli.backbone:backbone",
            summary="fetch, import, lock or check a language model",
            positional=("action", "name"),
            public="fetch_backbone import_backbone lock_backbone check_backbone",
        ),
        "search": Command(
            function="vcrt_train:search",
            summary="choose settings on source items alone",
            view="vcrt_train.cli.plan:print_found",
            prepare="vcrt_train.cli.plan:with_config",
            kept=(".trials", "finished trials are kept"),
        ),
        "plan": Command(
            function="vcrt_train:plan",
            summary="freeze what will be trained and measured",
            view="vcrt_train.cli.plan:print_plan",
            prepare="vcrt_train.cli.plan:with_config",
        ),
        "train": Command(
            function="vcrt_train.cli.train:train",
            summary="every run of a plan",
            prepare="vcrt_train.cli.train:not_launching",
            interrupted="go on from the last checkpoints with",
        ),
    },
    "results": {
        "evaluate": Command(
            function="vcrt_train:evaluate",
            summary="open the held-out environments, once",
            view="vcrt_train.cli.train:print_evaluated",
            names={"reopen_reason": "reason"},
            prepare="vcrt_train.cli.train:requiring_a_reason",
            interrupted="no score was recorded; go on under the same opening with",
        ),
        "report": Command(
            function="vcrt_train.cli.report:report",
            summary="tables, figures and one HTML page",
            public="write_report",
            interrupted="the report may be incomplete; write all of it again with",
        ),
        "explore": Command(
            function="vcrt_train:explore",
            summary="a page of episodes, orders and probabilities",
            view="vcrt_train.cli.report:print_explored",
            positional=("dataset", "episode"),
        ),
        "decide": Command(
            function="vcrt_train.cli.decide:decide",
            summary="ask a trained run for the order of your steps",
            public="trained_policy decide",
            positional=("experiment", "record"),
        ),
        "export-model": Command(
            function="vcrt_train:export_model",
            summary="a trained run as PEFT or model folder",
            view="vcrt_train.cli.report:print_model",
            tells=True,
        ),
    },
}
