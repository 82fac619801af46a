"""Ask a language model questions of yes or no, and read how likely it takes each answer to be.

Not covered: what it is asked (:mod:`vcrt_research.relation_predictors`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from vcrt.errors import BackboneError
from vcrt.progress import SILENT, Progress
from vcrt_train.policy.backbone import Backbone
from vcrt_train.policy.causal_model import evaluation_mode
from vcrt_train.policy.record_text import TextEncoder

ASK = "Answer:"
#: What counts as each answer, after ``Answer:``.
_YES, _NO = (" Yes", " yes"), (" No", " no")
#: Tokens of prompts that are read at once.
_TOKENS_AT_ONCE = 4096


@torch.no_grad()
def yes_shares(
    backbone: Backbone, questions: Sequence[str], *, progress: Progress = SILENT
) -> list[float]:
    """Of the probability that a backbone gives to yes or no as the next word, the share of yes, for each question.

    Raises :class:`BackboneError` for an embedded backbone, a question that is too long for the model or holds a
    special token, and a tokenizer in which yes and no begin alike.
    """
    encode = backbone.encode
    if not isinstance(encode, TextEncoder):
        raise BackboneError(
            "this backbone cannot be asked in words",
            found=backbone.name,
            expected="a language model, such as smollm2-135m",
        )
    first = encode.form.tokenizer.encode
    yes, no = ({first(word, add_special_tokens=False)[0] for word in of} for of in (_YES, _NO))
    if yes & no:
        raise BackboneError(
            "the tokenizer begins yes and no with the same token",
            where=backbone.name,
            remedy="use another language model",
        )
    encode.form.require_plain(questions)
    prompts = [encode.form.token_ids(encode.form.asked(q, ask=ASK)) for q in questions]
    longest = max(map(len, prompts), default=0)
    if encode.max_length is not None and longest > encode.max_length:
        raise BackboneError(
            "a question is too long for the model",
            found=f"{longest:,} tokens",
            expected=f"at most {encode.max_length:,}",
        )
    task = progress.task(f"ask {backbone.name}", len(prompts), "questions")
    shares = [0.0] * len(prompts)
    # Prompts of one length need no padding, and so no mask.
    by_length: dict[int, list[int]] = {}
    for number, prompt in enumerate(prompts):
        by_length.setdefault(len(prompt), []).append(number)
    with evaluation_mode(backbone.model):
        for length, numbers in sorted(by_length.items()):
            size = max(1, _TOKENS_AT_ONCE // length)
            for start in range(0, len(numbers), size):
                some = numbers[start : start + size]
                ids = torch.tensor([prompts[n] for n in some], device=backbone.model.device)
                logits = backbone.model(input_ids=ids, logits_to_keep=1, use_cache=False).logits
                said = [logits[:, -1, sorted(of)].double().logsumexp(-1) for of in (yes, no)]
                for number, share in zip(some, torch.sigmoid(said[0] - said[1]), strict=True):
                    shares[number] = float(share)
                task.advance(len(some))
    return shares
