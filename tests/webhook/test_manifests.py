"""The shipped webhook configurations: who is asked, when, and what happens when nobody answers."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.webhook.makers import Object
from webhook.app import make_app
from webhook.decision import POD
from webhook.privilege import PRIVILEGED_LABEL
from webhook.reserved import PREFIXES
from webhook.review import Kind
from webhook.settings import WebhookSettings
from webhook.templates import is_workload

MANIFESTS = Path(__file__).parents[2] / "manifests"
OVERLAY = MANIFESTS / "overlays/kubernetes-1.28"
KINDS = {
    "pods": POD,
    "deployments": Kind("apps", "v1", "Deployment"),
    "replicasets": Kind("apps", "v1", "ReplicaSet"),
    "statefulsets": Kind("apps", "v1", "StatefulSet"),
    "daemonsets": Kind("apps", "v1", "DaemonSet"),
    "jobs": Kind("batch", "v1", "Job"),
    "cronjobs": Kind("batch", "v1", "CronJob"),
    "replicationcontrollers": Kind("", "v1", "ReplicationController"),
}


def _webhooks(*files: Path) -> dict[str, Object]:
    objects = [item for file in files for item in yaml.safe_load_all(file.read_text())]
    return {webhook["name"]: webhook for item in objects for webhook in item["webhooks"]}


BASE = _webhooks(MANIFESTS / "base/webhook-configurations.yaml")
CONDITIONS = {
    name: webhook["matchConditions"]
    for name, webhook in _webhooks(OVERLAY / "mutating.yaml", OVERLAY / "validating.yaml").items()
}
EACH = pytest.mark.parametrize("webhook", BASE.values(), ids=list(BASE))


def _resources(webhook: Object) -> set[str]:
    return {resource for rule in webhook["rules"] for resource in rule["resources"]}


@EACH
def test_a9_hami_83_the_webhooks_own_namespace_and_kube_system_are_left_out(webhook: Object) -> None:
    (expression, _) = webhook["namespaceSelector"]["matchExpressions"]
    excluded = ["kube-system", "amd-vgpu"]
    assert expression == {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": excluded}


@EACH
def test_a10_only_early_messages_may_fail_open(webhook: Object) -> None:
    expected = "Fail" if "pods" in _resources(webhook) else "Ignore"
    assert webhook["failurePolicy"] == expected


@EACH
def test_a11_no_answer_is_waited_for_long(webhook: Object) -> None:
    assert webhook["timeoutSeconds"] == 5


@EACH
def test_a3_the_ca_is_left_to_the_webhook(webhook: Object) -> None:
    assert "caBundle" not in webhook["clientConfig"]


@EACH
def test_a26_versions_and_side_effects(webhook: Object) -> None:
    assert webhook["admissionReviewVersions"] == ["v1"]
    assert webhook["sideEffects"] == "None"


@EACH
def test_paths_exist(webhook: Object) -> None:
    paths = {resource.canonical for resource in make_app(WebhookSettings()).router.resources()}
    assert webhook["clientConfig"]["service"]["path"] in paths


@EACH
def test_every_resource_is_one_that_is_judged(webhook: Object) -> None:
    for resource in _resources(webhook):
        kind = KINDS[resource.partition("/")[0]]
        assert kind == POD or is_workload(kind)


def test_every_workload_is_asked_about() -> None:
    assert _resources(BASE["workloads.amd-vgpu.io"]) == set(KINDS) - {"pods"}


@pytest.mark.parametrize("name", ["mutate", "validate", "workloads"])
def test_exactly_one_of_two_webhooks_is_asked(name: str) -> None:
    restricted, privileged = BASE[f"{name}.amd-vgpu.io"], BASE[f"{name}-privileged.amd-vgpu.io"]
    assert _label(restricted) == {"key": PRIVILEGED_LABEL, "operator": "NotIn", "values": ["true"]}
    assert _label(privileged) == {"key": PRIVILEGED_LABEL, "operator": "In", "values": ["true"]}
    paths = [one["clientConfig"]["service"]["path"] for one in (restricted, privileged)]
    assert paths[1] == f"{paths[0]}/privileged"
    for key in set(restricted) - {"name", "clientConfig", "namespaceSelector"}:
        assert restricted[key] == privileged[key]


def test_a14_only_creation_is_mutated() -> None:
    for name in ("mutate.amd-vgpu.io", "mutate-privileged.amd-vgpu.io"):
        (rule,) = BASE[name]["rules"]
        assert (rule["resources"], rule["operations"]) == (["pods"], ["CREATE"])
        assert BASE[name]["reinvocationPolicy"] == "IfNeeded"


def test_a9_hami_160_newer_servers_ask_only_about_what_concerns_gpus() -> None:
    assert CONDITIONS.keys() == BASE.keys()
    for name, conditions in CONDITIONS.items():
        assert conditions == CONDITIONS[name.replace("-privileged", "")]
        expression = conditions[0]["expression"]
        assert "startsWith('amd.com/')" in expression
        assert all(f"startsWith('{prefix}')" in expression for prefix in PREFIXES)


def test_newer_servers_do_not_ask_about_what_the_project_itself_writes() -> None:
    for name, conditions in CONDITIONS.items():
        written = [one["expression"] for one in conditions if one["name"] == "not-by-the-project-itself"]
        assert len(written) == name.startswith("validate")
        assert all(f"'{user}'" in text for text in written for user in WebhookSettings().trusted_users)


def _label(webhook: Object) -> Any:
    return webhook["namespaceSelector"]["matchExpressions"][1]
