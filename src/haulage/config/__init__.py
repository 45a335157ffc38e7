"""``haulage.toml`` and ``HAULAGE_*`` become typed settings; one error lists every fault.

Read settings.py first (what comes out), then load.py (the sections), document.py (file and variables as one
tree), table.py and kinds.py (how a key is read), datasets.py, secrets.py.
"""

from haulage.config.application import imported
from haulage.config.datasets import Known, dataset_faults
from haulage.config.load import known_of, load, read_keys, with_session
from haulage.config.parents import parent_faults
from haulage.config.secrets import hash_key, new_key, new_secret
from haulage.config.settings import KeySettings, ObjectSettings, Settings, SourceSettings

__all__ = [
    "KeySettings",
    "Known",
    "ObjectSettings",
    "Settings",
    "SourceSettings",
    "dataset_faults",
    "hash_key",
    "imported",
    "known_of",
    "load",
    "new_key",
    "new_secret",
    "parent_faults",
    "read_keys",
    "with_session",
]
