"""One build: count, write and measure inside one read transaction of the source.

It runs in the child of a worker and knows nothing of the queue: a frozen order comes in, bytes go to a sink,
progress and the result go to a report. Cancel and limits of time are the supervisor's: it ends this process.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

from haulage.core.errors import BuildFailed
from haulage.core.progress import Phase, Progress
from haulage.core.reading import TAIL_BYTES
from haulage.core.source import CountsBeside
from haulage.exports.fits import Total, offer_of, refuse_columns, refuse_rows
from haulage.exports.reading import is_of_cells, reading_of
from haulage.exports.revision import revision_in
from haulage.formats import FORMATS
from haulage.formats.compression import COMPRESSIONS
from haulage.formats.format import About, LooksFirst, TakesText, Unfit

if TYPE_CHECKING:  # only types: a child starts for every run, and a user waits for it
    from haulage.core.ports import Sink
    from haulage.core.reading import Measured, Reading
    from haulage.core.source import Batches, Snapshot, Source, Stream
    from haulage.exports.grouped import GroupedSnapshot
    from haulage.formats import Encoder, Notices
    from haulage.formats.compression import Compressor

CHUNK_BYTES = 64 * 1024  # what is gathered before it is written: larger pieces are not copied for it
TEXTUAL = ("csv",)  # formats in which a number is the text that its source has for it
FACTS = ("no_snapshot", "total_changed", "parallel_not_used")  # notices that are true or not, and count nothing
PROFILES = {("csv", "exact"): "csv"}  # (format, dialect) -> what a source may make by itself
# The same for what a source may begin, and find that it cannot: where a file can be begun anew.
IF_FIT_PROFILES = {("csv", "exact"): "csv if fit", ("csv", "rfc4180"): "csv with crlf if fit"}


class BuildOrder(NamedTuple):
    """Everything a child needs, frozen; it travels as one line of JSON on the child's standard input."""

    source_url: str
    busy_seconds: float
    folder: str
    plan: Mapping[str, Any]
    format: str
    options: Mapping[str, str]
    compression: str | None
    file_bytes: int
    reserved_bytes: int
    progress_seconds: float
    upload: Mapping[str, Any] | None = None  # where the parts of the file go, if not into the folder
    seconds: float | None = None  # how long a statement may take in a database; the supervisor counts more exactly
    connections: int = 1  # to a database, at most; as many slots of the pool are ours, or idle
    host: Mapping[str, Any] | None = None  # for code of the host: who asked, its environment, where its modules are

    def to_json(self) -> str:
        """As one line."""
        return json.dumps(self._asdict()) + "\n"

    @staticmethod
    def from_json(line: str) -> BuildOrder:
        """From that line."""
        return BuildOrder(**json.loads(line))


class Built(NamedTuple):
    """What stands in the finished file, measured on the way."""

    rows: int | None
    total: int | None
    snapshot_at: int | None
    columns: tuple[Mapping[str, Any], ...]
    notices: tuple[Mapping[str, Any], ...]
    bytes: int
    sha256: str
    etag: str | None
    complete: bool = True  # as far as its maker says
    policy_revision: str | None = None  # as a query answered in the snapshot
    logical_count: int | None = None  # of a grouped file, how many groups it holds


def build(
    order: BuildOrder,
    source: Source,
    sink: Sink,
    report: Callable[[Progress], None],
    entered: Callable[[str], None] = lambda _session: None,
) -> Built:
    """Build one file.

    Args:
        report: told of each phase at its start, then about every ``progress_seconds``, and at the last record.
        entered: told what names our session to the server of the source, if there is one.

    Raises:
        BuildFailed: with the code of what ended it.
    """
    reading = reading_of(order.plan)._replace(as_text=order.format in TEXTUAL)
    report(Progress(Phase.AGGREGATING if "grouped" in order.plan else Phase.COUNTING, None, None))
    with source.snapshot() as read:
        if read.session is not None:
            entered(read.session)
        policy = order.plan.get("policy", {})
        revision = revision_in(read, policy, reading.session) if "sql" in policy else None
        groups = _groups(order, read) if "grouped" in order.plan else None
        snapshot = groups or read
        report = groups.reporting(report) if groups else report
        FORMATS[order.format].load()
        total = _counted(order, snapshot, reading, entered)
        columns = snapshot.columns(reading)
        refuse_columns(order, len(columns))
        about = About(snapshot.at, offer_of(order), total.now())
        file = _File(order, source, snapshot, reading, sink, report)
        encoder = FORMATS[order.format].open(columns, order.options, about)
        try:
            writer, rows = file.written(encoder, total, file.taking_text(encoder))
        except Unfit:
            file.undo()
            encoder = FORMATS[order.format].open(columns, order.options, about)
            writer, rows = file.written(encoder, total)
        at, replaced = snapshot.at, Counter(dict(snapshot.notices)) - file.seen
    if at is None:
        replaced["no_snapshot"] = 1
    if total.has_changed:
        replaced["total_changed"] = 1
    report(Progress(Phase.PUBLISHING, rows, total.rows))
    measured = writer.finish(reread=order.plan.get("verify") == "full")
    replaced.update(dict(encoder.notices.items()))
    return Built(
        rows=rows,
        total=total.rows,
        snapshot_at=at,
        columns=tuple({"key": each.key, "header": each.header, "type": each.type} for each in columns),
        notices=tuple(_notices(replaced, encoder.notices, order.plan)),
        bytes=measured.size,
        sha256=measured.sha256,
        etag=measured.etag,
        policy_revision=revision,
        logical_count=None if groups is None else groups.groups,
    )


