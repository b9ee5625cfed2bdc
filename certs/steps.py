"""What to do next about the certificates, decided from what the API server holds. Pure.

At every moment the certificate that each replica serves verifies against the CA bundles in force. Therefore

- a serving certificate is made only when every webhook has trusted its authority for the settle time,
- a replica serves only what the Secret holds, and says so in the Secret before it serves the first and after it serves
  another, so that an authority is never dropped while it serves a certificate of it,
- an authority leaves the bundles only after it has left the Secret, and it leaves the Secret by a write that fails when
  a replica wrote there meanwhile.

Each step is one write that fails when its object changed, so any replica can do it, stop after it, and leave the rest
to another. What takes time is measured by each replica from when it first saw it, never by comparing clocks.
"""

from dataclasses import replace
from datetime import datetime

from certs import bundle
from certs.authority import fingerprint
from certs.rotation import rotation_step
from certs.secret import Stored
from certs.settings import Times
from certs.world import NO_HURRY, Ages, Kind, Own, Step, World, target, wanted_bundle


def next_step(world: World, own: Own, ages: Ages, times: Times, now: datetime, *, leader: bool) -> Step:
    """Return this replica's next step; only the leader does what one replica needs to do for all.

    That there is one leader saves work; two who both believe to be it do no harm.
    """
    unsettled = _unsettled(world, own, ages, times, now)
    step = _own_step(world, own, unsettled)
    if step is None and leader:
        step = _secret_lost(world) or _drift(world) or rotation_step(world, own, ages, times, now)
    step = step or Step(Kind.WAIT, world.obstacle)
    if step.kind is Kind.WAIT and unsettled > 0:
        return replace(step, seconds=min(step.seconds, unsettled))
    return step


def _own_step(world: World, own: Own, unsettled: float) -> Step | None:
    stored = world.stored
    if stored is None:
        return None
    wanted = target(stored, own.names)
    said = stored.replicas.get(own.replica)
    if wanted is not None and wanted != own.served and unsettled <= 0:
        if own.served is None and said != wanted:
            return Step(Kind.PUBLISH, "before the first certificate is served", served=wanted)
        return Step(Kind.LOAD, "the Secret holds another certificate")
    if own.served is not None and said != own.served:
        return Step(Kind.PUBLISH, "the Secret does not say what is served", served=own.served)
    return None


def _unsettled(world: World, own: Own, ages: Ages, times: Times, now: datetime) -> float:
    """Return for how many seconds the stored certificate must not be served yet."""
    authority = world.stored.authority if world.stored else None
    if authority is None or not world.trusts(authority.certificate):
        return NO_HURRY
    name = fingerprint(authority.certificate)
    if own.served is None or own.served.authority == name or (own.expires and own.expires <= now):
        return 0.0
    # Whoever put it into force has waited already, and so has this replica if it has seen that. It has not when
    # somebody else wrote the Secret; then what is served now is the safe choice.
    return times.settle.total_seconds() - ages.trust.get(name, 0.0)


def _secret_lost(world: World) -> Step | None:
    stored = world.stored
    if stored is not None and (stored.authority or stored.next):
        return None
    kept = tuple(_unknown(world).values())
    return Step(Kind.PREPARE, "the Secret holds no authority", authorities=kept)


def _drift(world: World) -> Step | None:
    stored = world.stored
    if stored is None:
        return None
    unknown = _unknown(world)
    if unknown:
        return Step(Kind.ADOPT, "trusted, and the Secret does not know them", authorities=tuple(unknown.values()))
    wanted = wanted_bundle(stored)
    for index, configuration in enumerate(world.configurations):
        if configuration and any(content != wanted for content in configuration.bundles):
            return Step(Kind.TRUST, "its caBundle differs", configuration=index, content=wanted)
    return None


def _unknown(world: World) -> dict[str, bytes]:
    """Return the authorities in force that the Secret does not know.

    A replica may serve a certificate of theirs, for the Secret may have been deleted, or replaced by an older one. So
    they take the way of all that were replaced, and leave when it is certain that nobody needs them.
    """
    stored = world.stored or Stored()
    known = {*bundle.authorities(wanted_bundle(stored)), *stored.retired}
    return {name: certificate for name, certificate in world.trusted().items() if name not in known}
