"""The sections of the file, one function each. Nothing is opened here: a source that cannot be reached is
found by ``haulage datasets check`` and ``haulage doctor``; a missing secret is found now.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from haulage.config.datasets import Known, dataset_faults, read_datasets
from haulage.config.document import open_to_others, read_document, texts
from haulage.config.faults import Faults, masked, meant
from haulage.config.kinds import BOOLEAN, COUNT, NETWORKS, PORT, SECONDS, SIZE, TEXT, TEXTS, Kind, matching, one_of
from haulage.config.parents import parent_faults, read_parents
from haulage.config.secrets import HASH, Places
from haulage.config.settings import OPERATOR_DEFAULT, KeySettings, ObjectSettings, Settings, SourceSettings
from haulage.config.table import Table
from haulage.core.catalogue import NAME, RESERVED_BINDS, Dataset
from haulage.core.errors import ConfigInvalid
from haulage.core.limits import MIB, BuildLimits, DoorLimits, ExportLimits
from haulage.core.parents import Parent
from haulage.core.requester import ID_MAX, Requester

Asking = TypeVar("Asking", Dataset, Parent)
STORE_DEFAULT = "sqlite:///haulage.db"
DRIVERLESS = ("postgresql", "mariadb")
SERVERS = (*DRIVERLESS, "postgresql+psycopg", "mariadb+pymysql")
MISNAMED = {"postgres": "postgresql", "mysql": "mariadb"}  # as other programs have them
ARTIFACTS_DEFAULT = "file:./artifacts"
APP = matching(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", "module:name", '"myapp.exports:haul"')
WHO = matching(rf"(?s:.{{1,{ID_MAX}}})", f"text of at most {ID_MAX} characters", '"north"')
GRANTS = Kind("a list of grants", '["orders.read"]', lambda value: frozenset(TEXTS.parse(value)))
KEY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
BUCKET_URL = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9!_.*'()-]+)*/?")
ENDPOINT = matching(r"https?://[^/@?#\s]+/?", "the address of a server", '"https://objects.example"')
PART_BYTES_MIN, PART_BYTES_MAX = 5 * MIB, 64 * MIB  # less is refused by servers, more is held in memory
SETTING = re.compile(r"[A-Za-z_][\w$]*(\.[A-Za-z_][\w$]*)*")
WITH_SESSIONS = ("postgresql",)  # sources whose database can be told who asks
SESSION_BINDS = tuple(name for name in RESERVED_BINDS if name != "requester_grants")  # a setting is no list
PARALLEL = ("postgresql",)  # sources of which several connections can see one snapshot
SCHEME = re.compile(r"[a-z][a-z0-9.-]*(\+[a-z0-9]+)?:.+", re.DOTALL)


def load(
    path: str | Path,
    environ: Mapping[str, str],
    *,
    formats: Collection[str] | None = None,
    schemes: Collection[str] | None = None,
) -> Settings:
    """Read a configuration.

    Args:
        path: the file; relative places in it are resolved against its folder.
        environ: where overrides and ``env:`` secrets come from.
        formats: the formats there are; None leaves a dataset's formats unchecked.
        schemes: the schemes of sources there are; None leaves those unchecked.

    Raises:
        ConfigInvalid: with every fault at once.
    """
    path = Path(path).absolute()
    document, wrong_variables = read_document(path, environ)
    faults = Faults()
    for sentence in wrong_variables:
        faults.say(sentence)
    top = Table(document, "", faults)
    settings = _read(top, path, Places(environ, path.parent), schemes)
    sessions = {name: source.session for name, source in settings.sources.items()}
    for parent in settings.parents:
        for sentence in parent_faults(parent, settings.sources, sessions):
            faults.say(sentence)
    # An application may declare more of them; what nobody has declared is found by ``datasets check``.
    kinds = [parent.kind for parent in settings.parents] if settings.app is None else None
    known = known_of(settings.sources, formats, kinds)
    for dataset in settings.datasets:
        for sentence in dataset_faults(dataset, known):
            faults.say(sentence)
    if faults.sentences:
        raise ConfigInvalid(faults.sentences, path.name)
    return settings


def _read(top: Table, path: Path, places: Places, schemes: Collection[str] | None) -> Settings:
    """Every section in turn; what cannot be used is replaced by a default, so that the next can be read."""
    exports, doors = _limits(top)
    serve, worker = top.table("serve"), top.table("worker")
    settings = Settings(
        path=path,
        store=_store(top, places),
        artifacts=_artifacts(top, places),
        secret_keys=top.demand("secret_keys", places.signing(), ()),
        objects=_objects(top, places),
        sources=_sources(top, places, schemes),
        datasets=read_datasets(top, exports.build, places.folder),
        parents=read_parents(top),
        keys=_keys(top),
        operator=_operator(top),
        exports=exports,
        doors=doors,
        app=top.read("app", APP, None),
        lanes=worker.read("exports", COUNT, exports.slots),
        host=serve.read("host", TEXT, "127.0.0.1"),
        port=serve.read("port", PORT, 8480),
        trusted_proxies=serve.read("trusted_proxies", NETWORKS, ()),
        warnings=_warnings(path, top.values),
    )
    for table in (serve, worker, top):
        table.close()
    return replace(
        settings,
        datasets=tuple(with_session(each, settings.sources) for each in settings.datasets),
        parents=tuple(with_session(each, settings.sources) for each in settings.parents),
    )


def read_keys(path: str | Path, environ: Mapping[str, str]) -> tuple[Mapping[str, KeySettings], Requester]:
    """The keys and the operator alone, for a service that notices that its file has changed.

    Raises:
        ConfigInvalid: with every fault of these sections; keep what was read before.
    """
    path = Path(path).absolute()
    document, _ = read_document(path, environ)
    top = Table(document, "", Faults())
    keys, operator = _keys(top), _operator(top)
    if top.faults.sentences:
        raise ConfigInvalid(top.faults.sentences, path.name)
    return keys, operator


def _store(top: Table, places: Places) -> str:
    """Where runs are kept: a file, a folder that hosts may share, or a database on a server."""
    url = top.read("store", places.url(), STORE_DEFAULT)
    scheme, _, place = url.partition("://")
    if url.startswith("directory:"):
        if not url.removeprefix("directory:").strip("/") or "?" in url:
            top.faults.wrong("store", url, 'names no folder; write "directory:///srv/haulage"')
        return absolute(url, places.folder)
    if scheme.partition("+")[0] in MISNAMED:
        why = f'is no store of this version; write "{MISNAMED[scheme.partition("+")[0]]}://user@host/database"'
        top.faults.wrong("store", url, why)
        return url
    if scheme.partition("+")[0] not in DRIVERLESS:
        return _place(top, "store", places, STORE_DEFAULT)
    if scheme not in SERVERS:
        top.faults.wrong("store", url, f"this driver is not used; write {' or '.join(sorted(DRIVERLESS))}://…")
    elif not place.partition("?")[0].partition("/")[2]:
        top.faults.wrong("store", url, f'it names no database; write "{scheme}://user@host/database"')
    return url


def _place(top: Table, key: str, places: Places, default: str) -> str:
    """Where runs or bytes are kept. There is one kind of place for each in this version."""
    url = top.read(key, places.url(), default)
    scheme = default.partition(":")[0]
    if url.partition(":")[0] != scheme or url in (
        f"{scheme}:",
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
    ):
        top.faults.wrong(key, url, f'cannot be used by this version; write "{default}" or another {scheme}: place')
    return absolute(url, places.folder)


def _artifacts(top: Table, places: Places) -> str:
    """Where bytes are kept: a folder, or a bucket and what the names in it begin with."""
    url = top.read("artifacts", places.url(), ARTIFACTS_DEFAULT)
    if not url.startswith("s3:"):
        return _place(top, "artifacts", places, ARTIFACTS_DEFAULT)
    if not BUCKET_URL.fullmatch(url):
        top.faults.wrong("artifacts", url, 'names no bucket; write "s3://bucket/prefix"')
    return url.rstrip("/")


def _objects(top: Table, places: Places) -> ObjectSettings:
    table, default = top.table("objects"), ObjectSettings()
    found = ObjectSettings(
        endpoint=table.read("endpoint", ENDPOINT, None),
        region=table.read("region", TEXT, None),
        access_key=table.read("access_key", places.secret('"env:OBJECTS_ACCESS_KEY"'), None),
        secret_key=table.read("secret_key", places.secret('"env:OBJECTS_SECRET_KEY"'), None),
        addressing=table.read("addressing", one_of(("path", "virtual"), "way to address a bucket"), None),
        ca_file=table.read("ca_file", places.path(), None),
        download=table.read("download", one_of(("proxy", "redirect"), "way to download"), default.download),
        part_bytes=table.read("part_bytes", SIZE, default.part_bytes),
        work=table.read("work", places.path(), str((places.folder / default.work).absolute())),
    )
    if table.has("access_key") != table.has("secret_key"):
        top.faults.say("objects.access_key and objects.secret_key belong together; write both, or none")
    if not PART_BYTES_MIN <= found.part_bytes <= PART_BYTES_MAX:
        why = 'is no size of a part that every server takes; write "8 MiB", or another from "5 MiB" to "64 MiB"'
        top.faults.wrong("objects.part_bytes", found.part_bytes, why)
    table.close()
    return found


def absolute(url: str, folder: Path) -> str:
    """A URL whose file or folder no longer depends on where a program was started."""
    for prefix in ("sqlite:///", "duckdb:///"):
        if url.startswith(prefix) and len(url) > len(prefix):
            return prefix + str(folder / url.removeprefix(prefix))
    for scheme in ("file:", "directory:"):
        if url.startswith(scheme) and not url.startswith(f"{scheme}//"):
            return scheme + str((folder / url.removeprefix(scheme)).absolute())
    return url


def _limits(top: Table) -> tuple[ExportLimits, DoorLimits]:
    limits = top.table("limits")
    exports, doors = limits.table("exports"), limits.table("doors")
    build = replace(BuildLimits(), **exports.numbers(BuildLimits()))
    found = replace(ExportLimits(), build=build, **exports.numbers(ExportLimits(), skip=("build",)))
    doors_found = replace(DoorLimits(), **doors.numbers(DoorLimits()))
    for table in (exports, doors, limits):
        table.close()
    for sentence in found.faults():
        top.faults.say(sentence)
    return found, doors_found


def _sources(top: Table, places: Places, schemes: Collection[str] | None) -> dict[str, SourceSettings]:
    found = {}
    for name, table in top.tables("sources"):
        if not NAME.fullmatch(name):
            top.faults.say(f"{table.path}: write a name of small letters, digits and _, at most 63")
        url = table.demand("url", places.url(), "")
        if url:
            _judge_url(table, url, schemes)
        found[name] = SourceSettings(
            name,
            absolute(url, places.folder),
            table.read("label", TEXT, ""),
            table.read("busy_seconds", SECONDS, 5),
            _session(table, url),
        )
        table.close()
    return found


def _session(source: Table, url: str) -> dict[str, str]:
    """What is set for a transaction of a source, by name; ``:requester_tenant`` and its kin stand for the requester."""
    table = source.table("session")
    found: dict[str, str] = {}
    for name, given in table.values.items():
        if isinstance(given, Mapping):  # a dot outside of quotes begins a table
            dotted = f"{name}.{next(iter(given), 'tenant')}"
            table.faults.say(f"{table.key(name)} is a table; write the whole name in quotes: {dotted!r} = …")
            continue
        value = table.read(name, TEXT, "")
        if not SETTING.fullmatch(name):
            table.faults.say(f'{table.key(name)} is no name of a setting; write "app.tenant" or role')
        if value.startswith(":") and value[1:] not in SESSION_BINDS:
            known = [f":{each}" for each in SESSION_BINDS]
            table.faults.wrong(table.key(name), value, f"is not known of a requester; {meant(value, known)}")
        found[name] = value
    if found and scheme_of(url) not in WITH_SESSIONS:
        table.faults.say(f"{table.path}: only a source of {' or '.join(WITH_SESSIONS)} has a session")
    return found


def known_of(
    sources: Mapping[str, SourceSettings], formats: Collection[str] | None, parents: Collection[str] | None
) -> Known:
    """What a dataset may name, with these sources."""
    alone = [name for name, each in sources.items() if scheme_of(each.url) not in PARALLEL]
    return Known(sources, formats, parents, alone)


def with_session(declared: Asking, sources: Mapping[str, SourceSettings]) -> Asking:
    """A dataset, or a kind of parent, with what its source sets before a query runs."""
    source = sources.get(declared.source)
    return replace(declared, session=source.session) if source is not None and source.session else declared


def scheme_of(url: str) -> str:
    """The technology of a URL, without a driver's name."""
    return url.partition(":")[0].partition("+")[0]


