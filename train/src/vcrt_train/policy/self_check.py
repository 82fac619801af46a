"""Check a loaded model's backend against scoring each order separately, before anything is trained.

A layer that ignores a mask, a position or a cache gives wrong scores without an exception, so a model's configuration
alone is not trusted. Log-probabilities are compared in the model's own number format, and those of a half-precision
model once more with its weights widened to float32, where rounding cannot hide an error; gradients are compared too.
Kernels of other packages (flash-linear-attention's) are compared with PyTorch's only in the model's own format: their
rounding in float32, if they support it, is no error of a backend.

Tolerances: in float32 the backends differ only by rounding, some 1e-5 nats on an order, whereas one wrong token costs
1e-2 and more; 1e-4 lies between. Each parameter's gradient difference is compared with the norm of that gradient,
because a state whose gradient is lost hardly changes the norm of all; rounding alone gives some 1e-6 there. In bfloat16
(8 bits) rounding alone reaches tenths of a nat on improbable orders, and more for sharper logits. So the error of the
format itself is measured on the same prompts: the naive scores in the model's own format against those in float32. The
backend may differ from the naive one by ``FORMAT_MULTIPLE`` of that, both as root mean squares over a prompt's orders,
each difference over 1 + |log-probability|. Tiny models of four architectures with logits up to 16 times as sharp differ
by 0.1 to 2.4 of it; a mask that is wrong only in that format differs by 14 and more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import isfinite
from typing import TypeVar

import torch
from torch import Tensor

from vcrt.errors import BackboneError, MalformedInputError, VcrtError
from vcrt.limits import MAX_ENUMERATED
from vcrt.memory import is_out_of_memory
from vcrt.orders import Order
from vcrt_train.config import Backend, Interface
from vcrt_train.policy.backends import ExactBackend, choose_backend
from vcrt_train.policy.causal_model import HALF, CausalModel, Prompt, evaluation_mode, unwrapped
from vcrt_train.policy.kernels.switch import (
    implementations,
    plain_kernels,
    reference_functions,
)
from vcrt_train.policy.prefix_tree import PrefixTree, prefix_tree
from vcrt_train.policy.scoring import score_orders, score_prefixes, tree_depth
from vcrt_train.policy.text_scoring import score_texts
from vcrt_train.randomness import generator

#: The tolerance in float32: nats of an order's log-probability, or a share of the norm of a parameter's gradient.
TOLERANCE = 1e-4
#: The multiple of the format's own error by which backends may differ, for a half-precision model in its own format.
FORMAT_MULTIPLE = 5.0
#: The tolerance that applies in any case, over 1 + |log-probability|: some steps of bfloat16.
LEAST_HALF_TOLERANCE = 0.01
#: The tolerance of all gradients together against PyTorch's own kernels, in a half-precision format, as a share of
#: their norm: rounding alone gives some 1%, a wrong kernel most of it.
KERNEL_TOLERANCE = 0.2
#: The tolerances of texts, in nats a token: rounding gives some 1e-6, and in half precision some hundredths, since
#: logits of 16 and more are rounded to tenths there.
TEXT_TOLERANCE, HALF_TEXT_TOLERANCE = 1e-3, 0.15
#: Gradients of parameters whose norm is below this share of all of them are compared with this share instead.
SMALLEST_SHARE = 1e-3

#: The errors of a model's own code for a mask or a cache that it was not written for.
_OF_MODELS = (RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError)

_NO_NUMBERS = "look at the weights, or load them again: the model gives no numbers"

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class SelfCheck:
    """The results of a check; all differences are from the naive backend."""

    backend: ExactBackend
    #: Largest difference of an order's or the malformed answers' log-probability in float32 or wider, in nats; relative
    #: to a tenth of its size if that is more than 1, since rounding grows with the logits.
    difference: float
    #: In the model's own number format: the largest root mean square, over the orders of a prompt, of differences over
    #: 1 + |log-probability|; None if that format is float32 or wider.
    own_format_difference: float | None
    #: The error of the format itself, in the same measure: naive scores in it against those in float32; None likewise.
    own_format_error: float | None
    #: Largest distance of a parameter's gradients over their norm, for one prompt; None if not asked or not trainable.
    gradient_difference: float | None


def self_check(
    model: CausalModel,
    prompts: Sequence[Prompt],
    *,
    interface: Interface,
    backend: Backend = "auto",
    gradients: bool = True,
) -> SelfCheck:
    """Compare ``backend`` with the naive one on ``prompts``; run this on every model that is loaded.

    A shortened prompt and one of equal length are added, so that padding and batches are checked. During the check, the
    weights of a half-precision model are widened (4 bytes a parameter more) and then restored: check before a model is
    sharded. Gradients of the trainable parameters are held twice (8 bytes each): check after adapters are attached.
    Raises :class:`BackboneError` if a difference is too large or not a number, or if the model cannot be run so; the
    caller handles memory that runs out.
    """
    prompts = _with_other_lengths(prompts)
    depth = tree_depth(prompts[0].num_operations, interface)
    longest = max(len(prompt.token_ids) for prompt in prompts) + depth
    check = _Check(
        model=model,
        interface=interface,
        backend=choose_backend(model, backend, longest=longest),
    )
    in_own_format = check.both(prompts) if unwrapped(model).dtype in HALF else None
    with widened(model), full_precision(), reference_functions(model):
        found, exact = check.both(prompts)
        difference = check.difference(found, exact)
        slope = check.gradient_difference(min(prompts, key=_length)) if gradients else None
    own = error = None
    if in_own_format is not None:
        own, error = check.own_format(*in_own_format, exact)
        if gradients:
            check.gradient_of_kernels(min(prompts, key=_length))
    return SelfCheck(
        backend=check.backend,
        difference=difference,
        own_format_difference=own,
        own_format_error=error,
        gradient_difference=slope,
    )


@torch.no_grad()
def prefix_check(
    model: CausalModel,
    prompt: Prompt,
    prefixes: Sequence[Order],
    *,
    interface: Interface = "pointers",
    backend: Backend = "auto",
) -> float:
    """Compare the choices after some ``prefixes`` of a record too long for naive scores of all its orders.

    Half-precision weights are widened meanwhile. Returns the largest difference in nats; raises as :func:`self_check`.
    """
    tree = prefix_tree(prompt.num_operations, prefixes)
    check = _Check(
        model=model,
        interface=interface,
        backend=choose_backend(model, backend, longest=len(prompt.token_ids) + tree.depth),
    )

    with widened(model), full_precision(), reference_functions(model):
        found, expected = (
            check.choices([prompt], [tree], way)[0] for way in (check.backend, "naive")
        )
    largest = float((found - expected).abs().max())
    check.require(largest, TOLERANCE, f"log-probabilities differ by {largest:.3g} nats")
    return largest


@torch.no_grad()
def text_check(model: CausalModel) -> float:
    """Compare scores of texts by a tree of their tokens with scores of each text alone, after prompts of two lengths.

    The check uses the model's own number format, so it suits a model that is about to be trained. A faulty tree, for
    example with positions that are counted in the tensor, costs tenths of a nat a token and more in a trained model; in
    half precision an error below 0.15 nats counts as rounding. Returns the root mean square of a token's differences,
    in nats; raises as :func:`self_check`.
    """
    drawn = _tokens(model, "text check", 4, 6)
    prompts = [drawn[0], drawn[1][:4]]
    texts = [[drawn[2][:4], [*drawn[2][:2], *drawn[3][:2]], drawn[3][1:]]] * len(prompts)
    bound = _text_tolerance(model)
    check = _Check(model=model, interface="tokens", backend="tree")

    def scores(backend: ExactBackend) -> Tensor:
        found = check.run(backend, lambda: score_texts(model, prompts, texts, backend=backend))
        return torch.cat([one.log_probs.double() for some in found for one in some])

    with evaluation_mode(model), full_precision():
        apart = _apart(scores("tree"), scores("naive"))
    check.require(apart, bound, f"log-probabilities differ by {apart:.3g} nats a token")
    return apart


@torch.no_grad()
def padding_check(model: CausalModel, padding: int) -> float:
    """Compare a text scored with padding on its left, without given positions, with the text by itself.

    Trainers score prompts of several lengths like this; a model that counts places in the tensor then reads other
    positions. Tolerances and result are those of :func:`text_check`; raises :class:`BackboneError`.
    """
    ids = torch.tensor(_tokens(model, "padding check", 1, 12))
    device = next(iter(unwrapped(model).parameters())).device

    def scores(width: int) -> Tensor:
        padded = torch.cat([ids.new_full((1, width), padding), ids], 1).to(device)
        mask = torch.ones_like(padded)
        mask[:, :width] = 0
        logits = model(input_ids=padded, attention_mask=mask).logits
        # Places are counted from the end, because some adapters put rows of their own before all others.
        logits = logits[0, -ids.shape[1] : -1].double()
        found: Tensor = logits.log_softmax(-1).gather(-1, ids[0, 1:, None].to(device))
        return found

    with evaluation_mode(model), full_precision():
        apart = _apart(scores(5), scores(0))
    if apart > _text_tolerance(model):
        raise BackboneError(
            "padding before a text changes what the model says of it",
            where=type(unwrapped(model)).__name__,
            found=f"log-probabilities differ by {apart:.3g} nats a token",
            expected="scores that do not depend on the padding of prompts",
            remedy="take a model with relative positions, such as rotary ones; as adapters take LoRA, because prompt "
            "and prefix tuning put tokens of their own before the padding",
        )
    return apart


def _tokens(model: CausalModel, name: str, *shape: int) -> list[list[int]]:
    """Return texts of random tokens, drawn for the purpose ``name``."""
    vocabulary = unwrapped(model).config.get_text_config(decoder=True).vocab_size
    tokens: list[list[int]] = generator(0, name).integers(vocabulary, size=shape).tolist()
    return tokens


def _apart(one: Tensor, other: Tensor) -> float:
    """Return the root mean square of tokens' differences."""
    return float((one - other).square().mean().sqrt())


