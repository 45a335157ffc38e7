"""Faults as sentences: the key, its value, and what to write instead. A secret's value is never in one."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable

SHOWN_MAX = 60  # characters of a value that a sentence shows
# Up to the last @: in a password it should be written %40, and often is not.
_CREDENTIALS = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*:/*).*@", re.DOTALL)
_QUERY_SECRET = re.compile(r"([?&][^=&]*(?:pass|secret|key|token|credential)[^=&]*=)[^&]*", re.IGNORECASE)


class Faults:
    """Collects every fault of a configuration, so that one reading mends them all."""

    def __init__(self) -> None:
        """Start without any."""
        self.sentences: list[str] = []

    def wrong(self, key: str, value: object, why: str) -> None:
        """A value that cannot be used; ``why`` says what is wrong and what to write."""
        self.say(f"{key} = {shown(value)}: {why}")

    def say(self, sentence: str) -> None:
        """A fault in words of its own; the same one is said once."""
        if sentence not in self.sentences:
            self.sentences.append(sentence)


def shown(value: object) -> str:
    """A value as the file would have it, shortened, without the credentials of a URL."""
    text = json.dumps(masked(value) if isinstance(value, str) else value, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 1] + "…"


def masked(url: str) -> str:
    """A URL without user, password and secret parts of its query; other text as it is.

    Example:
        >>> masked("postgresql://amina:hush@db/shop?sslpassword=hush")
        'postgresql://***@db/shop?sslpassword=***'
    """
    return _QUERY_SECRET.sub(r"\1***", _CREDENTIALS.sub(r"\1***@", url))


def meant(word: str, known: Iterable[str]) -> str:
    """What somebody who wrote an unknown word may have meant; else what there is."""
    there = sorted(known)
    near = difflib.get_close_matches(word, there, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]}?"
    return f"there are: {', '.join(there)}" if there else "there are none"
