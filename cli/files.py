"""Files that are named on the command line."""

from pathlib import Path

from cli.service import StartError


def read_text(path: Path, option: str) -> str:
    """Return what stands in a text file.

    Args:
        path: of the file.
        option: that named it, for the message.

    Raises:
        StartError: it cannot be read, or is no UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")  # with or without the mark that spreadsheets write
    except OSError as error:
        raise StartError(f"{option} {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise StartError(f"{option} {path}: must be UTF-8 text, byte {error.start} is not") from error
