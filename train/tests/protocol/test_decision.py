"""`vcrt decide`: a trained policy's order for a relation record, against an enumerating oracle, and its refusals."""

from __future__ import annotations

import io
import json
import shutil
import sys
import tempfile
from dataclasses import replace
from itertools import pairwise, permutations
from types import SimpleNamespace

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import toy_environment as toy
import vcrt_train
from command_line import refused, run
from language_models import byte_level_tokenizer, save_model
from vcrt.certificates.certificates import directed
from vcrt.cli import main
from vcrt.datasets.agreement import verify_agreement
from vcrt.datasets.freezing import make_dataset
from vcrt.orders import linear_extensions
from vcrt.records.audit import certified_from_row
from vcrt.records.certificate import certificate_document
from vcrt.records.dataset import read_audit
from vcrt.replay.config import sampled
from vcrt_train.cli.decide import decision_lines
from vcrt_train.policy.backbone import load_backbone
from vcrt_train.policy.scoring import score_orders
from vcrt_train.protocol.decision import chosen_run, decide, load_policy
from vcrt_train.protocol.experiment import open_experiment
from vcrt_train.protocol.planned_training import _train_job, _TrainJob
from vcrt_train.protocol.relation_records import read_relation_record, with_pointers
from vcrt_train.randomness import generator

