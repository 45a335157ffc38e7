"""Who asked, as it was then: tenant, account, session and grants, frozen into the run."""

from __future__ import annotations

from dataclasses import dataclass, field

EVERY_GRANT = "*"
OPERATOR = "operator"  # sees and cancels every run, reads workers, storage and metrics
COUNTS_ALL = "counts.all"  # sees counts taken before the visibility predicate
ID_MAX = 200  # characters of a tenant or account that every store keeps


@dataclass(frozen=True, slots=True)
class Requester:
    """The one who asks. Tenant, account and session are texts: a number would never equal what a run has kept.

    Args:
        tenant: whose data; runs of another tenant do not exist for this requester.
        account: the person or program; runs belong to it.
        grants: permissions by name; ``"*"`` holds every one.
        session: an id of the sign-in or key that tokens are bound to. It is never stored with a run.
        banned: a banned requester is refused everywhere.
        key: the name of the configured key that was used; None for one whom the host authenticated.

    Raises:
        TypeError: an id is no text, or the grants are one.
        ValueError: tenant or account is empty, has more than 200 characters, or some that not every store keeps.

    Example:
        >>> Requester("north", "amina", frozenset({"orders.read"})).holds("orders.read")
        True
    """

    tenant: str
    account: str
    grants: frozenset[str] = frozenset()
    session: str = field(default="", compare=False)
    banned: bool = False
    key: str | None = None

    def __post_init__(self) -> None:
        """Refuse what a host easily gives by mistake, where it is given."""
        texts: dict[str, object] = {"tenant": self.tenant, "account": self.account, "session": self.session}
        for name, value in texts.items():
            if not isinstance(value, str):
                message = f"Requester({name}={value!r}) is no text; write str(...)"
                raise TypeError(message)
        for name, text in (("tenant", self.tenant), ("account", self.account)):
            if not 0 < len(text) <= ID_MAX:
                message = f"Requester({name}=…) has {len(text):,} characters; write 1 to {ID_MAX}"
                raise ValueError(message)
            if any(each == "\0" or "\ud800" <= each <= "\udfff" for each in text):
                # PostgreSQL keeps no NUL, no database half a surrogate pair.
                message = f"Requester({name}=…) has a NUL or half a surrogate pair, which not every store keeps"
                raise ValueError(message)
        grants: object = self.grants
        if isinstance(grants, str):  # "read" would be held by whoever has "orders.read"
            message = f'Requester(grants="{self.grants}") is one text; write frozenset({{"{self.grants}"}})'
            raise TypeError(message)
        object.__setattr__(self, "grants", frozenset(self.grants))

    def holds(self, grant: str | None) -> bool:
        """Say whether a grant is held; what asks for none is open to everybody who is not banned."""
        if self.banned:
            return False
        return grant is None or grant in self.grants or EVERY_GRANT in self.grants

    def frozen(self) -> dict[str, object]:
        """What a run keeps of its requester (no session: a token must not be found in the store)."""
        return {
            "tenant": self.tenant,
            "account": self.account,
            "grants": sorted(self.grants),
            "key": self.key,
        }

    @staticmethod
    def thawed(kept: dict[str, object]) -> Requester:
        """The requester that a run kept."""
        grants = kept["grants"]
        assert isinstance(grants, list)
        key = kept.get("key")
        return Requester(
            str(kept["tenant"]),
            str(kept["account"]),
            frozenset(map(str, grants)),
            key=None if key is None else str(key),
        )
