"""Admission webhooks: who is asked what, in which order, and what comes of the answers."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.contract.api import Api
from tests.contract.hooks import Hooks, annotate, deny, hooks_for, patch, server_context
from tests.contract.objects import binding, pod, secret

Json = dict[str, Any]


@pytest.fixture
async def hooks(api: Api, name: str) -> AsyncIterator[Hooks]:
    async with hooks_for(api, name) as hooks:
        yield hooks


async def test_the_review_says_all_about_the_request(api: Api, hooks: Hooks, name: str) -> None:
    await hooks.configure("Validating", "a", hooks.webhook("a"))
    await api.created(api.path("pods"), pod(name, labels=hooks.labels))
    ((_, request),) = hooks.calls
    pods = {"group": "", "version": "v1", "resource": "pods"}
    assert {key: request[key] for key in ("kind", "resource", "requestResource", "name", "namespace", "operation")} == {
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": pods,
        "requestResource": pods,
        "name": name,
        "namespace": api.space,
        "operation": "CREATE",
    }
    assert request["dryRun"] is False
    assert request["oldObject"] is None
    assert "system:authenticated" in request["userInfo"]["groups"]
    seen = request["object"]
    assert (seen["kind"], seen["apiVersion"]) == ("Pod", "v1")
    assert seen["spec"]["restartPolicy"] == "Always", "with its defaults"
    assert seen["spec"]["containers"][0]["resources"]["requests"]["amd.com/gpu"] == "1"


async def test_mutating_webhooks_come_in_order_of_their_configurations_then_validating_ones(
    api: Api, hooks: Hooks, name: str
) -> None:
    await hooks.configure("Mutating", "b", hooks.webhook("third", annotate("c")))
    await hooks.configure(
        "Mutating", "a", hooks.webhook("first", annotate("a")), hooks.webhook("second", annotate("b"))
    )
    await hooks.configure("Validating", "a", hooks.webhook("check"))
    made = await api.created(api.path("pods"), pod(name, labels=hooks.labels))
    assert made["metadata"]["annotations"] == {"a": "1", "b": "1", "c": "1"}
    checked = hooks.calls[-1][1]["object"]["metadata"]["annotations"]
    assert hooks.order() == ["first", "second", "third", "check"]
    assert checked == made["metadata"]["annotations"], "the last word is had by those who see all changes"


async def test_a_webhook_is_asked_again_when_a_later_one_changed_something(api: Api, hooks: Hooks, name: str) -> None:
    again = hooks.webhook("again", annotate("a"), reinvocationPolicy="IfNeeded")
    never = hooks.webhook("never", annotate("b"))
    await hooks.configure("Mutating", "a", again, never)
    made = await api.created(api.path("pods"), pod(name, labels=hooks.labels))
    assert hooks.order() == ["again", "never", "again"]
    assert made["metadata"]["annotations"] == {"a": "11", "b": "1"}


async def test_webhooks_that_change_each_others_work_are_asked_twice_at_most(api: Api, hooks: Hooks, name: str) -> None:
    both = (hooks.webhook(key, annotate(key), reinvocationPolicy="IfNeeded") for key in "ab")
    await hooks.configure("Mutating", "a", *both)
    made = await api.created(api.path("pods"), pod(name, labels=hooks.labels))
    assert hooks.order() == ["a", "b", "a", "b"]
    assert made["metadata"]["annotations"] == {"a": "11", "b": "11"}


async def test_a_webhook_is_not_asked_again_when_nothing_changed(api: Api, hooks: Hooks, name: str) -> None:
    first = hooks.webhook("first", annotate("a"), reinvocationPolicy="IfNeeded")
    await hooks.configure("Mutating", "a", first, hooks.webhook("idle"))
    await api.created(api.path("pods"), pod(name, labels=hooks.labels))
    assert hooks.order() == ["first", "idle"]


@pytest.mark.parametrize("kind", ["Mutating", "Validating"])
async def test_a_refusal_carries_the_webhooks_words(api: Api, hooks: Hooks, name: str, kind: Any) -> None:
    await hooks.configure(kind, "a", hooks.webhook("no", deny("because", 422)))
    answer = await api.post(api.path("pods"), pod(name, labels=hooks.labels))
    words = 'admission webhook "no.example.com" denied the request: because'
    assert (answer.status, answer.body["message"]) == (422, words)
    assert (await api.get(api.path("pods", name))).status == 404


async def test_a_refusal_without_words_or_code(api: Api, hooks: Hooks, name: str) -> None:
    await hooks.configure("Validating", "a", hooks.webhook("no", lambda _request: {"allowed": False}))
    answer = await api.post(api.path("pods"), pod(name, labels=hooks.labels))
    words = 'admission webhook "no.example.com" denied the request without explanation'
    assert (answer.status, answer.body["message"]) == (400, words)


async def test_a_mutating_refusal_comes_before_any_check(api: Api, hooks: Hooks, name: str) -> None:
    await hooks.configure("Mutating", "a", hooks.webhook("no", deny("first")), hooks.webhook("later"))
    await hooks.configure("Validating", "a", hooks.webhook("check", deny("second")))
    answer = await api.post(api.path("pods"), pod(name, labels=hooks.labels))
    assert answer.body["message"].endswith("first")
    assert hooks.order() == ["no"]


async def test_what_a_webhook_makes_is_checked_like_what_a_user_writes(api: Api, hooks: Hooks, name: str) -> None:
    breaks = hooks.webhook("breaks", lambda _request: patch({"op": "remove", "path": "/spec/containers"}))
    await hooks.configure("Mutating", "a", breaks)
    answer = await api.post(api.path("pods"), pod(name, labels=hooks.labels))
    assert answer.refusal()[:2] == (422, "Invalid")


async def test_a_patch_that_does_not_fit_is_an_internal_error(api: Api, hooks: Hooks, name: str) -> None:
    odd = hooks.webhook("odd", lambda _request: patch({"op": "remove", "path": "/metadata/nothing/here"}))
    await hooks.configure("Mutating", "a", odd)
    answer = await api.post(api.path("pods"), pod(name, labels=hooks.labels))
    assert answer.refusal()[:2] == (500, "InternalError")


@pytest.mark.parametrize(("policy", "status"), [("Fail", 500), ("Ignore", 201)])
async def test_a_webhook_that_cannot_be_asked(api: Api, hooks: Hooks, name: str, policy: str, status: int) -> None:
    away = hooks.webhook("away", failurePolicy=policy)
    away["clientConfig"] = {**away["clientConfig"], "url": "https://127.0.0.1:9/away"}
    await hooks.configure("Validating", "a", away)
    answer = await api.post(api.path("pods"), pod(name, labels=hooks.labels))
    assert answer.status == status
    if policy == "Fail":
        assert answer.refusal()[:2] == (500, "InternalError")
        words = 'Internal error occurred: failed calling webhook "away.example.com": '
        assert answer.body["message"].startswith(words)
        assert answer.body["details"]["causes"][0]["message"] in answer.body["message"]


async def test_a_certificate_of_somebody_else_is_not_trusted(api: Api, hooks: Hooks, name: str) -> None:
    other = Hooks(api, name, hooks.port, server_context()[1]).webhook("other")
    hooks.responses["other"] = lambda _request: {"allowed": True}
    await hooks.configure("Validating", "a", other)
    answer = await api.post(api.path("pods"), pod(name, labels=hooks.labels))
    assert answer.refusal()[:2] == (500, "InternalError")
    assert "certificate" in answer.body["message"]
    assert hooks.order() == []


async def test_selectors_and_rules_choose_who_is_asked(api: Api, hooks: Hooks, name: str) -> None:
    def rule(**change: Any) -> Json:
        first = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
        return {"rules": [{**first, **change}]}

    await hooks.configure(
        "Validating",
        "a",
        hooks.webhook("any", **rule(apiGroups=["*"], apiVersions=["*"], resources=["*"], operations=["*"])),
        hooks.webhook("namespaced", **rule(scope="Namespaced")),
        hooks.webhook("cluster", **rule(scope="Cluster")),
        hooks.webhook("secrets", **rule(resources=["secrets"])),
        hooks.webhook("group", **rule(apiGroups=["apps"])),
        hooks.webhook("update", **rule(operations=["UPDATE"])),
        hooks.webhook("binding", objectSelector={}, namespaceSelector={}, **rule(resources=["pods/binding"])),
        hooks.webhook("elsewhere", namespaceSelector={"matchLabels": {"none": "1"}}),
        hooks.webhook(
            "unlabelled", namespaceSelector={"matchExpressions": [{"key": "none", "operator": "DoesNotExist"}]}
        ),
    )
    body = pod(name, labels=hooks.labels)
    await api.created(api.path("pods"), body)
    assert sorted(hooks.order()) == ["any", "namespaced", "unlabelled"]
    await api.patch(api.path("pods", name), {"metadata": {"annotations": {"a": "1"}}})
    ((first, request), (second, _)) = sorted(hooks.calls, key=lambda call: call[0])
    assert [first, second] == ["any", "update"]
    assert request["operation"] == "UPDATE"
    assert "annotations" not in request["oldObject"]["metadata"]
    assert request["object"]["metadata"]["annotations"] == {"a": "1"}
    hooks.order()
    made = secret(f"{name}-s")
    made["metadata"]["labels"] = hooks.labels
    await api.created(api.path("secrets"), made)
    assert sorted(hooks.order()) == ["any", "secrets"]
    await api.post(api.path("pods", f"{name}/binding"), binding(name, "node-a"))
    assert "binding" in hooks.order()
    await api.created(api.path("pods"), pod(f"{name}-2"))
    assert hooks.order() == [], "the object's labels do not match"


async def test_a_deletion_can_be_refused(api: Api, hooks: Hooks, name: str) -> None:
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["DELETE"]}]
    await hooks.configure("Validating", "a", hooks.webhook("keep", deny("kept", 403), rules=rules))
    await api.created(api.path("pods"), pod(name, labels=hooks.labels))
    answer = await api.delete(api.path("pods", name))
    assert (answer.status, answer.body["message"][-4:]) == (403, "kept")
    _, request = hooks.calls[0]  # a real server may ask more than once
    assert request["object"] is None
    assert request["oldObject"]["metadata"]["name"] == name


async def test_warnings_reach_the_client(api: Api, hooks: Hooks, name: str) -> None:
    warns = hooks.webhook("warns", lambda _request: {"allowed": True, "warnings": ["mind the gap"]})
    await hooks.configure("Validating", "a", warns)
    answer = await api.post(api.path("pods"), pod(name, labels=hooks.labels))
    assert answer.warnings == ['299 - "mind the gap"']


async def test_a_dry_run_is_admitted_and_not_stored(api: Api, hooks: Hooks, name: str) -> None:
    await hooks.configure("Mutating", "a", hooks.webhook("a", annotate("a")))
    answer = await api.post(api.path("pods"), pod(name, labels=hooks.labels), dryRun="All")
    assert (answer.status, answer.body["metadata"]["annotations"]) == (201, {"a": "1"})
    assert hooks.calls[0][1]["dryRun"] is True
    assert (await api.get(api.path("pods", name))).status == 404
