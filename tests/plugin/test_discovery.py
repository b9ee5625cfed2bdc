from pathlib import Path

import pytest

from plugin.ailment import Ailment, Cause
from plugin.discovery import Gpu, Offer, Snapshot, discover
from protocol.devices import decode_register, encode_register
from tests.trees import MACHINES, MadeGpu, make_tree, partitions
from tests.trees.changes import report_errors, take_device_node

USUAL = Offer()
NODES = "sys/class/kfd/kfd/topology/nodes"


def look(root: Path, *gpus: MadeGpu, offer: Offer = USUAL) -> Snapshot:
    make_tree(root, gpus)
    return look_again(root, offer)


def look_again(root: Path, offer: Offer = USUAL) -> Snapshot:
    return discover(root / "sys", root / "dev", offer)


def only(snapshot: Snapshot) -> Gpu:
    (gpu,) = snapshot.gpus
    return gpu


def edit(root: Path, node: int, old: str, new: str) -> None:
    path = root / NODES / str(node) / "properties"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_mi300x_vf_has_all_its_numbers(tmp_path: Path) -> None:
    gpu = only(look(tmp_path, MadeGpu(), offer=Offer(count=7)))
    info = gpu.info
    assert (info.cu_count, info.xcc_count, info.memory_mib) == (304, 8, 196608)
    assert info.product == "AMD Instinct MI300X VF"
    assert (info.id, info.rocr_id, gpu.rocr_id) == ("GPU-8e1bb56457addd1b",) * 3
    assert (info.pci_address, info.partition, info.numa, info.count) == ("0000:05:00.0", "SPX", 0, 7)
    assert (info.wgp, info.divisible, info.healthy, info.index) == (False, True, True, 0)
    assert (gpu.kfd_node, gpu.render_device) == (1, tmp_path / "dev/dri/renderD128")


def test_several_gpus_stand_in_kfd_order_beyond_nine(tmp_path: Path) -> None:
    snapshot = look(tmp_path, *[MadeGpu()] * 11)
    assert [gpu.kfd_node for gpu in snapshot.gpus] == list(range(1, 12))
    assert [gpu.info.index for gpu in snapshot.gpus] == list(range(11))
    assert len({gpu.id for gpu in snapshot.gpus}) == 11
    assert snapshot.left_out == ()


@pytest.mark.parametrize(
    ("key", "cus", "xccs", "wgp", "memory", "product"),
    [
        ("MI300X", 304, 8, False, 196592, "AMD Instinct MI300X OAM"),
        ("MI350X VF", 256, 8, False, 294592, "AMD Instinct MI350X VF"),
        ("MI210", 104, 1, False, 65520, "AMD Instinct MI210"),
        ("RX 7900 XTX", 96, 1, True, 24560, "AMD Radeon RX 7900 XTX"),
        ("R9700", 64, 1, True, 32624, "AMD Radeon AI PRO R9700"),
        ("Vega 20", 60, 1, False, 32752, "AMD Instinct MI60 / MI50"),
        ("gfx1250", 256, 0, True, 131072, "AMD GPU 0x75f0"),
    ],
)
def test_products(tmp_path: Path, key: str, cus: int, xccs: int, wgp: bool, memory: int, product: str) -> None:
    info = only(look(tmp_path, MadeGpu(key))).info
    assert (info.cu_count, info.xcc_count, info.wgp, info.memory_mib) == (cus, xccs, wgp, memory)
    assert info.product == product
    assert info.divisible is (xccs > 0)


