"""One replica, step by step: the order in which a life goes."""

import base64
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from certs import bundle, secret, tls
from certs.authority import fingerprint
from certs.engine import Engine
from certs.metrics import Metrics
from certs.secret import Stored
from certs.settings import CertSettings, Times
from certs.world import Kind
from kube.client import ConflictError, KubeClient, UnreachableError
from tests.certs.fakes import CONFIGURATION, CONFIGURATION_PATHS, NAMESPACE, SECRET, SECRET_PATH, FakeApi, configuration

START = [Kind.PREPARE, Kind.TRUST, Kind.TRUST, Kind.PROMOTE, Kind.PUBLISH, Kind.LOAD]


class Replica:
    """A replica with clocks that can be set, alone on an API server."""

    def __init__(self, api: FakeApi, name: str = "a") -> None:
        self.api = api
        self.seconds = 0.0
        self.settings = CertSettings(NAMESPACE, SECRET, CONFIGURATION, ("localhost",), replica=name, times=Times())
        self.engine = Engine(
            cast(KubeClient, api),
            self.settings,
            tls.new_context(),
            Metrics(),
            now=lambda: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds),
            monotonic=lambda: self.seconds,
        )

    async def goes_on(self, *, leader: bool = True) -> list[Kind]:
        """Do all that can be done now; return what that was."""
        done: list[Kind] = []
        while (plan := await self.engine.look(leader=leader)).step.kind is not Kind.WAIT:
            await self.engine.act(plan)
            done.append(plan.step.kind)
            assert len(done) < 20
        return done

    async def until(self, seconds: float) -> list[Kind]:
        self.seconds = seconds
        return await self.goes_on()

    @property
    def stored(self) -> Stored:
        return secret.decode(self.api.objects[SECRET_PATH])

    def trusted(self) -> set[str]:
        """What every webhook trusts."""
        found = [
            set(bundle.authorities(one))
            for path in CONFIGURATION_PATHS
            for one in bundle.read(self.api.objects[path]).bundles
        ]
        assert all(one == found[0] for one in found)
        return found[0]


@pytest.fixture
def api() -> FakeApi:
    api = FakeApi()
    for path in CONFIGURATION_PATHS:
        api.put(path, configuration(2))
    return api


async def test_the_first_start_waits_for_nothing(api: FakeApi) -> None:
    assert await Replica(api).goes_on() == START


async def test_without_a_configuration_it_waits_and_says_so(api: FakeApi) -> None:
    del api.objects[CONFIGURATION_PATHS[1]]
    replica = Replica(api)
    assert await replica.goes_on() == [Kind.PREPARE, Kind.TRUST]
    assert (await replica.engine.look(leader=True)).step.reason == "a webhook configuration is not there"
    api.put(CONFIGURATION_PATHS[1], configuration(1))
    assert await replica.goes_on() == START[2:]


async def test_one_that_does_not_lead_only_loads(api: FakeApi) -> None:
    other = Replica(api, "b")
    assert await other.goes_on(leader=False) == []
    await Replica(api, "a").goes_on()
    assert await other.goes_on(leader=False) == [Kind.PUBLISH, Kind.LOAD]
    api.set_bundle(CONFIGURATION_PATHS[0], "")
    assert await other.goes_on(leader=False) == []


async def test_a_certificate_is_renewed_between_60_and_67_percent_of_its_life(api: FakeApi) -> None:
    replica, days = Replica(api), 90 * 86400.0
    await replica.goes_on()
    assert await replica.until(days * 0.6) == []
    assert await replica.until(days * 0.67) == [Kind.ISSUE, Kind.LOAD, Kind.PUBLISH]


async def test_an_authority_changes_with_an_overlap(api: FakeApi) -> None:
    replica = Replica(api)
    await replica.goes_on()
    (old,) = replica.trusted()
    api.objects[SECRET_PATH]["metadata"]["annotations"][secret.ROTATE] = "ca/1"
    assert await replica.goes_on() == [Kind.PREPARE, Kind.TRUST, Kind.TRUST]
    assert replica.stored.accepted == "ca/1"
    both = replica.trusted()
    assert old in both
    assert len(both) == 2
    assert await replica.until(29) == []
    assert await replica.until(30) == [Kind.PROMOTE, Kind.LOAD, Kind.PUBLISH]
    assert replica.trusted() == both
    assert await replica.until(30 + 599) == []
    assert await replica.until(30 + 600) == [Kind.RETIRE, Kind.TRUST, Kind.TRUST]
    assert replica.trusted() == both - {old}


