"""The tables of refusals and warnings: an object, and every message about it.

The rules, the server and the manual are held to them.
"""

from dataclasses import dataclass, field

from tests.webhook.makers import LIBRARY_MOUNT, LIBRARY_VOLUME, Object, gpu_container, noted, plain_container, pod

GPU = "spec.containers[0].resources.limits[amd.com/gpu]"
CORES = "spec.containers[0].resources.limits[amd.com/gpucores]"
MEMORY = "spec.containers[0].resources.limits[amd.com/gpumem]"
REQUESTS = "spec.containers[0].resources.requests"
MOUNT = "spec.containers[0].volumeMounts[0]"
WITHOUT_LIMIT = "must not be set without resources.limits"
GPU_RANGE = "must be an integer from 1 to 64"
CORES_RANGE = "must be an integer percentage between 1 and 100"
MEMORY_RANGE = "must be an integer number of MiB greater than 0"
MEMORY_MAXIMUM = f"{MEMORY_RANGE} and at most 2097152"
HIDDEN = "must not be /usr/local/vgpu or a path below it: the library that enforces GPU memory limits is mounted there"
WRITABLE = "must be true: all pods of a node share the folder of the GPU library"
NODE_NAME = (
    "spec.nodeName: Forbidden: must not be set on a pod that asks for amd.com resources, it bypasses the scheduler: "
    "use nodeSelector or nodeAffinity with kubernetes.io/hostname"
)


OURS = "/usr/local/vgpu/libamvgpu.so"
ENV = "spec.containers[0].env[0]"
RESERVED_ENV = (
    "must not be set in a container with amd.com resources: it would take the place of what the device plugin sets"
)
AUDIT = f"must contain {OURS}, the library that enforces GPU memory limits, joined by ':'"
AUDIT_SOURCE = "must be a plain value for LD_AUDIT, to which the library that enforces GPU memory limits can be joined"
PRIVILEGED = (
    "must not be true with amd.com resources, the container would see every GPU of its node: "
    "allowed only in namespaces labelled amd-vgpu.io/allow-privileged=true"
)
RESERVED = "must not be set, only the scheduler and the device plugin write it: remove it"
CHANGED = "must not be changed, only the scheduler and the device plugin write it"
RESIZED = "must not be changed: a container gets its GPUs before it starts"
EPHEMERAL = "must not be set: an ephemeral container cannot get a GPU"
GPU_POLICY = "must be binpack, spread, mutex, numa or topology-aware, or several of them joined by commas"
TYPES = "must name at least one GPU type, several joined by commas"
UUIDS = "must name at least one GPU id, several joined by commas"
INDICES = "must be the numbers of GPUs, counted from 0, joined by commas"
SCHEDULER = "system:serviceaccount:amd-vgpu:scheduler"
PLUGIN = "system:serviceaccount:amd-vgpu:plugin"


@dataclass(frozen=True)
class Refused:
    """A new pod that both endpoints refuse."""

    name: str
    pod: Object
    messages: tuple[str, ...]


@dataclass(frozen=True)
class Update:
    """An update of a stored pod; no messages: it is allowed."""

    name: str
    old: Object
    new: Object
    messages: tuple[str, ...] = ()
    user: str = "ann"
    request: Object = field(default_factory=dict)


@dataclass(frozen=True)
class Warned:
    """A new pod that is allowed, with what kubectl prints."""

    name: str
    pod: Object
    warnings: tuple[str, ...]


def message(case: Refused | Update) -> str:
    """What the API server is told of a case's faults."""
    return case.messages[0] if len(case.messages) == 1 else f"[{', '.join(case.messages)}]"


def _env(*variables: Object) -> Object:
    return gpu_container(gpu="1") | {"env": list(variables)}


def _var(name: str, value: str = "x") -> Object:
    return {"name": name, "value": value}


def _privileged(body: Object) -> Object:
    return body | {"securityContext": {"privileged": True}}


