"""Kinds of option values, for argparse's `type`: each reads a text, or says in words what would be right."""

import argparse
import math
from typing import Final

_MAX_PORT: Final = 65535


def port(text: str) -> int:
    """Return a TCP port, 0 for a free one.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    if not (text.isascii() and text.isdecimal() and int(text) <= _MAX_PORT):
        raise argparse.ArgumentTypeError(f"{text[:40]!r}: must be an integer from 0 to {_MAX_PORT}")
    return int(text)


def seconds(text: str) -> float:
    """Return a number of seconds, 0 or more.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text[:40]!r}: must be a number of seconds, 0 or more")
    return number
