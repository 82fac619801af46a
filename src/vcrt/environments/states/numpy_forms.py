"""Write NumPy values in the canonical form of a state; loaded only after something else has loaded NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vcrt.environments.states.object_forms import WHOLE, Place, Row, without_form
from vcrt.hashing import Json

if TYPE_CHECKING:
    from vcrt.environments.states.object_states import StateWriter


def _random_state(writer: StateWriter, value: np.random.RandomState, where: Place) -> Json:
    state: Any = value.get_state(legacy=False)
    bits = writer.form(value._bit_generator, (where, ".{}", "_bit_generator"))
    return [repr(state["has_gauss"]), repr(state["gauss"]), bits]


def _bits(writer: StateWriter, value: np.random.BitGenerator, where: Place) -> Json:
    seeds: Any = value.seed_seq
    spawned = writer.form(seeds, (where, ".{}", "seed_seq"))
    return [type(value).__name__, repr(value.state), spawned]


def array_form(writer: StateWriter, value: np.ndarray[Any, Any], where: Place) -> Json:
    """Return the form of an array: its elements if they are numbers, the forms of its objects otherwise."""
    flags = memory_of(writer, value, where)
    if value.dtype.hasobject:
        elements = value.ravel().tolist()
        writer.kept.append(elements)
        parts: Json = [writer.form(v, (where, ".flat[{!r}]", i)) for i, v in enumerate(elements)]
        return {"numpy.ndarray": [[str(value.dtype), list(value.shape)], parts, *flags]}
    return {"array": [str(value.dtype), list(value.shape), _elements(value), *flags]}


def memory_of(writer: StateWriter, value: np.ndarray[Any, Any], where: Place) -> list[Json]:
    """Return how an array lies in its memory, where that is not the default.

    Refuse an array whose memory another array of the state, or an object that is no array, shares: copies part them.
    """
    owner: Any = value
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    foreign = owner.base if isinstance(owner, np.ndarray) else owner
    if foreign is not None and (not isinstance(foreign, bytes) or value.flags.writeable):
        raise without_form(
            value, where, f"an array in the memory of a {type(foreign).__qualname__}"
        )
    if writer.owners.setdefault(id(owner), value) is not value:
        raise without_form(value, where, "an array that shares its memory with another")
    writer.kept.append(owner)
    flags: list[Json] = [] if value.flags.writeable else ["read-only"]
    if value.ndim > 1 and not value.flags.c_contiguous:
        flags.append("F" if value.flags.f_contiguous else list(value.strides))
    if value.dtype.metadata:
        flags.append(repr(dict(value.dtype.metadata)))
    return flags


def _elements(value: Any) -> str:
    """Return the exact elements of an array or scalar; arrays with NaN by their bytes."""
    if value.dtype.kind in "fc" and bool(np.isnan(value).any()) and value.dtype.char not in "gG":
        return f"bytes {np.asarray(value).tobytes().hex()}"
    return repr(value.tolist())


def _dtype(writer: StateWriter, value: np.dtype[Any], where: Place) -> Json:
    return {"numpy.dtype": [repr(value), repr(dict(value.metadata or {}))]}


def _scalar(writer: StateWriter, value: np.generic, where: Place) -> Json:
    if isinstance(value, np.void) and (value.base is not None or value.dtype.hasobject):
        raise without_form(value, where, "an element of a structured array")
    return {"array": [str(value.dtype), list(np.shape(value)), _elements(value)]}


#: The classes of NumPy, in the form of the rows in :mod:`vcrt.environments.states.object_forms`.
ROWS: tuple[Row, ...] = (
    (
        np.random.Generator,
        "random",
        lambda to, value, at: to.form(value.bit_generator, (at, ".{}", "bit_generator")),
        True,
    ),
    (np.random.RandomState, "random", _random_state, True),
    (np.random.BitGenerator, "bits", _bits, True),
    (np.random.SeedSequence, "seeds", lambda _, value, at: repr(value.state), True),
    (np.dtype, WHOLE, _dtype, False),
    (np.generic, WHOLE, _scalar, False),
)