@pytest.mark.parametrize(
    ("machine", "gpus"),
    [
        ("mi300x-spx", ["GPU-3cbe002bd3b6313d AMD Instinct MI300X OAM 304 8 196592"]),
        ("mi300x-vf", ["GPU-8e1bb56457addd1b AMD Instinct MI300X VF 304 8 196608"]),
        ("mi300x-cpx-nps4", [f"PCI-0000-05-00.{part}-CPX AMD Instinct MI300X 38 1 24574" for part in range(8)]),
        ("mi210-x8", [f"GPU-8e1bb56457addd{last:02x} AMD Instinct MI210 104 1 65520" for last in range(0x1B, 0x23)]),
        ("mi355x", ["GPU-8e1bb56457addd1b AMD Instinct MI355X 256 8 294896"]),
        ("rx-7900-xtx", ["GPU-a1ffc9d1799c317f AMD Radeon RX 7900 XTX 96 1 24560"]),
        (
            "w7900-x2-apu",
            [
                "PCI-0000-05-00.0 AMD Radeon PRO W7900 96 1 49136",
                "GPU-8e1bb56457addd1c AMD Radeon PRO W7900 96 1 49136",
            ],
        ),
        (
            "mixed",
            [
                "GPU-8e1bb56457addd1b AMD Instinct MI300X OAM 304 8 196592",
                "GPU-8e1bb56457addd1c AMD Instinct MI210 104 1 65520",
                "GPU-8e1bb56457addd1d AMD Radeon RX 7900 XTX 96 1 24560",
            ],
        ),
    ],
)
def test_the_named_machines(tmp_path: Path, machine: str, gpus: list[str]) -> None:
    found = look(tmp_path, *MACHINES[machine])
    assert [
        f"{info.id} {info.product} {info.cu_count} {info.xcc_count} {info.memory_mib}" for info in found.devices
    ] == gpus
    assert all(info.healthy and info.divisible for info in found.devices)


def test_every_named_machine_is_known() -> None:
    assert set(MACHINES) == {
        "mi300x-spx", "mi300x-vf", "mi300x-cpx-nps4", "mi210-x8", "mi355x", "rx-7900-xtx", "w7900-x2-apu", "mixed",
    }  # fmt: skip


def test_an_integrated_gpu_is_left_out_unless_it_is_asked_for(tmp_path: Path) -> None:
    found = look(tmp_path, *MACHINES["w7900-x2-apu"])
    assert found.left_out == ("KFD node 3: is an integrated GPU, which only the option --integrated offers",)
    offered = look_again(tmp_path, Offer(integrated=True))
    assert offered.left_out == ()
    info = offered.gpus[2].info
    assert (info.id, info.product, info.cu_count, info.memory_mib) == (
        "PCI-0000-25-00.0",
        "AMD Radeon Graphics",
        2,
        512,
    )
    assert [gpu.id for gpu in offered.gpus[:2]] == [gpu.id for gpu in found.gpus]


def test_a_processor_whose_one_node_has_cores_and_a_gpu_is_integrated(tmp_path: Path) -> None:
    make_tree(tmp_path, [MadeGpu("Vega 20")])
    edit(tmp_path, 1, "cpu_cores_count 0", "cpu_cores_count 8")
    assert "is an integrated GPU" in look_again(tmp_path).left_out[0]


def test_mi300a_is_no_integrated_gpu(tmp_path: Path) -> None:
    """It is a processor, but one that is bought to be computed on."""
    make_tree(tmp_path, [MadeGpu("MI300X")])
    edit(tmp_path, 1, "simd_count 1216", "simd_count 912")
    edit(tmp_path, 1, "num_xcc 8", "num_xcc 6")
    assert only(look_again(tmp_path)).info.divisible


def test_the_count_is_the_types(tmp_path: Path) -> None:
    offer = Offer(count=5, count_by_type={"MI210": 7, "rx 7900 xtx": 2})
    assert [gpu.info.count for gpu in look(tmp_path, *MACHINES["mixed"], offer=offer).gpus] == [5, 7, 2]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("num_xcc 8\n", ""),  # not said, and this family may have any number
        ("num_xcc 8\n", "num_xcc 0\n"),
        ("num_xcc 8\n", "num_xcc 7\n"),  # 304 CUs do not go round 7 XCCs evenly
        ("gfx_target_version 90402", "gfx_target_version 130000"),
        ("gfx_target_version 90402", "gfx_target_version 80300"),
        ("gfx_target_version 90402\n", ""),
    ],
)
def test_a_gpu_whose_mask_layout_is_unknown_is_given_whole(tmp_path: Path, old: str, new: str) -> None:
    make_tree(tmp_path, [MadeGpu()])
    edit(tmp_path, 1, old, new)
    info = only(look_again(tmp_path)).info
    assert (info.xcc_count, info.divisible, info.cu_count) == (0, False, 304)


