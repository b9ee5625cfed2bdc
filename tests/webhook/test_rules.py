"""Every rule, by its tables, against the running HTTPS server."""

import jsonpatch
import pytest

from tests.webhook.cases import (
    ALLOWED as RIGHT,
)
from tests.webhook.cases import (
    MALFORMED,
    REFUSED,
    REFUSED_AT_THE_END,
    SEES_ALL,
    UPDATES,
    WARNED,
    Refused,
    Update,
    Warned,
    message,
)
from tests.webhook.https import Running
from tests.webhook.makers import (
    ALLOWED,
    Object,
    decode_patch,
    gpu_container,
    noted,
    plain_container,
    pod,
    refusal,
    review_bytes,
)

BOTH = pytest.mark.parametrize("path", ["/mutate", "/validate"])
PRIVILEGED_POD = pod(gpu_container(gpu="1") | {"securityContext": {"privileged": True}})
DEPLOYMENT = {"group": "apps", "version": "v1", "kind": "Deployment"}
CRON_JOB = {"group": "batch", "version": "v1", "kind": "CronJob"}
WORKLOADS = [
    DEPLOYMENT,
    {"group": "apps", "version": "v1", "kind": "ReplicaSet"},
    {"group": "apps", "version": "v1", "kind": "StatefulSet"},
    {"group": "apps", "version": "v1", "kind": "DaemonSet"},
    {"group": "batch", "version": "v1", "kind": "Job"},
    CRON_JOB,
    {"group": "batch", "version": "v1beta1", "kind": "CronJob"},
    {"group": "", "version": "v1", "kind": "ReplicationController"},
]
ALL_WORKLOADS = pytest.mark.parametrize("kind", WORKLOADS, ids=lambda kind: f"{kind['version']}-{kind['kind']}")


def _workload(kind: Object, template: Object, **spec: object) -> Object:
    inner: Object = {"template": template}
    if kind["kind"] == "CronJob":
        inner = {"jobTemplate": {"spec": inner}}
    return {"kind": kind["kind"], "metadata": {"name": "w"}, "spec": {**inner, **spec}}


def _prefix(kind: Object) -> str:
    return "spec.jobTemplate.spec.template." if kind["kind"] == "CronJob" else "spec.template."


def _in_template(case: Refused, kind: Object) -> str:
    messages = tuple(_prefix(kind) + text for text in case.messages)
    return message(Refused(case.name, case.pod, messages))


@pytest.mark.parametrize("case", REFUSED_AT_THE_END, ids=lambda case: case.name)
async def test_what_mutation_mends_is_refused_only_at_the_end(server: Running, case: Refused) -> None:
    assert await server.ask("/validate", case.pod) == refusal(message(case))
    response = await server.ask("/mutate", case.pod)
    patched = jsonpatch.apply_patch(case.pod, decode_patch(response))
    assert await server.ask("/validate", patched) == ALLOWED


@BOTH
@pytest.mark.parametrize("case", MALFORMED, ids=lambda case: case.name)
async def test_wrong_types_are_named(server: Running, path: str, case: Refused) -> None:
    # Where nothing is named that concerns the rules, nobody looks at all.
    manifest = case.pod | {"marker": "amd.com/"}
    assert await server.ask(path, manifest) == refusal(message(case))


@pytest.mark.parametrize("case", MALFORMED, ids=lambda case: case.name)
async def test_wrong_types_are_named_in_templates(server: Running, case: Refused) -> None:
    workload = _workload(DEPLOYMENT, case.pod | {"marker": "amd.com/"})
    assert await server.ask("/validate", workload, kind=DEPLOYMENT) == refusal(_in_template(case, DEPLOYMENT))


@BOTH
@pytest.mark.parametrize("case", WARNED, ids=lambda case: case.name)
async def test_warned(server: Running, path: str, case: Warned) -> None:
    response = await server.ask(path, case.pod)
    assert response["allowed"] is True
    assert response["warnings"] == list(case.warnings)


