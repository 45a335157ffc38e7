"""Starts a server, and ends it when its own standard input ends: tests that were killed leave no server behind.

    python keeper.py USER_ID SIGNAL COMMAND …

USER_ID is who the server runs as (-1: the same user), SIGNAL what ends it quickly.
"""

from __future__ import annotations

import signal
import subprocess
import sys


def main() -> None:
    user, ending, *command = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal; the end of the input counts.
    as_whom = {} if user == "-1" else {"user": int(user), "group": int(user), "extra_groups": []}
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **as_whom
    )
    sys.stdin.read()
    process.send_signal(int(ending))
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main()
