"""``haulage init`` and ``haulage keys new``: what somebody needs before the first export."""

from __future__ import annotations

import os
import re
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

import click

from haulage.cli.terminal import DONE, Fault, example, print_json, say, shared, tell
from haulage.config.load import read_keys
from haulage.config.secrets import new_key, new_secret
from haulage.core.errors import ConfigInvalid

TEMPLATE = """\
# Haulage. Every key: docs/configuration.md. HAULAGE_SECTION__KEY in the environment overrides one.

store = "sqlite:///haulage.db"        # where runs are kept; paths count from the folder of this file
artifacts = "file:./artifacts"        # where finished files are kept; or "s3://bucket/prefix": docs/artifacts.md

# Signs tokens; the first signs, all verify. Keep it out of version control: this file is readable by you
# alone. "env:HAULAGE_SECRET" reads it from the environment, "file:/run/secrets/haulage" from a file.
secret_keys = ["{secret}"]

# Where the data is. Opened read-only.
# [sources.shop]
# url = "sqlite:///shop.db"

# What can be exported. Check it with: haulage datasets check
# [datasets.orders]
# source = "shop"
# label = "Orders"
# permission = "orders.read"                   # a grant that a key must hold; without it everybody may
# sql = "select id, tenant, customer, total, placed_at from orders where placed_at >= :since"
# hidden = ["tenant"]                          # read for the predicate, never written
# visible = "tenant = :requester_tenant"       # which rows a requester sees, over the query's columns
# key = ["id"]                                 # what makes the order of rows certain
# formats = ["csv", "xlsx", "json", "ndjson"]
# [datasets.orders.parameters]
# since = {{type = "date", default = "2000-01-01", label = "Placed since"}}

# Who may sign in and call the HTTP interface. Make a key with: haulage keys new
# [keys.amina]
# hash = "sha256:…"
# tenant = "north"
# grants = ["orders.read"]

# Who the command line acts as. It sees the rows of its own tenant, as everybody does.
# [operator]
# tenant = "north"

# [serve]
# host = "127.0.0.1"
# port = 8480
# trusted_proxies = ["127.0.0.1"]              # whose X-Forwarded-For and X-Forwarded-Proto are believed

# [worker]
# exports = 2                                  # files that one worker builds at once

# [limits.exports]
# slots = 2                                    # files built at once, over all workers
# file_bytes = "128 MiB"                       # of one file
# store_bytes = "512 MiB"                      # of all finished files together
# generation_seconds = "2 min"
# expiry_seconds = "10 min"                    # a finished file is kept so long
"""


@click.command(epilog=example("haulage init"))
@click.option("--force", is_flag=True, help="Replace the file that is there.")
@shared
def init(force: bool, config: Path, as_json: bool) -> int:
    """Write a commented configuration with a new secret, readable by you alone."""
    if os.path.lexists(config) and not force:
        raise Fault(f"{config} is there already; edit it, or replace it with --force")
    if not config.parent.is_dir():
        raise Fault(f"there is no folder {config.parent}; make it, or name another file with --config")
    write_private(config, TEMPLATE.format(secret=new_secret()))
    if as_json:
        print_json({"config": str(config.absolute())})
        return DONE
    tell(f"wrote {config}")
    say("next: name a source and a dataset in it, then run: haulage datasets check, haulage up")
    return DONE


def write_private(path: Path, text: str, like: os.stat_result | None = None) -> None:
    """Write a file that only its owner can read, whole or not at all; or with the owner and mode of another.

    Raises:
        Fault: it cannot be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as target:
            target.write(text)
            if like is not None:  # before it stands there: a service that looks must be able to read it at once
                ours = os.fstat(descriptor)
                if (ours.st_uid, ours.st_gid) != (like.st_uid, like.st_gid):
                    os.fchown(descriptor, like.st_uid, like.st_gid)
                os.fchmod(descriptor, like.st_mode & 0o777)
            target.flush()
            os.fsync(target.fileno())
        part.replace(path)
    except OSError as problem:
        part.unlink(missing_ok=True)
        raise Fault(f"{path} cannot be written: {problem.strerror}") from problem


@click.group(epilog=example("haulage keys new amina --tenant north --grant orders.read --write"))
def keys() -> None:
    """Make bearer keys for programs and sign-in."""


@keys.command("new", epilog=example("haulage keys new amina --tenant north --grant orders.read --write"))
@click.argument("name", default="new_key")
@click.option("--tenant", default="default", show_default=True, help="Whose data the key may see.")
@click.option("--account", help="Whose runs it may see; the key's name unless given.")
@click.option("--grant", "grants", multiple=True, help='A permission; "*" for all. Again for several.')
@click.option("--write", is_flag=True, help="Add the key's hash to the configuration.")
@shared
def new(
    name: str,
    tenant: str,
    account: str | None,
    grants: Sequence[str],
    write: bool,
    config: Path,
    as_json: bool,
) -> int:
    """Make a bearer key NAME. It is printed once and kept nowhere; the configuration holds its hash.

    A running service notices the changed configuration by itself.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}", name) or name == "operator":
        raise Fault(f"{name!r}: write a name of letters, digits, _ and -, at most 63, and not operator")
    text, hash_ = new_key()
    lines = [f"[keys.{name}]", f"hash = {_quoted(hash_)}", f"tenant = {_quoted(tenant)}"]
    lines += [f"account = {_quoted(account)}"] if account else []
    lines.append(f"grants = [{', '.join(map(_quoted, grants))}]")
    block = "\n".join(lines) + "\n"
    if write:
        _append(config, name, block)
    else:
        _see_fit(Path(tempfile.gettempdir()), block)
    if as_json:
        print_json({"name": name, "key": text, "hash": hash_, "toml": block, "written": write})
        return DONE
    tell(text)
    say("this is the key; it is shown only now")
    say(f"its hash is in {config}" if write else f"add this to {config}:\n\n{block}")
    return DONE


def _append(config: Path, name: str, block: str) -> None:
    """Add a table at the end of the configuration, and keep its owner and mode: root may do it for a service."""
    try:
        before = config.read_text()
        like = config.stat()
    except OSError as problem:
        raise Fault(f"{config}: {problem.strerror}; write one with: haulage init") from problem
    try:
        if name in tomllib.loads(before).get("keys", {}):
            raise Fault(f"{config} has a key {name} already; choose another name")
        text = before.rstrip("\n") + "\n\n" + block
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise Fault(f"{config} is not TOML: {problem}; nothing was changed") from problem
    try:
        _see_fit(config.absolute().parent, text)
    except OSError as problem:
        raise Fault(f"{config} cannot be written: {problem.strerror}; nothing was changed") from problem
    write_private(config, text, like)


def _see_fit(folder: Path, text: str) -> None:
    """Read the keys of the configuration to be, in a file beside the one that is: with a fault no service would start.

    Raises:
        Fault: it has faults.
    """
    descriptor, name = tempfile.mkstemp(dir=folder, prefix=".haulage-", suffix=".toml")
    trial = Path(name)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        read_keys(trial, os.environ)
    except ConfigInvalid as problem:
        raise Fault(f"{'; '.join(problem.faults)}; nothing was changed") from problem
    finally:
        trial.unlink()


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    if not escaped.isprintable():
        raise Fault(f"{text!r} has characters that cannot be written here")
    return f'"{escaped}"'
