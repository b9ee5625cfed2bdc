import asyncio
import json
import logging
from collections.abc import AsyncIterator

import jsonpatch
import pytest

from protocol.faults import describe
from tests.webhook.cases import REFUSED, Refused, message
from tests.webhook.https import PATIENCE, Running, TlsContexts, running
from tests.webhook.makers import (
    ALLOWED,
    LIBRARY_MOUNT,
    UID,
    Object,
    decode_patch,
    gpu_container,
    plain_container,
    pod,
    refusal,
    review,
    review_bytes,
)
from webhook.app import READINESS
from webhook.mutate import mutate_pod
from webhook.settings import WebhookSettings
from webhook.validate import validate_pod

BOTH = pytest.mark.parametrize("path", ["/mutate", "/validate"])


@BOTH
@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
async def test_a19_quantities_a20_requests_and_other_faults_are_refused(
    server: Running, path: str, case: Refused
) -> None:
    assert await server.ask(path, case.pod) == refusal(message(case))


@pytest.mark.parametrize(
    "manifest",
    [
        pod(gpu_container(gpu="1")),
        pod(gpu_container(gpumem="16k", gpucores="25")),
        pod(plain_container(), init=[gpu_container("a15", gpu="2000m")]),
        pod(gpu_container(gpumem="1e2", requests={"amd.com/gpumem": "100"})),
        pod(gpu_container(gpu="1"), volumes=[{"name": "amd-vgpu", "emptyDir": {}}]),
    ],
)
async def test_a_patched_pod_is_the_mutated_pod_and_is_valid(server: Running, manifest: Object) -> None:
    response = await server.ask("/mutate", manifest)
    assert response["patchType"] == "JSONPatch"
    patched = jsonpatch.apply_patch(manifest, decode_patch(response))
    assert patched == mutate_pod(manifest, WebhookSettings())
    assert await server.ask("/validate", patched) == ALLOWED
    assert await server.ask("/mutate", patched) == ALLOWED


@BOTH
@pytest.mark.parametrize("manifest", [pod(plain_container()), pod(), {"metadata": {"generateName": "x-"}}])
async def test_pods_without_gpus_pass_untouched(server: Running, path: str, manifest: Object) -> None:
    assert await server.ask(path, manifest) == ALLOWED


@BOTH
async def test_a17_hami_1258_no_name_and_no_namespace(server: Running, path: str) -> None:
    manifest = pod(gpu_container(gpucores="150")) | {"metadata": {}}
    assert (await server.ask(path, manifest))["allowed"] is False
    assert (await server.ask(path, pod(gpu_container(gpu="1")) | {"metadata": {}}))["allowed"] is True


@BOTH
@pytest.mark.parametrize("case", REFUSED[:1], ids=lambda case: case.name)
async def test_a14_stored_pods_can_be_updated_and_deleted(server: Running, path: str, case: Refused) -> None:
    assert await server.ask(path, case.pod, "UPDATE", oldObject=case.pod) == ALLOWED
    assert await server.ask(path, None, "DELETE", oldObject=case.pod) == ALLOWED


@BOTH
async def test_a16_debug_containers_are_allowed(server: Running, path: str) -> None:
    stored = pod(gpu_container(gpu="1"), nodeName="n1")
    manifest = pod(gpu_container(gpu="1"), nodeName="n1", ephemeralContainers=[{"name": "debug", "image": "busybox"}])
    assert await server.ask(path, manifest, "UPDATE", subResource="ephemeralcontainers", oldObject=stored) == ALLOWED


@BOTH
@pytest.mark.parametrize(
    "kind",
    [
        {"group": "", "version": "v1", "kind": "Binding"},
        {"group": "", "version": "v1", "kind": "EphemeralContainers"},
        {"group": "extensions", "version": "v1beta1", "kind": "Deployment"},
        {"group": "example.com", "version": "v1", "kind": "Pod"},
    ],
)
async def test_other_kinds_are_not_judged(server: Running, path: str, kind: dict[str, str]) -> None:
    assert await server.ask(path, REFUSED[0].pod, kind=kind) == ALLOWED


