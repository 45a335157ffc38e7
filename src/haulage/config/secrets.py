"""Secrets: where they stand, how strong they must be, and bearer keys, of which only hashes are kept."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from haulage.config.kinds import TEXT, Given, Kind

SECRET_BYTES_MIN = 32
DISTINCT_MIN = 8  # different characters; fewer is a key held down, not a secret
KEY_PREFIX = "hk_"  # so that a key is recognised where it does not belong: in a log, a commit, a chat


def new_secret() -> str:
    """A signing secret of 256 random bits."""
    return secrets.token_urlsafe(SECRET_BYTES_MIN)


def new_key() -> tuple[str, str]:
    """A bearer key of 256 random bits, and its hash; the key is shown once and kept nowhere."""
    text = KEY_PREFIX + base64.urlsafe_b64encode(secrets.token_bytes(32)).rstrip(b"=").decode()
    return text, hash_key(text)


def hash_key(text: str) -> str:
    """What the configuration keeps of a key.

    One round of SHA-256 is right here: salt and slowness protect words that people choose, and nobody can
    try out 256 random bits. A slow hash would only make every request of a program slow.
    """
    return "sha256:" + hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


def _hash(value: object) -> str:
    text = TEXT.parse(value)
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", text):
        if text.startswith(KEY_PREFIX):
            raise ValueError("is the key itself; write its hash, which haulage keys new prints beside a new key")
        raise ValueError
    return text


HASH = Kind("a hash of a key", '"sha256:" and 64 hex digits, as haulage keys new prints them', _hash, secret=True)


class Places:
    """Looks up what stands elsewhere: ``env:NAME`` in a variable, ``file:PATH`` in a file of the operator."""

    def __init__(self, environ: Mapping[str, str], folder: Path) -> None:
        """Take the environment and the folder that a relative path counts from."""
        self._environ = environ
        self.folder = folder

    def url(self) -> Kind[str]:
        """A URL, or the name of a variable that holds it."""

        def parse(value: object) -> str:
            text = TEXT.parse(value)
            return self._variable(text) if text.startswith("env:") else text

        return Kind("a URL", '"sqlite:///shop.db"', parse)

    def signing(self) -> Kind[tuple[str, ...]]:
        """The list of secrets that sign and verify tokens."""

        def parse(value: object) -> tuple[str, ...]:
            if isinstance(value, Given):
                value = [part.strip() for part in value.strip("[] ").replace('"', "").split(",")]
            if not isinstance(value, list) or not value:
                raise ValueError
            found: list[str] = []
            wrong: list[str] = []
            for number, item in enumerate(value, 1):
                try:
                    found.append(self._strong(number, item))
                except ValueError as problem:
                    wrong.append(str(problem))
            if wrong:
                raise ValueError(*wrong)
            if len(set(found)) != len(found):
                raise ValueError("names one secret twice; write each once")
            return tuple(found)

        return Kind("a list of secrets", '["env:HAULAGE_SECRET"]', parse, secret=True)

    def _strong(self, number: int, value: object) -> str:
        what = f"entry {number}"
        if not isinstance(value, str) or not value:
            raise ValueError(f'{what} is not text; write "env:HAULAGE_SECRET" or the secret itself')
        if value.startswith("env:"):
            secret, what = self._variable(value), f"{what} ({value})"
        elif value.startswith("file:"):
            secret, what = self._file(value), f"{what} ({value})"
        else:
            secret = value
        if len(secret.encode(errors="surrogateescape")) < SECRET_BYTES_MIN or len(set(secret)) < DISTINCT_MIN:
            raise ValueError(
                f"{what} is too weak: it needs {SECRET_BYTES_MIN} random bytes; "
                "make one with: python3 -c 'import secrets; print(secrets.token_urlsafe(32))'"
            )
        return secret

    def _variable(self, text: str) -> str:
        name = text.removeprefix("env:")
        secret = self._environ.get(name, "").strip()
        if not secret:
            raise ValueError(f"names the environment variable {name}, which is not set; set it or write the value")
        return secret

    def _file(self, text: str) -> str:
        path = self.folder / text.removeprefix("file:")
        try:
            secret = path.read_text().strip()
        except (OSError, UnicodeDecodeError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else "it is not text"
            raise ValueError(
                f"names the file {path}, which cannot be read: {reason}; put it there, or write the value"
            ) from None
        return secret
