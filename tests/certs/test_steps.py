"""The certificates of two replicas through crashes, jumps of the clock, and edits by others, as a property."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import cast

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from certs import bundle, secret, tls
from certs.authority import expiry, fingerprint, new_authority
from certs.engine import Engine
from certs.metrics import Metrics
from certs.secret import Stored
from certs.settings import CertSettings, Times
from certs.world import Kind, target, wanted_bundle
from kube.client import KubeClient, KubeError
from tests.certs.fakes import (
    CONFIGURATION,
    CONFIGURATION_PATHS,
    NAMESPACE,
    SECRET,
    SECRET_PATH,
    configuration,
    finish,
)
from tests.certs.model import Actor, Model, Version

NAMES = ("webhook.amd-vgpu.svc",)
TIMES = Times(
    ca_life=timedelta(days=300),
    cert_life=timedelta(days=30),
    settle=timedelta(seconds=30),
    retention=timedelta(seconds=60),
    absence=timedelta(seconds=600),
)
LAG = 29.0
"""Within so many seconds every API server has learnt of a change: less than the settle time."""
PHASES = 8
MOST_STEPS = 40
ACTORS = st.integers(0, 1)
FOREIGN = new_authority(now=datetime(2026, 1, 1, tzinfo=UTC), life=timedelta(days=3000), name="somebody")


class CertificateMachine(RuleBasedStateMachine):
    """Two replicas that both believe to be the leader, and somebody who edits what they keep."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.model.api.on_write = lambda path: self.note(path, by_us=True)

    @initialize(old=st.booleans())
    def begin(self, old: bool) -> None:
        """An empty namespace, or one of which only the configurations were left."""
        for path, webhooks in zip(CONFIGURATION_PATHS, (2, 1), strict=True):
            self.model.api.put(path, configuration(webhooks))
            self.note(path, by_us=False)
        for path in CONFIGURATION_PATHS if old else ():
            self.edit(path, FOREIGN.certificate)
        self.model.actors = [self.actor("replica-a"), self.actor("replica-b")]

    def actor(self, replica: str) -> Actor:
        certs = CertSettings(NAMESPACE, SECRET, CONFIGURATION, NAMES, replica=replica, times=TIMES)
        client = cast(KubeClient, self.model.api)
        clock = self.model.clock
        context, metrics = tls.new_context(), Metrics()
        engine = Engine(client, certs, context, metrics, now=lambda: clock.wall, monotonic=lambda: clock.monotonic)
        return Actor(engine, looked=clock.monotonic)

    # What replicas do

    @rule(index=ACTORS)
    def look(self, index: int) -> None:
        actor = self.model.actors[index]
        actor.plan = finish(actor.engine.look(leader=True))
        actor.looked = self.model.clock.monotonic

    @rule(index=ACTORS, lose=st.sampled_from(["", "", "", "write", "answer"]))
    def act(self, index: int, lose: str) -> None:
        actor = self.model.actors[index]
        plan, actor.plan = actor.plan, None
        if plan is None:
            return
        self.model.api.lose = lose
        with suppress(KubeError):
            finish(actor.engine.act(plan))
        self.model.api.lose = ""

    @rule(index=ACTORS, steps=st.integers(1, 8))
    def go_on(self, index: int, steps: int) -> None:
        for _ in range(steps):
            self.look(index)
            self.act(index, "")

    @rule(index=ACTORS, looks=st.booleans())
    def rotate_alone(self, index: int, looks: bool) -> None:
        """One replica goes through a whole change of authority, while the other has at most begun to do something."""
        if looks:
            self.look(1 - index)
        self.ask("ca/3")
        for seconds in (31.0, 61.0, 0.5):
            self.go_on(index, 8)
            self.what_is_served_is_trusted()
            self.wait(seconds)
        self.go_on(index, 8)

    @rule(index=ACTORS, same=st.booleans())
    def crash(self, index: int, same: bool) -> None:
        """Begin anew, under the same name as a restarted container does, or as another pod."""
        self.model.pods += 1
        name = self.model.actors[index].engine.own.replica if same else f"replica-{self.model.pods}"
        self.model.actors[index] = self.actor(name)

    @rule(seconds=st.sampled_from([0.5, 5.0, 31.0, 61.0, 601.0]))
    def wait(self, seconds: float) -> None:
        """Time goes by. A replica that was about to write is not paused for longer than others wait for it."""
        for actor in self.model.actors:
            said = self.stored().replicas.get(actor.engine.own.replica)
            misrepresented = actor.engine.own.served != said  # what it sees within the retention time
            silent = self.model.clock.monotonic + seconds - actor.looked >= TIMES.absence.total_seconds()
            if (misrepresented and seconds >= TIMES.settle.total_seconds()) or silent:
                self.settle_down()
            if silent:  # replicas look more often than that, and take what they see when it has settled
                self.pass_time(31.0)
                self.settle_down()
        if seconds > TIMES.retention.total_seconds():
            for actor in self.model.actors:
                actor.plan = None
        self.pass_time(seconds)

    def pass_time(self, seconds: float) -> None:
        self.model.clock.monotonic += seconds
        self.model.clock.wall += timedelta(seconds=seconds)

    @rule(hours=st.sampled_from([-3.0, -0.5, 1.0, 24 * 21.0, 24 * 220.0, 24 * 400.0]))
    def jump(self, hours: float) -> None:
        self.model.clock.wall += timedelta(hours=hours)

    # What others do

    @rule(kind=st.sampled_from(["ca/1", "ca/2", "certificate/1", "nonsense"]))
    def ask(self, kind: str) -> None:
        found = self.model.api.objects.get(SECRET_PATH)
        if found:
            notes = {**(found["metadata"].get("annotations") or {}), secret.ROTATE: kind}
            self.model.api.put(SECRET_PATH, {**found, "metadata": {**found["metadata"], "annotations": notes}})

    @rule(which=st.integers(0, 1), content=st.sampled_from([b"", b"garbage", FOREIGN.certificate, b"more"]))
    def edit_bundle(self, which: int, content: bytes) -> None:
        path = CONFIGURATION_PATHS[which]
        if content == b"more":
            content = base64.b64decode(self.model.api.objects[path]["webhooks"][0]["clientConfig"].get("caBundle", ""))
            content += FOREIGN.certificate
        self.edit(path, content)

    def edit(self, path: str, content: bytes) -> None:
        with self.by_somebody():
            self.model.api.set_bundle(path, base64.b64encode(content).decode())
            self.note(path, by_us=False)

    @precondition(lambda self: SECRET_PATH in self.model.api.objects)
    @rule()
    def delete_secret(self) -> None:
        with self.by_somebody():
            del self.model.api.objects[SECRET_PATH]

    @precondition(lambda self: SECRET_PATH in self.model.api.objects)
    @rule(
        key=st.sampled_from(["ca.crt", "ca.key", "tls.crt", "tls.key", "next-ca.key", "previous-ca.crt"]),
        value=st.sampled_from(["", "AAAA", None]),
    )
    def break_secret(self, key: str, value: str | None) -> None:
        found = self.model.api.objects[SECRET_PATH]
        data = {**found["data"], key: value or ""}
        if value is None:
            del data[key]
        with self.by_somebody():
            self.model.api.put(SECRET_PATH, {**found, "data": data})

    @precondition(lambda self: SECRET_PATH in self.model.api.objects)
    @rule()
    def keep_backup(self) -> None:
        self.backup = dict(self.model.api.objects[SECRET_PATH])

    @precondition(lambda self: hasattr(self, "backup") and SECRET_PATH in self.model.api.objects)
    @rule(only_data=st.booleans())
    def restore_backup(self, only_data: bool) -> None:
        found = self.model.api.objects[SECRET_PATH]
        notes = (found if only_data else self.backup)["metadata"].get("annotations")
        with self.by_somebody():
            self.model.api.put(SECRET_PATH, {**self.backup, "metadata": {"annotations": notes}})

    # What must hold

    @invariant()
    def what_is_served_is_trusted(self) -> None:
        """Whatever of ours an API server may still have in mind trusts what any replica serves."""
        if all(actor.engine.own.served is None for actor in self.model.actors):
            self.model.served_since = None
            return
        if self.model.served_since is None:
            self.model.served_since = self.model.clock.monotonic
        for actor in self.model.actors:
            served = actor.engine.own.served
            if served is None or served.authority in self.model.lost:
                continue
            for path in CONFIGURATION_PATHS:
                for content in self.in_mind(path):
                    assert served.authority in content, f"{actor.engine.own.replica} {path}"

    def in_mind(self, path: str) -> Iterator[set[str]]:
        """What a webhook trusts in the mind of any API server, but for what somebody else wrote or has wiped out."""
        earliest = max(self.model.clock.monotonic - LAG, self.model.served_since or 0.0)
        for version in self.model.history[path]:
            if version.by_us and version.until > earliest:
                contents = (set(bundle.authorities(content)) for content in version.bundles)
                yield from (content for content in contents if not content & self.model.lost)

    def teardown(self) -> None:
        """Left alone, the replicas reach a state in which nothing is left to do."""
        for _ in range(PHASES):
            self.settle_down()
            self.wait(601.0)
        self.settle_down()
        self.assert_done()

    def settle_down(self) -> None:
        """Let the replicas do whatever needs no waiting."""
        for _ in range(MOST_STEPS):
            busy = False
            for index, actor in enumerate(self.model.actors):
                self.look(index)
                busy |= actor.plan is not None and actor.plan.step.kind is not Kind.WAIT
                self.act(index, "")
                self.what_is_served_is_trusted()
            if not busy:
                return
        raise AssertionError("they never rest")

    def assert_done(self) -> None:
        stored = self.stored()
        wanted = target(stored, NAMES)
        assert stored.authority
        assert stored.serving
        assert wanted is not None
        assert (stored.next, stored.previous) == (None, ())
        # One that crashed after it took this certificate is noticed when it does not take the next.
        assert set(stored.replicas.values()) == {wanted}
        assert {actor.engine.own.replica for actor in self.model.actors} <= set(stored.replicas)
        assert expiry(stored.serving.certificate) > self.model.clock.wall
        for path in CONFIGURATION_PATHS:
            content = bundle.read(self.model.api.objects[path])
            assert all(one == wanted_bundle(stored) for one in content.bundles)
        for actor in self.model.actors:
            assert finish(actor.engine.look(leader=True)).step.kind is Kind.WAIT

    # The model itself

    def stored(self) -> Stored:
        return secret.decode(self.model.api.objects.get(SECRET_PATH) or {})

    def note(self, path: str, *, by_us: bool) -> None:
        """Note a change of a configuration."""
        if path not in CONFIGURATION_PATHS:
            return
        versions = self.model.history.setdefault(path, [])
        if versions:
            versions[-1].until = self.model.clock.monotonic
        versions.append(Version(bundle.read(self.model.api.objects[path]).bundles, by_us))

    @contextmanager
    def by_somebody(self) -> Iterator[None]:
        """Note which authorities somebody took out of every object: nobody can know of them any more."""
        before = self.known()
        yield
        self.model.lost |= before - self.known()

    def known(self) -> set[str]:
        known = set(bundle.authorities(wanted_bundle(self.stored())))
        for path in CONFIGURATION_PATHS:
            for content in bundle.read(self.model.api.objects[path]).bundles:
                known |= set(bundle.authorities(content))
        return known


TestCertificates = CertificateMachine.TestCase
TestCertificates.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.reuse, Phase.generate, Phase.shrink],
)


def test_fingerprints_tell_authorities_apart() -> None:
    other = new_authority(now=datetime(2026, 1, 1, tzinfo=UTC), life=timedelta(days=3000), name="somebody")
    assert fingerprint(other.certificate) != fingerprint(FOREIGN.certificate)
