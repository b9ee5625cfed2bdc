"""One replica's part: looking at what the API server holds, and carrying out one step at a time."""

import logging
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from certs import bundle, change, secret, tls
from certs.authority import expiry
from certs.metrics import Metrics
from certs.observations import Observations
from certs.secret import Stored
from certs.settings import CertSettings
from certs.steps import next_step
from certs.world import Kind, Own, Step, World, target
from kube import paths
from kube.client import Json, KubeClient, NotFoundError

log = logging.getLogger(__name__)


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Plan:
    """A step, and the objects from which it was decided: it is only done as long as nobody changes them."""

    step: Step
    world: World
    secret: Json | None
    configurations: tuple[Json | None, ...]


class Engine:
    """Steps of one replica. `look` and `act` by turns; a step that fails is decided anew.

    Args:
        client: the API server.
        settings: see CertSettings.
        context: the server's TLS context, which certificates are loaded into.
        metrics: are told of everything.
        now: the wall clock.
        monotonic: the clock that waiting is measured with.
    """

    def __init__(
        self,
        client: KubeClient,
        settings: CertSettings,
        context: ssl.SSLContext,
        metrics: Metrics,
        *,
        now: Callable[[], datetime] = _utc_now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._settings = settings
        self._context = context
        self._metrics = metrics
        self._now = now
        self._monotonic = monotonic
        self._observations = Observations()
        self._secret_path = paths.named(paths.secrets(settings.namespace), settings.secret)
        self._configuration_paths = tuple(
            paths.named(collection, settings.configuration)
            for collection in (paths.MUTATING_WEBHOOKS, paths.VALIDATING_WEBHOOKS)
        )
        self.own = Own(settings.replica, settings.names)

    async def look(self, *, leader: bool) -> Plan:
        """Read everything and decide.

        Raises:
            KubeError: the API server refused or could not be asked.
        """
        # In this order: a CA bundle is then computed from a Secret that is at least as new as the configuration which
        # it replaces, so a slow replica cannot take away what another has meanwhile added.
        configurations = tuple([await self._read(path) for path in self._configuration_paths])
        found = await self._read(self._secret_path)
        world = World(
            secret.decode(found) if found else None, tuple(bundle.read(one) if one else None for one in configurations)
        )
        self._metrics.stored(world.stored)
        ages = self._observations.look(world, self.own, self._monotonic())
        step = next_step(world, self.own, ages, self._settings.times, self._now(), leader=leader)
        return Plan(step, world, found, configurations)

    async def act(self, plan: Plan) -> None:
        """Carry out a plan's step; nothing happens when there is only to wait.

        Raises:
            ConflictError: somebody changed the object since `look`; nothing was done.
            KubeError: the API server refused or could not be asked; whether it was done is unknown.
            ssl.SSLError: the certificate cannot be served; what is served stays.
        """
        step = plan.step
        if step.kind is Kind.WAIT:
            return
        if step.kind is Kind.LOAD:
            self._load(plan.world.stored or Stored())
        elif step.kind is Kind.TRUST:
            await self._trust(plan)
        else:
            name = f"{self._settings.secret}-ca"
            stored = change.apply(step, plan.world, self.own, self._settings.times, self._now(), name=name)
            await self._write(plan.secret, stored)
        self._observations.forget(step.replicas)
        log.info("%s: %s", step.kind.name.lower(), step.reason)
        self._metrics.done(step.kind)

    async def withdraw(self) -> None:
        """Say that this replica serves nothing any more. Call it when that is so.

        Raises:
            KubeError: the API server refused or could not be asked, or somebody changed the Secret.
        """
        found = await self._read(self._secret_path)
        stored = secret.decode(found) if found else Stored()
        if found and self._settings.replica in stored.replicas:
            await self._write(found, change.without(stored, self._settings.replica))

    def _load(self, stored: Stored) -> None:
        served = target(stored, self._settings.names)
        if stored.serving is None or served is None:
            raise ValueError("there is no certificate to load")
        tls.load(self._context, stored.serving)
        self.own = replace(self.own, served=served, expires=expiry(stored.serving.certificate))
        self._metrics.loaded(stored.serving.certificate)

    async def _trust(self, plan: Plan) -> None:
        index = plan.step.configuration
        found = plan.configurations[index]
        if found is None:
            raise ValueError("there is no configuration to write")
        await self._client.replace(self._configuration_paths[index], bundle.with_bundle(found, plan.step.content))

    async def _write(self, found: Json | None, stored: Stored) -> None:
        body = secret.encode(found, stored, namespace=self._settings.namespace, name=self._settings.secret)
        if found is None:
            await self._client.create(paths.secrets(self._settings.namespace), body)
        else:
            await self._client.replace(self._secret_path, body)

    async def _read(self, path: str) -> Json | None:
        try:
            return await self._client.get(path)
        except NotFoundError:
            return None
