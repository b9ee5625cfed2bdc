from typing import Any

import pytest

from tests.webhook.cases import REFUSED, Refused
from tests.webhook.makers import LIBRARY_MOUNT, LIBRARY_VOLUME, Object, gpu_container, plain_container, pod
from webhook.mutate import mutate_pod
from webhook.settings import WebhookSettings
from webhook.validate import validate_pod

SETTINGS = WebhookSettings()


def _validate(manifest: Object) -> list[str]:
    return [str(fault) for fault in validate_pod(manifest, SETTINGS)]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_refused_with_every_fault(case: Refused) -> None:
    assert _validate(case.pod) == list(case.messages)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_completing_a_faulty_pod_neither_fails_nor_hides_its_faults(case: Refused) -> None:
    assert set(case.messages) <= set(_validate(dict(mutate_pod(case.pod, SETTINGS))))


@pytest.mark.parametrize(
    "limits",
    [
        {"gpu": "1"},
        {"gpu": "64", "gpumem": "2097152", "gpucores": "100"},
        {"gpucores": "1"},
        {"gpumem": "16k"},
        {"gpumem": "1e2"},
        {"gpu": "2000m"},
        {"gpumem": 16384},
    ],
)
def test_a19_legal_quantities(limits: dict[str, Any]) -> None:
    assert _validate(pod(gpu_container(**limits))) == []


def test_a20_requests_that_equal_limits_in_another_spelling() -> None:
    assert _validate(pod(gpu_container(gpumem="16k", requests={"amd.com/gpumem": "16000"}))) == []


@pytest.mark.parametrize(
    "manifest",
    [
        pod(plain_container(), nodeName="n1"),
        pod(plain_container() | {"volumeMounts": [{"name": "v", "mountPath": "/usr/local/vgpu"}]}),
        {"metadata": {}},
        {"spec": None},
        {"spec": {"containers": None, "initContainers": None}},
    ],
)
def test_pods_without_gpus_are_not_judged(manifest: Object) -> None:
    assert _validate(manifest) == []


def test_node_selector_is_the_way_to_choose_a_node() -> None:
    assert _validate(pod(gpu_container(gpu="1"), nodeSelector={"kubernetes.io/hostname": "n1"})) == []


@pytest.mark.parametrize("path", ["/usr/local", "/usr/local/vgpu2", "/usr/local/vgpu-data/x", "/"])
def test_mounts_beside_and_above_the_library_are_free(path: str) -> None:
    container = gpu_container(gpu="1") | {"volumeMounts": [{"name": "v", "mountPath": path}]}
    assert _validate(pod(container, volumes=[{"name": "v", "emptyDir": {}}])) == []


def test_our_own_mount_is_no_fault() -> None:
    container = gpu_container(gpu="1") | {"volumeMounts": [LIBRARY_MOUNT]}
    assert _validate(pod(container, volumes=[LIBRARY_VOLUME])) == []


def test_only_containers_with_a_gpu_need_the_library_path() -> None:
    plain = plain_container() | {"volumeMounts": [{"name": "v", "mountPath": "/usr/local/vgpu"}]}
    assert _validate(pod(plain, gpu_container(gpu="1"), volumes=[{"name": "v", "emptyDir": {}}])) == []


def test_the_folder_of_the_settings_decides_what_is_ours() -> None:
    container = gpu_container(gpu="1") | {"volumeMounts": [LIBRARY_MOUNT]}
    manifest = pod(container, volumes=[LIBRARY_VOLUME])
    faults = validate_pod(manifest, WebhookSettings(library_dir="/opt/vgpu"))
    assert [fault.field for fault in faults] == ["spec.containers[0].volumeMounts[0].mountPath"]