async def test_a2_the_settle_time_begins_anew_when_somebody_changes_a_configuration(api: FakeApi) -> None:
    replica = Replica(api)
    await replica.goes_on()
    api.objects[SECRET_PATH]["metadata"]["annotations"][secret.ROTATE] = "ca/1"
    await replica.goes_on()
    assert await replica.until(25) == []
    content = api.objects[CONFIGURATION_PATHS[0]]["webhooks"][0]["clientConfig"]["caBundle"]
    api.set_bundle(CONFIGURATION_PATHS[0], "")
    api.set_bundle(CONFIGURATION_PATHS[0], content)  # put back before anybody looked
    assert await replica.until(31) == []
    assert await replica.until(60) == []
    assert (await replica.until(61))[0] is Kind.PROMOTE


async def test_an_authority_stays_while_a_replica_serves_a_certificate_of_it(api: FakeApi) -> None:
    first, slow = Replica(api, "a"), Replica(api, "b")
    await first.goes_on()
    await slow.goes_on(leader=False)
    (old,) = first.trusted()
    api.objects[SECRET_PATH]["metadata"]["annotations"][secret.ROTATE] = "ca/1"
    await first.goes_on()
    await first.until(31)
    assert await first.until(1000) == []
    assert old in first.trusted()
    assert await slow.goes_on(leader=False) == [], "it has not seen for itself that every API server trusts it"
    slow.seconds = 30
    assert await slow.goes_on(leader=False) == [Kind.LOAD, Kind.PUBLISH]
    assert await first.goes_on() == [Kind.RETIRE, Kind.TRUST, Kind.TRUST]


async def test_a_replica_that_is_gone_is_waited_for_until_the_absence_time(api: FakeApi) -> None:
    first = Replica(api, "a")
    await first.goes_on()
    await Replica(api, "b").goes_on(leader=False)
    api.objects[SECRET_PATH]["metadata"]["annotations"][secret.ROTATE] = "ca/1"
    await first.goes_on()
    await first.until(31)
    assert await first.until(31 + 3599) == []
    assert await first.until(31 + 3600) == [Kind.FORGET, Kind.RETIRE, Kind.TRUST, Kind.TRUST]


async def test_a_replica_that_writes_meanwhile_makes_the_end_of_an_authority_fail(api: FakeApi) -> None:
    first, late = Replica(api, "a"), Replica(api, "b")
    await first.goes_on()
    beginning = await late.engine.look(leader=False)
    api.objects[SECRET_PATH]["metadata"]["annotations"][secret.ROTATE] = "ca/1"
    await first.goes_on()
    await first.until(31)
    first.seconds = 1000
    retiring = await first.engine.look(leader=True)
    assert (beginning.step.kind, retiring.step.kind) == (Kind.PUBLISH, Kind.RETIRE)
    with pytest.raises(ConflictError):
        await late.engine.act(beginning)
    assert await late.goes_on(leader=False) == [Kind.PUBLISH, Kind.LOAD]
    with pytest.raises(ConflictError):
        await first.engine.act(retiring)


async def test_a_replica_that_ends_says_so(api: FakeApi) -> None:
    replica = Replica(api)
    await replica.goes_on()
    assert set(replica.stored.replicas) == {"a"}
    await replica.engine.withdraw()
    assert replica.stored.replicas == {}


@pytest.mark.parametrize("lose", ["write", "answer"])
@pytest.mark.parametrize("when", range(5))
async def test_a_crash_at_any_write_leaves_what_another_completes(api: FakeApi, when: int, lose: str) -> None:
    replica = Replica(api)
    for _ in range(when):
        await replica.engine.act(await replica.engine.look(leader=True))
    api.lose = lose
    with pytest.raises(UnreachableError):
        await replica.engine.act(await replica.engine.look(leader=True))
    other = Replica(api, "b")
    await other.goes_on()
    assert other.engine.own.served is not None
    assert other.trusted() == {other.engine.own.served.authority}


async def test_the_key_of_a_replaced_authority_is_gone(api: FakeApi) -> None:
    replica = Replica(api)
    await replica.goes_on()
    old = replica.stored.authority
    api.objects[SECRET_PATH]["metadata"]["annotations"][secret.ROTATE] = "ca/1"
    await replica.goes_on()
    await replica.until(31)
    assert old
    assert [fingerprint(one) for one in replica.stored.previous] == [fingerprint(old.certificate)]
    assert all(base64.b64decode(value) != old.key for value in api.objects[SECRET_PATH]["data"].values())


async def test_a_replica_that_cannot_load_is_not_struck_off_again_and_again(api: FakeApi) -> None:
    first, stuck = Replica(api, "a"), Replica(api, "b")
    await first.goes_on()
    await stuck.goes_on(leader=False)
    await first.until(90 * 86400 * 0.67)
    assert (await stuck.engine.look(leader=False)).step.kind is Kind.LOAD  # and never does
    said = first.stored.replicas["b"]
    assert await first.until(first.seconds + 3600) == [Kind.FORGET]
    item = api.objects[SECRET_PATH]
    stored = replace(first.stored, replicas={**first.stored.replicas, "b": said})
    api.put(SECRET_PATH, secret.encode(item, stored, namespace=NAMESPACE, name=SECRET))
    assert await first.goes_on() == []
