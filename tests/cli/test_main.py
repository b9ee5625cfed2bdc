"""The command line: what goes wrong is told in words and with an exit status, never with a traceback."""

import os
import signal
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from certs.authority import new_authority
from tests.command import COMMAND

PLUGIN = ("plugin", "--node-name=node-a")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("KUBERNETES_")}
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False, env=env)


def kubeconfig(folder: Path, text: str = "") -> str:
    default = """
apiVersion: v1
kind: Config
current-context: x
contexts: [{name: x, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
"""
    path = folder / "kubeconfig"
    path.write_text(text or default)
    return f"--kubeconfig={path}"


@pytest.mark.parametrize("arguments", [(), ("nonsense",), ("plugin",), ("scheduler", "--port=x"), (*PLUGIN, "--cou=1")])
def test_wrong_options_are_told_with_the_usage(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: amd-vgpu")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((*PLUGIN, "--count=0"), "count: 0: must be from 1 to 1000"),
        ((*PLUGIN, "--count=20", "--count=MI300X=1001"), "count: MI300X=1001: must be from 1 to 1000"),
        ((*PLUGIN, "--count=MI300X"), "count: 'MI300X': must be a number such as 20, or a type and a number"),
        ((*PLUGIN, "--allocate-timeout=0"), "allocate_seconds: 0.0: must be greater than 0"),
        ((*PLUGIN, "--recovery=-1"), "recovery_seconds: -1.0: must be 0 or more"),
        (("scheduler", "--bind-wait=-1"), "bind wait: -1: must be greater than 0 seconds"),
        (("webhook", "--library-dir=vgpu"), "library_dir 'vgpu' must be an absolute path"),
        (("scheduler",), "no kubeconfig given, and no pod's service account"),
        (("scheduler", "--kubeconfig=/nonexistent"), "kubeconfig /nonexistent: "),
    ],
)
def test_what_cannot_work_is_told_in_one_line(arguments: tuple[str, ...], words: str) -> None:
    done = run(*arguments)
    assert done.returncode == 1
    assert done.stderr.startswith(f"amd-vgpu: {words}")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("text", ["{", "[]", "current-context: y\n"])
def test_a_broken_kubeconfig_is_told_with_its_name(tmp_path: Path, text: str) -> None:
    done = run("scheduler", kubeconfig(tmp_path, text))
    assert done.returncode == 1
    assert done.stderr.startswith(f"amd-vgpu: kubeconfig {tmp_path}/kubeconfig: ")
    assert "Traceback" not in done.stderr


def test_a_missing_library_is_told(tmp_path: Path) -> None:
    done = run(*PLUGIN, kubeconfig(tmp_path), "--library=/nonexistent/libamvgpu.so", f"--library-dir={tmp_path}")
    assert done.returncode == 1
    assert "amd-vgpu: " in done.stderr
    assert "/nonexistent/libamvgpu.so" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("service", "options"),
    [
        ("scheduler", ("--port={port}", "--health-port=0")),
        ("scheduler", ("--port=0", "--health-port={port}")),
        ("webhook", ("--cert-dir={certs}", "--port={port}")),
        ("webhook", ("--cert-dir={certs}", "--port=0", "--metrics-port={port}")),
    ],
)
def test_an_address_in_use_is_told(tmp_path: Path, service: str, options: tuple[str, ...]) -> None:
    pair = new_authority(now=datetime.now(UTC), life=timedelta(days=1), name="test")
    (tmp_path / "tls.crt").write_bytes(pair.certificate)
    (tmp_path / "tls.key").write_bytes(pair.key)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        values = {"port": taken.getsockname()[1], "certs": tmp_path}
        given = [option.format(**values) for option in options]
        done = run(service, kubeconfig(tmp_path), "--host=127.0.0.1", *given)
    assert done.returncode == 1
    told = done.stderr.splitlines()[-1]
    assert told.startswith("amd-vgpu: ")
    assert f"'127.0.0.1', {values['port']}" in told
    assert told.endswith("choose another address or port")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_service_cleanly_even_without_an_api_server(tmp_path: Path, number: signal.Signals) -> None:
    options = [kubeconfig(tmp_path), "--port=0", "--health-port=0"]
    with subprocess.Popen([*COMMAND, "scheduler", *options], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "health listens" in line:
                break
        process.send_signal(number)
        rest = process.stderr.read()
        assert process.wait(timeout=30) == 0
    assert "Traceback" not in rest


def test_help_names_every_command() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert all(name in done.stdout for name in ("webhook", "scheduler", "plugin"))


def test_a_service_does_not_load_the_others() -> None:
    program = """
import sys
from cli.main import main
try:
    main(["plugin", "--help"])
except SystemExit:
    print(*sorted(name for name in sys.modules if name in {"webhook", "certs", "scheduler", "plugin"}))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "plugin"


def test_the_help_names_all_commands() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert {"webhook", "scheduler", "plugin", "certs", "validate"} <= set(done.stdout.split())
