import copy
from typing import Any

import jsonpatch
import pytest
from hypothesis import given

from tests.webhook.makers import (
    LIBRARY_HOST_PATH,
    LIBRARY_MOUNT,
    LIBRARY_VOLUME,
    Object,
    gpu_container,
    plain_container,
    pod,
)
from tests.webhook.strategies import LIKELY_PODS, ODD_PODS, PLAIN_PODS
from webhook.mutate import mutate_pod
from webhook.patching import patch_between
from webhook.settings import WebhookSettings

SETTINGS = WebhookSettings()


def _mutate(manifest: Object, settings: WebhookSettings = SETTINGS) -> Any:
    return mutate_pod(manifest, settings)


@given(ODD_PODS | LIKELY_PODS)
def test_a25_mutating_twice_is_mutating_once(manifest: Object) -> None:
    once = mutate_pod(manifest, SETTINGS)
    assert mutate_pod(once, SETTINGS) == once


@given(ODD_PODS | LIKELY_PODS)
def test_the_patch_of_the_original_is_the_mutated_pod(manifest: Object) -> None:
    mutated = mutate_pod(manifest, SETTINGS)
    assert jsonpatch.apply_patch(manifest, patch_between(manifest, mutated)) == mutated


def test_the_patch_names_only_what_changed() -> None:
    old = {"a/b~": [1, {"c": 2, "same": "same"}], "n": None}
    new = {"a/b~": [1, {"c": 3, "same": "same", "new": []}, 4], "n": [5]}
    assert patch_between(old, new) == [
        {"op": "replace", "path": "/a~1b~0/1/c", "value": 3},
        {"op": "add", "path": "/a~1b~0/1/new", "value": []},
        {"op": "add", "path": "/a~1b~0/2", "value": 4},
        {"op": "replace", "path": "/n", "value": [5]},
    ]
    assert jsonpatch.apply_patch(old, patch_between(old, new)) == new
    assert patch_between(new, new) == []


@given(ODD_PODS | LIKELY_PODS)
def test_the_original_is_never_changed(manifest: Object) -> None:
    before = copy.deepcopy(manifest)
    mutate_pod(manifest, SETTINGS)
    assert manifest == before


@given(PLAIN_PODS)
def test_pods_without_gpus_come_back_as_they_are(manifest: Object) -> None:
    assert mutate_pod(manifest, SETTINGS) is manifest


def test_a_gpu_pod_is_completed() -> None:
    assert _mutate(pod(gpu_container(gpu="1"))) == pod(
        gpu_container(gpu="1") | {"volumeMounts": [LIBRARY_MOUNT]},
        schedulerName="amd-vgpu-scheduler",
        volumes=[LIBRARY_VOLUME],
    )


@pytest.mark.parametrize("name", ["", None, "default-scheduler", "amd-vgpu-scheduler"])
def test_our_scheduler_is_named(name: str | None) -> None:
    mutated = _mutate(pod(gpu_container(gpu="1"), schedulerName=name))
    assert mutated["spec"]["schedulerName"] == "amd-vgpu-scheduler"


def test_the_scheduler_of_the_settings_is_named() -> None:
    settings = WebhookSettings(scheduler_name="hami-scheduler")
    assert _mutate(pod(gpu_container(gpu="1")), settings)["spec"]["schedulerName"] == "hami-scheduler"


def test_a_pod_with_another_scheduler_is_left_to_it() -> None:
    manifest = pod(gpu_container(gpumem="1024"), schedulerName="volcano")
    assert _mutate(manifest) == pod(gpu_container(gpumem="1024"), schedulerName="volcano")


@pytest.mark.parametrize("resource", ["gpumem", "gpucores"])
def test_a21_hami_2726_memory_or_cores_without_gpu_mean_one_gpu(resource: str) -> None:
    resources = _mutate(pod({"name": "c", "resources": {"limits": {f"amd.com/{resource}": "50"}}}))["spec"][
        "containers"
    ][0]["resources"]
    assert resources == {"limits": {f"amd.com/{resource}": "50", "amd.com/gpu": "1"}}


