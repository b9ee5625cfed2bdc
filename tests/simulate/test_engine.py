"""Simulations: who goes where and when, who does not, and the figures."""

import json
import random
from collections import defaultdict
from pathlib import Path

import pytest

from cli.main import main
from protocol.allocation import decode_cus
from protocol.names import CU_ALLOCATED, DEVICES_ALLOCATED
from protocol.policy import Policy
from scheduler.request import Policies
from simulate.engine import Result, Simulation
from simulate.load import Arrival, read_pods
from simulate.nodes import read_nodes
from simulate.report import as_text, figures, fits_nowhere

BINPACK = Policies()
SPREAD = Policies(Policy.SPREAD, Policy.SPREAD)
HEAD = "name,arrival,duration,gpu,gpumem,gpucores\n"


def simulated(nodes: str, trace: str, policies: Policies = BINPACK) -> Result:
    return Simulation(read_nodes(nodes), policies).run(read_pods(HEAD + trace, is_trace=True))


def test_binpack_fills_and_spread_scatters() -> None:
    trace = "a,0,,1,1024,25\nb,0,,1,1024,25\nc,0,,1,1024,25\n"
    packed = simulated("2 nodes: 2 x MI300X", trace)
    assert [one.node for one in packed.placed] == ["node-1"] * 3
    assert len({key for one in packed.placed for key in decode_cus(one.annotations[CU_ALLOCATED])}) == 1
    spread = simulated("2 nodes: 2 x MI300X", trace, SPREAD)
    assert [one.node for one in spread.placed] == ["node-1", "node-2", "node-1"]
    first, _, third = (set(decode_cus(one.annotations[CU_ALLOCATED])) for one in spread.placed)
    assert first != third, "on the other GPU of the node"


def test_a_pod_waits_until_another_ends() -> None:
    result = simulated("1 x MI210", "a,0,100,1,,60\nb,10,50,1,1,60\nc,20,10,1,1,40\n")
    when = {one.pod: (one.at, one.waited) for one in result.placed}
    # `a` takes all of the memory, so nobody comes beside it.
    assert when == {"default/a": (0, 0), "default/b": (100, 90), "default/c": (100, 80)}
    assert result.refused == []


def test_those_that_wait_go_in_their_order() -> None:
    result = simulated("1 x MI210", "a,0,10,1,1,100\nb,1,10,1,1,100\nc,2,10,1,1,100\n")
    assert [one.pod for one in result.placed] == ["default/a", "default/b", "default/c"]
    assert [one.at for one in result.placed] == [0, 10, 20]


def test_refusals_have_reasons() -> None:
    result = simulated("2 x MI210", "a,0,,1,70000,10\nb,0,,1,1024,150\nc,0,,3,1,1\nd,0,,,,\n")
    by_pod = {one.pod: one for one in result.refused}
    assert by_pod["default/a"].reasons == {"GPU memory: 65520 MiB in all, 70000 asked": 1}
    assert fits_nowhere(by_pod["default/a"]) == "0/1 nodes are available: 1 GPU memory: 65520 MiB in all, 70000 asked."
    assert "amd.com/gpucores" in by_pod["default/b"].message
    assert '"150"' in by_pod["default/b"].message
    assert by_pod["default/c"].reasons == {"GPUs: 2 on the node, 3 asked": 1}
    assert result.without_gpus == 1


def test_figures_are_averages_over_time() -> None:
    # Half of the CUs for 10 of 20 seconds, all of them for the others.
    result = simulated("1 x MI210", "a,0,20,1,32760,50\nb,10,10,1,32760,50\n")
    found = figures(result)
    assert found["cuUtilisation"] == pytest.approx(0.75)
    assert found["cuUtilisationPeak"] == 1
    assert found["memoryUtilisation"] == pytest.approx(0.75)
    assert found["fragmentation"] == pytest.approx(1), "all that is free is on a shared GPU"
    assert found["wholeGpusFree"] == 0


def test_without_time_the_figures_are_of_the_end() -> None:
    found = figures(simulated("2 x MI210", "a,0,,1,1024,50\n"))
    assert found["cuUtilisation"] == pytest.approx(0.25)
    assert found["wholeGpusFree"] == 0.5
    assert found["fragmentation"] == pytest.approx(52 / 156)


def test_imbalance_is_the_work_that_the_poorest_xcc_holds_up() -> None:
    even, uneven = simulated("1 x MI300X", "a,0,,1,1,25\n"), simulated("1 x MI300X", "a,0,,1,1,12\n")
    # 76 CUs are 9 or 10 on each of 8 XCCs, 36 are 4 or 5.
    assert even.imbalances == [pytest.approx(1 - 72 / 76)]
    assert uneven.imbalances == [pytest.approx(1 - 32 / 36)]
    assert simulated("1 x MI210", "a,0,,1,1,12\n").imbalances == []


def test_the_kubelets_slots_are_counted_and_given_back() -> None:
    # Ten slots on one GPU; six pods of two containers each want twelve.
    container = {"resources": {"limits": {"amd.com/gpu": "1", "amd.com/gpumem": "100", "amd.com/gpucores": "1"}}}
    spec = {"containers": [{"name": "a", **container}, {"name": "b", **container}]}
    pods = [
        Arrival({"metadata": {"name": f"p{n}", "namespace": "x", "uid": f"u{n}"}, "spec": spec}, 0.0, duration)
        for n, duration in enumerate([50.0, None, None, None, None, None, None])
    ]
    result = Simulation(read_nodes("1 x MI210"), BINPACK).run(pods)
    assert [(one.pod, one.at) for one in result.placed] == [*((f"x/p{n}", 0) for n in range(5)), ("x/p5", 50)]
    (refused,) = result.refused
    assert refused.reasons == {"Insufficient amd.com/gpu": 1}


