"""Option values and files that cannot work: the message names option and value, and says what would be right."""

from pathlib import Path

import pytest

from cli.main import main


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("webhook", "--port=99999"), "argument --port: '99999': must be an integer from 0 to 65535"),
        (("webhook", "--metrics-port=-1"), "argument --metrics-port: '-1': must be an integer from 0 to 65535"),
        (("scheduler", "--port=x"), "argument --port: 'x': must be an integer from 0 to 65535"),
        (("scheduler", "--health-port=1.5"), "argument --health-port: '1.5': must be an integer"),
        (("webhook", "--drain=nan"), "argument --drain: 'nan': must be a number of seconds, 0 or more"),
        (("certs", "rotate", "--timeout=-5"), "argument --timeout: '-5': must be a number of seconds, 0 or more"),
        (("webhook", "--cert-life=5"), "argument --cert-life: '5': must be a number and one of s, m, h, d"),
        (("webhook", f"--settle={'9' * 30}d"), "must be a number and one of s, m, h, d, such as 90d"),
    ],
)
def test_a_value_of_the_wrong_kind(words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as status:
        main(words)
    assert status.value.code == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("simulate --nodes {folder}/none --pods {trace}", "--nodes {folder}/none: No such file or directory; a line"),
        ("simulate --nodes {folder} --pods {trace}", "--nodes {folder}: Is a directory; a line in place of a file is"),
        ("simulate --nodes {binary} --pods {trace}", "--nodes {binary}: must be UTF-8 text, byte 1 is not"),
        ("simulate --nodes {nodes} --pods {folder}/none", "--pods {folder}/none: No such file or directory"),
        ("simulate --nodes {nodes} --pods {binary}", "--pods {binary}: must be UTF-8 text, byte 1 is not"),
        ("simulate --nodes {nodes} --pods {trace} --policy full", "--policy full: must be binpack or spread"),
        ("validate {folder}/none", "logs {folder}/none: No such file or directory"),
        ("validate {binary}", "logs {binary}: must be UTF-8 text, byte 1 is not"),
    ],
)
def test_a_file_that_cannot_be_read(words: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = {name: tmp_path / name for name in ("binary", "nodes", "trace")} | {"folder": tmp_path}
    names["binary"].write_bytes(b"x\xff")
    names["nodes"].write_text("1 x MI210\n")
    names["trace"].write_text("name,gpu\na,1\n")
    assert main(words.format(**names).split()) == 1
    assert capsys.readouterr().err.startswith("amd-vgpu: " + told.format(**names))


@pytest.mark.parametrize("words", [("certs", "status"), ("webhook",)])
def test_no_cluster_is_named(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(words) == 1
    assert capsys.readouterr().err.endswith(": outside a cluster name one with --kubeconfig\n")


def test_a_line_may_stand_in_place_of_a_file_and_a_policy_is_tried_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("name,gpu\na,1\n")
    command = ["simulate", "--nodes", "2 nodes: 4 x MI300X", "--pods", str(trace), "--policy=spread", "--policy=spread"]
    assert main(command) == 0
    head, placed, *_ = capsys.readouterr().out.splitlines()
    assert head.split() == ["spread"]
    assert placed.split() == ["pods", "placed", "1"]


def test_a_wrong_line_is_told_as_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("name,gpu\na,1\n")
    assert main(["simulate", "--nodes", "4 x MI9000", "--pods", str(trace)]) == 1
    assert "'4 x MI9000': must be a number and one of MI100" in capsys.readouterr().err
