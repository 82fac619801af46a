"""The smallest environment: which commands that make files and folders commute, judged by the file system.

python examples/folders.py
"""

import random
import tempfile
from pathlib import Path

import vcrt
from vcrt import Accepted, Episode, Operation, Provenance, Rejected, Schema, Versions


class Folders(vcrt.StepEnvironment):
    """Commands that make files and folders; the file system itself is the verifier."""

    name = "folders"
    schemas = (
        Schema(name="inside", summary="a folder, and a file inside it", relation="precedes"),
    )

    def versions(self):
        return Versions(environment="folders", adapter="1", canonicalizer="1", verifier="POSIX")

    def sample(self, schema, seed):
        a, b, c, d = random.Random(seed).sample([f"n{i}" for i in range(1000)], 4)
        commands = [f"mkdir {a}", f"touch {a}/{b}", f"touch {c}", f"mkdir {d}"]
        return Episode(
            environment=self.name,
            schema=schema,
            initial=[],
            operations=tuple(Operation(signature=c, payload=c) for c in commands),
            provenance=Provenance(source=f"sampled {seed}", generator="folders 1", seed=seed),
        )

    def initial_state(self, episode):
        return ()  # what stands in the folder: states are immutable values

    def step(self, state, operation):
        try:
            return Accepted(run(state, operation.payload))
        except OSError as error:
            return Rejected(error.strerror)

    def canonical(self, state):
        return "\n".join(state).encode()


def run(state, command):
    """What stands in a folder after a command, and before it: ``mkdir NAME`` or ``touch NAME``, sorted."""
    with tempfile.TemporaryDirectory() as root:
        for line in (*state, command):
            verb, name = line.split()
            Path(root, name).mkdir() if verb == "mkdir" else Path(root, name).touch()
        return tuple(
            f"{'mkdir' if path.is_dir() else 'touch'} {path.relative_to(root)}"
            for path in sorted(Path(root).rglob("*"))
        )


if __name__ == "__main__":
    mine = {"folders": Folders}
    data = vcrt.certify("runs/folders", schemas=["folders"], episodes=20, environments=mine)
    agreement = vcrt.verify(data, environments=mine)
    print(f"{agreement.episodes} episodes, {agreement.agreed} of {agreement.replays} replays agree")
    episode = Folders().sample("inside", seed=7)
    for relation in vcrt.certify_episode(Folders, episode).relations:
        first, second = (episode.operations[i].payload for i in (relation.first, relation.second))
        print(f"{first} | {relation.kind} | {second}")
