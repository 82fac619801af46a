"""Parts of a package are imported without the rest of it, and nothing is left behind."""

from __future__ import annotations

import sys

import pytest

from vcrt.environments.partial_imports import Distribution
from vcrt.errors import UnavailableError


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A distribution whose top level imports what is not there, as do some of its modules."""
    folder = tmp_path / "halfway"
    (folder / "parts").mkdir(parents=True)
    (folder / "__init__.py").write_text("import nowhere_to_be_found")
    (folder / "parts" / "__init__.py").write_text("")
    (folder / "parts" / "light.py").write_text("class Light: pass")
    (folder / "parts" / "heavy.py").write_text("from nowhere_to_be_found import thing")
    information = tmp_path / "halfway-1.2.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: halfway\nVersion: 1.2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return Distribution(name="halfway", version="1.2", package="halfway")


def test_named_modules_come_without_the_top_level(package) -> None:
    loaded = package.load(["halfway.parts.light"], bare=["halfway"])
    assert loaded["halfway.parts.light"].Light.__module__ == "halfway.parts.light"
    assert not [name for name in sys.modules if name.startswith("halfway")]


def test_stand_ins_are_gone_afterwards(package) -> None:
    given = {"nowhere_to_be_found": {"thing": 7}}
    loaded = package.load(["halfway.parts.heavy"], bare=["halfway"], stand_ins=given)
    assert loaded["halfway.parts.heavy"].thing == 7
    assert "nowhere_to_be_found" not in sys.modules


def test_what_is_missing_is_named_with_its_remedy(package) -> None:
    with pytest.raises(UnavailableError) as caught:
        package.load(["halfway.parts.heavy"], bare=["halfway"])
    assert caught.value.remedy == "pip install nowhere_to_be_found"
    for wrong in (
        Distribution(name="halfway", version="1.3", package="halfway"),
        Distribution(name="not-there", version="1", package="halfway"),
        Distribution(name="halfway", version="1.2", package="not_there"),
    ):
        with pytest.raises(UnavailableError) as caught:
            wrong.folder()
        assert caught.value.remedy == wrong.install_command
