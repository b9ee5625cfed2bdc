"""Creating, reading and replacing: answers, resource versions, what is refused and in which words."""

from typing import Any

import pytest

from tests.contract.api import ADMISSION, NODES, Api
from tests.contract.objects import lease, node, pod, secret

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


async def test_what_is_created_has_what_only_the_server_says(api: Api, name: str) -> None:
    made = await api.created(api.path("pods"), pod(name, labels={"app": "x"}))
    assert (made["kind"], made["apiVersion"]) == ("Pod", "v1")
    assert made["metadata"].keys() == {
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "labels",
    }
    assert made["metadata"]["namespace"] == api.space
    assert int(made["metadata"]["resourceVersion"]) > 0
    assert made["status"] == {"phase": "Pending", "qosClass": "Burstable"}
    assert (await api.get(api.path("pods", name))).body == made


async def test_a_pod_gets_its_defaults(api: Api, name: str) -> None:
    body = pod(name)
    del body["spec"]["schedulerName"]
    spec = (await api.created(api.path("pods"), body))["spec"]
    found = {key: spec[key] for key in ("restartPolicy", "terminationGracePeriodSeconds", "schedulerName", "dnsPolicy")}
    assert found == {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "schedulerName": "default-scheduler",
        "dnsPolicy": "ClusterFirst",
    }
    limits = {"amd.com/gpu": "1", "amd.com/gpumem": "16k", "cpu": "100m"}
    assert spec["containers"][0]["resources"] == {"limits": limits, "requests": limits}


async def test_a_name_is_made_where_only_its_beginning_is_given(api: Api, name: str) -> None:
    body = pod(name)
    body["metadata"] = {"generateName": "made-"}
    made = await api.created(api.path("pods"), body)
    assert made["metadata"]["name"].startswith("made-")
    assert len(made["metadata"]["name"]) == len("made-") + 5


async def test_there_is_one_object_of_a_name(api: Api, name: str) -> None:
    await api.created(api.path("pods"), pod(name))
    answer = await api.post(api.path("pods"), pod(name))
    assert answer.refusal() == (409, "AlreadyExists", f'pods "{name}" already exists')
    assert answer.body["details"] == {"name": name, "kind": "pods"}
    leases = api.path("coordination.k8s.io/v1/leases")
    await api.created(leases, lease(name))
    answer = await api.post(leases, lease(name))
    assert answer.refusal()[2] == f'leases.coordination.k8s.io "{name}" already exists'
    assert answer.body["details"] == {"name": name, "group": "coordination.k8s.io", "kind": "leases"}


@pytest.mark.parametrize(
    ("change", "status", "reason", "words"),
    [
        ({"metadata": {}}, 422, "Invalid", 'Pod "" is invalid: metadata.name: Required value: name or generateName is'),
        ({"metadata": {"name": "A_b"}}, 422, "Invalid", 'Pod "A_b" is invalid: metadata.name: Invalid value: "A_b": a'),
        ({"spec": {}}, 422, "Invalid", "is invalid: spec.containers: Required value"),
        ({"metadata": {"name": "a", "namespace": "else"}}, 400, "BadRequest", "the namespace of the provided object"),
        ({"kind": "Lease"}, 400, "BadRequest", "cannot be handled as a Pod"),
        ({"metadata": {"name": "a", "resourceVersion": "1"}}, 500, "", "resourceVersion should not be set on objects"),
    ],
)
async def test_what_makes_no_sense_is_refused(
    api: Api, name: str, change: dict[str, Any], status: int, reason: str, words: str
) -> None:
    body = {**pod(name), **change}
    if body["kind"] == "Lease":
        body["apiVersion"] = "coordination.k8s.io/v1"
    answer = await api.post(api.path("pods"), body)
    assert answer.refusal()[:2] == (status, reason)
    assert words in answer.body["message"]
    if status == 422:
        (cause,) = answer.body["details"]["causes"]
        assert cause["field"] in {"metadata.name", "spec.containers"}
        assert answer.body["details"]["kind"] == "Pod"


async def test_what_is_no_json_is_refused(api: Api) -> None:
    status, reason, words = (await api.post(api.path("pods"), "{nope")).refusal()
    assert (status, reason) == (400, "BadRequest")
    assert "must be of type Pod" in words


