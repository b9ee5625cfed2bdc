"""The GPUs as CDI devices (Container Device Interface), for runtimes that shall put them into containers themselves.

One spec file names all GPUs of the machine, `amd-vgpu.io/gpu=<id>`. It stays when the plugin ends: containers that
start again are made from it. A GPU that left the machine leaves the file; with the last one the file goes.
"""

import asyncio
import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from plugin.allocate import PERMISSIONS, Answer
from plugin.discovery import Gpu
from plugin.files import replace_file
from plugin.inventory import Inventory

log = logging.getLogger(__name__)

KIND: Final = "amd-vgpu.io/gpu"
SPEC_FILE: Final = "amd-vgpu.io-gpu.json"
VERSION: Final = "0.5.0"
"""The first version in which a device node has a `hostPath`. Runtimes refuse files of a newer version than theirs, and
files that say an older one than they need."""

_MODE: Final = 0o644


class CdiError(Exception):
    """The spec cannot be written, so containers that name its devices cannot be made."""


def cdi_spec(gpus: Iterable[Gpu], dev_root: Path) -> dict[str, Any]:
    """Return the spec of the GPUs; `/dev/kfd` comes with each of them.

    Args:
        gpus: of the machine.
        dev_root: where the host's devices are.
    """
    return {
        "cdiVersion": VERSION,
        "kind": KIND,
        "devices": [
            {"name": gpu.id, "containerEdits": _edits(f"/dev/dri/{gpu.render_device.name}", gpu.render_device)}
            for gpu in gpus
        ],
        "containerEdits": _edits("/dev/kfd", dev_root / "kfd"),
    }


def by_cdi_name(answer: Answer, device_ids: Sequence[str]) -> Answer:
    """Return an answer that names a container's GPUs instead of giving their device nodes."""
    return replace(answer, devices=(), cdi_devices=tuple(f"{KIND}={device_id}" for device_id in device_ids))


def write_spec(folder: Path, gpus: Sequence[Gpu], dev_root: Path) -> None:
    """Write the spec of the GPUs at once, unless it is there as it should be; without GPUs there is none.

    Args:
        folder: where runtimes look, normally `/var/run/cdi`.
        gpus: of the machine.
        dev_root: where the host's devices are.

    Raises:
        CdiError: it cannot be written.
    """
    path = folder / SPEC_FILE
    try:
        _write(path, json.dumps(cdi_spec(gpus, dev_root), indent=1).encode() + b"\n" if gpus else b"")
    except OSError as error:
        raise CdiError(f"containers would not get their GPUs: {path}: {error.strerror}") from error


async def keep_spec(folder: Path, inventory: Inventory, dev_root: Path) -> None:
    """Keep the spec equal to the inventory, for ever."""
    async for snapshot in inventory.follow(asyncio.Event()):
        try:
            await asyncio.to_thread(write_spec, folder, snapshot.gpus, dev_root)
        except CdiError as error:
            log.warning("%s", error)


def _write(path: Path, content: bytes) -> None:
    if not content:
        path.unlink(missing_ok=True)
        return
    if path.exists() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, content, mode=_MODE)
    log.info("wrote %s", path)


def _edits(path: str, host_path: Path) -> dict[str, Any]:
    return {"deviceNodes": [{"path": path, "hostPath": str(host_path), "permissions": PERMISSIONS}]}
