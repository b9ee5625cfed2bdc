"""Log lines in the form `event key=value key="other value"`."""

import json
import re
from typing import Final

# Everything else is quoted and escaped: some values are a user's, and must not forge a second line or key.
_PLAIN: Final = re.compile(r"[\w./:@*,~\[\]-]+", re.ASCII)


def logline(event: str, **fields: object) -> str:
    """Return the text of a log line."""
    return " ".join([event, *(f"{key}={_quoted(str(value))}" for key, value in fields.items())])


def _quoted(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
