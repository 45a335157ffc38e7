"""A client that vanishes: its cable is pulled, so it neither takes nor refuses anything and never says so."""

from __future__ import annotations

import ctypes
import socket
import struct

import pytest

SO_ATTACH_FILTER = 26  # of Linux
RETURN_NOTHING = struct.pack("HBBI", 0x06, 0, 0, 0)  # a filter of one instruction: no packet passes


def vanish(connection: socket.socket) -> None:
    """Let nothing reach a connection any more: what is sent to it is never acknowledged."""
    program = ctypes.create_string_buffer(RETURN_NOTHING)
    try:
        connection.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(program)))
    except PermissionError:
        pytest.skip("no packet filter may be set here (be root): no client can vanish")
