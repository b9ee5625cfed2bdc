"""From a review to its answer: which rules judge which request.

Only the creation of a pod is judged. An update passes: pods that were stored before a rule existed must still be able
to lose their finalizers, and most fields of a pod cannot change any more.
"""

from dataclasses import dataclass
from typing import Any, Final

import jsonpatch

from protocol.faults import Fault, describe
from protocol.pods import Json
from webhook.advice import pod_warnings
from webhook.mutate import mutate_pod
from webhook.review import CREATE, Kind, Patch, Review, allow, deny
from webhook.settings import WebhookSettings
from webhook.validate import validate_pod

POD: Final = Kind("", "v1", "Pod")


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a request: refused when there are faults, else allowed.

    Attributes:
        faults: what is wrong.
        patch: what is to be changed; empty for nothing.
        warnings: what the user should know.
    """

    faults: tuple[Fault, ...] = ()
    patch: Patch = ()
    warnings: tuple[str, ...] = ()

    def response(self, uid: str) -> dict[str, Any]:
        """Return the AdmissionReview that answers the request."""
        return deny(uid, describe(self.faults)) if self.faults else allow(uid, self.patch, self.warnings)


def decide_mutation(review: Review, settings: WebhookSettings) -> Decision:
    """Judge and complete a new pod.

    Faults are refused here already: the API server's own validation comes between the two endpoints, and would report
    only the part of them that it knows.
    """
    pod = _new_pod(review)
    if pod is None:
        return Decision()
    faults = validate_pod(pod, settings)
    if faults:
        return Decision(faults=tuple(faults))
    return Decision(patch=_patch(pod, mutate_pod(pod, settings)), warnings=tuple(pod_warnings(pod, settings)))


def decide_validation(review: Review, settings: WebhookSettings) -> Decision:
    """Judge a new pod in its final form, after everybody's changes."""
    pod = _new_pod(review)
    if pod is None:
        return Decision()
    faults = validate_pod(pod, settings)
    return Decision(faults=tuple(faults), warnings=tuple(pod_warnings(pod, settings)))


def _new_pod(review: Review) -> Json | None:
    is_creation = review.operation == CREATE and not review.sub_resource
    return review.object if is_creation and review.kind == POD else None


def _patch(old: Json, new: Json) -> Patch:
    operations: list[dict[str, Any]] = jsonpatch.make_patch(old, new).patch
    return operations
