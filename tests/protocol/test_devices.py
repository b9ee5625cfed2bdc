"""Device registration and the arithmetic of shares."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.devices import DeviceInfo, RegisterError, clean_product, decode_register, encode_register
from tests.protocol.makers import MI210, MI300A, MI300X, RX7900, UNKNOWN

WORDS = st.text(st.characters(exclude_characters=",:;", exclude_categories=["Z", "C"]), min_size=1, max_size=20)
DEVICES = st.builds(
    DeviceInfo,
    id=WORDS,
    index=st.integers(0, 64),
    count=st.integers(0, 100),
    memory_mib=st.integers(0, 2**31 - 1),
    cu_count=st.integers(0, 1024),
    product=WORDS,
    numa=st.integers(-1, 8),
    healthy=st.booleans(),
    xcc_count=st.integers(0, 8),
    wgp=st.booleans(),
    pci_address=st.text(max_size=12),
    rocr_id=st.text(max_size=20),
    partition=st.sampled_from(["", "SPX", "CPX"]),
)


@given(st.lists(DEVICES, max_size=8, unique_by=lambda device: device.id))
def test_decode_of_encode_is_the_same(devices: list[DeviceInfo]) -> None:
    assert list(decode_register(encode_register(devices))) == devices


def test_the_written_json_is_hamis() -> None:
    (entry,) = json.loads(encode_register([MI300X]))
    custom = entry.pop("custominfo")
    assert entry == {
        "id": "GPU-8e1bb56457addd1b", "index": 0, "count": 10, "devmem": 196608, "devcore": 304,
        "type": "AMD Instinct MI300X VF", "numa": 0, "mode": "hami-core", "health": True, "devicevendor": "AMD",
    }  # fmt: skip
    assert custom == {
        "pciBDF": "0000:83:00.0", "rocrId": "GPU-8e1bb56457addd1b", "numXcc": 8, "wgp": False, "partition": "SPX",
    }  # fmt: skip


def test_what_hamis_plugin_writes_is_read() -> None:
    text = (
        '[{"id":"8eff74b5-0000-1000-801b-b56457addd1b","count":10,"devmem":196288,"devcore":304,'
        '"type":"AMD Instinct MI300X VF","health":true,"devicevendor":"amd","custominfo":{"pciBDF":"0000:83:00.0"}}]'
    )
    (device,) = decode_register(text)
    assert (device.index, device.healthy, device.cu_count, device.memory_mib) == (0, True, 304, 196288)
    assert not device.divisible, "HAMi does not say how many XCCs there are"


@pytest.mark.parametrize(
    "text",
    ["", "Deleted_2026-01-01 00:00:00", "{}", "[1]", '[{"id":""}]', '[{"id":"a,b"}]', '[{"id":"a","devmem":"1"}]',
     '[{"id":"a","devcore":-1}]', '[{"id":"a","devcore":1025}]', '[{"id":"a","health":1}]', '[{"id":"a","index":true}]',
     '[{"id":"a"},{"id":"a"}]', '[{"id":"a","custominfo":[1]}]', '[{"id":7}]', "[" * 100_000,
     r'[{"id":"\ud800"}]', r'[{"id":"a\u0000"}]'],
)  # fmt: skip
def test_an_unreadable_registration_is_refused(text: str) -> None:
    with pytest.raises(RegisterError):
        decode_register(text)


@pytest.mark.parametrize(
    ("device", "percent", "cus"),
    [
        (MI300X, 25, 76),
        (MI300X, 12, 36),
        (MI300X, 33, 100),
        (MI300X, 67, 203),
        (MI300X, 76, 231),
        (MI300X, 100, 304),
        (MI300X, None, 304),
        (MI300X, 3, 9),
        (MI300X, 2, 8),
        (MI300X, 1, 8),
        (MI300A, 1, 6),
        (MI210, 1, 1),
        (RX7900, 1, 2),
        (RX7900, 25, 24),
        (RX7900, 26, 24),
        (UNKNOWN, 10, 40),
    ],
)
def test_a_percentage_in_cus(device: DeviceInfo, percent: int | None, cus: int) -> None:
    assert device.cus_for(percent) == cus


@given(DEVICES, st.integers(1, 100))
def test_a_share_is_always_valid(device: DeviceInfo, percent: int) -> None:
    share = device.cus_for(percent)
    assert share <= device.cu_count
    if device.divisible:
        assert share >= device.least_cus
        assert not (device.wgp and share % 2)


def test_hardware_that_nobody_knows_is_not_divided() -> None:
    assert not UNKNOWN.divisible
    assert not replace(RX7900, xcc_count=8).divisible
    assert not replace(RX7900, cu_count=95).divisible
    assert MI300X.divisible


def test_separators_leave_product_names() -> None:
    assert clean_product("AMD Instinct; MI300X:VF,") == "AMD Instinct MI300X VF"
    assert clean_product(",;:") == "AMD GPU"


def test_what_cannot_be_shown_leaves_product_names() -> None:
    (device,) = decode_register(r'[{"id":"a","type":"\ud800MI300X\u0000\u202eVF\n"}]')
    assert device.product == "MI300X VF"
