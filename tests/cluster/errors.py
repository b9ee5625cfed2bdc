"""What can go wrong, as two kinds: the machine cannot run a cluster, or a running cluster broke."""

from pathlib import Path

TAIL_LINES = 30


class ClusterUnavailable(RuntimeError):  # noqa: N818 - the name says what it means to a test: skip
    """This machine cannot run a cluster; the message tells what is missing."""


class ClusterError(RuntimeError):
    """The cluster was started, and something in it failed."""


def tail(path: Path, lines: int = TAIL_LINES) -> str:
    """Return the end of a log file, headed by its path."""
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        return f"--- {path}: {error.strerror}"
    return f"--- {path}\n" + "\n".join(text.splitlines()[-lines:])
