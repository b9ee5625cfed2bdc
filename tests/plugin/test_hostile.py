"""Whatever stands in annotations or sysfs, the worst is a refusal with a reason."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from embedded.apiserver.patches import merge
from plugin.allocate import Host
from plugin.decision import decide
from plugin.discovery import Snapshot, discover
from plugin.holder import RefusedError, check_holder
from protocol.cumask import read_mask
from protocol.lock import decode_lock
from protocol.names import CU_ALLOCATED, DEVICES_ALLOCATED, DEVICES_TO_ALLOCATE
from tests.plugin.made_pods import NODE, bound_pod, container
from tests.trees import MadeGpu, make_tree

Json = dict[str, Any]

GPU = "GPU-8e1bb56457addd1b"

# Text that is nearly right gets further than noise.
share = st.builds(
    "{},{},{},{}:".format,
    st.sampled_from([GPU, "GPU-8e1bb56457addd1c", "GPU-0", "", "../.."]),
    st.sampled_from(["AMD Instinct MI300X VF", "", "\x00"]),
    st.sampled_from(["1", "196608", "0", "-1", "9" * 30, "1.5", ""]),
    st.sampled_from(["1", "8", "76", "304", "305", "0", "x"]),
)
segments = st.lists(st.lists(share, max_size=2).map("".join), max_size=4).map(";".join) | st.text(max_size=40)
cu_list = st.sampled_from(["0-75", "0-7", "76-151", "0-303", "0-304", "303-0", "0,0", "", "0-99999999", "a"])
cus = st.dictionaries(st.sampled_from([GPU, "GPU-0"]), cu_list).map(
    lambda texts: "{" + ",".join(f'"{key}":"{value}"' for key, value in texts.items()) + "}"
) | st.text(max_size=40)


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    root = tmp_path_factory.mktemp("made")
    make_tree(root, [MadeGpu(), MadeGpu()])
    return discover(root / "sys", root / "dev")


@settings(max_examples=400, deadline=None)
@given(allocated=segments, left=st.none() | segments, chosen=st.none() | cus, other=st.none() | cus)
def test_annotations(
    snapshot: Snapshot, allocated: str, left: str | None, chosen: str | None, other: str | None
) -> None:
    """A grant may only ever be of whole, valid shares that nobody else holds."""
    neighbour = bound_pod("neighbour", [container("main", mem=1, cores=25)], snapshot)
    neighbour = merge(neighbour, {"metadata": {"annotations": {CU_ALLOCATED: other}}})
    pod = bound_pod("pod", [container("main")], snapshot)
    notes = {
        DEVICES_ALLOCATED: allocated,
        DEVICES_TO_ALLOCATE: allocated if left is None else left,
        CU_ALLOCATED: chosen,
    }
    pod = merge(pod, {"metadata": {"annotations": notes}})
    try:
        grant = decide(
            pod,
            [pod, neighbour],
            snapshot.by_id(),
            frozenset({"x-0"}),
            Host(Path("/dev"), Path("/vgpu"), Path("/run/vgpu")),
        )
    except RefusedError:
        return
    mask = read_mask(grant.given.answer.env["HSA_CU_MASK"], gpus=1, cus=304)
    assert not mask.dropped
    assert len({cu % 8 for cu in mask.masks[0]}) == 8
    assert max(mask.masks[0]) < 304


@given(value=st.text(max_size=60) | st.builds("{},{},{}".format, st.text(max_size=30), st.text(), st.text()))
def test_locks_and_times(value: str) -> None:
    lock = decode_lock(value) or decode_lock("2026-12-01T10:00:05Z,default,pod")
    assert lock is not None
    pod = {"metadata": {"name": "pod", "creationTimestamp": value}, "spec": {"nodeName": NODE}}
    with pytest.raises(RefusedError):
        check_holder(pod, lock, NODE)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.binary(max_size=60)
    | st.lists(
        st.builds(
            "{} {}\n".format,
            st.sampled_from(
                ["simd_count", "simd_per_cu", "num_xcc", "drm_render_minor", "gfx_target_version", "location_id"]
            ),
            st.integers(-10, 2**65) | st.integers(0, 400),
        )
    ).map(lambda lines: "".join(lines).encode()),
    file=st.sampled_from(["gpu_id", "properties", "mem_banks/0/properties"]),
)
def test_sysfs(tmp_path: Path, content: bytes, file: str) -> None:
    """One node's files hide no other node."""
    make_tree(tmp_path, [MadeGpu(), MadeGpu()])
    (tmp_path / "sys/class/kfd/kfd/topology/nodes/1" / file).write_bytes(content)
    found = discover(tmp_path / "sys", tmp_path / "dev")
    assert 2 in [gpu.kfd_node for gpu in found.gpus]
