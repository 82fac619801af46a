"""Report this package's verifier in ``vcrt doctor``."""

from __future__ import annotations

import os
from collections.abc import Iterator

from vcrt.api.doctor import Finding, environment_findings
from vcrt_django.toolchain import VARIABLE


def findings() -> Iterator[Finding]:
    """Return the lines on the environment."""
    return environment_findings("django", optional=not os.environ.get(VARIABLE))