@pytest.mark.parametrize("case", WARNED, ids=lambda case: case.name)
async def test_warned_in_templates(server: Running, case: Warned) -> None:
    response = await server.ask("/validate", _workload(CRON_JOB, case.pod), kind=CRON_JOB)
    assert response["warnings"] == [f"{_prefix(CRON_JOB)}{warning}"[:255] for warning in case.warnings]


@BOTH
@pytest.mark.parametrize(("name", "manifest"), RIGHT, ids=[name for name, _ in RIGHT])
async def test_right(server: Running, path: str, name: str, manifest: Object) -> None:
    response = await server.ask(path, manifest)
    assert response["allowed"] is True, name
    assert "warnings" not in response


@pytest.mark.parametrize("case", UPDATES, ids=lambda case: case.name)
async def test_updates(server: Running, case: Update) -> None:
    request = {"oldObject": case.old, "userInfo": {"username": case.user}, **case.request}
    expected = refusal(message(case)) if case.messages else ALLOWED
    assert await server.ask("/validate", case.new, "UPDATE", **request) == expected
    assert await server.ask("/mutate", case.new, "UPDATE", **request) == ALLOWED


async def test_a_privileged_debug_container_is_warned_about(server: Running) -> None:
    stored = pod(gpu_container(gpu="1"))
    debug = {"name": "debug", "securityContext": {"privileged": True}}
    manifest = pod(gpu_container(gpu="1"), ephemeralContainers=[debug])
    request: Object = {"subResource": "ephemeralcontainers"}
    response = await server.ask("/validate", manifest, "UPDATE", oldObject=stored, **request)
    assert response["allowed"] is True
    assert response["warnings"] == [f"spec.ephemeralContainers[0].securityContext.privileged: {SEES_ALL}"]
    assert await server.ask("/validate", manifest, "UPDATE", oldObject=manifest, **request) == ALLOWED


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
async def test_a27_templates_are_refused_for_what_their_pods_would_be(server: Running, case: Refused) -> None:
    workload = _workload(DEPLOYMENT, case.pod)
    assert await server.ask("/validate", workload, kind=DEPLOYMENT) == refusal(_in_template(case, DEPLOYMENT))


@ALL_WORKLOADS
async def test_a27_every_kind_of_workload(server: Running, kind: Object) -> None:
    case = next(case for case in REFUSED if case.name == "all_faults_at_once")
    bad, good = _workload(kind, case.pod), _workload(kind, pod(gpu_container(gpumem="1024")))
    assert await server.ask("/validate", bad, kind=kind) == refusal(_in_template(case, kind))
    assert await server.ask("/validate", good, kind=kind) == ALLOWED
    assert await server.ask("/mutate", good, kind=kind) == ALLOWED


@ALL_WORKLOADS
async def test_a14_updates_of_workloads_are_judged_when_the_template_changes(server: Running, kind: Object) -> None:
    bad, good = pod(gpu_container(gpucores="150")), pod(gpu_container(gpucores="15"))
    stored = _workload(kind, bad, replicas=1)
    scaled = _workload(kind, bad, replicas=2)
    assert await server.ask("/validate", scaled, "UPDATE", oldObject=stored, kind=kind) == ALLOWED
    mended = _workload(kind, good)
    assert await server.ask("/validate", mended, "UPDATE", oldObject=stored, kind=kind) == ALLOWED
    response = await server.ask("/validate", stored, "UPDATE", oldObject=mended, kind=kind)
    assert response["status"]["message"].startswith(f"{_prefix(kind)}spec.containers[0].resources.limits")
    assert await server.ask("/validate", None, "DELETE", oldObject=stored, kind=kind) == ALLOWED


@ALL_WORKLOADS
@pytest.mark.parametrize("where", ["scale", "status"])
async def test_sub_resources_of_workloads_are_not_judged(server: Running, kind: Object, where: str) -> None:
    bad = _workload(kind, pod(gpu_container(gpucores="150")))
    assert await server.ask("/validate", bad, "UPDATE", kind=kind, subResource=where) == ALLOWED


