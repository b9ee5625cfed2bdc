"""Product names by PCI device id, for the many GPUs that do not tell theirs: sysfs has none on a virtual function.

Source: libdrm's `amdgpu.ids`. The revision in that list does not always match a virtual function's, so a device id
whose rows agree is named whatever its revision.
"""

from typing import Final

_BY_DEVICE: Final = {
    0x15BF: "AMD Radeon 780M",
    0x164E: "AMD Radeon Graphics",
    0x738C: "AMD Instinct MI100",
    0x738E: "AMD Instinct MI100",
    0x7408: "AMD Instinct MI250X",
    0x740C: "AMD Instinct MI250X / MI250",
    0x740F: "AMD Instinct MI210",
    0x7448: "AMD Radeon PRO W7900",
    0x744C: "AMD Radeon RX 7900",
    0x7460: "AMD Radeon PRO V710",
    0x7461: "AMD Radeon PRO V710 MxGPU",
    0x74A0: "AMD Instinct MI300A",
    0x74A1: "AMD Instinct MI300X",
    0x74A2: "AMD Instinct MI308X",
    0x74A5: "AMD Instinct MI325X",
    0x74A8: "AMD Instinct MI308X HF",
    0x74A9: "AMD Instinct MI300X HF",
    0x74B5: "AMD Instinct MI300X VF",
    0x74B6: "AMD Instinct MI308X",
    0x74B9: "AMD Instinct MI325X VF",
    0x74BC: "AMD Instinct MI308X HF VF",
    0x74BD: "AMD Instinct MI300X HF",
    0x75A0: "AMD Instinct MI350X",
    0x75A3: "AMD Instinct MI355X",
    0x75B0: "AMD Instinct MI350X VF",
    0x75B3: "AMD Instinct MI355X VF",
}

_BY_REVISION: Final = {
    (0x66A1, 0x02): "AMD Instinct MI60 / MI50",
    (0x744C, 0xC8): "AMD Radeon RX 7900 XTX",
    (0x744C, 0xCC): "AMD Radeon RX 7900 XT",
    (0x744C, 0xCE): "AMD Radeon RX 7900 GRE",
    (0x744C, 0xCF): "AMD Radeon RX 7900M",
    (0x7550, 0xC0): "AMD Radeon RX 9070 XT",
    (0x7550, 0xC2): "AMD Radeon RX 9070 GRE",
    (0x7550, 0xC3): "AMD Radeon RX 9070",
    (0x7551, 0xC0): "AMD Radeon AI PRO R9700",
}


def product_name(device_id: int, revision: int | None) -> str:
    """Return the name for a PCI device id and revision, at least `AMD GPU 0x<device id>`."""
    if revision is not None and (device_id, revision) in _BY_REVISION:
        return _BY_REVISION[device_id, revision]
    return _BY_DEVICE.get(device_id, f"AMD GPU 0x{device_id:04x}")
