"""Declare the command ``vcrt lift clrs``."""

from __future__ import annotations

from vcrt.cli.commands import Command

clrs = Command(
    function="vcrt_clrs:lift_clrs",
    summary="windows of genuine runs of CLRS algorithms",
    view="vcrt.cli.lifted_view:print_lifted",
    asks_verifier=True,
)
