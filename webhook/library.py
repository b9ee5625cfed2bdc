"""The audit library in a pod: a hostPath volume, and a read-only mount in every container with a GPU.

The library enforces the memory limit, so nothing of the user's may lie over it.
"""

import posixpath
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any, Final

from protocol.demand import ContainerField
from protocol.faults import Fault
from protocol.names import LIBRARY_DIR, LIBRARY_VOLUME
from protocol.pods import Json
from webhook.pod import Pod, Spec

MOUNT_EXPECTATION: Final = (
    f"must not be {LIBRARY_DIR} or a path below it: the library that enforces GPU memory limits is mounted there"
)
READ_ONLY_EXPECTATION: Final = "must be true: all pods of a node share the folder of the GPU library"


def add_library(spec: dict[str, Any], bodies: Iterable[dict[str, Any]], library_dir: str) -> None:
    """Add the volume to the spec and the mount to the containers, as far as they are missing.

    A container that has a mount at the path already is left alone: it is ours, or `mount_faults` refuses it.
    """
    lacking = [body for body in bodies if not any(_is_library_path(mount) for mount in body.get("volumeMounts") or ())]
    if not lacking:
        return
    volume = _volume(_volume_name(spec, library_dir), library_dir)
    volumes = spec.get("volumes") or []
    if volume["name"] not in {present.get("name") for present in volumes}:
        spec["volumes"] = [*volumes, volume]
    for body in lacking:
        mount = {"name": volume["name"], "mountPath": LIBRARY_DIR, "readOnly": True}
        body["volumeMounts"] = [*(body.get("volumeMounts") or []), mount]


def mount_faults(pod: Pod, library_dir: str) -> list[Fault]:
    """Return a fault for every mount that hides the library from a GPU container, or opens it to any for writing."""
    ours = {volume.get("name") for volume in pod.spec.get("volumes") or () if _is_library_volume(volume, library_dir)}
    return [
        *(fault for container in pod.gpu_containers for fault in _hiding_faults(container, ours)),
        *(fault for container in pod.containers for fault in _writable_faults(container, ours)),
    ]


def _hiding_faults(container: ContainerField, ours: set[Any]) -> list[Fault]:
    return [
        Fault(f"{field}.mountPath", mount.get("mountPath"), MOUNT_EXPECTATION)
        for field, mount in _mounts(container)
        if _hides_library(mount) and not _shows_library(mount, ours)
    ]


def _writable_faults(container: ContainerField, ours: set[Any]) -> list[Fault]:
    return [
        Fault(f"{field}.readOnly", "false", READ_ONLY_EXPECTATION)
        for field, mount in _mounts(container)
        if mount.get("name") in ours and mount.get("readOnly") is not True
    ]


def _mounts(container: ContainerField) -> Iterator[tuple[str, Json]]:
    for index, mount in enumerate(container.body.get("volumeMounts") or ()):
        yield f"{container.path}.volumeMounts[{index}]", mount


def _volume(name: str, library_dir: str) -> dict[str, Any]:
    # With type Directory a pod does not start on a node without the library, instead of starting without a limit.
    return {"name": name, "hostPath": {"path": library_dir, "type": "Directory"}}


def _volume_name(spec: Spec, library_dir: str) -> str:
    """Return the first name that is free or already ours: users may have a volume of our name."""
    present = {volume.get("name"): volume for volume in spec.get("volumes") or ()}
    candidates = (f"{LIBRARY_VOLUME}-{number}" if number else LIBRARY_VOLUME for number in count())
    return next(name for name in candidates if name not in present or _is_library_volume(present[name], library_dir))


def _is_library_volume(volume: Json, library_dir: str) -> bool:
    return dict(volume) == _volume(volume.get("name", ""), library_dir)


def _shows_library(mount: Json, ours: set[Any]) -> bool:
    whole = not mount.get("subPath") and not mount.get("subPathExpr")
    return _is_library_path(mount) and whole and mount.get("name") in ours


def _is_library_path(mount: Json) -> bool:
    return _normal_path(mount) == LIBRARY_DIR


def _hides_library(mount: Json) -> bool:
    path = _normal_path(mount)
    return path == LIBRARY_DIR or path.startswith(f"{LIBRARY_DIR}/")


def _normal_path(mount: Json) -> str:
    # The kubelet takes a relative mount path from the root; POSIX gives exactly two leading slashes a meaning.
    return posixpath.normpath("/" + str(mount.get("mountPath") or "").lstrip("/"))
