"""What is asked of a server of objects, tried out one after the other; for ``haulage doctor``."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator
from urllib.parse import urlsplit

from haulage.artifacts.bucket import Bucket, Refusal
from haulage.artifacts.local import Examined
from haulage.config import ObjectSettings

BYTES = b"haulage"
WRONG_MD5 = "AAAAAAAAAAAAAAAAAAAAAA=="
LINK_SECONDS = 10


def trials(bucket: Bucket, name: str, place: str, settings: ObjectSettings) -> Iterator[Examined]:
    """Write, list, read and remove one object, and begin an upload; what is tried leaves nothing behind."""
    try:
        list(bucket.names(name))  # Some servers make a bucket that is written to.
        yield from _one_object(bucket, name, settings)
        yield from _one_upload(bucket, name)
    except FileNotFoundError:
        yield "FAIL", f"{place}: there is no such bucket", "make it, or name another in artifacts"
        return
    except Refusal as refusal:
        if refusal.failure == "storage_refused":
            do = "let the keys of [objects] write, read, list and remove objects and uploads under this prefix"
        else:
            do = "see objects.endpoint, and whether the server is up and has room"
        yield "FAIL", f"{place}: the server answered {refusal}", do
        return
    if bucket.keeps_versions():
        what = f"{place}: the bucket keeps old versions, so removed files stay"
        yield "WARN", what, "switch versioning off, or let the bucket's rules remove old versions after a day"


def _one_object(bucket: Bucket, name: str, settings: ObjectSettings) -> Iterator[Examined]:
    bucket.put(name, BYTES)
    try:
        if name not in bucket.names(name):
            yield "FAIL", "an object that was written is not listed", "use a server that lists what was written"
        size, etag = bucket.head(name)
        if (size, bucket.get(name, 0, etag).read()) != (len(BYTES), BYTES):
            yield "FAIL", "an object that was read is not the one that was written", "use another server"
        else:
            yield "OK", "an object can be written, listed and read", ""
        if settings.download == "redirect":
            yield _link(bucket, name)
    finally:
        bucket.delete(name)
    try:
        bucket.put(name, BYTES, ContentMD5=WRONG_MD5)
    except Refusal as refusal:
        if refusal.status != 400:
            raise
        yield "OK", "bytes that were changed on their way are refused", ""
    else:
        bucket.delete(name)
        what = "the server takes bytes that were changed on their way"
        yield "WARN", what, "each file is read back then, since its digest will not match"
    try:
        bucket.head(name)
    except FileNotFoundError:
        yield "OK", "an object can be removed", ""
    else:
        yield "FAIL", "an object that was removed is still there", "use a server that removes at once"


def _one_upload(bucket: Bucket, name: str) -> Iterator[Examined]:
    bucket.begin(name)
    listed = bucket.uploads(name)
    for found, upload in listed:
        bucket.abort(found, upload)
    if not listed:
        what = "the server does not list unfinished uploads, so those of a killed worker would stay"
        yield "FAIL", what, "use another server, or let the keys of [objects] list them"
    elif bucket.uploads(name):
        yield "FAIL", "an upload that was aborted is still there", "use a server that aborts at once"
    else:
        yield "OK", "an unfinished upload can be found and aborted", ""


def _link(bucket: Bucket, name: str) -> Examined:
    """Fetch an object as a client would: by a signed address, and with no keys."""
    url = urlsplit(bucket.link(name, LINK_SECONDS, 'attachment; filename="haulage"', "text/plain"))
    context = ssl.create_default_context(cafile=bucket.ca_file()) if url.scheme == "https" else None
    try:
        if context is None:
            connection = http.client.HTTPConnection(url.netloc, timeout=LINK_SECONDS)
        else:
            connection = http.client.HTTPSConnection(url.netloc, timeout=LINK_SECONDS, context=context)
        connection.request("GET", f"{url.path}?{url.query}")
        answer = connection.getresponse()
        status, data, disposition = answer.status, answer.read(100), answer.getheader("Content-Disposition", "")
        connection.close()
    except (OSError, http.client.HTTPException) as problem:
        return "FAIL", f"a signed address does not answer: {type(problem).__name__}", "see objects.endpoint"
    if (status, data) != (200, BYTES):
        return "FAIL", f"a signed address answered {status}", 'write download = "proxy" in [objects]'
    if not disposition.startswith("attachment"):
        return "FAIL", "a signed address does not give a file its name", 'write download = "proxy" in [objects]'
    return "OK", "a client can be sent to a signed address", ""
