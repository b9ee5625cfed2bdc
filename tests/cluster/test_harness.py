"""The harness itself: the cluster works, and nothing of it stays."""

import signal
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.conditions import has_condition
from tests.cluster.errors import ClusterError
from tests.cluster.images import BUSYBOX_IMAGE, build_image, client_image

NAMESPACE = "harness"


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> Iterator[str]:
    cluster.create_namespace(NAMESPACE)
    yield NAMESPACE
    cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def pod(name: str, *command: str, image: str = BUSYBOX_IMAGE, **container: object) -> dict[str, object]:
    main = {"name": "main", "image": image, "command": list(command), **container}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"containers": [main], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0},
    }


def test_node_is_ready(cluster: Cluster) -> None:
    assert has_condition(cluster.node(), "Ready")


def test_pod_runs_and_its_log_is_read(cluster: Cluster, namespace: str) -> None:
    cluster.apply(pod("hello", "sh", "-c", "echo hello from $HOSTNAME"))
    cluster.wait_for_pod(namespace, "hello", "Succeeded")
    assert cluster.logs(namespace, "hello") == "hello from hello\n"


def test_command_runs_in_a_pod(cluster: Cluster, namespace: str) -> None:
    cluster.apply(pod("exec", "sleep", "1000"))
    cluster.wait_for_pod(namespace, "exec")
    assert cluster.exec(namespace, "exec", "cat", "/proc/1/cmdline").stdout == "sleep\0001000\0"
    assert cluster.exec(namespace, "exec", "false", check=False).returncode == 1


def test_pod_outlives_the_kubelet(cluster: Cluster, namespace: str) -> None:
    cluster.apply(pod("survivor", "sleep", "1000"))
    before = cluster.wait_for_pod(namespace, "survivor")
    cluster.restart_kubelet()
    cluster.kubectl("annotate", "pod", "--namespace", namespace, "survivor", "seen=yes")
    after = cluster.wait_for_pod(namespace, "survivor")
    assert before is not None
    assert after is not None
    assert after["status"]["containerStatuses"] == before["status"]["containerStatuses"]


def test_pod_deletion_is_awaited(cluster: Cluster, namespace: str) -> None:
    cluster.apply(pod("gone", "sleep", "1000"))
    cluster.wait_for_pod(namespace, "gone")
    cluster.kubectl("delete", "pod", "--namespace", namespace, "gone", "--wait=false")
    assert cluster.wait_for_pod(namespace, "gone", "Deleted") is None


def test_pod_that_fails_is_reported_at_once(cluster: Cluster, namespace: str) -> None:
    cluster.apply(pod("fails", "false"))
    with pytest.raises(ClusterError, match="pod fails ended"):
        cluster.wait_for_pod(namespace, "fails", timeout=60)


def test_missing_image_is_explained_by_the_events(cluster: Cluster, namespace: str) -> None:
    cluster.apply(pod("imageless", "true", image="docker.io/local/none:1", imagePullPolicy="Never"))
    with pytest.raises(ClusterError, match="ErrImageNeverPull"):
        cluster.wait_for_pod(namespace, "imageless", timeout=3)


def test_service_account_may_do_what_its_role_says_and_no_more(cluster: Cluster, namespace: str) -> None:
    cluster.kubectl("create", "serviceaccount", "reader", "--namespace", namespace)
    cluster.kubectl("create", "role", "reads-pods", "--verb=list", "--resource=pods", "--namespace", namespace)
    cluster.kubectl(
        "create", "rolebinding", "reader", "--role=reads-pods", f"--serviceaccount={namespace}:reader",
        "--namespace", namespace,
    )  # fmt: skip
    identity = cluster.kubeconfig_for_service_account(namespace, "reader")
    cluster.kubectl("get", "pods", "--namespace", namespace, kubeconfig=identity)
    refused = cluster.kubectl("get", "secrets", "--namespace", namespace, kubeconfig=identity, check=False)
    assert "Forbidden" in refused.stderr
    assert f"system:serviceaccount:{namespace}:reader" in refused.stderr


def test_device_reaches_a_container(cluster: Cluster, namespace: str) -> None:
    device = cluster.make_device("kfd")
    assert stat.S_ISCHR(device.stat().st_mode)
    manifest = pod(
        "device", "sh", "-c", "ls -l /dev/kfd && echo > /dev/kfd",
        volumeMounts=[{"name": "kfd", "mountPath": "/dev/kfd"}],
    )  # fmt: skip
    volume = {"name": "kfd", "hostPath": {"path": str(device), "type": "CharDevice"}}
    manifest["spec"]["volumes"] = [volume]  # type: ignore[index]
    cluster.apply(manifest)
    cluster.wait_for_pod(namespace, "device", "Succeeded")
    assert cluster.logs(namespace, "device").startswith("crw-rw-rw-")


def test_kubelet_serves_its_device_plugin_socket_outside_the_namespace(cluster: Cluster) -> None:
    for path in (cluster.device_plugin_dir / "kubelet.sock", cluster.pod_resources_socket):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


def test_image_of_a_dynamic_program(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    name = "docker.io/local/dynamic:1"
    archive = client_image(name, {"/bin/file-list": Path("/bin/ls")}, ["/bin/file-list"], archive=tmp_path / "a.tar")
    cluster.import_image(archive)
    cluster.apply(pod("dynamic", "/bin/file-list", "/bin/busybox", image=name))
    cluster.wait_for_pod(namespace, "dynamic", "Succeeded")
    assert cluster.logs(namespace, "dynamic") == "/bin/busybox\n"


def test_images_are_the_same_every_time(tmp_path: Path) -> None:
    first, second = (
        build_image("local/x:1", {"/a/b": Path("/bin/cat")}, ["/a/b"], archive=tmp_path / name).read_bytes()
        for name in ("1", "2")
    )
    assert first == second


def test_second_scheduler_binds_the_pods_that_name_it(cluster: Cluster, namespace: str) -> None:
    cluster.start_scheduler("second", {"profiles": [{"schedulerName": "second"}]})
    manifest = pod("chosen", "true")
    manifest["spec"]["schedulerName"] = "second"  # type: ignore[index]
    cluster.apply(manifest)
    cluster.wait_for_pod(namespace, "chosen", "Succeeded")
    cluster.stop_process("second")


def test_process_is_ready_and_ends(cluster: Cluster, tmp_path: Path) -> None:
    touched = tmp_path / "ready"
    service = cluster.start_process("toucher", ["sh", "-c", 'touch "$FILE"; sleep 1000'], {"FILE": str(touched)},
                                    ready=touched.exists)  # fmt: skip
    assert service.running
    cluster.stop_process("toucher")
    assert service.process.returncode == -signal.SIGTERM


def test_death_of_a_process_is_told_by_the_next_call(cluster: Cluster) -> None:
    service = cluster.start_process("short", ["sh", "-c", "echo last words; exit 3"])
    service.process.wait()
    with pytest.raises(ClusterError, match=r"short ended with status 3(?s:.*)last words"):
        cluster.kubectl("version")
    cluster.stop_process("short")


def test_process_that_never_gets_ready(cluster: Cluster) -> None:
    with pytest.raises(ClusterError, match="never is not ready after"):
        cluster.start_process("never", ["sleep", "1000"], ready="http://127.0.0.1:9/", timeout=0.3)
    cluster.check()
