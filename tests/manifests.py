"""Manifests as objects, read by libyaml where there is one: our definitions are long."""

from pathlib import Path
from typing import Any

import yaml

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def documents(path: Path) -> list[dict[str, Any]]:
    """The objects of a manifest."""
    return [obj for obj in yaml.load_all(path.read_text(), _Loader) if obj]