async def test_a_namespace_has_to_be_there(api: Api, name: str) -> None:
    answer = await api.post("/api/v1/namespaces/nowhere/pods", pod(name))
    assert answer.refusal() == (404, "NotFound", 'namespaces "nowhere" not found')
    assert answer.body["details"] == {"name": "nowhere", "kind": "namespaces"}


async def test_what_is_not_there_is_not_found(api: Api) -> None:
    answer = await api.get(api.path("pods", "none"))
    assert answer.refusal() == (404, "NotFound", 'pods "none" not found')
    assert answer.body["details"] == {"name": "none", "kind": "pods"}
    answer = await api.get(api.path("frobs"))
    assert answer.refusal() == (404, "NotFound", "the server could not find the requested resource")
    answer = await api.get("/apis/nope.io/v1/frobs")
    assert (answer.status, answer.body) == (404, "404 page not found\n")
    answer = await api.post(api.path("pods", "none"), {})
    assert answer.refusal()[:2] == (405, "MethodNotAllowed")


async def test_nobody_is_answered_without_credentials(api: Api) -> None:
    async with api.as_stranger() as stranger:
        assert (await stranger.get(api.path("secrets"))).refusal()[0] in {401, 403}
    async with api.as_stranger("nobody") as stranger:
        assert (await stranger.get(api.path("secrets"))).refusal() == (401, "Unauthorized", "Unauthorized")


async def test_a_stale_version_is_a_conflict(api: Api, name: str) -> None:
    path = api.path("secrets", name)
    made = await api.created(api.path("secrets"), secret(name))
    made["metadata"]["annotations"] = {"a": "1"}
    first = await api.put(path, made)
    assert first.status == 200
    assert int(first.body["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    answer = await api.put(path, made)
    assert answer.refusal() == (409, "Conflict", f'Operation cannot be fulfilled on secrets "{name}": {MODIFIED}')
    assert answer.body["details"] == {"name": name, "kind": "secrets"}


async def test_without_a_version_a_node_is_replaced_and_a_lease_is_not(api: Api, name: str) -> None:
    await api.created(NODES, node(name))
    replaced = await api.put(f"{NODES}/{name}", node(name, b="2"))
    assert replaced.body["metadata"]["annotations"]["b"] == "2"
    path = api.path("coordination.k8s.io/v1/leases", name)
    assert (await api.put(path, lease(name))).status == 201, "a lease that is not there is created"
    answer = await api.put(path, lease(name, "two"))
    words = "metadata.resourceVersion: Invalid value: 0x0: must be specified for an update"
    assert answer.refusal() == (422, "Invalid", f'leases.coordination.k8s.io "{name}" is invalid: {words}')
    assert answer.body["details"]["causes"][0]["field"] == "metadata.resourceVersion"


async def test_an_object_is_replaced_under_its_own_name_and_uid(api: Api, name: str) -> None:
    made = await api.created(NODES, node(name))
    other = {**made, "metadata": {**made["metadata"], "name": "other"}}
    words = f"the name of the object (other) does not match the name on the URL ({name})"
    assert (await api.put(f"{NODES}/{name}", other)).refusal() == (400, "BadRequest", words)
    other = {**made, "metadata": {**made["metadata"], "uid": "other"}}
    assert (await api.put(f"{NODES}/{name}", other)).refusal()[:2] == (409, "Conflict")
    assert (await api.put(f"{NODES}/none", node("none"))).refusal()[:2] == (404, "NotFound")


async def test_a_pods_spec_stays(api: Api, name: str) -> None:
    made = await api.created(api.path("pods"), pod(name))
    answer = await api.patch(api.path("pods", name), {"spec": {"schedulerName": "else"}})
    assert answer.refusal()[:2] == (422, "Invalid")
    assert answer.body["details"]["causes"][0]["field"] == "spec"
    assert "pod updates may not change fields other than" in answer.body["message"]
    image = {"spec": {"containers": [{**made["spec"]["containers"][0], "image": "other"}]}}
    changed = await api.patch(api.path("pods", name), image)
    assert changed.body["spec"]["containers"][0]["image"] == "other"


async def test_status_is_written_by_its_own_path(api: Api, name: str) -> None:
    path = api.path("pods", name)
    made = await api.created(api.path("pods"), pod(name))
    through_main = await api.patch(path, {"status": {"phase": "Running"}, "metadata": {"annotations": {"a": "1"}}})
    assert through_main.body["status"] == made["status"]
    both = {"status": {"phase": "Running"}, "spec": {"schedulerName": "q"}, "metadata": {"annotations": {"b": "2"}}}
    through_status = await api.patch(f"{path}/status", both)
    assert through_status.body["status"]["phase"] == "Running"
    assert through_status.body["spec"] == made["spec"]
    assert through_status.body["metadata"]["annotations"] == {"a": "1", "b": "2"}


async def test_a_nodes_capacity_comes_back_in_its_shortest_spelling(api: Api, name: str) -> None:
    made = await api.created(NODES, node(name))
    assert made["status"]["allocatable"] == {"amd.com/gpu": "10"}
    capacity = {"amd.com/gpumem": "196608000", "amd.com/gpucores": 1000}
    answer = await api.patch(f"{NODES}/{name}/status", {"status": {"capacity": capacity}})
    assert answer.body["status"]["capacity"] == {
        "amd.com/gpu": "10",
        "amd.com/gpumem": "196608k",
        "amd.com/gpucores": "1k",
    }


async def test_a_secrets_plain_text_is_encoded(api: Api, name: str) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": {"x": "eA=="}}
    made = await api.created(api.path("secrets"), {**body, "stringData": {"a": "b"}})
    assert made["data"] == {"x": "eA==", "a": "Yg=="}
    assert made["type"] == "Opaque"
    assert "stringData" not in made
    wrong = {**body, "metadata": {"name": f"{name}-2"}, "data": {"x": "!"}}
    assert (await api.post(api.path("secrets"), wrong)).refusal()[:2] == (400, "BadRequest")


async def test_quotas_and_events(api: Api, name: str) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}}
    made = await api.created(api.path("resourcequotas"), {**quota, "spec": {"hard": {"requests.amd.com/gpu": 2000}}})
    assert made["spec"] == {"hard": {"requests.amd.com/gpu": "2k"}}
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name},
        "involvedObject": {"kind": "Pod", "name": name, "namespace": api.space},
        "reason": "FailedScheduling",
        "message": "words",
        "type": "Warning",
    }
    assert (await api.created(api.path("events"), event))["source"] == {}
    selector = f"involvedObject.name={name},reason=FailedScheduling,type!=Normal"
    found = await api.get(api.path("events"), fieldSelector=selector)
    assert [item["message"] for item in found.body["items"]] == ["words"]


