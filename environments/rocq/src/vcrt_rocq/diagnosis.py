"""Report this package's verifier in ``vcrt doctor``."""

from __future__ import annotations

import os
from collections.abc import Iterator

from vcrt.api.doctor import Finding, environment_findings
from vcrt_rocq.toolchain import VARIABLE, find_toolchain


def findings() -> Iterator[Finding]:
    """Return the lines on the environment."""
    return environment_findings("rocq", optional=not os.environ.get(VARIABLE), origin=_origin)


def _origin() -> str:
    """Return the origin of the Rocq that is used."""
    found = find_toolchain()
    return f"; {found.origin}"