def test_a20_requests_get_the_default_when_they_list_ours() -> None:
    container = gpu_container(gpumem="50", requests={"amd.com/gpumem": "50", "cpu": "1"})
    resources = _mutate(pod(container))["spec"]["containers"][0]["resources"]
    assert resources["requests"] == {"amd.com/gpumem": "50", "cpu": "1", "amd.com/gpu": "1"}


def test_a20_other_requests_are_left_to_the_api_server() -> None:
    container = gpu_container(gpumem="50", requests={"cpu": "1"})
    assert _mutate(pod(container))["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1"}


def test_a_chosen_number_of_gpus_stays() -> None:
    limits = _mutate(pod(gpu_container(gpu="2", gpumem="50")))["spec"]["containers"][0]["resources"]["limits"]
    assert limits["amd.com/gpu"] == "2"


def test_a15_hami_2558_init_containers() -> None:
    spec = _mutate(pod(plain_container(), init=[gpu_container("i", gpucores="5")]))["spec"]
    assert spec["schedulerName"] == "amd-vgpu-scheduler"
    assert spec["volumes"] == [LIBRARY_VOLUME]
    assert spec["initContainers"][0]["volumeMounts"] == [LIBRARY_MOUNT]
    assert spec["initContainers"][0]["resources"]["limits"]["amd.com/gpu"] == "1"
    assert spec["containers"] == [plain_container()]


def test_a25_a_container_injected_later_gets_its_mount() -> None:
    mutated = _mutate(pod(gpu_container(gpu="1")))
    mutated["spec"]["containers"].append(gpu_container("late", gpu="1"))
    again = _mutate(mutated)["spec"]
    assert [container["volumeMounts"] for container in again["containers"]] == [[LIBRARY_MOUNT], [LIBRARY_MOUNT]]
    assert again["volumes"] == [LIBRARY_VOLUME]


def test_a29_unknown_fields_pass_through() -> None:
    container = gpu_container(gpu="1") | {"fieldOfTomorrow": {"a": [None, 1.5]}}
    manifest = pod(container, alsoNew=[{"x": True}]) | {"status": {"odd": {}}}
    mutated = _mutate(manifest)
    assert mutated["spec"]["containers"][0]["fieldOfTomorrow"] == {"a": [None, 1.5]}
    assert mutated["spec"]["alsoNew"] == [{"x": True}]
    assert mutated["status"] == {"odd": {}}


def test_users_volumes_and_mounts_stay_in_front() -> None:
    own = {"name": "data", "mountPath": "/data"}
    manifest = pod(gpu_container(gpu="1") | {"volumeMounts": [own]}, volumes=[{"name": "data", "emptyDir": {}}])
    spec = _mutate(manifest)["spec"]
    assert spec["volumes"] == [{"name": "data", "emptyDir": {}}, LIBRARY_VOLUME]
    assert spec["containers"][0]["volumeMounts"] == [own, LIBRARY_MOUNT]


def test_a_users_volume_of_our_name_is_kept_and_ours_gets_another() -> None:
    own = [{"name": "amd-vgpu", "emptyDir": {}}, {"name": "amd-vgpu-1", "emptyDir": {}}]
    spec = _mutate(pod(gpu_container(gpu="1"), volumes=own))["spec"]
    assert spec["volumes"] == [*own, {"name": "amd-vgpu-2", "hostPath": LIBRARY_HOST_PATH}]
    assert spec["containers"][0]["volumeMounts"] == [LIBRARY_MOUNT | {"name": "amd-vgpu-2"}]


def test_the_same_volume_is_used_again() -> None:
    spec = _mutate(pod(gpu_container(gpu="1"), volumes=[LIBRARY_VOLUME]))["spec"]
    assert spec["volumes"] == [LIBRARY_VOLUME]
    assert spec["containers"][0]["volumeMounts"] == [LIBRARY_MOUNT]


def test_a_library_mounted_under_another_name_needs_nothing() -> None:
    container = gpu_container(gpu="1") | {"volumeMounts": [LIBRARY_MOUNT | {"name": "mine"}]}
    spec = _mutate(pod(container, volumes=[LIBRARY_VOLUME | {"name": "mine"}]))["spec"]
    assert spec["volumes"] == [LIBRARY_VOLUME | {"name": "mine"}]
    assert spec["containers"] == [container]


