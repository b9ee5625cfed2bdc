"""A node's GPUs as its device plugin registers them: `hami.io/node-amd-register`, a JSON array of DeviceInfo.

Field names and types are those of HAMi's `pkg/device/devices.go`. HAMi leaves out zero values, so a reader takes an
absent number as 0 and an absent `health` as false; this project always writes `index` and `health`.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from protocol.cuset import MAX_CU
from protocol.names import DEVICE_MODE, DEVICE_VENDOR

_SEPARATORS: Final = re.compile(r"[,:;\s]+")
_MAX_INT32: Final = 2**31 - 1


class RegisterError(ValueError):
    """The register annotation cannot be read; the node then has no devices that anybody may count on."""


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One GPU (or partition of one) of a node.

    Attributes:
        id: unique and stable on the node; appears in pod annotations.
        index: position among the node's GPUs, in KFD order.
        count: how many pods may share the GPU.
        memory_mib: all of its memory, MiB.
        cu_count: all of its compute units.
        product: name such as `AMD Instinct MI300X VF`, without the separators of the pod annotations.
        numa: NUMA node, -1 when unknown.
        healthy: an unhealthy GPU is not given to anybody.
        xcc_count: accelerator dies that the CU ids go round; 0 when unknown, and such a GPU is given only as a whole.
        wgp: CU ids 2k and 2k+1 are one work-group processor (RDNA), so CUs come in pairs.
        pci_address: such as `0000:83:00.0`; empty when unknown.
        rocr_id: `GPU-<16 hex digits>`, as ROCr names the GPU; empty when it has no such name.
        partition: compute partition mode such as `SPX`; empty when unknown.
    """

    id: str
    index: int
    count: int
    memory_mib: int
    cu_count: int
    product: str
    numa: int = -1
    healthy: bool = True
    xcc_count: int = 0
    wgp: bool = False
    pci_address: str = ""
    rocr_id: str = ""
    partition: str = ""

    @property
    def divisible(self) -> bool:
        """Whether a part of the CUs can be given: only where it is known how ids spread over the hardware.

        Several XCCs together with WGPs (gfx12.5) number their mask bits in a way that nobody has measured.
        """
        known = 0 < self.xcc_count <= self.cu_count
        return known and not (self.wgp and (self.cu_count % 2 or self.xcc_count > 1))

    @property
    def least_cus(self) -> int:
        """The smallest valid share: one CU in each XCC, as an XCC without any runs unmasked; a pair on WGP hardware."""
        return max(self.xcc_count, 2 if self.wgp else 1)

    def cus_for(self, percent: int | None) -> int:
        """Return how many CUs `percent` of this GPU is, and all of them for None.

        `floor(percent * cu_count / 100)`, even on WGP hardware, and at least `least_cus`. A GPU that is not divisible
        is taken whole.
        """
        if percent is None or not self.divisible:
            return self.cu_count
        share = percent * self.cu_count // 100
        return min(max(share - share % 2 if self.wgp else share, self.least_cus), self.cu_count)

    def memory_for(self, mib: int | None) -> int:
        """Return the MiB that a container asks for on this GPU: all of it for None."""
        return self.memory_mib if mib is None else mib


def clean_product(name: str) -> str:
    """Return a product name with a blank for each separator of the pod annotations (`,`, `:` and `;`).

    And for what cannot be shown: the name is a label of metrics, and part of Events.
    """
    shown = "".join(character if character.isprintable() else " " for character in name)
    return _SEPARATORS.sub(" ", shown).strip() or "AMD GPU"


def encode_register(devices: Sequence[DeviceInfo]) -> str:
    """Return the annotation's text, the same for the same devices."""
    return json.dumps([_to_json(device) for device in devices], separators=(",", ":"), sort_keys=True)


def decode_register(text: str) -> tuple[DeviceInfo, ...]:
    """Return the devices of a register annotation, by whichever of the two plugins it was written.

    Raises:
        RegisterError: no JSON array of objects, a field of the wrong type, or an id that occurs twice.
    """
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RegisterError(f"not JSON: {text[:80]!r}") from error
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise RegisterError(f"not a JSON array of objects: {text[:80]!r}")
    devices = tuple(_from_json(entry) for entry in entries)
    if len({device.id for device in devices}) != len(devices):
        raise RegisterError("two devices have one id")
    return devices


def _to_json(device: DeviceInfo) -> dict[str, object]:
    return {
        "id": device.id,
        "index": device.index,
        "count": device.count,
        "devmem": device.memory_mib,
        "devcore": device.cu_count,
        "type": device.product,
        "numa": device.numa,
        "mode": DEVICE_MODE,
        "health": device.healthy,
        "devicevendor": DEVICE_VENDOR,
        "custominfo": {
            "numXcc": device.xcc_count,
            "partition": device.partition,
            "pciBDF": device.pci_address,
            "rocrId": device.rocr_id,
            "wgp": device.wgp,
        },
    }


def _from_json(entry: Mapping[str, object]) -> DeviceInfo:
    custom = entry.get("custominfo") or {}
    if not isinstance(custom, dict):
        raise RegisterError(f"custominfo: {custom!r}: must be an object")
    device_id = _text(entry, "id")
    # An id must come back from the API server as it was written. Half a surrogate pair becomes another character there,
    # and its pods would hold parts of a GPU that nobody has.
    if not device_id or not device_id.isprintable() or _SEPARATORS.search(device_id):
        raise RegisterError(f"id: {device_id!r}: must be non-empty and printable, without blanks and , : ;")
    return DeviceInfo(
        id=device_id,
        index=_number(entry, "index"),
        count=_number(entry, "count"),
        memory_mib=_number(entry, "devmem"),
        cu_count=_number(entry, "devcore", high=MAX_CU),
        product=clean_product(_text(entry, "type")),
        numa=_number(entry, "numa", low=-1),
        healthy=_flag(entry, "health"),
        xcc_count=_number(custom, "numXcc", high=MAX_CU),
        wgp=_flag(custom, "wgp"),
        pci_address=_text(custom, "pciBDF"),
        rocr_id=_text(custom, "rocrId"),
        partition=_text(custom, "partition"),
    )


def _text(entry: Mapping[str, object], key: str) -> str:
    value = entry.get(key, "")
    if not isinstance(value, str):
        raise RegisterError(f"{key}: {value!r}: must be a string")
    return value


def _flag(entry: Mapping[str, object], key: str) -> bool:
    value = entry.get(key, False)
    if not isinstance(value, bool):
        raise RegisterError(f"{key}: {value!r}: must be true or false")
    return value


def _number(entry: Mapping[str, object], key: str, *, low: int = 0, high: int = _MAX_INT32) -> int:
    value = entry.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise RegisterError(f"{key}: {value!r}: must be an integer from {low} to {high}")
    return value
