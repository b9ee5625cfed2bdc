"""What requests presume of the object that they are about."""

from collections.abc import Mapping
from typing import Any

from embedded.apiserver.errors import conflict, invalid, precondition_failed
from embedded.apiserver.resources import PODS, Target
from embedded.apiserver.store import Stored


def check_update(target: Target, old: Stored, wanted: Mapping[str, Any], *, is_put: bool) -> None:
    """Refuse a change of another version of an object, or of another object, than the one that is there.

    Args:
        target: which.
        old: the object.
        wanted: metadata as they are to be.
        is_put: whether the object is replaced as a whole.

    Raises:
        ApiError: 409, or 422 where a real API server takes it for a change of a fixed field.
    """
    version = wanted.get("resourceVersion")
    uid = wanted.get("uid")
    known = old.item["metadata"]["uid"]
    if is_put and not version and target.resource.needs_version:
        fault = ("metadata.resourceVersion", "FieldValueInvalid", "Invalid value: 0x0: must be specified for an update")
        raise invalid(target.resource, target.name, [fault], kind=target.resource.plural)
    if version and version != str(old.version):
        raise conflict(target.resource, target.name)
    if uid and uid != known:
        if is_put:
            words = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {known}"
            raise conflict(target.resource, target.name, words)
        fault = ("metadata.uid", "FieldValueInvalid", f'Invalid value: "{uid}": field is immutable')
        raise invalid(target.resource, target.name, [fault])


def check_deletion(target: Target, old: Stored, wanted: Mapping[str, Any]) -> None:
    """Refuse to delete another version of an object, or another object, than DeleteOptions mean.

    Args:
        target: which.
        old: the object.
        wanted: `preconditions` of the options.

    Raises:
        ApiError: 409.
    """
    known = {"uid": ("UID", old.item["metadata"]["uid"]), "resourceVersion": ("ResourceVersion", str(old.version))}
    for key, (name, value) in known.items():
        if wanted.get(key) not in {None, value}:
            words = f"the {name} in the precondition ({wanted[key]}) does not match the {name} in record ({value})"
            raise precondition_failed(target.resource, target.name, words)


def check_binding(pod: Target, old: Stored, wanted: Mapping[str, Any]) -> None:
    """Refuse to bind a pod that is bound or being deleted, or another one, or another version, than a Binding means.

    The last two as from Kubernetes 1.23 on.

    Args:
        pod: which.
        old: the pod.
        wanted: metadata of the Binding.

    Raises:
        ApiError: 409.
    """
    bound = old.item["spec"].get("nodeName")
    words = ""
    if "deletionTimestamp" in old.item["metadata"]:
        words = f"pod {pod.name} is being deleted, cannot be assigned to a host"
    elif bound:
        words = f'pod {pod.name} is already assigned to node "{bound}"'
    elif wanted.get("uid") not in {None, "", old.item["metadata"]["uid"]}:
        words = f"the UID in the precondition ({wanted['uid']}) does not match the UID in record"
    elif wanted.get("resourceVersion") not in {None, "", str(old.version)}:
        words = f"the ResourceVersion in the precondition ({wanted['resourceVersion']}) does not match"
    if words:
        raise conflict(PODS, pod.name, words, "binding")