def _text_tolerance(model: CausalModel) -> float:
    is_wide = unwrapped(model).dtype in (torch.float32, torch.float64)
    return TEXT_TOLERANCE if is_wide else HALF_TEXT_TOLERANCE


@contextmanager
def widened(model: CausalModel) -> Iterator[None]:
    """Hold half-precision parameters and buffers in float32; afterwards they are the same tensors as before."""
    tensors = list(chain(model.parameters(), model.buffers()))
    kept = [(tensor, tensor.data) for tensor in tensors if tensor.dtype in HALF]
    try:
        for tensor, data in kept:
            tensor.data = data.float()
        yield
    finally:
        for tensor, data in kept:
            tensor.data = data


@contextmanager
def full_precision() -> Iterator[None]:
    """Compute float32 products in float32, whatever the process allows: in TF32 rounding looks like a wrong layer."""
    allowed = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(allowed)


@dataclass(frozen=True, kw_only=True)
class _Check:
    model: CausalModel
    interface: Interface
    backend: ExactBackend

    @torch.no_grad()
    def both(self, prompts: Sequence[Prompt]) -> tuple[Tensor, Tensor]:
        """Return the backend's scores and the naive ones by PyTorch's kernels alone, ``[B, E]`` each."""
        found = self.events(prompts, self.backend)
        with plain_kernels(), reference_functions(self.model):
            return found, self.events(prompts, "naive")

    def difference(self, found: Tensor, expected: Tensor) -> float:
        """Return the largest difference of log-probabilities ``[B, E]`` in nats, or tenths of their size beyond 10."""
        if expected.isnan().any():
            raise BackboneError(
                "the model gives no numbers",
                where=type(unwrapped(self.model)).__name__,
                found="log-probabilities of nan, even in float32 and with each order scored by itself",
                remedy=_NO_NUMBERS,
            )
        # A tensor's maximum keeps a NaN.
        largest = float(((found - expected).abs() / (expected.abs() / 10).clamp_min(1)).max())
        self.require(largest, TOLERANCE, f"log-probabilities differ by {largest:.3g} nats")
        return largest

    def own_format(self, found: Tensor, naive: Tensor, exact: Tensor) -> tuple[float, float]:
        """Return a prompt's largest root mean squares: backend against naive, and naive against float32."""
        sizes = 1 + exact.double().abs()
        apart, error = (
            float(((a.double() - b.double()) / sizes).square().mean(-1).sqrt().max())
            for a, b in ((found, naive), (naive, exact))
        )
        # Naive scores that overflow the format excuse nothing.
        bound = max(LEAST_HALF_TOLERANCE, FORMAT_MULTIPLE * error if isfinite(error) else 0.0)
        half = str(unwrapped(self.model).dtype).removeprefix("torch.")
        words = f"log-probabilities in {half} differ by {apart:.3g} of 1 + their size"
        self.require(apart, bound, words, others=True)
        return apart, error

    @torch.enable_grad()
    def gradient(self, prompt: Prompt, backend: Backend) -> list[Tensor]:
        """Return the trainable parameters' gradients of a mixture of log-probabilities; none if there is no mixture."""
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        if not parameters or prompt.num_operations < 2:
            return []
        events = self.events([prompt], backend)
        # No symmetry of the orders cancels these weights.
        weights = torch.linspace(-1, 1, events.shape[-1], device=events.device) ** 3
        mixture = (events * weights).sum()
        gradient = partial(torch.autograd.grad, mixture, parameters, materialize_grads=True)
        return list(self.run(backend, gradient))

    def gradient_of_kernels(self, prompt: Prompt) -> None:
        """Compare, in the model's own format, the gradient by the library's own kernels with that by PyTorch's."""
        found = self.gradient(prompt, self.backend)
        with plain_kernels(), reference_functions(self.model):
            gaps, sizes = _norms(found, self.gradient(prompt, self.backend))
        gap, size = float(gaps.norm()), float(sizes.norm())
        words = f"gradients in the model's format differ by {gap:.3g} of {size:.3g} from those of PyTorch's own kernels"
        self.require(gap, KERNEL_TOLERANCE * size + TOLERANCE**2, words, others=True)

    def gradient_difference(self, prompt: Prompt) -> float | None:
        """Return the largest relative distance of a parameter's gradients of a mixture of log-probabilities."""
        found = self.gradient(prompt, self.backend)
        gaps, sizes = _norms(found, self.gradient(prompt, "naive"))
        if not len(sizes):
            return None
        # If the gradient is 0 throughout, there is no norm to compare with.
        scale = sizes.clamp_min(float(SMALLEST_SHARE * sizes.norm())).clamp_min(TOLERANCE**2)
        largest = float((gaps / scale).max())
        words = f"gradients differ by {largest:.3g} of a parameter's norm"
        self.require(largest, TOLERANCE, words)
        return largest

    def events(self, prompts: Sequence[Prompt], backend: Backend) -> Tensor:
        """Return ``[B, E]``: log-probabilities of all orders or, for too many, of the choices along some orders."""
        count = prompts[0].num_operations
        if count <= MAX_ENUMERATED:
            score = partial(score_orders, self.model, prompts, interface=self.interface)
            orders = self.run(backend, partial(score, backend=backend))
            events, malformed = orders.order_log_probs, orders.malformed_log_prob
        else:
            trees = [_some_prefixes(count, number) for number in range(len(prompts))]
            choices, malformed = self.choices(prompts, trees, backend)
            events = choices.flatten(1)
        if malformed is None:
            return events
        return torch.cat([events, malformed.reshape(len(events), -1)], dim=1)

    def choices(
        self, prompts: Sequence[Prompt], trees: Sequence[PrefixTree], backend: Backend
    ) -> tuple[Tensor, Tensor | None]:
        """Return ``[B, R, n]`` and ``[B, R]``: the scores of choices and of malformed answers; 0 means no score."""
        score = partial(score_prefixes, self.model, prompts, trees, interface=self.interface)
        scores = self.run(backend, partial(score, backend=backend))
        rows = torch.tensor([tree.num_rows for tree in trees], device=scores.used.device)
        behind = torch.arange(scores.used.shape[1], device=rows.device) >= rows[:, None]
        found = scores.choice_log_probs.masked_fill(scores.used | behind[..., None], 0.0)
        malformed = scores.malformed_log_probs
        return found, None if malformed is None else malformed.masked_fill(behind, 0.0)

    def run(self, backend: Backend, action: Callable[[], Result]) -> Result:
        try:
            return action()
        except VcrtError:
            raise
        except _OF_MODELS as error:
            # An error of the device is no fault of the model.
            if is_out_of_memory(error) or isinstance(error, torch.AcceleratorError):
                raise
            raise BackboneError(
                f"the {backend} backend cannot run this model",
                where=type(unwrapped(self.model)).__name__,
                found=f"{type(error).__name__}: {error}",
                remedy=self._remedy
                if self.backend != "naive"
                else "load the model as its authors do, and see what it needs",
            ) from error

    def require(self, largest: float, bound: float, found: str, *, others: bool = False) -> None:
        """Raise unless ``largest`` is within its bound; ``others``: kernels of other packages have a part in it."""
        if not largest <= bound:
            packages = {*implementations(self.model).values()} - {"PyTorch"} if others else set()
            removing = f"uninstall {' and '.join(sorted(packages))}: PyTorch then computes instead"
            raise BackboneError(
                f"the {self.backend} backend does not agree with scoring each order by itself",
                where=type(unwrapped(self.model)).__name__,
                found=found,
                expected=f"at most {bound:.3g}",
                remedy=removing if packages else self._remedy,
            )

    @property
    def _remedy(self) -> str:
        if self.backend == "naive":
            return _NO_NUMBERS
        return (
            'plan with --scoring naive (in Python: backend="naive"), which is exact for every causal model '
            "and slower"
        )


