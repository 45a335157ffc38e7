"""Parts of a document that the program makes, between ``<!-- begin … -->`` and ``<!-- end … -->``.

``WRITE_DOCS=1 ./dev test tests/docs`` writes them anew, without it they are compared.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def is_fresh(document: str, part: str, text: str) -> bool:
    """Say whether a part of a document is what it must be; write it first, when that is asked for."""
    path = DOCS / document
    found = path.read_text()
    begin, end = f"<!-- begin {part} -->\n", f"<!-- end {part} -->\n"
    assert begin in found, f"{path} has no {begin}"
    wanted = re.sub(f"{begin}.*?{end}", lambda _: f"{begin}{text}{end}", found, flags=re.DOTALL)
    if os.environ.get("WRITE_DOCS"):
        path.write_text(wanted)
    return wanted == path.read_text()
