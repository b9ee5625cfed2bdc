import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plugin.discovery import Snapshot, discover
from plugin.ledger import Entry, Ledger
from plugin.podfolders import pod_folder
from protocol.pods import PodRef, read_holding
from protocol.survivors import Part
from tests.plugin.made_pods import bound_pod, container
from tests.trees import MadeGpu, make_tree

GPU = "GPU-8e1bb56457addd1b"
POD = PodRef("ml", "train", "uid-train")
ENTRY = Entry(POD, {GPU: Part(16384, tuple(range(76)))}, {"main": frozenset({"x-3"})})


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path)


def file_of(tmp_path: Path, uid: str = POD.uid) -> Path:
    return pod_folder(tmp_path, uid) / "held.json"


def test_what_is_recorded_is_read(ledger: Ledger) -> None:
    other = Entry(PodRef("ml", "train", "uid-other"), {GPU: Part(1, (80, 81))}, {})
    ledger.record(ENTRY)
    ledger.record(other)
    assert ledger.read().entries == {"uid-train": ENTRY, "uid-other": other}
    assert not ledger.read().faulty
    ledger.forget("uid-train")
    assert set(ledger.read().entries) == {"uid-other"}


def test_containers_that_were_served_before_stay(ledger: Ledger) -> None:
    ledger.record(ENTRY)
    ledger.record(Entry(POD, ENTRY.parts, {"second": frozenset({"x-4"})}))
    assert ledger.read().entries[POD.uid].kubelet_ids == {"main": {"x-3"}, "second": {"x-4"}}


def test_what_another_writes_is_read_although_entries_are_remembered(ledger: Ledger, tmp_path: Path) -> None:
    ledger.record(ENTRY)
    assert ledger.read().entries == {POD.uid: ENTRY}
    other = Ledger(tmp_path)
    for mib in range(1, 50):
        other.record(replace(ENTRY, parts={GPU: Part(mib, (0,))}))
        assert ledger.read().entries[POD.uid].parts == {GPU: Part(mib, (0,))}
    file_of(tmp_path).write_text("damaged")
    assert set(ledger.read().faulty) == {POD.uid}
    other.record(ENTRY)
    assert ledger.read().entries == {POD.uid: ENTRY}
    other.forget(POD.uid)
    assert not ledger.read().entries


def test_an_entry_that_did_not_change_is_not_read_again(ledger: Ledger) -> None:
    ledger.record(ENTRY)
    first = ledger.read().entries[POD.uid]
    assert ledger.read().entries[POD.uid] is first


def test_a_pod_holds_its_peak_on_every_gpu(tmp_path: Path) -> None:
    """Init containers run before the others: the pod holds the more of the two."""
    make_tree(tmp_path, [MadeGpu()])
    snapshot: Snapshot = discover(tmp_path / "sys", tmp_path / "dev")
    init = [container("prepare", mem=4096, cores=50)]
    pod = bound_pod(
        "one", [container("a", mem=1000, cores=10), container("b", mem=2000, cores=10)], snapshot, init=init
    )
    holding = read_holding(pod)
    assert holding is not None
    part = Entry.of(PodRef.of(pod), holding).parts[GPU]
    assert (part.memory_mib, len(part.cus)) == (4096, 152)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "Expecting value"),
        (b"\x00\xff" * 100, "utf-32|utf-16|codec can't decode|Expecting value"),
        (b"[]", "must be a JSON object"),
        (b"[" * 100000, "recursion|Expecting value"),
        (b'{"namespace": "ml"}', "must have namespace, name and uid"),
        (b'{"namespace":"ml","name":"a","uid":"uid-train"}', "gpus: 'None': must be an object"),
        (b'{"namespace":"ml","name":"a","uid":"uid-train","gpus":{"G":{"mem":-1,"cus":"0"}}}', r"gpus\['G'\]"),
        (b'{"namespace":"ml","name":"a","uid":"uid-train","gpus":{"G":{"mem":1,"cus":"3-1"}}}', r"gpus\['G'\].*'3-1'"),
        (b'{"namespace":"ml","name":"a","uid":"uid-train","gpus":{},"kubeletIds":3}', "kubeletIds"),
        (b'{"namespace":"ml","name":"a","uid":"another","gpus":{},"kubeletIds":{}}', "must be the folder's name"),
    ],
)
def test_a_damaged_entry_is_named_and_harms_no_other(
    ledger: Ledger, tmp_path: Path, content: bytes, message: str
) -> None:
    other = Entry(PodRef("ml", "b", "uid-b"), {}, {})
    ledger.record(ENTRY)
    ledger.record(other)
    file_of(tmp_path).write_bytes(content)
    books = ledger.read()
    assert books.entries == {"uid-b": other}
    assert list(books.faulty) == [POD.uid]
    assert str(file_of(tmp_path)) in books.faulty[POD.uid]
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(books.faulty[POD.uid])
    ledger.record(ENTRY)
    assert ledger.read().entries == {"uid-b": other, POD.uid: ENTRY}


def test_an_entry_without_file_is_faulty(ledger: Ledger, tmp_path: Path) -> None:
    pod_folder(tmp_path, "uid-x").mkdir(parents=True)
    assert "No such file" in ledger.read().faulty["uid-x"]


def test_only_root_reads_it(ledger: Ledger, tmp_path: Path) -> None:
    ledger.record(ENTRY)
    assert file_of(tmp_path).stat().st_mode & 0o777 == 0o600


WRITER = """
import sys
from pathlib import Path
from plugin.ledger import Entry, Ledger
from protocol.pods import PodRef
from protocol.survivors import Part
ledger = Ledger(Path(sys.argv[1]))
print("ready", flush=True)
number = 0
while True:
    number += 1
    parts = {"GPU-%d" % gpu: Part(number, tuple(range(number % 300 + 1))) for gpu in range(40)}
    ledger.record(Entry(PodRef("ml", "train", "uid-train"), parts, {}))
    print(number, flush=True)
"""


def test_a_writer_that_is_killed_leaves_the_last_entry_or_the_one_before(ledger: Ledger, tmp_path: Path) -> None:
    """SIGKILL at any moment of a write, many times: never half an entry, never none."""
    for written in range(1, 26):
        command = [sys.executable, "-c", WRITER, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
            assert process.stdout is not None
            told = [int(line) for line in _lines(process, written)]
            process.send_signal(signal.SIGKILL)
            told += [int(line) for line in process.stdout.read().split("\n")[:-1] if line.isdigit()]
        assert process.returncode == -signal.SIGKILL
        books = ledger.read()
        assert not books.faulty
        parts = books.entries[POD.uid].parts
        (memory,) = {part.memory_mib for part in parts.values()}
        assert len(parts) == 40
        assert memory in {told[-1], told[-1] + 1}
        assert {part.cus for part in parts.values()} == {tuple(range(memory % 300 + 1))}
    ledger.forget(POD.uid)
    assert not pod_folder(tmp_path, POD.uid).exists(), "not even what the killed writers left"


def _lines(process: "subprocess.Popen[str]", count: int) -> list[str]:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return [process.stdout.readline() for _ in range(count)]


def test_the_file_is_for_people_too(ledger: Ledger, tmp_path: Path) -> None:
    ledger.record(ENTRY)
    body: dict[str, Any] = json.loads(file_of(tmp_path).read_text())
    assert body == {
        "namespace": "ml",
        "name": "train",
        "uid": "uid-train",
        "gpus": {GPU: {"mem": 16384, "cus": "0-75"}},
        "kubeletIds": {"main": ["x-3"]},
    }
