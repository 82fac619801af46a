"""Models on another device than the processor: everything that meets them comes to them, or is fetched."""

from __future__ import annotations

from dataclasses import asdict
from itertools import product

import pytest
import torch

import listed_training
import sampled_training
from configs import resolved as config
from pretended_device import DEVICE, DeviceError, PretendedDevice
from sampled_training import EXACT, SAMPLED, poset_record
from small_models import hybrid_model
from tiny_models import BACKENDS, gradient_of, loss_of, tiny_model, tiny_prompts
from training_fixtures import ENCODE, answering_model
from vcrt_train.integrations.orbit_credit import Candidates, tabulate
from vcrt_train.policy import backends
from vcrt_train.policy.adapters import with_adapters
from vcrt_train.policy.scoring import greedy_orders, score_orders
from vcrt_train.policy.self_check import self_check
from vcrt_train.policy.text_scoring import score_texts
from vcrt_train.training.checkpoint import load_checkpoint, save_checkpoint
from vcrt_train.training.gradient_variance import gradient_moments
from vcrt_train.training.items import encode_items
from vcrt_train.training.methods import METHODS
from vcrt_train.training.update import new_state


@pytest.fixture
def device():
    with PretendedDevice() as mode:
        yield mode


# The device refuses what a GPU would refuse.


def test_the_device_refuses_what_a_gpu_refuses(device):
    there, here = torch.ones(3, device=DEVICE), torch.ones(3)
    assert there.device == DEVICE
    assert (there[:2] + 1).device == DEVICE
    assert here.device == there.cpu().device == torch.device("cpu")
    assert here.to(there).device == there.to(torch.float64).device == DEVICE
    assert not there.is_cpu
    for wrong in (
        lambda: there + here,
        lambda: torch.cat([there, here]),
        lambda: here[torch.zeros(1, dtype=torch.long, device=DEVICE)],
        lambda: there.uniform_(generator=torch.Generator()),
        lambda: torch.rand(3, device=DEVICE, generator=torch.Generator()),
        lambda: torch.stack([there.sum(), torch.tensor(1.0)]),
        there.numpy,
    ):
        with pytest.raises(DeviceError):
            wrong()
    # Numbers, places and copies go from one to the other.
    assert (there + torch.tensor(1.0))[torch.tensor([0])].tolist() == [2]
    assert here.copy_(2 * there).tolist() == [2, 2, 2]


# What the library computes there equals what it computes on the processor.


def require_same_there(expected, found):
    """Tensors of the processor, and equal ones of the device."""
    for one, other in zip(expected, found, strict=True):
        assert (one.device, other.device) == (torch.device("cpu"), DEVICE)
        assert torch.equal(one, other.cpu())


#: Every term, ratio, margin and interface: the other methods have some of these.
PARTS = [
    "outcome-grpo",
    "vcrt",
    "shuffled-all",
    "contrastive",
    "augmentation",
    "exact-reward",
    "exact-log-reward",
    "exact-log-odds",
    "both-classes",
    "step-groups",
    "uniform-orbit",
]


@pytest.mark.parametrize("name", PARTS)
def test_training_on_listed_orders(name, device):
    def trained(place):
        model = answering_model() if name == "outcome-grpo" else listed_training.tiny_model()
        adapted = with_adapters(place(model), rank=2, scale=2.0, seed=0, dropout=0.25)
        return listed_training.train(name, 2, model=place(adapted))

    (expected, before), (found, after) = trained(lambda model: model), trained(device.place)
    assert before == after
    require_same_there(expected.model.parameters(), found.model.parameters())


def test_the_methods_trained_there_have_every_part():
    for part in ("interface", "serialisation", "ratio", "margin"):
        parts = ({getattr(METHODS[name], part) for name in names} for names in (PARTS, METHODS))
        assert len({frozenset(some) for some in parts}) == 1, part
    terms = ({term for name in names for term in METHODS[name].terms} for names in (PARTS, METHODS))
    assert len({frozenset(some) for some in terms}) == 1


#: Each method with one estimate, and each estimate with two methods; CI runs the other pairs.
ESTIMATES = {"exact": EXACT, "sampled": SAMPLED}
QUICK = {
    ("vcrt", "exact"),
    ("shuffled-orbit", "sampled"),
    ("contrastive", "exact"),
    ("augmentation", "sampled"),
}


@pytest.mark.parametrize(
    ("name", "estimate"),
    [
        pytest.param(*pair, marks=[] if pair in QUICK else pytest.mark.slow)
        for pair in product(["vcrt", "shuffled-orbit", "contrastive", "augmentation"], ESTIMATES)
    ],
)
def test_training_on_partial_orders(name, estimate, device, monkeypatch):
    estimate = ESTIMATES[estimate]
    expected, before = sampled_training.train(name, 2, estimate=estimate)
    make = sampled_training.tiny_model
    monkeypatch.setattr(sampled_training, "tiny_model", lambda: device.place(make()))
    found, after = sampled_training.train(name, 2, estimate=estimate)
    assert before == after
    require_same_there(expected.model.parameters(), found.model.parameters())


