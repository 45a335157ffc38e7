"""Bytes in a bucket of an S3-compatible server.

    prefix/files/KEY        a finished object; an unfinished upload has the same name, and an id
    prefix/.haulage         says that everything under prefix/files is ours to remove
    WORK/work/KEY           on the host of the build: where its source sorts

A build sends its parts while it writes (``upload.py``); the lane makes an object of them, which is there whole or not
at all. Which upload belongs to a key, and which parts have arrived, is asked of the server each time: so a supervisor
that died leaves nothing that the sweep of another host could not find.
"""

from __future__ import annotations

import errno
import hashlib
import math
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from haulage.artifacts.bucket import Bucket, Refusal
from haulage.artifacts.local import INSIDE, KEY, MARK, Examined, LocalArtifacts, known, strays
from haulage.artifacts.object_file import ObjectFile
from haulage.artifacts.trials import trials
from haulage.config import ObjectSettings
from haulage.core.errors import ArtifactsUnavailable, BuildFailed

LINK_SECONDS = 60  # how long a signed address is valid; it cannot be taken back
PARTS_MAX = 500  # of one upload; a larger file has larger parts
SIGNED_SECONDS_MAX = 7 * 24 * 60 * 60  # the protocol allows no more
COMPLETE_SECONDS = 15  # how long an answer to the last step is tried to be had
ABORTS = 5  # a part that is on its way can survive an abort
CHUNK_BYTES = 1024 * 1024
GONE = "there is no such bucket, or it was emptied"


