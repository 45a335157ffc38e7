"""A proxy before PostgreSQL that changes how its messages come: cut, joined, with others between, by TLS."""

from __future__ import annotations

import contextlib
import multiprocessing
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator

SSL_REQUEST = struct.pack(">II", 8, 80_877_103)


def message(kind: bytes, content: bytes = b"") -> bytes:
    return kind + struct.pack(">I", len(content) + 4) + content


class Framing:
    """Forwards what a client says as it is, and each message of the server through ``changed``; breaks where it raises.

    ``at_once`` is how many bytes leave together; ``tls`` makes the way to the client an encrypted one.
    """

    def __init__(self, port: int, changed: Callable[[bytes, bytes], bytes] = message, *, at_once: int = 2**20,
                 tls: ssl.SSLContext | None = None):  # fmt: skip
        self._server = ("127.0.0.1", port)
        self._changed = changed
        self._at_once = at_once
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        # Not a thread: where the driver waits for an answer, none of them runs.
        self._process = multiprocessing.get_context("fork").Process(target=self._accept, daemon=True)
        self._process.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.join()
        self._listener.close()

    def url(self, database: str) -> str:
        how = "require" if self._tls else "disable"
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}?sslmode={how}&gssencmode=disable"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if client.recv(8, socket.MSG_PEEK) == SSL_REQUEST:
                client.recv(8)
                client.sendall(b"S")
                client = self._tls.wrap_socket(client, server_side=True)
            server = socket.create_connection(self._server)
            threading.Thread(target=self._asked, args=(client, server), daemon=True).start()
            self._answered(client, server)

    def _asked(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65_536):
                server.sendall(data)
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)

    def _answered(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError, ConnectionError), server.makefile("rb") as answers:
            while head := answers.read(5):
                kind, size = struct.unpack(">cI", head)
                data = self._changed(kind, answers.read(size - 4))
                for at in range(0, len(data), self._at_once):
                    client.sendall(data[at : at + self._at_once])
        for each in (client, server):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def messages(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The messages in it."""
    while data:
        kind, size = struct.unpack_from(">cI", data)
        yield kind, data[5 : 1 + size]
        data = data[1 + size :]