TWO_TOYS = {name: toy.THREE_TOYS[name] for name in ("toy-a", "toy-b")}
RECORD = {
    "operations": ["load", "clean", "sum", "plot"],
    "relations": [
        ["load", "sum", "precedes"],
        ["plot", "clean", "conflicts"],
        ["load", "plot", "commutes"],
    ],
}
#: What those relations demand, said again by hand.
REQUIRED = (("load", "sum"), ("plot", "clean"))
VCRT, OUTCOME = "vcrt/toy-b/0", "outcome-grpo/toy-b/0"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two experiments without their dataset: the embedded backbone, and a Granite of which one run is trained."""
    path = tmp_path_factory.mktemp("decide")
    config = sampled(dict.fromkeys(TWO_TOYS, ("needs", "overwrite")), 6)
    data = make_dataset(config, path / "data", jobs=1, factories=TWO_TOYS)
    verify_agreement(data, jobs=1, factories=TWO_TOYS)
    row = next(iter(read_audit(data, "toy-a")))
    preset = data.manifest.preset
    document = certificate_document(certified_from_row(row, preset), preset)
    (path / "certificate.json").write_text(json.dumps(document))
    (path / "record.json").write_text(json.dumps(RECORD))
    save_model(path / "granite", "granite", tokenizer=byte_level_tokenizer())
    main(["backbone", "lock", str(path / "granite")])
    small = ("--runs", "1", "--updates", "2", "--checkpoints", "1", "2")
    fold, high = ("--held-out", "toy-b"), ("--learning-rate", "1e-2")
    both = ("--methods", "vcrt", "outcome-grpo")
    tuned = (
        "--methods",
        "vcrt",
        "--lora-rank",
        "2",
        "--dtype",
        "float32",
        "--backbone",
        str(path / "granite"),
    )
    plan = ("plan", str(path / "data"), *small, *high, "--output")
    main([*plan, str(path / "embedded"), *fold, *both])
    main([*plan, str(path / "tuned"), *tuned])
    for name in ("embedded", "tuned"):
        experiment = open_experiment(path / name)
        for planned in experiment.plan.runs:
            if planned.held_out == "toy-b":
                done = _train_job(_TrainJob(experiment.path, planned, code=experiment.plan.code))
                experiment.ledger.append("run", {"run": planned.name, **done})
    shutil.rmtree(path / "data")
    return path


def answer(capsys, *arguments):
    code, out, err = run(capsys, "decide", *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


def oracle(record, model, encode, method, seed=0):
    """The probability of every order by names, each scored by itself; pointers are placed by hand."""
    stated = read_relation_record(json.dumps(record).encode(), "test")
    names = record["operations"]
    drawn = generator(seed, "decide", "pointers").permutation(8)[: len(names)].tolist()
    name_of_slot = [names[drawn.index(pointer)] for pointer in sorted(drawn)]
    draw = generator(seed, "decide", "render")
    prompt = encode(with_pointers(stated, seed).record, method.serialisation, draw)
    with torch.no_grad():
        scores = score_orders(model, [prompt], interface=method.interface, backend="naive")
    return {
        tuple(name_of_slot[slot] for slot in order): float(log_prob.exp())
        for order, log_prob in zip(
            permutations(range(len(names))), scores.order_log_probs[0], strict=True
        )
    }


def keeps(order, required=REQUIRED):
    return all(order.index(first) < order.index(second) for first, second in required)


def require_equal(found, expected, required=REQUIRED):
    legal = {order for order in expected if keeps(order, required)}
    assert found["orbit_mass"] == pytest.approx(sum(expected[o] for o in legal), abs=1e-5)
    assert (found["legal_orders"], found["orders"]) == (len(legal), len(expected))
    ranked = sorted(expected, key=expected.get, reverse=True)
    shown = [found["greedy"], *found["alternatives"]]
    for part in shown:
        order = tuple(part["order"])
        assert part["probability"] == pytest.approx(expected[order], abs=1e-5)
        assert part["legal"] == (order in legal)
    assert len({tuple(part["order"]) for part in shown}) == min(4, len(expected))
    others = [order for order in ranked if order != tuple(found["greedy"]["order"])]
    assert [part["probability"] for part in found["alternatives"]] == pytest.approx(
        [expected[order] for order in others[:3]], abs=1e-5
    )


@pytest.mark.parametrize("update", [1, 2])
def test_the_answer_is_that_of_the_trained_weights(folder, capsys, update):
    experiment = open_experiment(folder / "embedded")
    backbone = load_backbone()
    weights = folder / "embedded" / "runs" / VCRT / f"update-00000{update}" / "weights.safetensors"
    backbone.model.load_state_dict(load_file(weights), strict=False)
    method = SimpleNamespace(interface="pointers", serialisation="sorted")
    expected = oracle(RECORD, backbone.model, backbone.encode, method)
    assert sum(expected.values()) == pytest.approx(1, abs=1e-5)
    options = () if update == 2 else ("--update", 1)
    found = answer(capsys, folder / "embedded", folder / "record.json", *options)
    require_equal(found, expected)
    policy = found["policy"]
    assert (policy["run"], policy["update"]) == (VCRT, update)
    entry = experiment.finished_runs()[VCRT]
    assert policy["checkpoint"] == entry.body["checkpoints"][str(update)]
    assert policy["backbone_digest"] == backbone.digest == experiment.plan.backbone_digest
    assert policy["plan"] == experiment.plan.plan_hash
    assert found["malformed"] is None


def test_the_greedy_order_is_chosen_step_by_step(folder, capsys):
    backbone = load_backbone()
    method = SimpleNamespace(interface="pointers", serialisation="sorted")
    expected = oracle(RECORD, backbone.model, backbone.encode, method, seed=5)
    found = answer(capsys, folder / "embedded", folder / "record.json", "--frozen", "--seed", "5")
    require_equal(found, expected)
    assert found["policy"]["run"] is found["policy"]["checkpoint"] is None
    prefix = ()
    while len(prefix) < 4:
        mass = {}
        for order, probability in expected.items():
            if order[: len(prefix)] == prefix:
                mass[order[len(prefix)]] = mass.get(order[len(prefix)], 0) + probability
        prefix = (*prefix, max(mass, key=mass.get))
    assert tuple(found["greedy"]["order"]) == prefix


def test_a_language_model_answers_with_its_adapters(folder, capsys):
    options = ("--run", VCRT)
    trained = answer(capsys, folder / "tuned", *options, folder / "record.json")
    frozen = answer(capsys, folder / "tuned", *options, folder / "record.json", "--frozen")
    experiment = open_experiment(folder / "tuned")
    backbone = load_backbone(experiment.plan.backbone)
    method = SimpleNamespace(interface="pointers", serialisation="sorted")
    require_equal(frozen, oracle(RECORD, backbone.model, backbone.encode, method))
    # The adapters by hand: each product, times the scale, added to its weight.
    last = folder / "tuned" / "runs" / VCRT / "update-000002" / "weights.safetensors"
    tensors = load_file(last)
    scale = experiment.plan.config.adapter.scale
    with torch.no_grad():
        for name in [name for name in tensors if ".lora_A." in name]:
            path = name.removeprefix("base_model.model.").partition(".lora_A.")[0]
            product = tensors[name.replace("lora_A", "lora_B")] @ tensors[name]
            backbone.model.get_submodule(path).weight += scale * product
    expected = oracle(RECORD, backbone.model, backbone.encode, method)
    require_equal(trained, expected)
    assert trained["policy"]["backbone"] == "granite"
    assert trained["orbit_mass"] != pytest.approx(frozen["orbit_mass"], abs=1e-6)


def require_a_card(output, experiment, policy, *, is_adapter):
    """A model card that names the base model by name and hash, and no place of this machine but PEFT's own link."""
    card = (output / "README.md").read_text()
    plan, name = experiment.plan, policy.backbone.name
    title = next(line for line in card.splitlines() if line.startswith("# "))
    method = policy.method.name
    kind = "a PEFT adapter for" if is_adapter else "a model trained from"
    assert title == f"# {method}: {kind} {name}"
    for known in (policy.backbone.digest, plan.root_hash, plan.plan_hash, policy.checkpoint):
        assert f"`{known}`" in card
    assert "PeftModel.from_pretrained" in card if is_adapter else "PeftModel" not in card
    assert "## Licence" in card
    assert "[More Information Needed]" not in card
    for path in output.rglob("*.json"):
        text = path.read_text()
        if path.name == "adapter_config.json":
            text = text.replace(str(experiment.path.parent / "granite"), "")
        assert str(experiment.path.parent) not in text, path
        assert tempfile.gettempdir() not in text, path
    assert str(experiment.path.parent) not in card
    assert tempfile.gettempdir() not in card


def test_an_answer_no_better_than_chance_has_a_warning(folder):
    """Said of the frozen backbone, whose mass is set to what random orders have."""
    policy = vcrt_train.trained_policy(folder / "embedded", frozen=True)
    stated = read_relation_record(json.dumps(RECORD).encode(), "here")
    found = decide(policy, stated)
    chance = found.num_legal / found.num_orders
    warned = decision_lines(policy, stated, replace(found, orbit_mass=chance))
    assert sum("warning     that is no better than chance" in line for line in warned) == 1
    sure = decision_lines(policy, stated, replace(found, orbit_mass=0.9))
    assert not any("warning" in line for line in sure)


def test_what_was_trained_is_loaded_by_the_libraries(folder, capsys, tmp_path):
    prompt = torch.tensor([[5, 9, 11, 3]])
    for name, chosen, is_adapter in (("tuned", VCRT, True), ("embedded", OUTCOME, False)):
        output = tmp_path / name
        main(["export-model", str(folder / name), "--run", chosen, "--output", str(output)])
        assert str(output) in " ".join(capsys.readouterr().out.split())
        experiment = open_experiment(folder / name)
        policy = load_policy(experiment, chosen_run(experiment.plan, chosen))
        base = folder / "granite" if is_adapter else output
        model = AutoModelForCausalLM.from_pretrained(base)
        if is_adapter:
            assert json.loads((output / "adapter_config.json").read_text())[
                "base_model_name_or_path"
            ] == str(folder / "granite")
            model = PeftModel.from_pretrained(model, output)
        with torch.no_grad():
            found = model.eval()(input_ids=prompt).logits
            torch.testing.assert_close(found, policy.model(input_ids=prompt).logits)
        assert len(AutoTokenizer.from_pretrained(output)) == len(policy.backbone.tokenizer)
        require_a_card(output, experiment, policy, is_adapter=is_adapter)
        with pytest.raises(SystemExit):
            main(["export-model", str(folder / name), "--run", chosen, "--output", str(output)])
        assert "not overwritten" in capsys.readouterr().err


def test_the_token_interface_says_what_is_malformed(folder, capsys):
    found = answer(capsys, folder / "embedded", folder / "record.json", "--run", OUTCOME)
    assert found["policy"]["interface"] == "tokens"
    assert 0 < found["malformed"] < 1
    assert 0 < found["orbit_mass"] <= 1 - found["malformed"] + 1e-6
    _, out, _ = run(capsys, "decide", folder / "embedded", folder / "record.json", "--run", OUTCOME)
    assert f"malformed   {found['malformed']:.4f}" in out


