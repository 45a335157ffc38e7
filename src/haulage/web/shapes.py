"""What comes in at the doors, read by these models; bounds are part of a shape. What goes out is in ``shown.py``."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal

from fastapi import Path
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from haulage.core.limits import DoorLimits
from haulage.core.requester import ID_MAX
from haulage.exports.grouping import DIMENSIONS_MAX, Grouping
from haulage.exports.life import ExportLife, S
from haulage.exports.plan import Asked

PAGE_SIZE_MAX = DoorLimits().page_size
TEXT_OF_TOKENS = r"^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]{43}$"
NAME_PATTERN = r"^[a-z][a-z0-9_]*$"

# The pattern is said and not enforced: a malformed token is the same 404 as one that was never issued.
RunToken = Annotated[
    str,
    Path(description="The run's token."),
    WithJsonSchema({"type": "string", "pattern": TEXT_OF_TOKENS, "maxLength": 512}),
]
FileToken = Annotated[
    str,
    Path(description="A file token."),
    WithJsonSchema({"type": "string", "pattern": TEXT_OF_TOKENS, "maxLength": 512}),
]
DatasetName = Annotated[
    str, Path(description="A dataset."), WithJsonSchema({"type": "string", "pattern": NAME_PATTERN, "maxLength": 63})
]
State = Annotated[S, WithJsonSchema({"type": "string", "enum": list(ExportLife.states)})]
Instant = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
Count = Annotated[int, Field(ge=0)]


def _text_or_number(value: Any) -> Any:
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise PydanticCustomError("id", "write a text or a whole number")
    return value


# What else can be an id is said by the kind of the parent, with everything else that is wrong.
Id = Annotated[
    Any,
    AfterValidator(_text_or_number),
    WithJsonSchema({"type": ["string", "integer"], "minLength": 1, "maxLength": ID_MAX}),
]
Scalar = str | int | float | Decimal | bool | None


def _scalar_or_list(value: Any) -> Any:
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(item, Scalar) for item in items):
        raise PydanticCustomError("scalar", "write text, a number, true, false, null, or a list of these")
    return value


Subtotals = Literal["total", "rollup", "cube"] | Annotated[list[list[str]], Field(max_length=1_000)]
_SCALAR = {"type": ["string", "number", "boolean", "null"]}
Value = Annotated[
    Any, AfterValidator(_scalar_or_list), WithJsonSchema({"anyOf": [_SCALAR, {"type": "array", "items": _SCALAR}]})
]


class Shape(BaseModel):
    """A JSON object with these members and no others."""

    model_config = ConfigDict(extra="forbid")


class ExportWish(Shape):
    """What is to be exported, and how."""

    dataset: Annotated[str, Field(max_length=63)]
    format: Annotated[str, Field(max_length=32)] = "csv"
    parameters: dict[str, Value] = {}
    columns: Annotated[list[str], Field(min_length=1, max_length=1_000)] | None = None
    compression: Annotated[str, Field(max_length=32)] | None = None
    options: dict[str, str] | None = None
    group_by: Annotated[list[str], Field(min_length=1, max_length=DIMENSIONS_MAX)] | None = None
    subtotals: Annotated[Subtotals | None, Field(description="Which levels are added up; [] is the grand total.")] = (
        None
    )
    pivot: Annotated[list[str], Field(min_length=1, max_length=DIMENSIONS_MAX)] | None = None
    parent: Annotated[Id | None, Field(description="What the export belongs to, where its dataset has parents.")] = None

    def asked(self) -> Asked:
        """As the service takes it."""
        options = self.options or {}
        grouping = Grouping(self.group_by, self.subtotals, self.pivot)
        return Asked(
            self.dataset, self.format, self.parameters, self.columns, self.compression, options, self.parent, grouping
        )


class ParentEnded(Shape):
    """A parent that is not there any more; of one's own tenant, where none is named."""

    kind: Annotated[str, Field(pattern=NAME_PATTERN, max_length=63)]
    parent: Id
    tenant: Annotated[str, Field(min_length=1, max_length=ID_MAX)] | None = None


class KeyShown(Shape):
    """A key that becomes a session."""

    key: Annotated[str, Field(min_length=1, max_length=512)]


class ListQuery(Shape):
    """Which runs, and which page of them."""

    state: State | None = None
    dataset: Annotated[str, Field(pattern=NAME_PATTERN, max_length=63)] | None = None
    parent: Annotated[str, Field(min_length=1, max_length=ID_MAX, description="The exports of this one.")] | None = None
    parent_kind: Annotated[str, Field(pattern=NAME_PATTERN, max_length=63)] | None = None
    limit: Annotated[int, Field(ge=1, le=PAGE_SIZE_MAX)] = 50
    cursor: Annotated[str, Field(max_length=512, description="next_cursor of the page before.")] | None = None
    everyone: Annotated[bool, Field(description="Runs of every account, for the operator.")] = False