def _counted(order: BuildOrder, snapshot: Snapshot, reading: Reading, entered: Callable[[str], None]) -> Total:
    """Count the rows, first or beside the rest; first where a format can hold only so many."""
    limits = order.plan["limits"]
    if isinstance(snapshot, CountsBeside) and FORMATS[order.format].rows_max is None:
        counting = snapshot.counting(reading, limits["count_seconds"])
        if counting is not None:
            entered(snapshot.session or "")
            return Total(order, None, counting)
    return Total(order, snapshot.count(reading, limits["count_seconds"], limits["sort_bytes"]), None)


def _groups(order: BuildOrder, snapshot: Snapshot) -> GroupedSnapshot:
    """The groups of a snapshot; only a child that groups loads what does that."""
    from haulage.exports.grouped import GroupedSnapshot

    return GroupedSnapshot(snapshot, order.plan["grouped"], order.plan["limits"], cells=is_of_cells(order.format))


class _File:
    """One file out of a snapshot, by one of two ways that give the same bytes: as values, or as text of the source."""

    def __init__(
        self,
        order: BuildOrder,
        source: Source,
        snapshot: Snapshot,
        reading: Reading,
        sink: Sink,
        report: Callable[[Progress], None],
    ) -> None:
        self._order = order
        self._source = source
        self._snapshot = snapshot
        self._reading = reading
        self._sink = sink
        self._report = report
        self._is_first = True  # nothing was undone yet
        self.seen: Counter[str] = Counter()  # what the source had to change in a first reading

    def taking_text(self, encoder: Encoder) -> TakesText | None:
        """The encoder, where the source gives such text as it takes."""
        if isinstance(encoder, TakesText) and self._snapshot.stream(self._reading, encoder.profile) is not None:
            return encoder
        return None

    def written(self, encoder: Encoder, total: Total, by_text: TakesText | None = None) -> tuple[_Writer, int]:
        """Write all rows; gives how many they are.

        Raises:
            Unfit: some text can only be read as values; ``undo`` what was written.
        """
        total.begin_anew()
        if by_text is not None:
            if by_text.must_look() or not self._sink.rewinds:
                self._look(self._looked_text(by_text), total)
        elif isinstance(encoder, LooksFirst):
            self._look(self._looked_values(encoder), total)
            self.seen = Counter(dict(self._snapshot.notices))
        writer = _Writer(self._sink, encoder, self._order.compression)
        self._report(Progress(Phase.WRITING, 0, total.now()))
        exact = self._snapshot.at is not None
        with closing(self._values(encoder) if by_text is None else self._text(by_text)) as pieces:
            return writer, _write(self._order, pieces, writer, total, self._report, exact=exact)

    def undo(self) -> None:
        """Begin anew; nothing stands in the file, and nothing is said to."""
        if self._sink.rewinds:
            self._sink.rewind()
        self._is_first = False
        self._report(Progress(Phase.COUNTING, None, None))

    def _look(self, looked: Generator[int, None, None], total: Total) -> None:
        """Let an encoder see every row before it begins: so they are counted, too."""
        rows = 0
        with closing(looked):
            for more in looked:
                rows += more
                refuse_rows(self._order, rows)
        total.looked(rows, exact=self._snapshot.at is not None)

    def _looked_values(self, encoder: LooksFirst) -> Generator[int, None, None]:
        with closing(self._batches()) as batches:
            for batch in batches:
                yield len(batch)
                encoder.look(batch)

    def _looked_text(self, encoder: TakesText) -> Generator[int, None, None]:
        with closing(self._stream(encoder.profile)) as pieces:
            for more, data in pieces:
                yield more
                encoder.look_text(data)

    def _values(self, encoder: Encoder) -> Generator[tuple[int, bytes], None, None]:
        """The rows as bytes, and how many more they are: as the source itself makes them, or else by our encoder."""
        stream = self._made_by_source()
        if stream is not None:
            yield from chunks_of(stream)
            return
        with closing(self._batches()) as batches:
            for batch in batches:
                yield len(batch), encoder.rows(batch)

    def _made_by_source(self) -> Stream | None:
        """What it makes by itself, and surely, or else what it may begin."""
        which = self._order.format, self._order.options.get("dialect", "")
        profiles = [PROFILES.get(which), IF_FIT_PROFILES.get(which) if self._is_first and self._sink.rewinds else None]
        streams = (self._snapshot.stream(self._reading, profile) for profile in profiles if profile is not None)
        return next(filter(None, streams), None)

    def _text(self, encoder: TakesText) -> Generator[tuple[int, bytes], None, None]:
        with closing(self._stream(encoder.profile)) as pieces:
            for more, data in pieces:
                try:
                    made = encoder.text(data, more)
                except Unfit as problem:
                    if self._sink.rewinds:
                        raise
                    raise BuildFailed("values_changed", cause="a text that was looked at") from problem
                del data  # large ones do not wait together with what comes after them
                yield more, made
                del made

    def _batches(self) -> Batches:
        return self._snapshot.batches(self._reading, self._order.plan["limits"]["sort_bytes"])

    def _stream(self, profile: str) -> Generator[tuple[int, bytes], None, None]:
        from haulage.exports.ahead import ahead

        stream = self._snapshot.stream(self._reading, profile)
        assert stream is not None, "taking_text has seen it"
        return ahead(chunks_of(stream), self._source.cancel)


