import json

import pytest

from tests.webhook.makers import UID, decode_patch, pod, review, review_bytes
from webhook.review import Kind, Review, ReviewError, User, allow, deny


def test_everything_is_read() -> None:
    body = review_bytes(pod(), "UPDATE", oldObject={"metadata": {}}, subResource="status", dryRun=True)
    assert Review.parse(body) == Review(
        uid=UID,
        kind=Kind("", "v1", "Pod"),
        sub_resource="status",
        operation="UPDATE",
        namespace="team",
        object=pod(),
        old_object={"metadata": {}},
        dry_run=True,
        user=User("ann", ("system:authenticated",)),
    )


def test_a_deletion_has_no_object() -> None:
    parsed = Review.parse(review_bytes(None, "DELETE", oldObject=pod()))
    assert parsed.object is None
    assert parsed.name == "p"


def test_optional_fields_may_be_absent() -> None:
    request = {"uid": UID, "kind": {"kind": "Namespace"}, "operation": "CREATE", "object": {}}
    frame = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    parsed = Review.parse(json.dumps(frame).encode())
    assert (parsed.namespace, parsed.sub_resource, parsed.dry_run, parsed.user) == ("", "", False, User(""))


@pytest.mark.parametrize(
    ("metadata", "name"),
    [
        ({"name": "p", "generateName": "g-"}, "p"),
        ({"generateName": "g-"}, "g-*"),
        ({}, UID),
        (None, UID),
        ([], UID),
    ],
)
def test_a17_no_name_and_no_namespace(metadata: object, name: str) -> None:
    parsed = Review.parse(review_bytes({"metadata": metadata}))
    assert parsed.name == name
    assert parsed.namespace == "team"


def _frame(**changes: object) -> bytes:
    return json.dumps(review(pod()) | changes).encode()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "the body is not JSON"),
        (b"\xff\xfe\xfd", "the body is not JSON"),
        (b'{"a": NaN}', "the body is not JSON"),
        (b"1" * 5000, "the body is not JSON"),
        (b"[" * 100_000, "the body is nested too deeply"),
        (b'{"a":' * 100_000, "the body is nested too deeply"),
        (review_bytes(pod()).decode().encode("utf-16"), "the body is not JSON"),
        (b"[" + b"1," * 500_001 + b"1]", "the body has more than 500000 elements"),
        (b"[]", "the body is not a JSON object"),
        (b"{}", "kind is not AdmissionReview"),
        (_frame(kind="Pod"), "kind is not AdmissionReview"),
        (_frame(apiVersion="admission.k8s.io/v1beta1"), "apiVersion is not admission.k8s.io/v1"),
        (_frame(request=None), "request is missing"),
        (_frame(request=[]), "request is missing"),
        (review_bytes(pod(), uid=""), "request: uid is missing"),
        (review_bytes(pod(), uid=7), "request: uid is not a string"),
        (review_bytes(pod(), kind=None), "request: kind is missing"),
        (review_bytes(pod(), kind="Pod"), "request: kind is not an object"),
        (review_bytes(pod(), operation=""), "request: operation is missing"),
        (review_bytes(None), "request.object is missing"),
        (review_bytes(pod(), oldObject=[]), "request: oldObject is not an object"),
        (review_bytes(pod(), userInfo={"groups": "x"}), "request: groups is not a list"),
    ],
)
def test_what_is_no_review_is_told_why(body: bytes, reason: str) -> None:
    with pytest.raises(ReviewError) as caught:
        Review.parse(body)
    assert str(caught.value) == reason


def test_a26_response_format_of_a_permission() -> None:
    assert allow(UID) == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": UID, "allowed": True},
    }
    assert allow(UID, []) == allow(UID)


def test_a26_response_format_of_a_patch() -> None:
    operations = [{"op": "add", "path": "/spec/ü", "value": None}]
    response = allow(UID, operations)["response"]
    assert response["patchType"] == "JSONPatch"
    assert decode_patch(response) == operations


def test_a26_response_format_of_a_denial() -> None:
    assert deny(UID, "no") == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": UID, "allowed": False, "status": {"code": 422, "reason": "Invalid", "message": "no"}},
    }
    assert deny(UID, "no", 403)["response"]["status"]["reason"] == "Forbidden"


def test_a26_warnings_fit_their_header() -> None:
    warnings = allow(UID, warnings=["short", "a\nb", "x" * 300])["response"]["warnings"]
    assert warnings == ["short", "a b", "x" * 255]
