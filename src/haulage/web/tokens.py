"""Signed tokens: a right to look something up, bound to one purpose and one session.

Overview. A token is ``payload.signature``: base64url of a JSON list, and an HMAC-SHA-256 by itsdangerous
whose key is derived from a secret, the purpose and the SHA-256 of who asks with which session. The session
is input, not content, so nothing can be read out of a token or moved to another session.

Rules. Only the exact text that we issue is accepted: it is made again and compared, since one signature has
several base64 spellings and a decoder would take them all. The first secret signs; tokens of every listed
secret hold, so a secret is replaced by putting the new one first and removing the old one later. Nothing
is parsed before the signature holds. A token never says "yes": the row, the session and the grants do.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from itsdangerous import Signer

from haulage.core.requester import Requester

TOKEN = re.compile(r"[A-Za-z0-9_-]{2,400}\.[A-Za-z0-9_-]{43}")


class Purpose(StrEnum):
    """What a token is for; one for another purpose is not even parsed."""

    RUN = "run"
    FILE = "file"
    CSRF = "csrf"
    CURSOR = "cursor"


@dataclass(frozen=True, slots=True)
class RunRight:
    """What a run token names."""

    id: str
    generation: int


@dataclass(frozen=True, slots=True)
class FileRight:
    """What a file token names; ``expires_at`` is judged when the file is opened."""

    id: str
    generation: int
    expires_at: int


def binding_of(requester: Requester) -> str:
    """What a requester's tokens are bound to: tenant, account and session."""
    bound = json.dumps([requester.tenant, requester.account, requester.session])
    return hashlib.sha256(bound.encode()).hexdigest()


class Tokens:
    """Issues and reads tokens.

    Args:
        secret_keys: the first signs, all verify.

    Raises:
        ValueError: there is no secret.
    """

    def __init__(self, secret_keys: Sequence[str]) -> None:
        """Keep the secrets; a key per purpose and session is derived from them each time."""
        if not secret_keys:
            raise ValueError("secret_keys is empty: nothing could be signed")
        self._secrets = tuple(secret_keys)

    def for_run(self, binding: str, run_id: str, generation: int) -> str:
        """A run token. It holds no time, so a run looks the same until its row changes."""
        return self._issue(Purpose.RUN, binding, [run_id, generation])

    def read_run(self, binding: str, text: str) -> RunRight | None:
        """What a run token of this session names."""
        payload = self._read(Purpose.RUN, binding, text)
        return None if payload is None else RunRight(*payload)

    def for_file(self, binding: str, right: FileRight) -> str:
        """A file token."""
        return self._issue(Purpose.FILE, binding, [right.id, right.generation, right.expires_at])

    def read_file(self, binding: str, text: str) -> FileRight | None:
        """What a file token of this session names, whether or not its time has passed."""
        payload = self._read(Purpose.FILE, binding, text)
        return None if payload is None else FileRight(*payload)

    def for_forms(self, binding: str) -> str:
        """The CSRF token of a session."""
        return self._issue(Purpose.CSRF, binding, [])

    def holds_forms(self, binding: str, text: str) -> bool:
        """Say whether a CSRF token is this session's."""
        return self._read(Purpose.CSRF, binding, text) is not None

    def for_page(self, binding: str, before: tuple[int, str]) -> str:
        """A cursor: the last row that was seen."""
        return self._issue(Purpose.CURSOR, binding, list(before))

    def read_page(self, binding: str, text: str) -> tuple[int, str] | None:
        """The row that a cursor of this session names."""
        payload = self._read(Purpose.CURSOR, binding, text)
        return None if payload is None else (payload[0], payload[1])

    def _issue(self, purpose: Purpose, binding: str, payload: list[Any]) -> str:
        packed = base64.urlsafe_b64encode(json.dumps(payload, separators=(",", ":")).encode())
        return _signer(self._secrets[0], purpose, binding).sign(packed.rstrip(b"=")).decode()

    def _read(self, purpose: Purpose, binding: str, text: str) -> list[Any] | None:
        if not TOKEN.fullmatch(text):
            return None
        packed = text.partition(".")[0]
        held = False
        for secret in self._secrets:  # Every one is tried, so time does not tell which.
            issued = _signer(secret, purpose, binding).sign(packed).decode()
            held |= hmac.compare_digest(issued, text)
        if not held:
            return None
        payload: list[Any] = json.loads(base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)))
        return payload


def _signer(secret: str, purpose: Purpose, binding: str) -> Signer:
    salt = f"haulage.{purpose}.{binding}"
    return Signer(secret, salt=salt, key_derivation="hmac", digest_method=hashlib.sha256)
