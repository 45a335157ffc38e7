"""A TCP proxy before the server of objects, which loses what a test wants lost.

A rule is a pattern of a request's first line, what becomes of it, and how often: ``lose the request`` cuts before the
server has it, ``lose the answer`` after the server has answered, perhaps ``and go down``, ``cut`` within its body.
"""

from __future__ import annotations

import re
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass

from tests.ports import free_port

PIECE = 65_536
REQUEST = re.compile(rb"(GET|PUT|POST|HEAD|DELETE) (\S+) HTTP/1\.1\r\n")


@dataclass
class Rule:
    pattern: bytes
    action: str
    times: int
    fired: int = 0


class Proxy:
    """Listens on a port of its own and passes everything on, until it is told otherwise."""

    def __init__(self, port: int):
        self._server = ("127.0.0.1", port)
        self._rules: list[Rule] = []
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self.port = free_port()
        self.up()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def rule(self, pattern: str, action: str, times: int = 1) -> Rule:
        """From now on such requests go wrong, so many times."""
        made = Rule(pattern.encode(), action, times)
        self._rules.append(made)
        return made

    def up(self) -> None:
        """Listen, on the same port as before."""
        listener = socket.create_server(("127.0.0.1", self.port), backlog=50)
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def down(self) -> None:
        """Refuse every connection, and cut those that are."""
        assert self._listener is not None
        # An accept that is under way holds the port until it is shut down.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._listener = None
        with self._lock:
            for each in list(self._open):
                _cut(each)

    def close(self) -> None:
        if self._listener is not None:
            self.down()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._server, 10)
        except OSError:
            client.close()
            return
        with self._lock:
            self._open |= {client, server}
        losing, going_down = threading.Event(), False
        back = threading.Thread(target=self._answers, args=(server, client, losing), daemon=True)
        back.start()
        with suppress(OSError):
            while data := client.recv(PIECE):
                action = self._action(data)
                if action == "lose the request":
                    break
                if action == "cut":
                    server.sendall(data[: len(data) // 2])
                    break
                if action and action.startswith("lose the answer"):
                    losing.set()
                    going_down = action.endswith("go down")
                server.sendall(data)
        if not losing.is_set():
            _cut(client)
            _cut(server)
        back.join()
        if going_down:
            self.down()
        for each in (client, server):
            _cut(each)
            each.close()
        with self._lock:
            self._open -= {client, server}

    def _answers(self, server: socket.socket, client: socket.socket, losing: threading.Event) -> None:
        with suppress(OSError):
            while data := server.recv(PIECE):
                if losing.is_set():
                    break  # The server has answered, so it has done what it was asked for.
                client.sendall(data)
        _cut(client)
        _cut(server)

    def _action(self, data: bytes) -> str | None:
        found = REQUEST.match(data)
        if found is None:
            return None
        for rule in self._rules:
            if rule.fired < rule.times and re.search(rule.pattern, found[0]):
                rule.fired += 1
                return rule.action
        return None


def _cut(connection: socket.socket) -> None:
    """``shutdown`` before ``close``, or the other side learns nothing while a thread still reads here."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