@BOTH
async def test_sub_resources_of_pods_are_not_judged(server: Running, path: str) -> None:
    assert await server.ask(path, REFUSED[0].pod, subResource="eviction") == ALLOWED


@BOTH
@pytest.mark.parametrize("name", ["volcano", "x" * 400])
async def test_another_scheduler_is_left_alone_with_a_warning(server: Running, path: str, name: str) -> None:
    response = await server.ask(path, pod(gpu_container(gpumem="5"), schedulerName=name))
    (warning,) = response.pop("warnings")
    assert warning.startswith("spec.schedulerName: ")
    assert "amd-vgpu-scheduler" in warning
    assert name[:10] in warning
    assert len(warning) < 256
    assert response == ALLOWED


async def test_pods_without_gpus_may_name_any_scheduler(server: Running) -> None:
    assert await server.ask("/mutate", pod(plain_container(), schedulerName="volcano")) == ALLOWED


async def test_a_dry_run_is_answered_alike(server: Running) -> None:
    manifest = pod(gpu_container(gpu="1"))
    assert await server.ask("/mutate", manifest, dryRun=True) == await server.ask("/mutate", manifest)


async def test_a29_unknown_fields_pass_through(server: Running) -> None:
    manifest = pod(gpu_container(gpu="1") | {"new/field~": {"a": None}}, brandNew=[1.5])
    paths = [operation["path"] for operation in decode_patch(await server.ask("/mutate", manifest))]
    assert paths
    assert not any("new" in path.lower() for path in paths)


async def test_a24_big_objects(server: Running) -> None:
    big = gpu_container(gpu="1") | {"env": [{"name": f"E{n}", "value": "x" * 1000} for n in range(1100)]}
    manifest = pod(big)
    manifest["metadata"]["annotations"] = {"a": "y" * 250_000}
    assert len(review_bytes(manifest)) > 1_350_000
    patched = jsonpatch.apply_patch(manifest, decode_patch(await server.ask("/mutate", manifest)))
    assert patched["spec"]["containers"][0]["volumeMounts"] == [LIBRARY_MOUNT]
    assert await server.ask("/validate", patched, oldObject=manifest) == ALLOWED


@BOTH
async def test_a24_the_limit_is_7_mib(server: Running, path: str) -> None:
    body = review_bytes(pod())
    assert (await server.post(path, body.ljust(7 * 1024**2)))[0] == 200
    status, answer = await server.post(path, body.ljust(7 * 1024**2 + 1))
    assert status == 413
    assert "7340032" in answer["error"]


@BOTH
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "the body is not JSON"),
        (b"{", "the body is not JSON"),
        (b"null", "the body is not a JSON object"),
        (
            json.dumps(review(pod()) | {"apiVersion": "admission.k8s.io/v1beta1"}).encode(),
            "apiVersion is not admission.k8s.io/v1",
        ),
        (review_bytes(pod(), uid=None), "request: uid is missing"),
    ],
)
async def test_what_is_no_review_gets_a_reason(server: Running, path: str, body: bytes, reason: str) -> None:
    assert await server.post(path, body) == (400, {"error": reason})


async def test_a_broken_encoding_is_the_clients_fault(server: Running) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"this is no deflate stream" * 10_000
        yield b"nor is this" * 10_000

    async with server.session.post("/mutate", data=body(), headers={"Content-Encoding": "deflate"}) as response:
        assert response.status == 400
        assert "Traceback" not in await response.text()