def _note(key: str) -> str:
    return f"metadata.annotations[{key}]"


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
        "hami_2285_memory_in_bytes",
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
    Refused("hami_488_node_name", pod(gpu_container(gpu="1"), nodeName="n1"), (NODE_NAME,)),
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
    *(
        Refused(f"environment_{name}", pod(_env(_var(name))), (f'{ENV}.name: Invalid value: "{name}": {RESERVED_ENV}',))
        for name in (
            "HSA_CU_MASK",
            "HSA_CU_MASK_SKIP_INIT",
            "ROC_GLOBAL_CU_MASK",
            "AMVGPU_REGION",
            "AMVGPU_HSA",
            "AMVGPU_MANAGED",
            "ROCR_VISIBLE_DEVICES",
            "HIP_VISIBLE_DEVICES",
            "HIP_DEVICE_MEMORY_LIMIT",
            "HIP_DEVICE_MEMORY_LIMIT_0",
        )
    ),
    Refused(
        "environment_from_elsewhere_in_an_init_container",
        pod(
            plain_container(),
            init=[_env(_var("A"), {"name": "HSA_CU_MASK", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}})],
        ),
        (f'spec.initContainers[0].env[1].name: Invalid value: "HSA_CU_MASK": {RESERVED_ENV}',),
    ),
    Refused(
        "ld_audit_from_elsewhere",
        pod(_env({"name": "LD_AUDIT", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}})),
        (f"{ENV}.valueFrom: Forbidden: {AUDIT_SOURCE}",),
    ),
    Refused(
        "hami_1352_privileged",
        pod(_privileged(gpu_container(gpu="1")), init=[_privileged(gpu_container(gpucores="10"))]),
        (
            f"spec.initContainers[0].securityContext.privileged: Forbidden: {PRIVILEGED}",
            f"spec.containers[0].securityContext.privileged: Forbidden: {PRIVILEGED}",
        ),
    ),
    *(
        Refused(
            f"reserved_{key}",
            noted(pod(gpu_container(gpu="1")), **{key: "x"}),
            (f"{_note(key)}: Forbidden: {RESERVED}",),
        )
        for key in (
            "hami.io/amd-devices-to-allocate",
            "hami.io/amd-devices-allocated",
            "hami.io/amd-cu-allocated",
            "hami.io/vgpu-node",
            "hami.io/vgpu-time",
            "hami.io/bind-phase",
            "hami.io/bind-time",
            "hami.io/amd-something-new",
        )
    ),
    Refused(
        "a22_hami_3041_reserved_without_gpus",
        noted(pod(plain_container()), **{"hami.io/bind-phase": "allocating"}),
        (f"{_note('hami.io/bind-phase')}: Forbidden: {RESERVED}",),
    ),
    Refused(
        "a22_hami_3076_reserved_with_another_scheduler",
        noted(pod(gpu_container(gpu="1"), schedulerName="volcano"), **{"hami.io/vgpu-node": "n1"}),
        (f"{_note('hami.io/vgpu-node')}: Forbidden: {RESERVED}",),
    ),
    *(
        Refused(
            f"b18_hami_2767_selection_{key.partition('/')[2]}_{number}",
            noted(pod(gpu_container(gpu="1")), **{key: value}),
            (f'{_note(key)}: Invalid value: "{value}": {expected}',),
        )
        for number, (key, value, expected) in enumerate(
            (
                ("hami.io/node-scheduler-policy", "bin-pack", "must be binpack or spread"),
                ("hami.io/node-scheduler-policy", "", "must be binpack or spread"),
                ("hami.io/gpu-scheduler-policy", "binpack,sprad", GPU_POLICY),
                ("hami.io/gpu-scheduler-policy", "binpack,", GPU_POLICY),
                ("amd.com/use-gputype", "", TYPES),
                ("amd.com/nouse-gputype", " , ", TYPES),
                ("amd.com/use-gpu-uuid", ",", UUIDS),
                ("amd.com/nouse-gpu-uuid", " ", UUIDS),
                ("amd.com/gpu-index", "", INDICES),
                ("amd.com/gpu-index", "0,-1", INDICES),
                ("amd.com/gpu-index", "gpu0", INDICES),
            )
        )
    ),
    Refused(
        "hami_488_mirror_pods_of_static_pods",
        noted(pod(gpu_container(gpu="1"), nodeName="n1"), **{"kubernetes.io/config.mirror": "abc"}),
        (NODE_NAME,),
    ),
    Refused(
        "hami_1417_thousands", pod(gpu_container(gpucores="5k")), (f'{CORES}: Invalid value: "5k": {CORES_RANGE}',)
    ),
    Refused("cores_milli", pod(gpu_container(gpucores="500m")), (f'{CORES}: Invalid value: "500m": {CORES_RANGE}',)),
)

