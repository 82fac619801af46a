"""Each flaw is found by name: by a check of the conformance kit, and by certification as far as it can tell."""

from __future__ import annotations

import mutants
import pytest

from vcrt.certificates.episodes import PAPER_PRESET, Exclusion, certify_episode
from vcrt.environments.conformance import validate
from vcrt.replay.replay import replay_exhaustively


def exclusions(environment, seeds=range(2)):
    """The kinds of exclusions among a few episodes of each schema."""
    kinds = set()
    for schema in environment.schemas:
        episodes = [environment.sample(schema.name, seed) for seed in seeds]
        for evidence in replay_exhaustively(environment, episodes):
            checks = environment.cross_check(evidence.episode)
            outcome = certify_episode(evidence, environment.versions(), PAPER_PRESET, checks)
            kinds |= {outcome.kind} if isinstance(outcome, Exclusion) else set()
    return kinds


@pytest.mark.parametrize(
    ("mutant", "check", "kind"),
    [
        (mutants.RandomNumbers, "replay is deterministic", "second_opinion"),
        (mutants.RowsForgotten, "every step has an effect", "no_effect"),
        (mutants.ColumnNamesForgotten, "every step has an effect", "second_opinion"),
        (mutants.IndexOrderForgotten, "equal states have equal futures", "unequal_futures"),
        (mutants.LiveDatabase, "a step leaves its state as it was", None),
        (mutants.OneSignature, "episodes are well formed", "ambiguous_correspondence"),
        (mutants.CountedVersions, "versions are stable", None),
        (mutants.AcceptsAll, "every step has an effect", "second_opinion"),
        (mutants.NotesRefusals, "second opinions agree", "second_opinion"),
        (mutants.RejectsAll, "the reference order is accepted", "outside_schema"),
    ],
)
def test_each_flaw_is_named(mutant, check, kind):
    failed = {finding.check for finding in validate(mutant(), range(1)) if not finding.passed}
    assert check in failed
    found = exclusions(mutant(), range(1))
    assert kind in found if kind else not found


@pytest.mark.parametrize(
    ("mutant", "kind"),
    [
        (mutants.RandomNumbers, "nondeterministic"),
        (mutants.RowsForgotten, "no_effect"),
        (mutants.ColumnNamesForgotten, "no_effect"),
        (mutants.AcceptsAll, "no_effect"),
    ],
)
def test_certification_finds_them_without_a_second_opinion_too(monkeypatch, mutant, kind):
    monkeypatch.setattr(mutant, "cross_check", lambda self, episode: ())
    assert kind in exclusions(mutant())


def test_the_kit_says_which_statements_show_it():
    (finding,) = (f for f in validate(mutants.IndexOrderForgotten(), range(1)) if not f.passed)
    for part in (
        "[CREATE INDEX by_b ON t (b); CREATE INDEX by_c ON t (c)] and",
        "end in states of one hash; then [UPDATE t SET a = a - 1 WHERE b > 0 AND c > 0]",
        "refused (UNIQUE constraint failed: t.a) after the latter",
    ):
        assert part in finding.problem


def test_the_canonical_state_keeps_what_the_planner_sees():
    """The episode that found it: certification says so, instead of promising that the indexes commute."""
    failed = {f.check for f in validate(mutants.Scan(), range(1)) if not f.passed}
    assert "equal states have equal futures" not in failed
    assert exclusions(mutants.Scan(), range(1)) == {"second_opinion"}
