"""Resources that look like ours and are not: such a pod would wait for a node for ever."""

from difflib import get_close_matches
from typing import Final

from protocol.names import RESOURCES
from webhook.pod import Pod

_VENDOR: Final = "amd.com/"
_OURS: Final = {name.removeprefix(_VENDOR): name for name in RESOURCES}
# Names of AMD's own device plugin, such as amd.com/cpx_nps4, are farther away than that.
_CLOSE: Final = 0.8
_LONGEST: Final = 2 * max(map(len, RESOURCES))


def spelling_warnings(pod: Pod) -> list[str]:
    """Return a warning for each limit and request whose name is nearly that of one of the resources."""
    return [
        f"{container.path}.resources.{kind}[{name}]: is not read, and no node has it; write {right}"
        for container in pod.containers
        for kind in ("limits", "requests")
        for name in (container.body.get("resources") or {}).get(kind) or {}
        if (right := _meant(name))
    ]


def _meant(name: str) -> str:
    """Return which of the resources is meant by a name; the empty string when it is right, or another's."""
    if name in RESOURCES or not name.startswith(_VENDOR) or len(name) > _LONGEST:
        return ""
    close = get_close_matches(name.removeprefix(_VENDOR), _OURS, n=1, cutoff=_CLOSE)
    return _OURS[close[0]] if close else ""