async def test_a_template_may_have_what_mutation_mends(server: Running) -> None:
    (case, *_) = REFUSED_AT_THE_END
    assert await server.ask("/validate", _workload(DEPLOYMENT, case.pod), kind=DEPLOYMENT) == ALLOWED
    left_alone = _workload(DEPLOYMENT, pod(*case.pod["spec"]["containers"], schedulerName="volcano"))
    response = await server.ask("/validate", left_alone, kind=DEPLOYMENT)
    assert response["status"]["message"].startswith("spec.template.spec.containers[0].env[0].value: Invalid value")


@pytest.mark.parametrize(
    ("workload", "field"),
    [
        ({"spec": 1}, "spec"),
        ({"spec": {"template": []}}, "spec.template"),
    ],
)
async def test_a_workload_of_wrong_types(server: Running, workload: Object, field: str) -> None:
    response = await server.ask("/validate", workload | {"marker": "amd.com/"}, kind=DEPLOYMENT)
    assert response["status"]["message"].startswith(f"{field}: Invalid value: ")
    assert response["status"]["message"].endswith(": must be an object")


@pytest.mark.parametrize("workload", [{}, {"spec": None}, {"spec": {"selector": {}}}])
async def test_a_workload_without_a_template_is_the_api_servers_affair(server: Running, workload: Object) -> None:
    assert await server.ask("/validate", workload | {"marker": "amd.com/"}, kind=DEPLOYMENT) == ALLOWED


@BOTH
async def test_hami_1352_labelled_namespaces_allow_privileged_containers(server: Running, path: str) -> None:
    assert (await server.ask(path, PRIVILEGED_POD))["allowed"] is False
    response = await server.ask(f"{path}/privileged", PRIVILEGED_POD)
    assert response["allowed"] is True
    assert response["warnings"] == [f"spec.containers[0].securityContext.privileged: {SEES_ALL}"]


@BOTH
async def test_labelled_namespaces_have_every_other_rule(server: Running, path: str) -> None:
    for case in REFUSED:
        if "privileged" not in case.name:
            assert await server.ask(f"{path}/privileged", case.pod) == refusal(message(case))


async def test_nobody_may_create_a_pod_with_reserved_annotations(server: Running) -> None:
    manifest = noted(pod(plain_container()), **{"hami.io/vgpu-node": "n1"})
    for user in ("system:serviceaccount:amd-vgpu:scheduler", "system:admin"):
        assert (await server.ask("/validate", manifest, userInfo={"username": user}))["allowed"] is False


@BOTH
@pytest.mark.parametrize(
    ("plain", "spelt"),
    [
        (b"amd.com/gpucores", rb"amd.com\/gpucores"),
        (b"amd.com/gpucores", rb"amd.com\u002Fgpucores"),
        (b"amd.com/gpucores", rb"\u0061md.com/gpucores"),
    ],
)
async def test_escape_sequences_hide_nothing(server: Running, path: str, plain: bytes, spelt: bytes) -> None:
    body = review_bytes(pod(gpu_container(gpucores="150"))).replace(plain, spelt)
    status, answer = await server.post(path, body)
    assert status == 200
    assert answer["response"]["allowed"] is False


async def test_a_message_names_a_hundred_faults_and_counts_the_rest(server: Running) -> None:
    response = await server.ask("/validate", pod(*[gpu_container(gpucores="150")] * 110))
    text = response["status"]["message"]
    assert text.count("must be an integer percentage") == 100
    assert text.endswith("] and 10 more")


async def test_hami_654_a_container_that_another_webhook_adds_is_completed_too(server: Running) -> None:
    first = pod(gpu_container(gpu="1"))
    once = jsonpatch.apply_patch(first, decode_patch(await server.ask("/mutate", first)))
    once["spec"]["containers"].insert(0, plain_container("proxy"))
    once["spec"]["containers"].append(gpu_container("late", gpumem="5"))
    twice = jsonpatch.apply_patch(once, decode_patch(await server.ask("/mutate", once)))
    assert [len(body.get("volumeMounts", ())) for body in twice["spec"]["containers"]] == [0, 1, 1]
    assert await server.ask("/mutate", twice) == ALLOWED
    assert await server.ask("/validate", twice) == ALLOWED
