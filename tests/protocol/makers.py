"""Devices and pods for the tests of the contract."""

from typing import Any

from protocol.devices import DeviceInfo

MI300X = DeviceInfo(
    id="GPU-8e1bb56457addd1b",
    index=0,
    count=10,
    memory_mib=196608,
    cu_count=304,
    product="AMD Instinct MI300X VF",
    numa=0,
    xcc_count=8,
    pci_address="0000:83:00.0",
    rocr_id="GPU-8e1bb56457addd1b",
    partition="SPX",
)
MI210 = DeviceInfo(id="GPU-67c63ac3c3c637f9", index=0, count=10, memory_mib=65520, cu_count=104, product="AMD Instinct MI210", xcc_count=1)  # fmt: skip  # noqa: E501
RX7900 = DeviceInfo(id="GPU-a1ffc9d1799c317f", index=0, count=10, memory_mib=24560, cu_count=96, product="AMD Radeon RX 7900 XTX", xcc_count=1, wgp=True)  # fmt: skip  # noqa: E501
MI300A = DeviceInfo(id="GPU-0000000000000006", index=0, count=10, memory_mib=131072, cu_count=228, product="AMD Instinct MI300A", xcc_count=6)  # fmt: skip  # noqa: E501
UNKNOWN = DeviceInfo(id="GPU-00000000000000ff", index=0, count=10, memory_mib=8192, cu_count=40, product="AMD GPU 0xffff")  # fmt: skip  # noqa: E501


def container(name: str = "main", *, requests: dict[str, Any] | None = None, **limits: object) -> dict[str, Any]:
    """Return a container; `gpu`, `gpumem` and `gpucores` become its limits, as strings."""
    resources: dict[str, Any] = {"limits": {f"amd.com/{key}": str(value) for key, value in limits.items()}}
    if requests is not None:
        resources["requests"] = requests
    return {"name": name, "image": "example", "resources": resources}


def pod_spec(*containers: dict[str, Any], inits: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    """Return a pod spec."""
    return {"containers": list(containers), **({"initContainers": list(inits)} if inits else {})}


def sidecar(body: dict[str, Any]) -> dict[str, Any]:
    """Return the container as one that stays beside the others when it stands among the init containers."""
    return {**body, "restartPolicy": "Always"}


def pod(
    name: str, spec: dict[str, Any], annotations: dict[str, str], *, node: str = "node-a", phase: str = "Running"
) -> dict[str, Any]:
    """Return a pod that is bound to a node."""
    return {
        "metadata": {"namespace": "default", "name": name, "uid": f"uid-{name}", "annotations": annotations},
        "spec": {**spec, "nodeName": node},
        "status": {"phase": phase},
    }