class ObjectArtifacts:
    """Implements ``core.ports.Artifacts`` on the objects under one prefix of a bucket."""

    def __init__(self, url: str, settings: ObjectSettings, owner: str = "") -> None:
        """Name the place; nothing is asked of the server before it is needed.

        Args:
            owner: the id of the store whose files these are.
        """
        bucket, _, prefix = url.removeprefix("s3://").partition("/")
        self.place = url
        self.scratch = LocalArtifacts(Path(settings.work), owner)
        self._owner = owner
        self._settings = settings
        self._bucket = Bucket(settings, bucket)
        self._prefix = f"{prefix}/" if prefix else ""
        self._files = f"{self._prefix}files/"
        self._lock = threading.Lock()
        self._prepared = False

    def prepare(self, *, adopt: bool = False) -> None:
        """Make the folder of this host. The bucket is asked for nothing yet, so nothing waits for it at a start.

        Args:
            adopt: take over what another store has left, for good; that is done now.
        """
        self.scratch.prepare(adopt=adopt)
        if adopt:
            self._see_that_it_is_ours(adopt=True)

    def there(self) -> bool:
        """Say that there may be something; only the server could know better."""
        return True

    def release(self) -> None:
        """Take the mark away; whoever names the empty prefix next may have it."""
        self._bucket.delete(self._prefix + MARK)
        self.scratch.release()

    def _see_that_it_is_ours(self, *, adopt: bool = False) -> None:
        """See once that what lies under the prefix is ours, or make it so.

        Raises:
            ArtifactsUnavailable: the server does not say.
            OSError: the objects there are somebody else's.
        """
        with self._lock:
            if not self._prepared:
                with _there(self.place):
                    self._mark(adopt=adopt)
                self._prepared = True

    def _mark(self, *, adopt: bool) -> None:
        """The sweep removes what no run names: it must not be let loose on what is somebody's, or another store's."""
        marked = self._marked()
        if self._is_ours(marked):
            return
        if marked and not adopt:
            raise self._refusal(
                "holds the files of another store; name another prefix in artifacts, "
                "or, if that store is gone for good, run: haulage sweep --adopt"
            )
        if marked is None and self._holds_others(adopt=adopt):
            raise self._refusal("holds files that are not Haulage's; name another prefix")
        if marked is None and self._lies_in_anothers():
            raise self._refusal(INSIDE)
        name, written = self._prefix + MARK, self._owner.encode()
        try:
            # Two stores may be opened for the first time at once.
            self._bucket.put(name, written, **({"IfNoneMatch": "*"} if marked is None else {}))
        except Refusal as refusal:
            if refusal.status == 412:
                self._mark(adopt=adopt)
            elif refusal.status == 501:
                self._bucket.put(name, written)
            else:
                raise

    def _marked(self) -> str | None:
        """Whose the prefix is: the id of a store, nothing of a mark without one, None without a mark."""
        try:
            return self._bucket.content(self._prefix + MARK).decode(errors="replace").strip()
        except FileNotFoundError:
            list(self._bucket.names(self._prefix + MARK))  # A bucket that is not there says so.
            return None

    def _is_ours(self, marked: str | None) -> bool:
        return marked is not None and (not self._owner or marked == self._owner)

    def _holds_others(self, *, adopt: bool) -> bool:
        """Say whether something lies there that is not ours; who adopts may have lost the mark, but not the names."""
        names = [*self._bucket.names(self._files), *(name for name, _ in self._bucket.uploads(self._files))]
        return any(not adopt or not KEY.fullmatch(self._key_of(name)) for name in names)

    def _lies_in_anothers(self) -> bool:
        """Say whether another store's sweep would take us for bytes of nobody."""
        steps = self._prefix.split("/")
        outer = ["".join(f"{step}/" for step in steps[:at]) for at, step in enumerate(steps) if step == "files"]
        return any(name == prefix + MARK for prefix in outer for name in self._bucket.names(prefix + MARK))

    def _refusal(self, problem: str) -> OSError:
        return FileExistsError(errno.EEXIST, problem, self.place)

    # -- a build -----------------------------------------------------------------------------------

    def begin(self, key: str) -> Path:
        """Make the folder of one build on this host and give it."""
        return self.scratch.begin(key)

    def upload(self, key: str, file_bytes: int, seconds: float) -> Mapping[str, Any]:
        """Begin the upload of a build: its child gets addresses and no keys.

        Raises:
            BuildFailed: ``storage_failed``, ``storage_refused`` or ``no_space``.
        """
        part_bytes = max(self._settings.part_bytes, math.ceil(file_bytes / PARTS_MAX))
        parts = max(1, math.ceil(file_bytes / part_bytes))
        with _building():
            self._see_that_it_is_ours()
            if self._uploads(key):
                raise BuildFailed("storage_failed", cause="another upload has this name")
            ours = self._bucket.begin(self._name(key))
            for other in self._uploads(key):
                if other != ours:  # begun for us too, but the answer was lost and the client asked again
                    self._bucket.abort(self._name(key), other)
            valid_seconds = min(math.ceil(seconds) + 60, SIGNED_SECONDS_MAX)
            urls = self._bucket.addresses(self._name(key), ours, parts, valid_seconds)
        return {"part_bytes": part_bytes, "urls": urls, "ca_file": self._bucket.ca_file()}

    def publish(self, key: str, expected_bytes: int, *, sha256: str | None = None, etag: str | None = None) -> None:
        """Make an object of the parts, and see that it is whole; see ``core.ports.Artifacts``.

        The server's own digest proves it where the server names bytes as Amazon does; else it is read back.
        """
        name = self._name(key)
        with _building():
            uploads = self._uploads(key)
            if len(uploads) != 1:
                raise BuildFailed("storage_failed", cause=f"{len(uploads)} uploads have this name")
            parts = self._bucket.parts(name, uploads[0])
            sent = sum(size for _, size in parts.values())
            if sent != expected_bytes:
                raise BuildFailed("verify_failed", cause=f"{sent} bytes were sent instead of {expected_bytes}")
            self._complete(name, uploads[0], {number: etag for number, (etag, _) in parts.items()})
            size, found = self._bucket.head(name)
            if size != expected_bytes:
                raise BuildFailed("verify_failed", cause=f"{size} bytes in the bucket instead of {expected_bytes}")
            if sha256 is not None and found != etag and self._digest(name, size, found) != sha256:
                raise BuildFailed("verify_failed", cause="the bytes in the bucket are not the bytes written")
        with suppress(OSError):  # What stays there goes with the key.
            self.scratch.remove(key)

    def _complete(self, name: str, upload: str, etags: Mapping[int, str]) -> None:
        """Complete an upload, until it is known whether it was.

        Its answer can be lost after it was done. Asked again, the server says that there is no such upload, or that
        the object is there: that is then ours, since only this claim has its name.
        """
        give_up = time.monotonic() + COMPLETE_SECONDS
        pause, options = 0.1, {"IfNoneMatch": "*"}
        while True:
            try:
                self._bucket.complete(name, upload, etags, **options)
            except FileNotFoundError:
                self._bucket.head(name)
            except Refusal as refusal:
                if refusal.status == 412:
                    self._bucket.head(name)
                elif refusal.status == 501 and options:
                    options = {}  # This server cannot create only; the name is ours alone all the same.
                    continue
                elif not refusal.worth_another_try or time.monotonic() >= give_up:
                    raise
                else:
                    time.sleep(pause)
                    pause = min(2.0, pause * 2)
                    continue
            return

    def _digest(self, name: str, size: int, etag: str) -> str:
        digest = hashlib.sha256()
        with ObjectFile(self._bucket, name, size, etag) as opened:
            while chunk := opened.read(CHUNK_BYTES):
                digest.update(chunk)
        return digest.hexdigest()

    # -- a finished file ---------------------------------------------------------------------------

    def open(self, key: str) -> tuple[BinaryIO, int]:
        """A finished object and its size; each read asks for the same object as was measured here."""
        name = self._name(key)
        try:
            size, etag = self._bucket.head(name)
        except FileNotFoundError:
            with _there(self.place):
                marked = self._marked()
            if marked is None:  # not the file has gone, but the whole place
                raise ArtifactsUnavailable(errno.ENOENT, GONE, self.place) from None
            raise
        return ObjectFile(self._bucket, name, size, etag), size  # type: ignore[return-value]  # raw and read-only

    def link(self, key: str, *, disposition: str, media_type: str) -> str | None:
        """A signed address, where the settings want that."""
        if self._settings.download != "redirect":
            return None
        return self._bucket.link(self._name(key), LINK_SECONDS, disposition, media_type)

    # -- removing ----------------------------------------------------------------------------------

    def remove(self, key: str) -> bool:
        """Remove everything of a key. The unfinished goes first: a completion that comes too late fails."""
        found = self.scratch.remove(key)
        prefix = self._name(key)
        for _ in range(ABORTS):
            uploads = [each for each in self._bucket.uploads(prefix) if self._key_of(each[0]) == key]
            if not uploads:
                break
            found = True
            for name, upload in uploads:
                self._bucket.abort(name, upload)
        else:
            raise ArtifactsUnavailable("an upload is still there after it was aborted")
        for name in self._bucket.names(prefix):
            if self._key_of(name) == key:
                self._bucket.delete(name)
                found = True
        return found

    def size(self, key: str) -> int:
        """Bytes that lie under a key; what cannot be looked at counts nothing."""
        found, prefix = self.scratch.size(key), self._name(key)
        with suppress(OSError):
            found += sum(size for name, size in self._bucket.sizes(prefix) if self._key_of(name) == key)
            for name, upload in self._bucket.uploads(prefix):
                if self._key_of(name) == key:
                    found += sum(size for _, size in self._bucket.parts(name, upload).values())
        return found

    def keys(self) -> list[str]:
        """Every key that objects, unfinished uploads, or folders of this host have."""
        self._see_that_it_is_ours()
        with _there(self.place):
            marked = self._marked()
        if marked and not self._is_ours(marked):
            return []  # Another store has adopted the prefix meanwhile: nothing here is ours to remove.
        found = set(self.scratch.keys())
        found.update(self._key_of(name) for name in self._bucket.names(self._files))
        found.update(self._key_of(name) for name, _ in self._bucket.uploads(self._files))
        return sorted(found - {""})

    # -- looking -----------------------------------------------------------------------------------

    def check(self) -> None:
        """See that an object can be written and removed."""
        self._see_that_it_is_ours()
        probe = f"{self._files}probe-{os.urandom(8).hex()}"  # where the sweep finds what a crash leaves
        with _there(self.place):
            self._bucket.put(probe, b"haulage")
            self._bucket.delete(probe)

    def examine(self, still_bytes: int) -> Iterator[Examined]:
        """Everything that is asked of a server, tried out; for ``haulage doctor``."""
        try:
            self._see_that_it_is_ours()
        except FileExistsError as problem:
            yield "FAIL", f"{self.place} {problem.strerror}", ""
            return
        except OSError:
            pass  # The trials say what it is.
        yield from trials(self._bucket, f"{self._files}probe-{os.urandom(8).hex()}", self.place, self._settings)
        with suppress(OSError):  # said by the trials
            yield from strays(self._bucket.beside(self._prefix), {MARK, "files/", ""})
        yield from self.scratch.examine(0)

    def _name(self, key: str) -> str:
        return self._files + known(key)

    def _key_of(self, name: str) -> str:
        """The key of an object; what lies deeper, as in a folder, goes with its first step."""
        return name.removeprefix(self._files).partition("/")[0]

    def _uploads(self, key: str) -> list[str]:
        name = self._name(key)
        return [upload for found, upload in self._bucket.uploads(name) if found == name]


@contextmanager
def _building() -> Iterator[None]:
    """What goes wrong while a file is made ends its build with a code."""
    try:
        yield
    except Refusal as refusal:
        raise BuildFailed(refusal.failure, cause=str(refusal)) from refusal
    except OSError as problem:
        raise BuildFailed("storage_failed", cause=str(problem)) from problem


@contextmanager
def _there(place: str) -> Iterator[None]:
    """A bucket that is not there says nothing about files that were in it."""
    try:
        yield
    except FileNotFoundError as problem:
        raise ArtifactsUnavailable(errno.ENOENT, GONE, place) from problem