def test_c17_partitions_with_one_unique_id_are_told_apart_by_pci_address(tmp_path: Path) -> None:
    snapshot = look(tmp_path, *partitions("MI300X CPX", 8, unique_id=16404946649897475633))
    assert [gpu.id for gpu in snapshot.gpus] == [f"PCI-0000-05-00.{part}-CPX" for part in range(8)]
    assert [gpu.rocr_id for gpu in snapshot.gpus] == [None] * 8
    assert {gpu.info.rocr_id for gpu in snapshot.gpus} == {""}
    # The attributes stand at the whole GPU only.
    assert {(gpu.info.partition, gpu.info.product) for gpu in snapshot.gpus} == {("CPX", "AMD Instinct MI300X")}
    assert {(gpu.info.cu_count, gpu.info.xcc_count) for gpu in snapshot.gpus} == {(38, 1)}


def test_c17_partitions_with_unique_ids_of_their_own_keep_them(tmp_path: Path) -> None:
    own = [MadeGpu("MI300X CPX", unique_id=7 + part, location_id=0x0500 + part) for part in range(2)]
    assert [gpu.id for gpu in look(tmp_path, *own).gpus] == ["GPU-0000000000000007", "GPU-0000000000000008"]


def test_c18_no_unique_id(tmp_path: Path) -> None:
    snapshot = look(tmp_path, MadeGpu(unique_id=0), MadeGpu(unique_id=0), MadeGpu(unique_id=5))
    assert [gpu.id for gpu in snapshot.gpus] == ["PCI-0000-05-00.0", "PCI-0000-15-00.0", "GPU-0000000000000005"]


def test_ids_survive_another_order(tmp_path: Path) -> None:
    gpus = [
        MadeGpu("MI300X", unique_id=7, location_id=0x0500, render_minor=128),
        MadeGpu("Radeon PRO W7900", unique_id=0, location_id=0x8300, render_minor=129),
        *partitions("MI300X CPX", 2, unique_id=9, first_minor=130, location_id=0xA500),
    ]
    by_minor = [{gpu.render_device.name: gpu.id for gpu in look(tmp_path, *order).gpus} for order in (gpus, gpus[::-1])]
    assert by_minor[0] == by_minor[1]
    assert sorted(by_minor[0].values()) == [
        "GPU-0000000000000007",
        "PCI-0000-83-00.0",
        "PCI-0000-a5-00.0-CPX",
        "PCI-0000-a5-00.1-CPX",
    ]


def test_a_whole_gpu_and_its_first_partition_are_two_devices(tmp_path: Path) -> None:
    """Both have the one PCI address, and their CUs are others."""
    whole = only(look(tmp_path, MadeGpu("MI300X", unique_id=0)))
    first = look(tmp_path, *partitions("MI300X CPX", 8, unique_id=0)).gpus[0]
    assert whole.info.pci_address == first.info.pci_address
    assert (whole.id, first.id) == ("PCI-0000-05-00.0", "PCI-0000-05-00.0-CPX")


@pytest.mark.parametrize("said", ["SPX", "", "cpx; rm", "CPX,CPX", "\x00"])
def test_only_a_partition_mode_is_added_to_an_id(tmp_path: Path, said: str) -> None:
    make_tree(tmp_path, [MadeGpu("MI300X", unique_id=0)])
    (tmp_path / "sys/bus/pci/devices/0000:05:00.0/current_compute_partition").write_text(said)
    assert only(look_again(tmp_path)).id == "PCI-0000-05-00.0"


def test_c18_gpus_that_cannot_be_told_apart_are_left_out(tmp_path: Path) -> None:
    twin = MadeGpu(unique_id=0, location_id=0x8300)
    snapshot = look(tmp_path, twin, twin, MadeGpu())
    assert [gpu.kfd_node for gpu in snapshot.gpus] == [3]
    assert snapshot.left_out == (
        "KFD node 1: has the id PCI-0000-83-00.0 of another",
        "KFD node 2: has the id PCI-0000-83-00.0 of another",
    )


