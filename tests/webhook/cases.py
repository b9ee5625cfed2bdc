"""The table of refusals: a pod, and every message about it. The rules, the server and the manual are held to it."""

from dataclasses import dataclass

from tests.webhook.makers import LIBRARY_MOUNT, LIBRARY_VOLUME, Object, gpu_container, plain_container, pod

GPU = "spec.containers[0].resources.limits[amd.com/gpu]"
CORES = "spec.containers[0].resources.limits[amd.com/gpucores]"
MEMORY = "spec.containers[0].resources.limits[amd.com/gpumem]"
REQUESTS = "spec.containers[0].resources.requests"
MOUNT = "spec.containers[0].volumeMounts[0]"
WITHOUT_LIMIT = "must not be set without resources.limits"
GPU_RANGE = "must be an integer from 1 to 64"
CORES_RANGE = "must be an integer percentage between 1 and 100"
MEMORY_RANGE = "must be an integer number of MiB greater than 0"
MEMORY_MAXIMUM = f"{MEMORY_RANGE} and at most 16777216"
HIDDEN = "must not be /usr/local/vgpu or a path below it: the library that enforces GPU memory limits is mounted there"
WRITABLE = "must be true: all pods of a node share the folder of the GPU library"
NODE_NAME = (
    "spec.nodeName: Forbidden: must not be set on a pod that asks for amd.com resources, it bypasses the scheduler: "
    "use nodeSelector or nodeAffinity with kubernetes.io/hostname"
)


@dataclass(frozen=True)
class Refused:
    name: str
    pod: Object
    messages: tuple[str, ...]


def _mounting(**mount: object) -> Object:
    return gpu_container(gpu="1") | {"volumeMounts": [{"name": "mine", **mount}]}


