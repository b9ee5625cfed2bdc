"""Loads: traces and manifests, and what is wrong with them."""

import json

import pytest

from simulate.load import LoadError, read_pods


def test_a_trace_has_a_pod_in_each_line() -> None:
    text = "name, arrival, duration, gpu, gpumem, gpucores\nlate, 9.5, 60, 1, 1024, 10\nearly, 1, , 2, , \n"
    early, late = read_pods(text, is_trace=True)
    assert (early.at, early.duration) == (1.0, None)
    assert early.pod["spec"]["containers"][0]["resources"]["limits"] == {"amd.com/gpu": "2"}
    assert (late.at, late.duration) == (9.5, 60.0)
    assert late.pod["metadata"]["name"] == "late"
    assert late.pod["spec"]["containers"][0]["resources"]["limits"] == {
        "amd.com/gpu": "1",
        "amd.com/gpumem": "1024",
        "amd.com/gpucores": "10",
    }


def test_a_line_can_stand_for_several_pods_and_carry_wishes() -> None:
    text = "count,gpu,amd.com/use-gputype,hami.io/gpu-scheduler-policy\n3,1,MI210,spread\n"
    found = read_pods(text, is_trace=True)
    assert [one.pod["metadata"]["name"] for one in found] == ["line-2-0", "line-2-1", "line-2-2"]
    assert len({one.pod["metadata"]["uid"] for one in found}) == 3
    assert found[0].pod["metadata"]["annotations"] == {
        "amd.com/use-gputype": "MI210",
        "hami.io/gpu-scheduler-policy": "spread",
    }


def test_manifests_of_pods_and_workloads() -> None:
    spec = {"containers": [{"name": "c", "resources": {"limits": {"amd.com/gpu": 1}}}]}
    pod = {"kind": "Pod", "metadata": {"name": "one", "namespace": "team"}, "spec": spec}
    template = {"metadata": {"annotations": {"a": "1"}}, "spec": spec}
    deployment = {"kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 2, "template": template}}
    job = {"kind": "Job", "metadata": {"name": "run"}, "spec": {"parallelism": 3, "template": template}}
    service = {"kind": "Service", "metadata": {"name": "web"}, "spec": {}}
    text = "\n---\n".join(json.dumps(item) for item in (pod, {"kind": "List", "items": [deployment, job]}, service))
    found = read_pods(text, is_trace=False)
    names = [(one.pod["metadata"]["namespace"], one.pod["metadata"]["name"]) for one in found]
    assert names == [
        ("team", "one"),
        *(("default", f"web-{n}") for n in range(2)),
        *(("default", f"run-{n}") for n in range(3)),
    ]
    assert found[1].pod["metadata"]["annotations"] == {"a": "1"}
    assert all((one.at, one.duration) == (0.0, None) for one in found)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "line 1: column names"),
        ("name,gpus\na,1\n", "line 1: column gpus: columns of a trace are name, arrival"),
        ("name,gpu\n", "there is no pod"),
        ("name,gpu\na,1,2\n", "line 2: must have 2 fields"),
        ("name,gpu\na\n", "line 2: must have 2 fields"),
        ("name,arrival\na,soon\n", "line 2: arrival: 'soon': must be a number of seconds"),
        ("name,arrival\na,nan\n", "line 2: arrival: 'nan'"),
        ("name,duration\na,-1\n", "line 2: duration: '-1'"),
        ("name,count\na,0\n", "line 2: count: '0': must be an integer from 1"),
    ],
)
def test_what_is_wrong_in_a_trace_is_named(text: str, words: str) -> None:
    with pytest.raises(LoadError) as error:
        read_pods(text, is_trace=True)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "there is no pod"),
        ("just text", "must be an object such as kubectl prints"),
        ("{", "neither YAML nor JSON"),
        ('{"kind": "Service", "metadata": {"name": "a"}}', "there is no pod"),
        (
            '{"kind": "Job", "metadata": {"name": "a"}, "spec": {"parallelism": "x", "template": {"spec": {}}}}',
            "Job a: replicas: 'x': must be an integer",
        ),
    ],
)
def test_what_is_wrong_in_manifests_is_named(text: str, words: str) -> None:
    with pytest.raises(LoadError) as error:
        read_pods(text, is_trace=False)
    assert words in str(error.value)