def test_unique_id_is_unsigned(tmp_path: Path) -> None:
    gpu = only(look(tmp_path, MadeGpu(unique_id=2**64 - 1)))
    assert gpu.id == "GPU-ffffffffffffffff"


def test_leading_zeros_stay(tmp_path: Path) -> None:
    assert only(look(tmp_path, MadeGpu(unique_id=54324593208393710))).id == "GPU-00c0ffee00c0ffee"


def test_pci_domain_device_and_function(tmp_path: Path) -> None:
    gpu = only(look(tmp_path, MadeGpu(unique_id=0, domain=0x10000, location_id=0xFE00 | 0x1F << 3 | 7)))
    assert gpu.info.pci_address == "10000:fe:1f.7"
    assert gpu.id == "PCI-10000-fe-1f.7"


def test_separators_in_a_product_name_are_replaced(tmp_path: Path) -> None:
    make_tree(tmp_path, [MadeGpu()])
    (tmp_path / "sys/bus/pci/devices/0000:05:00.0/product_name").write_text("AMD: Instinct, MI300X; VF\n")
    assert only(look_again(tmp_path)).info.product == "AMD Instinct MI300X VF"


def test_unknown_revision_of_a_product_line(tmp_path: Path) -> None:
    make_tree(tmp_path, [MadeGpu("RX 7900 XTX")])
    (tmp_path / "sys/bus/pci/devices/0000:05:00.0/revision").write_text("nonsense\n")
    assert only(look_again(tmp_path)).info.product == "AMD Radeon RX 7900"


@pytest.mark.parametrize(("text", "numa"), [("1\n", 1), ("-1\n", -1), ("", -1), ("99999999999\n", -1)])
def test_numa_node(tmp_path: Path, text: str, numa: int) -> None:
    make_tree(tmp_path, [MadeGpu()])
    (tmp_path / "sys/bus/pci/devices/0000:05:00.0/numa_node").write_text(text)
    assert only(look_again(tmp_path)).info.numa == numa


def test_memory_is_the_sum_of_video_memory_banks(tmp_path: Path) -> None:
    make_tree(tmp_path, [MadeGpu(memory_mib=100)])
    for number, (heap, size) in enumerate([(2, 50 * 1024**2 + 5), (0, 2**40), (4, 2**30)], start=1):
        bank = tmp_path / NODES / f"1/mem_banks/{number}"
        bank.mkdir()
        (bank / "properties").write_text(f"heap_type {heap}\nsize_in_bytes {size}\n")
    assert only(look_again(tmp_path)).info.memory_mib == 150


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("simd_count 1216", "simd_count 0", "has 0 compute units"),
        ("simd_per_cu 4", "simd_per_cu 0", "has 0 compute units"),
        ("simd_count 1216", "simd_count 8192", "has 2048 compute units"),
        ("simd_count 1216", "simd_count -4", "has 0 compute units"),
        ("drm_render_minor 128", "drm_render_minor 0", "has no render node"),
    ],
)
def test_odd_nodes_are_left_out_and_hide_nobody(tmp_path: Path, old: str, new: str, reason: str) -> None:
    make_tree(tmp_path, [MadeGpu(), MadeGpu()])
    edit(tmp_path, 1, old, new)
    snapshot = look_again(tmp_path)
    assert [gpu.kfd_node for gpu in snapshot.gpus] == [2]
    assert snapshot.left_out == (f"KFD node 1: {reason}",)


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("gpu_id", b"XX\n", "gpu_id 'XX' is no number"),
        ("gpu_id", b"\xff\xfe", "can't decode"),
        ("properties", b"", "has 0 compute units"),
        ("properties", b"\x80garbage", "can't decode"),
        ("mem_banks/0/properties", b"heap_type 1\n", "has no video memory"),
    ],
)
def test_broken_files_are_left_out_and_hide_nobody(tmp_path: Path, file: str, content: bytes, reason: str) -> None:
    make_tree(tmp_path, [MadeGpu(), MadeGpu()])
    (tmp_path / NODES / "1" / file).write_bytes(content)
    snapshot = look_again(tmp_path)
    assert [gpu.kfd_node for gpu in snapshot.gpus] == [2]
    (left_out,) = snapshot.left_out
    assert left_out.startswith("KFD node 1: ")
    assert reason in left_out