def _judge_url(table: Table, url: str, schemes: Collection[str] | None) -> None:
    if not SCHEME.fullmatch(url):
        table.faults.wrong(table.key("url"), url, 'is no URL; write "sqlite:///shop.db"')
        return
    scheme = scheme_of(url)
    if schemes is not None and scheme not in schemes:
        why = f"no source of this version reads {scheme}; {meant(scheme, schemes)}"
        table.faults.wrong(table.key("url"), masked(url), why)


def _keys(top: Table) -> dict[str, KeySettings]:
    found: dict[str, KeySettings] = {}
    for name, table in top.tables("keys"):
        if name == OPERATOR_DEFAULT.key:
            top.faults.say(f"{table.path}: this name stands for [operator]; choose another")
        if not KEY_NAME.fullmatch(name):
            top.faults.say(f"{table.path}: write a name of letters, digits, _ and -, at most 63")
        key = KeySettings(
            name=name,
            hash=table.demand("hash", HASH, ""),
            tenant=table.read("tenant", WHO, "default"),
            account=table.read("account", WHO, name),
            grants=table.read("grants", GRANTS, frozenset()),
            banned=table.read("banned", BOOLEAN, False),
        )
        table.close()
        for other in found.values():
            _judge_pair(key, other, top.faults)
        found[name] = key
    return found


