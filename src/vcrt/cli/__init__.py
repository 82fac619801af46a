"""Parse the command line: thin commands over the library, progress, and errors as one message."""

from vcrt.cli.main import main

__all__ = ["main"]
