"""Say in ``vcrt doctor`` what is found of the verifier of this package."""

from __future__ import annotations

from collections.abc import Iterator

from vcrt.api.doctor import Finding, environment_findings
from vcrt_lean.toolchain import find_toolchain


def findings() -> Iterator[Finding]:
    """The lines on the environment."""
    return environment_findings("lean", origin=_origin)


def _origin() -> str:
    """Which one it is, of the several that may be there."""
    found = find_toolchain()
    return f"; {found.origin}: {found.command[0]}"
