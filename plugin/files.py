"""Replacing a file at once: whoever reads it sees the old content or the new, also after a kill at any moment."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path


def replace_file(target: Path, content: bytes, *, mode: int) -> None:
    """Write a new file in the target's folder and give it the target's name.

    Args:
        target: whose folder exists.
        content: of the new file.
        mode: its permission bits, whatever the umask is.

    Raises:
        OSError: it cannot be written; the target is as it was.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        temporary.replace(target)
        _sync_folder(target.parent)
    except BaseException:
        with suppress(FileNotFoundError):
            temporary.unlink()
        raise


def _sync_folder(folder: Path) -> None:
    """Make the new name last, too: the file's own content is synced before."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