def _norms(found: Sequence[Tensor], expected: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the norms of each parameter's difference, and of the expected gradients."""
    pairs = zip(found, expected, strict=True)
    gaps = torch.tensor([float((a - b).double().norm()) for a, b in pairs])
    return gaps, torch.tensor([float(b.double().norm()) for b in expected])


def _some_prefixes(num_operations: int, number: int) -> PrefixTree:
    """Return prefixes of a few orders, different for each prompt; some end early, as in training."""
    everything = tuple(range(num_operations))
    turned = everything[number % num_operations :] + everything[: number % num_operations]
    depth = num_operations - 2
    leaves = [turned[:depth], turned[::-1][:depth], (*turned[:1], *turned[2:])[: 2 + number % 2]]
    return prefix_tree(num_operations, leaves)


def _with_other_lengths(prompts: Sequence[Prompt]) -> list[Prompt]:
    """Return the prompts and more, with two lengths and two different prompts of one length, as in training."""
    if not prompts:
        raise MalformedInputError("a self-check needs prompts", found="no prompts")
    shortest = min(prompts, key=_length)
    tokens, pointers = shortest.token_ids, shortest.pointer_ids
    more = [Prompt(token_ids=tokens[::-1], pointer_ids=pointers[::-1])]
    if len(tokens) > 1:
        more.append(Prompt(token_ids=tokens[1:], pointer_ids=pointers))
    return [*prompts, *more]


def _length(prompt: Prompt) -> int:
    return len(prompt.token_ids)
