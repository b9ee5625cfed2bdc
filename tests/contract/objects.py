"""Objects that the tests create."""

from typing import Any

Json = dict[str, Any]


def pod(name: str, *, labels: dict[str, str] | None = None, **spec: Any) -> Json:
    """A pod that no scheduler looks at."""
    limits = {"amd.com/gpu": 1, "amd.com/gpumem": 16000, "cpu": "100m"}
    container = {"name": "main", "image": "none", "resources": {"limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **({"labels": labels} if labels else {})},
        "spec": {"schedulerName": "nobody", "containers": [container], **spec},
    }


def node(name: str, **annotations: str) -> Json:
    """A node without a kubelet."""
    metadata = {"name": name, **({"annotations": annotations} if annotations else {})}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"capacity": {"amd.com/gpu": "10"}}}


def secret(name: str, **annotations: str) -> Json:
    """Something that no controller of a real cluster touches."""
    metadata = {"name": name, **({"annotations": annotations} if annotations else {})}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"x": "eA=="}}


def lease(name: str, holder: str = "one") -> Json:
    metadata = {"name": name}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": metadata,
        "spec": {"holderIdentity": holder},
    }


def binding(pod_name: str, node_name: str, **metadata: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod_name, **metadata},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node_name},
    }
