"""What goes in and out of the doors, as the OpenAPI document states it; bounds are part of the shape.

Requests are read by these models. Answers are written by ``exports/show.py`` and its like; the models say what
they hold, and a test compares them with what is really answered.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal

from fastapi import Path
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from haulage.core.limits import DoorLimits
from haulage.exports.life import ExportLife, S

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

Scalar = str | int | float | Decimal | bool | None


def _scalar_or_list(value: Any) -> Any:
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(item, Scalar) for item in items):
        raise PydanticCustomError("scalar", "write text, a number, true, false, null, or a list of these")
    return value


_SCALAR = {"type": ["string", "number", "boolean", "null"]}
Value = Annotated[
    Any, AfterValidator(_scalar_or_list), WithJsonSchema({"anyOf": [_SCALAR, {"type": "array", "items": _SCALAR}]})
]


class Shape(BaseModel):
    """A JSON object with these members and no others."""

    model_config = ConfigDict(extra="forbid")


# -- requests ------------------------------------------------------------------------------------------


class ExportWish(Shape):
    """What is to be exported, and how."""

    dataset: Annotated[str, Field(max_length=63)]
    format: Annotated[str, Field(max_length=32)] = "csv"
    parameters: dict[str, Value] = {}
    columns: Annotated[list[str], Field(min_length=1, max_length=1_000)] | None = None
    compression: Annotated[str, Field(max_length=32)] | None = None
    options: dict[str, str] | None = None


class KeyShown(Shape):
    """A key that becomes a session."""

    key: Annotated[str, Field(min_length=1, max_length=512)]


class ListQuery(Shape):
    """Which runs, and which page of them."""

    state: State | None = None
    dataset: Annotated[str, Field(pattern=NAME_PATTERN, max_length=63)] | None = None
    limit: Annotated[int, Field(ge=1, le=PAGE_SIZE_MAX)] = 50
    cursor: Annotated[str, Field(max_length=512, description="next_cursor of the page before.")] | None = None
    everyone: Annotated[bool, Field(description="Runs of every account, for the operator.")] = False


# -- answers -------------------------------------------------------------------------------------------


class ProgressShown(Shape):
    """Rows that stand in the file, of how many; null is not known."""

    processed: Count | None
    total: Count | None
    unit: str
    logical_count: Count | None
    logical_count_unit: str | None


class ColumnShown(Shape):
    """One column of a file."""

    key: str
    header: str
    type: str | None


class FileShown(Shape):
    """The facts of a ready file."""

    name: str
    media_type: str
    bytes: Count
    rows: Count | None
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    snapshot_at: Instant | None
    columns: list[ColumnShown]


class NoticeShown(BaseModel):
    """Something about a file that its reader should know."""

    model_config = ConfigDict(extra="allow")
    code: str


class FailureShown(Shape):
    """Why there is no file."""

    code: str
    message: str


class RunShown(BaseModel):
    """A run. Members may be added; null is not known, or not yet."""

    model_config = ConfigDict(extra="allow")
    id: str
    token: str
    flow: Literal["export"]
    dataset: str
    format: str
    compression: str | None
    options: dict[str, str]
    parameters: dict[str, Value]
    columns: list[str] | None
    state: State
    phase: Literal["counting", "aggregating", "writing", "publishing"] | None
    cancel_requested_at: Instant | None
    progress: ProgressShown
    queue_position: Annotated[int, Field(ge=1, description="The place in the claim order now; it may change.")] | None
    revision: int
    as_of: Instant
    requested_at: Instant
    started_at: Instant | None
    heartbeat_at: Instant | None
    updated_at: Instant | None
    finished_at: Instant | None
    expires_at: Instant | None
    file: FileShown | None
    complete: bool | None
    notices: list[NoticeShown]
    failure: FailureShown | None


class RunPage(Shape):
    """Runs, newest first."""

    items: list[RunShown]
    next_cursor: str | None


class LinkShown(Shape):
    """Where a file can be fetched, until when."""

    url: str
    expires_at: Instant


class ChoiceShown(BaseModel):
    """One value that may be chosen."""

    model_config = ConfigDict(extra="allow")
    value: str
    label: str


class ParameterShown(Shape):
    """One condition of a dataset."""

    name: str
    type: Literal["text", "integer", "decimal", "boolean", "date", "timestamp", "choice"]
    label: str
    required: bool
    default: Value
    choices: list[ChoiceShown] | None
    list: bool


class OptionShown(Shape):
    """One choice within a format."""

    name: str
    label: str
    choices: list[ChoiceShown]
    default: str


class CompressionShown(Shape):
    """One way to make the file smaller; ``missing`` says what to install first."""

    value: str
    label: str
    missing: str | None


class FormatShown(Shape):
    """One format of a dataset."""

    name: str
    label: str
    media_type: str
    options: list[OptionShown]
    compressions: list[CompressionShown]
    missing: str | None


class DatasetShown(Shape):
    """One thing that can be exported; ``columns`` is null without the permission, or while its source cannot tell."""

    name: str
    label: str
    description: str
    permitted: bool
    parameters: list[ParameterShown]
    formats: list[FormatShown]
    columns: list[ColumnShown] | None


class DatasetList(Shape):
    """The catalogue as the requester sees it."""

    items: list[DatasetShown]


class CountsShown(Shape):
    """How many rows the conditions give; null is not counted, or not for this requester to know."""

    output_count: Count | None
    visible_output_count: Count | None
    population_count: Count | None
    population_count_computed: bool
    counted_at: Instant | None


class SessionShown(Shape):
    """Who asks; all null after signing out."""

    account: str | None
    tenant: str | None
    grants: list[str]
    csrf: str | None
    sign_out: bool


class WorkerShown(Shape):
    """One living worker."""

    id: str
    host: str
    pid: int
    version: str
    state: str
    lanes: int
    started_at: Instant
    seen_at: Instant
    only_run: str | None


class SlotsShown(Shape):
    """Builds at once, over all hosts."""

    total: int
    taken: int


class WorkerList(Shape):
    """Who is alive."""

    items: list[WorkerShown]
    slots: SlotsShown
    waiting: int


class StorageShown(Shape):
    """Bytes of the storage budget; null where only the operator may know."""

    used_bytes: Count | None
    reserved_bytes: Count | None
    budget_bytes: Count | None
    own_bytes: Count


class HealthShown(Shape):
    """This process can serve."""

    status: Literal["ok"]
    checks: dict[str, Literal["ok"]]
    workers: Count | None


class FaultShown(Shape):
    """One thing wrong with what was sent."""

    pointer: str
    detail: str


class Problem(BaseModel):
    """RFC 9457. ``state`` of the run and the number of an ``incident`` are there where they apply."""

    model_config = ConfigDict(extra="allow")
    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[FaultShown]
    state: str | None = None
    incident: str | None = None