REFUSED_AT_THE_END = (
    # The mutating endpoint joins the library to the variable: only what others do to it afterwards can be wrong.
    Refused(
        "ld_audit_without_ours",
        pod(_env(_var("LD_AUDIT", "/x.so:/usr/local/vgpu/libamvgpu.so.1"))),
        (f'{ENV}.value: Invalid value: "/x.so:/usr/local/vgpu/libamvgpu.so.1": {AUDIT}',),
    ),
    Refused(
        "ld_audit_empty",
        pod(_env({"name": "LD_AUDIT"})),
        (f'{ENV}.value: Invalid value: "": {AUDIT}',),
    ),
)

MALFORMED = (
    Refused("spec", {"spec": "amd.com/gpu"}, ('spec: Invalid value: "amd.com/gpu": must be an object',)),
    Refused(
        "containers",
        pod(gpu_container(gpu="1"), initContainers={}),
        ('spec.initContainers: Invalid value: "{}": must be a list',),
    ),
    Refused(
        "container",
        pod(gpu_container(gpu="1"), "main"),  # type: ignore[arg-type]
        ('spec.containers[1]: Invalid value: "main": must be an object',),
    ),
    Refused(
        "names",
        pod(gpu_container(gpu="1"), schedulerName=[], volumes=[{"name": {}}, None]),
        (
            'spec.schedulerName: Invalid value: "[]": must be a string',
            'spec.volumes[0].name: Invalid value: "{}": must be a string',
            'spec.volumes[1]: Invalid value: "None": must be an object',
        ),
    ),
    Refused(
        "resources",
        pod({"resources": {"limits": ["amd.com/gpu"]}, "env": [{"name": "LD_AUDIT", "value": 1}]}),
        (
            "spec.containers[0].resources.limits: Invalid value: \"['amd.com/gpu']\": must be an object",
            f'{ENV}.value: Invalid value: "1": must be a string',
        ),
    ),
    Refused(
        "annotation",
        noted(pod(gpu_container(gpu="1")), **{"amd.com/gpu-index": 0}),
        (f'{_note("amd.com/gpu-index")}: Invalid value: "0": must be a string',),
    ),
    Refused(
        "annotations",
        pod(gpu_container(gpu="1")) | {"metadata": {"annotations": []}},
        ('metadata.annotations: Invalid value: "[]": must be an object',),
    ),
    Refused(
        "metadata",
        pod(gpu_container(gpu="1")) | {"metadata": True},
        ('metadata: Invalid value: "True": must be an object',),
    ),
)

_BAD = pod(gpu_container(gpucores="150"), nodeName="n1")
_GPU = pod(gpu_container(gpu="1", gpumem="1024"))
_DEBUG = {"name": "debug", "image": "busybox", "targetContainerName": "main"}
_MISLED = noted(_GPU, **{"hami.io/gpu-scheduler-policy": "x"})
_HELD = {
    "hami.io/amd-devices-allocated": "GPU-1,MI300X,1024,76:;",
    "hami.io/amd-cu-allocated": '{"GPU-1": "0-75"}',
    "hami.io/vgpu-node": "n1",
}
_OTHERS_CUS = {"hami.io/amd-cu-allocated": '{"GPU-1": "76-151"}'}
_SUB = {"subResource": "ephemeralcontainers"}
_RESIZE = {"subResource": "resize"}
_LIMITS = "spec.containers[0].resources.limits"

