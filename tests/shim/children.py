"""What a started program finds, and what it should find."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.shim.running import MIB, Outcome

LIMIT_MIB: Final = 48
OURS: Final = {
    "HIP_DEVICE_MEMORY_LIMIT": f"{LIMIT_MIB}m",
    "HSA_CU_MASK": "0:0-37;1:0x3f",
    "ROCR_VISIBLE_DEVICES": "GPU-1f,GPU-2e",
    "HIP_VISIBLE_DEVICES": "0,1",
    "GLIBC_TUNABLES": "glibc.rtld.optional_static_tls=4096",
}
# What shells add by themselves, and what the tests set.
NOT_LOOKED_AT: Final = {"PWD", "OLDPWD", "SHLVL", "_", "PATH", "AMVGPU_REGION"}


@dataclass(frozen=True)
class Seen:
    """The report of the program `seen`."""

    report: dict[str, Any]

    @property
    def environ(self) -> dict[str, str]:
        """Its variables but for the test's own; one that is there twice is a fault."""
        pairs = [entry.split("=", 1) for entry in self.report["environ"]]
        assert len({name for name, _ in pairs}) == len(pairs), pairs
        return {name: value for name, value in pairs if name not in NOT_LOOKED_AT}

    @property
    def total_mib(self) -> int:
        """How much memory HIP shows it."""
        return int(self.report["total"]) // MIB


def seen(outcome: Outcome) -> Seen:
    """Read the report, and make sure that nothing else was written."""
    assert outcome.stderr == ""
    return Seen(outcome.line)


def full(shim: Path) -> dict[str, str]:
    """Everything that the library puts back."""
    return {**OURS, "LD_AUDIT": str(shim)}
