import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("folder", ["plugin/v1beta1", "plugin/podresources_v1"])
@pytest.mark.parametrize("name", ["api_pb2.py", "api_pb2.pyi", "api_pb2_grpc.py"])
def test_generated_modules_are_those_of_the_proto_file(tmp_path: Path, folder: str, name: str) -> None:
    flags = ["-I.", *(f"--{kind}_out={tmp_path}" for kind in ("python", "pyi", "grpc_python"))]
    command = [sys.executable, "-m", "grpc_tools.protoc", *flags, f"{folder}/api.proto"]
    subprocess.run(command, check=True, cwd=ROOT, timeout=60)
    assert (tmp_path / folder / name).read_text() == (ROOT / folder / name).read_text()
