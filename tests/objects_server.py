"""A real server of objects for the tests: SeaweedFS, which refuses what Amazon's refuses.

One for each test process, on free ports of the loopback, in a temporary folder; it dies with the process that started
it. Every test has a prefix of its own in the one bucket.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import shutil
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import botocore.session
import trustme
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from tests.ports import free_port

from haulage.config import ObjectSettings

# A client reads how Amazon describes its services; once is enough for all those of a test process.
botocore.session.create_loader = cache(botocore.session.create_loader)

BUCKET = "haulage-tests"
KEYS = {"access_key": "tester", "secret_key": "a secret of the tests"}
READER = {"access_key": "reader", "secret_key": "another secret of the tests"}
PORTS = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc",
         "s3.port", "s3.port.grpc", "s3.port.https")  # fmt: skip


def program() -> str | None:
    """Where the server is; it lies beside the interpreter of its environment."""
    beside = Path(sys.executable).with_name("weed")
    return str(beside) if beside.exists() else shutil.which("weed")


class ObjectsServer:
    """A server, with what a test asks of it besides Haulage."""

    def __init__(self, folder: Path, address: str = "127.0.0.1"):
        """Its clients find it at this address; what it is made of meets on the loopback."""
        self.folder = folder
        self.address = address
        self.ports = {name: free_port() for name in PORTS}
        self.endpoint = f"http://{address}:{self.ports['s3.port']}"
        self.secure_endpoint = f"https://localhost:{self.ports['s3.port.https']}"
        self.ca_file = folder / "ca.pem"
        self.client = self.client_of(**KEYS)
        self.process: subprocess.Popen | None = None
        self.configure()
        self.start()

    def configure(self) -> None:
        """Who may do what, and a certificate that only an authority of our own has signed."""
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.ca_file)
        certificate = authority.issue_cert("localhost", "127.0.0.1")
        certificate.cert_chain_pems[0].write_to_path(self.folder / "cert.pem")
        certificate.private_key_pem.write_to_path(self.folder / "key.pem")
        rights = ((KEYS, ["Admin", "Read", "Write", "List", "Tagging"]), (READER, ["Read", "List"]))
        identities = [
            {
                "name": keys["access_key"],
                "credentials": [{"accessKey": keys["access_key"], "secretKey": keys["secret_key"]}],
                "actions": actions,
            }
            for keys, actions in rights
        ]
        (self.folder / "s3.json").write_text(json.dumps({"identities": identities}))

    def start(self) -> None:
        """Start it, and wait until it has taken an object."""
        weed = program()
        assert weed is not None
        ports = [f"-{name}={port}" for name, port in self.ports.items()]
        local = ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-s3.ip.bind={self.address}"]
        local += [f"-dir={self.folder}", "-master.telemetry=false"]
        secure = [f"-s3.cert.file={self.folder}/cert.pem", f"-s3.key.file={self.folder}/key.pem"]
        small = ["-volume.max=20", "-master.volumeSizeLimitMB=64", "-s3.port.iceberg=0", "-s3.port.lance=0"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [weed, "server", *local, *ports, *secure, *small, "-filer", "-s3", f"-s3.config={self.folder}/s3.json"],
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - before any thread of the tests
            )
        deadline = time.monotonic() + 120
        while not self.answers():
            assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
            assert time.monotonic() < deadline, "the server of objects does not take an object"
            time.sleep(0.1)

    def answers(self) -> bool:
        with contextlib.suppress(BotoCoreError, ClientError):
            with contextlib.suppress(ClientError):
                self.client.create_bucket(Bucket=BUCKET)
            self.client.put_object(Bucket=BUCKET, Key="started", Body=b"x")
            return True
        return False

    def stop(self) -> None:
        """End it at once; it takes twenty seconds to end by itself."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(60)
            self.process = None

    def pause(self) -> None:
        """Let it answer nothing from now on, as behind a broken network."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def client_of(self, *, access_key: str, secret_key: str):
        return botocore.session.get_session().create_client(
            "s3",
            region_name="us-east-1",
            endpoint_url=self.endpoint,
            aws_access_key_id=access_key,
            aws_secret_access_key=secret_key,
            config=Config(
                signature_version="s3v4",
                s3={"addressing_style": "path"},
                request_checksum_calculation="when_required",
                connect_timeout=10,
                read_timeout=60,
                retries={"total_max_attempts": 1},
                proxies={},
            ),
        )

    def settings(self, work: Path, **changes: object) -> ObjectSettings:
        """How Haulage reaches it."""
        known = {"endpoint": self.endpoint, "region": "us-east-1", "work": str(work), **KEYS}
        return ObjectSettings(**{**known, **changes})

    # -- looking behind Haulage's back ---------------------------------------------------------------

    def objects(self, prefix: str) -> dict[str, bytes]:
        """Everything under a prefix, by name without it."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        names = [each["Key"] for page in pages for each in page.get("Contents", ())]
        return {name.removeprefix(prefix): self.read(name) for name in names}

    def uploads(self, prefix: str) -> list[str]:
        """Every unfinished upload under a prefix, by name without it."""
        pages = self.client.get_paginator("list_multipart_uploads").paginate(Bucket=BUCKET, Prefix=prefix)
        return [each["Key"].removeprefix(prefix) for page in pages for each in page.get("Uploads", ())]

    def sent_bytes(self, prefix: str) -> int:
        """What has arrived of the unfinished uploads under a prefix."""
        found = 0
        for page in self.client.get_paginator("list_multipart_uploads").paginate(Bucket=BUCKET, Prefix=prefix):
            for each in page.get("Uploads", ()):
                with contextlib.suppress(ClientError):
                    parts = self.client.list_parts(Bucket=BUCKET, Key=each["Key"], UploadId=each["UploadId"])
                    found += sum(part["Size"] for part in parts.get("Parts", ()))
        return found

    def read(self, name: str) -> bytes:
        return self.client.get_object(Bucket=BUCKET, Key=name)["Body"].read()

    def write(self, name: str, content: bytes) -> None:
        self.client.put_object(Bucket=BUCKET, Key=name, Body=content)

    def delete(self, name: str) -> None:
        self.client.delete_object(Bucket=BUCKET, Key=name)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
