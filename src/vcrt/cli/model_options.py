"""The options of `vcrt plan`, `search` and `reproduce` that say which model is trained and how."""

from __future__ import annotations

from typing import Annotated

import tyro

from vcrt.protocol.model_options import NO_OPTIONS, ModelOptions

__all__ = ["NO_OPTIONS", "Model"]

#: The options as those of the command itself.
Model = Annotated[ModelOptions, tyro.conf.OmitArgPrefixes]
