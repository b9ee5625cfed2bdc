"""Odd pods: everything that a rule looks at may be absent, null, a user's own, or ours already."""

import json
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


_ENV = st.lists(
    _maybe(
        {
            "name": st.sampled_from(["LD_AUDIT", "GLIBC_TUNABLES", "HSA_CU_MASK", "HIP_DEVICE_MEMORY_LIMIT_1", "A"]),
            "value": st.sampled_from(["", "x", "/usr/local/vgpu/libamvgpu.so", "glibc.rtld.optional_static_tls=1"]),
            "valueFrom": st.just({"fieldRef": {}}),
        }
    ),
    max_size=2,
)
_NOTES = st.dictionaries(
    st.sampled_from(
        ["a", "hami.io/vgpu-node", "hami.io/gpu-scheduler-policy", "amd.com/gpu-index", "amd.com/use-gputype"]
    ),
    st.sampled_from(["", "binpack", "0,1", "x\ud800"]),
    max_size=1,
)
_JUNK: st.SearchStrategy[Any] = st.sampled_from(
    [None, 0, 1.5, True, "x", [], [None], {}, {"": []}, [[]], "amd.com/gpu"]
)


def _container(quantities: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return _maybe(
        {
            "name": st.just("c"),
            "restartPolicy": st.just("Always"),
            "resources": _maybe({"limits": quantities, "requests": quantities}),
            "volumeMounts": st.lists(_MOUNTS, max_size=3),
            "env": _ENV,
            "envFrom": st.just([{}]),
            "securityContext": _maybe({"privileged": st.booleans()}),
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
            "hostPID": st.booleans(),
            "volumes": st.lists(_VOLUMES, max_size=4, unique_by=lambda volume: volume["name"]),
        }
    )
    metadata = st.builds(lambda unknown, notes: unknown | {"annotations": notes}, _UNKNOWN, st.none() | _NOTES)
    return _maybe({"metadata": metadata, "spec": spec})


ODD_PODS = _pod(st.builds(lambda amd, other: amd | other, _AMD, _OTHER))
PLAIN_PODS = _pod(_OTHER)


def _mostly(usual: Any, odd: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return something usual, and now and then something odd: were every field as likely odd, no pod would be right."""
    return st.integers(0, 19).flatmap(lambda number: odd if number == 0 else st.just(usual))


def _right(most: int) -> st.SearchStrategy[Any]:
    return _mostly("1", _VALUES) | st.integers(1, most).map(str)


_RIGHT_LIMITS = st.fixed_dictionaries(
    {}, optional={"amd.com/gpu": _right(64), "amd.com/gpumem": _right(2**24), "amd.com/gpucores": _right(100)}
).flatmap(lambda limits: _mostly(limits, _AMD))
_OWN_MOUNTS = st.lists(st.sampled_from([LIBRARY_MOUNT, {"name": "data", "mountPath": "/data"}]), max_size=2)
_OWN_ENV = st.lists(
    st.sampled_from(
        [
            {"name": "LD_AUDIT", "value": "/x.so"},
            {"name": "LD_AUDIT"},
            {"name": "GLIBC_TUNABLES", "value": "glibc.malloc.check=3"},
            {"name": "A", "valueFrom": {"fieldRef": {}}},
        ]
    ),
    max_size=3,
)


def _usual_container(limits: dict[str, Any], same: bool, mounts: Any, env: Any) -> dict[str, Any]:
    resources = {"limits": limits, **({"requests": dict(limits)} if same else {})}
    return {"name": "c", "resources": resources, "volumeMounts": mounts, "env": env}


_USUAL_CONTAINERS = st.lists(
    st.builds(
        _usual_container,
        _RIGHT_LIMITS,
        st.booleans(),
        _OWN_MOUNTS.flatmap(lambda mounts: _mostly(mounts, st.lists(_MOUNTS, max_size=2))),
        _OWN_ENV.flatmap(lambda env: _mostly(env, _ENV)),
    ),
    min_size=1,
    max_size=3,
)
# Through JSON, so that no two of its places are one object.
LIKELY_PODS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "metadata": _mostly({"generateName": "x-"}, st.builds(lambda notes: {"annotations": notes}, _NOTES)),
        "spec": st.fixed_dictionaries(
            {
                "containers": _USUAL_CONTAINERS,
                "volumes": st.just([LIBRARY_VOLUME])
                | st.lists(_VOLUMES, max_size=3, unique_by=lambda one: one["name"]),
            },
            optional={
                "initContainers": st.none() | _USUAL_CONTAINERS,
                "schedulerName": _mostly("default-scheduler", st.sampled_from(["", "volcano"])),
                "newField": st.just({"a/b~c": [None]}),
            },
        ),
    }
).map(lambda manifest: json.loads(json.dumps(manifest)))


def _spoilt(manifest: dict[str, Any], way: list[int], junk: Any) -> dict[str, Any]:
    """Put something else in the place to which a way of choices leads."""
    place: Any = manifest
    for step in way:
        keys: list[Any] = sorted(place) if isinstance(place, dict) else list(range(len(place)))
        key = keys[step % len(keys)]
        if not isinstance(place[key], dict | list) or not place[key]:
            break
        place = place[key]
    else:
        keys = sorted(place) if isinstance(place, dict) else list(range(len(place)))
        key = keys[0]
    place[key] = junk
    return manifest


SPOILT_PODS = st.builds(
    _spoilt,
    LIKELY_PODS,
    st.lists(st.integers(0, 20), min_size=1, max_size=8),
    _JUNK,
)
