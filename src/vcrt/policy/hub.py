"""Where a model of the Hugging Face hub lies on this machine, through the hub's own library and cache.

Not covered: what its files are (:mod:`vcrt.policy.locking`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vcrt.errors import BackboneError


def hub_folder(name: str, revision: str | None, *, patterns: Sequence[str], download: bool) -> Path:
    """The folder of a hub model's revision in the local cache; its own name is the commit.

    With ``download``, files of these ``patterns`` that are missing are fetched first. Raises :class:`BackboneError` if
    that cannot be done.
    """
    from huggingface_hub import constants, snapshot_download

    try:
        return Path(
            snapshot_download(
                name,
                revision=revision,
                local_files_only=not download,
                allow_patterns=list(patterns),
            )
        )
    # The library raises errors of a dozen families here, those of its network client among them.
    except Exception as error:
        offline = constants.HF_HUB_OFFLINE
        reason = "offline (HF_HUB_OFFLINE is set)" if offline else "not in the local cache"
        option = "" if revision is None else f" --revision {revision}"
        raise BackboneError(
            f"the hub's model {name} cannot be read",
            where=f"revision {revision or 'main'}",
            found=f"{reason}; {type(error).__name__}: {str(error).strip().splitlines()[0]}",
            expected="the revision in the local hub cache, or a hub that answers",
            remedy=f"where there is a network: `hf download {name}{option}`, "
            "then copy the cache here (HF_HOME); or copy the model's files into a folder and give that folder",
        ) from error
