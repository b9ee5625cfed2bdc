"""`make demo`: the way of three pods on one GPU, on a real Kubernetes, told in the terminal.

Everything printed is read from the cluster while it happens. Only the GPU and AMD's runtime are stand-ins.
"""

import json
import shutil
import sys
import textwrap
from collections.abc import Iterable
from typing import Any, Final

import yaml

from protocol.allocation import decode_cus
from protocol.cuset import format_ids
from protocol.names import CU_ALLOCATED
from protocol.pods import annotations
from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterError, ClusterUnavailable
from tests.cluster.product import PODS, Object, Product, installed
from tests.cluster.seen import MIB, Seen

SPACE: Final = "demo"
NAMES: Final = ("large", "medium", "small")
_COLOURS: Final = {"large": "\033[44m", "medium": "\033[42m", "small": "\033[45m", "fourth": "\033[46m"}
_BOLD, _DIM, _RED, _OFF = ("\033[1m", "\033[2m", "\033[31m", "\033[0m") if sys.stdout.isatty() else ("",) * 4
_CUS: Final = 304


def main() -> int:
    """Run the demonstration and return the exit status."""
    print("Starting a real one-machine Kubernetes with the product on it, about 20 seconds ...", flush=True)
    try:
        with Cluster() as cluster, installed(cluster) as product:
            cluster.create_namespace(SPACE)
            tell(product)
    except ClusterUnavailable as reason:
        print(f"The demonstration needs a real Kubernetes on this machine, and cannot have one: {reason}")
        return 1
    except ClusterError as error:
        print(f"{_RED}The demonstration failed:{_OFF} {error}")
        return 1
    return 0


def tell(product: Product) -> None:
    title("Three pods ask for parts of one GPU (AMD Instinct MI300X VF, 304 CUs, 196608 MiB)")
    show_limits(NAMES)
    command("kubectl apply -f large.yaml -f medium.yaml -f small.yaml")
    product.apply(SPACE, *NAMES)
    for name in NAMES:
        product.cluster.wait_for_pod(SPACE, name, "Running")
    seen = {name: product.seen(SPACE, name) for name in NAMES}

    title("What the webhook added to `large`")
    show_changes(product.pod(SPACE, "large")["spec"])

    title("Where they run, and the compute units that nobody else has")
    show_pods(product, NAMES)

    title("What the container of `large` was given")
    show_environment(seen["large"])

    title("What the HIP program in each container sees and may do")
    for name in NAMES:
        show_memory(name, seen[name])

    title("A request that makes no sense is refused at once, in words")
    refuse(product)

    title("`fourth` wants 76 % of the GPU: not while the others run")
    command("kubectl apply -f fourth.yaml")
    product.apply(SPACE, "fourth")
    waiting = product.cluster.wait_for_pod(SPACE, "fourth", lambda pod: bool(waiting_message(pod)))
    print(textwrap.indent(textwrap.fill(waiting_message(waiting), 100), "  "))
    command("kubectl delete pod large")
    product.cluster.kubectl("delete", "pod", "large", "--namespace", SPACE, "--wait")
    product.cluster.wait_for_pod(SPACE, "fourth", "Running", timeout=120)
    show_pods(product, ("fourth", "medium", "small"))
    show_memory("fourth", product.seen(SPACE, "fourth"))

    title("That was a real kube-apiserver, kube-scheduler, kubelet and containerd")
    print("  The GPU was not: a made sysfs tree, null devices, and a stand-in for AMD's runtime.")
    print("  Install it on a cluster with GPUs: see README.md. Look around in this one: make cluster")


def title(text: str) -> None:
    print(f"\n{_BOLD}{text}{_OFF}")


def command(text: str) -> None:
    print(f"  {_DIM}${_OFF} {text}")


def show_limits(names: Iterable[str]) -> None:
    for name in names:
        (container,) = yaml.safe_load((PODS / f"{name}.yaml").read_text())["spec"]["containers"]
        limits = ", ".join(f"{key}: {value}" for key, value in container["resources"]["limits"].items())
        print(f"  {name:8} {limits}")


def show_changes(spec: Object) -> None:
    mounts = [mount for mount in spec["containers"][0]["volumeMounts"] if mount["name"].startswith("amd-vgpu")]
    volumes = [volume for volume in spec["volumes"] if volume["name"].startswith("amd-vgpu")]
    print(f"  schedulerName: {spec['schedulerName']}")
    print(f"  volumes:       {json.dumps(volumes)}")
    print(f"  volumeMounts:  {json.dumps(mounts)}")


def show_pods(product: Product, names: Iterable[str]) -> None:
    held = {}
    for name in names:
        pod = product.pod(SPACE, name)
        (ids,) = decode_cus(annotations(pod)[CU_ALLOCATED]).values()
        held[name] = ids
        print(f"  {colour(name)} {name:8}{reset()} on {pod['spec']['nodeName']}: {len(ids):3} CUs, {format_ids(ids)}")
    print(f"  {strip(held)}")


def strip(held: dict[str, tuple[int, ...]]) -> str:
    """Draw the GPU's CUs, four to a cell, in the pods' colours; without colours in their first letters."""
    owner = {cu: name for name, ids in held.items() for cu in ids}
    width = min(shutil.get_terminal_size().columns - 4, _CUS // 4)
    cells = [owner.get(cell * _CUS // width) for cell in range(width)]
    if sys.stdout.isatty():
        return "".join(f"{colour(name)} {reset()}" if name else f"{_DIM}.{_OFF}" for name in cells)
    return "".join(name[0] if name else "." for name in cells)


def colour(name: str) -> str:
    return _COLOURS[name] if sys.stdout.isatty() else ""


def reset() -> str:
    return _OFF


def show_environment(seen: Seen) -> None:
    ours = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "HSA_CU_MASK", "HIP_DEVICE_MEMORY_LIMIT", "LD_AUDIT", "GLIBC_TUNABLES")  # fmt: skip  # noqa: E501
    for name in ours:
        print(f"  {name}={seen.env[name]}")
    print(f"  devices: /dev/kfd{''.join(f' /dev/dri/{name}' for name in seen.dri)}")


def show_memory(name: str, seen: Seen) -> None:
    total = seen.devices[0]["total"] // MIB
    codes = seen.steps[0]
    words = {0: "works", 2: f"{_RED}hipErrorOutOfMemory{_OFF}"}
    over, again = words.get(codes["one-byte-over"], "?"), words.get(codes["allocate-again"], "?")
    print(f"  {name:8} hipMemGetInfo: {total} MiB; all of it: {words[codes['allocate-total']]}; ", end="")
    print(f"one byte more: {over}; after hipFree: {again}")


def refuse(product: Product) -> None:
    pod = yaml.safe_load((PODS / "small.yaml").read_text())
    pod["metadata"]["name"] = "refused"
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    limits |= {"amd.com/gpucores": 150, "amd.com/gpumem": "16Gi"}
    command("kubectl apply -f refused.yaml    # gpucores: 150, gpumem: 16Gi")
    manifest = json.dumps(pod)
    done = product.cluster.kubectl("apply", "--namespace", SPACE, "--filename", "-", input=manifest, check=False)
    print(textwrap.indent(textwrap.fill(done.stderr.strip(), 100), "  "))


def waiting_message(pod: Any) -> str:
    """Return kube-scheduler's reason for not placing a pod yet, or the empty string."""
    conditions = pod["status"].get("conditions", []) if pod else []
    return next((str(one["message"]) for one in conditions if one.get("reason") == "Unschedulable"), "")


if __name__ == "__main__":
    sys.exit(main())