async def test_a_client_that_leaves_halfway_is_no_error_of_ours(
    server: Running, tls: TlsContexts, caplog: pytest.LogCaptureFixture
) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=tls.client)
    writer.write(b"POST /mutate HTTP/1.1\r\nHost: webhook\r\nContent-Length: 100\r\n\r\n{")
    await writer.drain()
    writer.close()
    async with asyncio.timeout(PATIENCE):
        while not caplog.records:
            await server.get("/healthz")
    assert caplog.messages == ['unreadable path=/mutate reason="the body cannot be read"']


async def test_unknown_paths_and_methods(server: Running) -> None:
    assert (await server.post("/nothing", b""))[0] == 404
    async with server.session.get("/mutate") as response:
        assert response.status == 405
        assert response.headers["Allow"] == "POST"
        assert list(await response.json()) == ["error"]


async def test_a_bug_is_answered_shortly_and_logged_with_the_uid(
    server: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("secret detail")

    monkeypatch.setattr("webhook.decision.validate_pod", fail)
    status, answer = await server.post("/validate", review_bytes(pod(gpu_container(gpu="1"))))
    assert status == 500
    assert answer == {"error": f"internal error: see the webhook's log at uid {UID}"}
    (record,) = [record for record in caplog.records if record.name == "webhook.app"]
    assert record.getMessage() == f"failed path=/validate uid={UID}"
    assert record.exc_info is not None
    monkeypatch.undo()
    assert await server.ask("/validate", pod()) == ALLOWED


async def test_decisions_are_logged_without_contents(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "webhook.app")
    container = gpu_container(gpucores="424242") | {"env": [{"name": "TOKEN", "value": "hunter2"}]}
    await server.ask("/validate", pod(container))
    await server.ask("/mutate", pod(gpu_container(gpu="1")), userInfo={"username": 'eve" uid=x\n'})
    await server.ask("/mutate", pod(plain_container()))
    denied = (
        f"denied path=/validate uid={UID} namespace=team kind=Pod name=p user=ann dry_run=False "
        "fields=spec.containers[0].resources.limits[amd.com/gpucores]"
    )
    changed = (
        f'changed path=/mutate uid={UID} namespace=team kind=Pod name=p user="eve\\" uid=x\\n" dry_run=False '
        "fields=/spec/containers/0/volumeMounts,/spec/schedulerName,/spec/volumes"
    )
    assert [record.getMessage() for record in caplog.records if record.name == "webhook.app"] == [denied, changed]


async def test_settings_reach_the_rules(tls: TlsContexts) -> None:
    settings = WebhookSettings(scheduler_name="hami-scheduler", library_volume=False)
    async with running(tls, settings) as server:
        operations = decode_patch(await server.ask("/mutate", pod(gpu_container(gpu="1"))))
        assert operations == [{"op": "replace", "path": "/spec/schedulerName", "value": "hami-scheduler"}]


async def test_healthz_and_readyz(server: Running) -> None:
    assert await server.get("/healthz") == (200, "ok")
    assert await server.get("/readyz") == (200, "ok")
    server.app[READINESS].hold("certificates", "the API server does not trust them yet")
    server.app[READINESS].hold("other", "busy")
    assert await server.get("/readyz") == (503, "certificates: the API server does not trust them yet; other: busy")
    assert await server.get("/healthz") == (200, "ok")
    server.app[READINESS].release("certificates")
    assert await server.get("/readyz") == (503, "other: busy")
    server.app[READINESS].release("other")
    assert await server.get("/readyz") == (200, "ok")


async def test_many_requests_at_once(server: Running) -> None:
    manifest = pod(gpu_container(gpu="1"))
    answers = await asyncio.gather(*(server.ask("/mutate", manifest) for _ in range(50)))
    assert all(answer == answers[0] and answer["patch"] for answer in answers)


@BOTH
async def test_the_message_is_the_one_of_the_rules(server: Running, path: str) -> None:
    manifest = REFUSED[0].pod
    response = await server.ask(path, manifest)
    assert response["status"]["message"] == describe(validate_pod(manifest, WebhookSettings()))
