"""From a review to its answer: which rules judge which request.

| request | judged by |
|---|---|
| CREATE of a pod | all rules; completed by the mutating endpoint |
| UPDATE of a pod or one of its sub-resources | what may not change |
| CREATE of a workload, UPDATE that changes its template | all rules, on the template as the pods would be completed |

Everything else passes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from protocol.faults import Fault, describe
from protocol.pods import Json
from webhook.advice import pod_warnings
from webhook.hints import ClusterHints
from webhook.mutate import mutate_pod
from webhook.patching import patch_between
from webhook.review import CREATE, UPDATE, Kind, Patch, Review, allow, deny
from webhook.settings import WebhookSettings
from webhook.shape import shape_faults
from webhook.templates import Template, TemplateError, is_workload, template_of
from webhook.update import update_faults, update_warnings
from webhook.validate import validate_pod

POD: Final = Kind("", "v1", "Pod")

_MAX_SHOWN: Final = 100


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a request: refused when there are faults, else allowed.

    Attributes:
        faults: what is wrong.
        patch: what is to be changed; empty for nothing.
        warnings: what the user should know.
    """

    faults: Sequence[Fault] = ()
    patch: Patch = ()
    warnings: Sequence[str] = ()

    def response(self, uid: str) -> dict[str, Any]:
        """Return the AdmissionReview that answers the request."""
        return deny(uid, _message(self.faults)) if self.faults else allow(uid, self.patch, self.warnings)


def decide_mutation(review: Review, settings: WebhookSettings, hints: ClusterHints | None = None) -> Decision:
    """Judge and complete a new pod.

    Faults are refused here already: the API server's own validation comes between the two endpoints, and would report
    only the part of them that it knows. Completion comes first, as it can mend what would be a fault.
    """
    if not _is_pod_creation(review):
        return Decision()
    pod = _object(review)
    faults = shape_faults(pod)
    if faults:
        return Decision(faults)
    completed = mutate_pod(pod, settings)
    faults = validate_pod(completed, settings)
    if faults:
        return Decision(faults)
    return Decision(patch=patch_between(pod, completed), warnings=pod_warnings(pod, settings, hints))


def decide_validation(review: Review, settings: WebhookSettings, hints: ClusterHints | None = None) -> Decision:
    """Judge a pod in its final form, after everybody's changes; an update; a workload."""
    if _is_pod_creation(review):
        return _judge_pod(_object(review), settings, hints)
    if review.kind == POD and review.operation == UPDATE:
        return _judge_update(review, settings)
    if is_workload(review.kind) and review.operation in {CREATE, UPDATE} and not review.sub_resource:
        return _judge_workload(review, settings, hints)
    return Decision()


def _judge_pod(pod: Json, settings: WebhookSettings, hints: ClusterHints | None) -> Decision:
    faults = shape_faults(pod) or validate_pod(pod, settings)
    return Decision(faults) if faults else Decision(warnings=pod_warnings(pod, settings, hints))


def _judge_update(review: Review, settings: WebhookSettings) -> Decision:
    old, new = review.old_object or {}, _object(review)
    faults = shape_faults(old) or shape_faults(new) or update_faults(old, new, review.user, settings)
    return Decision(faults) if faults else Decision(warnings=update_warnings(old, new))


def _judge_workload(review: Review, settings: WebhookSettings, hints: ClusterHints | None) -> Decision:
    try:
        template = template_of(review.kind, _object(review))
        if review.old_object is not None and template == template_of(review.kind, review.old_object):
            return Decision()
    except TemplateError as error:
        return Decision([error.fault])
    return _judge_template(template, settings, hints)


def _judge_template(template: Template, settings: WebhookSettings, hints: ClusterHints | None) -> Decision:
    faults = shape_faults(template.pod, template.prefix)
    if faults:
        return Decision(faults)
    # Its pods will be completed, so nothing may be refused that this mends.
    faults = validate_pod(mutate_pod(template.pod, settings), settings, template.prefix)
    if faults:
        return Decision(faults)
    return Decision(warnings=pod_warnings(template.pod, settings, hints, template.prefix))


def _is_pod_creation(review: Review) -> bool:
    return review.kind == POD and review.operation == CREATE and not review.sub_resource


def _object(review: Review) -> Json:
    return review.object or {}


def _message(faults: Sequence[Fault]) -> str:
    if len(faults) <= _MAX_SHOWN:
        return describe(faults)
    return f"{describe(faults[:_MAX_SHOWN])} and {len(faults) - _MAX_SHOWN} more"