def made_trace(pods: int) -> str:
    seed, at, lines = random.Random(1), 0.0, []  # noqa: S311 - to be repeated
    shapes = [
        (1, 16384, 12),
        (1, 24576, 12),
        (1, 49152, 25),
        (1, 49152, 33),
        (1, 98304, 50),
        (1, "", ""),
        (2, 65536, 50),
    ]
    for number in range(pods):
        at += seed.expovariate(1 / 6)
        gpus, memory, cores = seed.choice(shapes)
        lines.append(f"pod-{number},{at:.1f},{seed.expovariate(1 / 600):.1f},{gpus},{memory},{cores}\n")
    return "".join(lines)


@pytest.mark.parametrize("policies", [BINPACK, SPREAD], ids=["binpack", "spread"])
def test_a_trace_of_ten_thousand_pods(policies: Policies) -> None:
    trace = made_trace(10_000)
    result = simulated("20 nodes: 4 x MI300X SPX", trace, policies)
    assert len(result.placed) == 10_000
    assert not result.refused
    durations = {
        f"default/{name}": float(life) for name, _, life, *_ in (line.split(",") for line in trace.splitlines())
    }
    assert_exclusive(result, durations)
    found = figures(result)
    assert 0.3 < found["cuUtilisation"] < 1
    assert all(
        0 <= value <= 1 for key, value in found.items() if "tilisation" in key or "ragment" in key or "xcc" in key
    )


def assert_exclusive(result: Result, durations: dict[str, float]) -> None:
    """Fail if any CU is held twice, or memory is over-committed, at any moment."""
    changes: list[tuple[float, int, str, str, frozenset[int], int]] = []
    for one in result.placed:
        memory = {
            part.split(",")[0]: int(part.split(",")[2])
            for part in one.annotations[DEVICES_ALLOCATED].split(":")
            if "," in part
        }
        for device, listed in decode_cus(one.annotations[CU_ALLOCATED]).items():
            held = (one.node, device, frozenset(listed), memory[device])
            changes.append((one.at, 1, *held))
            changes.append((one.at + durations[one.pod], 0, *held))
    cus: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    memory_mib: defaultdict[tuple[str, str], int] = defaultdict(int)
    for _, begins, node, device, ids, mib in sorted(changes, key=lambda change: change[:2]):
        if begins:
            assert not cus[node, device] & ids
            cus[node, device] |= ids
            memory_mib[node, device] += mib
            assert memory_mib[node, device] <= 196592
        else:
            cus[node, device] -= ids
            memory_mib[node, device] -= mib


def test_the_command_prints_both_policies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pods = tmp_path / "pods.csv"
    pods.write_text(f"{HEAD}a,0,,1,1024,25\nb,0,,1,900000,25\n")
    assert main(["simulate", "--nodes", "1 x MI300X", "--pods", str(pods)]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[0].split() == ["binpack", "spread"]
    assert "pods placed" in text
    assert "default/b: 0/1 nodes are available: 1 GPU memory: 196592 MiB in all, 900000 asked." in text


def test_the_command_answers_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pods, nodes = tmp_path / "pods.csv", tmp_path / "nodes"
    pods.write_text(f"{HEAD}a,0,,1,1024,25\n")
    nodes.write_text("big: 1 x MI300X\n")
    arguments = [
        "simulate",
        "--nodes",
        str(nodes),
        "--pods",
        str(pods),
        "--policy",
        "spread/binpack",
        "--output",
        "json",
    ]
    assert main(arguments) == 0
    found = json.loads(capsys.readouterr().out)["policies"]["spread/binpack"]
    assert found["figures"]["placed"] == 1
    (placement,) = found["placements"]
    assert (placement["pod"], placement["node"]) == ("default/a", "big")
    assert placement["annotations"][CU_ALLOCATED].startswith('{"GPU-')


@pytest.mark.parametrize(
    ("nodes", "pods", "policy", "words"),
    [
        ("1 x MI9", "good.csv", "binpack", "--nodes 1 x MI9: "),
        ("missing", "good.csv", "binpack", "missing: "),
        ("1 x MI210", "missing.csv", "binpack", "missing.csv: "),
        ("1 x MI210", "bad.csv", "binpack", "line 1: column x"),
        ("1 x MI210", "good.csv", "random", "--policy random: must be binpack or spread"),
    ],
)
def test_bad_input_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    nodes: str,
    pods: str,
    policy: str,
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good.csv").write_text(f"{HEAD}a,0,,1,1,1\n")
    Path("bad.csv").write_text("x\n1\n")
    assert main(["simulate", "--nodes", nodes, "--pods", pods, "--policy", policy]) == 1
    assert words in capsys.readouterr().err


def test_many_reasons_are_cut_short() -> None:
    lines = "".join(f"p{number},0,,1,{70_000 + number},10\n" for number in range(20))
    text = as_text([simulated("1 x MI210", lines)])
    assert "12 more pods for 12 other reasons" in text
