"""Send what ``migrate`` sends before and after migrations: content types, permissions and a project's own rows.

Each receiver runs in a savepoint; what one raises is told and does not stop the others, as it may be written for models
that are not there yet. Imports Django, which must be configured.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from django.apps import apps
from django.db import DEFAULT_DB_ALIAS, transaction
from django.db.migrations.state import ProjectState
from django.db.models.signals import ModelSignal, post_migrate, pre_migrate

from vcrt.hashing import Json
from vcrt_django.catalogue import message

#: Django's own apps whose tables receivers fill.
FILLED_APPS = ("contenttypes", "auth", "sites")
#: It is in the migrations already (:func:`vcrt_django.replaying.with_content_types`).
_LEFT_OUT = "inject_rename_contenttypes_operations"


def send_pre_migrate(
    state: ProjectState, plan: Sequence[Any], settle: Callable[[], None]
) -> list[Json]:
    """Before the migrations of ``plan``: the receivers that failed, each with why.

    ``settle`` does what waits for the end of a transaction.
    """
    return _send(pre_migrate, state, plan, settle)


def send_post_migrate(
    state: ProjectState, plan: Sequence[Any], settle: Callable[[], None]
) -> list[Json]:
    """After them: the receivers that failed, each with why."""
    return _send(post_migrate, state, plan, settle)


def _send(
    signal: Any, state: ProjectState, plan: Sequence[Any], settle: Callable[[], None]
) -> list[Json]:
    failed = list[Json]()
    # Rows get their numbers in the succession of models: that of names, whichever order made them.
    whole = state.clone()
    whole.__dict__.pop("apps", None)
    whole.models = dict(sorted(whole.models.items()))
    for config in apps.get_app_configs():
        if config.models_module is None:
            continue
        for receiver in _receivers(signal, config):
            name = getattr(receiver, "__qualname__", type(receiver).__qualname__)
            if name == _LEFT_OUT:
                continue
            try:
                with transaction.atomic():
                    receiver(
                        signal=signal,
                        sender=config,
                        app_config=config,
                        verbosity=0,
                        interactive=False,
                        using=DEFAULT_DB_ALIAS,
                        stdout=sys.stderr,
                        apps=whole.apps,
                        plan=[(migration, False) for migration in plan],
                    )
                settle()
            except MemoryError:
                raise
            except (Exception, SystemExit) as error:
                failed.append([f"{getattr(receiver, '__module__', '')}.{name}", message(error)])
    return failed


def _receivers(signal: ModelSignal, config: Any) -> Sequence[Any]:
    found: Any = signal._live_receivers(config)
    # From Django 5.0 on those that are called at once and those that are awaited.
    receivers: Sequence[Any] = found[0] if isinstance(found, tuple) else found
    return receivers
