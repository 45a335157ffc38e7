"""A file's name in a header: RFC 6266 with an ASCII fallback, and RFC 8187 for what it really is.

The name may come from a dataset's label, so it may hold anything. Whatever client takes whichever of the two
spellings gets one plain file name: no folder, no control character, no device of Windows, no hidden file.
"""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import quote

NAME_BYTES_MAX = 180  # of UTF-8, below what any file system takes
UNNAMED = "export"
_DEVICES = re.compile(r"(?i)(con|prn|aux|nul|com[0-9]|lpt[0-9])(?=\.|$)")
_ATTR_CHARS = "!#$&+-.^_`|~"  # of RFC 8187, beside letters and digits


def content_disposition(name: str) -> str:
    """The value of Content-Disposition for a download.

    Example:
        >>> print(content_disposition("é.csv"))
        attachment; filename="e.csv"; filename*=UTF-8''%C3%A9.csv
    """
    name = plain_name(name)
    # A percent sign in the fallback would be decoded by some clients.
    fallback = re.sub(r"[^A-Za-z0-9 !#$&'()+,.;=@^_`{}~\[\]-]", "_", _without_marks(name))
    return f"attachment; filename=\"{fallback}\"; filename*=UTF-8''{quote(name, safe=_ATTR_CHARS)}"


def plain_name(name: str) -> str:
    """A name that is one file in the folder it is saved to, whatever system that is on."""
    name = re.split(r"[/\\]", name.encode(errors="replace").decode())[-1]
    name = "".join(" " if each.isspace() else each for each in name if each.isspace() or _prints(each))
    name = re.sub(r'[<>:"|?*]', "_", name).strip(" ").lstrip(".").rstrip(" .")
    if _DEVICES.match(name):
        name = "_" + name
    return _shortened(name) or UNNAMED


def _prints(character: str) -> bool:
    # Cc and Cf hold line ends, NUL, and the overrides that show a name backwards.
    return not unicodedata.category(character).startswith("C")


def _without_marks(name: str) -> str:
    return "".join(each for each in unicodedata.normalize("NFKD", name) if not unicodedata.combining(each))


def _shortened(name: str) -> str:
    """Cut the stem and keep the suffixes, which say what the file is."""
    if len(name.encode()) <= NAME_BYTES_MAX:
        return name
    found = re.search(r"(\.[A-Za-z0-9]{1,8}){1,2}$", name)
    suffix = found[0] if found else ""
    stem = name[: len(name) - len(suffix)].encode()[: NAME_BYTES_MAX - len(suffix)]
    return stem.decode(errors="ignore").rstrip(" .") + suffix
