"""Read a run's settings from TOML files, the user's and those that come with the package, and write them as TOML.

A file has a table for each section of :class:`vcrt_train.config.RunConfig`. A setting that it leaves out has its value
from the named settings at the top of the file, such as ``settings = "qwen3.5-2b"``, or else the library's default.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from vcrt.documents import read_limited
from vcrt.errors import ConfigError, UnknownNameError
from vcrt_train.config import RunConfig, setting_names, unknown_setting

_FOLDER = Path(__file__).parent / "settings"
_CONFIG = TypeAdapter(RunConfig)
_KEY = re.compile(r"\s*([\w.\"'-]+)\s*=")
_TABLE = re.compile(r"\s*\[\s*([\w.\"'-]+)\s*\]")
#: The key in a file of the package that says how its settings were chosen.
CHOSEN = "chosen"
#: The most bytes of a file of settings.
MAX_BYTES = 2**20


def settings_names() -> tuple[str, ...]:
    """Return the names of the settings that come with the package."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


def how_settings_were_chosen(name: str) -> str:
    """Say in a sentence how the settings of that name were chosen."""
    return str(_file_of(name)[CHOSEN])


def load_config(
    path: str | Path | None = None,
    *,
    settings: str | None = None,
    overrides: Mapping[str, object] | None = None,
) -> RunConfig:
    """Return the library's defaults, changed by named ``settings``, then by a TOML file, then by ``overrides``.

    >>> load_config(settings="qwen3.5-2b", overrides={"objective.margin": 3.0}).adapter.rank
    64

    Raises :class:`ConfigError` and :class:`UnknownNameError` for a key that does not exist, a wrong type, a value out
    of range, or a file that names other settings; the error gives the file's line and a similar name.
    """
    given: dict[str, Any] = {}
    lines: dict[str, int] = {}
    if path is not None:
        given, lines = _read(Path(path))
    named = given.pop("settings", None)
    if named is not None and settings not in (None, named):
        raise ConfigError(
            "two different settings were named",
            where=_place(path, lines, "settings"),
            found=f"{named!s:.80} in the file, {settings} beside it",
            expected="one of them",
        )
    chosen = settings if named is None else named
    merged = _merged({} if chosen is None else _named(chosen, path, lines), given)
    known = setting_names()
    for name, value in (overrides or {}).items():
        if name not in known:
            raise unknown_setting(name)
        section, _, key = name.partition(".")
        merged = _merged(merged, {section: {key: value}})
        lines.pop(name, None)
    return _validated(merged, path, lines)


def checked(config: RunConfig) -> RunConfig:
    """Check every type and range, and return the settings; raises as :func:`load_config`."""
    return _validated(config.to_json(), None, {})


def to_toml(config: RunConfig) -> str:
    """Write every setting as TOML that :func:`load_config` reads; a setting that is None is a comment."""
    parts = []
    for section, values in config.to_json().items():
        lines = [f"[{section}]"]
        for key, value in values.items():
            lines.append(f"# {key} is not given" if value is None else f"{key} = {_toml(value)}")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _toml(value: object) -> str:
    # JSON's strings, numbers, booleans and lists of numbers are TOML's.
    return json.dumps(value, ensure_ascii=False)


def _named(name: object, path: str | Path | None, lines: Mapping[str, int]) -> dict[str, Any]:
    if name not in settings_names():
        where = _place(path, lines, "settings") if "settings" in lines else None
        raise UnknownNameError.of("name of settings", str(name)[:80], settings_names(), where=where)
    return {key: value for key, value in _file_of(str(name)).items() if key != CHOSEN}


def _file_of(name: str) -> dict[str, Any]:
    return tomllib.loads((_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def _merged(base: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(base)
    for name, value in given.items():
        section = found.get(name)
        if isinstance(section, dict) and isinstance(value, dict):
            found[name] = {**section, **value}
        else:
            found[name] = value
    return found


def _read(path: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the content of a file, and the line on which each name is set."""
    if not path.is_file():
        raise ConfigError(
            "there is no such file of settings",
            where=str(path),
            remedy="`vcrt plan ... --print-config > FILE` writes one",
        )
    try:
        text = read_limited(path, MAX_BYTES).decode()
        return tomllib.loads(text), _lines(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            "the settings are no TOML",
            where=str(path),
            found=f"{error!s:.300}",
            expected="lines such as `margin = 3.0` below `[objective]`",
        ) from error


def _lines(text: str) -> dict[str, int]:
    """Return the number of the line that first sets each table and key of a valid document."""
    found: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if head := _TABLE.match(line):
            table = _plain(head[1])
            found.setdefault(table, number)
        elif key := _KEY.match(line):
            name = ".".join(part for part in (table, _plain(key[1])) if part)
            while name:
                found.setdefault(name, number)
                name = name.rpartition(".")[0]
    return found


def _plain(name: str) -> str:
    return re.sub("[\"']", "", name)


def _place(path: str | Path | None, lines: Mapping[str, int], name: str) -> str:
    """Return the file and the line of a setting or its section; without a file, the setting's name."""
    if path is None:
        return name
    while name and name not in lines:
        name = name.rpartition(".")[0]
    return f"{path}, line {lines[name]}" if name else str(path)


def _validated(
    settings: Mapping[str, Any], path: str | Path | None, lines: Mapping[str, int]
) -> RunConfig:
    try:
        # JSON distinguishes a list from a number and has no dates; in strict mode, "3" is no number.
        return _CONFIG.validate_json(json.dumps(settings), strict=True)
    except (TypeError, ValueError) as error:
        found = error.errors()[0] if isinstance(error, ValidationError) else None
        if found is None:
            raise ConfigError(
                "a value is not possible", where=str(path), found=f"{error!s:.300}"
            ) from error
        cause = found.get("ctx", {}).get("error")
        name = ".".join(map(str, found["loc"]))
        if isinstance(cause, ConfigError | UnknownNameError):
            raise cause.at(_place(path, lines, cause.where or name)) from None
        where = _place(path, lines, name)
        if found["type"] == "unexpected_keyword_argument":
            raise unknown_setting(name, where) from error
        raise ConfigError(
            f"{name} is not possible",
            where=where,
            found=f"{json.dumps(found['input']):.80}",
            expected=found["msg"].removeprefix("Input should be ").replace("an object", "a table"),
        ) from error
