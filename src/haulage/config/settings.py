"""What a configuration becomes: typed, frozen, with absolute places and resolved secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from haulage.core.catalogue import Dataset
from haulage.core.limits import MIB, DoorLimits, ExportLimits
from haulage.core.parents import Parent
from haulage.core.requester import EVERY_GRANT, Requester


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """One source of data, ``[sources.NAME]``."""

    name: str
    url: str = field(repr=False)  # may hold a password
    label: str = ""
    busy_seconds: float = 5  # how long a locked source is waited for
    session: Mapping[str, str] = field(default_factory=dict)  # what is set in each of its transactions


@dataclass(frozen=True, slots=True)
class ObjectSettings:
    """How a bucket is reached, ``[objects]``; it counts where ``artifacts`` is an ``s3:`` URL.

    Args:
        endpoint: of a server that is not Amazon's.
        access_key: with ``secret_key``; without both, the usual places of the AWS tools are looked at.
        addressing: of a bucket: in the path, or in the host name; None means what suits the endpoint.
        ca_file: certificates to trust instead of the usual ones.
        download: ``proxy``, or ``redirect`` to an address of the bucket that is valid for a minute.
        part_bytes: what a build holds in memory before it sends it.
        work: a folder of this host, where sources sort.
    """

    endpoint: str | None = None
    region: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    addressing: str | None = None
    ca_file: str | None = None
    download: str = "proxy"
    part_bytes: int = 8 * MIB
    work: str = "./work"


@dataclass(frozen=True, slots=True)
class KeySettings:
    """One bearer key, ``[keys.NAME]``; the key itself is nowhere, only its hash."""

    name: str
    hash: str = field(repr=False)
    tenant: str = "default"
    account: str = ""
    grants: frozenset[str] = frozenset()
    banned: bool = False

    def requester(self, session: str = "") -> Requester:
        """Who asks with this key."""
        return Requester(self.tenant, self.account, self.grants, session, self.banned, self.name)


OPERATOR_DEFAULT = Requester("default", "operator", frozenset({EVERY_GRANT}), key="operator")


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that ``haulage.toml`` and the environment say.

    Args:
        path: the file; relative places were resolved against its folder.
        store: ``sqlite:////absolute/file``, ``directory:///absolute/folder``, ``postgresql://…`` or ``mariadb://…``.
        artifacts: ``file:/absolute/folder`` or ``s3://bucket/prefix``.
        secret_keys: the first signs, all verify.
        operator: who the command line acts as.
        app: ``module:name`` of a Haulage on which datasets are declared in Python.
        lanes: how many exports one worker builds at once.
        trusted_proxies: addresses and networks whose X-Forwarded-For and X-Forwarded-Proto are believed.
        warnings: sentences for whoever starts the program.
    """

    path: Path | None
    store: str = field(repr=False)
    artifacts: str = field(repr=False)
    secret_keys: tuple[str, ...] = field(repr=False)
    objects: ObjectSettings = field(default_factory=ObjectSettings)
    sources: Mapping[str, SourceSettings] = field(default_factory=dict)
    datasets: tuple[Dataset, ...] = ()
    parents: tuple[Parent, ...] = ()
    keys: Mapping[str, KeySettings] = field(default_factory=dict)
    operator: Requester = OPERATOR_DEFAULT
    exports: ExportLimits = field(default_factory=ExportLimits)
    doors: DoorLimits = field(default_factory=DoorLimits)
    app: str | None = None
    lanes: int = 2
    host: str = "127.0.0.1"
    port: int = 8480
    trusted_proxies: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
