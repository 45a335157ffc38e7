"""``haulage serve``, ``haulage worker`` and ``haulage up``: the long-running commands."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from pathlib import Path

import click

from haulage.cli.opening import need_web, opened
from haulage.cli.serving import WorkerProcess, address_of, listen, once_attended, serve_web
from haulage.cli.terminal import DONE, Fault, example, print_json, say, shared

GOODBYE_SECONDS = 20  # answers under way may take so long after a signal; a longer download begins again


def lanes_of(text: str | None) -> int | None:
    """The lanes of ``exports=2``.

    Raises:
        BadParameter: it is written otherwise.
    """
    if text is None:
        return None
    flow, _, count = text.rpartition("=")
    if flow not in ("", "exports") or not count.isascii() or not count.isdigit() or int(count) < 1:
        raise click.BadParameter(f"{text!r}: write exports=2", param_hint="--lanes")
    return int(count)


@click.command(epilog=example("haulage worker --lanes exports=2"))
@click.option("--lanes", metavar="exports=N", help="How many files it builds at once.")
@click.option("--with-parent", is_flag=True, hidden=True, help="Drain when standard input ends.")
@shared
def worker(lanes: str | None, with_parent: bool, config: Path, as_json: bool) -> int:
    """Build the files that were asked for, until a signal.

    TERM drains: running builds may finish. Ctrl-C ends them at once, and they fail as worker_stopped.
    """
    count = lanes_of(lanes)
    with opened(config, level=logging.INFO) as haul:
        supervisor = haul.supervisor(lanes=count)
        if with_parent:
            threading.Thread(target=_drain_at_end_of_input, name="parent", daemon=True).start()
        threading.Thread(
            target=_say_ready, args=(supervisor.ready, count or haul.settings.lanes, as_json), daemon=True
        ).start()
        supervisor.run()
    say("worker stopped")
    return DONE


def _say_ready(ready: threading.Event, lanes: int, as_json: bool) -> None:
    ready.wait()
    say(f"worker ready, {lanes} {'lane' if lanes == 1 else 'lanes'} (process {os.getpid()})")
    if as_json:
        print_json({"pid": os.getpid(), "lanes": {"exports": lanes}})


def _drain_at_end_of_input() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


@click.command(epilog=example("haulage serve --host 127.0.0.1 --port 8480"))
@click.option("--host", help="The address to listen on; serve.host unless given.")
@click.option("--port", type=click.IntRange(0, 65535), help="The port; serve.port unless given, 0 for any.")
@shared
def serve(host: str | None, port: int | None, config: Path, as_json: bool) -> int:
    """Serve the page and the HTTP interface. Files are built by workers: haulage worker."""
    need_web()
    with opened(config, level=logging.INFO) as haul:
        settings = haul.settings
        listener = listen(host or settings.host, settings.port if port is None else port)
        serve_web(
            haul,
            listener,
            goodbye_seconds=GOODBYE_SECONDS,
            started=lambda: _say_serving(listener, as_json),
        )
    say("stopped")
    return DONE


@click.command(epilog=example("haulage up"))
@click.option("--host", help="The address to listen on; serve.host unless given.")
@click.option("--port", type=click.IntRange(0, 65535), help="The port; serve.port unless given, 0 for any.")
@click.option("--lanes", metavar="exports=N", help="How many files are built at once.")
@shared
def up(host: str | None, port: int | None, lanes: str | None, config: Path, as_json: bool) -> int:
    """Serve the web and work, in one terminal; the worker is a process of its own and is kept alive.

    TERM lets running builds finish. Ctrl-C ends them at once.
    """
    need_web()
    count = lanes_of(lanes)
    with opened(config, level=logging.INFO) as haul:
        settings = haul.settings
        if haul.store.one_tenant:  # else its worker would be started again and again
            raise Fault("this role acts for one tenant at a time; run: haulage serve, and a worker as haulage_worker")
        listener = listen(host or settings.host, settings.port if port is None else port)
        process = WorkerProcess(config, count)
        process.start()
        try:
            serve_web(
                haul,
                listener,
                goodbye_seconds=GOODBYE_SECONDS,
                started=lambda: once_attended(haul, lambda: _say_serving(listener, as_json)),
                stopping=process.signal,
            )
        finally:
            if not process.told:
                process.signal(signal.SIGTERM)
            process.wait()
    say("stopped")
    return DONE


def _say_serving(listener: socket.socket, as_json: bool) -> None:
    address = address_of(listener)
    say(f"serving {address}")
    if as_json:
        print_json({"address": address, "pid": os.getpid()})
