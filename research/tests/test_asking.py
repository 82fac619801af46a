"""Questions of yes or no to a language model, against its own probabilities of each prompt by itself."""

from __future__ import annotations

import pytest
import torch

from language_models import CHAT_TEMPLATE, byte_level_tokenizer, locked_model
from vcrt.errors import BackboneError
from vcrt_research.asking import yes_shares
from vcrt_train.policy.backbone import load_backbone

#: Spaced, each of these is one token; with others, yes and no begin with the same space.
LETTERS = "ABCDEFGHIJYyNn"
QUESTIONS = ["Is it so?\n", "And this one, which is longer?\n", "Is it no?\n"]


@pytest.mark.parametrize("style", ["plain", "chat"])
def test_shares_are_those_of_each_question_by_itself(tmp_path, style):
    tokenizer = byte_level_tokenizer(letters=LETTERS)
    tokenizer.chat_template = CHAT_TEMPLATE
    reference = locked_model(tmp_path / "m", "llama", tokenizer=tokenizer, prompt_style=style)
    backbone = load_backbone(reference)
    found = yes_shares(backbone, QUESTIONS)
    for question, share in zip(QUESTIONS, found, strict=True):
        text = backbone.encode.form.asked(question, ask="Answer:")
        assert text.endswith("Answer:")
        ids = torch.tensor([backbone.encode.form.token_ids(text)])
        with torch.no_grad():
            probabilities = backbone.model(input_ids=ids).logits[0, -1].double().softmax(-1)
        first = {
            word: tokenizer.encode(word, add_special_tokens=False)[0]
            for word in (" Yes", " yes", " No", " no")
        }
        yes = sum(probabilities[i] for i in {first[" Yes"], first[" yes"]})
        no = sum(probabilities[i] for i in {first[" No"], first[" no"]})
        assert share == pytest.approx(float(yes / (yes + no)), abs=1e-6)
    assert yes_shares(backbone, []) == []


def test_a_model_that_cannot_be_asked_is_refused(tmp_path):
    with pytest.raises(BackboneError, match="cannot be asked in words"):
        yes_shares(load_backbone("embedded"), QUESTIONS)
    with pytest.raises(BackboneError, match="begins yes and no with the same token"):
        yes_shares(load_backbone(locked_model(tmp_path / "m", "llama")), QUESTIONS)
    tokenizer = byte_level_tokenizer(letters=LETTERS)
    backbone = load_backbone(locked_model(tmp_path / "n", "llama", tokenizer=tokenizer))
    with pytest.raises(BackboneError, match="too long for the model"):
        yes_shares(backbone, ["so " * 600])
    with pytest.raises(BackboneError, match="special token of the tokenizer"):
        yes_shares(backbone, ["so <|end|> or not"])
