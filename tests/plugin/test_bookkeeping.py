from plugin.bookkeeping import disagreements, judge, still_listed
from plugin.ledger import Books, Entry
from plugin.podresources import KubeletShare
from protocol.pods import PodRef
from protocol.survivors import Part, Survivor

GPU = "GPU-8e1bb56457addd1b"


def entry(name: str, uid: str = "", ids: str = "x-1") -> Entry:
    part = {GPU: Part(1, (0, 1))}
    return Entry(PodRef("ml", name, uid or f"uid-{name}"), part, {"main": frozenset(ids.split(","))})


def books(*entries: Entry, **faulty: str) -> Books:
    return Books({one.pod.uid: one for one in entries}, faulty)


def share(pod: str, ids: str = "x-1", container: str = "main") -> KubeletShare:
    return KubeletShare("ml", pod, container, frozenset(ids.split(",")))


def test_a_live_pods_entry_is_left_alone_whatever_runs() -> None:
    for running in ([], ["uid-a"]):
        verdict = judge(books(entry("a")), {"uid-a": entry("a")}, running)
        assert (verdict.lost, verdict.survivors, verdict.ended) == ((), (), ())


def test_a_pod_that_is_over_survives_while_it_has_processes() -> None:
    verdict = judge(books(entry("a"), entry("b")), {}, ["uid-a", "uid-other"])
    assert verdict.survivors == (Survivor(entry("a").pod, entry("a").parts),)
    assert verdict.ended == ("uid-b",)


def test_a_lost_entry_comes_back_from_the_pod_and_only_if_it_was_served() -> None:
    live = {"uid-a": entry("a"), "uid-b": None, "uid-c": entry("c")}
    verdict = judge(books(entry("a"), **{"uid-c": "damaged"}), live, [])
    assert verdict.lost == (entry("c"),)
    assert not verdict.ended


def test_nobody_knows_what_a_survivor_with_a_damaged_entry_holds() -> None:
    verdict = judge(books(**{"uid-x": "damaged", "uid-y": "damaged"}), {}, ["uid-x"])
    assert verdict.survivors == (Survivor(PodRef("unknown", "unknown", "uid-x"), None),)
    assert verdict.ended == ("uid-y",)


def test_the_kubelet_lists_the_old_pod_or_the_new_one_of_its_name() -> None:
    """The PodResources API has names and no uids; the devices tell which of two pods of a name it is."""
    old, new = entry("web-0", "uid-old", ids="x-1"), entry("web-0", "uid-new", ids="x-2")
    assert still_listed([old, new], [share("web-0", "x-1"), share("other", "x-2")]) == {"uid-old"}
    assert still_listed([old, new], [share("web-0", "x-2")]) == {"uid-new"}
    assert still_listed([old], [share("web-0", "x-1", container="side")]) == frozenset()


def test_c8_a_share_that_the_kubelet_gave_to_another_container_is_told() -> None:
    complaints = disagreements(books(entry("a", ids="x-1,x-2")), [share("foreign", "x-2,x-1")])
    assert complaints == (
        "container ml/foreign/main has the GPU devices that were meant for ml/a/main, and so its share",
    )


def test_devices_that_nobody_was_answered_for_are_told() -> None:
    (complaint,) = disagreements(books(), [share("stranger")])
    assert complaint.startswith("container ml/stranger/main has GPU devices of the kubelet, and was never answered for")


def test_nothing_is_said_of_a_pod_whose_devices_are_unknown() -> None:
    restored = Entry(PodRef("ml", "a", "uid-a"), {}, {})
    assert disagreements(books(restored), [share("a")]) == ()


def test_c9_containers_that_take_over_an_init_containers_devices_are_fine() -> None:
    init = Entry(PodRef("ml", "a", "uid-a"), {}, {"prepare": frozenset({"x-1", "x-2"}), "main": frozenset({"x-1"})})
    shares = [share("a", "x-1", container="main"), share("a", "x-1,x-2", container="prepare")]
    assert disagreements(books(init), shares) == ()
