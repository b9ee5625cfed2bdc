"""Kubernetes 1.35 from its Go modules, at the versions that `gomodules/go.sum` holds fast."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.cluster.build import DAEMONS, UNTIL_OUR_END, Release
from tests.cluster.errors import ClusterUnavailable
from tests.cluster.progress import run_logged, step

VERSION = "1.35.4"
REVISION = 1
MODULES = Path(__file__).parent / "gomodules"
OLDEST_GO = 25


def make(scratch: Path, log: Path) -> Path:
    """Compile the daemons; return the folder with them."""
    go = _find_go()
    source, made = scratch / "source", scratch / "bin"
    shutil.copytree(MODULES, source)
    major, minor, _ = VERSION.split(".")
    told = {"gitVersion": f"v{VERSION}", "gitMajor": major, "gitMinor": minor}
    flags = " ".join(["-s", "-w", *(f"-X k8s.io/component-base/version.{key}={value}" for key, value in told.items())])
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": os.environ.get("HOME", str(scratch)),
        "CGO_ENABLED": "0",
        "GOFLAGS": "-buildvcs=false -mod=readonly",
        **{
            name: value for name, value in os.environ.items() if name in {"GOPROXY", "GOMODCACHE", "GOCACHE", "GOSUMDB"}
        },
    }
    packages = [f"k8s.io/kubernetes/cmd/{name}" for name in DAEMONS]
    with step(f"Kubernetes {VERSION}: compiling 4 daemons, about 12 minutes on 2 cores (log: {log})"):
        build = [go, "build", "-ldflags", flags, "-o", f"{made}/", *packages]
        run_logged([*UNTIL_OUR_END, *build], log, env=environment, cwd=source)
    return made


def _find_go() -> str:
    go = shutil.which("go")
    if go:
        text = subprocess.run([go, "version"], capture_output=True, text=True, check=False, timeout=30).stdout
        found = re.search(r"go1\.(\d+)", text)
        if found and int(found[1]) >= OLDEST_GO:
            return go
    raise ClusterUnavailable(
        f"Kubernetes {VERSION} is compiled with Go 1.{OLDEST_GO} or newer, which is not in PATH; "
        "install it, or name a folder with the daemons in KUBEBUILDER_ASSETS"
    )


RELEASE = Release(VERSION, REVISION, make)