UPDATES = (
    Update("nothing", _BAD, _BAD),
    Update("a14_labels", _BAD, _BAD | {"metadata": {"name": "p", "labels": {"a": "b"}}}),
    Update("a14_finalizers", _BAD | {"metadata": {"finalizers": ["a/b"]}}, _BAD | {"metadata": {}}),
    Update("a14_with_stored_annotations", noted(_BAD, **_HELD), noted(_BAD, **_HELD, other="x")),
    Update("a14_with_a_wrong_policy", _MISLED, _MISLED | {"spec": {**_MISLED["spec"], "activeDeadlineSeconds": 5}}),
    Update("scheduler", _GPU, noted(_GPU, **_HELD), user=SCHEDULER),
    Update("plugin", noted(_GPU, **_HELD), noted(_GPU, **_HELD | {"hami.io/bind-phase": "success"}), user=PLUGIN),
    Update(
        "a22_annotations_are_added",
        _GPU,
        noted(_GPU, **_HELD),
        tuple(f"{_note(key)}: Forbidden: {CHANGED}" for key in sorted(_HELD)),
    ),
    Update(
        "a22_another_pods_cus_are_claimed",
        noted(_GPU, **_HELD),
        noted(_GPU, **_HELD | _OTHERS_CUS),
        (f"{_note('hami.io/amd-cu-allocated')}: Forbidden: {CHANGED}",),
    ),
    Update(
        "a22_annotations_are_removed",
        noted(pod(plain_container()), **{"hami.io/vgpu-node": "n1"}),
        pod(plain_container()),
        (f"{_note('hami.io/vgpu-node')}: Forbidden: {CHANGED}",),
    ),
    Update(
        "a22_through_the_status",
        _GPU,
        noted(_GPU, **_OTHERS_CUS),
        (f"{_note('hami.io/amd-cu-allocated')}: Forbidden: {CHANGED}",),
        request={"subResource": "status"},
    ),
    Update(
        "other_service_accounts_are_not_trusted",
        _GPU,
        noted(_GPU, **_OTHERS_CUS),
        (f"{_note('hami.io/amd-cu-allocated')}: Forbidden: {CHANGED}",),
        user="system:serviceaccount:team:scheduler",
    ),
    Update(
        "a_policy_is_changed",
        _GPU,
        noted(_GPU, **{"hami.io/node-scheduler-policy": "x"}),
        (f'{_note("hami.io/node-scheduler-policy")}: Invalid value: "x": must be binpack or spread',),
    ),
    Update("a16_kubectl_debug", _GPU, pod(*_GPU["spec"]["containers"], ephemeralContainers=[_DEBUG]), request=_SUB),
    Update(
        "a16_variables_of_a_debug_container",
        _GPU,
        pod(*_GPU["spec"]["containers"], ephemeralContainers=[_DEBUG | {"env": [_var("HSA_CU_MASK")]}]),
        request=_SUB,
    ),
    Update(
        "a_debug_container_with_a_gpu",
        _GPU,
        pod(
            *_GPU["spec"]["containers"],
            ephemeralContainers=[_DEBUG | {"resources": {"limits": {"amd.com/gpu": "1"}}}],
        ),
        (f"spec.ephemeralContainers[0].resources.limits[amd.com/gpu]: Forbidden: {EPHEMERAL}",),
        request=_SUB,
    ),
    Update(
        "resize_of_the_cpu",
        _GPU,
        pod({"name": "main", "resources": {"limits": {"amd.com/gpu": "1", "amd.com/gpumem": "1024", "cpu": "2"}}}),
        request=_RESIZE,
    ),
    Update(
        "resize_of_gpus",
        _GPU,
        pod(gpu_container(gpu="2", gpumem="2048", gpucores="5")),
        tuple(f"{_LIMITS}[amd.com/{key}]: Forbidden: {RESIZED}" for key in ("gpu", "gpumem", "gpucores")),
        request=_RESIZE,
    ),
    Update(
        "resize_of_a_pod_without_gpus",
        pod(plain_container()),
        pod(gpu_container(gpu="1", requests={"amd.com/gpu": "1"})),
        tuple(
            f"spec.containers[0].resources.{kind}[amd.com/gpu]: Forbidden: {RESIZED}" for kind in ("limits", "requests")
        ),
        request=_RESIZE,
    ),
)

_ENV_FROM = (
    "spec.containers[0].envFrom: cannot be checked; it must not set HSA_CU_MASK, HIP_DEVICE_MEMORY_LIMIT, LD_AUDIT "
    "and their like, which would take the place of what the device plugin sets"
)
SEES_ALL = "a privileged container sees every GPU of its node, whatever the pod asks for"


def _process_one(key: str, whose: str) -> str:
    return (
        f"spec.{key}: process 1 is then {whose} process, from whose environment GPU limits cannot be restored: "
        "a program that clears its environment runs without them"
    )