@pytest.mark.parametrize("count", [2, 3, 6])
def test_any_number_of_operations_from_standard_input(folder, capsys, monkeypatch, count):
    names = [f"step {n}" for n in range(count)]
    chain = list(pairwise(names))
    record = {"operations": names, "relations": [[a, b, "precedes"] for a, b in chain]}
    data = io.BytesIO(json.dumps(record).encode())
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=data))
    found = answer(capsys, folder / "embedded", "-")
    assert found["legal_orders"] == 1
    assert found["record"]["relations"] == record["relations"]
    assert len(found["alternatives"]) == min(3, found["orders"] - 1)


def test_people_read_the_same_as_machines_and_again_the_same(folder, capsys):
    arguments = (folder / "embedded", folder / "record.json")
    found = answer(capsys, *arguments)
    assert answer(capsys, *arguments) == found
    assert answer(capsys, *arguments, "--seed", "1")["orbit_mass"] != found["orbit_mass"]
    code, out, _ = run(capsys, "decide", *arguments)
    assert code == 0
    assert f"order       {' -> '.join(found['greedy']['order'])}\n" in out
    assert f"orbit mass  {found['orbit_mass']:.4f} on 6 orders of 24" in out
    assert found["policy"]["checkpoint"] in out
    assert found["policy"]["backbone_digest"] in out
    verb = "keeps" if found["greedy"]["legal"] else "breaks"
    assert f"probability {found['greedy']['probability']:.4f}, {verb} " in out


def test_certificates_and_lifted_theorems_are_records_too(folder):
    certificate = json.loads((folder / "certificate.json").read_text())
    stated = read_relation_record((folder / "certificate.json").read_bytes(), "test")
    assert [[r.first, r.second, r.kind] for r in stated.relations] == certificate["relations"]
    extensions = linear_extensions(len(stated.operations), directed(stated.relations))
    assert sorted(map(list, extensions)) == sorted(certificate["orbit"])
    certificate["relations"][0][2] = "conflicts"
    with pytest.raises(ValueError, match="certificate was changed"):
        read_relation_record(json.dumps(certificate).encode(), "test")


def test_what_cannot_be_asked_is_refused(folder, capsys, tmp_path):
    record = folder / "record.json"
    embedded, tuned = folder / "embedded", folder / "tuned"
    assert "no such file" in refused(capsys, "decide", embedded, tmp_path / "absent.json")
    assert "a directory" in refused(capsys, "decide", embedded, tmp_path)
    assert "not an experiment" in refused(capsys, "decide", tmp_path, record)
    message = refused(capsys, "decide", tuned, record)
    assert "which run?" in message
    assert "vcrt/toy-a/0, vcrt/toy-b/0" in message
    assert "did you mean" in refused(capsys, "decide", embedded, record, "--run", "vcrt/toy-b/1")
    assert "not finished" in refused(capsys, "decide", tuned, record, "--run", "vcrt/toy-a/0")
    message = refused(capsys, "decide", embedded, record, "--update", "3")
    assert "one of 1, 2" in message
    assert "no updates" in refused(capsys, "decide", embedded, record, "--frozen", "--update", 1)
    broken = tmp_path / "broken.json"
    kind = "[red]\x1b[2J"
    broken.write_text(json.dumps({**RECORD, "relations": [["load", "sum", kind]]}))
    assert "\x1b[2J" not in refused(capsys, "decide", embedded, broken)


@pytest.mark.parametrize("name", ["weights.safetensors", "checkpoint.json"])
def test_an_altered_checkpoint_is_refused(folder, capsys, tmp_path, name):
    experiment = tmp_path / "experiment"
    shutil.copytree(folder / "embedded", experiment)
    path = experiment / "runs" / VCRT / "update-000002" / name
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert "missing or damaged" in refused(capsys, "decide", experiment, folder / "record.json")
    # The run beside it is as it was.
    answer(capsys, experiment, folder / "record.json", "--run", OUTCOME)


def test_an_answer_needs_the_weights_of_one_checkpoint_alone(folder, capsys, tmp_path):
    experiment = tmp_path / "experiment"
    shutil.copytree(folder / "embedded", experiment)
    run = experiment / "runs" / VCRT
    shutil.rmtree(run / "update-000001")
    (run / "update-000002" / "trainer.safetensors").unlink()
    (run / "update-000002" / "metrics.json").unlink()
    record = folder / "record.json"
    assert answer(capsys, experiment, record) == answer(capsys, folder / "embedded", record)
