"""A frozen plan as a source gets it; apart from plan.py, so that the light child loads no more than this."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from haulage.core.reading import Reading

# Stands among the hidden columns of a plan with blanked cells, groups or a revision. A worker of the version before
# knows none of them, and would write all rows and cells; it looks for this column, and fails the run.
NEWER = "(a worker that knows groups, conditions of columns, and revisions)"
AS_CELLS = ("json", "ndjson")  # formats in which a pivot is a list of cells; in others it is a wide table


def is_of_cells(format: str) -> bool:
    """Say whether a format has a pivot as a list of cells, and not as a wide table."""
    return format in AS_CELLS


def reading_of(plan: Mapping[str, Any]) -> Reading:
    """A frozen plan as a source gets it."""
    return Reading(
        sql=plan["sql"],
        binds=plan["binds"],
        types=plan["types"],
        visible=plan["visible"],
        hidden=tuple(each for each in plan["hidden"] if each != NEWER),
        order=tuple(plan["order"]),
        columns=None if plan["columns"] is None else tuple(plan["columns"]),
        declared={key: (header, kind) for key, (header, kind) in plan["declared"].items()},
        session=plan.get("session", {}),  # a row frozen before there were any has none
        blanked=plan.get("blanked", {}),
    )