WARNED = (
    Warned(
        "another_scheduler",
        pod(gpu_container(gpu="1"), schedulerName="volcano"),
        (
            (
                "spec.schedulerName: the amd.com resources of this pod are not handled by amd-vgpu-scheduler, "
                "which alone can share GPUs; omit schedulerName to use it instead of volcano"
            ),
        ),
    ),
    Warned("env_from", pod(gpu_container(gpu="1") | {"envFrom": [{"secretRef": {"name": "s"}}]}), (_ENV_FROM,)),
    Warned(
        "tunables_from_elsewhere",
        pod(_env({"name": "GLIBC_TUNABLES", "valueFrom": {"secretKeyRef": {}}})),
        (
            (
                f"{ENV}.valueFrom: glibc.rtld.optional_static_tls=4096 cannot be joined to it; "
                "without it a program with a preloaded allocator may not start"
            ),
        ),
    ),
    Warned(
        "a_privileged_container_beside",
        pod(gpu_container(gpu="1"), _privileged(plain_container())),
        (f"spec.containers[1].securityContext.privileged: {SEES_ALL}",),
    ),
    Warned("host_pid", pod(gpu_container(gpu="1"), hostPID=True), (_process_one("hostPID", "the host's"),)),
    Warned(
        "shared_process_namespace",
        pod(gpu_container(gpu="1"), shareProcessNamespace=True),
        (_process_one("shareProcessNamespace", "the pod's pause"),),
    ),
    Warned(
        "hami_2862_amounts_as_annotations",
        noted(pod(gpu_container(gpu="1")), **{"amd.com/gpumem": "1024"}),
        (f"{_note('amd.com/gpumem')}: is not read; write amd.com/gpumem under resources.limits of the container",),
    ),
    Warned(
        "misspelt_selection",
        noted(pod(gpu_container(gpu="1")), **{"amd.com/use-gpuuuid": "x"}),
        (f"{_note('amd.com/use-gpuuuid')}: is not read; write amd.com/use-gpu-uuid",),
    ),
    *(
        Warned(
            f"misspelt_resource_{wrong}",
            pod(gpu_container(gpu="1"), plain_container() | {"resources": {kind: {f"amd.com/{wrong}": "1"}}}),
            (
                (
                    f"spec.containers[1].resources.{kind}[amd.com/{wrong}]: is not read, and no node has it; "
                    f"write amd.com/{right}"
                ),
            ),
        )
        for wrong, kind, right in (
            ("gpumemory", "limits", "gpumem"),
            ("gpu-mem", "requests", "gpumem"),
            ("gpucore", "limits", "gpucores"),
            ("gpus", "limits", "gpu"),
        )
    ),
    Warned(
        "a_misspelt_resource_alone",
        pod(gpu_container(gpumems="1")),
        (
            (
                "spec.containers[0].resources.limits[amd.com/gpumems]: is not read, and no node has it; "
                "write amd.com/gpumem"
            ),
        ),
    ),
)

ALLOWED = (
    ("nothing", pod(gpu_container(gpu="1"))),
    ("cuda_visible_devices", pod(_env(_var("CUDA_VISIBLE_DEVICES", "0")))),
    ("ld_preload", pod(_env(_var("LD_PRELOAD", "/jemalloc.so")))),
    ("variables_without_gpu", pod(gpu_container(gpu="1"), plain_container() | {"env": [_var("HSA_CU_MASK")]})),
    *(
        (f"another_resource_{name}", pod(plain_container() | {"resources": {"limits": {f"amd.com/{name}": "1"}}}))
        for name in ("cpx_nps4", "spx_nps1", "n" * 5000)
    ),
    ("not_privileged", pod(gpu_container(gpu="1") | {"securityContext": {"privileged": False}})),
    ("other_hami_annotations", noted(pod(gpu_container(gpu="1")), **{"hami.io/webhook": "ignore"})),
    *(
        (f"selection_{number}", noted(pod(gpu_container(gpu="1")), **{key: value}))
        for number, (key, value) in enumerate(
            (
                ("hami.io/node-scheduler-policy", "spread"),
                ("hami.io/gpu-scheduler-policy", "binpack,numa"),
                ("hami.io/gpu-scheduler-policy", "topology-aware"),
                ("amd.com/use-gputype", "MI300X, MI250,"),
                ("amd.com/nouse-gpu-uuid", "GPU-8e1bb56457addd1b"),
                ("amd.com/gpu-index", "0, 11"),
            )
        )
    ),
)
