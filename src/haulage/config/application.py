"""``app = "module:name"``: the application's own Haulage, on which datasets are declared in Python."""

from __future__ import annotations

import traceback
from importlib import import_module

from haulage.core.errors import ConfigInvalid


def imported(place: str, config: str) -> object:
    """What ``app = "module:name"`` names.

    Raises:
        ConfigInvalid: it cannot be imported. A mistake in the application is told with the line where it is.
    """
    module_name, _, attribute = place.partition(":")
    try:
        return getattr(import_module(module_name), attribute)
    except ConfigInvalid:
        raise  # The application opened a Haulage, and was told what is wrong with it.
    except ModuleNotFoundError as problem:
        why = f"{problem}; install it, or put it beside {config}"
    except (Exception, SystemExit) as problem:  # noqa: BLE001 - importing runs whatever somebody else wrote
        frame = traceback.extract_tb(problem.__traceback__)[-1]
        theirs = frame.filename != __file__ and not frame.filename.startswith("<")
        where = f" ({frame.filename}, line {frame.lineno})" if theirs else ""
        why = f"{type(problem).__name__}: {problem}{where}; mend it there, or write module:name of your Haulage"
    raise ConfigInvalid([f'app = "{place}": {why}'], config)
