"""URL paths of the API objects in use. Names are quoted, as some come from annotations that users may have written."""

from urllib.parse import quote

NODES = "/api/v1/nodes"
PODS = "/api/v1/pods"
RESOURCE_QUOTAS = "/api/v1/resourcequotas"
MUTATING_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
VALIDATING_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


def named(collection: str, name: str) -> str:
    """Return the path of one object of a collection."""
    return f"{collection}/{quote(name, safe='')}"


def node(name: str) -> str:
    """Return the path of a node."""
    return named(NODES, name)


def pods(namespace: str) -> str:
    """Return the path of a namespace's pods."""
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"


def pod(namespace: str, name: str) -> str:
    """Return the path of a pod."""
    return named(pods(namespace), name)


def secrets(namespace: str) -> str:
    """Return the path of a namespace's secrets."""
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/secrets"


def leases(namespace: str) -> str:
    """Return the path of a namespace's leases."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace, safe='')}/leases"


def events(namespace: str) -> str:
    """Return the path of a namespace's events."""
    return f"/apis/events.k8s.io/v1/namespaces/{quote(namespace, safe='')}/events"
