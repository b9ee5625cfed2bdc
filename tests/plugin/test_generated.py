import subprocess
import sys
from pathlib import Path

import pytest

import plugin.v1beta1 as package

FOLDER = Path(str(package.__file__)).parent
ROOT = FOLDER.parent.parent


@pytest.mark.parametrize("name", ["api_pb2.py", "api_pb2.pyi", "api_pb2_grpc.py"])
def test_generated_modules_are_those_of_the_proto_file(tmp_path: Path, name: str) -> None:
    flags = ["-I.", *(f"--{kind}_out={tmp_path}" for kind in ("python", "pyi", "grpc_python"))]
    command = [sys.executable, "-m", "grpc_tools.protoc", *flags, "plugin/v1beta1/api.proto"]
    subprocess.run(command, check=True, cwd=ROOT, timeout=60)
    assert (tmp_path / "plugin/v1beta1" / name).read_text() == (FOLDER / name).read_text()
