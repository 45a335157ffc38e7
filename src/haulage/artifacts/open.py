"""A place of artifacts by its URL: a folder of this host, or objects in a bucket."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from haulage.artifacts.local import LocalArtifacts, artifacts_path
from haulage.config import ObjectSettings
from haulage.core.errors import ConfigInvalid

if TYPE_CHECKING:
    from haulage.artifacts.objects import ObjectArtifacts

MISSING = "botocore not found; install the s3 extra: pip install 'haulage[s3]'"


def open_artifacts(url: str, settings: ObjectSettings, owner: str = "") -> LocalArtifacts | ObjectArtifacts:
    """What stands behind ``artifacts``. A bucket is not asked for anything yet, so that commands start without it.

    Args:
        owner: the id of the store whose files these are.

    Raises:
        ConfigInvalid: it needs a library that is not installed.
    """
    if not url.startswith("s3:"):
        return LocalArtifacts(artifacts_path(url), owner)
    if find_spec("botocore") is None:
        raise ConfigInvalid([f'artifacts = "{url}": {MISSING}'])
    from haulage.artifacts.objects import ObjectArtifacts

    return ObjectArtifacts(url, settings, owner)
