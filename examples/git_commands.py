"""A verifier whose states lie outside of the process: which git commands commute, judged by the real git.

Each state is a repository in a folder of its own. Git changes it in place; `snapshot` and `restore` copy it, so that
replaying every order runs each command once for each prefix of orders, and not once more for every later step.

python examples/git_commands.py
"""

import os
import random
import shutil
import subprocess
import tempfile
from pathlib import Path

import vcrt
from vcrt import Accepted, Episode, Operation, Provenance, Rejected, Schema, Versions

#: Nothing of the machine or the hour: equal commands make equal hashes.
FIXED = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "LC_ALL": "C",
    **{
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "A"), ("EMAIL", "a@b.c"), ("DATE", "2000-01-01T00:00:00Z"))
    },
}


class Git(vcrt.StepEnvironment):
    """Branches, tags and commits."""

    name = "git"
    schemas = (
        Schema(name="rename", summary="a branch, and its new name", relation="precedes"),
        Schema(name="commit", summary="a commit, and a tag on it", relation="conflicts"),
    )

    def versions(self):
        found = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True)
        return Versions(
            environment=self.name, adapter="1", canonicalizer="1", verifier=found.stdout.strip()
        )

    def sample(self, schema, seed):
        a, b, c, d = random.Random(f"{schema} {seed}").sample([f"n{i}" for i in range(1000)], 4)
        first, second = {
            "rename": (f"branch {a}", f"branch -m {a} {b}"),
            "commit": (f"commit -q --allow-empty -m {a}", f"tag {b}"),
        }[schema]
        commands = [first, f"config vcrt.{c} yes", second, f"notes add -m {d} base"]
        return Episode(
            environment=self.name,
            schema=schema,
            initial=["init -q -b main", "commit -q --allow-empty -m base", "tag base"],
            operations=tuple(Operation(signature=c, payload=c) for c in commands),
            provenance=Provenance(source=f"{schema}/{seed}", generator="git 1", seed=seed),
        )

    def initial_state(self, episode):
        state = Repository()
        for command in episode.initial:
            git(state, command)
        return state

    def step(self, state, operation):
        """Git changes the repository in place."""
        code, _, message = git(state, operation.payload)
        return Accepted(state) if code == 0 else Rejected(message.strip())

    def canonical(self, state):
        """What refs, HEAD and the configuration say; commits are in their hashes."""
        refs = git(state, "for-each-ref --format=%(refname):%(objectname)")[1]
        return f"{refs}{git(state, 'symbolic-ref HEAD')[1]}{sorted_config(state)}".encode()

    def snapshot(self, state):
        return Repository(state)

    def restore(self, snapshot):
        return Repository(snapshot)


class Repository:
    """A folder that is removed when nothing refers to it any more."""

    def __init__(self, like=None):
        self.folder = tempfile.TemporaryDirectory()
        if like is not None:
            shutil.copytree(like.path, self.path, symlinks=True, dirs_exist_ok=True)

    @property
    def path(self):
        return Path(self.folder.name)

    def __del__(self):
        self.folder.cleanup()


def git(repository, command):
    """Run a git command; its exit status, output and message."""
    done = subprocess.run(
        ["git", *command.split()], cwd=repository.path, env=FIXED, capture_output=True, text=True
    )
    return done.returncode, done.stdout, done.stderr


def sorted_config(repository):
    """The repository's own configuration, whatever order it was written in."""
    return "".join(sorted(git(repository, "config --local --list")[1].splitlines(keepends=True)))


if __name__ == "__main__":
    episode = Git().sample("rename", seed=7)
    for relation in vcrt.certify_episode(Git, episode).relations:
        first, second = (episode.operations[i].payload for i in (relation.first, relation.second))
        print(f"{first} | {relation.kind} | {second}")
