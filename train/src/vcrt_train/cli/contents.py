"""List the commands that this package adds to ``vcrt``, with one line on each."""

from __future__ import annotations

from vcrt.cli.contents import Chapters, Command
from vcrt_train.cli.backbone import backbone
from vcrt_train.cli.decide import decide
from vcrt_train.cli.export import export, export_model
from vcrt_train.cli.plan import methods, plan, search
from vcrt_train.cli.report import explore, report
from vcrt_train.cli.reproduce import demo, reproduce
from vcrt_train.cli.settings import with_config
from vcrt_train.cli.train import evaluate, not_launching, train

CHAPTERS: Chapters = {
    "the whole way": {
        "demo": Command(
            demo,
            "everything once, small, with a report at the end",
            prepare=with_config,
            interrupted="what the demo had published stays in its folder; a new one is made by",
        ),
        "reproduce": Command(
            reproduce,
            "the paper's experiment, or what is missing",
            prepare=with_config,
            kept=("", "what was finished is kept"),
        ),
    },
    "hand over": {"export": Command(export, "records with orbits, for other trainers")},
    "train": {
        "methods": Command(methods, "what each method trains on"),
        "backbone": Command(
            backbone,
            "fetch, import, lock or check a language model",
            "fetch_backbone import_backbone lock_backbone check_backbone",
        ),
        "search": Command(
            search,
            "choose settings on source items alone",
            prepare=with_config,
            kept=(".trials", "finished trials are kept"),
        ),
        "plan": Command(plan, "freeze what will be trained and measured", prepare=with_config),
        "train": Command(
            train,
            "every run of a plan",
            prepare=not_launching,
            interrupted="go on from the last checkpoints with",
        ),
    },
    "results": {
        "evaluate": Command(
            evaluate,
            "open the held-out environments, once",
            interrupted="no score was recorded; go on under the same opening with",
        ),
        "report": Command(
            report,
            "tables, figures and one HTML page",
            "write_report",
            interrupted="the report may be incomplete; write all of it again with",
        ),
        "explore": Command(explore, "a page of episodes, orders and probabilities"),
        "decide": Command(
            decide, "ask a trained run for the order of your steps", "trained_policy decide"
        ),
        "export-model": Command(export_model, "a trained run as PEFT or model folder"),
    },
}