#: One class for each backend and another for the fork's two kinds of state, which have both interfaces at once.
CLASSES = {("llama", "tree"), ("llama", "naive"), ("qwen3_5", "fork"), ("granitemoehybrid", "fork")}


@pytest.mark.parametrize(
    ("name", "backend", "interface"),
    [
        pytest.param(
            *pair,
            interface,
            marks=[]
            if pair in CLASSES and (pair[1] != "naive" or interface == "tokens")
            else pytest.mark.slow,
        )
        for pair in [*BACKENDS.items(), ("llama", "naive"), ("qwen3", "fork")]
        for interface in ("pointers", "tokens")
    ],
)
def test_scores_gradients_and_answers(name, backend, interface, device):
    prompts = tiny_prompts(4)

    def found(model):
        asked = {"interface": interface, "backend": backend}
        scores = score_orders(model, prompts, **asked)
        gradient = gradient_of(model, loss_of(scores))
        check = self_check(model, prompts, **asked)
        answers = greedy_orders(model, prompts, **asked)
        return scores.order_log_probs, gradient, check, answers

    expected, there = found(tiny_model(name)), found(device.place(tiny_model(name)))
    require_same_there(expected[:2], there[:2])
    assert expected[2:] == there[2:]


@pytest.mark.parametrize("backend", ["tree", "fork", "naive"])
def test_texts_and_the_credit_of_their_orbits(backend, device, monkeypatch):
    # Padding, which the device alone has, changes sums by rounding.
    monkeypatch.setattr(backends, "STEP", 1)
    candidates = [
        Candidates(prompt=(4, 7, 4), orbit=((1, 2, 3), (3, 1, 2)), illegal=((2, 1, 3),)),
        Candidates(prompt=(6, 6, 6), orbit=((1, 5), (5, 1))),
    ]
    prompts = [one.prompt for one in candidates]
    texts = [list(one.completions) for one in candidates]

    def found(model):
        scores = score_texts(model, prompts, texts, backend=backend, entropies=True)
        totals = torch.stack([one.log_probs.sum() for some in scores for one in some])
        table = tabulate(candidates, totals)
        place = torch.tensor([0, 0, 1], device=totals.device)
        member = torch.tensor([1, -1, 0], device=totals.device)
        surplus = table.surplus(place, member)
        entropies = torch.cat([one.entropies for some in scores for one in some])
        return totals, surplus, entropies

    make = hybrid_model if backend == "fork" else lambda: tiny_model("llama")
    require_same_there(found(make()), found(device.place(make())))


def test_a_run_goes_on_there_from_a_checkpoint_of_the_processor(device, tmp_path):
    def adapted(place):
        return place(with_adapters(listed_training.tiny_model(), rank=2, scale=2.0, seed=0))

    here, metrics = listed_training.train("vcrt", 2, model=adapted(lambda model: model))
    there, _ = listed_training.train("vcrt", 2, model=adapted(device.place))
    saved = [asdict(one) for one in metrics]
    digests = [
        save_checkpoint(state, tmp_path / name, saved)
        for name, state in (("here", here), ("there", there))
    ]
    assert digests[0] == digests[1]
    resumed = new_state(adapted(device.place), config(learning_rate=1e-3), seed=0)
    assert load_checkpoint(resumed, tmp_path / "here") == saved
    require_same_there(here.model.parameters(), resumed.model.parameters())
    assert {
        one.device for of in resumed.optimizer.state.values() for one in of.values() if one.dim()
    } == {DEVICE}


@pytest.mark.parametrize("listed", [True, False])
def test_the_account_of_the_variance(listed, device):
    record = poset_record(3, num_operations=4, share=0.4)
    (item,) = encode_items(
        [record.listed() if listed else record], METHODS["vcrt"], seed=0, encode=ENCODE
    )
    expected = gradient_moments(listed_training.tiny_model(), item, num_samples=8)
    assert (
        gradient_moments(device.place(listed_training.tiny_model()), item, num_samples=8)
        == expected
    )


def test_texts_have_few_sizes_there(device):
    model, shapes = tiny_model("llama"), set()
    model.register_forward_pre_hook(
        lambda _, args, given: shapes.add(tuple(given["input_ids"].shape)), with_kwargs=True
    )
    device.place(model)
    for length in range(1, 34):
        prompts = [tuple(range(1, 2)) * length, (3, 4)]
        texts = [[(1, 2, 3), (1, 4)], [(2,) * (1 + length % 20)]]
        found = score_texts(model, prompts, texts, backend="tree")
        alone = [
            score_texts(model, [prompt], [some], backend="naive")[0]
            for prompt, some in zip(prompts, texts, strict=True)
        ]
        for some, others in zip(found, alone, strict=True):
            for one, other in zip(some, others, strict=True):
                assert torch.allclose(one.log_probs.cpu(), other.log_probs.cpu(), atol=1e-5)
    # Those of one row are of texts by themselves.
    assert {size for size in shapes if size[0] == 2} == {(2, 31), (2, 47), (2, 63)}