def chunks_of(stream: Stream) -> Generator[tuple[int, bytes], None, None]:
    """The chunks of a stream with how many more rows each has; the last corrects the count by the source's own."""
    told = 0
    with closing(stream.chunks()) as chunks:
        for chunk in chunks:
            yield stream.rows - told, chunk
            told = stream.rows


def _write(
    order: BuildOrder,
    pieces: Iterator[tuple[int, bytes]],
    writer: _Writer,
    total: Total,
    report: Callable[[Progress], None],
    *,
    exact: bool,
) -> int:
    """Write every piece; report what really stands in the file, never what is only on its way. Gives the rows."""
    every = order.progress_seconds
    rows = 0
    due = time.monotonic() + every
    for more, data in pieces:
        rows += more
        refuse_rows(order, rows)
        total.came(rows, exact=exact)
        writer.add(data)
        if time.monotonic() >= due:
            writer.flush()
            report(Progress(Phase.WRITING, rows - writer.held, total.now()))
            due = time.monotonic() + every
        del data
    total.came(rows, exact=exact, at_end=True)
    writer.end()
    report(Progress(Phase.WRITING, rows, total.rows))
    return rows


def _notices(counted: Mapping[str, int], notices: Notices, plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if not plan.get("order_fixed", True):  # a row frozen before this was noted says nothing
        yield {"code": "order_not_fixed"}
    for code, count in sorted(counted.items()):
        columns = notices.columns(code)
        counts = {} if code in FACTS else {"count": count}
        yield {"code": code} | counts | ({"columns": columns} if columns else {})


class _Writer:
    """Encoder, compressor and sink in a row, with small pieces gathered into large writes."""

    def __init__(self, sink: Sink, encoder: Encoder, compression: str | None) -> None:
        self._sink = sink
        self._encoder = encoder
        self._compressor: Compressor | None = COMPRESSIONS[compression].open() if compression else None
        self._gathered: list[bytes] = []
        self._size = 0
        self._ending = b""
        self.add(encoder.begin())

    @property
    def held(self) -> int:
        """Rows that are on their way."""
        return self._encoder.held

    def end(self) -> None:
        """Close the format and the compression, so that every row stands in the file."""
        self.add(self._encoder.end())
        if self._compressor is not None:
            self._ending = self._compressor.finish()
            self._gather(self._ending)
        else:
            self._ending = self._encoder.trailer
        self.flush()

    def finish(self, *, reread: bool) -> Measured:
        """Sync the file and see that it ends on the disk as its format ends (DECISIONS 12)."""
        measured = self._sink.finish(reread=reread)
        if not measured.tail.endswith(self._ending[-TAIL_BYTES:]):
            raise BuildFailed("verify_failed", cause="the file does not end as its format ends")
        return measured

    def add(self, data: bytes) -> None:
        """What stands next in the file, to be compressed and written."""
        self._gather(data if self._compressor is None else self._compressor.compress(data))
        if self._size >= CHUNK_BYTES:
            self.flush()

    def _gather(self, data: bytes) -> None:
        if data:
            self._gathered.append(data)
            self._size += len(data)

    def flush(self) -> None:
        """Hand what is gathered to the sink."""
        if self._gathered:
            self._sink.write(b"".join(self._gathered))
            self._gathered.clear()
            self._size = 0
