"""Declare the command ``vcrt lift rocq``."""

from __future__ import annotations

from vcrt.cli.commands import Command

rocq = Command(
    function="vcrt_rocq:lift_rocq",
    summary="proofs in Rocq files, by windows of steps",
    view="vcrt.cli.lifted_view:print_files",
    asks_verifier=True,
    quick=True,
)
