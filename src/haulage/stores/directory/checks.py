"""What no life leads to is a mistake of ours, and is not written: the checks and unique columns of ``tables.py``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from haulage.core.lifecycle import Lifecycle


def refuse(life: type[Lifecycle], run: Any, rows: Iterable[Any], own: Mapping[str, bool]) -> None:
    """Refuse a row that breaks a check, without a value of it.

    Args:
        rows: every run that lives.
        own: what the flow itself wants, by the name of the check.
    """
    leased = run.state in life.leased_states()
    others = [row for row in rows if row.id != run.id]
    holds = {
        "state_known": run.state in life.states,
        "leased_while_held": leased == (run.lease_until is not None),
        "slot_while_held": leased == (run.slot is not None),
        "key_while_active": run.state in life.active or run.active_key is None,
        "slot": run.slot is None or all(row.slot != run.slot for row in others),
        "active_key": run.active_key is None or all(row.active_key != run.active_key for row in others),
        **own,
    }
    if broken := [name for name, held in holds.items() if not held]:
        raise AssertionError(f"the store refused a row: {', '.join(broken)}")
