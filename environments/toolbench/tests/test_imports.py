"""The benchmarks' simulators come without what their packages declare beside."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("name", ["bfcl", "agentdojo"])
def test_simulators_bring_no_client_of_a_model(name) -> None:
    distribution = {"bfcl": "bfcl_eval", "agentdojo": "agentdojo"}[name]
    pytest.importorskip(distribution, reason=f"{distribution} is not installed")
    classes = {"bfcl": "BfclEnvironment", "agentdojo": "AgentDojoEnvironment"}
    code = f"""
import sys
from vcrt_toolbench.{name}.environment import {classes[name]} as Environment
Environment().versions(), Environment().trajectories()
heavy = ("openai", "anthropic", "cohere", "google.genai", "tenacity", "deepdiff", "torch")
own = [name for name in sys.modules if name.startswith("{distribution}.")]
print([name for name in heavy if name in sys.modules] + own)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