@pytest.mark.parametrize("kind", ["Mutating", "Validating"])
async def test_a_webhook_configuration_counts_its_generations(api: Api, name: str, kind: str) -> None:
    collection = f"{ADMISSION}/{kind.lower()}webhookconfigurations"
    webhook = {
        "name": "w.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"service": {"namespace": "n", "name": "s"}},
        "rules": [{"apiGroups": ["x"], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
    }
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [webhook],
    }
    made = await api.created(collection, body)
    defaults = {
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "timeoutSeconds": 10,
        **({"reinvocationPolicy": "Never"} if kind == "Mutating" else {}),
    }
    (stored,) = made["webhooks"]
    assert stored == {
        **webhook,
        **defaults,
        "clientConfig": {"service": {"namespace": "n", "name": "s", "port": 443}},
        "rules": [{**webhook["rules"][0], "scope": "*"}],  # type: ignore[index]
    }
    assert made["metadata"]["generation"] == 1
    made["metadata"]["annotations"] = {"a": "1"}
    made = (await api.put(f"{collection}/{name}", made)).body
    assert made["metadata"]["generation"] == 1, "metadata does not count"
    made["webhooks"][0]["clientConfig"]["caBundle"] = "eA=="
    made["webhooks"][0]["timeoutSeconds"] = 3
    answer = await api.put(f"{collection}/{name}", made)
    if answer.status == 422:  # newer servers look into the bundle
        del made["webhooks"][0]["clientConfig"]["caBundle"]
        answer = await api.put(f"{collection}/{name}", made)
    assert answer.body["metadata"]["generation"] == 2
    assert (await api.put(f"{collection}/{name}", body)).refusal()[:2] == (422, "Invalid"), "without a version"
    assert (await api.delete(f"{collection}/{name}")).status == 200
