"""Pods and reviews for the tests."""

import base64
import json
from typing import Any

UID = "705ab4f5-6393-11e8-b7cc-42010a800002"
Object = dict[str, Any]
ALLOWED = {"uid": UID, "allowed": True}


def gpu_container(name: str = "main", *, requests: Object | None = None, **limits: object) -> Object:
    """Return a container with `amd.com/<key>` limits, requests as given, and nothing else."""
    resources: Object = {"limits": {f"amd.com/{key}": value for key, value in limits.items()}}
    if requests is not None:
        resources["requests"] = requests
    return {"name": name, "image": "rocm/pytorch", "resources": resources}


def plain_container(name: str = "plain") -> Object:
    return {"name": name, "image": "busybox", "resources": {"limits": {"cpu": "1"}}}


def pod(*containers: Object, init: list[Object] | None = None, **spec: object) -> Object:
    """Return a pod as the API server hands it to the webhook, with the fields that it fills in."""
    body: Object = {
        "schedulerName": "default-scheduler",
        "restartPolicy": "Always",
        "containers": list(containers),
        **spec,
    }
    if init is not None:
        body["initContainers"] = init
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "team"}, "spec": body}


def noted(manifest: Object, **notes: object) -> Object:
    """Return a pod with annotations added."""
    metadata = manifest.get("metadata") or {}
    return manifest | {"metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), **notes}}}


def review(obj: Object | None, operation: str = "CREATE", **request: object) -> Object:
    fields: Object = {
        "uid": UID,
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "team",
        "operation": operation,
        "userInfo": {"username": "ann", "groups": ["system:authenticated"]},
        "object": obj,
        "oldObject": None,
        "dryRun": False,
        **request,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": fields}


def review_bytes(obj: Object | None, operation: str = "CREATE", **request: object) -> bytes:
    return json.dumps(review(obj, operation, **request)).encode()


def refusal(message: str) -> Object:
    """Return the answer that refuses."""
    return {"uid": UID, "allowed": False, "status": {"code": 422, "reason": "Invalid", "message": message}}


def decode_patch(response: Object) -> list[Object]:
    """Return the operations of an answer that has a patch."""
    operations: list[Object] = json.loads(base64.b64decode(response["patch"], validate=True))
    return operations


LIBRARY_HOST_PATH = {"path": "/usr/local/vgpu", "type": "Directory"}
LIBRARY_MOUNT = {"name": "amd-vgpu", "mountPath": "/usr/local/vgpu", "readOnly": True}
LIBRARY_VOLUME = {"name": "amd-vgpu", "hostPath": LIBRARY_HOST_PATH}