def test_a_host_path_that_would_be_created_is_not_the_same_volume() -> None:
    own = {"name": "amd-vgpu", "hostPath": {"path": "/usr/local/vgpu", "type": "DirectoryOrCreate"}}
    spec = _mutate(pod(gpu_container(gpu="1"), volumes=[own]))["spec"]
    assert spec["volumes"] == [own, LIBRARY_VOLUME | {"name": "amd-vgpu-1"}]


def test_the_folder_of_the_settings_is_mounted_at_the_fixed_path() -> None:
    spec = _mutate(pod(gpu_container(gpu="1")), WebhookSettings(library_dir="/opt/vgpu"))["spec"]
    assert spec["volumes"][0]["hostPath"] == {"path": "/opt/vgpu", "type": "Directory"}
    assert spec["containers"][0]["volumeMounts"] == [LIBRARY_MOUNT]


def test_the_volume_can_be_switched_off() -> None:
    spec = _mutate(pod(gpu_container(gpumem="5")), WebhookSettings(library_volume=False))["spec"]
    assert "volumes" not in spec
    assert "volumeMounts" not in spec["containers"][0]
    assert spec["schedulerName"] == "amd-vgpu-scheduler"
    assert spec["containers"][0]["resources"]["limits"]["amd.com/gpu"] == "1"


@pytest.mark.parametrize(
    ("name", "value", "completed"),
    [
        ("LD_AUDIT", "/x.so:/y.so", "/usr/local/vgpu/libamvgpu.so:/x.so:/y.so"),
        ("LD_AUDIT", "/usr/local/vgpu/libamvgpu.so.1", "/usr/local/vgpu/libamvgpu.so:/usr/local/vgpu/libamvgpu.so.1"),
        ("LD_AUDIT", "", "/usr/local/vgpu/libamvgpu.so"),
        ("LD_AUDIT", None, "/usr/local/vgpu/libamvgpu.so"),
        ("LD_AUDIT", "/x.so:/usr/local/vgpu/libamvgpu.so", "/x.so:/usr/local/vgpu/libamvgpu.so"),
        ("GLIBC_TUNABLES", "glibc.malloc.check=3", "glibc.malloc.check=3:glibc.rtld.optional_static_tls=4096"),
        ("GLIBC_TUNABLES", "", "glibc.rtld.optional_static_tls=4096"),
        ("GLIBC_TUNABLES", "glibc.rtld.optional_static_tls=512", "glibc.rtld.optional_static_tls=512"),
        ("LD_PRELOAD", "/jemalloc.so", "/jemalloc.so"),
    ],
)
def test_variables_that_we_need_are_joined_with_the_users(name: str, value: str | None, completed: str) -> None:
    variables = [{"name": "A", "value": "a"}, {"name": name, "value": value}]
    manifest = pod(gpu_container(gpu="1") | {"env": variables}, plain_container() | {"env": variables})
    mutated = _mutate(manifest)
    first, second = mutated["spec"]["containers"]
    assert first["env"] == [{"name": "A", "value": "a"}, {"name": name, "value": completed}]
    assert second["env"] == variables
    assert _mutate(mutated) == mutated


def test_variables_from_elsewhere_are_not_joined() -> None:
    variables: list[Object] = [{"name": name, "valueFrom": {"fieldRef": {}}} for name in ("LD_AUDIT", "GLIBC_TUNABLES")]
    manifest = pod(gpu_container(gpu="1") | {"env": variables})
    assert _mutate(manifest)["spec"]["containers"][0]["env"] == variables


def test_a_sidecar_is_completed_like_any_container() -> None:
    sidecar = gpu_container("s", gpumem="5") | {"restartPolicy": "Always"}
    mutated = _mutate(pod(plain_container(), init=[sidecar]))
    assert mutated["spec"]["initContainers"][0]["volumeMounts"] == [LIBRARY_MOUNT]
    assert mutated["spec"]["initContainers"][0]["resources"]["limits"]["amd.com/gpu"] == "1"


@pytest.mark.parametrize("settings", [{"scheduler_name": ""}, {"library_dir": "vgpu"}, {"library_dir": "/a/../b"}])
def test_settings_that_would_break_every_pod_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must"):
        WebhookSettings(**settings)
