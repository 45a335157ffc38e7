"""A command on a real terminal: the bar shows what was measured, and Ctrl-C is typed, not sent."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.stories.terminal import CONFIGURATION, Terminal, until

pytestmark = [pytest.mark.process, pytest.mark.timeout(400)]

SLOW = """
[datasets.slow]
source = "shop"
sql = '''
with recursive n(id) as (select 1 union all select id + 1 from n where id < 200000)
select id, (
  with recursive b(j) as (select 1 union all select j + 1 from b where j < 3000 + n.id % 2) select max(j) from b
) as spun from n
'''
"""
START = "import os, sys; os.login_tty(int(sys.argv[1])); os.execv(sys.executable, [sys.executable, *sys.argv[2:]])"
CTRL_C = b"\x03"
BAR = re.compile(r"\[(#*)(\.*)\] +(\d+) % +([\d,]+) of 200,000 rows")


@pytest.fixture
def terminal(tmp_path):
    return Terminal(tmp_path).shop(configuration=CONFIGURATION + SLOW)


class Screen:
    """What a command shows, and its keyboard."""

    def __init__(self, process, descriptor):
        self.process = process
        self._descriptor = descriptor
        self.text = ""

    def press(self, key):
        os.write(self._descriptor, key)

    def read_until(self, true, seconds=120):
        """Read until something is shown; to the end with None."""
        limit = time.monotonic() + seconds
        while true is None or not true(self.text):
            assert time.monotonic() < limit, self.text
            if not select.select([self._descriptor], [], [], 1)[0]:
                continue
            try:
                self.text += os.read(self._descriptor, 65536).decode(errors="replace")
            except OSError:  # Nobody has the other side any more.
                assert true is None, self.text
                return


@contextmanager
def on_a_screen(terminal, *words, **environ):
    """A command with a terminal of its own, as a shell starts it in the foreground."""
    ours, theirs = os.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 25, 120, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", START, str(theirs), "-m", "haulage", *words],
        pass_fds=[theirs],
        cwd=terminal.folder,
        env=terminal.environ | environ,
    )
    os.close(theirs)
    try:
        yield Screen(process, ours)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait(timeout=120)
        os.close(ours)


def counts(text):
    """What the bar has shown, in order: how much of it was filled, per cent, and rows."""
    return [(len(full), int(percent), int(rows.replace(",", ""))) for full, _, percent, rows in BAR.findall(text)]


def test_the_bar_shows_what_was_measured_and_ctrl_c_cancels(terminal):
    with on_a_screen(terminal, "export", "slow", "-o", "slow.csv") as screen:
        screen.read_until(lambda text: len(set(counts(text))) >= 4)
        screen.press(CTRL_C)
        screen.read_until(None)
        code = screen.process.wait(timeout=120)

    (run,) = terminal.run("runs", "list", "--json").document["items"]
    shown = counts(screen.text)
    rows = [each for _, _, each in shown]
    assert (1, "cancelled") == (code, run["state"])
    assert "cancel recorded; waiting until the build has stopped" in screen.text
    assert "cancelled: there is no file" in screen.text
    assert sorted(rows) == rows
    assert all(percent == each * 100 // 200_000 for _, percent, each in shown)
    assert all(filled == 30 * percent // 100 for filled, percent, _ in shown)
    assert max(rows) <= run["progress"]["processed"] <= run["progress"]["total"] == 200_000
    assert [] == [*terminal.folder.glob("*.csv"), *terminal.folder.glob("artifacts/*/*")]


def test_a_second_ctrl_c_leaves_at_once_and_the_cancel_still_ends_the_run(terminal):
    limits = {"HAULAGE_LIMITS__EXPORTS__LEASE_SECONDS": "8", "HAULAGE_LIMITS__EXPORTS__STOP_SECONDS": "60"}
    with on_a_screen(terminal, "export", "slow", **limits) as screen:
        screen.read_until(counts)
        (child,) = children(screen.process.pid)
        os.kill(child, signal.SIGSTOP)  # so that TERM does not end it before the second key
        screen.press(CTRL_C)
        screen.read_until(lambda text: "Ctrl-C again leaves" in text)
        screen.press(CTRL_C)
        screen.read_until(lambda text: re.search(r"left; the cancel of run \S+ is recorded", text))
        code = screen.process.wait(timeout=120)
        until(lambda: not Path(f"/proc/{child}").exists())

    (run,) = terminal.run("runs", "list", "--json").document["items"]
    watched = terminal.run("runs", "watch", run["id"], "--json", **limits)
    assert (1, 1, "cancelled") == (code, watched.code, watched.document["state"])
    assert [] == list(terminal.folder.glob("artifacts/*/*"))


def children(pid):
    """Processes that this one has started, as Linux lists them."""
    return [int(each) for path in Path(f"/proc/{pid}/task").glob("*/children") for each in path.read_text().split()]
