"""What is killed in the tests of crash safety: single writes, one of them careless."""

from pathlib import Path

from vcrt.errors import RunError
from vcrt.records.ledger import Ledger
from vcrt.storage import publish_directory, write_file

TEXT = "new " * 1000


def write_one(path):
    write_file(Path(path), TEXT.encode())


def write_carelessly(path):
    Path(path).write_text(TEXT)


def publish_one(path):
    def fill(directory):
        (directory / "below").mkdir()
        (directory / "below" / "a.txt").write_text(TEXT)
        (directory / "b.txt").write_text(TEXT)

    publish_directory(Path(path), fill, RunError)


def append_one(path):
    ledger = Ledger(Path(path))
    ledger.append("run", {"run": str(len(ledger.entries()))})
