"""One bucket of an S3-compatible server: the calls that are needed, with what goes wrong in our own words.

The only file that imports botocore, and only when a bucket is first asked for anything: that costs a third of a second.
Paths of objects are called names here; a key is Haulage's own word.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from haulage.artifacts.upload import failure_of, worth_another_try
from haulage.config import ObjectSettings
from haulage.core.errors import ArtifactsUnavailable

CONNECT_SECONDS = 3
ANSWER_SECONDS = 5  # a build that begins, a cancel and the sweep wait for it
COMPLETE_SECONDS = 30  # a server may take long to put many parts together
TRIES = 3  # of one call
CONNECTIONS = 50  # downloads at once that keep their connection


class Refusal(ArtifactsUnavailable):
    """A server answered, and it was not what was asked for."""

    def __init__(self, status: int, code: str) -> None:
        """What it answered; ``failure`` is what a build ends with."""
        super().__init__(f"{status or ''} {code if code != str(status) else ''}".strip())
        self.status = status
        self.answered = status != 0
        self.code_of_server = code
        self.failure = failure_of(status, code)
        self.worth_another_try = worth_another_try(status)


class Bucket:
    """A bucket; every call raises ``Refusal`` where nothing else is said."""

    def __init__(self, settings: ObjectSettings, bucket: str) -> None:
        """Name it; nothing is opened."""
        self.bucket = bucket
        self._settings = settings
        self._lock = threading.Lock()
        self._made: dict[int, Any] = {}  # by how long it waits for an answer

    # -- one object --------------------------------------------------------------------------------

    def head(self, name: str) -> tuple[int, str]:
        """Size and ETag.

        Raises:
            FileNotFoundError: there is none.
        """
        with self._asking() as client:
            found = client.head_object(Bucket=self.bucket, Key=name)
        return found["ContentLength"], found["ETag"].strip('"')

    def get(self, name: str, start: int, etag: str) -> Any:
        """A stream of its bytes from there on, if it is still the same object."""
        with self._asking() as client:
            return client.get_object(Bucket=self.bucket, Key=name, Range=f"bytes={start}-", IfMatch=f'"{etag}"')["Body"]

    def content(self, name: str) -> bytes:
        """All of a small one.

        Raises:
            FileNotFoundError: there is none.
        """
        with self._asking() as client:
            found: bytes = client.get_object(Bucket=self.bucket, Key=name)["Body"].read()
        return found

    def read(self, stream: Any, wanted: int) -> bytes:
        """At least one byte of such a stream, and at most so many."""
        with self._asking():
            data: bytes = stream.read(wanted)
        if not data:
            raise Refusal(0, "the stream ended early")
        return data

    def put(self, name: str, data: bytes, **options: str) -> None:
        """Write a small one at once."""
        with self._asking() as client:
            client.put_object(Bucket=self.bucket, Key=name, Body=data, **options)

    def delete(self, name: str) -> None:
        """Remove it, if it is there."""
        with self._asking() as client:
            client.delete_object(Bucket=self.bucket, Key=name)

    def link(self, name: str, seconds: int, disposition: str, media_type: str) -> str:
        """A signed address to fetch it from."""
        asked = {
            "Bucket": self.bucket,
            "Key": name,
            "ResponseContentDisposition": disposition,
            "ResponseContentType": media_type,
            "ResponseCacheControl": "private, no-store",
        }
        with self._asking() as client:
            url: str = client.generate_presigned_url("get_object", Params=asked, ExpiresIn=seconds)
        return url

    # -- an upload in parts ------------------------------------------------------------------------

    def begin(self, name: str) -> str:
        """Begin an upload, and give its id."""
        with self._asking() as client:
            upload: str = client.create_multipart_upload(Bucket=self.bucket, Key=name)["UploadId"]
        return upload

    def addresses(self, name: str, upload: str, parts: int, seconds: int) -> list[str]:
        """A signed address for each part of an upload."""
        part = {"Bucket": self.bucket, "Key": name, "UploadId": upload}
        with self._asking() as client:
            return [
                client.generate_presigned_url("upload_part", Params=part | {"PartNumber": number}, ExpiresIn=seconds)
                for number in range(1, parts + 1)
            ]

    def parts(self, name: str, upload: str) -> dict[int, tuple[str, int]]:
        """ETag and size of each part, by number. A part that was sent twice may be listed twice."""
        with self._asking() as client:
            pages = client.get_paginator("list_parts").paginate(Bucket=self.bucket, Key=name, UploadId=upload)
            found = [part for page in pages for part in page.get("Parts", ())]
        return {part["PartNumber"]: (part["ETag"], part["Size"]) for part in found}

    def complete(self, name: str, upload: str, etags: Mapping[int, str], **options: str) -> None:
        """Make an object of the parts."""
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in sorted(etags.items())]
        with self._asking(COMPLETE_SECONDS) as client:
            client.complete_multipart_upload(
                Bucket=self.bucket, Key=name, UploadId=upload, MultipartUpload={"Parts": parts}, **options
            )

    def abort(self, name: str, upload: str) -> None:
        """Give an upload up; one that is not there any more is given up already."""
        try:
            with self._asking() as client:
                client.abort_multipart_upload(Bucket=self.bucket, Key=name, UploadId=upload)
        except FileNotFoundError:
            pass

    # -- what there is -----------------------------------------------------------------------------

    def uploads(self, prefix: str) -> list[tuple[str, str]]:
        """Name and id of every unfinished upload under a prefix."""
        with self._asking() as client:
            pages = client.get_paginator("list_multipart_uploads").paginate(Bucket=self.bucket, Prefix=prefix)
            return [(each["Key"], each["UploadId"]) for page in pages for each in page.get("Uploads", ())]

    def names(self, prefix: str) -> Iterator[str]:
        """The name of every object under a prefix."""
        return (name for name, _ in self.sizes(prefix))

    def sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        """The name and size of every object under a prefix."""
        with self._asking() as client:
            for page in client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix):
                yield from ((each["Key"], each["Size"]) for each in page.get("Contents", ()))

    def beside(self, prefix: str) -> list[str]:
        """What lies directly under a prefix; what lies deeper is told by its first step and a slash."""
        found: list[str] = []
        with self._asking() as client:
            pages = client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix, Delimiter="/")
            for page in pages:
                found += [each["Key"].removeprefix(prefix) for each in page.get("Contents", ())]
                found += [each["Prefix"].removeprefix(prefix) for each in page.get("CommonPrefixes", ())]
        return found

    def keeps_versions(self) -> bool:
        """Say whether what is removed stays as an old version; a server that knows of none keeps none."""
        try:
            with self._asking() as client:
                found: str | None = client.get_bucket_versioning(Bucket=self.bucket).get("Status")
        except (ArtifactsUnavailable, FileNotFoundError):
            return False
        return found == "Enabled"

    # -- the client --------------------------------------------------------------------------------

    @contextmanager
    def _asking(self, seconds: int | None = None) -> Iterator[Any]:
        """The client; what it raises becomes ours. No message of it is kept: it may name the keys."""
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError

        try:
            yield self._client(seconds or ANSWER_SECONDS)
        except ClientError as problem:
            status = problem.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            code = str(problem.response.get("Error", {}).get("Code", ""))
            if status == 404:
                raise FileNotFoundError(2, code) from problem
            raise Refusal(status, code) from problem
        except (NoCredentialsError, PartialCredentialsError) as problem:
            raise Refusal(401, type(problem).__name__) from problem
        except BotoCoreError as problem:
            raise Refusal(0, type(problem).__name__) from problem

    def _client(self, seconds: int) -> Any:
        with self._lock:  # Making a client is not safe for threads; using one is.
            if seconds not in self._made:
                self._made[seconds] = self._make(seconds)
            return self._made[seconds]

    def _make(self, seconds: int) -> Any:
        import botocore.session
        from botocore.config import Config

        settings = self._settings
        session = botocore.session.get_session()
        addressing = settings.addressing or ("path" if settings.endpoint else "auto")
        config = Config(
            signature_version="s3v4",
            s3={"addressing_style": addressing},
            # Checksums of Amazon's own are refused by other servers; we compare MD5 and SHA-256 ourselves.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            connect_timeout=CONNECT_SECONDS,
            read_timeout=seconds,
            retries={"mode": "standard", "total_max_attempts": TRIES},
            max_pool_connections=CONNECTIONS,
            proxies={},  # A child gets no variables that name any, and both must reach the same server.
        )
        return session.create_client(
            "s3",
            region_name=settings.region or session.get_config_variable("region") or "us-east-1",
            endpoint_url=settings.endpoint,
            aws_access_key_id=settings.access_key,
            aws_secret_access_key=settings.secret_key,
            verify=self.ca_file(),
            config=config,
        )

    def ca_file(self) -> str:
        """The certificates that are trusted, here and in the child."""
        from botocore.httpsession import get_cert_path

        found: str = self._settings.ca_file or get_cert_path(True)
        return found
