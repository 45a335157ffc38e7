"""What goes out of the doors, as the OpenAPI document states it.

Answers are written by ``exports/show.py`` and beside the routes; these models say what they hold, and a test
compares them with what is really answered. What comes in is in ``shapes.py``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from haulage.web.shapes import Count, Instant, Shape, State, Value


class ProgressShown(Shape):
    """Records that stand in the file, of how many; null is not known. ``logical_count``: groups without subtotals."""

    processed: Count | None
    total: Count | None
    unit: Literal["rows", "pivot_cells"]
    logical_count: Count | None
    logical_count_unit: Literal["regular_result_rows"] | None


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
    parent_kind: str | None
    parent: str | None
    format: str
    compression: str | None
    options: dict[str, str] | None
    parameters: dict[str, Value] | None
    columns: list[str] | None
    group_by: list[str] | None
    subtotals: str | list[list[str]] | None
    pivot: list[str] | None
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


class ParentShown(Shape):
    """The kind of parent that each export of a dataset belongs to."""

    kind: str
    label: str
    type: Literal["text", "integer"]


class ParentGoneShown(Shape):
    """How many exports of a parent were cancelled, can only end cancelled, and lost their file."""

    cancelled: Count
    stopping: Count
    expired: Count


class DimensionShown(Shape):
    """What rows can be grouped by."""

    name: str
    label: str


class MeasureShown(Shape):
    """What is measured of a group."""

    name: str
    label: str
    function: Literal["count", "count_distinct", "sum", "avg", "min", "max"]


class DatasetShown(Shape):
    """One thing that can be exported; ``columns`` is null without the permission, or while its source cannot tell."""

    name: str
    label: str
    description: str
    permitted: bool
    parent: ParentShown | None
    parameters: list[ParameterShown]
    formats: list[FormatShown]
    columns: list[ColumnShown] | None
    dimensions: list[DimensionShown]
    measures: list[MeasureShown]


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


class PreviewGrouping(Shape):
    """How many of the first columns are dimensions, behind those that say what a row is, and how many are measures."""

    marks: Count
    dimensions: Count
    measures: Count


class PreviewShown(Shape):
    """The first rows of what an export would write."""

    columns: list[ColumnShown]
    rows: list[list[Any]]
    more: bool
    grouped: PreviewGrouping | None
    logical_count: Count | None
    snapshot_at: Instant | None


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
