"""Pods of HAMi's scheduler, which says how many CUs a pod has and leaves it to the plugin to say which."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from embedded.apiserver.patches import merge
from plugin.allocate import Host
from plugin.decision import Grant, decide
from plugin.holder import RefusedError
from plugin.inventory import Inventory
from protocol.allocation import decode_cus
from protocol.cumask import read_mask
from protocol.names import CU_ALLOCATED
from protocol.usage import node_usage
from tests.plugin.made_pods import bound_pod, container

Json = dict[str, Any]

GPU = "GPU-8e1bb56457addd1b"


def of_hami(pod: Json) -> Json:
    result: Json = merge(pod, {"metadata": {"annotations": {CU_ALLOCATED: None}}})
    return result


def grant_for(pod: Json, *others: Json, inventory: Inventory) -> Grant:
    gpus = inventory.snapshot.by_id()
    ids = frozenset({"x-0"})
    return decide(pod, [pod, *others], gpus, ids, Host(Path("/dev"), Path("/vgpu"), Path("/run/vgpu")))


def test_cus_are_chosen_and_recorded(inventory: Inventory) -> None:
    first = bound_pod("first", [container("main", mem=1, cores=25)], inventory.snapshot)
    pod = of_hami(bound_pod("hami", [container("main", mem=1, cores=25)], inventory.snapshot))
    grant = grant_for(pod, first, inventory=inventory)
    assert grant.given.answer.env["HSA_CU_MASK"] == "0:76-151"
    assert grant.patch[CU_ALLOCATED] == f'{{"{GPU}":"76-151"}}'


def test_nothing_is_chosen_where_the_scheduler_chose(inventory: Inventory) -> None:
    pod = bound_pod("ours", [container("main", mem=1, cores=25)], inventory.snapshot)
    assert CU_ALLOCATED not in grant_for(pod, inventory=inventory).patch


def test_every_container_of_the_pod_is_chosen_for_at_once(inventory: Inventory) -> None:
    """The first call's record serves the later ones, so that they cannot disagree."""
    sidecar = container("proxy", mem=1, cores=10, restartPolicy="Always")
    init = [sidecar, container("prepare", mem=1, cores=80)]
    apps = [container("a", mem=1, cores=25), container("b", mem=1, cores=25)]
    pod = of_hami(bound_pod("hami", apps, inventory.snapshot, init=init))
    # All on one GPU, as HAMi may place them.
    notes = pod["metadata"]["annotations"]
    notes.update({key: text.replace("addd1c", "addd1b") for key, text in notes.items()})
    masks = []
    for _ in range(4):
        grant = grant_for(pod, inventory=inventory)
        masks.append(read_mask(grant.given.answer.env["HSA_CU_MASK"], gpus=1, cus=304).masks[0])
        pod = merge(pod, {"metadata": {"annotations": dict(grant.patch)}})
    proxy, prepare, a, b = masks
    assert [len(mask) for mask in masks] == [30, 243, 76, 76]
    assert not proxy & (prepare | a | b)
    assert not a & b
    assert prepare > a | b
    usages, unreadable = node_usage(inventory.snapshot.devices, [pod])
    assert not unreadable
    assert usages[GPU].cus == proxy | prepare
    assert not usages[GPU].blocked
    assert set(decode_cus(pod["metadata"]["annotations"][CU_ALLOCATED])[GPU]) == proxy | prepare


def test_a_share_below_one_cu_in_each_xcc_is_refused(inventory: Inventory) -> None:
    """HAMi gives 1 % as 3 CUs: on a GPU of 8 XCCs, 5 of them would run on all their CUs."""
    pod = of_hami(bound_pod("hami", [container("main", mem=1, cores=1)], inventory.snapshot))
    notes = pod["metadata"]["annotations"]
    notes.update({key: text.replace(",8:", ",3:") for key, text in notes.items()})
    with pytest.raises(RefusedError, match=r"3 CUs cannot be given: 304 are free, and a share has at least 8"):
        grant_for(pod, inventory=inventory)


def test_too_few_free_cus_are_refused(inventory: Inventory) -> None:
    first = bound_pod("first", [container("main", mem=1, cores=90)], inventory.snapshot)
    pod = of_hami(bound_pod("hami", [container("main", mem=1, cores=25)], inventory.snapshot))
    with pytest.raises(RefusedError, match="76 CUs cannot be given: 31 are free"):
        grant_for(pod, first, inventory=inventory)


def test_a_gpu_of_which_nobody_knows_what_is_free_is_refused(inventory: Inventory) -> None:
    silent = of_hami(bound_pod("silent", [container("main", mem=1, cores=25)], inventory.snapshot))
    pod = of_hami(bound_pod("hami", [container("main", mem=1, cores=25)], inventory.snapshot))
    with pytest.raises(RefusedError, match="pod default/silent holds 76 CUs and names 0"):
        grant_for(pod, silent, inventory=inventory)


def test_a_gpu_that_is_not_there_is_refused(inventory: Inventory) -> None:
    pod = of_hami(bound_pod("hami", [container("main", mem=1, cores=25)], inventory.snapshot))
    inventory.publish(replace(inventory.snapshot, gpus=inventory.snapshot.gpus[1:]))
    with pytest.raises(RefusedError, match="is not on this node"):
        grant_for(pod, inventory=inventory)
