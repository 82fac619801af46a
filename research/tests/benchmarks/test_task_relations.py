"""Relations of policies that write steps: pairs are what certification says, probabilities those of whole texts."""

from __future__ import annotations

import sys
from dataclasses import asdict
from itertools import permutations
from pathlib import Path

import pytest
import torch

from tiny_models import tiny_model
from vcrt.certificates.episodes import PAPER_PRESET, CertifiedEpisode, certify_episode
from vcrt.environments.registry import load_environment
from vcrt.environments.written_episodes import written_task
from vcrt.replay.replay import replay_exhaustively
from vcrt_train.randomness import generator

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "written"))

from task_relations import pairs_of, probabilities


@pytest.mark.parametrize(
    ("name", "schema"), [("proofwriter", "attribute_chain"), ("clrs", "bubble_sort")]
)
def test_pairs_are_those_that_certification_finds(name, schema):
    environment = load_environment(name)
    compared = 0
    for seed in range(20):
        episode = environment.sample(schema, seed=seed)
        (evidence,) = replay_exhaustively(environment, [episode])
        checks = environment.cross_check(episode)
        outcome = certify_episode(evidence, environment.versions(), PAPER_PRESET, checks)
        if not isinstance(outcome, CertifiedEpisode):
            continue
        row = asdict(written_task(environment, episode, generator(seed, "test")))
        found = {(p.first, p.second): p for p in pairs_of("one", row, environment)}
        assert set(found) == {(a, b) for a in range(4) for b in range(a + 1, 4)}
        for relation in outcome.relations:
            ends = (relation.first, relation.second)
            pair = found[min(ends), max(ends)]
            assert pair.is_edge == (relation.kind != "commutes")
            if pair.is_edge:
                assert pair.forward == (ends == (pair.first, pair.second))
            compared += 1
    assert compared > 20


def test_probabilities_are_those_of_the_whole_texts():
    model = tiny_model("llama", sharpness=3.0).eval()
    size = model.config.vocab_size

    def encoded(text):
        return [1 + ord(letter) % (size - 2) for letter in text]

    class Letters:
        eos_token_id = 0

        def __call__(self, texts):
            return {"input_ids": [encoded(text) for text in texts]}

    rows = [
        {"prompt": prompt, "task": {"steps": [[text, None, text] for text in steps]}}
        for prompt, steps in (("ab:", ("p", "q", "rs")), ("c:", ("t", "pq")))
    ]
    every = probabilities(model, Letters(), rows)
    for row, given in zip(rows, every, strict=True):
        prompt, totals = encoded(row["prompt"]), []
        for order in permutations(text for text, _, _ in row["task"]["steps"]):
            ids = [*prompt, *encoded("\n".join(order)), 0]
            with torch.no_grad():
                log_probs = model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
            own = range(len(prompt), len(ids))
            totals.append(sum(log_probs[place - 1, ids[place]] for place in own))
        expected = torch.stack(totals).double().softmax(0)
        found = torch.tensor(given, dtype=torch.float64)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
        assert found.max() > 1.2 * found.min()
