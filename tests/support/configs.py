"""Settings of a run in a line, for the tests."""

from vcrt_train.config import RunConfig, setting_names

#: Keys that two sections have; the others' are written as ``adapter__alpha``.
_PREFERRED = {"alpha": "objective.alpha"}


def config(**values):
    """The library's settings with others, each by its key alone: ``config(updates=2, margin=3.0)``."""
    return RunConfig().override({setting(key): value for key, value in values.items()})


def resolved(**values):
    """:func:`config` as it is planned and trained with."""
    return config(**values).resolved()


def setting(key):
    """The full name of a setting."""
    if "__" in key:
        return key.replace("__", ".")
    (name,) = [_PREFERRED[key]] if key in _PREFERRED else _named(key)
    return name


def _named(key):
    return [name for name in setting_names() if name.partition(".")[2] == key]
