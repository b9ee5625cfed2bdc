"""Odd pods: everything that a rule looks at may be absent, null, a user's own, or ours already."""

from typing import Any

from hypothesis import strategies as st

from tests.webhook.makers import LIBRARY_MOUNT, LIBRARY_VOLUME

_VALUES = st.sampled_from(["1", "0", "-1", "25500m", "16k", "1Ei", "", "x", 1, 2.5, None])
_AMD = st.dictionaries(st.sampled_from(["amd.com/gpu", "amd.com/gpumem", "amd.com/gpucores"]), _VALUES)
_OTHER = st.dictionaries(st.sampled_from(["cpu", "nvidia.com/gpu", "amd.com/other", "a~b/c"]), _VALUES)
_PATHS = st.sampled_from(["/usr/local/vgpu", "/usr/local/vgpu/", "/usr/local/vgpu/x", "/usr/local", "usr//local/vgpu"])
_NAMES = st.sampled_from(["amd-vgpu", "amd-vgpu-1", "amd-vgpu-2", "data"])
_UNKNOWN: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.sampled_from(["newField", "x/y~z", "ünknown", ""]), st.sampled_from([None, [], {"a": 1}, True])
)


def _maybe(fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Return objects with any of the fields, each of which may be null, and with fields that nobody knows."""
    optional = {key: st.none() | values for key, values in fields.items()}
    known = st.fixed_dictionaries({}, optional=optional)
    return st.builds(lambda unknown, known: unknown | known, _UNKNOWN, known)


_VOLUMES = st.one_of(
    st.just(LIBRARY_VOLUME),
    st.builds(lambda name: LIBRARY_VOLUME | {"name": name}, _NAMES),
    st.builds(lambda name: {"name": name, "emptyDir": {}}, _NAMES),
    st.builds(lambda name: {"name": name, "hostPath": {"path": "/usr/local/vgpu", "type": ""}}, _NAMES),
)
_MOUNTS = st.one_of(
    st.just(LIBRARY_MOUNT),
    st.builds(lambda name, path: {"name": name, "mountPath": path}, _NAMES, _PATHS),
    _maybe({"name": _NAMES, "mountPath": _PATHS, "readOnly": st.booleans(), "subPath": st.just("s")}),
)


def _container(quantities: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return _maybe(
        {
            "name": st.just("c"),
            "restartPolicy": st.just("Always"),
            "resources": _maybe({"limits": quantities, "requests": quantities}),
            "volumeMounts": st.lists(_MOUNTS, max_size=3),
        }
    )


def _pod(quantities: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    containers = st.lists(_container(quantities), max_size=3)
    spec = _maybe(
        {
            "schedulerName": st.sampled_from(["", "default-scheduler", "amd-vgpu-scheduler", "volcano"]),
            "nodeName": st.sampled_from(["", "n1"]),
            "containers": containers,
            "initContainers": containers,
            "volumes": st.lists(_VOLUMES, max_size=4, unique_by=lambda volume: volume["name"]),
        }
    )
    return _maybe({"metadata": _UNKNOWN, "spec": spec})


ODD_PODS = _pod(st.builds(lambda amd, other: amd | other, _AMD, _OTHER))
PLAIN_PODS = _pod(_OTHER)
