"""Carrying out a step on what the Secret says. New keys come from here; nothing else is random."""

import secrets
from dataclasses import replace
from datetime import datetime
from typing import Final

from certs.authority import KeyPair, fingerprint, issue, new_authority
from certs.bundle import authorities
from certs.secret import ROTATE_AUTHORITY, Stored
from certs.settings import Times
from certs.world import Kind, Own, Step, World, wanted_bundle

_MOST_RETIRED: Final = 20


def apply(step: Step, world: World, own: Own, times: Times, now: datetime, *, name: str) -> Stored:
    """Return what the Secret should say after a step that writes it.

    Args:
        step: from `next_step`.
        world: that it was decided from.
        own: this replica.
        times: lives of what is made.
        now: with a time zone.
        name: common name for a new authority.
    """
    stored = world.stored or Stored()
    match step.kind:
        case Kind.PREPARE:
            changed = _prepared(step, stored, times, now, name)
        case Kind.ADOPT:
            changed = _adopted(step, stored, world, own)
        case Kind.ISSUE:
            changed = _issued(stored, own, times, now)
        case Kind.PROMOTE:
            changed = _promoted(stored, own, times, now)
        case Kind.RETIRE:
            changed = _retired(stored)
        case Kind.FORGET:
            kept = {replica: one for replica, one in stored.replicas.items() if replica not in step.replicas}
            changed = replace(stored, replicas=kept)
        case Kind.PUBLISH if step.served is not None:
            changed = replace(stored, replicas={**stored.replicas, own.replica: step.served})
        case _:
            raise ValueError(f"{step.kind} does not change the Secret")
    return _without_known(changed)


def without(stored: Stored, replica: str) -> Stored:
    """Return what the Secret should say when a replica has ended."""
    return replace(stored, replicas={name: one for name, one in stored.replicas.items() if name != replica})


def _prepared(step: Step, stored: Stored, times: Times, now: datetime, name: str) -> Stored:
    # Names differ, so that verifiers which look for an issuer by its name find the right one at once.
    authority = new_authority(now=now, life=times.ca_life, name=f"{name}-{secrets.token_hex(4)}")
    previous = _with(stored.previous, step.authorities)
    if stored.request.startswith(ROTATE_AUTHORITY):
        stored = replace(stored, request="", accepted=stored.request)
    return replace(stored, next=authority, previous=previous)


def _adopted(step: Step, stored: Stored, world: World, own: Own) -> Stored:
    """Keep what may be in use. An authority that no webhook trusts becomes the next one: its turn must come again."""
    previous = _with(stored.previous, step.authorities)
    if stored.authority is None or _is_in_service(stored.authority, world, own):
        return replace(stored, previous=previous)
    if stored.next is not None:
        previous = _with(previous, (stored.authority.certificate,))
    return replace(stored, authority=None, serving=None, next=stored.next or stored.authority, previous=previous)


def _is_in_service(authority: KeyPair, world: World, own: Own) -> bool:
    name = fingerprint(authority.certificate)
    return name in world.trusted() or (own.served is not None and own.served.authority == name)


def _retired(stored: Stored) -> Stored:
    names = (*stored.retired, *(fingerprint(certificate) for certificate in stored.previous))
    return replace(stored, previous=(), retired=names[-_MOST_RETIRED:])


def _without_known(stored: Stored) -> Stored:
    """An authority that somebody brought back is not retired any more."""
    known = authorities(wanted_bundle(stored))
    return replace(stored, retired=tuple(name for name in stored.retired if name not in known))


def _issued(stored: Stored, own: Own, times: Times, now: datetime) -> Stored:
    if stored.authority is None:
        raise ValueError("there is no authority to issue a certificate")
    serving = issue(stored.authority, own.names, now=now, life=times.cert_life)
    if stored.request and not stored.request.startswith(ROTATE_AUTHORITY):
        return replace(stored, serving=serving, request="", accepted=stored.request)
    return replace(stored, serving=serving)


def _promoted(stored: Stored, own: Own, times: Times, now: datetime) -> Stored:
    if stored.next is None:
        raise ValueError("there is no next authority")
    replaced = (stored.authority.certificate,) if stored.authority else ()
    serving = issue(stored.next, own.names, now=now, life=times.cert_life)
    # The key of the replaced authority ends here: nothing will be signed with it again.
    return replace(stored, authority=stored.next, serving=serving, next=None, previous=_with(stored.previous, replaced))


def _with(certificates: tuple[bytes, ...], more: tuple[bytes, ...]) -> tuple[bytes, ...]:
    return tuple({fingerprint(certificate): certificate for certificate in (*certificates, *more)}.values())
