"""The API server fails at each of the calls that an Allocate makes: the container gets its share all the same, once."""

import asyncio
from collections.abc import Callable

import pytest

from kube.client import KubeClient
from plugin.allocator import Allocator
from plugin.inventory import Inventory
from plugin.settings import PluginSettings
from protocol.names import BIND_PHASE, DEVICES_TO_ALLOCATE, NODE_LOCK
from tests.plugin.made_pods import NODE, Json, bound_pod, container, lock_for, path_of
from tests.plugin.standin_api import StandInApi

NODE_PATH = f"/api/v1/nodes/{NODE}"
CALLS = ("GET node", "GET pods", "PATCH pod", "PATCH node")
Fault = Callable[[StandInApi], None]


def unavailable(api: StandInApi) -> None:
    api.refusing = 503


def forbidden(api: StandInApi) -> None:
    """A starting API server that has not read its rules says so, too."""
    api.refusing = 403


def too_many(api: StandInApi) -> None:
    api.refusing = 429


def away(api: StandInApi) -> None:
    api.away = True


def answer_lost(api: StandInApi) -> None:
    api.losing = 1


def node_changed(api: StandInApi) -> None:
    """The kubelet tells the node's state under the plugin's hands."""
    api.annotate(NODE_PATH, {"example.com/heartbeat": str(len(api.calls))})


@pytest.fixture
def pod(api: StandInApi, inventory: Inventory) -> Json:
    item = bound_pod("one", [container("main", mem=5, cores=25)], inventory.snapshot)
    api.put(path_of(item), item)
    api.annotate(NODE_PATH, {NODE_LOCK: lock_for(item)})
    return item


def nth(call: str, pod: Json) -> tuple[str, str]:
    method, _, what = call.partition(" ")
    return method, {"node": NODE_PATH, "pods": "/api/v1/pods", "pod": path_of(pod)}[what]


def break_once(api: StandInApi, call: tuple[str, str], fault: Fault) -> None:
    """Do it at the first call of this kind, and undo what lasts at the next of any."""
    done = False

    def on_call(*called: str) -> None:
        nonlocal done
        api.refusing, api.away = 0, False
        if called == call and not done:
            done = True
            fault(api)

    api.on_call = on_call


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("fault", [unavailable, forbidden, too_many, away, answer_lost, node_changed])
async def test_a_call_that_fails_once(
    settings: PluginSettings,
    client: KubeClient,
    api: StandInApi,
    inventory: Inventory,
    pod: Json,
    call: str,
    fault: Fault,
) -> None:
    break_once(api, nth(call, pod), fault)
    answer = await Allocator(settings, client, inventory).allocate(["x-0"])
    assert (answer.env["HIP_DEVICE_MEMORY_LIMIT"], answer.env["HSA_CU_MASK"]) == ("5m", "0:0-75")
    notes = api.notes(path_of(pod))
    assert (notes[BIND_PHASE], notes[DEVICES_TO_ALLOCATE]) == ("success", ";")
    assert NODE_LOCK not in api.notes(NODE_PATH)


@pytest.mark.parametrize("made", range(1, len(CALLS) + 1))
async def test_a_plugin_that_ends_after_each_of_its_calls_and_is_asked_again(
    settings: PluginSettings, client: KubeClient, api: StandInApi, inventory: Inventory, pod: Json, made: int
) -> None:
    """The kubelet was restarted with it and asks for the same devices: it gets the same answer, and the lock goes."""
    doomed = asyncio.create_task(Allocator(settings, client, inventory).allocate(["x-0"]))

    def end() -> None:
        if len(api.calls) == made:
            doomed.cancel()

    api.after_call = end
    with pytest.raises(asyncio.CancelledError):
        await doomed
    assert len(api.calls) in {made, 2}, "the first two run side by side"
    answer = await Allocator(settings, client, inventory).allocate(["x-0"])
    assert (answer.env["HIP_DEVICE_MEMORY_LIMIT"], answer.env["HSA_CU_MASK"]) == ("5m", "0:0-75")
    assert api.notes(path_of(pod))[BIND_PHASE] == "success"
    assert NODE_LOCK not in api.notes(NODE_PATH)
