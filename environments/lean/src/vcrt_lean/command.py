"""Declare the command ``vcrt lift lean``."""

from __future__ import annotations

from vcrt.cli.commands import Command

lean = Command(
    function="vcrt_lean:lift_lean",
    summary="proofs in Lean files, by windows of steps",
    view="vcrt.cli.lifted_view:print_files",
    asks_verifier=True,
    quick=True,
)
