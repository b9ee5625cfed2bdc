"""Putting the audit library where containers find it on the host.

Running containers have the file mapped, so it is never written in place: a new one takes its name.
"""

import logging
from pathlib import Path
from typing import Final

from plugin.files import replace_file
from protocol.names import LIBRARY_NAME

log = logging.getLogger(__name__)

_MODE: Final = 0o555


class LibraryError(Exception):
    """The audit library cannot be installed; containers would run without a memory limit."""


def install_library(source: Path, folder: Path) -> None:
    """Copy the library into the folder under its name, unless the same content is there.

    Raises:
        LibraryError: the source is missing or empty, or the folder cannot be written.
    """
    try:
        content = source.read_bytes()
    except OSError as error:
        raise LibraryError(f"audit library {source}: {error.strerror}") from error
    if not content:
        raise LibraryError(f"audit library {source}: is empty")
    target = folder / LIBRARY_NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not _is_current(target, content):
            replace_file(target, content, mode=_MODE)
            log.info("installed %s", target)
    except OSError as error:
        raise LibraryError(f"audit library {target}: {error.strerror}") from error


def _is_current(target: Path, content: bytes) -> bool:
    try:
        return target.read_bytes() == content and target.stat().st_mode & 0o777 == _MODE
    except FileNotFoundError:
        return False
