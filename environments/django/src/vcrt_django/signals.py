"""Send the signals of ``migrate`` before and after migrations: content types, permissions and a project's own rows.

Each receiver runs in a savepoint; its error is reported and does not stop the others, since it may need models that do
not exist yet. This module imports Django, which must be configured.
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
#: The migrations have it already (:func:`vcrt_django.replaying.with_content_types`).
_LEFT_OUT = "inject_rename_contenttypes_operations"


def send_pre_migrate(
    state: ProjectState, plan: Sequence[Any], settle: Callable[[], None]
) -> list[Json]:
    """Send the signals before the migrations of ``plan``; return the receivers that failed, each with the reason.

    ``settle`` does what waits for the end of a transaction.
    """
    return _send(pre_migrate, state, plan, settle)


def send_post_migrate(
    state: ProjectState, plan: Sequence[Any], settle: Callable[[], None]
) -> list[Json]:
    """Send the signals after them; return the receivers that failed, each with the reason."""
    return _send(post_migrate, state, plan, settle)


def _send(
    signal: Any, state: ProjectState, plan: Sequence[Any], settle: Callable[[], None]
) -> list[Json]:
    failed = list[Json]()
    # Rows are numbered in the order of models: by name, whichever order made them.
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
    # From Django 5.0 on, synchronous receivers and asynchronous ones.
    receivers: Sequence[Any] = found[0] if isinstance(found, tuple) else found
    return receivers
