"""CLRS under other names. A module of its own: worker processes import it, and should not import PyTorch with it."""

from __future__ import annotations

from dataclasses import replace

from vcrt_clrs.environment import ClrsEnvironment


class SameVersions(ClrsEnvironment):
    """CLRS under another name."""

    name = "other"

    def versions(self):
        return replace(super().versions(), environment=self.name)

    def sample(self, schema, seed):
        return replace(super().sample(schema, seed), environment=self.name)


class FewEpisodes(ClrsEnvironment):
    """CLRS with so few episodes that two draws from them share some."""

    def sample(self, schema, seed):
        episode = super().sample(schema, seed % 12)
        return replace(episode, provenance=replace(episode.provenance, seed=seed))


class SameEpisodes(FewEpisodes):
    """The same episodes under another name, with versions of its own."""

    name = "other"

    def versions(self):
        return replace(super().versions(), environment=self.name, verifier="another verifier 1")

    def sample(self, schema, seed):
        return replace(super().sample(schema, seed), environment=self.name)
