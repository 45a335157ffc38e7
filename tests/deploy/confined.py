"""``confined.py ORDER COMMAND…``: run a command under the filter that systemd would make of a unit.

The order names the system calls and the families of sockets that are allowed; everything else fails with its error.
libseccomp is what systemd uses too, and is installed with it.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import socket
import sys

ALLOW, ERRNO = 0x7FFF0000, 0x00050000  # seccomp(2)
EQUAL = 4  # SCMP_CMP_EQ
PR_SET_NO_NEW_PRIVS = 38


class Compare(ctypes.Structure):
    """struct scmp_arg_cmp."""

    _fields_ = (("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


def main() -> None:
    order = json.loads(sys.argv[1])
    library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    denied = ERRNO | getattr(errno, order["errno"])
    calls = set(order["calls"]) - {"socket"}
    context = ctypes.c_void_p(library.seccomp_init(denied))
    for call in calls:
        number = library.seccomp_syscall_resolve_name(call.encode())
        if number >= 0:  # below are those that this machine does not have
            must(library.seccomp_rule_add(context, ALLOW, number, 0))
    if "socket" in order["calls"]:
        number = library.seccomp_syscall_resolve_name(b"socket")
        for family in order["families"]:
            same = Compare(0, EQUAL, getattr(socket, family), 0)
            must(library.seccomp_rule_add_array(context, ALLOW, number, 1, ctypes.byref(same)))
    must(ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    must(library.seccomp_load(context))
    os.execv(sys.argv[2], sys.argv[2:])


def must(answer: int) -> None:
    if answer != 0:
        raise OSError(-answer, os.strerror(-answer))


if __name__ == "__main__":
    main()
