"""Define base classes for the fields of documents as pydantic models, and name the field that is wrong.

This is apart from :mod:`vcrt.documents` because importing pydantic takes longer than reading most documents.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, NamedTuple, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from vcrt.printable import counted

#: The longest name of a field in an error, in characters; a document may have any.
_MAX_FIELD = 200
#: The most faults that are looked at: each costs some hundred bytes, and a document may have millions.
_MAX_FAULTS = 10_000

Digest: TypeAlias = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Count: TypeAlias = Annotated[int, Field(ge=0)]


class Strict(BaseModel):
    """A model of a document with exactly these fields, each strictly of its type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ClosedModel(BaseModel):
    """A model of a file that refuses other fields; fields of ``left_out`` are not written at their default."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    left_out: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _without_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        value: dict[str, Any] = handler(self)
        for name in self.left_out:
            field = type(self).model_fields[name]
            if getattr(self, name) == field.get_default(call_default_factory=True):
                value.pop(name, None)
        return value


class FieldError(NamedTuple):
    """The path of a field that is wrong, and why it is wrong."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"field {self.field}: {self.message}"


def first_error(error: ValidationError) -> FieldError:
    """Return the first field that pydantic found wrong.

    The inputs are left out, because pydantic would copy them for every fault. It also copies them where it reads JSON
    by itself: therefore :func:`strict_json` reads untrusted documents, and pydantic validates the values.
    """
    count = error.error_count()
    if count > _MAX_FAULTS:
        return FieldError("(root)", f"{counted(count, 'fault')}")
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    name = ".".join(str(part) for part in first["loc"]) or "(root)"
    # pydantic names its own classes here.
    is_object = first["type"] in ("model_type", "dataclass_type")
    message = "Input should be an object" if is_object else first["msg"]
    return FieldError(name[:_MAX_FIELD], message)


def in_a_line(error: Exception) -> str:
    """Write an error of reading a document in one line; for a pydantic error, write only the first field."""
    if isinstance(error, ValidationError):
        return str(first_error(error))
    return next(iter(str(error).splitlines()), "") or type(error).__name__
