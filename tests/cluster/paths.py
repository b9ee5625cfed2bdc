"""Where things that outlive a cluster are kept."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the project's cache folder; it exists afterwards."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "amd-vgpu"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
