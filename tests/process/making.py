"""A command that builds a file, as it should and as it should not: ``making.py MODE FILE REPORT REQUEST …``."""

# It starts for every test, and pathlib takes as long to load as all the rest.
# ruff: noqa: PTH101, PTH102, PTH103, PTH108, PTH109, PTH116, PTH123, PTH202, PTH208, PTH211
from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import sys
import time

MODE, FILE, REPORT, REQUEST = sys.argv[1:5]
MIB = 1024 * 1024
BOOK = b"PK the book\n" * 1_000


def write(data: bytes = BOOK, path: str = FILE) -> None:
    with open(path, "wb") as file:
        file.write(data)


def report(**members) -> None:
    write(json.dumps({"complete": True, **members}).encode(), REPORT)


def fork(do, *, session: bool = False) -> None:
    """A process that we do not wait for, in our group or far from it."""
    if os.fork() == 0:
        if session:
            os.setsid()
            if os.fork():
                os._exit(0)
        with contextlib.suppress(BaseException):
            do()
        os._exit(0)


def for_ever() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(3600)


def grow(path: str = FILE) -> None:
    with open(path, "ab", buffering=0) as file:
        while True:
            file.write(b"x" * 65_536)
            time.sleep(0.001)


def good() -> None:
    write()
    report(rows=1_000, notices=[{"code": "pictures_left_out", "count": 3}])


def large() -> None:
    """Of as many bytes as the last word says."""
    write(b"x" * int(sys.argv[5]))
    report()


def incomplete() -> None:
    write()
    report(complete=False, notices=[{"code": "chapter_missing", "count": 2}])


def asked() -> None:
    """What it was given, word by word."""
    with open(REQUEST) as file:
        request = json.load(file)
    status = os.stat(".")
    seen = {"words": sys.argv[5:], "environment": dict(os.environ), "request": request, "cwd": os.getcwd()}
    seen |= {
        "mode": stat.S_IMODE(status.st_mode),
        "input": sys.stdin.read(),
        "group": os.getpgrp() == os.getpgid(os.getppid()),
    }
    seen |= {"descriptors": sorted(os.listdir("/proc/self/fd")), "umask": os.umask(0)}
    write(json.dumps(seen).encode())
    report()


def exits() -> None:
    write()
    report()
    os.write(2, b"first\nsecret_4711 cannot be read\n")
    sys.exit(3)


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def no_file() -> None:
    report()


def no_report() -> None:
    write()


def huge_report() -> None:
    write()
    write(b'{"complete": true, "rows": 1' + b" " * MIB + b"}", REPORT)


def bad_report() -> None:
    write()
    report(path="/srv/secret_4711")


def too_many_rows() -> None:
    write()
    report(rows=10**12)


def link_for_file() -> None:
    os.symlink("/etc/hostname", FILE)
    report()


def link_for_report() -> None:
    write()
    write(b'{"complete": true}', "elsewhere")
    os.symlink("elsewhere", REPORT)


def writes_through_link() -> None:
    """The file would stand where nobody looks for it."""
    os.symlink("../../../outside", FILE)
    write()
    report()


def other_name_for_file() -> None:
    write(BOOK, "elsewhere")
    os.link("elsewhere", FILE)
    report()


def pipe_for_file() -> None:
    os.mkfifo(FILE)
    report()


def folder_for_file() -> None:
    os.mkdir(FILE)
    report()


def floods() -> None:
    for _ in range(400):
        os.write(1, b"o" * 65_536)
        os.write(2, b"e" * 65_536)
    good()


def floods_for_ever() -> None:
    while True:
        os.write(1, b"o" * 65_536)


def silent_from_now_on() -> None:
    os.close(1)
    os.close(2)
    time.sleep(0.3)
    good()


def grows_for_ever() -> None:
    grow()


def grows_fast() -> None:
    """More than fits between two looks; the kernel's limit kills us."""
    write(b"x" * 64 * MIB)


def grows_fast_and_excuses_itself() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        write(b"x" * 64 * MIB)
    report()


def many_files() -> None:
    for number in range(10**6):
        write(b"x" * 262_144, f"temporary{number}")


def files_without_a_name() -> None:
    """As Python's and C's temporary files are; in a process below this one."""

    def fill() -> None:
        kept = []
        while len(kept) < 1_000:
            kept.append(os.open("temporary", os.O_RDWR | os.O_CREAT))
            os.unlink("temporary")
            os.write(kept[-1], b"x" * 262_144)
        time.sleep(3600)

    fork(fill)
    for_ever()


def deep_folders() -> None:
    for _ in range(10**6):
        os.mkdir("deep")
        os.chdir("deep")


def leaves_what_cannot_be_read() -> None:
    os.makedirs("locked/inner")
    write(b"x", "locked/inner/file")
    os.chmod("locked/inner", 0)
    os.chmod("locked", 0)
    good()


def child_that_stays() -> None:
    fork(for_ever)
    good()


def daemon_that_stays() -> None:
    fork(for_ever, session=True)
    time.sleep(0.1)
    good()


def daemon_that_writes() -> None:
    """It goes on with the file that we say is ready."""
    good()
    fork(grow, session=True)
    while os.path.getsize(FILE) == len(BOOK):
        time.sleep(0.01)


def stays() -> None:
    """Everything that could outlive us, and nobody obeys TERM."""
    fork(for_ever)
    fork(for_ever, session=True)
    write(b"some")
    for_ever()


def stays_without_a_mark() -> None:
    """As ``stays``, and one of them knows nothing of where it came from."""
    words = [sys.executable, "-IS", __file__, "stays_quietly", *sys.argv[2:]]
    fork(lambda: os.execve(words[0], words, {}), session=True)
    stays()


def stays_quietly() -> None:
    for_ever()


def tidies_up() -> None:
    """At TERM it says goodbye to somebody, and needs a moment for it."""

    def goodbye(*_signal):
        time.sleep(0.1)
        write(b"goodbye", sys.argv[5])
        sys.exit(0)

    signal.signal(signal.SIGTERM, goodbye)
    write(b"some")
    while True:
        time.sleep(3600)


globals()[MODE]()