@pytest.mark.parametrize("file", ["gpu_id", "properties"])
def test_missing_files_are_left_out_and_hide_nobody(tmp_path: Path, file: str) -> None:
    make_tree(tmp_path, [MadeGpu(), MadeGpu()])
    (tmp_path / NODES / "1" / file).unlink()
    snapshot = look_again(tmp_path)
    assert [gpu.kfd_node for gpu in snapshot.gpus] == [2]
    assert "No such file" in snapshot.left_out[0]


def test_a_left_out_node_still_makes_a_unique_id_ambiguous(tmp_path: Path) -> None:
    snapshot = look(tmp_path, MadeGpu(unique_id=9, render_minor=0), MadeGpu(unique_id=9))
    assert [gpu.rocr_id for gpu in snapshot.gpus] == [None]


def test_without_the_driver_there_is_nothing_and_a_reason(tmp_path: Path) -> None:
    snapshot = look_again(tmp_path)
    assert snapshot.gpus == ()
    assert "is the amdgpu driver loaded?" in snapshot.left_out[0]


@pytest.mark.parametrize("missing", ["dri/renderD128", "kfd"])
def test_a_gpu_without_its_device_nodes_is_unhealthy(tmp_path: Path, missing: str) -> None:
    make_tree(tmp_path, [MadeGpu()])
    take_device_node(tmp_path, missing)
    gpu = only(look_again(tmp_path))
    assert gpu.ailment == Ailment(Cause.NODE_MISSING, f"{tmp_path}/dev/{missing} missing")
    assert not gpu.info.healthy


@pytest.mark.parametrize("block", ["umc", "xgmi_wafl"])
def test_a_gpu_with_uncorrectable_errors_is_unhealthy(tmp_path: Path, block: str) -> None:
    make_tree(tmp_path, [MadeGpu("MI210", uncorrectable={"umc": 0}), MadeGpu("MI210", uncorrectable={"umc": 0})])
    report_errors(tmp_path, "0000:15:00.0", block, 2)
    well, ill = look_again(tmp_path).gpus
    assert well.ailment is None
    assert ill.ailment == Ailment(Cause.ERRORS, f"uncorrectable errors since the driver was loaded: {block} 2")
    assert not ill.info.healthy
    assert look_again(tmp_path, Offer(errors_tolerated=2)).gpus[1].info.healthy
    assert not look_again(tmp_path, Offer(errors_tolerated=1)).gpus[1].info.healthy


def test_an_error_of_the_chip_is_one_of_all_its_partitions(tmp_path: Path) -> None:
    make_tree(tmp_path, partitions("MI300X CPX", 8, unique_id=7))
    report_errors(tmp_path, "0000:05:00.0", "umc", 1)
    assert {gpu.info.healthy for gpu in look_again(tmp_path).gpus} == {False}


@pytest.mark.parametrize(
    "text", [b"Query currently inaccessible\n", b"", b"ue: x\n", b"\xff", b"ue: 0\nce: 7\nde: 9\n"]
)
def test_c13_error_counts_that_are_not_said_are_no_errors(tmp_path: Path, text: bytes) -> None:
    """So it is while a GPU is reset; ROCm/k8s-device-plugin#195 is a plugin that took missing data for a fault."""
    make_tree(tmp_path, [MadeGpu("MI210", uncorrectable={"umc": 0})])
    (tmp_path / "sys/bus/pci/devices/0000:05:00.0/ras/umc_err_count").write_bytes(text)
    assert only(look_again(tmp_path)).info.healthy


def test_the_register_annotation_can_be_read_back(tmp_path: Path) -> None:
    snapshot = look(tmp_path, MadeGpu(), MadeGpu("RX 7900 XTX", unique_id=0), MadeGpu("gfx1250"))
    assert decode_register(encode_register(snapshot.devices)) == snapshot.devices


def test_a_folder_with_something_else_in_it_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    with pytest.raises(FileExistsError):
        make_tree(tmp_path, [])