REFUSED = (
    Refused("cores_150", pod(gpu_container(gpucores="150")), (f'{CORES}: Invalid value: "150": {CORES_RANGE}',)),
    Refused("cores_0", pod(gpu_container(gpucores="0")), (f'{CORES}: Invalid value: "0": {CORES_RANGE}',)),
    Refused("cores_101", pod(gpu_container(gpucores="101")), (f'{CORES}: Invalid value: "101": {CORES_RANGE}',)),
    Refused(
        "cores_fraction", pod(gpu_container(gpucores="25500m")), (f'{CORES}: Invalid value: "25500m": {CORES_RANGE}',)
    ),
    Refused("cores_number", pod(gpu_container(gpucores=25.5)), (f'{CORES}: Invalid value: "25.5": {CORES_RANGE}',)),
    Refused("cores_null", pod(gpu_container(gpucores=None)), (f'{CORES}: Invalid value: "None": {CORES_RANGE}',)),
    Refused("gpu_negative", pod(gpu_container(gpu="-1")), (f'{GPU}: Invalid value: "-1": {GPU_RANGE}',)),
    Refused("gpu_0", pod(gpu_container(gpu="0")), (f'{GPU}: Invalid value: "0": {GPU_RANGE}',)),
    Refused("gpu_65", pod(gpu_container(gpu="65")), (f'{GPU}: Invalid value: "65": {GPU_RANGE}',)),
    Refused("gpu_word", pod(gpu_container(gpu="two\n")), (f'{GPU}: Invalid value: "two\\n": {GPU_RANGE}',)),
    Refused(
        "memory_in_bytes",
        pod(gpu_container(gpumem="16Gi")),
        (f'{MEMORY}: Invalid value: "16Gi": {MEMORY_RANGE}, without a suffix: for 16Gi write 16384',),
    ),
    Refused(
        "memory_1Ei",
        pod(gpu_container(gpumem="1Ei")),
        (f'{MEMORY}: Invalid value: "1Ei": {MEMORY_MAXIMUM}',),
    ),
    Refused("memory_word", pod(gpu_container(gpumem="all")), (f'{MEMORY}: Invalid value: "all": {MEMORY_RANGE}',)),
    Refused(
        "requests_alone",
        pod({"name": "main", "resources": {"requests": {"amd.com/gpu": "1", "amd.com/gpucores": "10"}}}),
        (
            f'{REQUESTS}[amd.com/gpu]: Invalid value: "1": {WITHOUT_LIMIT}[amd.com/gpu]',
            f'{REQUESTS}[amd.com/gpucores]: Invalid value: "10": {WITHOUT_LIMIT}[amd.com/gpucores]',
        ),
    ),
    Refused(
        "requests_unequal",
        pod(gpu_container(gpu="1", requests={"amd.com/gpu": "2"})),
        (f'{REQUESTS}[amd.com/gpu]: Invalid value: "2": must equal resources.limits[amd.com/gpu], which is 1',),
    ),
    Refused(
        "requests_name_gpu_and_limits_do_not",
        pod(gpu_container(gpumem="1024", requests={"amd.com/gpu": "1", "amd.com/gpumem": "1024"})),
        (f'{REQUESTS}[amd.com/gpu]: Invalid value: "1": {WITHOUT_LIMIT}[amd.com/gpu]',),
    ),
    Refused("node_name", pod(gpu_container(gpu="1"), nodeName="n1"), (NODE_NAME,)),
    Refused(
        "mount_over_library",
        pod(_mounting(mountPath="/usr/local/vgpu"), volumes=[{"name": "mine", "emptyDir": {}}]),
        (f'{MOUNT}.mountPath: Invalid value: "/usr/local/vgpu": {HIDDEN}',),
    ),
    Refused(
        "mount_below_library_in_other_spelling",
        pod(
            _mounting(mountPath="//usr/./local/x/../vgpu/libamvgpu.so", subPath="a"),
            volumes=[{"name": "mine", "emptyDir": {}}],
        ),
        (f'{MOUNT}.mountPath: Invalid value: "//usr/./local/x/../vgpu/libamvgpu.so": {HIDDEN}',),
    ),
    Refused(
        "mount_of_a_part_of_the_library_folder",
        pod(
            _mounting(mountPath="usr/local/vgpu/", readOnly=True, subPath="empty"),
            volumes=[LIBRARY_VOLUME | {"name": "mine"}],
        ),
        (f'{MOUNT}.mountPath: Invalid value: "usr/local/vgpu/": {HIDDEN}',),
    ),
    Refused(
        "mount_of_a_part_by_expression",
        pod(
            _mounting(mountPath="/usr/local/vgpu", readOnly=True, subPathExpr="$(POD)"),
            volumes=[LIBRARY_VOLUME | {"name": "mine"}],
        ),
        (f'{MOUNT}.mountPath: Invalid value: "/usr/local/vgpu": {HIDDEN}',),
    ),
    Refused(
        "mount_of_a_host_folder_that_is_made_when_missing",
        pod(
            _mounting(mountPath="/usr/local/vgpu", readOnly=True),
            volumes=[{"name": "mine", "hostPath": {"path": "/usr/local/vgpu", "type": "DirectoryOrCreate"}}],
        ),
        (f'{MOUNT}.mountPath: Invalid value: "/usr/local/vgpu": {HIDDEN}',),
    ),
    Refused(
        "library_writable_in_a_container_without_gpu",
        pod(
            plain_container() | {"volumeMounts": [{"name": "amd-vgpu", "mountPath": "/mnt"}]},
            gpu_container(gpu="1") | {"volumeMounts": [LIBRARY_MOUNT | {"readOnly": False}]},
            volumes=[LIBRARY_VOLUME],
        ),
        (
            f'{MOUNT}.readOnly: Invalid value: "false": {WRITABLE}',
            f'spec.containers[1].volumeMounts[0].readOnly: Invalid value: "false": {WRITABLE}',
        ),
    ),
    Refused(
        "all_faults_at_once",
        pod(gpu_container(gpu="1.5", gpucores="150"), init=[gpu_container("i", gpucores="-5")], nodeName="n1"),
        (
            f'spec.initContainers[0].resources.limits[amd.com/gpucores]: Invalid value: "-5": {CORES_RANGE}',
            f'{GPU}: Invalid value: "1.5": {GPU_RANGE}',
            f'{CORES}: Invalid value: "150": {CORES_RANGE}',
            NODE_NAME,
        ),
    ),
    Refused(
        "other_schedulers_do_not_excuse",
        pod(gpu_container(gpucores="150"), schedulerName="volcano"),
        (f'{CORES}: Invalid value: "150": {CORES_RANGE}',),
    ),
)