def _judge_pair(key: KeySettings, other: KeySettings, faults: Faults) -> None:
    if key.hash and key.hash == other.hash:
        faults.say(f"keys.{key.name}.hash is that of keys.{other.name} too; make each with: haulage keys new")
    same_account = (key.tenant, key.account) == (other.tenant, other.account)
    # Two keys of one account are how a key is changed without a pause; then they must be allowed the same. One of
    # them can be banned alone: a key that has leaked is stopped by one line, and the other goes on.
    if same_account and key.grants != other.grants and not key.banned and not other.banned:
        faults.wrong(
            f"keys.{key.name}.account",
            key.account,
            f"keys.{other.name} is the same account of tenant {key.tenant} with other grants; "
            "write another account, or the same grants in both",
        )


def _operator(top: Table) -> Requester:
    table = top.table("operator")
    requester = Requester(
        table.read("tenant", WHO, OPERATOR_DEFAULT.tenant),
        table.read("account", WHO, OPERATOR_DEFAULT.account),
        table.read("grants", GRANTS, OPERATOR_DEFAULT.grants),
        "operator",  # the session of a command line
        key=OPERATOR_DEFAULT.key,
    )
    table.close()
    return requester


def _warnings(path: Path, document: Mapping[str, object]) -> tuple[str, ...]:
    """What works but should not stay so."""
    found = []
    listed = document.get("secret_keys")
    written = isinstance(listed, list) and any(not _elsewhere(item) for item in texts(listed))
    objects = document.get("objects")
    key = objects.get("secret_key") if isinstance(objects, Mapping) else None
    written = written or (isinstance(key, str) and not _elsewhere(key))
    passwords = any(masked(text) != text for text in texts(document))
    if (written or passwords) and open_to_others(path):
        found.append(f"{path} holds secrets and every user of this host can read it; run: chmod 600 {path}")
    return tuple(found)


def _elsewhere(text: str) -> bool:
    return text.startswith(("env:", "file:"))
