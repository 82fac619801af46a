"""Report this package's verifier in ``vcrt doctor``."""

from __future__ import annotations

from collections.abc import Iterator

from vcrt.api.doctor import Finding, environment_findings
from vcrt_lean.toolchain import find_toolchain


def findings() -> Iterator[Finding]:
    """Return the lines on the environment."""
    return environment_findings("lean", origin=_origin)


def _origin() -> str:
    """Return the origin of the Lean that is used, and its command."""
    found = find_toolchain()
    return f"; {found.origin}: {found.command[0]}"
