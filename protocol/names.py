"""Names on the wire: resources, annotations, environment variables, paths.

The `hami.io/` and `amd.com/` keys are HAMi's (`docs/develop/amd-vgpu.md`), so that either side can be swapped for
HAMi's.
"""

from typing import Final

RESOURCE_GPU: Final = "amd.com/gpu"
"""Physical GPUs, an integer of at least 1."""
RESOURCE_MEMORY: Final = "amd.com/gpumem"
"""MiB on each of the container's GPUs, an integer of at least 1."""
RESOURCE_CORES: Final = "amd.com/gpucores"
"""Percent of each GPU's compute units, an integer from 1 to 100."""
RESOURCES: Final = (RESOURCE_GPU, RESOURCE_MEMORY, RESOURCE_CORES)

SCHEDULER_NAME: Final = "amd-vgpu-scheduler"
DEFAULT_SCHEDULER_NAME: Final = "default-scheduler"
DEVICE_VENDOR: Final = "AMD"
DEVICE_MODE: Final = "hami-core"

NODE_REGISTER: Final = "hami.io/node-amd-register"
NODE_LOCK: Final = "hami.io/mutex.lock"
NODE_SURVIVORS: Final = "amd-vgpu.io/survivors"
"""What processes of pods that are over still hold; only the device plugin writes it."""

DEVICES_TO_ALLOCATE: Final = "hami.io/amd-devices-to-allocate"
DEVICES_ALLOCATED: Final = "hami.io/amd-devices-allocated"
CU_ALLOCATED: Final = "hami.io/amd-cu-allocated"
ASSIGNED_NODE: Final = "hami.io/vgpu-node"
ASSIGNED_TIME: Final = "hami.io/vgpu-time"
BIND_PHASE: Final = "hami.io/bind-phase"
BIND_TIME: Final = "hami.io/bind-time"

ALLOCATION_ANNOTATIONS: Final = (
    DEVICES_TO_ALLOCATE,
    DEVICES_ALLOCATED,
    CU_ALLOCATED,
    ASSIGNED_NODE,
    ASSIGNED_TIME,
    BIND_PHASE,
    BIND_TIME,
)
"""Every pod annotation that says what a pod holds. Only the scheduler and the plugin may write them."""

PHASE_ALLOCATING: Final = "allocating"
PHASE_SUCCESS: Final = "success"
PHASE_FAILED: Final = "failed"

ENV_VISIBLE_DEVICES: Final = "ROCR_VISIBLE_DEVICES"
ENV_HIP_VISIBLE_DEVICES: Final = "HIP_VISIBLE_DEVICES"
ENV_CU_MASK: Final = "HSA_CU_MASK"
ENV_MEMORY_LIMIT: Final = "HIP_DEVICE_MEMORY_LIMIT"
ENV_AUDIT: Final = "LD_AUDIT"
ENV_TUNABLES: Final = "GLIBC_TUNABLES"
ENV_REGION: Final = "AMVGPU_REGION"
ENV_BELOW_HIP: Final = "AMVGPU_HSA"
"""`1`: memory that programs take below HIP (OpenCL, OpenMP) counts as well."""
STATIC_TLS_TUNABLE: Final = "glibc.rtld.optional_static_tls=4096"
"""An audit library leaves too little static TLS for a preloaded allocator such as jemalloc; this gives it back.

glibc takes it off every thread's stack: with 16384 a thread of the smallest size (PTHREAD_STACK_MIN) could not start.
"""

LIBRARY_DIR: Final = "/usr/local/vgpu"
"""Folder of the audit library, on the host and in containers."""
LIBRARY_NAME: Final = "libamvgpu.so"
LIBRARY_VOLUME: Final = "amd-vgpu"

REGION_DIR: Final = "/run/amd-vgpu"
"""Folder in a container where its processes count their GPU memory together."""
REGION_FILE: Final = "region"
"""The audit library's name for the file in it."""
