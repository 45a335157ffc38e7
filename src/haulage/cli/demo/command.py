"""``haulage demo``: everything in one terminal, ready in seconds, gone without a trace.

folder and data  ->  configuration  ->  worker (a process of its own)  ->  web  ->  say how to get in
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

import click

from haulage.cli.demo.folder import Folder, folder_at
from haulage.cli.opening import need_web, opened
from haulage.cli.serving import WorkerProcess, address_of, listen, once_attended, serve_web
from haulage.cli.terminal import DONE, Fault, example, facts, print_json, program, say, tell
from haulage.config.secrets import hash_key, new_key
from haulage.core.ports import SignIn

if TYPE_CHECKING:
    from haulage.app import Haulage

PORT = 8480
KEY = "demo"  # its name in the configuration
GOODBYE_SECONDS = 1  # a demo is stopped to be gone
KEY_VARIABLE = "HAULAGE_DEMO_KEY"
# An override of these would take the demo out of its own folder.
FOREIGN = ("HAULAGE_STORE", "HAULAGE_ARTIFACTS", "HAULAGE_SECRET_KEYS", "HAULAGE_APP", "HAULAGE_KEYS__")
FOREIGN_SOURCES = ("HAULAGE_SOURCES__", "HAULAGE_DATASETS__", "HAULAGE_OPERATOR__")


@click.command(epilog=example("haulage demo --port 8480 --dir ./demo --no-browser"))
@click.option("--port", type=click.IntRange(0, 65535), help=f"The port; {PORT}, or a free one, unless given.")
@click.option("--dir", "folder", type=click.Path(path_type=Path, file_okay=False), help="Keep everything here.")
@click.option("--no-browser", is_flag=True, help="Do not open a browser.")
@click.option("--json", "as_json", is_flag=True, help="Answer with one JSON document on stdout when ready.")
def demo(port: int | None, folder: Path | None, no_browser: bool, as_json: bool) -> int:
    """Run everything with sample data in one terminal: store, one worker, web and page.

    Without --dir it works in a temporary folder that is removed at the end. The key with every grant is
    taken from HAULAGE_DEMO_KEY when that is set. Ctrl-C stops everything.
    """
    need_web()
    key = os.environ.get(KEY_VARIABLE, "").strip() or new_key()[0]
    _forget_foreign_settings()
    os.umask(0o077)  # nothing that we make is for others to read
    signal.signal(signal.SIGTERM, _end)  # until the web takes it over: leave by the same way as Ctrl-C
    signal.signal(signal.SIGHUP, _end)
    # The port first: making the data takes a while, and nobody wants to be told after it.
    with (
        _listen(port) as listener,
        folder_at(folder, hash_key(key)) as place,
        opened(place.config, level=logging.WARNING) as haul,
    ):
        _serve(haul, place, listener, key, browser=not no_browser, as_json=as_json)
    say("the demo has stopped" + (f"; its folder stays: {place.path}" if place.kept else ""))
    return DONE


def _serve(haul: Haulage, place: Folder, listener: socket.socket, key: str, *, browser: bool, as_json: bool) -> None:
    process = WorkerProcess(place.config, log=place.path / "worker.log")

    def welcome() -> None:
        _welcome(haul, place, address_of(listener), key, browser=browser, as_json=as_json)

    def stopping(_number: int) -> None:
        process.signal(signal.SIGINT)  # nobody waits for a demo's builds

    # The terminal is closed: uvicorn ends by TERM, and so do we.
    signal.signal(signal.SIGHUP, lambda _number, _frame: os.kill(os.getpid(), signal.SIGTERM))
    process.start()
    try:
        serve_web(
            haul,
            listener,
            goodbye_seconds=GOODBYE_SECONDS,
            started=lambda: once_attended(haul, welcome),
            stopping=stopping,
        )
    finally:
        if not process.told:
            process.signal(signal.SIGINT)
        process.wait()


def _welcome(haul: Haulage, place: Folder, address: str, key: str, *, browser: bool, as_json: bool) -> None:
    link = _sign_in_link(haul, address)
    if as_json:
        print_json(
            {
                "address": address,
                "sign_in": link,
                "key": key,
                "dir": str(place.path),
                "config": str(place.config),
                "data": place.data,
                "pid": os.getpid(),
            }
        )
        sys.stdout.flush()
    else:
        pairs = [
            ("page", address + "/"),
            ("sign in", f"{link}  (works once, within ten minutes)"),
            ("key", f"{key}  (every grant; for programs: Authorization: Bearer …)"),
            ("data", place.data),
            ("folder", str(place.path) + ("" if place.kept else "  (removed at the end)")),
            ("worker", f"{program('worker', '--config', str(place.config))}  (joins from another terminal)"),
        ]
        tell("Haulage demo\n" + facts(pairs) + "\nCtrl-C stops everything.")
        sys.stdout.flush()
    if browser and not as_json and _has_screen():
        webbrowser.open(_sign_in_link(haul, address))  # a link of its own: the printed one stays good


def _sign_in_link(haul: Haulage, address: str) -> str:
    from haulage.web.access import link_id  # the web knows under which id it looks for a link, and how long
    from haulage.web.session import LINK_SECONDS

    token = secrets.token_urlsafe(32)
    mine = haul.settings.keys[KEY]
    until = haul.store.now() + LINK_SECONDS * 1000
    haul.store.sessions.open(SignIn(link_id(token), KEY, mine.tenant, mine.account, until))
    return f"{address}/?sign_in={token}"


def _listen(port: int | None) -> socket.socket:
    if port is not None:
        return listen("127.0.0.1", port)
    try:
        return listen("127.0.0.1", PORT)
    except Fault:
        say(f"port {PORT} is taken; using a free one")
        return listen("127.0.0.1", 0)


def _forget_foreign_settings() -> None:
    for variable in sorted(os.environ):
        if variable.startswith(FOREIGN + FOREIGN_SOURCES):
            say(f"{variable} is not used by the demo")
            del os.environ[variable]


def _has_screen() -> bool:
    """Say whether a browser can show a window; one that draws in this terminal would take it over."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _end(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt
