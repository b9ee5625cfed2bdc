"""Binding and deleting pods."""

from tests.contract.api import NODES, Api
from tests.contract.objects import binding, lease, node, pod


async def test_a_binding_binds_once(api: Api, name: str) -> None:
    await api.created(api.path("pods"), pod(name))
    path = api.path("pods", f"{name}/binding")
    answer = await api.post(path, binding(name, "node-a", annotations={"bound": "1"}))
    assert answer.status == 201
    assert answer.body == {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
    bound = (await api.get(api.path("pods", name))).body
    assert bound["spec"]["nodeName"] == "node-a"
    assert bound["metadata"]["annotations"] == {"bound": "1"}
    (condition,) = bound["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    again = await api.post(path, binding(name, "node-b"))
    words = f'Operation cannot be fulfilled on pods/binding "{name}": pod {name} is already assigned to node "node-a"'
    assert again.refusal() == (409, "Conflict", words)
    assert again.body["details"] == {"name": name, "kind": "pods/binding"}


async def test_bindings_of_nothing_and_to_nothing(api: Api, name: str) -> None:
    missing = await api.post(api.path("pods", "none/binding"), binding("none", "node-a"))
    assert missing.refusal() == (404, "NotFound", 'pods "none" not found')
    await api.created(api.path("pods"), pod(name))
    body = binding(name, "")
    assert (await api.post(api.path("pods", f"{name}/binding"), body)).refusal() == (
        500,
        "",
        "target.name: Required value",
    )


async def test_a_binding_says_which_pod_it_means(api: Api, name: str) -> None:
    """From Kubernetes 1.23 on; the older server of these tests binds whatever has the name."""
    made = await api.created(api.path("pods"), pod(name))
    path = api.path("pods", f"{name}/binding")
    stale = {"resourceVersion": made["metadata"]["resourceVersion"]}
    await api.patch(api.path("pods", name), {"metadata": {"annotations": {"a": "1"}}})
    version = (await api.get("/version")).body
    refuses = not api.is_real or int(version["minor"].rstrip("+")) >= 23
    expected = 409 if refuses else 201
    assert (await api.post(path, binding(name, "node-a", **stale))).status == expected
    if refuses:
        assert (await api.post(path, binding(name, "node-a", uid="another"))).refusal()[:2] == (409, "Conflict")


async def test_a_pod_on_no_node_is_deleted_at_once(api: Api, name: str) -> None:
    path = api.path("pods", name)
    await api.created(api.path("pods"), pod(name))
    answer = await api.delete(path)
    assert answer.status == 200
    assert answer.body["kind"] == "Pod"
    assert answer.body["metadata"]["deletionGracePeriodSeconds"] == 0
    assert (await api.get(path)).status == 404
    assert (await api.delete(path)).refusal() == (404, "NotFound", f'pods "{name}" not found')


async def test_a_bound_pod_is_deleted_by_its_kubelet(api: Api, name: str) -> None:
    path = api.path("pods", name)
    await api.created(api.path("pods"), pod(name))
    await api.post(f"{path}/binding", binding(name, "node-a"))
    marked = await api.delete(path, gracePeriodSeconds="7")
    assert marked.status == 200
    assert marked.body["metadata"]["deletionGracePeriodSeconds"] == 7
    longer = await api.delete(path, gracePeriodSeconds="9")
    assert longer.body["metadata"] == marked.body["metadata"], "a grace time can only become shorter"
    shorter = await api.delete(path, {"gracePeriodSeconds": 3})
    assert shorter.body["metadata"]["deletionGracePeriodSeconds"] == 3
    assert shorter.body["metadata"]["deletionTimestamp"] < marked.body["metadata"]["deletionTimestamp"]
    again = await api.post(f"{path}/binding", binding(name, "node-b"))
    assert again.refusal()[:2] == (409, "Conflict")
    assert "is being deleted, cannot be assigned to a host" in again.body["message"]
    assert (await api.delete(path, {"gracePeriodSeconds": 0})).status == 200
    assert (await api.get(path)).status == 404


async def test_a_bound_pods_own_grace_time_holds(api: Api, name: str) -> None:
    path = api.path("pods", name)
    await api.created(api.path("pods"), pod(name, terminationGracePeriodSeconds=11))
    await api.post(f"{path}/binding", binding(name, "node-a"))
    assert (await api.delete(path)).body["metadata"]["deletionGracePeriodSeconds"] == 11


async def test_a_finished_pod_is_deleted_at_once(api: Api, name: str) -> None:
    path = api.path("pods", name)
    await api.created(api.path("pods"), pod(name))
    await api.post(f"{path}/binding", binding(name, "node-a"))
    await api.patch(f"{path}/status", {"status": {"phase": "Succeeded"}})
    await api.delete(path)
    assert (await api.get(path)).status == 404


async def test_a_deletion_has_preconditions(api: Api, name: str) -> None:
    path = api.path("pods", name)
    made = await api.created(api.path("pods"), pod(name))
    answer = await api.delete(path, {"preconditions": {"uid": "another"}})
    assert answer.refusal()[:2] == (409, "Conflict")
    assert "the UID in the precondition (another) does not match the UID in record" in answer.body["message"]
    answer = await api.delete(path, {"preconditions": {"resourceVersion": "1"}})
    assert answer.refusal()[:2] == (409, "Conflict")
    assert answer.body["details"] == {"name": name, "kind": "Pod"}
    known = {key: made["metadata"][key] for key in ("uid", "resourceVersion")}
    assert (await api.delete(path, {"preconditions": known})).status == 200


async def test_other_deletions_are_answered_with_a_status(api: Api, name: str) -> None:
    made = await api.created(NODES, node(name))
    answer = await api.delete(f"{NODES}/{name}")
    details = {"name": name, "kind": "nodes", "uid": made["metadata"]["uid"]}
    assert answer.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }
    leases = api.path("coordination.k8s.io/v1/leases")
    await api.created(leases, lease(name))
    assert (await api.delete(f"{leases}/{name}")).body["details"]["group"] == "coordination.k8s.io"


async def test_a_collection_is_deleted_by_selector(api: Api, name: str) -> None:
    for suffix, app in (("a", name), ("b", name), ("c", "else")):
        await api.created(api.path("pods"), pod(f"{name}-{suffix}", labels={"app": app}))
    answer = await api.delete(api.path("pods"), labelSelector=f"app={name}")
    assert answer.body["kind"] == "PodList"
    left = (await api.get(api.path("pods"), labelSelector=f"app in ({name},else)")).body["items"]
    assert [one["metadata"]["name"] for one in left] == [f"{name}-c"]
    await api.delete(api.path("pods", f"{name}-c"))
