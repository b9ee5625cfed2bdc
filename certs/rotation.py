"""The turns of certificates and authorities: renewal in time, on request, and the end of what was replaced. Pure."""

from datetime import datetime

from certs.authority import expiry, fingerprint, is_due, renewal_time
from certs.secret import ROTATE_AUTHORITY, Stored
from certs.settings import Times
from certs.world import NO_HURRY, Ages, Kind, Own, Step, World, target


def rotation_step(world: World, own: Own, ages: Ages, times: Times, now: datetime) -> Step:
    """Return the leader's next step for a world in which the bundles are as they should be."""
    stored = world.stored or Stored()
    if world.obstacle:
        return Step(Kind.WAIT, world.obstacle)
    if stored.next is not None:
        if expiry(stored.next.certificate) <= now:
            return Step(Kind.PREPARE, "the next authority has expired before its turn")
        left = times.settle.total_seconds() - ages.trust.get(fingerprint(stored.next.certificate), 0.0)
        # Nobody can serve anything yet that an API server trusts.
        if left <= 0 or not (stored.authority or stored.previous):
            return Step(Kind.PROMOTE, "every webhook trusts it")
    else:
        left = NO_HURRY
    return (
        _renewal(stored, own, now)
        or _retirement(stored, own, ages, times)
        or Step(Kind.WAIT, "", seconds=max(0.0, min(left, _time_left(stored, own, ages, times, now))))
    )


def _renewal(stored: Stored, own: Own, now: datetime) -> Step | None:
    if stored.authority is None:
        return None
    if expiry(stored.authority.certificate) <= now:
        # Nothing can be issued with it any more, and nothing that it issued is of use to anybody.
        return Step(Kind.PREPARE, "the authority has expired") if stored.next is None else None
    reason = _reason_to_issue(stored, own, now)
    if reason:
        return Step(Kind.ISSUE, reason)
    if stored.next is None and not stored.previous:  # one change of authority at a time
        if stored.request.startswith(ROTATE_AUTHORITY):
            return Step(Kind.PREPARE, "asked for")
        if is_due(stored.authority.certificate, now):
            return Step(Kind.PREPARE, "due")
    return None


def _reason_to_issue(stored: Stored, own: Own, now: datetime) -> str:
    if stored.serving is None or target(stored, own.names) is None:
        return "the Secret holds no certificate for these names"
    if is_due(stored.serving.certificate, now):
        return "due"
    return "asked for" if stored.request and not stored.request.startswith(ROTATE_AUTHORITY) else ""


def _retirement(stored: Stored, own: Own, ages: Ages, times: Times) -> Step | None:
    gone = {name for name in _late(stored, own) if ages.replicas.get(name, 0.0) >= times.absence.total_seconds()}
    if gone:
        return Step(Kind.FORGET, "they do not take the new certificate", replicas=frozenset(gone))
    if not stored.previous or stored.next is not None or stored.authority is None:
        return None
    in_force = fingerprint(stored.authority.certificate)
    if any(one.authority != in_force for one in stored.replicas.values()):
        return None
    if ages.overlap < times.retention.total_seconds():
        return None
    return Step(Kind.RETIRE, "no replica serves a certificate of theirs")


def _late(stored: Stored, own: Own) -> list[str]:
    """Return the other replicas that do not serve what the Secret holds, when it holds something to serve."""
    wanted = target(stored, own.names)
    if wanted is None:
        return []
    return [name for name, one in stored.replicas.items() if one != wanted and name != own.replica]


def _time_left(stored: Stored, own: Own, ages: Ages, times: Times, now: datetime) -> float:
    """Return in how many seconds something may be due."""
    pairs = [pair for pair in (stored.authority, stored.serving) if pair is not None]
    left = [(renewal_time(pair.certificate) - now).total_seconds() for pair in pairs]
    left = [seconds for seconds in left if seconds > 0]
    if stored.previous and ages.overlap < times.retention.total_seconds():
        left.append(times.retention.total_seconds() - ages.overlap)
    left += [times.absence.total_seconds() - ages.replicas.get(name, 0.0) for name in _late(stored, own)]
    return min(left, default=NO_HURRY)
