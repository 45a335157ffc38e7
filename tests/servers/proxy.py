"""A TCP proxy that a test puts between a store and its server: it loses answers, falls silent, and heals."""

from __future__ import annotations

import contextlib
import socket
import threading


class Proxy:
    """Forwards byte for byte until it is told not to; ``lost`` says how often an answer was lost."""

    def __init__(self, port: int):
        self._server = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._trigger: bytes | None = None
        self._silent = threading.Event()
        self._open: list[socket.socket] = []
        self.lost = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._listener.close()
        self.cut()

    def lose_answer_of(self, words: bytes) -> None:
        """The next request with these words reaches the server, its answer is lost, and the connection breaks."""
        self._trigger = words

    def fall_silent(self) -> None:
        """Accept everything and answer nothing, as what lies between two hosts may."""
        self._silent.set()

    def heal(self) -> None:
        self._trigger = None
        self._silent.clear()

    def cut(self) -> None:
        """Break every connection."""
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # before the close, or the reset never leaves
            each.close()
        self._open.clear()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._server)
            self._open += [client, server]
            losing = threading.Event()
            for one, other, asks in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._forward, args=(one, other, asks, losing), daemon=True).start()

    def _forward(self, one, other, asks, losing) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65_536):
                if asks and self._trigger is not None and self._trigger in data:
                    self._trigger = None
                    losing.set()
                if not asks and losing.is_set():
                    self.lost += 1
                    break
                if not asks and self._silent.is_set():
                    continue
                other.sendall(data)
        for each in (one, other):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
