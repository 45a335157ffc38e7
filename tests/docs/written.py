"""Parts of documents that are made by the program, between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``.

``WRITE_DOCS=1 ./dev test tests/docs`` writes them anew; without it they are compared.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def assert_written(document: Path, name: str, text: str) -> None:
    """Compare a part of a document with what it must be, or write it."""
    before = document.read_text()
    begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
    assert begin in before, f"{document.name} has no part {name!r}"
    wanted = re.sub(f"{begin}.*?{end}", lambda _: f"{begin}{text.rstrip()}\n{end}", before, flags=re.DOTALL)
    if os.environ.get("WRITE_DOCS"):
        document.write_text(wanted)

    assert wanted == document.read_text(), f"{document.name} is stale: WRITE_DOCS=1 ./dev test tests/docs"
